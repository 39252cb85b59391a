//! Reads by index: linearizable without a log entry (thesis §6.4). The bookkeeping is in
//! `reads.rs`.

use super::core::{Raft, Stepped};
use super::message::{Body, ReadId, ReadIndex, ReadIndexReply};
use super::read_only::Origin;
use super::ready::{ReadFailure, ReadFailureReason, ReadState, Role};
use super::types::MemberId;

impl Raft {
    /// Asks for an index from which a read that starts now may be served. `request` is the
    /// caller's name for it, not used before; exactly one [`ReadState`] or [`ReadFailure`] with
    /// that name follows in a later ready. A retry is another call under another name.
    pub fn read_index(&mut self, request: u64) {
        self.outbox.poke();
        if self.reads.full() {
            return self.fail_read(request, ReadFailureReason::TooMany);
        }
        if self.role == Role::Leader {
            return self.lead_read(Origin::Local(request));
        }
        match self.leader {
            Some(leader) => {
                let id = self.reads.forward(request, self.ticks);
                self.send(leader, Body::ReadIndex(ReadIndex { id }));
            }
            None => self.fail_read(request, ReadFailureReason::NoLeader),
        }
    }

    fn lead_read(&mut self, origin: Origin) {
        let (index, now) = (self.log.commit(), self.ticks);
        if self.committed_in_term() {
            self.reads.wait_for_round(origin, index, now);
        } else {
            self.reads.wait_for_commit(origin, now);
        }
    }

    pub(super) fn on_read_question(&mut self, from: MemberId, id: ReadId) -> Stepped {
        if self.role != Role::Leader {
            return Stepped::Ignored("a read for the leader");
        }
        if self.reads.full() {
            return Stepped::Ignored("too many pending reads");
        }
        self.lead_read(Origin::Remote(from, id));
        self.outbox.poke();
        Stepped::Taken
    }

    pub(super) fn on_read_answer(&mut self, from: MemberId, answer: ReadIndexReply) -> Stepped {
        if self.leader != Some(from) {
            return Stepped::Ignored("an answer of another leader");
        }
        match self.reads.answered(answer.id) {
            Some(request) => {
                self.outbox.read_states.push(ReadState {
                    request,
                    index: answer.index,
                });
                // Nothing else may move at a quiet follower before the next heartbeat.
                self.outbox.poke();
                Stepped::Taken
            }
            None => Stepped::Ignored("the read does not wait any more"),
        }
    }

    /// Starts a round for the reads that came since the last one.
    pub(super) fn confirm_reads(&mut self) {
        if self.role == Role::Leader && self.reads.round_due() {
            self.broadcast_heartbeat();
        }
    }

    /// Answers what a quorum has confirmed.
    pub(super) fn release_reads(&mut self) {
        let voters = &self.configuration.voters;
        for (origin, index) in self.reads.take_confirmed(self.config.id, voters) {
            match origin {
                Origin::Local(request) => {
                    self.outbox.read_states.push(ReadState { request, index });
                }
                Origin::Remote(to, id) => {
                    self.send(to, Body::ReadIndexReply(ReadIndexReply { id, index }));
                }
            }
        }
    }

    /// Fails reads that have waited for an election timeout.
    pub(super) fn expire_reads(&mut self) {
        let since = self
            .ticks
            .saturating_sub(u64::from(self.config.election_ticks));
        for request in self.reads.take_expired(since) {
            self.fail_read(request, ReadFailureReason::TimedOut);
        }
    }

    pub(super) fn fail_reads(&mut self, reason: ReadFailureReason) {
        for request in self.reads.take_all() {
            self.fail_read(request, reason);
        }
    }

    fn fail_read(&mut self, request: u64, reason: ReadFailureReason) {
        self.outbox
            .read_failures
            .push(ReadFailure { request, reason });
    }
}
