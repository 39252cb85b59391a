//! What PDBs are really over, and how many pods they keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::crd::{LABEL_CLUSTER_UID, LABEL_MEMBER, LABEL_RELEASED};
use crate::opsim::api::{ApiServer, Kind, label_selector_fits, object};

use super::ground_truth::ClusterTruth;
use super::intruder;

/// The PDBs over the pods of one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pdbs {
    /// How many pods have to stay available, where a PDB demands it.
    pub(crate) min_available: Option<usize>,
    /// How many pods may be unavailable, where a PDB says that: with any but 0 evictions depend on which pods are there.
    pub(crate) max_unavailable: Option<i64>,
    /// A pod that was not let go, with the number of PDBs over it, where that is not one.
    pub(crate) wrong: Option<(String, usize)>,
    /// Members whose pods are there.
    pub(crate) pods: BTreeSet<String>,
}

/// Reads the PDBs of every cluster that exists.
pub(super) fn read(api: &ApiServer, clusters: &mut BTreeMap<String, ClusterTruth>) {
    // By the life that they select; those of no life may be over anything.
    let mut by_life: BTreeMap<&str, Vec<&Arc<Value>>> = BTreeMap::new();
    for pdb in api.all(Kind::PodDisruptionBudget) {
        let path = ["spec", "selector", "matchLabels", LABEL_CLUSTER_UID];
        by_life
            .entry(object::text(pdb, &path))
            .or_default()
            .push(pdb);
    }
    for pod in api.all(Kind::Pod).filter(|pod| !intruder::made(pod)) {
        let Some(uid) = object::label(pod, LABEL_CLUSTER_UID) else {
            continue;
        };
        let (Some(cluster), Some(member)) =
            (clusters.get_mut(uid), object::label(pod, LABEL_MEMBER))
        else {
            continue;
        };
        cluster.pdbs.pods.insert(member.to_owned());
        let near = [uid, ""].into_iter().filter_map(|life| by_life.get(life));
        let over = near.flatten().filter(|pdb| {
            object::namespace(pdb) == object::namespace(pod)
                && label_selector_fits(&pdb["spec"]["selector"], pod)
        });
        let over = over.count();
        let free = object::label(pod, LABEL_RELEASED).is_some() || object::is_deleting(pod);
        if over > 1 || over == 0 && !free {
            cluster.pdbs.wrong = Some((object::name(pod).to_owned(), over));
        }
    }
    for (uid, cluster) in clusters {
        let ours = by_life.get(uid.as_str()).into_iter().flatten();
        let of = |field: &str| {
            let mut all = ours.clone();
            all.find_map(|pdb| object::number(pdb, &["spec", field]))
        };
        let min_available = of("minAvailable");
        cluster.pdbs.min_available = min_available.and_then(|pods| usize::try_from(pods).ok());
        cluster.pdbs.max_unavailable = of("maxUnavailable");
    }
}
