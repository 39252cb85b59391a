//! Linearizable reads and lease requests, collected into rounds that the core answers once a quorum
//! has confirmed the leader. One round is under way at a time, so a burst of reads costs one
//! exchange; requests that arrive meanwhile wait for the next one, as in etcd.

use std::collections::{BTreeMap, BTreeSet};

use crate::mutants::mutant;
use crate::node::peer::LeaseCall;
use crate::raft::{Index, MemberId};

/// The requests of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Reads by the caller's numbers.
    pub(super) reads: Vec<u64>,
    /// Lease requests that this leader answers, with the member that asked.
    pub(super) leases: Vec<(MemberId, LeaseCall)>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.leases.is_empty()
    }

    fn absorb(&mut self, other: Self) {
        self.reads.extend(other.reads);
        self.leases.extend(other.leases);
    }
}

/// All waiting reads and lease requests.
#[derive(Debug, Default)]
pub(super) struct ReadRounds {
    waiting: Batch,
    /// The round under way: its number and when it began.
    round: Option<(u64, u64, Batch)>,
    /// Confirmed, by the index that has to be applied first.
    confirmed: BTreeMap<Index, Batch>,
    count: u64,
    /// No new round before a tick or a change of leader.
    paused: bool,
}

impl ReadRounds {
    /// Reads and calls that are not answered yet.
    pub(super) fn len(&self) -> usize {
        let size = |batch: &Batch| batch.reads.len() + batch.leases.len();
        let round = self.round.as_ref().map_or(0, |(_, _, batch)| size(batch));
        size(&self.waiting) + round + self.confirmed.values().map(size).sum::<usize>()
    }

    /// Whether requests that come now wait for a round to end.
    pub(super) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Whether confirmed requests wait for entries to be applied.
    pub(super) fn await_applied(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Adds reads.
    pub(super) fn read(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.waiting.reads.extend(ids);
    }

    /// Adds a lease request that this leader is to answer.
    pub(super) fn lease(&mut self, origin: MemberId, call: LeaseCall) {
        self.waiting.leases.push((origin, call));
    }

    /// Forgets reads.
    pub(super) fn cancel(&mut self, gone: &BTreeSet<u64>) {
        self.waiting.reads.retain(|id| !gone.contains(id));
        if let Some((_, _, batch)) = &mut self.round {
            batch.reads.retain(|id| !gone.contains(id));
        }
        for batch in self.confirmed.values_mut() {
            batch.reads.retain(|id| !gone.contains(id));
        }
    }

    /// The number of a round to ask the core for, if one should begin now.
    pub(super) fn begin(&mut self, now: u64) -> Option<u64> {
        if self.paused || self.round.is_some() || self.waiting.is_empty() {
            return None;
        }
        self.count += 1;
        self.round = Some((self.count, now, std::mem::take(&mut self.waiting)));
        Some(self.count)
    }

    /// The core confirmed a round. One that was given up is ignored.
    pub(super) fn confirm(&mut self, number: u64, index: Index) {
        if self.round.as_ref().is_some_and(|(n, _, _)| *n == number)
            && let Some((_, _, batch)) = self.round.take()
        {
            self.confirmed.entry(index).or_default().absorb(batch);
        }
    }

    /// The core failed a round: its requests wait for the next one.
    pub(super) fn fail(&mut self, number: u64) {
        if self.round.as_ref().is_some_and(|(n, _, _)| *n == number) {
            self.give_up();
            self.paused = true;
        }
    }

    fn give_up(&mut self) {
        if let Some((_, _, mut batch)) = self.round.take() {
            batch.absorb(std::mem::take(&mut self.waiting));
            self.waiting = batch;
        }
    }

    /// Time passes: a round without an answer for `retry` milliseconds is given up, and a new one
    /// may begin.
    pub(super) fn tick(&mut self, now: u64, retry: u64) {
        self.paused = false;
        if self
            .round
            .as_ref()
            .is_some_and(|(_, at, _)| at.saturating_add(retry) <= now)
        {
            self.give_up();
        }
    }

    /// The leader or term changed: the round under way will not be answered.
    pub(super) fn leader_changed(&mut self) {
        self.give_up();
        self.paused = false;
    }

    /// The requests that may be answered at this applied index.
    pub(super) fn ready(&mut self, applied: Index) -> Vec<(Index, Batch)> {
        let applied = mutant!(ReadBeforeApply => Index::MAX - 1, else applied);
        let later = self.confirmed.split_off(&(applied + 1));
        let ready = std::mem::replace(&mut self.confirmed, later);
        ready
            .into_iter()
            .filter(|(_, batch)| !batch.is_empty())
            .collect()
    }

    /// All requests, for a member that will answer no more.
    pub(super) fn take_all(&mut self) -> Batch {
        self.give_up();
        let mut all = std::mem::take(&mut self.waiting);
        for batch in std::mem::take(&mut self.confirmed).into_values() {
            all.absorb(batch);
        }
        all
    }
}

/// A leader's round of reads asks those that answered the last one first. They are waited for this long before all are asked, in
/// milliseconds: far longer than an answer takes, and short beside what a client waits for.
const PROMPT_MS: u64 = 10;

/// Since when the core's newest round has waited for those that it asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    round: Option<(u64, u64)>,
}

impl Asked {
    /// Whether they take too long, given the core's newest round that was not answered and that did not ask all.
    pub(super) fn is_late(&mut self, unanswered: Option<u64>, now: u64) -> bool {
        let Some(round) = unanswered else {
            self.round = None;
            return false;
        };
        match self.round {
            Some((known, since)) if known == round => {
                now >= since + PROMPT_MS && !mutant!(AskedTooLong)
            }
            _ => {
                self.round = Some((round, now));
                false
            }
        }
    }

    /// When they will have taken too long.
    pub(super) fn late_at(&self) -> Option<u64> {
        self.round.map(|(_, since)| since + PROMPT_MS)
    }
}
