//! Which of a cluster's objects were edited, as facts: for such an object the plan gets no recorded inputs, and so
//! applies it again. Compares caches with renderings; makes no requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};

use super::facts;
use super::observe::limits_pdb;
use super::platform::OneCluster;
use crate::build;
use crate::crd::{ANNOTATION_INPUTS, ValidatedCluster, operator_secret_name, slot_service_name};
use crate::plan::{ObjectFacts, ObjectKey, ObjectKind, Owner, PdbLimit, SlotFacts};

/// Whether a PDB of this cluster may have this limit, as far as its policy shows; the plan compares which one.
fn may_be_limited(cluster: Option<&ValidatedCluster>, limit: PdbLimit) -> bool {
    limits_pdb(cluster) && matches!(limit, PdbLimit::MinAvailable(_))
}

impl OneCluster {
    /// Whether an object with this rendering was edited.
    pub(super) fn is_edited<K>(
        &self,
        cluster: Option<&ValidatedCluster>,
        live: &K,
        rendered: impl FnOnce(&ValidatedCluster) -> Option<K>,
    ) -> bool
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let Some(cluster) = cluster else { return false };
        let drift = &self.memory.drift;
        drift.is_edited(live, &build::spec_hash(cluster), || rendered(cluster))
    }

    /// For edited objects the plan gets no recorded inputs.
    pub(super) fn unmark_edited(
        &self,
        cluster: Option<&ValidatedCluster>,
        (pdbs, services): (&[Arc<PodDisruptionBudget>], &[Arc<Service>]),
        objects: &mut BTreeMap<ObjectKey, ObjectFacts>,
    ) {
        let caches = &self.shared.caches;
        for (key, facts) in objects
            .iter_mut()
            .filter(|(_, facts)| facts.owner == Owner::Ours)
        {
            let edited = match key.kind {
                ObjectKind::Service => {
                    let mut ours = services.iter().filter(|one| one.name_any() == key.name);
                    ours.next().is_some_and(|live| {
                        self.is_edited(cluster, &**live, |cluster| {
                            let service = build::service(cluster, &key.name)?;
                            made_from_the_same(&service, live)
                                .then(|| build::with_added_family(service, live))
                        })
                    })
                }
                ObjectKind::NetworkPolicy => caches
                    .policies
                    .get(&self.key.0, &key.name)
                    .is_some_and(|live| {
                        self.is_edited(cluster, &*live, |cluster| {
                            Some(build::network_policy(cluster, &self.shared.settings))
                        })
                    }),
                ObjectKind::PodDisruptionBudget => {
                    let mut ours = pdbs.iter().filter(|one| one.name_any() == key.name);
                    ours.next().is_some_and(|live| {
                        let limit = facts::pdb(live).limit;
                        let limit = limit.filter(|limit| may_be_limited(cluster, *limit));
                        self.is_edited(cluster, &**live, |cluster| {
                            Some(build::pdb(cluster, limit.unwrap_or(PdbLimit::CLOSED)))
                        })
                    })
                }
                ObjectKind::Certificate => {
                    self.memory.cert_manager.get(&key.name).is_some_and(|live| {
                        self.is_edited(cluster, live, |cluster| {
                            build::cert_manager_certificate(cluster, &key.name)
                        })
                    })
                }
                // A missing key locks the operator out of members that start from now on.
                ObjectKind::Secret => {
                    key.name == operator_secret_name(&self.key.1)
                        && caches
                            .secrets
                            .get(&self.key.0, &key.name)
                            .is_some_and(|live| {
                                build::operator_key(live.secret())
                                    .is_none_or(|key| key.trim_ascii().is_empty())
                            })
                }
            };
            if edited {
                facts.inputs = None;
            }
        }
    }

    /// The same of slots.
    pub(super) fn unmark_edited_slots(
        &self,
        cluster: Option<&ValidatedCluster>,
        services: &[Arc<Service>],
        slots: &mut BTreeMap<u32, SlotFacts>,
    ) {
        for (slot, facts) in slots
            .iter_mut()
            .filter(|(_, facts)| facts.owner == Owner::Ours)
        {
            let name = slot_service_name(&self.key.1, *slot);
            let live = services.iter().find(|one| one.name_any() == name);
            let member = facts.member.clone();
            let edited = live.is_some_and(|live| {
                self.is_edited(cluster, &**live, |cluster| {
                    let service = build::slot_service(cluster, *slot, &member?);
                    made_from_the_same(&service, live)
                        .then(|| build::with_added_family(service, live))
                })
            });
            if edited {
                facts.inputs = None;
            }
        }
    }

    /// Notes what the API server made of what was applied.
    pub(super) fn made<K>(&self, rendered: &K, stored: &K)
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let clock = &self.shared.outside.clock;
        self.memory.drift.made(rendered, stored, clock);
    }
}

/// Whether a Service has recorded the inputs that it would be rendered from. One that has others is applied anyway, when its turn
/// comes, and nobody has edited it for that.
pub(super) fn made_from_the_same(rendered: &Service, live: &Service) -> bool {
    let inputs = |service: &Service| facts::annotation(&service.metadata, ANNOTATION_INPUTS);
    inputs(rendered) == inputs(live)
}
