//! The state in which a run ends, without what is random by design: names of members are replaced
//! by their rank, UIDs, nonces, keys, addresses and times are left out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::crd::{
    ANNOTATION_INPUTS, LABEL_CLAIM_STATE, LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_MEMBER,
    member_number,
};
use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::servers::Servers;

use super::intruder;

/// Kinds whose objects are compared.
const KINDS: [Kind; 9] = [
    Kind::Certificate,
    Kind::ClusterTrustBundle,
    Kind::StatefulSet,
    Kind::Pod,
    Kind::PersistentVolumeClaim,
    Kind::Service,
    Kind::Secret,
    Kind::PodDisruptionBudget,
    Kind::NetworkPolicy,
];

/// What the StatefulSet controller adds to a pod: its name, and a hash of its template, in which
/// the member's name and the resource's UID stand. What of the template is not by chance is in the
/// hash of its inputs.
const NAME_OF_POD: &str = "statefulset.kubernetes.io/pod-name";
const REVISION: &str = "controller-revision-hash";

/// The end state of all resources, by name.
pub(super) fn state(api: &ApiServer, servers: &Servers) -> Value {
    let mut all = BTreeMap::new();
    for resource in api.all(Kind::EtcdCluster) {
        let (name, uid) = (object::name(resource), object::life(resource));
        all.insert(name.to_owned(), one(api, servers, resource, name, uid));
    }
    let left = api
        .all(Kind::PersistentVolumeClaim)
        .filter(|pvc| !is_of_any(api, pvc) && !intruder::made(pvc))
        .count();
    let mut end = json!({"clusters": all, "PVCs of earlier lives": left});
    let phases: BTreeMap<&str, &Value> = (api.all(Kind::EtcdBackup))
        .map(|backup| (object::name(backup), &backup["status"]["phase"]))
        .collect();
    if !phases.is_empty() {
        end["backups"] = json!(phases);
    }
    end
}

fn is_of_any(api: &ApiServer, object: &Value) -> bool {
    let uid = object::label(object, LABEL_CLUSTER_UID);
    api.all(Kind::EtcdCluster)
        .any(|resource| Some(object::life(resource)) == uid)
}

fn one(api: &ApiServer, servers: &Servers, resource: &Value, name: &str, uid: &str) -> Value {
    let group = servers.group_of(uid);
    let voters: Vec<&str> = group
        .iter()
        .flat_map(|group| group.membership.voters())
        .map(|member| member.name.as_str())
        .collect();
    let mut ranked: Vec<(Option<u64>, &str)> = voters
        .iter()
        .map(|voter: &&str| (member_number(name, voter), *voter))
        .collect();
    ranked.sort_unstable();
    let rank: BTreeMap<&str, usize> = (ranked.iter().enumerate())
        .map(|(rank, (_, voter))| (*voter, rank))
        .collect();
    let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for kind in KINDS {
        let ours = api
            .all(kind)
            .filter(|found| object::label(found, LABEL_CLUSTER_UID) == Some(uid))
            .filter(|found| !intruder::made(found));
        let mut seen: Vec<Value> = ours.map(|found| plain(kind, found, &rank)).collect();
        seen.sort_by_key(Value::to_string);
        objects.insert(kind.name().to_owned(), seen);
    }
    let status = &resource["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: BTreeMap<&str, &Value> = conditions
        .filter_map(|condition| Some((condition["type"].as_str()?, &condition["status"])))
        .collect();
    json!({
        "spec": resource["spec"],
        "voters": voters.len(),
        "learners": group.map(|group| group.membership.learners().count()),
        "status": {
            "replicas": status["replicas"],
            "ready": status["ready"],
            "version": status["version"],
            "conditions": conditions,
        },
        "objects": objects,
    })
}

/// What of an object does not depend on chance.
fn plain(kind: Kind, found: &Value, rank: &BTreeMap<&str, usize>) -> Value {
    let member = object::label(found, LABEL_MEMBER).map(|member| rank.get(member));
    let mut labels: BTreeSet<String> = BTreeSet::new();
    if let Some(all) = found["metadata"]["labels"].as_object() {
        let own = [
            LABEL_CLUSTER,
            LABEL_CLUSTER_UID,
            LABEL_MEMBER,
            NAME_OF_POD,
            REVISION,
        ];
        let others = all.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        labels.extend(others.map(|(key, value)| format!("{key}={value}")));
    }
    let inputs = &found["metadata"]["annotations"][ANNOTATION_INPUTS];
    let detail = match kind {
        Kind::PersistentVolumeClaim => json!({
            "size": found["spec"]["resources"],
            "state": object::label(found, LABEL_CLAIM_STATE),
            "owners": object::owners(found).len(),
        }),
        Kind::Service => json!({
            "type": found["spec"]["type"],
            "slot of": object::at(found, &["spec", "selector", LABEL_MEMBER]).is_some(),
            "annotations": found["metadata"]["annotations"],
        }),
        Kind::PodDisruptionBudget => json!({
            "most": found["spec"]["maxUnavailable"],
            "min_available": found["spec"]["minAvailable"],
        }),
        Kind::Certificate => found["spec"].clone(),
        // The CAs are by chance, how many there are is not.
        Kind::ClusterTrustBundle => {
            let authorities = object::text(found, &["spec", "trustBundle"]);
            json!({
                "signer": found["spec"]["signerName"],
                "CAs": authorities.matches("BEGIN CERTIFICATE").count(),
            })
        }
        // The UID, by which its members are selected, is by chance.
        Kind::NetworkPolicy => {
            let uid = object::label(found, LABEL_CLUSTER_UID).unwrap_or_default();
            json!(found["spec"]["ingress"].to_string().replace(uid, "UID"))
        }
        Kind::Pod => json!({"ready": object::holds(found, "Ready")}),
        _ => Value::Null,
    };
    let pods = matches!(kind, Kind::StatefulSet | Kind::Pod);
    json!({
        "member": if pods { json!(member) } else { Value::Null },
        "labels": labels,
        "inputs": if pods { inputs.clone() } else { Value::Null },
        "detail": detail,
        "deleting": object::is_deleting(found),
    })
}

/// What is left of a resource that is gone and should not be.
pub(super) fn remains(api: &ApiServer, uid: &str) -> Option<String> {
    for kind in KINDS {
        let ours = api
            .all(kind)
            .filter(|found| object::label(found, LABEL_CLUSTER_UID) == Some(uid))
            .filter(|found| !intruder::made(found));
        let kept = |found: &&std::sync::Arc<Value>| {
            kind == Kind::PersistentVolumeClaim && object::owners(found).is_empty()
        };
        let mut ours = ours;
        if let Some(left) = ours.find(|found| !kept(found)) {
            return Some(format!("{} {} is left", kind.name(), object::name(left)));
        }
    }
    None
}

/// The status of the resources, for a message.
pub(super) fn summary(api: &ApiServer) -> String {
    let summaries = api.all(Kind::EtcdCluster).map(|resource| {
        let status = &resource["status"];
        format!("{}: {}", object::name(resource), status["summary"])
    });
    summaries.collect::<Vec<_>>().join("; ")
}
