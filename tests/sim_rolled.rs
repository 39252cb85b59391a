//! Many clusters that are all rolled at once: how long that takes one operator, and what the API server and the members are
//! asked. Simulated Kubernetes, members and time; every cluster has its own.
//!
//! `ROLLED=n` sets their number (2), `CONCURRENCY=n` the reconciles at once (1; the operator's default is 4); `make scale`
//! runs 30.

use std::time::Duration;

use quorate::opsim;

/// Requests to the API server while a cluster of three is rolled, at most.
const REQUESTS: u64 = 400;

fn number(name: &str, default: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// The CPU time of this thread.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable on Linux");
    let nanoseconds = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// All clusters get another annotation of their pods at once: every pod is replaced, one of a cluster at a time.
#[test]
fn all_clusters_are_rolled() {
    let (many, concurrency) = (number("ROLLED", 2), number("CONCURRENCY", 1));
    let rolled = opsim::rolled(many, concurrency, processor).expect("each is rolled");
    let of_one = |count: u64| count as f64 / many as f64;
    let methods = rolled.methods.iter();
    let methods = methods.map(|(method, count)| format!("{:.1} {method}", of_one(*count)));
    println!(
        "{many} clusters of three rolled, {concurrency} reconciles at a time: {} s, {:.0} requests to the API server a second and {} at most, {:?} of a processor (answers included); a cluster {:.0} reconciles, {:.0} requests to the API server ({}), {:.0} writes there and to members, {:.0} calls of members",
        rolled.seconds,
        rolled.requests as f64 / rolled.seconds as f64,
        rolled.peak,
        rolled.processor,
        of_one(rolled.reconciles),
        of_one(rolled.requests),
        methods.collect::<Vec<_>>().join(", "),
        of_one(rolled.writes),
        of_one(rolled.calls),
    );
    // Each set is applied, and each pod replaced.
    let many = u64::try_from(many).expect("a number");
    assert!(rolled.writes >= many * 6, "{rolled:?}");
    assert!(rolled.requests <= many * REQUESTS, "{rolled:?}");
}
