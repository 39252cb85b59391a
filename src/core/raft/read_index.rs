//! Reads by index: linearizable without a log entry (thesis §6.4). The bookkeeping is in
//! `reads.rs`.

use super::core::{Raft, Stepped};
use super::message::{Body, ReadId, ReadIndex, ReadIndexReply};
use super::quorum;
use super::read_only::Origin;
use super::ready::{ReadFailure, ReadFailureReason, ReadState, Role};
use super::types::{Index, MemberId};
use crate::mutants::mutant;

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

    /// Whether a follower that forwards a read confirms the leader with it. It was in this term after the read began, and
    /// so had voted for no later leader: where it and this leader are a quorum, nobody else could have committed anything
    /// that the read has to see. Says nothing of other reads, which may have begun after it was sent.
    fn is_confirmed_by(&self, from: MemberId) -> bool {
        let own = self.config.id;
        let is_one = |id| id == own || id == from || mutant!(AnyWordIsEnough);
        self.committed_in_term() && quorum::is_quorum(&self.configuration.voters, is_one)
    }

    pub(super) fn on_read_question(&mut self, from: MemberId, id: ReadId) -> Stepped {
        if self.role != Role::Leader {
            return Stepped::Ignored("a read for the leader");
        }
        let origin = Origin::Remote(from, id);
        if self.is_confirmed_by(from) {
            self.answer_read(origin, self.log.commit());
        } else if self.reads.full() {
            return Stepped::Ignored("too many pending reads");
        } else {
            self.lead_read(origin);
        }
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

    /// Starts a round for the reads that came since the last one. It asks those who answered the last one first, if they
    /// are enough: each further member that is asked costs a wake-up there and one here. Otherwise it asks all.
    pub(super) fn confirm_reads(&mut self) {
        if self.role != Role::Leader || !self.reads.round_due() {
            return;
        }
        let voters = &self.configuration.voters;
        match self.reads.prompt(self.config.id, voters, self.ticks) {
            Some(prompt) => self.heartbeat(&prompt, true),
            None => self.broadcast_heartbeat(),
        }
    }

    /// The newest round that no quorum has answered, if it did not ask all members: a number of its own.
    pub fn unanswered_reads(&self) -> Option<u64> {
        self.reads.unanswered()
    }

    /// The round that waits asks all members from now on, as those that it asked take too long. For as long as nothing
    /// is lost they have a fraction of a tick, which this core cannot measure.
    pub fn ask_all_for_reads(&mut self) {
        self.reads.ask_all();
        self.outbox.poke();
    }

    /// Answers what a quorum has confirmed.
    pub(super) fn release_reads(&mut self) {
        let voters = &self.configuration.voters;
        for (origin, index) in self.reads.take_confirmed(self.config.id, voters) {
            self.answer_read(origin, index);
        }
    }

    fn answer_read(&mut self, origin: Origin, index: Index) {
        match origin {
            Origin::Local(request) => {
                self.outbox.read_states.push(ReadState { request, index });
            }
            Origin::Remote(to, id) => {
                self.send(to, Body::ReadIndexReply(ReadIndexReply { id, index }));
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
