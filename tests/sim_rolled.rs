//! Many clusters that are all rolled at once: how long that takes one operator, and what the API server and the members are
//! asked. Simulated Kubernetes, members and time; every cluster has its own.
//!
//! `ROLLED=n` sets their number (2); `make scale` runs 30.

use quorate::opsim;

/// Requests to the API server while a cluster of three is rolled, at most.
const REQUESTS: u64 = 400;

/// All clusters get another annotation of their pods at once: every pod is replaced, one of a cluster at a time.
#[test]
fn all_clusters_are_rolled() {
    let given = std::env::var("ROLLED").ok();
    let many = given.map_or(2, |text| text.parse().expect("ROLLED is a number"));
    let rolled = opsim::rolled(many).expect("each is rolled");
    let of_one = |count: u64| count as f64 / many as f64;
    let methods = rolled.methods.iter();
    let methods = methods.map(|(method, count)| format!("{:.1} {method}", of_one(*count)));
    println!(
        "{many} clusters of three rolled, one reconcile at a time: {} s; a cluster {:.0} reconciles, {:.0} requests to the API server ({}), {:.0} writes there and to members, {:.0} calls of members",
        rolled.seconds,
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
