//! Everything that leaves the core: messages, those that wait for durability, batches, appends
//! to the members, log reads and entries to apply. [`Raft::take_ready`] is the only way out.

use crate::mutants::mutant;
use std::collections::BTreeMap;

use super::core::Raft;
use super::error::Error;
use super::message::{Append, Body, Message};
use super::ready::{
    LogRead, Persist, PersistMark, ReadFailure, ReadState, Ready, Role, RoleChange, SnapshotSend,
    Ticket,
};
use super::status::ProgressState;
use super::types::{Entry, HardState, Index, MemberId, Term};

/// What a log read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Apply,
    Peer(MemberId),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    purpose: Purpose,
    from: Index,
    to: Index,
}

/// What waits to leave the core.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Something happened since the last ready.
    poked: bool,
    messages: Vec<Message>,
    pub(super) read_states: Vec<ReadState>,
    pub(super) read_failures: Vec<ReadFailure>,
    snapshot_sends: Vec<SnapshotSend>,
    log_reads: Vec<LogRead>,
    /// Messages that the batch under way must be durable for.
    held: Vec<Message>,
    /// Messages that what is not yet in a batch must be durable for.
    held_next: Vec<Message>,
    number: PersistMark,
    /// The hard state in the newest batch, and the newest one known to be durable.
    staged_state: HardState,
    durable_state: HardState,
    force_hard_state: bool,
    ticket: Ticket,
    readings: BTreeMap<Ticket, Reading>,
    /// Entries that were read back and wait to be applied.
    to_apply: Vec<Entry>,
    /// The machine takes no entries for now.
    applying_held: bool,
    reported_role: Option<RoleChange>,
}

impl Outbox {
    pub(super) fn poke(&mut self) {
        self.poked = true;
    }

    pub(super) fn restored(&mut self, state: HardState, role: RoleChange) {
        self.staged_state = state;
        self.durable_state = state;
        self.reported_role = Some(role);
    }

    pub(super) fn force_hard_state(&mut self) {
        self.force_hard_state = true;
        self.poked = true;
    }

    /// Reads for members are of no use in another term.
    pub(super) fn forget_peer_reads(&mut self) {
        self.poked = true;
        self.readings
            .retain(|_, reading| reading.purpose == Purpose::Apply);
        self.log_reads
            .retain(|read| self.readings.contains_key(&read.ticket));
        self.snapshot_sends.clear();
    }

    pub(super) fn forget_apply_read(&mut self) {
        self.readings
            .retain(|_, reading| reading.purpose != Purpose::Apply);
        self.log_reads
            .retain(|read| self.readings.contains_key(&read.ticket));
        self.to_apply.clear();
    }

    fn is_reading_to_apply(&self) -> bool {
        self.readings
            .values()
            .any(|reading| reading.purpose == Purpose::Apply)
    }

    fn read(&mut self, purpose: Purpose, from: Index, to: Index, max_bytes: u64) -> Ticket {
        self.ticket += 1;
        self.readings
            .insert(self.ticket, Reading { purpose, from, to });
        self.log_reads.push(LogRead {
            ticket: self.ticket,
            from,
            to,
            max_bytes,
        });
        self.ticket
    }
}

impl Raft {
    /// Whether [`Raft::take_ready`] may have something.
    pub fn has_ready(&self) -> bool {
        self.outbox.poked
    }

    /// While it is held, no committed entry is handed out to be applied, unless a change of the configuration is among
    /// them. What is committed, and what is acknowledged to other members, does not wait for it; reads wait for what they have
    /// to see.
    pub fn hold_applying(&mut self, held: bool) {
        if self.outbox.applying_held && !held {
            self.outbox.poked = true;
        }
        self.outbox.applying_held = held;
    }

    /// Takes all work that can be done now. Calling it less often makes larger batches.
    pub fn take_ready(&mut self) -> Ready {
        self.outbox.poked = false;
        self.confirm_reads();
        self.send_appends();
        let install = self.next_install();
        let batch = if self.install.is_none() {
            self.next_batch()
        } else {
            None
        };
        let committed = self.next_committed();
        let role_change =
            Some(self.role_change()).filter(|now| self.outbox.reported_role != Some(*now));
        self.outbox.reported_role = Some(self.role_change());
        // Producing the above pokes again; all of it is in here.
        self.outbox.poked = false;
        Ready {
            batch,
            messages: std::mem::take(&mut self.outbox.messages),
            committed,
            read_states: std::mem::take(&mut self.outbox.read_states),
            read_failures: std::mem::take(&mut self.outbox.read_failures),
            log_reads: std::mem::take(&mut self.outbox.log_reads),
            snapshot_sends: std::mem::take(&mut self.outbox.snapshot_sends),
            install,
            role_change,
        }
    }

    pub(super) fn send(&mut self, to: MemberId, body: Body) {
        self.send_in_term(to, self.term, body);
    }

    pub(super) fn send_in_term(&mut self, to: MemberId, term: Term, body: Body) {
        self.outbox
            .messages
            .push(Message::new(self.config.id, to, term, body));
        self.outbox.poke();
    }

    /// Sends once everything that this member has accepted so far is durable.
    pub(super) fn send_when_durable(&mut self, to: MemberId, body: Body) {
        self.outbox
            .held_next
            .push(Message::new(self.config.id, to, self.term, body));
        self.outbox.poke();
    }

    /// Whether term, vote or entries are not in any batch yet.
    fn has_unstaged(&self) -> bool {
        let staged = self.outbox.staged_state;
        self.log.has_unwritten()
            || self.outbox.force_hard_state
            || staged.term != self.term
            || staged.vote != self.vote.unwrap_or(0)
    }

    /// The next batch, if none is under way and there is something to write. Decides too what
    /// the held messages wait for.
    fn next_batch(&mut self) -> Option<Persist> {
        if self.log.is_writing() {
            if !self.has_unstaged() {
                self.outbox.held.append(&mut self.outbox.held_next);
            }
            return None;
        }
        if !self.has_unstaged() {
            self.outbox.messages.append(&mut self.outbox.held_next);
            return None;
        }
        let state = self.hard_state();
        let changed = self.outbox.force_hard_state || state != self.outbox.staged_state;
        self.outbox.force_hard_state = false;
        self.outbox.staged_state = state;
        self.outbox.number += 1;
        let number = self.outbox.number;
        let entries = self.log.start_writing(number);
        self.outbox.held.append(&mut self.outbox.held_next);
        let vote = mutant!(ForgetVote => 0, else state.vote);
        Some(Persist {
            number,
            hard_state: changed.then_some(HardState { vote, ..state }),
            entries,
        })
    }

    /// Batch `number` is durable. Releases what waited for it.
    pub fn persisted(&mut self, number: PersistMark) -> Result<(), Error> {
        self.log.written(number)?;
        self.outbox.poke();
        self.outbox.durable_state = self.outbox.staged_state;
        self.outbox.messages.append(&mut self.outbox.held);
        let own = self.config.id;
        if self.role == Role::Leader {
            if let Some(progress) = self.progress.get_mut(&own) {
                progress.matched = progress.matched.max(self.log.durable());
            }
            self.advance_commit()?;
        }
        let durable = self.outbox.durable_state;
        if self.role == Role::Candidate && (durable.term, durable.vote) == (self.term, own) {
            self.count_vote(own, true)?;
        }
        Ok(())
    }

    /// A snapshot to install, once nothing else is being written.
    fn next_install(&mut self) -> Option<super::types::SnapshotMeta> {
        if self.log.is_writing() {
            return None;
        }
        let install = self.install.as_mut().filter(|install| !install.asked)?;
        install.asked = true;
        Some(install.meta.clone())
    }

    /// Committed entries up to the byte limit, from the cache or from an earlier log read.
    /// Asks for a read where the cache does not reach back far enough.
    fn next_committed(&mut self) -> Vec<Entry> {
        if self.outbox.applying_held && !self.configuration_waits() {
            return Vec::new();
        }
        let mut committed = std::mem::take(&mut self.outbox.to_apply);
        self.log.hand_out(&committed);
        if self.install.is_some() || self.outbox.is_reading_to_apply() {
            return committed;
        }
        loop {
            let room = self
                .config
                .max_apply_bytes
                .saturating_sub(self.log.applying_bytes());
            let (from, to) = self.log.applicable();
            if room == 0 || from >= to {
                return committed;
            }
            let first = self.log.first_cached();
            if from < first {
                // One half is read while the other one is applied.
                let half = self.config.max_apply_bytes.div_ceil(2);
                if room >= half {
                    self.outbox.read(Purpose::Apply, from, to.min(first), half);
                }
                return committed;
            }
            let entries = self.log.cached(from, to, room);
            self.log.hand_out(&entries);
            committed.extend(entries);
        }
    }

    /// Whether a committed configuration is not applied yet: until it is, this member does not campaign.
    fn configuration_waits(&self) -> bool {
        let change = self.log.unapplied_configuration();
        change.is_some_and(|index| index <= self.log.commit())
    }

    /// Sends each member what it lacks, as far as its window allows.
    pub(super) fn send_appends(&mut self) {
        if self.role != Role::Leader {
            return;
        }
        let own = self.config.id;
        let peers: Vec<MemberId> = self
            .progress
            .keys()
            .copied()
            .filter(|id| *id != own)
            .collect();
        for to in peers {
            while self.send_append(to, None) {}
        }
    }

    /// Sends one append with the given entries, or with those in the cache. Returns whether it did and there may be
    /// more to send.
    fn send_append(&mut self, to: MemberId, read: Option<Vec<Entry>>) -> bool {
        let commit = self.log.commit();
        let Some(progress) = self.progress.get_mut(&to) else {
            return false;
        };
        if progress.is_paused() {
            return false;
        }
        let (next, state) = (progress.next, progress.state);
        let prev_index = next - 1;
        let Some(prev_term) = self.log.term(prev_index) else {
            self.ask_for_snapshot(to);
            return false;
        };
        let first = self.log.first_cached();
        let full = progress.inflights.full();
        let due = progress.poke || progress.lacks_commit(commit);
        let entries = match read {
            Some(entries) => entries,
            None if full => Vec::new(),
            None if next >= first => {
                self.log
                    .cached(next, self.log.last() + 1, self.config.max_message_bytes)
            }
            // A probe without entries finds the place just as well, without a read.
            None if state == ProgressState::Probe => Vec::new(),
            None => {
                if progress.reading.is_none() {
                    let max = self.config.max_message_bytes;
                    let ticket = self.outbox.read(Purpose::Peer(to), next, first, max);
                    progress.reading = Some(ticket);
                }
                Vec::new()
            }
        };
        let probe = state == ProgressState::Probe && next <= self.log.last();
        if entries.is_empty() && !due && !probe {
            return false;
        }
        let bytes = entries.iter().map(Entry::cost).sum();
        progress.sent(entries.len() as u64, bytes, commit);
        let more = !entries.is_empty();
        self.send(
            to,
            Body::Append(Append {
                prev_index,
                prev_term,
                commit,
                entries,
            }),
        );
        more
    }

    /// The log no longer contains the entries that a member needs. One member at a time gets a snapshot, and only one
    /// that responds.
    fn ask_for_snapshot(&mut self, to: MemberId) {
        let at_least = self.log.floor();
        let Some(progress) = self.progress.get_mut(&to) else {
            return;
        };
        if self.snapshot_to.is_some() || !progress.recent_active {
            return;
        }
        progress.become_snapshot(at_least);
        self.snapshot_to = Some(to);
        self.outbox.snapshot_sends.push(SnapshotSend {
            to,
            term: self.term,
            at_least,
        });
        self.outbox.poke();
    }

    /// The entries of a log read: a prefix of those requested, at least one and without a gap. None at all means that
    /// the log no longer has them.
    pub fn log_read(&mut self, ticket: Ticket, entries: Vec<Entry>) -> Result<(), Error> {
        let Some(reading) = self.outbox.readings.remove(&ticket) else {
            return Ok(());
        };
        self.outbox.poke();
        self.check_read(reading, &entries)?;
        match reading.purpose {
            Purpose::Apply => {
                let reason = "committed entries that are not applied are gone";
                if entries.is_empty() {
                    return Err(Error::WrongRead {
                        index: reading.from,
                        reason,
                    });
                }
                self.outbox.to_apply = entries;
            }
            Purpose::Peer(id) => {
                let Some(progress) = self.progress.get_mut(&id) else {
                    return Ok(());
                };
                if progress.reading != Some(ticket) {
                    return Ok(());
                }
                progress.reading = None;
                if entries.is_empty() {
                    self.ask_for_snapshot(id);
                } else if progress.next == reading.from {
                    self.send_append(id, Some(entries));
                }
            }
        }
        Ok(())
    }

    /// Compares what was read with the shape of the log.
    fn check_read(&self, reading: Reading, entries: &[Entry]) -> Result<(), Error> {
        for (entry, index) in entries.iter().zip(reading.from..) {
            let wrong = |reason| {
                Err(Error::WrongRead {
                    index: reading.from,
                    reason,
                })
            };
            if entry.index != index || index >= reading.to {
                return wrong("indexes are not those asked for");
            }
            if self.log.term(index).is_some_and(|term| term != entry.term) {
                return wrong("terms are not those that were written");
            }
        }
        Ok(())
    }
}
