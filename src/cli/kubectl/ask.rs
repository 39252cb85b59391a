//! Questions to the API server, asked by `kubectl`. Changes nothing there.

use std::ffi::OsStr;
use std::process::Command;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Which;
use super::screen::Operator;
use crate::cli::operator::LEASE;
use crate::crd::EtcdCluster;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// kubectl is not there, or cannot be started.
    #[error("cannot run kubectl, by which it asks: put it on the PATH")]
    NoKubectl(#[source] std::io::Error),
    /// kubectl said no; its words say why.
    #[error("{0}")]
    Refused(String),
    /// What kubectl printed is not what was asked for.
    #[error("kubectl printed what cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// A name is needed.
    #[error("there is no EtcdCluster in this namespace; -n names another one")]
    None,
    /// A name is needed.
    #[error("there are several EtcdClusters in this namespace: say which of {0}")]
    Several(String),
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// The cluster of this name, or the only one.
pub(super) fn cluster(which: &Which, name: Option<&str>) -> Result<EtcdCluster, Error> {
    const RESOURCE: &str = "etcdclusters.quorate.dev";
    if let Some(name) = name {
        return get(which, [RESOURCE, name]);
    }
    let mut all: List<EtcdCluster> = get(which, [RESOURCE])?;
    match all.items.len() {
        0 => Err(Error::None),
        1 => Ok(all.items.remove(0)),
        _ => {
            let names: Vec<String> = all.items.iter().map(ResourceExt::name_any).collect();
            Err(Error::Several(names.join(", ")))
        }
    }
}

/// What was said of a cluster, in no order.
pub(super) fn events(which: &Which, cluster: &EtcdCluster) -> Result<Vec<Event>, Error> {
    let uid = cluster.uid().unwrap_or_default();
    let selector = format!("--field-selector=involvedObject.uid={uid}");
    let namespace = format!("--namespace={}", cluster.namespace().unwrap_or_default());
    let list: List<Event> = get(which, ["events", &selector, &namespace])?;
    Ok(list.items)
}

/// Whether an operator is at work. To read its Lease is a right that not everybody has.
pub(super) fn operator(which: &Which) -> Operator {
    let question = [
        "leases.coordination.k8s.io",
        "--all-namespaces",
        &format!("--field-selector=metadata.name={LEASE}"),
    ];
    match get::<List<Lease>>(which, question) {
        Ok(list) => Operator::Leases(list.items),
        Err(error) => Operator::Unknown(error.to_string()),
    }
}

fn get<T: DeserializeOwned>(
    which: &Which,
    question: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<T, Error> {
    let mut command = Command::new("kubectl");
    command.arg("get").arg("--output=json");
    command.arg(format!("--request-timeout={}", which.request_timeout));
    let given = [
        ("namespace", &which.namespace),
        ("context", &which.context),
        ("kubeconfig", &which.kubeconfig),
    ];
    for (flag, value) in given {
        command.args(value.as_ref().map(|value| format!("--{flag}={value}")));
    }
    let output = command.args(question).output().map_err(Error::NoKubectl)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Refused(words.trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(Error::Unreadable)
}
