//! Which objects with a cluster's labels belong to it. A label is not proof: anyone who may create a pod in the
//! namespace can set any. What counts is the controller of an object, down from the resource's UID, together with the
//! one name that it can have. Reads objects, and makes no requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::facts;
use crate::crd::{LABEL_CLUSTER_UID, LABEL_MEMBER, member_name, member_number, pod_name, pvc_name};
use crate::mutants::mutant;
use crate::plan::Owner;

/// A resource: its name, its own UID, by which it owns objects, and the UID that labels carry, which is another one where
/// it has adopted the volumes of a deleted resource.
#[derive(Clone, Copy)]
pub(super) struct Life<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) life: &'a str,
}

/// The pods of a cluster, by member.
#[derive(Default)]
pub(super) struct Pods {
    /// Those created by one of our StatefulSets: their status and their servers' answers count.
    pub(super) own: BTreeMap<String, Arc<Pod>>,
    /// Those that only have a member's name: of a deleted StatefulSet, or foreign. They exist, but their status is
    /// ignored.
    pub(super) others: BTreeMap<String, Arc<Pod>>,
}

impl Life<'_> {
    /// The StatefulSets of this incarnation's members, and foreign ones with members' names. Any other StatefulSet
    /// blocks nothing, whatever its labels.
    pub(super) fn sets(self, found: Vec<Arc<StatefulSet>>) -> Vec<Arc<StatefulSet>> {
        let mut found = found;
        found.retain(|set| {
            mutant!(LabelsBelieved) || member_number(self.name, &set.name_any()).is_some()
        });
        found
    }

    /// The pods of members: of two with one label, the one that its set made.
    pub(super) fn pods(self, found: &[Arc<Pod>], sets: &[Arc<StatefulSet>]) -> Pods {
        let mut pods = Pods::default();
        for pod in found {
            let meta = &pod.metadata;
            let of_this_life = facts::has_label(meta, LABEL_CLUSTER_UID, self.life);
            let Some(member) = facts::label(meta, LABEL_MEMBER).filter(|_| of_this_life) else {
                continue;
            };
            if mutant!(LabelsBelieved) {
                pods.own.insert(member, pod.clone());
                continue;
            }
            // The only pod name of a member's StatefulSet.
            let named = pod.name_any() == pod_name(&member);
            if !named || member_number(self.name, &member).is_none() {
                continue;
            }
            let own = sets.iter().any(|set| {
                set.name_any() == member && self.owns(&set.metadata) && is_made_by(meta, set)
            });
            let kind = if own { &mut pods.own } else { &mut pods.others };
            kind.insert(member, pod.clone());
        }
        pods
    }

    /// The PVCs that this incarnation's members use, and those of other incarnations. One labelled as of this
    /// incarnation with another name is neither. A PVC that outlives the resource has no owner, so its name has to
    /// suffice.
    pub(super) fn pvcs(
        self,
        found: Vec<Arc<PersistentVolumeClaim>>,
    ) -> Vec<Arc<PersistentVolumeClaim>> {
        let mut found = found;
        found.retain(|pvc| {
            let meta = &pvc.metadata;
            if !facts::has_label(meta, LABEL_CLUSTER_UID, self.life) || mutant!(LabelsBelieved) {
                return true;
            }
            let member = facts::label(meta, LABEL_MEMBER);
            let number = member.and_then(|member| member_number(self.name, &member));
            number.is_some_and(|number| {
                pvc.name_any() == pvc_name(&member_name(self.name, number), self.life)
            })
        });
        found
    }

    /// Whether the resource controls an object.
    pub(super) fn owns(self, meta: &ObjectMeta) -> bool {
        facts::owner(meta, self.name, self.uid) == Owner::Ours
    }
}

/// Whether this very set controls a pod.
fn is_made_by(pod: &ObjectMeta, set: &StatefulSet) -> bool {
    let mut owners = pod.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| {
        owner.kind == "StatefulSet"
            && owner.name == set.name_any()
            && Some(&owner.uid) == set.metadata.uid.as_ref()
    })
}

#[cfg(test)]
#[path = "ours_test.rs"]
mod tests;
