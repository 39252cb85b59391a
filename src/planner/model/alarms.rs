//! Alarms, how full members are, and the result of a leader's comparison of their data. Raises no alarm by itself: a
//! member that was observed as full or different stays so.

use std::collections::{BTreeMap, BTreeSet};

use super::Model;
use crate::plan::{AlarmKind, Comparison, MemberView, Space};

/// Between two comparisons.
const AGAIN_MS: u64 = 5_000;
/// So many comparisons are kept.
const KEPT: usize = 3;

/// Alarms, and what they are about.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The alarms that are on, such as `NOSPACE 1f`.
    pub alarms: Vec<String>,
    /// How full members are, by name; `None` if not reported.
    pub spaces: BTreeMap<String, Option<Space>>,
    /// How full all others are.
    pub space: Space,
    /// The leader compares the members' data while CORRUPT is on.
    pub compares: bool,
    /// Members whose data differs from the others'.
    pub differing: BTreeSet<String>,
    /// Comparisons that the leader has made, the newest first, with when.
    pub compared: Vec<(u64, Comparison)>,
}

impl Health {
    pub(super) fn is_corrupt(&self) -> bool {
        let mut alarms = self.alarms.iter();
        alarms.any(|alarm| alarm.starts_with("CORRUPT"))
    }

    pub(super) fn disarm(&mut self, kind: AlarmKind, id: u64) {
        let on = format!("{} {id:x}", kind.as_str());
        self.alarms.retain(|alarm| *alarm != on);
    }

    pub(super) fn space_of(&self, member: &str) -> Option<Space> {
        let known = self.spaces.get(member).copied();
        known.unwrap_or(Some(self.space))
    }

    /// As the leader describes them at this time.
    pub(super) fn comparisons(&self, now_ms: u64) -> Vec<Comparison> {
        let aged = |(at, compared): &(u64, Comparison)| Comparison {
            age_ms: now_ms.saturating_sub(*at),
            ..compared.clone()
        };
        self.compared.iter().map(aged).collect()
    }
}

impl Model {
    /// Every five seconds under the alarm, as leader.
    pub(super) fn compare(&mut self) {
        if !self.health.is_corrupt() || self.raft.leader.is_none() {
            self.health.compared.clear();
            return;
        }
        let now_ms = self.api.now_ms;
        let last = self.health.compared.first();
        if !self.health.compares || last.is_some_and(|(at, _)| now_ms < at + AGAIN_MS) {
            return;
        }
        let compared = self.comparison();
        self.health.compared.insert(0, (now_ms, compared));
        self.health.compared.truncate(KEPT);
    }

    fn comparison(&self) -> Comparison {
        let members = &self.raft.members;
        let (live, silent): (Vec<&MemberView>, Vec<&MemberView>) =
            members.iter().partition(|view| self.lives(view));
        let (wrong, right): (Vec<&MemberView>, Vec<&MemberView>) =
            (live.into_iter()).partition(|view| self.health.differing.contains(&view.name));
        let voters = self.raft.voters().count();
        let by_voters =
            |side: &[&MemberView]| side.iter().filter(|view| !view.learner).count() > voters / 2;
        let voted = by_voters(&right) || by_voters(&wrong);
        let most = |side: &[&MemberView]| match voted {
            true => by_voters(side),
            false => side.len() > members.len() / 2,
        };
        let mut compared = Comparison {
            silent: silent.iter().map(|view| view.id).collect(),
            ..Comparison::default()
        };
        for side in [right, wrong] {
            let ids = side.iter().map(|view| view.id);
            match most(&side) {
                true => compared.agree.extend(ids),
                false => compared.differ.extend(ids),
            }
        }
        compared
    }
}
