//! The invariants about alarms, from facts only: which member may leave for its data while it is in contact, and which
//! alarm may be disarmed.

use crate::mutants::mutant;
use crate::plan::action::AlarmKind;
use crate::plan::observed::{Comparison, Description, PvcState};

use super::{Facts, refuse};

impl Facts<'_> {
    /// The one exception to "the leader reaches it": the alarm names this voter, the last two comparisons
    /// of a leader whose own data is right show that its data differs from what a quorum of the voters
    /// agrees on, and the voters are all healthy, and three at least or as many as are wanted.
    pub(super) fn data_differs(&self, id: u64) -> bool {
        let Some((_, leader)) = self.leader.filter(|(_, leader)| !leader.unsigned) else {
            return false;
        };
        let Ok((healthy, voters)) = self.count() else {
            return false;
        };
        let named = leader.alarms.contains(&format!("CORRUPT {id:x}"));
        let agrees = |c: &Comparison, id: u64| c.agree.contains(&id);
        let shows = |c: &Comparison| {
            let quorum = self
                .members()
                .filter(|m| !m.learner && agrees(c, m.id))
                .count();
            c.differ.contains(&id) && agrees(c, leader.member_id) && quorum > voters / 2
        };
        let whole = healthy == voters && voters >= self.cluster.target().min(3);
        named && whole && twice(leader).is_some_and(|both| both.into_iter().all(shows))
    }

    /// If CORRUPT names no member, only the data of a quorum of voters that agrees is known to be right, or that which
    /// a user has chosen by naming a voter in `replaceMembers`.
    pub(super) fn data_is_known(&self) -> Result<(), String> {
        let Some((_, leader)) = self.leader else {
            return Ok(());
        };
        let mut alarms = leader.alarms.iter();
        let unclear = alarms.any(|words| words == "CORRUPT" || words == "CORRUPT 0");
        let agree = |c: &Comparison| {
            let voters = || self.members().filter(|m| !m.learner);
            let same = voters().filter(|m| c.agree.contains(&m.id)).count();
            same > voters().count() / 2
        };
        let known = covering(leader).next().is_some_and(agree);
        refuse(
            unclear && !self.asked() && !known && !mutant!(GivenByTheNamed),
            "I14: the alarm CORRUPT names nobody, and nobody's data is known to be right",
        )
    }

    /// Whether the user wants a voter replaced.
    fn asked(&self) -> bool {
        let mut voters = self.members().filter(|m| !m.learner);
        voters.any(|m| self.cluster.spec.replace_members.contains(&m.name))
    }

    /// New members get the leader's data.
    pub(super) fn leads_unnamed(&self) -> Result<(), String> {
        self.data_is_known()?;
        let named = |leader: &Description| {
            let words = format!("CORRUPT {:x}", leader.member_id);
            leader.alarms.contains(&words)
        };
        refuse(
            self.leader.is_some_and(|(_, leader)| named(leader))
                && !self.asked()
                && !mutant!(GivenByTheNamed),
            "I14: the alarm CORRUPT names the leader",
        )
    }

    /// No learner is promoted whose data is known to differ from the majority's.
    pub(super) fn may_vote(&self, id: u64) -> Result<(), String> {
        self.leads_unnamed()?;
        let newest = self.leader.and_then(|(_, leader)| covering(leader).next());
        let asked = self.asked();
        let differs = |c: &Comparison| c.differ.contains(&id) && !c.agree.is_empty() && !asked;
        refuse(
            newest.is_some_and(differs) && !mutant!(GivenByTheNamed),
            "I14: its data is not the majority's",
        )
    }

    /// Whether CORRUPT is on and one of this name was removed that had voted.
    pub(super) fn left_corrupt(&self, member: &str) -> bool {
        let left = |leader: &Description| {
            let mut gone = leader.tombstones.iter().filter(|(_, name)| name == member);
            gone.any(|(id, _)| !leader.never_voted.contains(id)) && is_corrupt(leader)
        };
        self.leader.is_some_and(|(_, leader)| left(leader)) && !mutant!(NamedVolumeDeleted)
    }

    /// No voter leaves under CORRUPT before its volume is marked as one that is kept.
    pub(super) fn keeps_volume(&self, id: u64) -> Result<(), String> {
        let on = self.leader.is_some_and(|(_, leader)| is_corrupt(leader));
        let mut voters = self.members().filter(|m| !m.learner && on);
        let unkept = voters.any(|m| m.id == id && self.has_unmarked(&m.name));
        refuse(
            unkept && !mutant!(NamedVolumeDeleted),
            "I14: its volume is not marked as kept",
        )
    }

    fn has_unmarked(&self, member: &str) -> bool {
        let uid = Some(self.cluster.life.clone());
        let mut pvcs = self.o.pvcs.values().filter(|pvc| {
            pvc.cluster_uid == uid && !pvc.terminating && pvc.state != PvcState::Retired
        });
        pvcs.any(|pvc| pvc.member.as_deref() == Some(member))
    }

    /// Whether a member that left under CORRUPT has a volume that could be deleted once it is disarmed.
    fn leaves_volume(&self) -> bool {
        let gone = self.leader.into_iter().flat_map(|(_, d)| &d.tombstones);
        let mut gone = gone.map(|(_, name)| name);
        gone.any(|name| self.left_corrupt(name) && self.has_unmarked(name))
    }

    pub(super) fn disarm(&self, kind: AlarmKind, id: u64) -> Result<(), String> {
        let (_, leader) = self.leader.ok_or("no leader with a quorum was seen")?;
        let on = format!("{} {id:x}", kind.as_str());
        refuse(!leader.alarms.contains(&on), "the alarm is not on")?;
        refuse(leader.unsigned, "nobody has signed what the leader says")?;
        match kind {
            AlarmKind::NoSpace => {
                let roomy = |d: &Description| {
                    d.space.is_some_and(|space| {
                        let fits = space.quota == 0 || space.used < space.quota;
                        fits && space.free >= space.needed
                    })
                };
                let mut voters = self.members().filter(|m| !m.learner);
                let all = voters.all(|m| self.o.descriptions.get(&m.name).is_some_and(roomy));
                refuse(!all, "I14: a member has no space")
            }
            AlarmKind::Corrupt => {
                refuse(
                    self.members().any(|m| m.id == id),
                    "I14: whom it names is a member still",
                )?;
                refuse(
                    self.leaves_volume(),
                    "I14: the volume of one that left under it is not marked as kept",
                )?;
                let equal = |c: &Comparison| {
                    c.differ.is_empty() && self.members().all(|m| c.agree.contains(&m.id))
                };
                let both = twice(leader);
                refuse(
                    !both.is_some_and(|both| both.into_iter().all(equal)),
                    "I14: the members' data was not equal twice",
                )
            }
        }
    }
}

fn is_corrupt(leader: &Description) -> bool {
    let corrupt = AlarmKind::Corrupt.as_str();
    leader.alarms.iter().any(|words| words.starts_with(corrupt))
}

/// The last two comparisons of the members as they are now, some seconds apart and not too old.
fn twice(leader: &Description) -> Option<[&Comparison; 2]> {
    let mut all = covering(leader);
    let newest = all.next()?;
    let before = all.find(|c| c.age_ms >= newest.age_ms + 4_000)?;
    Some([newest, before])
}

fn covering(leader: &Description) -> impl Iterator<Item = &Comparison> {
    let compared = |c: &Comparison| c.agree.len() + c.differ.len() + c.silent.len();
    leader.comparisons.iter().filter(move |c| {
        let knows = |id| c.agree.contains(id) || c.differ.contains(id) || c.silent.contains(id);
        let same = compared(c) == leader.members.len();
        same && c.age_ms <= 600_000 && leader.members.iter().all(|m| knows(&m.id))
    })
}
