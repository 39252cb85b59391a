//! The load of many idle clusters on one operator: no API requests, and how much memory and CPU time. The operator's
//! caches, reconciles and queue are those of the released operator; the clusters are one simulated cluster in many
//! namespaces.
//!
//! `CLUSTERS=n` sets their number (30); `make scale` runs an optimized build with 1,000.

use std::time::Duration;

use quorate::opsim::ScaleTest;

/// The number of measured minutes of virtual time.
const MINUTES: u64 = 5;

fn clusters() -> usize {
    let given = std::env::var("CLUSTERS").ok();
    given.map_or(30, |text| text.parse().expect("CLUSTERS is a number"))
}

/// The CPU time of this thread.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable on Linux");
    let nanoseconds = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// The resident memory of this process, in KiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("readable on Linux");
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a size").parse().expect("a number")
}

#[test]
fn idle_clusters_send_no_api_requests() {
    let many = clusters();
    let mut scale = ScaleTest::new().expect("a cluster comes to rest");
    let written = scale.writes();
    scale.admit(many);
    let empty = memory();
    scale.fill(many);
    let filled = memory();
    // The first reconciles of each cluster: connections are made, and the state is read.
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
    assert_eq!(rested.requests, 0, "idle clusters cause no API requests");
    assert_eq!(scale.writes(), written, "idle clusters cause no writes");
    // The operator does observe them: an idle cluster has a reconcile every ten seconds.
    assert!(rested.reconciles >= reconciles / 2, "{rested:?}");
    assert!(rested.calls >= rested.reconciles * 3, "{rested:?}");
}
