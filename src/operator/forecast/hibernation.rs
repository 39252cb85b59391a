//! What the disks of a cluster that sleeps will say once their servers run: the voters that the
//! status names, each on its own disk. Nobody can be asked before; who was only learning is not
//! remembered.

use std::collections::BTreeMap;

use crate::crd::pvc_name;
use crate::plan::{Description, MemberView, Observed, Phase, PvcState};

/// The descriptions to come, by PVC.
pub(super) fn disks(o: &Observed) -> BTreeMap<String, Description> {
    let Ok(cluster) = &o.cluster else {
        return BTreeMap::new();
    };
    let hibernated = |name: &String| o.sets.get(name).is_some_and(|set| set.hibernated);
    if !o.descriptions.is_empty() || !o.hints.voters.iter().any(hibernated) {
        return BTreeMap::new();
    }
    let views: Vec<MemberView> = (1..)
        .zip(&o.hints.voters)
        .map(|(id, name)| MemberView {
            id,
            name: name.clone(),
            disk_uuid: format!("disk-of-{name}"),
            ..MemberView::default()
        })
        .collect();
    let describe = |view: &MemberView| {
        let pvc = pvc_name(&view.name, &cluster.uid);
        let joined = o.pvcs.get(&pvc)?.state == PvcState::Joined;
        let description = Description {
            version: cluster.spec.version.clone(),
            disk_uuid: view.disk_uuid.clone(),
            phase: Phase::Member,
            cluster_uid: Some(cluster.uid.clone()),
            cluster_id: 1,
            member_id: view.id,
            term: 1,
            configuration_index: 1,
            members: views.clone(),
            ..Description::default()
        };
        joined.then_some((pvc, description))
    };
    views.iter().filter_map(describe).collect()
}
