//! The same watchers over the same random writes, on Quorate and on real etcd: each must be
//! shown equal events in equal order, or be refused or cancelled with the same words.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{
    CompactionRequest, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest,
    WatchResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::cluster::{Cluster, Kind};
use crate::dice::{Dice, Question};
use crate::process::{PATIENCE, peers};
use crate::random::number;
use crate::server::Server;
use crate::story::ours;

/// One stream with all its watchers.
#[derive(Debug)]
struct Audience {
    server: Server,
    requests: mpsc::Sender<WatchRequest>,
    responses: tonic::Streaming<WatchResponse>,
    seen: BTreeMap<i64, Vec<String>>,
    /// The newest revision of a progress reply.
    progress: i64,
    /// Watchers that were cancelled because of a compaction.
    compacted: BTreeSet<i64>,
}

impl Audience {
    async fn new(cluster: &Cluster, member: usize) -> Audience {
        let mut server = Server::new(cluster, member);
        let (requests, queue) = mpsc::channel(100);
        // etcd opens a stream with its first answer, so there has to be one.
        let create = WatchCreateRequest {
            key: Bytes::from_static(b"a"),
            ..WatchCreateRequest::default()
        };
        let first = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        requests.send(first).await.expect("an open stream");
        let stream = server.watch.watch(ReceiverStream::new(queue)).await;
        let responses = stream.expect("a stream").into_inner();
        Audience {
            server,
            requests,
            responses,
            seen: BTreeMap::new(),
            progress: 0,
            compacted: BTreeSet::new(),
        }
    }

    async fn send(&mut self, union: RequestUnion) {
        let request = WatchRequest {
            request_union: Some(union),
        };
        self.requests.send(request).await.expect("an open stream");
    }

    /// Reads responses until a condition holds.
    async fn read_until(&mut self, what: &str, done: impl Fn(&Audience) -> bool) {
        while !done(self) {
            let next = tokio::time::timeout(PATIENCE, self.responses.message()).await;
            let next = next.unwrap_or_else(|_| panic!("waited for {what}: {:?}", self.seen.keys()));
            let response = next.expect("a response").expect("an open stream");
            self.take(response);
        }
    }

    fn take(&mut self, response: WatchResponse) {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        if response.watch_id == -1 && !response.created && !response.canceled {
            self.progress = self.progress.max(revision);
            return;
        }
        if self.compacted.contains(&response.watch_id) {
            return;
        }
        let seen = self.seen.entry(response.watch_id).or_default();
        if response.created {
            seen.push("created".to_owned());
        }
        seen.extend(response.events.iter().map(|event| format!("{event:?}")));
        if response.canceled {
            let (compacted, reason) = (response.compact_revision, &response.cancel_reason);
            seen.push(format!("canceled {compacted} {reason}"));
            if compacted > 0 {
                self.compacted.insert(response.watch_id);
            }
        }
    }

    async fn create(&mut self, request: WatchCreateRequest, answers: usize) {
        let what = format!("{request:?}");
        self.send(RequestUnion::CreateRequest(request)).await;
        let created = |audience: &Audience| {
            let all = audience.seen.values().flatten();
            all.filter(|text| *text == "created").count() >= answers
        };
        self.read_until(&what, created).await;
    }

    /// Waits until every watcher has been shown everything up to a revision.
    async fn finish(&mut self, revision: i64) {
        let start = tokio::time::Instant::now();
        while self.progress < revision {
            // In etcd a watcher that was compacted holds up progress until it is cancelled again.
            for watch_id in self.compacted.clone() {
                let cancel = WatchCancelRequest { watch_id };
                self.send(RequestUnion::CancelRequest(cancel)).await;
            }
            let waited = start.elapsed() < PATIENCE;
            assert!(waited, "no progress to {revision}: {self:?}");
            // It is answered only when all are in step, so ask again.
            self.send(RequestUnion::ProgressRequest(WatchProgressRequest {}))
                .await;
            let wait = std::time::Duration::from_millis(100);
            while let Ok(next) = tokio::time::timeout(wait, self.responses.message()).await {
                let response = next.expect("a response").expect("an open stream");
                self.take(response);
            }
        }
    }
}

/// `own_id` is new to both: etcd keeps the ID of a compacted watcher, Quorate does not.
fn watcher(dice: &mut Dice, own_id: i64, compacted: i64, revision: i64) -> WatchCreateRequest {
    let (key, range_end) = dice.span();
    let start_revision = match dice.below(4) {
        0 => 0,
        1 => revision + dice.between(1, 3),
        2 => dice.between(compacted - 1, compacted + 1),
        _ => dice.between(compacted, revision),
    };
    let filters = (0..2).filter(|_| dice.one_in(6)).collect();
    WatchCreateRequest {
        key: if dice.one_in(20) { Bytes::new() } else { key },
        range_end,
        start_revision: if dice.one_in(30) { -1 } else { start_revision },
        filters,
        prev_kv: dice.one_in(2),
        watch_id: if dice.one_in(10) { own_id } else { 0 },
        ..WatchCreateRequest::default()
    }
}

/// Writes the same to both until the revision has grown.
async fn write(dice: &mut Dice, both: &mut [Audience; 2], operations: u64) -> i64 {
    let mut revision = 1;
    for _ in 0..operations {
        let question = match dice.below(4) {
            0 | 1 => Question::Put(dice.put()),
            2 => Question::Delete(dice.delete()),
            _ => Question::Txn(dice.txn(1, 1)),
        };
        let (own, said) = both[0].server.ask(&question).await;
        let (_, expected) = both[1].server.ask(&question).await;
        assert_eq!(said, expected, "{question:?}");
        revision = own.unwrap_or(revision).max(revision);
    }
    revision
}

fn converse(test: &str, size: usize) {
    let Some(peers) = peers(test) else { return };
    let seed = number("SEED", 1);
    let operations = number("OPS", 600);
    let mut dice = Dice::new(seed);
    let ours = Cluster::start(ours(), &peers, size);
    let theirs = Cluster::start(Kind::Etcd, &peers, 1);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut both = [
            Audience::new(&ours, size - 1).await,
            Audience::new(&theirs, 0).await,
        ];
        let revision = write(&mut dice, &mut both, operations).await;
        let compacted = revision / 2;
        let compact = Question::Compact(CompactionRequest {
            revision: compacted,
            physical: true,
        });
        let mut created = 1;
        for audience in &mut both {
            audience.server.reach(revision).await;
            audience.server.ask(&compact).await;
        }
        let mut revision = revision;
        for _ in 0..5 {
            for _ in 0..8 {
                let own_id = 1000 + created as i64;
                let request = watcher(&mut dice, own_id, compacted, revision);
                created += 1;
                for audience in &mut both {
                    audience.create(request.clone(), created).await;
                }
            }
            revision = write(&mut dice, &mut both, operations / 10)
                .await
                .max(revision);
            for audience in &mut both {
                audience.server.reach(revision).await;
            }
        }
        for audience in &mut both {
            audience.finish(revision).await;
            let cancel = WatchCancelRequest { watch_id: 3 };
            audience.send(RequestUnion::CancelRequest(cancel)).await;
            // A cancellation of nothing would not be answered; a progress reply is.
            audience.progress = 0;
            audience.finish(revision).await;
        }
        revision = write(&mut dice, &mut both, 20).await.max(revision);
        for audience in &mut both {
            audience.finish(revision).await;
        }
        let [here, there] = both;
        for (id, expected) in &there.seen {
            let seen = here.seen.get(id);
            assert_eq!(
                seen,
                Some(expected),
                "seed {seed}, watcher {id} (ours on the left)"
            );
        }
        assert_eq!(here.seen.len(), there.seen.len());
    });
}

#[test]
fn random_watchers_see_what_etcds_do() {
    converse("random_watchers_see_what_etcds_do", 1);
}

#[test]
fn random_watchers_of_a_follower_see_what_etcds_do() {
    converse("random_watchers_of_a_follower_see_what_etcds_do", 3);
}
