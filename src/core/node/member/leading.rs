//! What happens with time: at every member, and at a leader the expiry of leases and the binding of
//! disks.

use crate::node::api::{Effect, StopReason};
use crate::node::change::{Bind, ChangeBody};
use crate::node::payload::LogPayload;
use crate::raft::MemberId;
use crate::store::{LeaseCheckpoint, LeaseExpire, LeaseRemains, Operation};

use super::Member;

impl Member {
    pub(super) fn tick(&mut self, out: &mut Vec<Effect>) -> Result<(), StopReason> {
        self.notified_removed.clear();
        self.distrusted = None;
        let election = self.spans().election;
        self.transfers.tick(self.now, out);
        self.return_forwarded(out);
        // A removed member ticks as well: the others may need its vote until they know of the
        // removal, and it must forget a leader from which it no longer hears.
        if self.voting {
            self.tolerate(out, crate::raft::Raft::tick)?;
        }
        if self.removed {
            self.part(out);
            return Ok(());
        }
        self.elect_after_cold_start(out)?;
        self.reads.tick(self.now, election / 2);
        self.retry_lease_calls(out);
        if self.leads() {
            let status = self.raft.status();
            let (disks, spans) = (&self.disks, self.spans());
            let bound = |id| self.membership.expected_disk(id).is_some() && disks.contains_key(&id);
            self.contacts.observe(self.now, spans, &status, bound);
            self.end_leases();
            self.note_leases();
            self.bind_disks();
            self.settle();
        }
        if self.retention.due(self.now, self.applied_index())
            || (self.send_later.is_some() && self.retention.take(self.now))
        {
            out.push(Effect::TakeCheckpoint);
        }
        self.drop_log(out);
        Ok(())
    }

    /// Proposes to revoke expired leases. Never forwarded, and void under another term than this
    /// leader's; one that is not appended is proposed again.
    fn end_leases(&mut self) {
        let ids = self.lessor.expired(self.now, self.spans().election);
        if ids.is_empty() {
            return;
        }
        let expire = LeaseExpire {
            ids,
            term: self.term(),
        };
        let command = Operation::LeaseExpire(expire).into();
        // Refused during a transfer or an overload: retried after an election timeout.
        let _ = self.raft.propose(vec![LogPayload::command(None, command)]);
    }

    /// Proposes to checkpoint the remaining TTL of long leases.
    fn note_leases(&mut self) {
        let notes = self.lessor.notes(self.now);
        self.propose_notes(notes);
    }

    /// Proposes to clear the checkpoints of leases that are to be renewed.
    pub(super) fn clear_notes(&mut self) {
        let notes = self.lessor.take_clearings();
        self.propose_notes(notes);
    }

    /// Void under another term than this leader's, and never forwarded.
    fn propose_notes(&mut self, leases: Vec<LeaseRemains>) {
        if leases.is_empty() {
            return;
        }
        let (note, term) = (leases.clone(), self.term());
        let note = LeaseCheckpoint { leases: note, term };
        let command = Operation::LeaseCheckpoint(note).into();
        if self
            .raft
            .propose(vec![LogPayload::command(None, command)])
            .is_err()
        {
            // Refused during a transfer or an overload: proposed again later.
            self.lessor.unproposed(&leases);
        }
    }

    /// Proposes to settle the applied configuration, once a term.
    pub(super) fn settle(&mut self) {
        let index = self.membership.configuration_index;
        if !self.leads() || self.membership.is_settled() || self.settling >= index {
            return;
        }
        if self.raft.propose(vec![LogPayload::settle(index)]).is_ok() {
            self.settling = index;
        }
    }

    /// Proposes to bind the disks of members that have none bound, as seen in their hellos.
    fn bind_disks(&mut self) {
        let own = self.id();
        let unbound: Vec<MemberId> = self
            .membership
            .members
            .values()
            .filter(|member| member.disk_uuid.is_empty() && !self.binding.contains(&member.id))
            .map(|member| member.id)
            .collect();
        for id in unbound {
            let disk = if id == own {
                Some(&self.config.disk_uuid).filter(|disk| !disk.is_empty())
            } else {
                self.disks.get(&id)
            };
            let Some(disk_uuid) = disk.cloned() else {
                continue;
            };
            let bind = ChangeBody::Bind(Bind { id, disk_uuid });
            let data = LogPayload::membership(None, bind.into());
            if self.raft.propose(vec![data]).is_ok() {
                self.binding.insert(id);
            }
        }
    }
}
