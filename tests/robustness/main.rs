//! Runs real servers under faults: three to five processes on loopback are killed, stopped, partitioned, deprived of
//! their disks, given wrong clocks, emptied and replaced, while clients write, read, watch and hold leases, and record
//! all responses. Afterwards the record is checked by our own checks (`checks`) and by porcupine.
//!
//! `MINUTES` (if unset, only the tests of the checks run), `SEED` (of the schedule of faults and of the clients'
//! requests; the servers' behaviour differs from run to run), `MEMBERS` (3 to 5), `QUORATE` (the server's binary),
//! `CHECK=folder` (checks a stored record again). `make robustness` sets them.
//!
//! How faults are injected: the network by a proxy in this process, whose address every member advertises as its own
//! (`proxy`); disk and wall clock by a library that is preloaded into the servers (`faults.c`), which also records the
//! bytes that every write replaces, so that a power loss can drop writes that were not synced; everything else by
//! signals and regular API calls. None of this needs privileges or leaves anything behind. It cannot test jumps of the
//! monotonic clock, or faulty memory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[path = "../cluster/address.rs"]
mod address;
mod background_faults;
mod checks;
mod history;
mod members;
mod nemesis;
mod porcupine;
mod power;
mod proxy;
mod report;
mod run;
mod schedule;
mod server;
mod traffic;

use std::io::Write as _;
use std::time::Duration;

use run::Plan;

#[test]
fn real_processes_under_faults() {
    if let Some(folder) = std::env::var_os("CHECK") {
        return report::judge_again(folder.as_ref());
    }
    let Some(minutes) = number("MINUTES") else {
        // Written to the handle directly: the test harness captures the macros' output of a passing test.
        let text = "skipped: robustness::real_processes_under_faults (make robustness runs it)\n";
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    };
    let members = number("MEMBERS").unwrap_or(3.0) as usize;
    assert!((3..=5).contains(&members), "MEMBERS is 3 to 5");
    let plan = Plan {
        lasts: Duration::from_secs_f64(minutes * 60.0),
        seed: number("SEED").map_or_else(|| u64::from(std::process::id()), |seed| seed as u64),
        members,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(Box::pin(run::run(plan)));
    runtime.shutdown_timeout(Duration::from_secs(5));
    report::judge(plan, outcome);
}

fn number(name: &str) -> Option<f64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
