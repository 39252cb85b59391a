//! Handing leadership to another voter (thesis §3.10).

use super::core::{Raft, Stepped};
use super::election::Campaign;
use super::error::{Error, TransferError};
use super::message::{Body, TimeoutNow};
use super::ready::Role;
use super::types::MemberId;

/// A transfer under way. Proposals are refused until it ends, in one way or the other.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: MemberId,
    elapsed: u32,
    ordered: bool,
}

impl Raft {
    /// Hands leadership to `to`: brings its log up to date, then has it campaign at once. Given
    /// up after an election timeout. Asking again for the same target changes nothing.
    pub fn transfer_leadership(&mut self, to: MemberId) -> Result<(), TransferError> {
        if self.role != Role::Leader {
            return Err(TransferError::NotLeader {
                leader: self.leader,
            });
        }
        if to == self.config.id || !self.configuration.voters.contains(&to) {
            return Err(TransferError::BadTarget { to });
        }
        match &self.transfer {
            Some(transfer) if transfer.to == to => return Ok(()),
            Some(transfer) => return Err(TransferError::Transferring { to: transfer.to }),
            None => {}
        }
        self.transfer = Some(Transfer {
            to,
            elapsed: 0,
            ordered: false,
        });
        if let Some(progress) = self.progress.get_mut(&to) {
            progress.poke = progress.matched < self.log.last();
        }
        self.outbox.poke();
        self.hand_over_if_caught_up(to);
        Ok(())
    }

    /// Orders the target of a transfer to campaign once it holds the whole log.
    pub(super) fn hand_over_if_caught_up(&mut self, id: MemberId) {
        let caught_up = self
            .progress
            .get(&id)
            .is_some_and(|progress| progress.matched == self.log.last());
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        if transfer.to == id && caught_up && !transfer.ordered {
            transfer.ordered = true;
            self.send(id, Body::TimeoutNow(TimeoutNow {}));
        }
    }

    pub(super) fn tick_transfer(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            transfer.elapsed += 1;
            // The order may have been lost; the target's next answer repeats it.
            transfer.ordered = false;
            if transfer.elapsed >= self.config.election_ticks {
                self.transfer = None;
            }
        }
    }

    pub(super) fn on_timeout_now(&mut self, from: MemberId) -> Result<Stepped, Error> {
        if self.role != Role::Follower {
            return Ok(Stepped::Ignored("not a follower"));
        }
        if self.leader.is_some_and(|leader| leader != from) {
            return Ok(Stepped::Ignored("not from the leader"));
        }
        self.start_campaign(Campaign::Transfer)
    }
}
