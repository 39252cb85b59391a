//! The requests of a run, and how the next one is chosen.

use bytes::Bytes;
use quorate::wire::etcd::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, DowngradeRequest, HashKvRequest,
    LeaseGrantRequest, MemberAddRequest, PutRequest, RangeRequest, TxnRequest, WatchCreateRequest,
};

use crate::generator::Generator;
use crate::trouble;
use crate::users::Auth;

/// Placeholder for the ID of the member that receives the request.
pub(crate) const OWN_ID: u64 = u64::MAX;
/// Placeholder for the peer URL of that member.
pub(crate) const OWN_PEER: &str = "PEER";
/// Placeholder for the ID of the member that was added last.
pub(crate) const LEARNER: u64 = u64::MAX - 1;
/// Watch streams of a run.
pub(crate) const STREAMS: usize = 3;
/// The ID of the lease that expires.
pub(crate) const SHORT_LEASE: i64 = 77;

/// One request. Variants without a message contain all that the request needs.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Range(RangeRequest),
    Stream(RangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(i64),
    TimeToLive(i64),
    Leases,
    KeepAlive(i64),
    /// Waits until the lease [`SHORT_LEASE`] has expired.
    Expire,
    Hash(HashKvRequest),
    Members,
    MemberAdd(MemberAddRequest),
    MemberRemove(u64),
    MemberUpdate(u64, String),
    MemberPromote(u64),
    Alarm(AlarmRequest),
    Status,
    /// The hash of the whole database, which depends on the implementation's file format.
    WholeHash,
    Defragment,
    MoveLeader(u64),
    Downgrade(DowngradeRequest),
    Health(String),
    HealthWatch(String),
    /// A snapshot, as etcdutl reads it.
    Snapshot,
    Auth(Auth),
    /// A new stream, read up to its first response.
    WatchOnce(WatchCreateRequest),
    /// A request with the newest token of a user; without a token if the user has none.
    As(&'static str, Box<Question>),
    Watch(usize, WatchCreateRequest),
    Cancel(usize, i64),
    /// Waits until every watcher has received all events, and compares these.
    Settle,
}

impl Question {
    /// Makes reads linearizable, so that no response depends on how far one member has applied.
    pub(crate) fn be_linearizable(&mut self) {
        use quorate::wire::etcd::request_op::Request;
        fn plain(txn: &mut TxnRequest) {
            for operation in txn.success.iter_mut().chain(&mut txn.failure) {
                match &mut operation.request {
                    Some(Request::RequestRange(range)) => range.serializable = false,
                    Some(Request::RequestTxn(nested)) => plain(nested),
                    _ => {}
                }
            }
        }
        match self {
            Question::Range(range) | Question::Stream(range) => range.serializable = false,
            Question::Txn(txn) => plain(txn),
            _ => {}
        }
    }
}

/// The generator's knowledge of the run so far; equal for both sides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) revision: i64,
    /// Compacted revisions, in ascending order.
    pub(crate) compactions: Vec<i64>,
    /// Watchers created so far.
    pub(crate) watchers: i64,
    /// Members added so far.
    pub(crate) learners: u16,
    /// Whether our cluster has a single member, as etcd's does.
    pub(crate) alone: bool,
}

impl Facts {
    fn compacted(&self) -> i64 {
        self.compactions.last().copied().unwrap_or(0)
    }
}

/// The next request, or several that belong together.
pub(crate) fn questions(generator: &mut Generator, facts: &mut Facts) -> Vec<Question> {
    match generator.below(1000) {
        0..=17 => vec![watch(generator, facts)],
        18..=21 => oversized(generator),
        22..=27 => cancels(generator, facts),
        28..=33 => vec![Question::Settle, compact(generator, facts)],
        34 | 35 if facts.alone => trouble::alarms(generator, facts),
        36 | 37 if facts.alone => trouble::learner(generator, facts),
        38 => vec![Question::Snapshot],
        _ => vec![question(generator, facts)],
    }
}

/// One request that does not depend on others.
pub(crate) fn question(generator: &mut Generator, facts: &Facts) -> Question {
    let revision = facts.revision;
    match generator.below(966) {
        0..=219 => Question::Put(generator.put()),
        220..=289 => Question::Delete(generator.delete()),
        290..=449 => Question::Range(generator.range(revision)),
        450..=499 => Question::Stream(stream(generator, revision)),
        500..=739 => Question::Txn(generator.txn(3, revision)),
        740..=749 => Question::Txn(generator.many(revision)),
        750..=789 => Question::Grant(grant(generator)),
        790..=809 => Question::Revoke(generator.between(0, 5)),
        810..=834 => Question::TimeToLive(generator.between(0, 5)),
        835..=844 => Question::Leases,
        845..=869 => Question::KeepAlive(generator.between(0, 5)),
        870..=914 => Question::Hash(hash(generator, facts)),
        915..=922 => Question::Members,
        923..=938 => membership(generator),
        939..=943 => Question::Alarm(AlarmRequest::default()),
        944..=950 => Question::Status,
        951 => Question::WholeHash,
        952 => Question::Defragment,
        953..=955 => Question::MoveLeader([OWN_ID, 0, 5][generator.below(3) as usize]),
        956..=961 => Question::Downgrade(downgrade(generator)),
        _ => {
            let service = ["", "nobody"][generator.below(2) as usize].to_owned();
            if generator.one_in(2) {
                Question::Health(service)
            } else {
                Question::HealthWatch(service)
            }
        }
    }
}

/// With a sort target and no sort order, etcd sorts each piece by itself and counts what remains from there: its
/// response equals that of Range if the whole range fits into the first piece.
fn stream(generator: &mut Generator, revision: i64) -> RangeRequest {
    let mut range = generator.range(revision);
    let first = range.key.first().copied().unwrap_or(u8::MAX);
    let few = range.range_end.is_empty() || range.range_end[..] == [first.saturating_add(1)];
    if range.sort_order == 0 && !(few && range.limit <= 0) {
        range.sort_target = 0;
    }
    range
}

/// A TTL that does not expire during the run: when it does would be random.
fn grant(generator: &mut Generator) -> LeaseGrantRequest {
    let ttl = match generator.below(20) {
        0 => 9_000_000_001,
        1 => 9_000_000_000,
        _ => 10_000,
    };
    let id = match generator.below(30) {
        0 => -3,
        1 => 0,
        _ => generator.between(1, 4),
    };
    LeaseGrantRequest { id, ttl }
}

/// Also at compacted revisions, where the hash stays what it was before the compaction.
fn hash(generator: &mut Generator, facts: &Facts) -> HashKvRequest {
    let revision = match (generator.below(12), facts.compactions.last()) {
        (0, _) => -1,
        (1, Some(at)) => *at,
        _ => generator.between(0, facts.revision + 1),
    };
    HashKvRequest { revision }
}

/// `physical`: the compaction is finished when the response arrives; otherwise etcd's hash could still include
/// compacted data.
pub(crate) fn compact(generator: &mut Generator, facts: &Facts) -> Question {
    let low = (facts.compacted() - 1).max(-1);
    let revision = match generator.between(low, facts.revision + 1) {
        // A first compaction at revision 0 would make etcd keep that hash.
        0 if facts.compacted() == 0 => 1,
        revision => revision,
    };
    Question::Compact(CompactionRequest {
        revision,
        physical: true,
    })
}

/// Changes of the membership that are refused.
fn membership(generator: &mut Generator) -> Question {
    let id = [OWN_ID, 0, 5][generator.below(3) as usize];
    let urls = [
        OWN_PEER,
        "",
        "http://",
        "localhost:1",
        "http://a b:1",
        "http://127.0.0.1",
    ];
    let url = urls[generator.below(urls.len() as u64) as usize];
    match generator.below(4) {
        0 => Question::MemberAdd(MemberAddRequest {
            peer_ur_ls: if generator.one_in(6) {
                Vec::new()
            } else {
                vec![url.to_owned()]
            },
            is_learner: generator.one_in(2),
        }),
        1 => Question::MemberRemove(if id == OWN_ID { 6 } else { id }),
        // etcd accepts any text as the member's own URL.
        2 if id == OWN_ID => Question::Members,
        2 => Question::MemberUpdate(id, url.to_owned()),
        _ => Question::MemberPromote(id),
    }
}

fn downgrade(generator: &mut Generator) -> DowngradeRequest {
    let versions = ["3.5", "3.7", "4.0", "", "nonsense"];
    let cancel = generator.one_in(4);
    DowngradeRequest {
        action: if cancel { 2 } else { 0 },
        version: versions[generator.below(versions.len() as u64) as usize].to_owned(),
    }
}

fn watch(generator: &mut Generator, facts: &mut Facts) -> Question {
    let create = watcher(generator, facts);
    Question::Watch(generator.below(STREAMS as u64) as usize, create)
}

pub(crate) fn watcher(generator: &mut Generator, facts: &mut Facts) -> WatchCreateRequest {
    let (key, range_end) = generator.span();
    let (compacted, revision) = (facts.compacted(), facts.revision);
    let start_revision = match generator.below(4) {
        0 => 0,
        1 => revision + generator.between(1, 3),
        2 => generator.between(compacted - 1, compacted + 1),
        _ => generator.between(compacted, revision),
    };
    let filters = (0..2).filter(|_| generator.one_in(6)).collect();
    facts.watchers += 1;
    WatchCreateRequest {
        key: if generator.one_in(20) {
            Bytes::new()
        } else {
            key
        },
        range_end,
        start_revision: if generator.one_in(30) {
            -1
        } else {
            start_revision
        },
        progress_notify: generator.one_in(4),
        filters,
        prev_kv: generator.one_in(2),
        // An ID of its own, used once, or the ID of the stream's first watcher, which is taken.
        watch_id: match generator.below(12) {
            0 => 1000 + facts.watchers,
            1 => -1000 - facts.watchers,
            _ => 0,
        },
        fragment: generator.one_in(4),
    }
}

/// Values near and above the limits of requests and messages.
fn oversized(generator: &mut Generator) -> Vec<Question> {
    let sizes = [1_500_000, 1_572_864, 2_097_152, 2_200_000];
    let size = sizes[generator.below(sizes.len() as u64) as usize];
    let put = |size: usize| {
        Question::Put(PutRequest {
            key: Bytes::from_static(b"x"),
            value: vec![b'x'; size].into(),
            ..PutRequest::default()
        })
    };
    let delete = Question::Delete(DeleteRangeRequest {
        key: Bytes::from_static(b"x"),
        ..DeleteRangeRequest::default()
    });
    vec![put(size), delete]
}

/// A cancellation follows `Settle`, because events on their way to a cancelled watcher may be lost.
fn cancels(generator: &mut Generator, facts: &Facts) -> Vec<Question> {
    let mut all = vec![Question::Settle];
    for _ in 0..generator.between(1, 4) {
        let stream = generator.below(STREAMS as u64) as usize;
        let newest = facts.watchers / STREAMS as i64;
        all.push(Question::Cancel(stream, generator.between(1, newest + 1)));
    }
    all
}

/// A history larger than one message, watched with and without `fragment`.
pub(crate) fn bulky(facts: &Facts) -> Vec<Question> {
    let put = |number: u8| {
        Question::Put(PutRequest {
            key: Bytes::from(vec![b'x', number]),
            value: vec![number; 700_000].into(),
            ..PutRequest::default()
        })
    };
    let mut all: Vec<Question> = (0..5).map(put).collect();
    for (stream, fragment) in [(0, true), (1, false)] {
        let create = WatchCreateRequest {
            key: Bytes::from_static(b"x"),
            range_end: Bytes::from_static(b"y"),
            start_revision: facts.revision + 1,
            // The deletion is one revision, and its event contains all previous values.
            prev_kv: true,
            fragment,
            ..WatchCreateRequest::default()
        };
        all.push(Question::Watch(stream, create));
    }
    let delete = DeleteRangeRequest {
        key: Bytes::from_static(b"x"),
        range_end: Bytes::from_static(b"y"),
        ..DeleteRangeRequest::default()
    };
    all.extend([Question::Settle, Question::Delete(delete), Question::Settle]);
    all
}

/// A lease with keys that expires.
pub(crate) fn expiry() -> Vec<Question> {
    let put = |key: &'static str, lease| {
        Question::Put(PutRequest {
            key: Bytes::from_static(key.as_bytes()),
            lease,
            ..PutRequest::default()
        })
    };
    vec![
        Question::Grant(LeaseGrantRequest {
            id: SHORT_LEASE,
            // Long enough to put its keys on a busy machine.
            ttl: 6,
        }),
        put("a1", SHORT_LEASE),
        put("b", SHORT_LEASE),
        put("c3", 0),
        Question::Expire,
        Question::Leases,
        Question::Settle,
        Question::Hash(HashKvRequest::default()),
        Question::Snapshot,
    ]
}
