//! What is left of each member of a cluster: what its disk holds by its own words, its volume, its pod and its node.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube_core::ResourceExt as _;

use super::recover::Lost;
use crate::crd::{
    LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_INCARNATION, LABEL_MEMBER, MemberDisk, MemberRole,
    MemberStatus,
};

/// What is left of a member.
pub(super) struct Remains {
    pub(super) name: String,
    pub(super) role: MemberRole,
    /// Only while it answers.
    pub(super) disk: Option<MemberDisk>,
    pub(super) volume: Volume,
    /// State of its pod, in words.
    pub(super) pod: Option<String>,
    pub(super) node: Option<NodeState>,
}

/// State of a member's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Volume {
    There,
    /// Its PVC says so.
    Lost,
    /// Its PVC was deleted, and goes with its pod.
    Deleted,
    /// It has no PVC.
    None,
}

/// The node of a pod.
pub(super) struct NodeState {
    name: String,
    /// `None`: it is not known.
    reports: Option<bool>,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reports {
            Some(false) => write!(f, "{} (does not report)", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

impl Volume {
    pub(super) fn words(self) -> &'static str {
        match self {
            Volume::There => "there",
            Volume::Lost => "lost",
            Volume::Deleted => "deleted",
            Volume::None => "none",
        }
    }
}

impl Remains {
    /// Whether its disk may hold entries of the log.
    pub(super) fn may_hold_data(&self) -> bool {
        let joined = matches!(self.role, MemberRole::Voter | MemberRole::Learner);
        joined && self.volume == Volume::There
    }

    /// How to find out why it does not answer.
    pub(super) fn way_back(&self) -> String {
        let name = &self.name;
        if let Some(node) = self.node.as_ref().filter(|it| it.reports == Some(false)) {
            return format!("bring back node {}, where its pod is", node.name);
        }
        match self.pod.as_deref() {
            None => format!(
                "it has no pod, and its volume is there: kubectl describe statefulset {name} says why"
            ),
            Some("Running") => format!(
                "its pod runs and does not say what its log holds: see kubectl logs {name}-0; members of version 0.1.0 never say it"
            ),
            Some(state) => {
                format!("its pod is {state}: kubectl describe pod {name}-0 says why")
            }
        }
    }
}

/// Every member that the status shows, or that a PVC of this incarnation was made for and has joined.
pub(super) fn remains(lost: &Lost, incarnation: i64) -> Vec<Remains> {
    let status = lost.cluster.status.as_ref();
    let mut all: BTreeMap<(usize, String), Remains> = BTreeMap::new();
    // In order of their numbers.
    let key = |name: &str| (name.len(), name.to_owned());
    for row in status.iter().flat_map(|status| &status.members) {
        all.insert(key(&row.name), one(lost, row, incarnation));
    }
    for claim in claims(lost, incarnation) {
        let joined = label(claim, LABEL_CLAIM_STATE) == Some("joined");
        let Some(name) = label(claim, LABEL_MEMBER).filter(|_| joined) else {
            continue;
        };
        let known = all.entry(key(name));
        known.or_insert_with(|| of_objects(lost, name, MemberRole::Voter, None, incarnation));
    }
    all.into_values().collect()
}

fn one(lost: &Lost, row: &MemberStatus, incarnation: i64) -> Remains {
    of_objects(lost, &row.name, row.role, row.disk.clone(), incarnation)
}

fn of_objects(
    lost: &Lost,
    name: &str,
    role: MemberRole,
    disk: Option<MemberDisk>,
    incarnation: i64,
) -> Remains {
    let mut claims = claims(lost, incarnation);
    let claim = claims.find(|claim| label(claim, LABEL_MEMBER) == Some(name));
    let uid = lost.cluster.life();
    let mut pods = lost.pods.iter().filter(|pod| {
        let labels = pod.labels();
        labels.get(LABEL_MEMBER).map(String::as_str) == Some(name)
            && labels.get(LABEL_CLUSTER_UID).map(String::as_str) == Some(uid)
    });
    let pod = pods.next();
    Remains {
        name: name.to_owned(),
        role,
        disk,
        volume: volume(claim),
        pod: pod.map(pod_in_words),
        node: pod.and_then(|pod| node(lost.nodes.as_deref(), pod)),
    }
}

/// The PVCs of this incarnation that a member has or had. A recovery that was deleted in the middle may have marked them
/// as retired.
fn claims(lost: &Lost, incarnation: i64) -> impl Iterator<Item = &PersistentVolumeClaim> {
    let uid = lost.cluster.life();
    lost.pvcs.iter().filter(move |claim| {
        let of = label(claim, LABEL_INCARNATION).map_or(Ok(1), str::parse::<i64>);
        label(claim, LABEL_CLUSTER_UID) == Some(uid) && of == Ok(incarnation)
    })
}

fn label<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.labels().get(key).map(String::as_str)
}

fn volume(claim: Option<&PersistentVolumeClaim>) -> Volume {
    let Some(claim) = claim else {
        return Volume::None;
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Volume::Deleted;
    }
    let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
    match phase {
        Some("Lost") => Volume::Lost,
        _ => Volume::There,
    }
}

fn pod_in_words(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.as_ref();
    let containers = status.and_then(|it| it.container_statuses.as_ref());
    let mut states = containers
        .into_iter()
        .flatten()
        .filter_map(|it| it.state.as_ref());
    let waiting = states.find_map(|it| it.waiting.as_ref()?.reason.clone());
    let phase = status.and_then(|it| it.phase.clone());
    waiting.or(phase).unwrap_or_else(|| "Unknown".to_owned())
}

fn node(nodes: Option<&[Node]>, pod: &Pod) -> Option<NodeState> {
    let name = pod.spec.as_ref()?.node_name.clone()?;
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let reports = nodes.map(|nodes| {
        let mut named = nodes.iter().filter(|node| node.name_any() == name);
        named.any(ready)
    });
    Some(NodeState { name, reports })
}
