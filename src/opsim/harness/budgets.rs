//! What disruption budgets are really over, and how many pods they keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::crd::{LABEL_CLUSTER_UID, LABEL_MEMBER, LABEL_RELEASED};
use crate::opsim::api::{ApiServer, Kind, label_selector_fits, object};

use super::intruder;
use super::truth::ClusterTruth;

/// The budgets over the pods of one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    /// How many pods have to stay available, where a budget says so.
    pub(crate) least: Option<usize>,
    /// A pod that was not let go, with the number of budgets over it, where that is not one.
    pub(crate) wrong: Option<(String, usize)>,
    /// Members whose pods are there.
    pub(crate) pods: BTreeSet<String>,
}

/// Reads the budgets of every cluster that exists.
pub(super) fn read(api: &ApiServer, clusters: &mut BTreeMap<String, ClusterTruth>) {
    // By the life that they select; those of no life may be over anything.
    let mut by_life: BTreeMap<&str, Vec<&Arc<Value>>> = BTreeMap::new();
    for budget in api.all(Kind::PodDisruptionBudget) {
        let path = ["spec", "selector", "matchLabels", LABEL_CLUSTER_UID];
        by_life
            .entry(object::text(budget, &path))
            .or_default()
            .push(budget);
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
        cluster.budgets.pods.insert(member.to_owned());
        let near = [uid, ""].into_iter().filter_map(|life| by_life.get(life));
        let over = near.flatten().filter(|budget| {
            object::namespace(budget) == object::namespace(pod)
                && label_selector_fits(&budget["spec"]["selector"], pod)
        });
        let over = over.count();
        let free = object::label(pod, LABEL_RELEASED).is_some() || object::is_deleting(pod);
        if over > 1 || over == 0 && !free {
            cluster.budgets.wrong = Some((object::name(pod).to_owned(), over));
        }
    }
    for (uid, cluster) in clusters {
        let ours = by_life.get(uid.as_str()).into_iter().flatten();
        let mut least = ours.filter_map(|budget| object::number(budget, &["spec", "minAvailable"]));
        cluster.budgets.least = least.next().and_then(|least| usize::try_from(least).ok());
    }
}
