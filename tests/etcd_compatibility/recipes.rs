//! Compares the server's elections and locks over gRPC with etcd's: the order of waiting clients, the responses that
//! observers receive, and the keys that remain when a waiting client disconnects.

use std::time::Duration;

use bytes::Bytes;
use quorate::wire::election::election_client::ElectionClient;
use quorate::wire::election::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, ProclaimRequest,
    ResignRequest,
};
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::{LeaseGrantRequest, LeaseRevokeRequest, RangeRequest, ResponseHeader};
use quorate::wire::lock::lock_client::LockClient;
use quorate::wire::lock::{LockRequest, UnlockRequest};
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::node::{Node, PATIENCE, pair};

/// How long to wait to conclude that something does not happen.
const MOMENT: Duration = Duration::from_millis(300);

struct Recorder {
    election: ElectionClient<Channel>,
    lock: LockClient<Channel>,
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
    notes: Vec<String>,
}

fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.expect("a header").revision
}

fn name() -> Bytes {
    Bytes::from_static(b"e")
}

fn campaign(lease: i64, value: &'static str) -> CampaignRequest {
    CampaignRequest {
        name: name(),
        lease,
        value: value.into(),
    }
}

impl Recorder {
    async fn new(node: &Node) -> Recorder {
        let url = format!("http://{}", node.client);
        let channel = Channel::from_shared(url).expect("url").connect().await;
        let channel = channel.expect("connected");
        let mut recorder = Recorder {
            election: ElectionClient::new(channel.clone()),
            lock: LockClient::new(channel.clone()),
            kv: KvClient::new(channel.clone()),
            lease: LeaseClient::new(channel),
            notes: Vec::new(),
        };
        for id in 0xa..=0xd {
            let grant = LeaseGrantRequest { ttl: 600, id };
            recorder.lease.lease_grant(grant).await.expect("granted");
        }
        recorder
    }

    fn note(&mut self, what: &str, outcome: impl std::fmt::Debug) {
        self.notes.push(format!("{what}: {outcome:?}"));
    }

    /// Waits until a prefix has this many keys.
    async fn until(&mut self, prefix: &'static str, count: i64) {
        let range = RangeRequest {
            key: prefix.into(),
            range_end: format!("{}0", prefix.trim_end_matches('/')).into(),
            count_only: true,
            ..Default::default()
        };
        let wait = async {
            while self
                .kv
                .range(range.clone())
                .await
                .expect("read")
                .get_ref()
                .count
                != count
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let done = timeout(PATIENCE, wait).await;
        assert!(done.is_ok(), "{prefix} does not reach {count} keys");
    }

    fn note_campaign(&mut self, what: &str, won: &CampaignResponse) {
        let outcome = (revision(won.header.as_ref()), won.leader.clone());
        self.note(what, outcome);
    }

    fn note_leader(&mut self, what: &str, leader: &LeaderResponse) {
        let outcome = (revision(leader.header.as_ref()), leader.kv.clone());
        self.note(what, outcome);
    }

    async fn elections(&mut self) {
        // etcd sends the response headers with the first leader.
        let mut other = self.election.clone();
        let observe = LeaderRequest { name: name() };
        let observed = tokio::spawn(async move { other.observe(observe).await });
        let won = self.election.campaign(campaign(0xa, "one")).await;
        let won = won.expect("won").into_inner();
        let observed = observed.await.expect("joined").expect("seen");
        let mut observed = observed.into_inner();
        self.note_campaign("first", &won);
        let leader = observed.message().await.expect("a leader").expect("one");
        self.note_leader("observed", &leader);

        let mut other = self.election.clone();
        let mut second = tokio::spawn(async move { other.campaign(campaign(0xb, "two")).await });
        self.until("e/", 2).await;
        assert!(timeout(MOMENT, &mut second).await.is_err(), "two leaders");

        let proclaim = ProclaimRequest {
            leader: won.leader.clone(),
            value: "changed".into(),
        };
        let outcome = self
            .election
            .proclaim(proclaim.clone())
            .await
            .expect("proclaimed");
        self.note("proclaimed", revision(outcome.get_ref().header.as_ref()));
        let leader = observed.message().await.expect("a value").expect("one");
        self.note_leader("observed", &leader);
        let again = self
            .election
            .campaign(campaign(0xa, "again"))
            .await
            .expect("still");
        self.note_campaign("again", again.get_ref());
        let leader = observed.message().await.expect("a value").expect("one");
        self.note_leader("observed", &leader);

        // A third candidate that is cancelled leaves no key.
        let mut other = self.election.clone();
        let third = tokio::spawn(async move { other.campaign(campaign(0xc, "three")).await });
        self.until("e/", 3).await;
        third.abort();
        self.until("e/", 2).await;

        let resign = ResignRequest { leader: won.leader };
        let gone = self
            .election
            .resign(resign.clone())
            .await
            .expect("resigned");
        self.note("resigned", revision(gone.get_ref().header.as_ref()));
        let second = timeout(PATIENCE, second)
            .await
            .expect("in time")
            .expect("joined");
        self.note_campaign("second", second.expect("won").get_ref());
        let leader = observed.message().await.expect("a leader").expect("one");
        self.note_leader("observed", &leader);
        for (what, outcome) in [
            (
                "late word",
                self.election.proclaim(proclaim).await.map(|_| ()),
            ),
            ("late end", self.election.resign(resign).await.map(|_| ())),
        ] {
            self.note(
                what,
                outcome.map_err(|error| (error.code(), error.message().to_owned())),
            );
        }
        let leader = self.election.leader(LeaderRequest { name: name() }).await;
        self.note_leader("leader", leader.expect("one").get_ref());
    }

    async fn locks(&mut self) {
        let request = |lease| LockRequest {
            name: "l".into(),
            lease,
        };
        let held = self
            .lock
            .lock(request(0xa))
            .await
            .expect("held")
            .into_inner();
        self.note("held", (revision(held.header.as_ref()), &held.key));
        let again = self
            .lock
            .lock(request(0xa))
            .await
            .expect("held")
            .into_inner();
        self.note("again", (revision(again.header.as_ref()), &again.key));

        let mut waiting = Vec::new();
        for (lease, count) in [(0xb, 2), (0xc, 3), (0xd, 4)] {
            let mut lock = self.lock.clone();
            waiting.push(tokio::spawn(async move { lock.lock(request(lease)).await }));
            self.until("l/", count).await;
        }
        assert!(
            timeout(MOMENT, &mut waiting[0]).await.is_err(),
            "two owners"
        );
        // The client in the middle disconnects while the last one waits for it.
        waiting.remove(1).abort();
        self.until("l/", 3).await;
        let unlock = UnlockRequest { key: held.key };
        self.lock.unlock(unlock).await.expect("unlocked");
        let next = timeout(PATIENCE, waiting.remove(0)).await.expect("in time");
        let next = next.expect("joined").expect("held").into_inner();
        self.note("next", &next.key);
        assert!(
            timeout(MOMENT, &mut waiting[0]).await.is_err(),
            "two owners"
        );
        // Revoking a lease releases its lock.
        let revoke = LeaseRevokeRequest { id: 0xb };
        self.lease.lease_revoke(revoke).await.expect("revoked");
        let last = timeout(PATIENCE, waiting.remove(0)).await.expect("in time");
        let last = last.expect("joined").expect("held").into_inner();
        self.note("last", &last.key);
        // A client whose lease is revoked while it waits cannot get the lock.
        let grant = LeaseGrantRequest { ttl: 600, id: 0xe };
        self.lease.lease_grant(grant).await.expect("granted");
        let mut lock = self.lock.clone();
        let lost = tokio::spawn(async move { lock.lock(request(0xe)).await });
        self.until("l/", 2).await;
        let revoke = LeaseRevokeRequest { id: 0xe };
        self.lease.lease_revoke(revoke).await.expect("revoked");
        let unlock = UnlockRequest { key: last.key };
        self.lock.unlock(unlock).await.expect("unlocked");
        let lost = timeout(PATIENCE, lost)
            .await
            .expect("in time")
            .expect("joined");
        let lost = lost
            .map(|_| ())
            .map_err(|error| (error.code(), error.message().to_owned()));
        self.note("lost", lost);
    }
}

#[test]
fn elections_and_locks_equal_etcds() {
    let Some(nodes) = pair("recipes::elections_and_locks_equal_etcds", &[]) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let [ours, etcd] = nodes.map(|node| {
        runtime.block_on(async {
            let mut recorder = Recorder::new(&node).await;
            recorder.elections().await;
            recorder.locks().await;
            recorder.notes
        })
    });
    for (ours, etcd) in ours.iter().zip(&etcd) {
        assert_eq!(ours, etcd, "ours on the left, etcd's on the right");
    }
    assert_eq!(ours.len(), etcd.len());
}
