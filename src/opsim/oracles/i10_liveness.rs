//! I10: once faults stop, the desired state is reached within a stated time, and then nothing is
//! written any more. Here: what is still missing from the desired state.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::crd::{
    LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_MEMBER, TlsPort, cert_manager_certificate_name,
    client_service_name, identity_secret_name, member_certificate_name, network_policy_name,
    operator_secret_name, pdb_name, peers_service_name, pod_name, pvc_name, slot_service_name,
    trust_bundle_name,
};
use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::harness::ground_truth::ClusterTruth;
use crate::opsim::harness::intruder;

/// Why this cluster is not in its desired state, if it is not.
pub(crate) fn unsettled(api: &ApiServer, uid: &str, cluster: &ClusterTruth) -> Option<String> {
    let names: BTreeSet<&str> = cluster.voters.values().map(|m| m.name.as_str()).collect();
    if cluster.target == 0 {
        return awake(api, uid, cluster, &names).or_else(|| wrong_status(cluster, false));
    }
    members(cluster)
        .or_else(|| objects(api, uid, &names))
        .or_else(|| pvcs(api, uid, cluster, &names))
        .or_else(|| services(api, cluster, &names))
        .or_else(|| pdb(api, uid, cluster))
        .or_else(|| certificates(api, uid, &names))
        .or_else(|| wrong_status(cluster, true))
}

/// Of a cluster that hibernates: what runs, or is missing of what has to wait for it to wake.
fn awake(
    api: &ApiServer,
    uid: &str,
    cluster: &ClusterTruth,
    names: &BTreeSet<&str>,
) -> Option<String> {
    if let Some(pod) = ours(api, Kind::Pod, uid).keys().next() {
        return Some(format!("pod {pod} is there, and the cluster is to sleep"));
    }
    let sets = ours(api, Kind::StatefulSet, uid);
    let asks = |set: &&&Value| object::number(set, &["spec", "replicas"]) != Some(0);
    if let Some(set) = sets.values().find(asks) {
        return Some(format!("set {} asks for a pod", object::name(set)));
    }
    let pvcs = ours(api, Kind::PersistentVolumeClaim, uid);
    let kept = |name: &&&str| {
        let pvc = pvcs.get(pvc_name(name, uid).as_str());
        pvc.is_some_and(|pvc| !object::is_deleting(pvc))
    };
    if let Some(name) = names.iter().find(|name| !kept(name)) {
        return Some(format!("the PVC of {name} is not there"));
    }
    (cluster.serving() > 0).then(|| "somebody serves, and the cluster is to sleep".to_owned())
}

fn members(cluster: &ClusterTruth) -> Option<String> {
    let voters = cluster.voters.len();
    if voters != cluster.target {
        return Some(format!("{voters} voters of {}", cluster.target));
    }
    if !cluster.learners.is_empty() {
        return Some(format!("{} learners", cluster.learners.len()));
    }
    let serving = cluster.serving();
    if serving != voters || !cluster.quorate {
        return Some(format!("{serving} of {voters} voters serve"));
    }
    let named = |member: &str| cluster.replace.contains(member);
    let to_replace = cluster.voters.values().find(|m| named(&m.name));
    to_replace.map(|member| format!("{} is to be replaced", member.name))
}

/// Objects of a kind that carry this life's label, by name.
fn ours<'a>(api: &'a ApiServer, kind: Kind, uid: &str) -> BTreeMap<&'a str, &'a Value> {
    let all = api.all(kind);
    let ours = all.filter(|object| object::label(object, LABEL_CLUSTER_UID) == Some(uid));
    let ours = ours.filter(|object| !intruder::made(object));
    ours.map(|object| (object::name(object), &**object))
        .collect()
}

fn objects(api: &ApiServer, uid: &str, names: &BTreeSet<&str>) -> Option<String> {
    let sets = ours(api, Kind::StatefulSet, uid);
    let found: BTreeSet<&str> = sets.keys().copied().collect();
    if found != *names {
        return Some(format!("sets {found:?} for voters {names:?}"));
    }
    let pods = ours(api, Kind::Pod, uid);
    let wanted: BTreeSet<String> = names.iter().map(|name| pod_name(name)).collect();
    let found: BTreeSet<String> = pods.keys().map(|name| (*name).to_owned()).collect();
    if found != wanted {
        return Some(format!("pods {found:?} for voters {names:?}"));
    }
    let unready = pods
        .values()
        .find(|pod| object::is_deleting(pod) || !object::holds(pod, "Ready"));
    unready.map(|pod| format!("pod {} is not ready", object::name(pod)))
}

fn pvcs(
    api: &ApiServer,
    uid: &str,
    cluster: &ClusterTruth,
    names: &BTreeSet<&str>,
) -> Option<String> {
    let pvcs = ours(api, Kind::PersistentVolumeClaim, uid);
    for name in names {
        let pvc = pvcs.get(pvc_name(name, uid).as_str());
        let joined = pvc.is_some_and(|pvc| {
            object::label(pvc, LABEL_CLAIM_STATE) == Some("joined") && !object::is_deleting(pvc)
        });
        if !joined {
            return Some(format!("the PVC of {name} is not there and joined"));
        }
    }
    let others = pvcs.values().find(|pvc| {
        let member = object::label(pvc, LABEL_MEMBER).unwrap_or_default();
        let former = cluster.former_volumes.contains(member);
        !former
            && !names.contains(member)
            && object::label(pvc, LABEL_CLAIM_STATE) != Some("retired")
    });
    others.map(|pvc| format!("PVC {} of no member is there", object::name(pvc)))
}

fn services(api: &ApiServer, cluster: &ClusterTruth, names: &BTreeSet<&str>) -> Option<String> {
    let name = cluster.name.as_str();
    let secrets = [identity_secret_name(name), operator_secret_name(name)];
    let services = [peers_service_name(name), client_service_name(name)];
    let (pdbs, policies) = ([pdb_name(name)], [network_policy_name(name)]);
    let resource = api
        .all(Kind::EtcdCluster)
        .find(|one| object::name(one) == name);
    let cert_manager = TlsPort::ALL.into_iter().filter(|port| {
        let path = ["spec", "tls", port.as_str(), "source"];
        resource.is_some_and(|one| object::text(one, &path) == "CertManager")
    });
    let cert_manager: Vec<String> = cert_manager
        .map(|port| cert_manager_certificate_name(name, port))
        .collect();
    // A specification that cannot be carried out is not what the cluster is kept by.
    let judged = resource.filter(|one| !object::holds(one, "Stalled"));
    let bundle = judged.map(|one| trust_bundle_name(object::namespace(one), name));
    let publishes = resource.is_some_and(|one| {
        object::text(one, &["spec", "tls", "publishCAs"]) == "ClusterTrustBundle"
    });
    let bundles: Vec<String> = bundle.clone().filter(|_| publishes).into_iter().collect();
    let wanted = [
        (Kind::Certificate, &cert_manager[..]),
        (Kind::ClusterTrustBundle, &bundles[..]),
        (Kind::Secret, &secrets[..]),
        (Kind::Service, &services[..]),
        (Kind::PodDisruptionBudget, &pdbs[..]),
        (Kind::NetworkPolicy, &policies[..]),
    ];
    let there = |kind, name: &str| api.all(kind).any(|found| object::name(found) == name);
    for (kind, wanted) in wanted {
        if let Some(missing) = wanted.iter().find(|name| !there(kind, name)) {
            return Some(format!("{} {missing} is missing", kind.name()));
        }
    }
    if let Some(bundle) = bundle.filter(|_| !publishes)
        && there(Kind::ClusterTrustBundle, &bundle)
    {
        return Some(format!("{bundle} is there, and asked for no more"));
    }
    let mut held = BTreeSet::new();
    for slot in 0..u32::try_from(cluster.target).unwrap_or(0) {
        let service = slot_service_name(name, slot);
        let found = api
            .all(Kind::Service)
            .find(|found| object::name(found) == service);
        let member = found.map(|found| object::text(found, &["spec", "selector", LABEL_MEMBER]));
        match member {
            Some(member) if names.contains(member) && held.insert(member.to_owned()) => {}
            other => return Some(format!("slot {slot} leads to {other:?}")),
        }
    }
    let surplus = slot_service_name(name, u32::try_from(cluster.target).unwrap_or(0));
    there(Kind::Service, &surplus).then(|| format!("{surplus} is one slot too many"))
}

/// Reasons for which a PDB that opens stays closed at rest.
const STAYS_CLOSED: [&str; 9] = [
    "AlarmRaised",
    "CertificateRefused",
    "FewVoters",
    "MembersReplaced",
    "NodeDrained",
    "NodesUnknown",
    "Paused",
    "VolumesStay",
    "VolumesUnknown",
];

/// A PDB that counts keeps a quorum of the members, no more and no fewer; one that opens keeps all but one, if its
/// condition says that it is open.
fn pdb(api: &ApiServer, uid: &str, cluster: &ClusterTruth) -> Option<String> {
    let mut resources = api.all(Kind::EtcdCluster);
    let resource = resources.find(|found| object::life(found) == uid)?;
    let min_available = match object::text(resource, &["spec", "disruption", "policy"]) {
        "Budget" => Some(cluster.target / 2 + 1),
        "Auto" => {
            let mut conditions = object::items(resource, &["status", "conditions"]).iter();
            let found = conditions.find(|it| it["type"] == "DisruptionAllowed")?;
            let reason = object::text(found, &["reason"]);
            if found["status"] != "True" && !STAYS_CLOSED.contains(&reason) {
                return Some(format!("the PDB is closed at rest, for {reason}"));
            }
            (reason == "OneAtATime").then_some(cluster.target - 1)
        }
        _ => None,
    };
    let current = cluster.pdbs.min_available;
    (current != min_available).then(|| format!("the PDB keeps {current:?}, not {min_available:?}"))
}

/// With TLS there are exactly the certificates of the voters, and the status calls them sound.
fn certificates(api: &ApiServer, uid: &str, names: &BTreeSet<&str>) -> Option<String> {
    let resource = api
        .all(Kind::EtcdCluster)
        .find(|found| object::life(found) == uid)?;
    let tls = object::at(resource, &["spec", "tls"])?;
    let made = |port: &TlsPort| {
        let source = object::text(tls, &[port.as_str(), "source"]);
        !matches!(source, "Secret" | "CertManager")
    };
    let made: Vec<TlsPort> = TlsPort::ALL.into_iter().filter(made).collect();
    let secrets = ours(api, Kind::Secret, uid);
    let held: BTreeSet<&str> = (secrets.values())
        .filter_map(|secret| object::label(secret, LABEL_MEMBER))
        .collect();
    let wanted = match made.is_empty() {
        true => &BTreeSet::new(),
        false => names,
    };
    if held != *wanted {
        return Some(format!("certificates of {held:?} for voters {wanted:?}"));
    }
    for name in names {
        for port in made.iter().copied() {
            let secret = member_certificate_name(name, port);
            if !secrets.contains_key(secret.as_str()) {
                return Some(format!("{secret} is missing"));
            }
        }
    }
    let mut conditions = resource["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let sound = conditions.any(|c| c["type"] == "TLSReady" && c["reason"] == "AsWanted");
    (!sound).then(|| "the certificates are not called sound".to_owned())
}

/// What the status does not show yet.
fn wrong_status(cluster: &ClusterTruth, wanted_ready: bool) -> Option<String> {
    let status = &cluster.status;
    if status["observedGeneration"].as_i64() != Some(cluster.generation) {
        return Some("the status is of an older specification".into());
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ready =
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if ready != wanted_ready {
        return Some(format!(
            "the status reports Ready as {ready}: {}",
            status["summary"]
        ));
    }
    let replicas = status["replicas"].as_u64().unwrap_or(0);
    (replicas != cluster.target as u64).then(|| format!("the status reports {replicas} voters"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::cluster;
    use super::*;

    #[test]
    fn missing_objects_are_reported() {
        let api = ApiServer::new(1, 0);
        let three = cluster(3);
        let missing = unsettled(&api, "uid", &three).expect("no objects");
        assert!(missing.starts_with("sets"), "{missing}");
        let mut fewer = cluster(2);
        fewer.target = 3;
        let missing = unsettled(&api, "uid", &fewer).expect("too few");
        assert_eq!(missing, "2 voters of 3");
        let mut silent = cluster(3);
        silent.voters.entry(1).and_modify(|m| m.reached = false);
        let missing = unsettled(&api, "uid", &silent).expect("one is silent");
        assert_eq!(missing, "2 of 3 voters serve");
    }
}
