//! Replication: proposals, appends and their answers, heartbeats, and the commit index
//! (paper §5.3, §5.4.2). When an append goes out is decided in `output.rs`.

use std::collections::VecDeque;

use crate::mutants::mutant;
use bytes::Bytes;

use super::core::{Raft, Stepped};
use super::error::{Error, ProposeError};
use super::message::{Append, AppendReply, Body, Heartbeat, HeartbeatReply};
use super::quorum;
use super::ready::Role;
use super::status::ProgressState;
use super::types::{Entry, Index, MemberId, Position};

/// What a leader has appended in its term and not yet seen committed.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    bytes: u64,
    entries: VecDeque<(Index, u64)>,
}

impl Uncommitted {
    fn add(&mut self, entry: &Entry) {
        self.bytes += entry.cost();
        self.entries.push_back((entry.index, entry.cost()));
    }

    fn committed(&mut self, commit: Index) {
        while let Some((index, cost)) = self.entries.front().copied() {
            if index > commit {
                break;
            }
            self.entries.pop_front();
            self.bytes -= cost;
        }
    }
}

impl Raft {
    /// Appends one entry for each item, at a leader, and returns the position of the first. All are
    /// appended or none. They may still be lost if leadership is lost; whether they are committed shows when they, or
    /// others at the same indexes, are handed out to be applied.
    pub fn propose(&mut self, items: Vec<Bytes>) -> Result<Position, ProposeError> {
        let first = self.log.last() + 1;
        let term = self.term;
        let entries: Vec<Entry> = items
            .into_iter()
            .zip(first..)
            .map(|(data, index)| Entry::normal(term, index, data))
            .collect();
        self.check_proposal(&entries)?;
        self.append_proposal(entries)
    }

    /// Whether these entries may be appended now.
    pub(super) fn check_proposal(&self, entries: &[Entry]) -> Result<(), ProposeError> {
        if self.role != Role::Leader {
            return Err(ProposeError::NotLeader {
                leader: self.leader,
            });
        }
        if self.leaving.is_some() {
            return Err(ProposeError::NotLeader { leader: None });
        }
        if let Some(transfer) = &self.transfer {
            return Err(ProposeError::Transferring { to: transfer.to });
        }
        let Some(size) = entries.iter().map(|entry| entry.data.len() as u64).max() else {
            return Err(ProposeError::Empty);
        };
        let limit = self.config.max_entry_bytes;
        if size > limit {
            return Err(ProposeError::TooLarge { size, limit });
        }
        let (uncommitted, limit) = (self.uncommitted.bytes, self.config.max_uncommitted_bytes);
        let more: u64 = entries.iter().map(Entry::cost).sum();
        // Any size is accepted when nothing is in flight, so that no entry is refused forever.
        if uncommitted > 0 && uncommitted.saturating_add(more) > limit {
            return Err(ProposeError::Overloaded { uncommitted, limit });
        }
        Ok(())
    }

    /// Appends entries that [`Raft::check_proposal`] has passed.
    pub(super) fn append_proposal(
        &mut self,
        entries: Vec<Entry>,
    ) -> Result<Position, ProposeError> {
        let first = self.log.last() + 1;
        // Entries made for the end of the log in the current term always fit there.
        self.append_own(entries)
            .map_err(|_| ProposeError::NotLeader { leader: None })?;
        Ok(Position {
            index: first,
            term: self.term,
        })
    }

    /// Appends to the leader's own log; `output.rs` sends what each member lacks.
    pub(super) fn append_own(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        for entry in entries {
            self.uncommitted.add(&entry);
            self.log.push(entry)?;
        }
        let last = self.log.last();
        if let Some(own) = self.progress.get_mut(&self.config.id) {
            own.next = last + 1;
            mutant!(CountOwnUnsynced => own.matched = last);
        }
        self.outbox.poke();
        Ok(())
    }

    /// Whether the leader's commit index is in its own term, so that it covers everything committed before (thesis
    /// §6.4).
    pub(super) fn committed_in_term(&self) -> bool {
        self.log.term(self.log.commit()) == Some(self.term)
    }

    /// Moves a leader's commit index to what a majority holds durably. Entries of older terms
    /// are committed only along with one of the own term (paper §5.4.2).
    pub(super) fn advance_commit(&mut self) -> Result<(), Error> {
        let mut voters = &self.configuration.voters;
        let all;
        if mutant!(CountLearner) {
            all = self.configuration.members();
            voters = &all;
        }
        let reached = quorum::reached(voters, |id| self.progress.get(&id).map_or(0, |p| p.matched));
        let own_term = self.log.term(reached) == Some(self.term) || mutant!(CommitOlderTerm);
        if reached <= self.log.commit() || !own_term {
            return Ok(());
        }
        self.log.commit_to(reached)?;
        self.uncommitted.committed(reached);
        self.reads.release_early(self.log.commit());
        self.outbox.poke();
        if self.leaving.is_some_and(|index| index <= reached) {
            self.leave_leadership();
        }
        Ok(())
    }

    pub(super) fn on_append(&mut self, from: MemberId, append: Append) -> Result<Stepped, Error> {
        let Append {
            prev_index,
            prev_term,
            commit,
            entries,
        } = append;
        if mutant!(TruncateCommitted) {
            self.log.truncate(prev_index + 1);
        } else if prev_index < self.log.commit() {
            // What is committed matches; the leader can go on from there.
            self.acknowledge(from, self.log.commit());
            return Ok(Stepped::Taken);
        }
        match self.log.append_after((prev_index, prev_term), entries)? {
            Some(matched) => {
                self.log.commit_to(commit.min(matched))?;
                self.outbox.poke();
                self.acknowledge(from, matched);
            }
            None => {
                let (hint_index, hint_term) = self.log.find_conflict(prev_index, prev_term);
                let reply = AppendReply {
                    index: prev_index,
                    reject: true,
                    hint_index,
                    hint_term,
                };
                self.send_when_durable(from, Body::AppendReply(reply));
            }
        }
        Ok(Stepped::Taken)
    }

    /// Tells a leader up to where the log matches, once that is durable.
    pub(super) fn acknowledge(&mut self, to: MemberId, index: Index) {
        let reply = AppendReply {
            index,
            ..AppendReply::default()
        };
        mutant!(AckBeforeFsync => return self.send(to, Body::AppendReply(reply)));
        self.send_when_durable(to, Body::AppendReply(reply));
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: MemberId,
        heartbeat: Heartbeat,
    ) -> Result<Stepped, Error> {
        // The leader names nothing beyond what this member has acknowledged.
        self.log.commit_to(heartbeat.commit)?;
        self.outbox.poke();
        let reply = HeartbeatReply {
            read: heartbeat.read,
            applied: self.log.applied(),
        };
        self.send(from, Body::HeartbeatReply(reply));
        Ok(Stepped::Taken)
    }

    /// Up to where every member that has answered within an election timeout has this leader's log, or will have it with the
    /// snapshot that it receives. To one that has not answered the rest is read from the log when it is back.
    pub(super) fn matched_by_all(&self) -> Index {
        let since = self.ticks.saturating_sub(self.config.election_ticks.into());
        let others = self.progress.iter().filter(|(id, progress)| {
            **id != self.config.id && progress.last_ack_tick.is_some_and(|at| at >= since)
        });
        // Who leads nobody has nothing to send.
        let matched = others.map(|(_, progress)| progress.matched.max(progress.pending_snapshot));
        matched.min().unwrap_or(Index::MAX)
    }

    pub(super) fn on_append_reply(
        &mut self,
        from: MemberId,
        reply: AppendReply,
    ) -> Result<Stepped, Error> {
        let last = self.log.last();
        if !reply.reject && reply.index > last {
            let reason = "it acknowledges what was never sent";
            return Err(Error::BadMessage { from, reason });
        }
        // Where our terms rule indexes out, skip them all at once.
        let hint = if reply.reject && reply.hint_term > 0 {
            self.log.find_conflict(reply.hint_index, reply.hint_term).0
        } else {
            reply.hint_index
        };
        let floor = self.log.floor();
        let ticks = self.ticks;
        self.outbox.poke();
        let Some(progress) = self.peer(from) else {
            return Ok(Stepped::Ignored("not a member led by this one"));
        };
        progress.recent_active = true;
        progress.last_ack_tick = Some(ticks);
        if reply.reject {
            return Ok(if progress.reject(reply.index, hint) {
                progress.poke = true;
                Stepped::Taken
            } else {
                Stepped::Ignored("rejects what was sent long ago")
            });
        }
        let news = progress.acknowledge(reply.index);
        match progress.state {
            ProgressState::Probe if progress.matched == reply.index => {
                progress.become_replicate();
            }
            ProgressState::Snapshot if news && progress.matched >= floor => {
                progress.become_replicate();
                if self.snapshot_to == Some(from) {
                    self.snapshot_to = None;
                }
            }
            _ => {}
        }
        if news {
            self.advance_commit()?;
        }
        self.hand_over_if_caught_up(from);
        Ok(Stepped::Taken)
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: MemberId,
        reply: HeartbeatReply,
    ) -> Result<Stepped, Error> {
        let last = self.log.last();
        let ticks = self.ticks;
        self.outbox.poke();
        let Some(progress) = self.peer(from) else {
            return Ok(Stepped::Ignored("not a member led by this one"));
        };
        progress.recent_active = true;
        progress.last_ack_tick = Some(ticks);
        progress.applied = progress.applied.max(reply.applied);
        // Appends may have been lost. One without entries is rejected if they were, and
        // brings the answer that frees the window if they were not.
        progress.paused = false;
        progress.poke |= progress.matched < last || progress.state == ProgressState::Probe;
        self.hand_over_if_caught_up(from);
        if let Some(id) = reply.read {
            if !self.reads.acknowledge(from, id) {
                return Ok(Stepped::Ignored("the read is not one of this leader's"));
            }
            self.release_reads();
        }
        Ok(Stepped::Taken)
    }

    /// The progress of another member, at a leader.
    fn peer(&mut self, id: MemberId) -> Option<&mut super::progress::Progress> {
        if self.role != Role::Leader || id == self.config.id {
            return None;
        }
        self.progress.get_mut(&id)
    }

    pub(super) fn broadcast_heartbeat(&mut self) {
        let own = self.config.id;
        let peers: Vec<MemberId> = self.progress.keys().copied().collect();
        let peers: Vec<MemberId> = peers.into_iter().filter(|id| *id != own).collect();
        self.heartbeat(&peers, false);
    }

    /// Heartbeats to these, some or all, with the round of the reads that wait.
    pub(super) fn heartbeat(&mut self, peers: &[MemberId], some: bool) {
        let read = self.reads.round();
        let commit = self.log.commit();
        for to in peers {
            let Some(progress) = self.progress.get_mut(to) else {
                continue;
            };
            let commit = mutant!(HeartbeatCommit => commit, else commit.min(progress.matched));
            progress.sent_commit = progress.sent_commit.max(commit);
            self.send(*to, Body::Heartbeat(Heartbeat { commit, read }));
        }
        self.reads.round_sent(some, self.ticks);
        self.release_reads();
    }

    /// Messages to `id` are being lost: stop sending ahead of its answers.
    pub fn report_unreachable(&mut self, id: MemberId) {
        let Some(progress) = self.peer(id) else {
            return;
        };
        if progress.state == ProgressState::Replicate {
            progress.become_probe();
        }
        self.reads.lost(id);
        self.outbox.poke();
    }
}
