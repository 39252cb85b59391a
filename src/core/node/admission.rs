//! The leader's half of the rules for membership changes: what depends on flags and on which
//! members are in contact. These rules are checked before proposing and never at apply. They are
//! etcd's, in etcd's order, with a stricter rule for promotion (see [`Standing`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::mutants::mutant;
use crate::raft::{Index, MemberId, ProgressState, ProgressStatus};

use super::change::{ChangeBody, MembershipCommand, MembershipError};
use super::membership::{MemberRecord, Membership};

/// What a leader knows when it judges a change.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The leader.
    pub own: MemberId,
    /// The applied membership.
    pub membership: &'a Membership,
    /// `--max-learners`.
    pub max_learners: usize,
    /// `--strict-reconfig-check`.
    pub strict: bool,
    /// Members in contact at all, the leader included.
    pub in_contact: &'a BTreeSet<MemberId>,
    /// Members in contact for long enough to be counted on, the leader included.
    pub steady: &'a BTreeSet<MemberId>,
    /// Why each member other than the leader is not in sync; `None` when it is.
    pub behind: &'a BTreeMap<MemberId, Option<String>>,
}

impl Facts<'_> {
    /// Whether the change may be proposed.
    ///
    /// # Errors
    /// The rule that the change breaks.
    pub fn admit(&self, command: &MembershipCommand) -> Result<(), MembershipError> {
        self.membership.check(command)?;
        match &command.body {
            Some(ChangeBody::Add(add)) => self.admit_add(add.learner),
            Some(ChangeBody::Promote(target)) => self.admit_promotion(target.id),
            Some(ChangeBody::Remove(target)) => self.admit_removal(target.id),
            _ => Ok(()),
        }
    }

    /// etcd: `IsReadyToAddVotingMember`, then contact with a quorum of the enlarged set of voters,
    /// where the new one counts as down (for learners too, but without etcd's 5 s of contact); and
    /// `--max-learners`.
    fn admit_add(&self, learner: bool) -> Result<(), MembershipError> {
        if self.strict {
            let (voters, started) = self.count(None);
            let restoring = voters == 1 && started == 1;
            if !learner && !restoring && started < quorum(voters + 1) {
                return Err(MembershipError::NotEnoughStarted);
            }
            // A learner does not change the quorum, so it need not wait until a voter that was
            // promoted a moment ago has been in contact for long.
            let counted = if learner {
                self.in_contact
            } else {
                self.steady
            };
            let there = self.voters().filter(|m| counted.contains(&m.id));
            if voters > 1 && there.count() < quorum(voters + 1) {
                return Err(MembershipError::Unhealthy);
            }
        }
        if learner && self.membership.learners().count() >= self.max_learners {
            return Err(MembershipError::TooManyLearners);
        }
        Ok(())
    }

    /// First whether it is in sync, then etcd's `IsReadyToPromoteMember`.
    fn admit_promotion(&self, id: MemberId) -> Result<(), MembershipError> {
        match self.behind.get(&id) {
            Some(None) => {}
            _ if mutant!(PromoteEarly) => {}
            Some(Some(why)) => return Err(MembershipError::LearnerNotReady { why: why.clone() }),
            None => {
                let why = "the leader has no contact with it".to_owned();
                return Err(MembershipError::LearnerNotReady { why });
            }
        }
        let (voters, started) = self.count(None);
        if self.strict && started + 1 < quorum(voters + 1) {
            return Err(MembershipError::NotEnoughStarted);
        }
        Ok(())
    }

    /// etcd: `IsReadyToRemoveVotingMember`, then enough active voters without it. A member that is
    /// down may always be removed; so may a learner.
    fn admit_removal(&self, id: MemberId) -> Result<(), MembershipError> {
        let learner = self.membership.member(id).is_some_and(|m| m.learner);
        if !self.strict || learner {
            return Ok(());
        }
        let (rest, started) = self.count(Some(id));
        if started < quorum(rest) {
            return Err(MembershipError::NotEnoughStarted);
        }
        if id != self.own && !self.in_contact.contains(&id) {
            return Ok(());
        }
        let (voters, _) = self.count(None);
        let active = self
            .voters()
            .filter(|m| self.steady.contains(&m.id))
            .count();
        if active.saturating_sub(1) < 1 + voters.saturating_sub(1) / 2 {
            return Err(MembershipError::Unhealthy);
        }
        Ok(())
    }

    fn voters(&self) -> impl Iterator<Item = &MemberRecord> {
        self.membership.voters()
    }

    /// Voters and started voters, without member `but`.
    fn count(&self, but: Option<MemberId>) -> (usize, usize) {
        let voters = self.voters().filter(|m| Some(m.id) != but);
        voters.fold((0, 0), |(all, started), member| {
            (all + 1, started + usize::from(member.started))
        })
    }
}

fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The progress that a member needs to count as in sync with its leader.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The leader's commit index one election timeout ago.
    pub commit_before: Index,
    /// The leader's own last index.
    pub leader_last: Index,
    /// Two heartbeats, in milliseconds.
    pub contact_within_ms: u64,
}

impl Standing {
    /// Why a member is not in sync, or `None`. Stricter than etcd's 90 %, which is checked as well:
    /// a ratio of absolute indexes also accepts a member that is a million entries behind.
    pub fn behind(
        &self,
        progress: &ProgressStatus,
        last_ack_age_ms: Option<u64>,
        disk_known: bool,
    ) -> Option<String> {
        let Standing {
            commit_before,
            leader_last,
            contact_within_ms,
        } = *self;
        if !disk_known {
            return Some("it has not joined yet: no disk is bound to it".to_owned());
        }
        match last_ack_age_ms {
            None => return Some("the leader has not heard from it".to_owned()),
            Some(age) if age > contact_within_ms => {
                return Some(format!("the leader heard from it {age} ms ago"));
            }
            Some(_) => {}
        }
        if progress.pending_snapshot.is_some() || progress.state == ProgressState::Snapshot {
            return Some("it is receiving a checkpoint".to_owned());
        }
        if progress.matched < commit_before {
            let lag = commit_before - progress.matched;
            return Some(format!("its log is {lag} entries behind"));
        }
        if progress.applied < commit_before {
            let lag = commit_before - progress.applied;
            return Some(format!("it has {lag} entries left to apply"));
        }
        if u128::from(progress.matched) * 10 < u128::from(leader_last) * 9 {
            return Some("its log is less than nine tenths of the leader's".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::change::{Add, Target};

    /// Members by ID; whether each is a learner and has started.
    fn membership(members: &[(MemberId, bool, bool)]) -> Membership {
        let mut membership = Membership::default();
        for (id, learner, started) in members.iter().copied() {
            let record = MemberRecord {
                id,
                learner,
                started,
                peer_urls: vec![format!("http://{id}")],
                ..MemberRecord::default()
            };
            membership.members.insert(id, record);
        }
        membership
    }

    fn judge(
        members: &[(MemberId, bool, bool)],
        steady: &[MemberId],
        body: ChangeBody,
        strict: bool,
    ) -> Result<(), MembershipError> {
        let steady: BTreeSet<MemberId> = steady.iter().copied().collect();
        let behind = members.iter().map(|(id, _, _)| (*id, None)).collect();
        let facts = Facts {
            own: 1,
            membership: &membership(members),
            max_learners: 1,
            strict,
            in_contact: &steady,
            steady: &steady,
            behind: &behind,
        };
        facts.admit(&body.into())
    }

    fn add(learner: bool) -> ChangeBody {
        ChangeBody::Add(Add {
            id: 99,
            peer_urls: vec!["http://99".to_owned()],
            learner,
            ..Add::default()
        })
    }

    fn voters(started: &[bool]) -> Vec<(MemberId, bool, bool)> {
        (1..)
            .zip(started)
            .map(|(id, started)| (id, false, *started))
            .collect()
    }

    /// The cases of etcd's own test of `IsReadyToAddVotingMember`.
    #[test]
    fn additions_need_a_quorum_of_started_voters() {
        let all = [1, 2, 3, 4];
        let cases: [(&[bool], bool); 7] = [
            (&[true], true),
            (&[true, false], false),
            (&[true, true], true),
            (&[true, true, false], false),
            (&[true, true, true], true),
            (&[true, true, true, false], true),
            (&[true, true, false, false], false),
        ];
        for (started, allowed) in cases {
            let judged = judge(&voters(started), &all, add(false), true);
            assert_eq!(judged.is_ok(), allowed, "{started:?}");
            assert!(judge(&voters(started), &all, add(false), false).is_ok());
        }
    }

    #[test]
    fn additions_need_the_enlarged_quorum() {
        let cases: [(usize, &[MemberId], bool); 6] = [
            (1, &[1], true),
            (2, &[1], false),
            (2, &[1, 2], true),
            (3, &[1, 2], false),
            (5, &[1, 2, 3], false),
            (5, &[1, 2, 3, 4], true),
        ];
        for (count, steady, allowed) in cases {
            for learner in [false, true] {
                let judged = judge(&voters(&vec![true; count]), steady, add(learner), true);
                assert_eq!(
                    judged.is_ok(),
                    allowed,
                    "{count} voters, {steady:?} in contact"
                );
            }
        }
    }

    #[test]
    fn removals_leave_a_quorum() {
        let remove = |id| ChangeBody::Remove(Target { id });
        let three = voters(&[true, true, true]);
        assert!(judge(&three, &[1, 2, 3], remove(3), true).is_ok());
        assert!(
            judge(&three, &[1, 2], remove(3), true).is_ok(),
            "one that is down"
        );
        let refused = judge(&three, &[1, 2], remove(2), true);
        assert_eq!(refused, Err(MembershipError::Unhealthy));
        let unstarted = voters(&[true, false, true]);
        let refused = judge(&unstarted, &[1, 2, 3], remove(3), true);
        assert_eq!(refused, Err(MembershipError::NotEnoughStarted));
        assert!(judge(&unstarted, &[1, 2, 3], remove(2), true).is_ok());
        let two = voters(&[true, true]);
        assert!(judge(&two, &[1, 2], remove(1), true).is_ok(), "two to one");
        let refused = judge(&voters(&[true]), &[1], remove(1), true);
        assert_eq!(refused, Err(MembershipError::NotEnoughStarted));
        let learner = [(1, false, true), (2, true, false)];
        assert!(judge(&learner, &[1], remove(2), true).is_ok());
    }

    #[test]
    fn promotions_need_a_quorum_of_started_voters() {
        let promote = ChangeBody::Promote(Target { id: 9 });
        let with = |started: &[bool]| {
            let mut members = voters(started);
            members.push((9, true, true));
            judge(&members, &[1, 2, 3, 9], promote.clone(), true)
        };
        assert!(with(&[true]).is_ok());
        assert!(with(&[true, true, false]).is_ok());
        assert_eq!(
            with(&[true, false, false]),
            Err(MembershipError::NotEnoughStarted)
        );
    }

    fn progress() -> ProgressStatus {
        ProgressStatus {
            matched: 1000,
            next: 1001,
            state: ProgressState::Replicate,
            learner: true,
            recent_active: true,
            last_ack_tick: Some(1),
            applied: 1000,
            pending_snapshot: None,
            inflight_messages: 0,
            inflight_bytes: 0,
        }
    }

    #[test]
    fn every_in_sync_condition_is_required() {
        let standing = Standing {
            commit_before: 1000,
            leader_last: 1100,
            contact_within_ms: 200,
        };
        let behind = |progress: ProgressStatus, age| standing.behind(&progress, age, true);
        assert_eq!(behind(progress(), Some(200)), None);
        assert!(standing.behind(&progress(), Some(0), false).is_some());
        assert!(behind(progress(), None).is_some());
        assert!(behind(progress(), Some(201)).is_some());
        let waits = ProgressStatus {
            state: ProgressState::Snapshot,
            pending_snapshot: Some(900),
            ..progress()
        };
        assert!(behind(waits, Some(0)).is_some());
        let lags = ProgressStatus {
            matched: 999,
            ..progress()
        };
        assert!(behind(lags, Some(0)).is_some());
        let slow = ProgressStatus {
            applied: 999,
            ..progress()
        };
        assert!(behind(slow, Some(0)).is_some());
        let far = Standing {
            leader_last: 1112,
            ..standing
        };
        assert!(
            far.behind(&progress(), Some(0), true).is_some(),
            "etcd's nine tenths"
        );
    }
}
