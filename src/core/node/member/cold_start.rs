//! The first election of a cluster whose members all start together: once every voter is connected, there is nothing
//! left to wait for, and a pre-vote is begun before the election timeout. Never raises a term without that pre-vote,
//! so a leader that is well, and a member that has heard of one, are not disturbed.

use crate::node::api::{Effect, StopReason};
use crate::raft::{MemberId, Term};

use super::Member;

/// Heartbeat intervals between the attempts of two members: the first one usually leads by then. Half of them pass before
/// the first attempt, for the links in the other direction: a pre-vote on one that is not there yet is lost.
const APART: u64 = 2;

/// When this member, which has not heard of a leader since it started, asks for pre-votes.
#[derive(Debug)]
pub(super) struct ColdStart {
    /// No leader was heard, and this member has not asked yet.
    open: bool,
    /// The term of its start: a newer one means that someone campaigns already.
    term: Term,
    /// Every voter is connected, and asks when its time has come; milliseconds of the owner's clock.
    next: Option<u64>,
}

impl ColdStart {
    pub(super) fn new(open: bool, term: Term) -> Self {
        let next = None;
        Self { open, term, next }
    }

    /// A leader was heard, or someone campaigns.
    pub(super) fn end(&mut self) {
        self.open = false;
    }

    /// Whether the time has come for the voter that is number `rank`. It comes once: if nothing comes of it, the election
    /// timeout decides, as it does for members whose disks are too slow for attempts that follow each other this fast.
    fn is_due(&mut self, now: u64, rank: u64, heartbeat: u64) -> bool {
        let first = now + heartbeat * (APART / 2 + APART * rank);
        let due = now >= *self.next.get_or_insert(first);
        self.open &= !due;
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
        if self.raft.term() != self.cold_start.term {
            self.cold_start.end();
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
        let heartbeat = self.spans().heartbeat;
        match self.cold_start.is_due(self.now, rank as u64, heartbeat) {
            true => self.tolerate(effects, |raft| raft.campaign().map(|_| ())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_ask_once_and_one_after_another() {
        for (rank, at) in [(0, 100), (1, 300), (2, 500)] {
            let mut start = ColdStart::new(true, 1);
            let due = (0..1_000)
                .step_by(100)
                .find(|now| start.is_due(*now, rank, 100));
            assert_eq!(due, Some(at), "number {rank}");
            assert!(!start.open);
        }
    }
}
