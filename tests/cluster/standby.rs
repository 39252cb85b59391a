//! A standby of a cluster elsewhere that is lost: it takes that one's place with what it has, and with no less than was
//! reviewed. Never while a member of that one answers as one of a living cluster.

use quorate::backup_plan::{FailureClass, Followed};
use quorate::wire::etcd::LeaseTimeToLiveRequest;
use quorate::wire::etcd::lease_client::LeaseClient;

use super::fixture::until;
use super::follow::{LEASE, Source, World, cancelled, events, killed};

/// Of a lease that ends soon.
const SHORT: i64 = -7;
/// By so much the revision is raised.
const BUMP: i64 = 1_000_000_000;

async fn granted(world: &World, id: i64) -> i64 {
    let times = LeaseTimeToLiveRequest { id, keys: false };
    let mut leases = LeaseClient::new(world.servers[0].channel());
    let times = leases.lease_time_to_live(times).await.expect("times");
    times.into_inner().granted_ttl
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_source_is_replaced_with_what_is_here() {
    let home = tempfile::tempdir().expect("a folder");
    let source = Source::ours(home.path());
    source.lives().await;
    let mut world = World::new(home, source, &["demo-1", "demo-2"]).await;
    world.founds().await;
    let follows = world.runs("cutover=manual");
    // A lease is here as soon as its first key, or a key could stay for ever.
    for id in [-8, 80, 81] {
        world.source.lease(id, 500).await;
        let key = format!("long/{id}");
        world.source.put(&key, "1", id).await.expect("put");
        world.servers[0].holds(&key, "1").await;
        assert_eq!(granted(&world, id).await, 500, "{}", world.log());
    }
    // It lives: both would take writes.
    let least = world.source.put("last", "1", 0).await.expect("put");
    world.reaches(least).await;
    killed(follows);
    let promotes = |least: i64| format!("cutover=source-lost revision={least}");
    let job = world.runs(&promotes(least));
    let message = world.fails_as(job, FailureClass::Settings);
    let words = "is not lost: ";
    assert!(
        message.contains(words) && message.contains("has a leader"),
        "{message}"
    );
    let described = world.servers[0].operator().describe(false).await;
    let described = described.expect("an answer").following.expect("it follows");
    assert!(described.problem.contains(words), "{described:?}");
    world.source.put("goes-on", "1", 0).await.expect("put");
    let follows = world.runs("cutover=manual");

    world.source.lease(SHORT, 10).await;
    let last = world.source.put("short", "1", SHORT).await.expect("put");
    world.reaches(last).await;
    let watch = tokio::spawn(events(world.servers[0].channel(), last + 1, last + 1));
    let ahead = tokio::spawn(cancelled(world.servers[0].channel(), last + 50));
    world.source.kills();
    killed(follows);
    let job = world.runs(&promotes(last + 100));
    let message = world.fails_as(job, FailureClass::Settings);
    assert!(
        message.contains(&format!("asks for {}", last + 100)),
        "{message}"
    );
    let refused = world.servers[0].put("own", "1").await;
    refused.expect_err("it still follows");
    let done = world.ends(world.runs(&promotes(least))).await;
    assert!(
        done.revision >= last + BUMP && done.writable_unix_ms > 0,
        "{done:?}"
    );
    assert_eq!(done.frozen_unix_ms, 0);
    let next = world.servers[0].put("own", "1").await.expect("a write");
    assert_eq!(next, done.revision + 1);
    // Whoever watches here has missed nothing; whoever has seen more at the source is told that it is gone.
    let watched = watch.await.expect("no panic");
    let watched = watched[0].kv.as_ref().expect("a key");
    assert_eq!(
        (&watched.key[..], watched.mod_revision),
        (&b"own"[..], next)
    );
    assert_eq!(ahead.await.expect("no panic"), done.revision);
    assert_eq!(granted(&world, LEASE).await, 600);
    until("the short lease ends", &world.servers[1], async || {
        let found = world.servers[1].get("short", false).await;
        found.ok()?.is_none().then_some(())
    })
    .await;
    // Once.
    let again = world.ends(world.runs(&promotes(least))).await;
    assert_eq!(again, Followed::default());
}
