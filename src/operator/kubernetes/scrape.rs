//! The metrics of clusters at a scrape: made of the caches when they are asked for, so that nothing is kept for them and a
//! deleted cluster has none. Only the active operator has them, or two replicas would say everything twice. Makes no
//! request, and reads one cluster at a time: all of them as structures would be several times the caches.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::cache::Cache;
use super::context::{Caches, Resourceful};
use super::dry_run::Acting;
use super::facts;
use crate::crd::{DisruptionPolicy, EtcdCluster, pdb_name};
use crate::mutants::mutant;
use crate::operator::metrics::clusters;
use crate::operator::metrics::figures::Figures;
use crate::plan::Owner;

/// What a registry asks at each scrape.
pub(super) struct Scraped(pub(super) Acting);

impl fmt::Debug for Scraped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scraped")
    }
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.0.get() else {
            return Ok(());
        };
        let caches = &shared.caches;
        let now = i64::try_from(shared.outside.clock.unix_ms()).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(now).unwrap_or(Timestamp::MAX);
        let allowed = |cluster: &EtcdCluster| allowed(caches, cluster);
        let (all, unreadable) = of_all(&caches.clusters, now, allowed);
        clusters::encode(&all, unreadable, &mut encoder)
    }
}

/// The figures of every cluster, and how many could not be read.
fn of_all(
    clusters: &Cache<Resourceful>,
    now: Timestamp,
    allowed: impl Fn(&EtcdCluster) -> Option<i64>,
) -> (Vec<Figures>, i64) {
    let (mut all, mut unreadable) = (Vec::new(), 0);
    clusters.each(|guard| match &guard.0 {
        Ok(cluster) => all.push(Figures::of(cluster, allowed(cluster), now)),
        Err(_) => unreadable += 1,
    });
    (all, unreadable)
}

/// What Kubernetes allows of evictions, where it is Kubernetes that limits them.
fn allowed(caches: &Caches, cluster: &EtcdCluster) -> Option<i64> {
    if cluster.spec.disruption.policy == DisruptionPolicy::Gate {
        return None;
    }
    let namespace = cluster.metadata.namespace.as_deref()?;
    let pdb = caches.pdbs.get(namespace, &pdb_name(&cluster.name_any()))?;
    allowed_by(cluster, &pdb)
}

/// The count of the cluster's own PDB, once it is one for its present number.
fn allowed_by(cluster: &EtcdCluster, pdb: &PodDisruptionBudget) -> Option<i64> {
    let (meta, name) = (&pdb.metadata, cluster.name_any());
    let uid = cluster.metadata.uid.as_deref()?;
    let ours = facts::owner(meta, &name, uid) == Owner::Ours || mutant!(AnyPdbCounts);
    let status = pdb.status.as_ref()?;
    let counted = status.observed_generation == meta.generation;
    (ours && counted).then(|| status.disruptions_allowed.into())
}

#[cfg(test)]
#[path = "scrape_test.rs"]
mod tests;
