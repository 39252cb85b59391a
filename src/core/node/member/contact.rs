//! Which members are in contact with this leader, since when, and which are in sync with it.
//! Updated at each tick; decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::mutants::mutant;
use crate::node::admission::Standing;
use crate::raft::{Index, MemberId, ProgressStatus, Status};

/// The progress of one member, as its leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The match index: the last index that it is known to hold durably.
    pub matched: Index,
    /// The last index that it reported as applied.
    pub applied: Index,
    /// Milliseconds since its last answer; `None` if it never answered this leader.
    pub last_ack_age_ms: Option<u64>,
    /// Milliseconds since its match index last grew, while it lags behind the leader's log; 0 while
    /// it holds the whole log. Answers to heartbeats need no disk, so a member whose disk hangs
    /// still counts as in contact.
    pub unsynced_ms: u64,
    /// Whether a checkpoint is being sent to it.
    pub snapshot_pending: bool,
    /// Why it is not in sync; `None` when it is.
    pub behind: Option<String>,
}

/// The leader's record of its contact with the other members.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    leading_since: u64,
    /// Since when a member has answered without a gap of an election timeout.
    since: BTreeMap<MemberId, u64>,
    /// When the present connection to each member was made, under whichever leader. Servers that
    /// are not in the membership are not recorded: any server may connect.
    met: BTreeMap<MemberId, u64>,
    /// (time, commit index) at each tick of the last election timeout and a bit more.
    commits: VecDeque<(u64, Index)>,
    peers: BTreeMap<MemberId, PeerStatus>,
    /// The match index of each member, this one included, and when it last grew or was the last
    /// index.
    held: BTreeMap<MemberId, (Index, u64)>,
    own_unsynced_ms: u64,
}

/// The intervals with which contact is measured, in milliseconds.
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
            met: std::mem::take(&mut self.met),
            ..Self::default()
        };
    }

    /// This member does not lead any more.
    pub(super) fn follow(&mut self) {
        *self = Self {
            met: std::mem::take(&mut self.met),
            ..Self::default()
        };
    }

    /// A connection to a member was made.
    pub(super) fn meet(&mut self, id: MemberId, now: u64) {
        self.met.insert(id, now);
    }

    /// The connection broke, or cannot be made.
    pub(super) fn lose(&mut self, id: MemberId) {
        self.met.remove(&id);
    }

    /// Keeps only members.
    pub(super) fn keep(&mut self, is_member: impl Fn(MemberId) -> bool) {
        self.met.retain(|id, _| is_member(*id));
    }

    pub(super) fn is_connected(&self, id: MemberId) -> bool {
        self.met.contains_key(&id)
    }

    /// Members that are connected, under whichever leader.
    pub(super) fn connected(&self) -> BTreeSet<MemberId> {
        self.met.keys().copied().collect()
    }

    /// Members that have been connected for the health interval, under whichever leader.
    pub(super) fn long_connected(&self, now: u64, spans: Spans) -> BTreeSet<MemberId> {
        let long = self
            .met
            .iter()
            .filter(|(_, met)| **met + spans.health <= now);
        long.map(|(id, _)| *id).collect()
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
        self.own_unsynced_ms =
            self.unsynced_ms(now, status.id, status.durable_index, status.last_index);
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
                unsynced_ms: self.unsynced_ms(now, *id, progress.matched, status.last_index),
                matched: progress.matched,
                applied: progress.applied,
                last_ack_age_ms: age,
                snapshot_pending: progress.pending_snapshot.is_some(),
                behind: standing.behind(progress, age, disk_known(*id)),
            };
            self.peers.insert(*id, peer);
        }
        self.since.retain(|id, _| status.progress.contains_key(id));
        self.held
            .retain(|id, _| status.progress.contains_key(id) || *id == status.id);
    }

    /// For how long the match index of a member has not grown although it is below `last`.
    fn unsynced_ms(&mut self, now: u64, id: MemberId, holds: Index, last: Index) -> u64 {
        let (before, since) = self.held.entry(id).or_insert((holds, now));
        if holds != *before || holds >= last {
            (*before, *since) = (holds, now);
        }
        now.saturating_sub(*since)
    }

    /// The same for this leader's own disk.
    pub(super) fn own_unsynced_ms(&self) -> u64 {
        self.own_unsynced_ms
    }

    fn note_commit(&mut self, now: u64, spans: Spans, commit: Index) {
        self.commits.push_back((now, commit));
        // Keep one sample that is old enough.
        let old = |at: u64| at + spans.election <= now;
        while self.commits.get(1).is_some_and(|(at, _)| old(*at)) {
            self.commits.pop_front();
        }
    }

    /// The commit index one election timeout ago; under a younger leader the present one, so that a
    /// member needs everything that is committed.
    fn commit_before(&self, now: u64, spans: Spans, commit: Index) -> Index {
        match self.commits.front() {
            Some((at, before)) if at + spans.election <= now => *before,
            _ => commit,
        }
    }

    /// The progress of the others, as of the last tick.
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

    /// This leader is so young that its followers may not have answered it yet: a missing answer
    /// proves nothing. Nor does a connection, which stays open for seconds after a power loss.
    pub(super) fn is_unanswered(&self, now: u64, spans: Spans) -> bool {
        now < self.leading_since + spans.election
    }

    /// Members in contact for the health interval. Under a leader younger than that: those that
    /// answered within its first election timeout and whose connection is that old. So no member
    /// counts in the first seconds of a process, as in etcd, which looks only at connections.
    pub(super) fn steady(&self, now: u64, spans: Spans) -> BTreeSet<MemberId> {
        let from_the_start = self.leading_since + spans.election;
        let long_ago = |at: u64| at + spans.health <= now;
        let steady = self.since.iter().filter(|(id, since)| {
            let met = || {
                let met = self.met.get(id).is_some_and(|met| long_ago(*met));
                met || mutant!(SteadyAtOnce)
            };
            long_ago(**since) || (**since <= from_the_start && met())
        });
        steady.map(|(id, _)| *id).collect()
    }

    /// The voter to which leadership is transferred: in sync, in contact for longest, highest match
    /// index.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Configuration, ProgressState, Role};

    const SPANS: Spans = Spans {
        tick: 100,
        heartbeat: 100,
        election: 1000,
        health: 5000,
    };

    /// Leader 1 at a tick and a commit index; the others by ID, match index and tick of the last
    /// answer.
    fn status(ticks: u64, commit: Index, others: &[(MemberId, Index, Option<u64>)]) -> Status {
        let progress = |matched, last_ack_tick| ProgressStatus {
            matched,
            next: matched + 1,
            state: ProgressState::Replicate,
            learner: false,
            recent_active: true,
            last_ack_tick,
            applied: matched,
            pending_snapshot: None,
            inflight_messages: 0,
            inflight_bytes: 0,
        };
        let all = others
            .iter()
            .map(|(id, matched, ack)| (*id, progress(*matched, *ack)));
        Status {
            id: 1,
            role: Role::Leader,
            term: 2,
            vote: Some(1),
            leader: Some(1),
            transferring: None,
            commit,
            applied: commit,
            last_index: commit,
            last_term: 2,
            durable_index: commit,
            floor_index: 0,
            configuration: Configuration::new([1, 2, 3], []),
            ticks,
            reads_ready: true,
            progress: all.collect(),
        }
    }

    fn observe(contacts: &mut Contacts, status: &Status) {
        contacts.observe(status.ticks * SPANS.tick, SPANS, status, |_| true);
    }

    #[test]
    fn in_sync_is_measured_by_an_older_commit() {
        let mut contacts = Contacts::default();
        contacts.lead(0);
        for tick in 1..=20 {
            // 100 entries a tick; one follower is five ticks behind, the other fifteen.
            let held = |lag: u64| 10_000 + 100 * tick.max(lag) - 100 * lag;
            let at = status(
                tick,
                10_000 + 100 * tick,
                &[(2, held(5), Some(tick)), (3, held(15), Some(tick))],
            );
            observe(&mut contacts, &at);
            if tick < 10 {
                let behind = contacts.behind();
                assert!(behind[&2].is_some(), "a new leader asks for all there is");
            }
        }
        let behind = contacts.behind();
        assert_eq!(behind[&2], None);
        assert!(behind[&3].is_some());
    }

    #[test]
    fn contact_counts_from_its_last_gap() {
        let mut contacts = Contacts::default();
        for id in [2, 3] {
            contacts.meet(id, 0);
        }
        contacts.lead(10_000);
        for tick in 101..=200 {
            // 3 does not answer from tick 140 to tick 160.
            let ack = if (140..160).contains(&tick) {
                139
            } else {
                tick
            };
            observe(
                &mut contacts,
                &status(tick, 5, &[(2, 5, Some(tick)), (3, 5, Some(ack))]),
            );
            if tick == 130 {
                let steady = contacts.steady(13_000, SPANS);
                assert_eq!(steady, [2, 3].into(), "both since this leader began");
            }
            if tick == 155 {
                assert_eq!(contacts.in_contact(), [2].into());
            }
        }
        assert_eq!(contacts.steady(20_000, SPANS), [2].into());
        assert_eq!(contacts.steady(21_000, SPANS), [2, 3].into());
    }

    /// In the first five seconds of a cluster a removal was accepted that etcd refuses: its first
    /// leader counted on every member that had answered it at all. The leader of a cluster that has
    /// been running may do so, except for members that have just connected.
    #[test]
    fn new_leader_counts_on_older_links() {
        let mut contacts = Contacts::default();
        for id in [2, 3] {
            contacts.meet(id, 100);
        }
        contacts.lead(500);
        for tick in 5..=20 {
            let both = [(2, 5, Some(tick)), (3, 5, Some(tick))];
            observe(&mut contacts, &status(tick, 5, &both));
        }
        assert_eq!(contacts.steady(2_000, SPANS), [].into());
        assert_eq!(contacts.in_contact(), [2, 3].into());
        assert_eq!(contacts.steady(5_099, SPANS), [].into());
        assert_eq!(contacts.steady(5_100, SPANS), [2, 3].into());
        contacts.follow();
        contacts.meet(3, 8_000);
        contacts.lead(9_000);
        for tick in 90..=100 {
            let both = [(2, 5, Some(tick)), (3, 5, Some(tick))];
            observe(&mut contacts, &status(tick, 5, &both));
        }
        assert_eq!(contacts.steady(10_000, SPANS), [2].into());
        assert_eq!(contacts.steady(13_000, SPANS), [2, 3].into());
    }

    /// A voter whose disk hung counted as one that holds what it is sent: it answered every
    /// heartbeat.
    #[test]
    fn hanging_disk_shows_in_the_description() {
        let mut contacts = Contacts::default();
        contacts.lead(0);
        for tick in 1..=50 {
            // 2 syncs nothing from tick 20 to 40; 3 is always a little behind, and keeps syncing.
            let held = if (20..40).contains(&tick) { 20 } else { tick };
            let at = status(
                tick,
                tick,
                &[(2, held, Some(tick)), (3, tick - 1, Some(tick))],
            );
            observe(&mut contacts, &at);
            let peer = |id| contacts.peers()[&id].clone();
            assert_eq!(peer(2).last_ack_age_ms, Some(0));
            assert_eq!(
                peer(2).unsynced_ms,
                if held < tick { (tick - 20) * 100 } else { 0 }
            );
            assert_eq!(peer(3).unsynced_ms, 0, "it goes on");
            assert_eq!(contacts.own_unsynced_ms(), 0);
        }
        let mut own = status(51, 51, &[(2, 51, Some(51)), (3, 51, Some(51))]);
        own.durable_index = 50;
        observe(&mut contacts, &own);
        own.ticks = 60;
        observe(&mut contacts, &own);
        assert_eq!(contacts.own_unsynced_ms(), 1000);
    }

    /// A change that had waited for a leader was refused at the moment of its election: no member
    /// had answered the leader yet. A later version counted on connections until members could have
    /// answered, and so on a host that had lost power. The leader counts on answers alone, and
    /// knows while there can be none yet.
    #[test]
    fn leader_needs_responses_for_quorum() {
        let mut contacts = Contacts::default();
        for id in [2, 3, 4] {
            contacts.meet(id, 1_000);
        }
        contacts.lose(4);
        contacts.lead(9_000);
        assert_eq!(contacts.connected(), [2, 3].into());
        assert_eq!(contacts.in_contact(), [].into());
        assert_eq!(contacts.steady(9_000, SPANS), [].into());
        assert!(contacts.is_unanswered(9_999, SPANS));
        assert!(!contacts.is_unanswered(10_000, SPANS));
        observe(
            &mut contacts,
            &status(91, 5, &[(2, 5, Some(91)), (3, 5, None), (4, 5, Some(91))]),
        );
        assert_eq!(contacts.in_contact(), [2, 4].into());
        assert_eq!(contacts.steady(9_100, SPANS), [2].into());
    }

    #[test]
    fn transfer_prefers_the_longest_contact() {
        let voters: BTreeSet<MemberId> = [1, 2, 3].into();
        let mut contacts = Contacts::default();
        contacts.lead(0);
        assert_eq!(contacts.best_target(&voters), None);
        for tick in 1..=30 {
            let early = (tick > 5).then_some(tick);
            observe(
                &mut contacts,
                &status(tick, 5, &[(2, 5, early), (3, 5, Some(tick))]),
            );
        }
        assert_eq!(contacts.best_target(&voters), Some(3));
        assert_eq!(contacts.best_target(&[1, 2].into()), Some(2));
        observe(
            &mut contacts,
            &status(31, 5, &[(2, 5, Some(31)), (3, 5, Some(20))]),
        );
        assert_eq!(contacts.best_target(&voters), Some(2), "3 fell silent");
    }
}
