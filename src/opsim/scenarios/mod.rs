//! The scenarios. Each defines what happens to a cluster; that the invariants hold at every step and
//! that the desired state is reached is asked of all of them.

mod adopted;
mod alarms;
mod autoscalers;
mod backup_lives;
mod backups;
mod clients;
mod disks;
mod families;
mod fences;
mod hard;
mod hibernation;
mod kept;
mod life;
mod more;
mod nodes;
mod pdb;
mod pod_certificates;
mod recoveries;
mod resizes;
pub(super) mod restores;
mod servers;
mod sidecars;
mod strangers;
mod tls;
mod tls_user_certificates;
mod told;
mod trust_bundles;
mod volumes;

use super::run::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        &life::SCENARIOS[..],
        &adopted::SCENARIOS[..],
        &hard::SCENARIOS[..],
        &more::SCENARIOS[..],
        &kept::SCENARIOS[..],
        &disks::SCENARIOS[..],
        &families::SCENARIOS[..],
        &fences::SCENARIOS[..],
        &nodes::SCENARIOS[..],
        &pdb::SCENARIOS[..],
        &autoscalers::SCENARIOS[..],
        &recoveries::SCENARIOS[..],
        &resizes::SCENARIOS[..],
        &restores::SCENARIOS[..],
        &servers::SCENARIOS[..],
        &sidecars::SCENARIOS[..],
        &alarms::SCENARIOS[..],
        &hibernation::SCENARIOS[..],
        &strangers::SCENARIOS[..],
        &clients::SCENARIOS[..],
        &tls::SCENARIOS[..],
        &tls_user_certificates::SCENARIOS[..],
        &trust_bundles::SCENARIOS[..],
        &pod_certificates::SCENARIOS[..],
        &volumes::SCENARIOS[..],
        &told::SCENARIOS[..],
        &backups::SCENARIOS[..],
        &backup_lives::SCENARIOS[..],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// A second one of a name was run in the place of the first, and its disturbed writes were looked for in the other.
    #[test]
    fn names_are_unique() {
        let all = super::all();
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
