//! One client: sends requests to one member at a time and records every response. A request that neither succeeded nor
//! was refused for a reason in the request itself has an unknown outcome.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate::wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::request_op;
use quorate::wire::etcd::response_op::Response;
use quorate::wire::etcd::{
    self, CompactionRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    RequestOp, TxnRequest,
};
use quorate::wire::mvccpb::KeyValue;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::history::{Act, Compare, Given, Kv, Operation, Outcome, Recorder, Request};
use crate::server::Page;

/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(3);
/// Part of the error of a member that does not serve requests yet.
const STARTING: &str = "starting";
/// Values of these keys are padded, so that logs grow and checkpoints are written.
const BALLAST: &str = "ballast/";
const PADDED: usize = 200 << 10;

/// A member that clients may use.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) page: Page,
}

/// The current members, shared by all clients.
pub(crate) type Directory = Arc<Mutex<Vec<Place>>>;

/// Random choices of one client.
pub(crate) struct Generator(Xoshiro256PlusPlus);

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides.max(1)
    }

    pub(crate) fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    /// A random current member.
    pub(crate) fn place(&mut self, directory: &Directory) -> Option<Place> {
        let places = directory.lock().expect("unpoisoned");
        let at = self.below(places.len() as u64);
        places.get(usize::try_from(at).expect("few")).cloned()
    }
}

struct Seat {
    name: String,
    channel: Channel,
}

/// A client and its connection.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) generator: Generator,
    pub(crate) recorder: Arc<Recorder>,
    directory: Directory,
    seat: Option<Seat>,
    written: u64,
}

impl Client {
    pub(crate) fn new(
        id: u64,
        seed: u64,
        recorder: &Arc<Recorder>,
        directory: &Directory,
    ) -> Client {
        Client {
            id,
            generator: Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(id)),
            recorder: Arc::clone(recorder),
            directory: Arc::clone(directory),
            seat: None,
            written: 0,
        }
    }

    /// A unique value.
    pub(crate) fn value(&mut self) -> String {
        self.written += 1;
        format!("{}.{}", self.id, self.written)
    }

    /// A unique number.
    pub(crate) fn number(&mut self) -> i64 {
        self.written += 1;
        i64::try_from(self.id * 1_000_000 + self.written).expect("small")
    }

    /// An established connection: a request that cannot be sent at all is not an operation.
    async fn seat(&mut self) -> (String, Channel) {
        // Sometimes another member, so that each client uses several.
        if self.generator.one_in(40) {
            self.seat = None;
        }
        loop {
            if let Some(seat) = &self.seat {
                return (seat.name.clone(), seat.channel.clone());
            }
            if let Some(place) = self.generator.place(&self.directory) {
                let endpoint = Endpoint::from_shared(place.url).expect("a URL");
                let endpoint = endpoint.connect_timeout(LIMIT);
                let dial = endpoint.connect();
                if let Ok(Ok(channel)) = tokio::time::timeout(LIMIT, dial).await {
                    self.seat = Some(Seat {
                        name: place.name,
                        channel,
                    });
                    continue;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends one request and records it; returns the outcome.
    pub(crate) async fn ask(&mut self, request: Request) -> Outcome {
        let (member, channel) = self.seat().await;
        let began = self.recorder.now();
        let answer = tokio::time::timeout(LIMIT, send(channel, &request)).await;
        let ended = self.recorder.now();
        let outcome = match answer {
            Ok(Ok(done)) => done,
            Ok(Err(status)) => failed(&status),
            Err(_) => Outcome::Unknown {
                text: "no answer in time".to_owned(),
            },
        };
        if outcome.asks_elsewhere() {
            self.seat = None;
            let pause = 50 + self.generator.below(200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        self.recorder.operation(Operation {
            client: self.id,
            member,
            began,
            ended,
            request,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// A single act.
    pub(crate) async fn act(&mut self, act: Act, serializable: bool) -> Outcome {
        self.ask(Request::Txn {
            compares: Vec::new(),
            then: vec![act],
            or_else: Vec::new(),
            serializable,
        })
        .await
    }
}

impl Outcome {
    /// Whether to try another member next.
    fn asks_elsewhere(&self) -> bool {
        match self {
            Outcome::Done { .. } => false,
            Outcome::Refused { code, .. } => code == STARTING,
            Outcome::Unknown { .. } => true,
        }
    }
}

/// What a failure implies for the outcome of the request.
fn failed(status: &Status) -> Outcome {
    let text = status.message().to_owned();
    let code = match status.code() {
        Code::OutOfRange if text.contains("compacted") => "compacted",
        Code::OutOfRange if text.contains("future") => "future",
        Code::NotFound if text.contains("lease not found") => "no lease",
        Code::Unavailable if text.contains("this server is starting") => STARTING,
        Code::InvalidArgument | Code::FailedPrecondition => "refused",
        _ => {
            return Outcome::Unknown {
                text: format!("{:?}: {text}", status.code()),
            };
        }
    };
    Outcome::Refused {
        code: code.to_owned(),
        text,
    }
}

fn done(header: Option<etcd::ResponseHeader>, succeeded: bool, given: Vec<Given>) -> Outcome {
    Outcome::Done {
        revision: header.map_or(0, |header| header.revision),
        succeeded,
        given,
        ttl: 0,
    }
}

fn leased(header: Option<etcd::ResponseHeader>, ttl: i64) -> Outcome {
    Outcome::Done {
        revision: header.map_or(0, |header| header.revision),
        succeeded: true,
        given: Vec::new(),
        ttl,
    }
}

async fn send(channel: Channel, request: &Request) -> Result<Outcome, Status> {
    let mut kv = KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let mut lease = LeaseClient::new(channel);
    match request {
        Request::Txn {
            compares,
            then,
            or_else,
            serializable,
        } => match then.as_slice() {
            [act] if compares.is_empty() && or_else.is_empty() => {
                single(&mut kv, act, *serializable).await
            }
            _ => {
                let request = TxnRequest {
                    compare: compares.iter().map(compare).collect(),
                    success: then.iter().map(|act| op(act, *serializable)).collect(),
                    failure: or_else.iter().map(|act| op(act, *serializable)).collect(),
                };
                let answer = kv.txn(request).await?.into_inner();
                let given = answer.responses.into_iter().filter_map(|one| one.response);
                let given = given.filter_map(read_back).collect();
                Ok(done(answer.header, answer.succeeded, given))
            }
        },
        Request::Compact { revision } => {
            let request = CompactionRequest {
                revision: *revision,
                physical: revision % 2 == 0,
            };
            let answer = kv.compact(request).await?.into_inner();
            Ok(done(answer.header, true, Vec::new()))
        }
        Request::Grant { id, ttl } => {
            let request = LeaseGrantRequest { ttl: *ttl, id: *id };
            let answer = lease.lease_grant(request).await?.into_inner();
            Ok(leased(answer.header, answer.ttl))
        }
        Request::KeepAlive { id } => {
            let one = tokio_stream::once(LeaseKeepAliveRequest { id: *id });
            let mut answers = lease.lease_keep_alive(one).await?.into_inner();
            let answer = answers.message().await?;
            let answer = answer.ok_or_else(|| Status::unavailable("the stream ended"))?;
            Ok(leased(answer.header, answer.ttl))
        }
        Request::Revoke { id } => {
            let request = LeaseRevokeRequest { id: *id };
            let answer = lease.lease_revoke(request).await?.into_inner();
            Ok(leased(answer.header, 0))
        }
    }
}

async fn single(
    kv: &mut KvClient<Channel>,
    act: &Act,
    serializable: bool,
) -> Result<Outcome, Status> {
    let (header, response) = match op(act, serializable).request {
        Some(request_op::Request::RequestRange(request)) => {
            let answer = kv.range(request).await?.into_inner();
            (answer.header, Response::ResponseRange(answer))
        }
        Some(request_op::Request::RequestPut(request)) => {
            let answer = kv.put(request).await?.into_inner();
            (answer.header, Response::ResponsePut(answer))
        }
        Some(request_op::Request::RequestDeleteRange(request)) => {
            let answer = kv.delete_range(request).await?.into_inner();
            (answer.header, Response::ResponseDeleteRange(answer))
        }
        _ => return Err(Status::internal("acts are ranges, puts and deletes")),
    };
    let given = read_back(response).into_iter().collect();
    Ok(done(header, true, given))
}

fn compare(compare: &Compare) -> etcd::Compare {
    let (target, union) = match compare.modified {
        Some(modified) => (CompareTarget::Mod, TargetUnion::ModRevision(modified)),
        None => {
            let value = padded(&compare.key, &compare.value);
            (CompareTarget::Value, TargetUnion::Value(value))
        }
    };
    etcd::Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: compare.key.clone().into(),
        range_end: Bytes::new(),
        target_union: Some(union),
    }
}

fn op(act: &Act, serializable: bool) -> RequestOp {
    let request = match act {
        Act::Put {
            key,
            value,
            lease,
            prev,
        } => request_op::Request::RequestPut(etcd::PutRequest {
            key: key.clone().into(),
            value: padded(key, value),
            lease: *lease,
            prev_kv: *prev,
            ..etcd::PutRequest::default()
        }),
        Act::Delete { key, end, prev } => {
            request_op::Request::RequestDeleteRange(etcd::DeleteRangeRequest {
                key: key.clone().into(),
                range_end: end.clone().into(),
                prev_kv: *prev,
            })
        }
        Act::Range {
            key,
            end,
            limit,
            revision,
            keys_only,
            count_only,
        } => request_op::Request::RequestRange(etcd::RangeRequest {
            key: key.clone().into(),
            range_end: end.clone().into(),
            limit: *limit,
            revision: *revision,
            serializable,
            keys_only: *keys_only,
            count_only: *count_only,
            ..etcd::RangeRequest::default()
        }),
    };
    RequestOp {
        request: Some(request),
    }
}

fn read_back(response: Response) -> Option<Given> {
    match response {
        Response::ResponsePut(answer) => Some(Given::Put {
            prev: answer.prev_kv.as_ref().map(kv),
        }),
        Response::ResponseDeleteRange(answer) => Some(Given::Delete {
            deleted: answer.deleted,
            prev: answer.prev_kvs.iter().map(kv).collect(),
        }),
        Response::ResponseRange(answer) => Some(Given::Range {
            kvs: answer.kvs.iter().map(kv).collect(),
            count: answer.count,
            more: answer.more,
        }),
        Response::ResponseTxn(_) => None,
    }
}

fn padded(key: &str, value: &str) -> Bytes {
    let mut bytes = value.as_bytes().to_vec();
    if key.starts_with(BALLAST) {
        bytes.resize(PADDED, b'~');
    }
    bytes.into()
}

/// A key in the form of the history: complete padding is removed.
pub(crate) fn kv(kv: &KeyValue) -> Kv {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let (key, mut value) = (text(&kv.key), text(&kv.value));
    if key.starts_with(BALLAST) && value.len() == PADDED {
        value.truncate(value.trim_end_matches('~').len());
    }
    Kv {
        key,
        value,
        created: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}
