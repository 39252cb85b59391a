//! Reads that wait: for the leader's first commit, for a round of heartbeats that proves its
//! leadership, or for the leader's answer (thesis §6.4). Sends nothing itself.

use crate::mutants::mutant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::message::ReadId;
use super::quorum;
use super::types::{Index, MemberId};

/// A round asks all if none has for so many ticks, which is a second with the default heartbeat interval.
const ASK_ALL_TICKS: u64 = 10;

/// The source of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// This member's caller.
    Local(u64),
    /// A follower, under its own identity of the read.
    Remote(MemberId, ReadId),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    origin: Origin,
    since: u64,
}

#[derive(Clone, Copy, Debug)]
struct Confirming {
    counter: u64,
    index: Index,
    waiting: Waiting,
}

/// All reads that wait at one member. The counter grows for the lifetime of the process and the nonce is new at each
/// start, so no two reads ever share an identity: a late response can only belong to its own read (see
/// `tests/raft/read_reused_id.txt`).
#[derive(Debug)]
pub(super) struct ReadOnly {
    nonce: u64,
    counter: u64,
    limit: usize,
    /// At a new leader, until it commits an entry of its own term.
    early: VecDeque<Waiting>,
    /// At a leader, ascending by counter.
    confirming: VecDeque<Confirming>,
    /// The newest counter that went out with heartbeats.
    asked: u64,
    /// Whether these went to some members only.
    asked_some: bool,
    /// The tick at which they last went to all.
    asked_all_at: u64,
    /// The newest counter that each member sent back in this term.
    acked: BTreeMap<MemberId, u64>,
    /// The members that confirmed the last round, soon enough to be part of its quorum.
    prompt: BTreeSet<MemberId>,
    /// At a follower, by counter.
    forwarded: BTreeMap<u64, Waiting>,
}

impl ReadOnly {
    pub(super) fn new(nonce: u64, limit: usize) -> Self {
        Self {
            nonce,
            counter: 0,
            limit,
            early: VecDeque::new(),
            confirming: VecDeque::new(),
            asked: 0,
            asked_some: false,
            asked_all_at: 0,
            acked: BTreeMap::new(),
            prompt: BTreeSet::new(),
            forwarded: BTreeMap::new(),
        }
    }

    /// Whether as many reads wait as may.
    pub(super) fn full(&self) -> bool {
        self.early.len() + self.confirming.len() + self.forwarded.len() >= self.limit
    }

    /// A read at a leader that has committed nothing in its term yet.
    pub(super) fn wait_for_commit(&mut self, origin: Origin, now: u64) {
        self.early.push_back(Waiting { origin, since: now });
    }

    /// The leader's first commit: all that waited for it now wait for a round, at `commit`.
    pub(super) fn release_early(&mut self, commit: Index) {
        for waiting in std::mem::take(&mut self.early) {
            self.confirm(waiting, commit);
        }
    }

    /// A read at a leader that may be answered at `index` once leadership is confirmed by a
    /// round that starts after now.
    pub(super) fn wait_for_round(&mut self, origin: Origin, index: Index, now: u64) {
        self.confirm(Waiting { origin, since: now }, index);
    }

    fn confirm(&mut self, waiting: Waiting, index: Index) {
        if mutant!(ReuseReadId) && self.confirming.is_empty() {
            self.counter = 0;
        }
        self.counter += 1;
        self.confirming.push_back(Confirming {
            counter: self.counter,
            index,
            waiting,
        });
    }

    /// A read that is sent to the leader with the returned identity.
    pub(super) fn forward(&mut self, request: u64, now: u64) -> ReadId {
        self.counter += 1;
        let waiting = Waiting {
            origin: Origin::Local(request),
            since: now,
        };
        self.forwarded.insert(self.counter, waiting);
        ReadId {
            nonce: self.nonce,
            counter: self.counter,
        }
    }

    /// The leader answered. The request, if it still waits.
    pub(super) fn answered(&mut self, id: ReadId) -> Option<u64> {
        if id.nonce != self.nonce {
            return None;
        }
        match self.forwarded.remove(&id.counter)?.origin {
            Origin::Local(request) => Some(request),
            Origin::Remote(..) => None,
        }
    }

    /// What heartbeats carry now: the newest read that waits.
    pub(super) fn round(&self) -> Option<ReadId> {
        let newest = self.confirming.back()?;
        Some(ReadId {
            nonce: self.nonce,
            counter: newest.counter,
        })
    }

    /// Whether a round is due for reads that came since the last one. Reads that come while a round is under way wait
    /// for its end, wherever they come from: under load the next one then serves many, of every member. If its
    /// heartbeats or their answers are lost, the next regular ones replace it.
    pub(super) fn round_due(&self) -> bool {
        self.confirming
            .front()
            .is_some_and(|oldest| oldest.counter > self.asked)
    }

    /// Whom the next round asks, if those that answered the last one are a quorum together with the leader. Now and then all
    /// are asked, since another one may have become faster.
    pub(super) fn prompt(
        &self,
        leader: MemberId,
        voters: &BTreeSet<MemberId>,
        now: u64,
    ) -> Option<Vec<MemberId>> {
        if now >= self.asked_all_at + ASK_ALL_TICKS {
            return None;
        }
        let others = self.prompt.iter().filter(|id| **id != leader);
        let asked: Vec<MemberId> = others.filter(|id| voters.contains(id)).copied().collect();
        let are_one = |id| id == leader || asked.contains(&id);
        quorum::is_quorum(voters, are_one).then_some(asked)
    }

    /// The counter of the newest round, while reads wait for it and there are members that it did not ask.
    pub(super) fn unanswered(&self) -> Option<u64> {
        let oldest = self.confirming.front()?;
        (self.asked_some && oldest.counter <= self.asked).then_some(self.asked)
    }

    /// Nothing reaches a member. If the round that waits asked it, and not all, another one is due.
    pub(super) fn lost(&mut self, id: MemberId) {
        let asked = self.prompt.remove(&id) && self.asked_some;
        if asked || mutant!(LostAsksAgain) {
            self.ask_all();
        }
    }

    /// Another round is due for what waits, and it asks all. What was answered meanwhile counts.
    pub(super) fn ask_all(&mut self) {
        self.prompt.clear();
        if let Some(oldest) = self.confirming.front() {
            self.asked = self.asked.min(oldest.counter - 1);
        }
    }

    /// Heartbeats with [`ReadOnly::round`] went out, to some members or to all.
    pub(super) fn round_sent(&mut self, some: bool, now: u64) {
        self.asked_some = some;
        if !some && !self.confirming.is_empty() {
            self.asked_all_at = now;
        }
        self.asked = self
            .confirming
            .back()
            .map_or(self.asked, |newest| newest.counter);
    }

    /// A member sent a round's identity back. Whether it is one of this leader's.
    pub(super) fn acknowledge(&mut self, from: MemberId, id: ReadId) -> bool {
        if id.nonce != self.nonce || id.counter > self.counter {
            return false;
        }
        let acked = self.acked.entry(from).or_default();
        *acked = (*acked).max(id.counter);
        true
    }

    /// Takes the reads that a quorum has confirmed, with their indexes. The leader confirms those of its own round.
    pub(super) fn take_confirmed(
        &mut self,
        leader: MemberId,
        voters: &BTreeSet<MemberId>,
    ) -> Vec<(Origin, Index)> {
        if self.confirming.is_empty() {
            return Vec::new();
        }
        let reached = quorum::reached(voters, |id| {
            let acked = self.acked.get(&id).copied();
            if mutant!(SkipReadRound) || (mutant!(LeaseRead) && acked.is_some()) {
                u64::MAX
            } else if id == leader {
                self.asked
            } else {
                acked.unwrap_or(0)
            }
        });
        let count = self
            .confirming
            .partition_point(|read| read.counter <= reached);
        if count > 0 {
            let answered = self.acked.iter().filter(|(_, acked)| **acked >= reached);
            self.prompt = answered.map(|(id, _)| *id).collect();
        }
        self.confirming
            .drain(..count)
            .map(|read| (read.waiting.origin, read.index))
            .collect()
    }

    /// Takes the local requests that have waited since before `since`; remote ones are dropped, their member times out
    /// by itself.
    pub(super) fn take_expired(&mut self, since: u64) -> Vec<u64> {
        let mut expired = Vec::new();
        let mut give_up = |waiting: Waiting| {
            if let Origin::Local(request) = waiting.origin {
                expired.push(request);
            }
        };
        while self.early.front().is_some_and(|read| read.since < since) {
            self.early.pop_front().into_iter().for_each(&mut give_up);
        }
        while self
            .confirming
            .front()
            .is_some_and(|read| read.waiting.since < since)
        {
            self.confirming
                .pop_front()
                .into_iter()
                .for_each(|read| give_up(read.waiting));
        }
        while let Some(first) = self.forwarded.first_entry() {
            if first.get().since >= since {
                break;
            }
            give_up(first.remove());
        }
        expired
    }

    /// Takes all local requests: term, role or leader changed. Earlier acknowledgements no longer count.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        self.acked.clear();
        self.prompt.clear();
        self.asked = self.counter;
        self.take_expired(u64::MAX)
    }
}
