//! The same random requests, over gRPC, to Quorate and to real etcd: equal answers, equal error
//! texts and codes, equal hashes. `OPS` makes it longer, `SEED` chooses another run.

use bytes::Bytes;
use quorate::wire::etcd::compare::TargetUnion;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::request_op::Request;
use quorate::wire::etcd::{
    CompactionRequest, Compare, DeleteRangeRequest, HashKvRequest, LeaseGrantRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp,
    ResponseHeader, TxnRequest, TxnResponse, response_op,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tonic::transport::{Channel, Endpoint};

use crate::cluster::{Cluster, Kind};
use crate::process::peers;
use crate::story::ours;

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).cast_unsigned()) as i64
    }

    /// Few enough keys that etcd's sort, which is not stable beyond 12, is.
    fn key(&mut self) -> Bytes {
        let first = b'a' + self.below(3) as u8;
        match self.below(4) {
            0 => Bytes::from(vec![first]),
            second => Bytes::from(vec![first, b'0' + second as u8]),
        }
    }

    fn span(&mut self) -> (Bytes, Bytes) {
        let key = self.key();
        let end = match self.below(5) {
            0 => Bytes::new(),
            1 => Bytes::from_static(&[0]),
            2 => Bytes::from(vec![key[0] + 1]),
            _ => self.key(),
        };
        (key, end)
    }

    fn put(&mut self) -> PutRequest {
        let kept = self.one_in(8);
        PutRequest {
            key: if self.one_in(60) {
                Bytes::new()
            } else {
                self.key()
            },
            value: if kept {
                Bytes::new()
            } else {
                Bytes::from(self.below(30).to_string())
            },
            lease: if self.one_in(3) {
                self.between(1, 4)
            } else {
                0
            },
            prev_kv: self.one_in(2),
            ignore_value: kept || self.one_in(60),
            ignore_lease: self.one_in(12),
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, mut range_end) = self.span();
        // Within a transaction an open end would meet etcd's gap in the check for duplicates.
        if !self.one_in(4) || range_end[..] == [0] {
            range_end = Bytes::new();
        }
        DeleteRangeRequest {
            key,
            range_end,
            prev_kv: self.one_in(2),
        }
    }

    fn range(&mut self, revision: i64) -> RangeRequest {
        let (key, range_end) = self.span();
        let bound = |dice: &mut Self| {
            if dice.one_in(8) {
                dice.between(1, revision)
            } else {
                0
            }
        };
        RangeRequest {
            key: if self.one_in(60) { Bytes::new() } else { key },
            range_end,
            limit: if self.one_in(2) {
                self.between(-1, 5)
            } else {
                0
            },
            revision: if self.one_in(2) {
                self.between(-1, revision + 1)
            } else {
                0
            },
            sort_order: self.sort(2),
            sort_target: self.sort(4),
            serializable: self.one_in(4),
            keys_only: self.one_in(4),
            count_only: self.one_in(6),
            min_mod_revision: bound(self),
            max_mod_revision: bound(self),
            min_create_revision: bound(self),
            max_create_revision: bound(self),
        }
    }

    /// A sort order or target, rarely one that does not exist.
    fn sort(&mut self, highest: i64) -> i32 {
        let highest = highest + i64::from(self.one_in(40));
        self.between(0, highest) as i32
    }

    fn compare(&mut self, revision: i64) -> Compare {
        let (key, range_end) = self.span();
        let high = if self.one_in(2) { 3 } else { revision };
        let number = self.between(0, high);
        let union = match self.below(7) {
            0 => Some(TargetUnion::Version(number)),
            1 => Some(TargetUnion::CreateRevision(number)),
            2 => Some(TargetUnion::ModRevision(number)),
            3 => Some(TargetUnion::Value(Bytes::from(self.below(30).to_string()))),
            4 => Some(TargetUnion::Lease(number)),
            _ => None,
        };
        let target = match &union {
            Some(TargetUnion::Version(_)) => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
            None => self.below(5) as i32,
        };
        // Now and then a property of another kind than the target.
        let target = if self.one_in(20) {
            self.below(5) as i32
        } else {
            target
        };
        Compare {
            result: self.below(4) as i32,
            target,
            key,
            range_end: if self.one_in(3) {
                range_end
            } else {
                Bytes::new()
            },
            target_union: union,
        }
    }

    fn txn(&mut self, depth: u32, revision: i64) -> TxnRequest {
        TxnRequest {
            compare: (0..self.below(3)).map(|_| self.compare(revision)).collect(),
            success: self.ops(depth, revision),
            failure: self.ops(depth, revision),
        }
    }

    fn ops(&mut self, depth: u32, revision: i64) -> Vec<RequestOp> {
        let count = self.below(4);
        let op = |dice: &mut Self| match dice.below(if depth > 0 { 8 } else { 6 }) {
            0 | 1 => Request::RequestRange(dice.range(revision)),
            2..=4 => Request::RequestPut(dice.put()),
            5 => Request::RequestDeleteRange(dice.delete()),
            _ => Request::RequestTxn(dice.txn(depth - 1, revision)),
        };
        let empty = self.one_in(100);
        (0..count)
            .map(|_| RequestOp {
                request: if empty { None } else { Some(op(self)) },
            })
            .collect()
    }
}

/// Clients of one server.
struct Server {
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
    maintenance: MaintenanceClient<Channel>,
}

impl Server {
    fn new(cluster: &Cluster, member: usize) -> Server {
        let endpoint = Endpoint::from_shared(format!("http://{}", cluster.members[member].client));
        let channel = endpoint.expect("an address").connect_lazy();
        Server {
            kv: KvClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel),
        }
    }

    /// Waits until the member has applied a revision; hashes are of what it has.
    async fn reach(&mut self, revision: i64) {
        let request = HashKvRequest { revision: 0 };
        for _ in 0..1000 {
            let reply = self
                .maintenance
                .hash_kv(request)
                .await
                .map(tonic::Response::into_inner);
            let own = reply.ok().and_then(|reply| reply.header);
            if own.is_some_and(|header| header.revision >= revision) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a member does not reach revision {revision}");
    }

    /// Asks, and gives the answer as text without what names the cluster.
    async fn ask(&mut self, question: &Question) -> (Option<i64>, String) {
        macro_rules! answer {
            ($reply:expr) => {
                match $reply.await {
                    Ok(reply) => {
                        let mut reply = reply.into_inner();
                        let revision = reply.header.as_mut().map(anonymous);
                        (revision, format!("{reply:?}"))
                    }
                    Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
                }
            };
        }
        match question.clone() {
            Question::Put(put) => answer!(self.kv.put(put)),
            Question::Delete(delete) => answer!(self.kv.delete_range(delete)),
            Question::Range(range) => answer!(self.kv.range(range)),
            Question::Compact(compact) => answer!(self.kv.compact(compact)),
            Question::Grant(grant) => answer!(self.lease.lease_grant(grant)),
            Question::Revoke(revoke) => answer!(self.lease.lease_revoke(revoke)),
            Question::Hash(hash) => answer!(self.maintenance.hash_kv(hash)),
            Question::Txn(txn) => match self.kv.txn(txn).await {
                Ok(reply) => {
                    let mut reply = reply.into_inner();
                    let revision = reply.header.as_ref().map(|header| header.revision);
                    anonymous_txn(&mut reply);
                    (revision, format!("{reply:?}"))
                }
                Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
            },
            Question::TimeToLive(lease) => match self.lease.lease_time_to_live(lease).await {
                Ok(reply) => {
                    let mut reply = reply.into_inner();
                    // etcd gives the keys in no order, and time passes.
                    reply.keys.sort();
                    let known = reply.ttl > 0;
                    (
                        None,
                        format!("{known} {} {:?}", reply.granted_ttl, reply.keys),
                    )
                }
                Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
            },
        }
    }
}

/// Leaves the revision alone in a header.
fn anonymous(header: &mut ResponseHeader) -> i64 {
    *header = ResponseHeader {
        revision: header.revision,
        ..ResponseHeader::default()
    };
    header.revision
}

fn anonymous_txn(reply: &mut TxnResponse) {
    reply.header.as_mut().map(anonymous);
    for response in &mut reply.responses {
        if let Some(response_op::Response::ResponseTxn(nested)) = &mut response.response {
            anonymous_txn(nested);
        }
    }
}

#[derive(Clone, Debug)]
enum Question {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Range(RangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Hash(HashKvRequest),
}

impl Question {
    /// Lets no range be answered from what one member happens to have.
    fn be_linearizable(&mut self) {
        if let Question::Range(range) = self {
            range.serializable = false;
        }
    }
}

fn question(dice: &mut Dice, revision: i64, compactions: &[i64]) -> Question {
    match dice.below(40) {
        0..=9 => Question::Put(dice.put()),
        10..=12 => Question::Delete(dice.delete()),
        13..=19 => Question::Range(dice.range(revision)),
        20..=30 => Question::Txn(dice.txn(2, revision)),
        31 | 32 => {
            let id = dice.between(1, 4);
            let ttl = if dice.one_in(10) {
                9_000_000_001
            } else {
                10_000
            };
            Question::Grant(LeaseGrantRequest { id, ttl })
        }
        33 => Question::Revoke(LeaseRevokeRequest {
            id: dice.between(1, 5),
        }),
        34 => Question::TimeToLive(LeaseTimeToLiveRequest {
            id: dice.between(1, 5),
            keys: true,
        }),
        35 => {
            let last = compactions.last().copied().unwrap_or(0);
            let revision = dice.between((last - 1).max(-1), revision + 1);
            // Done when answered, or etcd's hash could still see what it forgets.
            Question::Compact(CompactionRequest {
                revision,
                physical: true,
            })
        }
        _ => {
            let at = dice.between(0, revision + 1);
            // For a compacted revision etcd answers with the hash from before the compaction.
            let at = if compactions.contains(&at) { 0 } else { at };
            Question::Hash(HashKvRequest { revision: at })
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Asks a cluster of this many members, a random one each time, and a single real etcd.
fn converse(test: &str, size: usize, operations: u64) {
    let Some(peers) = peers(test) else { return };
    let seed = number("SEED", 1);
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
    let ours = Cluster::start(ours(), &peers, size);
    let theirs = Cluster::start(Kind::Etcd, &peers, 1);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut here: Vec<Server> = (0..size).map(|at| Server::new(&ours, at)).collect();
        let mut there = Server::new(&theirs, 0);
        let (mut revision, mut compactions) = (1, Vec::new());
        for operation in 0..operations {
            let mut question = question(&mut dice, revision, &compactions);
            let member = dice.below(size as u64) as usize;
            if size > 1 {
                question.be_linearizable();
                here[member].reach(revision).await;
            }
            let (own, said) = here[member].ask(&question).await;
            let (other, expected) = there.ask(&question).await;
            let at = format!("seed {seed}, operation {operation} at {member}: {question:?}");
            assert_eq!(said, expected, "{at}\n(ours on the left)\n{}", ours.logs());
            assert_eq!(own, other, "{at}");
            revision = own.unwrap_or(revision).max(revision);
            if let (Question::Compact(compact), Some(_)) = (&question, own) {
                compactions.push(compact.revision);
            }
        }
        let tame = revision < operations as i64 / 4 || compactions.len() < 3;
        assert!(!tame, "the run was too tame: {revision}, {compactions:?}");
    });
}

#[test]
fn random_requests_are_answered_as_etcd_does() {
    let operations = number("OPS", 3000);
    converse("random_requests_are_answered_as_etcd_does", 1, operations);
}

#[test]
fn random_requests_to_random_members_are_answered_as_by_one() {
    let operations = number("OPS", 1000);
    let test = "random_requests_to_random_members_are_answered_as_by_one";
    converse(test, 3, operations);
}
