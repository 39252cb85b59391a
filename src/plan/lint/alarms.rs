//! What the invariants say of alarms, by the facts alone: who may leave for its data while it is in
//! contact, and which alarm may be switched off.

use crate::mutants::{Mutant, planted};
use crate::plan::observed::{ClaimState, Comparison, Description};
use crate::plan::step::AlarmKind;

use super::{Facts, refuse};

impl Facts<'_> {
    /// The one exception to "the leader reaches it": the alarm names this voter, the last two comparisons
    /// of a leader whose own data is right show that its data differs from what a quorum of the voters
    /// agrees on, and every voter that is wanted is there and healthy.
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
        let whole = healthy == voters && voters >= self.cluster.target();
        named && whole && twice(leader).is_some_and(|both| both.into_iter().all(shows))
    }

    /// Who leads gives its data to whoever joins.
    pub(super) fn leads_unnamed(&self) -> Result<(), String> {
        let named = |leader: &Description| {
            let words = format!("CORRUPT {:x}", leader.member_id);
            leader.alarms.contains(&words)
        };
        refuse(
            self.leader.is_some_and(|(_, leader)| named(leader))
                && !planted(Mutant::GivenByTheNamed),
            "I14: the alarm CORRUPT names the leader",
        )
    }

    /// No learner votes whose data is known to be no majority's.
    pub(super) fn may_vote(&self, id: u64) -> Result<(), String> {
        self.leads_unnamed()?;
        let newest = self.leader.and_then(|(_, leader)| covering(leader).next());
        let differs = |c: &Comparison| c.differ.contains(&id) && !c.agree.is_empty();
        refuse(
            newest.is_some_and(differs) && !planted(Mutant::GivenByTheNamed),
            "I14: its data is not the majority's",
        )
    }

    /// Whether CORRUPT names one of this name that was removed.
    pub(super) fn was_named(&self, member: &str) -> bool {
        let named = |leader: &Description| {
            let mut gone = leader.tombstones.iter();
            gone.any(|(id, name)| {
                name == member && leader.alarms.contains(&format!("CORRUPT {id:x}"))
            })
        };
        self.leader.is_some_and(|(_, leader)| named(leader)) && !planted(Mutant::NamedVolumeDeleted)
    }

    /// Whether somebody whom CORRUPT names has left a volume that could be deleted once it is off.
    fn leaves_volume(&self) -> bool {
        let uid = Some(self.cluster.uid.clone());
        let mut claims = self.o.claims.values().filter(|claim| {
            claim.cluster_uid == uid && !claim.terminating && claim.state != ClaimState::Retired
        });
        claims.any(|claim| {
            claim
                .member
                .as_ref()
                .is_some_and(|name| self.was_named(name))
        })
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
                    "I14: the volume of one that it names is not marked as kept",
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

/// The last two comparisons of the members as they are now, some seconds apart and not too old.
fn twice(leader: &Description) -> Option<[&Comparison; 2]> {
    let mut all = covering(leader);
    let newest = all.next()?;
    let before = all.find(|c| c.age_ms >= newest.age_ms + 4_000)?;
    Some([newest, before])
}

fn covering(leader: &Description) -> impl Iterator<Item = &Comparison> {
    let told = |c: &Comparison| c.agree.len() + c.differ.len() + c.silent.len();
    leader.comparisons.iter().filter(move |c| {
        let knows = |id| c.agree.contains(id) || c.differ.contains(id) || c.silent.contains(id);
        let same = told(c) == leader.members.len();
        same && c.age_ms <= 600_000 && leader.members.iter().all(|m| knows(&m.id))
    })
}
