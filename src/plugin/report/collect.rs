//! What goes into a report, asked one by one through kubectl. What may not be read is left out and said.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube_core::ResourceExt as _;
use serde::Deserialize;
use serde_json::Value;

use super::archive::Archive;
use super::redact;
use crate::Which;
use crate::ask;
use crate::child::{get, kubectl, limited, run};
use crate::crd::{LABEL_CLUSTER, LABEL_MEMBER};
use crate::error::Error;
use crate::screen::Operator;

/// For the logs of one pod.
const PATIENCE: &str = "120s";

/// Which cluster.
pub(super) struct Named {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Which logs.
pub(super) struct LogLimits {
    /// From this span before now.
    pub(super) since: String,
    /// So many lines of each container at most.
    pub(super) tail: u32,
}

/// Objects with the label of the cluster, in its namespace.
const LABELLED: [&str; 9] = [
    "statefulsets.apps",
    "pods",
    "persistentvolumeclaims",
    "services",
    "secrets",
    "poddisruptionbudgets.policy",
    "networkpolicies.networking.k8s.io",
    "jobs.batch",
    "controllerrevisions.apps",
];
/// Objects of its namespace that may be about it.
const NEARBY: [&str; 10] = [
    "events",
    "etcdrecoveries.quorate.dev",
    "etcdbackups.quorate.dev",
    "etcdbackupschedules.quorate.dev",
    "etcdbackupstores.quorate.dev",
    "etcdusers.quorate.dev",
    "etcdroles.quorate.dev",
    "endpointslices.discovery.k8s.io",
    "resourcequotas",
    "limitranges",
];
/// Objects of no namespace.
const EVERYWHERE: [&str; 3] = [
    "nodes",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
];

/// Adds everything. Returns what could not be read, and why.
pub(super) fn all(
    which: &Which,
    cluster: &Named,
    operator: &Operator,
    logs: Option<&LogLimits>,
    archive: &mut Archive,
) -> Vec<String> {
    let mut missing = Vec::new();
    let mut add = |name: String, found: Result<Vec<u8>, Error>| match found {
        Ok(bytes) => archive.add(&name, bytes),
        Err(error) => missing.push(format!("{name}: {}", crate::chain(&error))),
    };
    add("kubernetes.json".to_owned(), version(which));
    for (file, request) in requests(cluster) {
        add(file, objects(which, &request, cluster));
    }
    let mut pods = member_pods(which, cluster);
    match operator {
        Operator::Leases(leases) => {
            let found = serde_json::to_value(leases).map_err(Error::Unreadable);
            let found = found.map(|leases| printed(redact::object(leases)));
            add("operator/leases.json".to_owned(), found);
            pods.extend(operators(leases));
        }
        Operator::Unknown(why) => {
            let found = Err(Error::NoLease(why.clone()));
            add("operator/leases.json".to_owned(), found);
        }
    }
    for (folder, namespace, pod) in pods {
        if folder == "operator" {
            let request = [
                "pods".to_owned(),
                pod.clone(),
                format!("--namespace={namespace}"),
            ];
            add(
                format!("operator/{pod}.json"),
                objects(which, &request, cluster),
            );
        }
        let Some(limits) = logs else { continue };
        let file = format!("{folder}/logs/{pod}.log");
        let log_now = log(which, &namespace, &pod, limits, false);
        if let Some(why) = log_now.as_ref().ok().and_then(|bytes| problem(bytes)) {
            add(format!("{file}, in part"), Err(Error::Refused(why)));
        }
        add(file, log_now);
        // Most containers were never restarted, and have no earlier log.
        let earlier = log(which, &namespace, &pod, limits, true);
        if let Some(bytes) = earlier.ok().filter(|bytes| has_lines(bytes)) {
            add(format!("{folder}/logs/{pod}.previous.log"), Ok(bytes));
        }
    }
    missing
}

/// The files with objects, and what kubectl is asked for each.
fn requests(cluster: &Named) -> Vec<(String, Vec<String>)> {
    let file = |resource: &str| {
        let name = resource.split_once('.').map_or(resource, |(name, _)| name);
        format!("objects/{name}.json")
    };
    let of_namespace = format!("--namespace={}", cluster.namespace);
    let selector = format!("--selector={LABEL_CLUSTER}={}", cluster.name);
    let labelled = LABELLED.iter().map(|resource| {
        let request = vec![
            (*resource).to_owned(),
            of_namespace.clone(),
            selector.clone(),
        ];
        (file(resource), request)
    });
    let nearby = NEARBY.iter().map(|resource| {
        (
            file(resource),
            vec![(*resource).to_owned(), of_namespace.clone()],
        )
    });
    let everywhere = EVERYWHERE
        .iter()
        .map(|resource| (file(resource), vec![(*resource).to_owned()]));
    labelled.chain(nearby).chain(everywhere).collect()
}

fn objects(which: &Which, request: &[String], cluster: &Named) -> Result<Vec<u8>, Error> {
    let mut found: Value = get(which, request)?;
    if let Some(items) = found["items"].as_array_mut() {
        items.retain(|item| !is_foreign_volume(item, cluster));
    }
    Ok(printed(redact::object(found)))
}

/// Whether it is the volume of another namespace.
fn is_foreign_volume(item: &Value, cluster: &Named) -> bool {
    item["kind"] == "PersistentVolume"
        && item["spec"]["claimRef"]["namespace"] != cluster.namespace.as_str()
}

fn printed(value: Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// The versions of kubectl and of the API server, with that of the plugin.
fn version(which: &Which) -> Result<Vec<u8>, Error> {
    let mut command = kubectl(which, "version");
    command.arg("--output=json");
    let mut found: Value =
        serde_json::from_slice(&run(command, None)?).map_err(Error::Unreadable)?;
    found["pluginVersion"] = env!("CARGO_PKG_VERSION").into();
    Ok(printed(found))
}

/// The pods whose logs are wanted: folder, namespace and name. Those that cannot be listed are missing as objects already.
fn member_pods(which: &Which, cluster: &Named) -> Vec<(&'static str, String, String)> {
    let request = [
        "pods".to_owned(),
        format!("--namespace={}", cluster.namespace),
        format!("--selector={LABEL_CLUSTER}={},{LABEL_MEMBER}", cluster.name),
    ];
    let pods: Option<Pods> = get(which, request).ok();
    let pods = pods.map(|found| found.items).unwrap_or_default();
    let of = |pod: &Pod| ("members", cluster.namespace.clone(), pod.name_any());
    pods.iter().map(of).collect()
}

#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

fn operators(leases: &[Lease]) -> Vec<(&'static str, String, String)> {
    let mut pods: Vec<(String, String)> = leases.iter().filter_map(ask::pod_of).collect();
    pods.sort();
    pods.dedup();
    let of = |(namespace, pod)| ("operator", namespace, pod);
    pods.into_iter().map(of).collect()
}

/// What kubectl says between the lines, of a container without a log or a connection that broke.
fn problem(log: &[u8]) -> Option<String> {
    let mut lines = log.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.starts_with(b"error: "))?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// Whether a container has logged something: kubectl puts its name in front of each line.
fn has_lines(log: &[u8]) -> bool {
    log.starts_with(b"[pod/") || log.windows(6).any(|part| part == b"\n[pod/")
}

fn log(
    which: &Which,
    namespace: &str,
    pod: &str,
    limits: &LogLimits,
    previous: bool,
) -> Result<Vec<u8>, Error> {
    // The limit is for all of it, and not until the first byte.
    let mut command = limited(which, "logs", PATIENCE);
    // A container that waits has no log, and does not hide the others'.
    command.args([
        pod,
        "--all-containers",
        "--ignore-errors",
        "--prefix",
        "--timestamps",
    ]);
    command.arg(format!("--namespace={namespace}"));
    command.arg(format!("--since={}", limits.since));
    command.arg(format!("--tail={}", limits.tail));
    command.args(previous.then_some("--previous"));
    run(command, None)
}
