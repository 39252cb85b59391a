//! What many clusters at rest take of one operator: nothing of the API server, and how much memory and
//! processor. The operator's caches, reconciles and queue are those that are shipped; the clusters are one
//! simulated cluster in many namespaces.
//!
//! `CLUSTERS=n` says how many (30); `make scale` runs it with 1,000 at release speed.

use std::time::Duration;

use quorate::opsim::ScaleTest;

/// Virtual seconds that are measured.
const MINUTES: u64 = 5;

fn clusters() -> usize {
    let given = std::env::var("CLUSTERS").ok();
    given.map_or(30, |text| text.parse().expect("CLUSTERS is a number"))
}

/// What this thread has had of a processor.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says so");
    let nanoseconds = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// What this process has of memory, in KiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says so");
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a size").parse().expect("a number")
}

#[test]
fn idle_clusters_send_no_api_requests() {
    let many = clusters();
    let mut scale = ScaleTest::new().expect("a cluster comes to rest");
    let written = scale.writes();
    let empty = memory();
    scale.fill(many);
    let filled = memory();
    // Each cluster's first reconciles: connections are made, and what is there is understood.
    let (begun, first) = (processor(), scale.rest(30));
    let first_time = processor() - begun;
    let settled = memory();
    let (begun, rested) = (processor(), scale.rest(MINUTES * 60));
    let time = processor() - begun;

    let reconciles = u64::try_from(many).expect("a number") * MINUTES * 60 / 10;
    println!(
        "{many} clusters of three: caches {} KiB, and {} KiB with connections and queue, {:.1} KiB a cluster",
        filled.saturating_sub(empty),
        settled.saturating_sub(empty),
        settled.saturating_sub(empty) as f64 / many as f64,
    );
    println!(
        "first half minute: {} reconciles, {} requests, {} calls of members, {first_time:?} of a processor",
        first.reconciles, first.requests, first.calls
    );
    println!(
        "each further minute: {} reconciles, {} requests, {} calls of members, {:?} of a processor (members' answers included)",
        rested.reconciles / MINUTES,
        rested.requests / MINUTES,
        rested.calls / MINUTES,
        time / u32::try_from(MINUTES).expect("a number")
    );
    assert_eq!(rested.requests, 0, "at rest nothing is asked");
    assert_eq!(scale.writes(), written, "at rest nothing is written");
    // It does look: a cluster at rest has a reconcile every ten seconds.
    assert!(rested.reconciles >= reconciles / 2, "{rested:?}");
    assert!(rested.calls >= rested.reconciles * 3, "{rested:?}");
}
