//! The first election of a cluster whose members all start together: once every voter is connected, there is nothing
//! left to wait for, and a pre-vote is begun before the election timeout. Never raises a term without that pre-vote,
//! so a leader that is well, and a member that has heard of one, are not disturbed.

use crate::node::api::{Effect, StopReason};
use crate::raft::MemberId;

use super::Member;

/// Heartbeat intervals between the attempts of two members: the first one usually leads by then. Half of them pass before
/// the first attempt, for the links in the other direction: a pre-vote on one that is not there yet is lost.
const APART: u64 = 2;

/// When this member, which has not heard of a leader since it started, asks for pre-votes.
#[derive(Debug)]
pub(super) struct ColdStart {
    /// No leader was heard.
    open: bool,
    /// Every voter is connected, and asks when its time has come; milliseconds of the owner's clock.
    next: Option<u64>,
}

impl ColdStart {
    pub(super) fn new(open: bool) -> Self {
        let next = None;
        Self { open, next }
    }

    /// A leader was heard.
    pub(super) fn end(&mut self) {
        self.open = false;
    }

    /// Whether the time has come for the voter that is number `rank` of `voters`. It comes again if that leads to
    /// nothing.
    fn is_due(&mut self, now: u64, (rank, voters): (u64, u64), heartbeat: u64) -> bool {
        let first = now + heartbeat * (APART / 2 + APART * rank);
        let next = *self.next.get_or_insert(first);
        let due = now >= next;
        if due {
            self.next = Some(now + heartbeat * APART * voters);
        }
        due
    }
}

impl Member {
    /// Asks for pre-votes if it is time to. The voter with the lowest ID begins; the others follow one after another,
    /// in case its log ends before theirs.
    pub(super) fn elect_after_cold_start(
        &mut self,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if !self.cold_start.open || !self.voting || self.removed {
            return Ok(());
        }
        let own = self.id();
        let voters = &self.raft.configuration().voters;
        let is_here = |id: &MemberId| *id == own || self.contacts.is_connected(*id);
        let Some(rank) = voters.iter().position(|id| *id == own) else {
            return Ok(());
        };
        if !voters.iter().all(is_here) {
            self.cold_start.next = None;
            return Ok(());
        }
        let place = (rank as u64, voters.len() as u64);
        let heartbeat = self.spans().heartbeat;
        match self.cold_start.is_due(self.now, place, heartbeat) {
            true => self.tolerate(effects, |raft| raft.campaign().map(|_| ())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_ask_one_after_another() {
        for (rank, times) in [(0, [100, 700, 1_300]), (2, [500, 1_100, 1_700])] {
            let mut start = ColdStart::new(true);
            let due = (0..1_800)
                .step_by(100)
                .filter(|now| start.is_due(*now, (rank, 3), 100));
            assert_eq!(due.collect::<Vec<u64>>(), times, "number {rank}");
        }
    }
}
