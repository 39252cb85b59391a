//! Who is in contact with this leader, since when, and who is in sync with it. Kept from ticks;
//! decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::node::admission::Standing;
use crate::raft::{Index, MemberId, ProgressStatus, Status};

/// How one member stands towards its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The last index that it is known to hold durably.
    pub matched: Index,
    /// The last index that it said it has applied.
    pub applied: Index,
    /// Milliseconds since it last answered; `None` if it never answered this leader.
    pub last_ack_age_ms: Option<u64>,
    /// Whether a checkpoint is on its way to it.
    pub snapshot_pending: bool,
    /// Why it is not in sync; `None` when it is.
    pub behind: Option<String>,
}

/// What a leader knows of the others.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    leading_since: u64,
    /// Since when a member has answered without a gap of an election timeout.
    since: BTreeMap<MemberId, u64>,
    /// (time, commit index) at each tick of the last election timeout and a bit more.
    commits: VecDeque<(u64, Index)>,
    peers: BTreeMap<MemberId, PeerStatus>,
}

/// The times that contact is measured with, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    pub(super) tick: u64,
    pub(super) heartbeat: u64,
    pub(super) election: u64,
    pub(super) health: u64,
}

impl Contacts {
    /// This member leads from now on.
    pub(super) fn lead(&mut self, now: u64) {
        *self = Self {
            leading_since: now,
            ..Self::default()
        };
    }

    /// This member does not lead any more.
    pub(super) fn follow(&mut self) {
        *self = Self::default();
    }

    /// Reads the core's state, at a leader.
    pub(super) fn observe(
        &mut self,
        now: u64,
        spans: Spans,
        status: &Status,
        disk_known: impl Fn(MemberId) -> bool,
    ) {
        self.note_commit(now, spans, status.commit);
        let standing = Standing {
            commit_before: self.commit_before(now, spans, status.commit),
            leader_last: status.last_index,
            contact_within_ms: 2 * spans.heartbeat.max(spans.tick),
        };
        self.peers.clear();
        let others = status.progress.iter().filter(|(id, _)| **id != status.id);
        for (id, progress) in others {
            let age = age_ms(progress, status.ticks, spans.tick);
            match age {
                Some(age) if age <= spans.election => {
                    let since = now.saturating_sub(age);
                    self.since.entry(*id).or_insert(since);
                }
                _ => {
                    self.since.remove(id);
                }
            }
            let peer = PeerStatus {
                matched: progress.matched,
                applied: progress.applied,
                last_ack_age_ms: age,
                snapshot_pending: progress.pending_snapshot.is_some(),
                behind: standing.behind(progress, age, disk_known(*id)),
            };
            self.peers.insert(*id, peer);
        }
        self.since.retain(|id, _| status.progress.contains_key(id));
    }

    fn note_commit(&mut self, now: u64, spans: Spans, commit: Index) {
        self.commits.push_back((now, commit));
        // Keep one sample that is old enough.
        let old = |at: u64| at + spans.election <= now;
        while self.commits.get(1).is_some_and(|(at, _)| old(*at)) {
            self.commits.pop_front();
        }
    }

    /// The commit index one election timeout ago; a newer leader asks for all there is.
    fn commit_before(&self, now: u64, spans: Spans, commit: Index) -> Index {
        match self.commits.front() {
            Some((at, before)) if at + spans.election <= now => *before,
            _ => commit,
        }
    }

    /// How the others stand, as of the last tick.
    pub(super) fn peers(&self) -> &BTreeMap<MemberId, PeerStatus> {
        &self.peers
    }

    /// Why each other member is not in sync.
    pub(super) fn behind(&self) -> BTreeMap<MemberId, Option<String>> {
        let peers = self.peers.iter();
        peers.map(|(id, peer)| (*id, peer.behind.clone())).collect()
    }

    /// Members in contact at all.
    pub(super) fn in_contact(&self) -> BTreeSet<MemberId> {
        self.since.keys().copied().collect()
    }

    /// Members in contact for the health interval, or since this leader began if that is less.
    pub(super) fn steady(&self, now: u64, spans: Spans) -> BTreeSet<MemberId> {
        let from_the_start = self.leading_since + spans.election;
        let long_ago = now.saturating_sub(spans.health);
        let steady = self.since.iter().filter(|(_, since)| {
            let young = from_the_start >= long_ago && **since <= from_the_start;
            young || **since <= long_ago
        });
        steady.map(|(id, _)| *id).collect()
    }

    /// The voter to hand leadership to: in sync, in contact for longest, furthest ahead.
    pub(super) fn best_target(&self, voters: &BTreeSet<MemberId>) -> Option<MemberId> {
        let fit = self.peers.iter().filter(|(id, peer)| {
            peer.behind.is_none() && voters.contains(id) && self.since.contains_key(id)
        });
        fit.min_by_key(|(id, peer)| (self.since.get(id), u64::MAX - peer.matched, **id))
            .map(|(id, _)| *id)
    }
}

fn age_ms(progress: &ProgressStatus, ticks: u64, tick_ms: u64) -> Option<u64> {
    let at = progress.last_ack_tick?;
    Some(ticks.saturating_sub(at).saturating_mul(tick_ms))
}
