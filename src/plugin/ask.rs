//! Requests to the API server through `kubectl` that change nothing there.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod, Secret};
use kube_core::ResourceExt;
use serde::Deserialize;
use serde_json::Value;

use super::child::{get, kubectl, run};
use super::error::Error;
use super::recover::Lost;
use super::screen::Operator;
use super::{Operators, Which};
use crate::crd::{
    EtcdCluster, EtcdRecovery, LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_MEMBER, OPERATOR_LEASE,
};
use crate::model::call::{AUDIENCE, ForecastRequest, ForecastResponse};
use crate::model::forecast::Forecast;

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// The cluster of this name, or the only one.
pub(super) fn cluster(which: &Which, name: Option<&str>) -> Result<EtcdCluster, Error> {
    known(object(which, name)?)
}

/// A resource, as far as this plugin knows everything that is in it.
pub(super) fn known(resource: Value) -> Result<EtcdCluster, Error> {
    serde_json::from_value(resource).map_err(Error::Newer)
}

/// The same as the API server has it, with fields that this plugin may not know.
pub(super) fn object(which: &Which, name: Option<&str>) -> Result<Value, Error> {
    const RESOURCE: &str = "etcdclusters.quorate.dev";
    if let Some(name) = name {
        return get(which, [RESOURCE, name]);
    }
    let mut all: List<Value> = get(which, [RESOURCE])?;
    match all.items.len() {
        0 => Err(Error::None),
        1 => Ok(all.items.remove(0)),
        _ => {
            let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or("?").to_owned();
            let names: Vec<String> = all.items.iter().map(name).collect();
            Err(Error::Several(names.join(", ")))
        }
    }
}

/// The events of a cluster, in no particular order.
pub(super) fn events(which: &Which, cluster: &EtcdCluster) -> Result<Vec<Event>, Error> {
    let uid = cluster.uid().unwrap_or_default();
    let selector = format!("--field-selector=involvedObject.uid={uid}");
    let namespace = format!("--namespace={}", cluster.namespace().unwrap_or_default());
    let list: List<Event> = get(which, ["events", &selector, &namespace])?;
    Ok(list.items)
}

/// Whether an operator is running. Not every user may read its Lease.
pub(super) fn operator(which: &Which, operators: &Operators) -> Operator {
    let namespace = operators.operator_namespace.as_ref();
    let request = [
        "leases.coordination.k8s.io",
        &namespace.map_or("--all-namespaces".to_owned(), |name| {
            format!("--namespace={name}")
        }),
        &format!("--field-selector=metadata.name={OPERATOR_LEASE}"),
    ];
    match get::<List<Lease>>(which, request) {
        Ok(list) => Operator::Leases(list.items),
        Err(error) => Operator::Unknown(error.to_string()),
    }
}

/// A cluster with what is left of its members, and its EtcdRecoveries.
pub(super) fn lost(which: &Which, name: &str) -> Result<Lost, Error> {
    let cluster = cluster(which, Some(name))?;
    let namespace = format!("--namespace={}", cluster.namespace().unwrap_or_default());
    let selector = format!("--selector={LABEL_CLUSTER}={name}");
    let pods: List<Pod> = get(which, ["pods", &selector, &namespace])?;
    let claims = ["persistentvolumeclaims", &selector, &namespace];
    let pvcs: List<PersistentVolumeClaim> = get(which, claims)?;
    let recoveries = ["etcdrecoveries.quorate.dev", &namespace];
    let mut recoveries: List<EtcdRecovery> = get(which, recoveries)?;
    recoveries
        .items
        .retain(|it| it.spec.cluster_ref.name == name);
    // Not every user may see nodes.
    let nodes = get::<List<Node>>(which, ["nodes"]).ok();
    Ok(Lost {
        cluster,
        pods: pods.items,
        pvcs: pvcs.items,
        nodes: nodes.map(|nodes| nodes.items),
        recoveries: recoveries.items,
    })
}

/// The EtcdRecoveries in the namespace of a cluster, as the API server has them.
pub(super) fn recoveries(which: &Which, name: &str) -> Result<Value, Error> {
    let cluster = object(which, Some(name))?;
    let namespace = cluster["metadata"]["namespace"].as_str();
    let namespace = format!("--namespace={}", namespace.unwrap_or_default());
    get(which, ["etcdrecoveries.quorate.dev", &namespace])
}

/// The pods of a cluster's members.
pub(super) fn member_pods(which: &Which, cluster: &EtcdCluster) -> Result<Vec<Pod>, Error> {
    let namespace = format!("--namespace={}", cluster.namespace().unwrap_or_default());
    let selector = format!("--selector={}", selector(cluster));
    let pods: List<Pod> = get(which, ["pods", &selector, &namespace])?;
    Ok(pods.items)
}

/// Selects the pods of a cluster's members, and of no Job.
pub(super) fn selector(cluster: &EtcdCluster) -> String {
    format!("{LABEL_CLUSTER_UID}={},{LABEL_MEMBER}", cluster.life())
}

/// A Secret.
pub(super) fn secret(which: &Which, namespace: &str, name: &str) -> Result<Secret, Error> {
    let option = format!("--namespace={namespace}");
    get(which, ["secrets", name, &option]).map_err(|error| match error {
        Error::Refused(why) => Error::NoSecret(name.to_owned(), why),
        error => error,
    })
}

/// The cluster of a file as the API server would store it. Stores nothing.
pub(super) fn as_if_applied(which: &Which, filename: &str) -> Result<EtcdCluster, Error> {
    let mut manifest = manifest(which, filename)?;
    // A file that was printed by `kubectl get` has the version at that moment. The operator may have changed the
    // status since, and applying that version would be refused, whatever the file says about the spec.
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let mut command = kubectl(which, "apply");
    command.args(["--dry-run=server", "--output=json", "--filename", "-"]);
    let manifest = manifest.to_string();
    let printed = run(command, Some(manifest.as_bytes()))?;
    known(serde_json::from_slice(&printed).map_err(Error::Unreadable)?)
}

/// The only resource of a file, of a URL or of standard input, read by kubectl. Neither validated nor defaulted.
fn manifest(which: &Which, filename: &str) -> Result<Value, Error> {
    let mut command = kubectl(which, "create");
    command.args(["--dry-run=client", "--validate=false", "--output=json"]);
    command.args(["--filename", filename]);
    let printed = run(command, None)?;
    // Of several resources kubectl prints a list, or one after the other.
    let documents = serde_json::Deserializer::from_slice(&printed).into_iter();
    let mut documents: Vec<Value> =
        (documents.collect::<Result<_, _>>()).map_err(Error::Unreadable)?;
    let held = match documents.as_slice() {
        [one] if one["kind"] == "EtcdCluster" => return Ok(documents.remove(0)),
        [one] => format!("a {}", one["kind"].as_str().unwrap_or("nothing")),
        several => format!("{} resources", several.len()),
    };
    Err(Error::NotOne(filename.to_owned(), held))
}

/// What the active operator would do, requested through the API server. The operator authenticates the caller by a
/// token of this service account (`NAMESPACE/NAME`; by default the operator's own), created for this request and valid
/// for nothing else.
pub(super) fn forecast(
    (which, operators): (&Which, &Operators),
    wanted: &EtcdCluster,
    (port, account): (u16, Option<&str>),
) -> Result<Forecast, Error> {
    let leases = match operator(which, operators) {
        Operator::Leases(leases) => leases,
        Operator::Unknown(why) => return Err(Error::NoLease(why)),
    };
    let mut pods: Vec<(String, String)> = leases.iter().filter_map(pod_of).collect();
    pods.dedup();
    let mut refused = None;
    // Several operators may be running, each for its own namespaces: one of them serves the cluster.
    for (namespace, pod) in pods {
        let token = match account.map(|account| account.split_once('/')) {
            Some(Some((namespace, account))) => token(which, namespace, account)?,
            Some(None) => return Err(Error::NoAccount(account.unwrap_or_default().to_owned())),
            None => token(which, &namespace, &account_of(which, &namespace, &pod)?)?,
        };
        let cluster = wanted.clone();
        let body =
            serde_json::to_vec(&ForecastRequest { token, cluster }).map_err(Error::Unreadable)?;
        let mut command = kubectl(which, "create");
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/forecast");
        command.args(["--raw", &path, "--filename", "-"]);
        let printed = run(command, Some(&body))?;
        match serde_json::from_slice(&printed).map_err(Error::Unreadable)? {
            ForecastResponse::Forecast(forecast) => return Ok(forecast),
            ForecastResponse::Refused(why) => refused = Some(Error::NoForecast(why)),
        }
    }
    Err(refused.unwrap_or(Error::NoOperator))
}

/// The service account of a pod.
fn account_of(which: &Which, namespace: &str, name: &str) -> Result<String, Error> {
    let option = format!("--namespace={namespace}");
    let pod: Pod = get(which, ["pods", name, &option]).map_err(|error| match error {
        Error::Refused(why) => Error::NoToken(format!("of pod {namespace}/{name}"), why),
        error => error,
    })?;
    let account = pod.spec.and_then(|spec| spec.service_account_name);
    Ok(account.unwrap_or_else(|| "default".to_owned()))
}

/// A token of a service account, for the operator alone and for a few minutes.
fn token(which: &Which, namespace: &str, account: &str) -> Result<String, Error> {
    let mut command = kubectl(which, "create");
    command.args(["token", account, "--duration=10m"]);
    command.arg(format!("--audience={AUDIENCE}"));
    command.arg(format!("--namespace={namespace}"));
    let printed = run(command, None).map_err(|error| match error {
        Error::Refused(why) => Error::NoToken(format!("{namespace}/{account}"), why),
        error => error,
    })?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}

/// The pod that holds a Lease: the holder's identity ends with a random suffix.
pub(super) fn pod_of(lease: &Lease) -> Option<(String, String)> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let (pod, _) = holder.rsplit_once('-')?;
    Some((lease.namespace()?, pod.to_owned()))
}
