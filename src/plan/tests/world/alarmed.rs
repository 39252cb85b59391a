//! How full the members of this world are, and what its leader finds when it compares their data.

use std::collections::BTreeSet;

use super::{SECOND, World};
use crate::plan::{Comparison, Description, Space};

const MIB: u64 = 1 << 20;

/// What a member says that has space.
pub(in crate::plan::tests) fn roomy() -> Space {
    Space {
        used: 10 * MIB,
        quota: 128 * MIB,
        free: 900 * MIB,
        needed: 44 * MIB,
    }
}

impl World {
    /// The alarm of this kind that names this member is raised.
    pub(in crate::plan::tests) fn alarm(&mut self, kind: &str, member: &str) {
        let view = self.members.iter().find(|view| view.name == member);
        let id = view.expect("a member").id;
        self.alarms.push(format!("{kind} {id:x}"));
    }

    /// What a member says of its space.
    pub(super) fn space(&self, member: &str) -> Option<Space> {
        self.spaces.get(member).copied().unwrap_or(Some(roomy()))
    }

    /// Every five seconds under the alarm, as leader.
    pub(super) fn compare(&mut self) {
        let on = self.alarms.iter().any(|alarm| alarm.starts_with("CORRUPT"));
        if !on || self.leader.is_none() {
            self.compared.clear();
            return;
        }
        let last = self.compared.first().map(|(at, _)| *at);
        if last.is_some_and(|at| self.now < at + 5 * SECOND) {
            return;
        }
        let all = || self.members.iter();
        let ids = |side: &dyn Fn(&str) -> bool| -> BTreeSet<u64> {
            let lives = all().filter(|view| self.lives(view));
            lives
                .filter(|view| side(&view.name))
                .map(|view| view.id)
                .collect()
        };
        let (right, wrong) = (
            ids(&|name| !self.differing.contains(name)),
            ids(&|name| self.differing.contains(name)),
        );
        let silent = all().filter(|view| !self.lives(view)).map(|view| view.id);
        let voter = |id: &&u64| all().any(|view| view.id == **id && !view.learner);
        let by_voters =
            |side: &BTreeSet<u64>| side.iter().filter(voter).count() > self.voters() / 2;
        let voted = by_voters(&right) || by_voters(&wrong);
        let most = |side: &BTreeSet<u64>| match voted {
            true => by_voters(side),
            false => side.len() > self.members.len() / 2,
        };
        let (mut agree, mut differ) = (BTreeSet::new(), BTreeSet::new());
        for side in [right, wrong] {
            if most(&side) {
                agree.extend(side);
            } else {
                differ.extend(side);
            }
        }
        let compared = Comparison {
            agree,
            differ,
            silent: silent.collect(),
            age_ms: 0,
        };
        self.compared.insert(0, (self.now, compared));
        self.compared.truncate(3);
    }

    /// As the leader describes them now.
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        let told = |(at, compared): &(u64, Comparison)| Comparison {
            age_ms: self.now - at,
            ..compared.clone()
        };
        self.compared.iter().map(told).collect()
    }

    /// What the leader says of itself.
    pub(in crate::plan::tests) fn leading(&self) -> Description {
        let leader = self.leader.clone().expect("a leader");
        self.observe().descriptions[&leader].clone()
    }
}
