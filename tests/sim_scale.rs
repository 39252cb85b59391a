//! The load of many idle clusters on one operator: no API requests, and how much memory and CPU time. The operator's
//! caches, reconciles and queue are those of the released operator; the clusters are one simulated cluster in many
//! namespaces.
//!
//! `CLUSTERS=n` sets their number (30); `make scale` runs an optimized build with 1,000.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use quorate::opsim::ScaleTest;

/// Counts what this thread has: the operator, and the members and the API server that are simulated for it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
}

/// What the operator's allocator takes for so many bytes: multiples of 16 up to 128, and then a quarter of a power of two
/// more each time.
fn handed_out(size: usize) -> isize {
    let step = match size {
        0..=128 => 16,
        _ => 1 << ((size - 1).ilog2() - 2),
    };
    size.next_multiple_of(step).cast_signed()
}

fn count(bytes: isize) {
    let _ = NOW.try_with(|now| now.set(now.get() + bytes));
}

#[expect(
    unsafe_code,
    reason = "nothing else sees every allocation; each is the system's own"
)]
// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(handed_out(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-handed_out(layout.size()));
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(handed_out(size) - handed_out(layout.size()));
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The number of measured minutes of virtual time.
const MINUTES: u64 = 10;
/// KiB of one cluster, its simulated members' part of the held calls included, sockets and sessions of TLS not: 10,000
/// clusters in 600 MiB have 61.
const MOST_KIB: f64 = 61.0;
/// Changes of one cluster's members.
const TOLD: u64 = 20;
/// Within so many milliseconds each is seen: members look twice a second, and a cluster is reconciled for them once a second.
const SEEN_MS: u64 = 1_100;
/// With fewer clusters, what does not grow with them counts too much.
const MANY: usize = 100;

fn number(name: &str) -> Option<usize> {
    let given = std::env::var(name).ok();
    given.map(|text| text.parse().expect("CLUSTERS is a number"))
}

/// The CPU time of this thread.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable on Linux");
    let nanoseconds = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// What is allocated, in KiB.
fn allocated() -> u64 {
    u64::try_from(NOW.get() / 1024).unwrap_or(0)
}

/// The resident memory of this process, in KiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("readable on Linux");
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a size").parse().expect("a number")
}

/// Clusters with UIDs and certificates of their own, which caches cannot compress against each other, have no members that
/// describe them: only what is seen of them before their first reconcile is measured.
#[test]
fn caches_of_clusters_with_tls() {
    let many = number("CLUSTERS").unwrap_or(30);
    let of = |tls: bool| {
        let mut scale = ScaleTest::new(tls).expect("a cluster comes to rest");
        let empty = allocated();
        scale.fill_unlike(many).expect("certificates can be made");
        allocated().saturating_sub(empty) as f64 / many as f64
    };
    let (without, with) = (of(false), of(true));
    println!("caches, KiB of each of {many} clusters: {without:.1} without TLS, {with:.1} with it");
    if many >= MANY {
        assert!(with <= MOST_KIB, "{with} KiB of each");
    }
}

#[test]
fn idle_clusters_send_no_api_requests() {
    measure(false);
}

/// Found when ten thousand were measured: the certificates of all were for the hosts of the first one, so that the operator
/// observed nothing after its first look, and nothing was measured.
#[test]
fn idle_clusters_with_tls_send_none_either() {
    measure(true);
}

fn measure(tls: bool) {
    let many = number("CLUSTERS").unwrap_or(30);
    let mut scale = ScaleTest::new(tls).expect("a cluster comes to rest");
    let written = scale.writes();
    scale.admit(many);
    let empty = (memory(), allocated());
    scale.fill(many).expect("certificates can be made");
    let filled = (memory(), allocated());
    // The first reconciles of each cluster: connections are made, and the state is read.
    let (begun, first) = (processor(), scale.rest(30));
    let first_time = processor() - begun;
    let (begun, rested) = (processor(), scale.rest(MINUTES * 60));
    let time = processor() - begun;
    let settled = (memory(), allocated());
    assert_eq!(scale.writes(), written, "idle clusters cause no writes");

    let minutes = u64::try_from(many).expect("a number") * MINUTES;
    let of_one = |now: u64, before: u64| now.saturating_sub(before) as f64 / many as f64;
    println!(
        "{many} clusters of three{}, KiB of each: caches {:.1}, and {:.1} with held calls and queue; resident {:.1} and {:.1}",
        if tls { " with TLS" } else { "" },
        of_one(filled.1, empty.1),
        of_one(settled.1, empty.1),
        of_one(filled.0, empty.0),
        of_one(settled.0, empty.0),
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
    let (wall, begun) = (Instant::now(), processor());
    let told: Vec<u64> = (0..TOLD)
        .map(|number| {
            scale.rest(number % 7);
            scale
                .told(number * 83 % 500)
                .expect("a change of one's members is seen")
        })
        .collect();
    println!(
        "another leader of one cluster is in its status after {} ms on average and {} at most (simulated); {TOLD} of them, some seconds apart, took {:?} and {:?} of a processor",
        told.iter().sum::<u64>() / TOLD,
        told.iter().max().expect("some"),
        wall.elapsed(),
        processor() - begun,
    );
    assert!(told.iter().all(|ms| *ms <= SEEN_MS), "{told:?}");
    assert_eq!(rested.requests, 0, "idle clusters cause no API requests");
    // The operator does observe them: an idle cluster has a reconcile every five minutes, with four calls, and its members
    // hold a call each meanwhile, for five to ten minutes.
    assert!(rested.reconciles * 5 >= minutes * 3 / 4, "{rested:?}");
    assert!(rested.reconciles * 5 <= minutes * 5 / 4, "{rested:?}");
    assert!(rested.calls >= rested.reconciles * 4, "{rested:?}");
    assert!(rested.calls <= rested.reconciles * 12, "{rested:?}");
    if many >= MANY {
        let taken = of_one(settled.1, empty.1);
        assert!(taken <= MOST_KIB, "{taken} KiB of each");
    }
}
