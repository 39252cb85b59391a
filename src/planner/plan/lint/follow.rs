//! A cluster that follows another one: its members do not stop while that one is closed to writes, for nobody else opens it.

use super::refuse;
use crate::crd::ValidatedCluster;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::observed::{Description, Observed, Phase};
use crate::plan::situation::FRESH_MS;

/// Whatever asks for it: no member is told to stop while a leader with a quorum says that the followed cluster is closed,
/// unless the user does not care.
pub(super) fn leaves_nothing_closed(
    seen: &Observed,
    cluster: &ValidatedCluster,
    action: &Action,
) -> Result<(), String> {
    let Action::Object(ObjectAction::ApplySet {
        hibernated: true, ..
    }) = action
    else {
        return Ok(());
    };
    let says = |d: &Description| {
        let ours = d.cluster_uid.as_deref() == Some(cluster.life.as_str());
        let leads = d.leads && d.age_ms <= FRESH_MS && d.phase == Phase::Member && ours;
        let following = d.following.as_ref();
        leads && following.is_some_and(|it| it.frozen_ms.is_some())
    };
    refuse(
        !seen.source_waived && seen.descriptions.values().any(says),
        "the followed cluster is closed to writes, and would stay so",
    )
}
