//! Leadership transfers, and the answer to their callers.

use crate::node::api::{Effect, TransferFailure};
use crate::raft::{MemberId, Role, RoleChange, TransferError};

use super::Member;

/// Transfers whose callers wait.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    waiting: Vec<(u64, MemberId, u64)>,
}

impl Transfers {
    fn add(&mut self, id: u64, to: MemberId, until: u64) {
        self.waiting.push((id, to, until));
    }

    /// A leader is known: answers the transfers that waited for one.
    pub(super) fn leader_is(&mut self, own: MemberId, role: RoleChange, out: &mut Vec<Effect>) {
        let Some(leader) = role.leader else { return };
        if leader == own && role.role == Role::Leader && self.waiting.iter().all(|w| w.1 != own) {
            // Still or again the leader: the transfer may still succeed or time out.
            return;
        }
        for (id, to, _) in self.waiting.drain(..) {
            let result = if to == leader {
                Ok(leader)
            } else {
                Err(TransferFailure::OtherLeader { leader })
            };
            out.push(Effect::TransferEnded { id, result });
        }
    }

    /// Answers those that have waited too long.
    pub(super) fn tick(&mut self, now: u64, out: &mut Vec<Effect>) {
        self.waiting.retain(|(id, _, until)| {
            let over = *until <= now;
            if over {
                let result = Err(TransferFailure::TimedOut);
                out.push(Effect::TransferEnded { id: *id, result });
            }
            !over
        });
    }
}

impl Member {
    pub(super) fn transfer(&mut self, id: u64, to: Option<MemberId>, out: &mut Vec<Effect>) {
        match self.begin_transfer(to) {
            Ok(target) => {
                // The core gives up after one election timeout; it may take a moment more to hear
                // from the new leader.
                let until = self.now + 2 * self.spans().election;
                self.transfers.add(id, target, until);
            }
            Err(failure) => {
                let result = Err(failure);
                out.push(Effect::TransferEnded { id, result });
            }
        }
    }

    fn begin_transfer(&mut self, to: Option<MemberId>) -> Result<MemberId, TransferFailure> {
        if !self.leads() {
            let leader = self.role.leader;
            return Err(TransferError::NotLeader { leader }.into());
        }
        let voters = &self.raft.configuration().voters;
        let target = match to {
            Some(target) => target,
            None => {
                let best = self.contacts.best_target(voters);
                best.ok_or(TransferFailure::NoTarget)?
            }
        };
        self.raft.transfer_leadership(target)?;
        Ok(target)
    }
}
