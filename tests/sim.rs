//! Runs many seeds of the simulator, or one with its trace.
//!
//! `SEEDS` (20), `SEED_BASE` (1), `FAILURES` (3), the number of failures after which to stop; `SEED=x` replays one
//! seed; `TRACE=1` prints every step of it. `make sim SEEDS=n` runs an optimized build with all assertions.

#![expect(clippy::panic, reason = "a failing seed is reported in full")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use quorate::sim::{Counters, Options, Report, run};

/// From this number of seeds on, each counter must reach its minimum.
const ENOUGH_SEEDS: u64 = 100;

#[test]
fn seeds() {
    if let Some(seed) = number("SEED") {
        return replay(seed);
    }
    let (seeds, base) = (
        number("SEEDS").unwrap_or(20),
        number("SEED_BASE").unwrap_or(1),
    );
    let most = usize::try_from(number("FAILURES").unwrap_or(3)).expect("a small number");
    let next = AtomicU64::new(base);
    let sum = Mutex::new(Counters::default());
    let failures = Mutex::new(Vec::new());
    let slowest = AtomicU64::new(0);
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= base + seeds || failures.lock().expect("unpoisoned").len() >= most {
                        break;
                    }
                    match run(seed, Options::default()) {
                        Ok(report) => {
                            assert_measure(&report);
                            sum.lock().expect("unpoisoned").add(&report.counters);
                            slowest.fetch_max(report.recovered_after, Ordering::SeqCst);
                        }
                        Err(failure) => failures.lock().expect("unpoisoned").push(failure),
                    }
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let sum = sum.into_inner().expect("unpoisoned");
    println!("{sum}");
    println!(
        "{seeds} seeds from {base} in {seconds:.1} s: {:.0} seeds a minute; slowest recovery {:.1} s of virtual time",
        seeds as f64 / seconds * 60.0,
        slowest.load(Ordering::SeqCst) as f64 / 1e6
    );
    let failures = failures.into_inner().expect("unpoisoned");
    for failure in &failures {
        println!("\n{failure}");
    }
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    if seeds >= ENOUGH_SEEDS {
        let few = sum.too_few(seeds);
        assert!(few.is_empty(), "too seldom: {}", few.join("; "));
    }
}

/// Asserts that a seed has the size that the documentation states.
fn assert_measure(report: &Report) {
    let (lasted, operations) = (report.lasted, report.counters.operations());
    let faults = report.counters.faults();
    assert!(
        lasted >= 60_000_000 && operations >= 2_000 && faults >= 20,
        "seed {}: {lasted} us, {operations} operations, {faults} faults",
        report.seed
    );
}

#[test]
fn a_seed_run_twice_gives_one_trace() {
    for seed in 1..=3 {
        let first = run(seed, Options::default()).map_err(|failure| failure.to_string());
        let second = run(seed, Options::default()).map_err(|failure| failure.to_string());
        assert_eq!(first, second, "seed {seed} is not deterministic");
    }
}

/// A disk whose syncs have no effect must be detected; otherwise the oracles detect nothing.
#[test]
fn disks_that_do_not_sync_are_detected() {
    let options = Options {
        lying_disks: true,
        ..Options::default()
    };
    let found = (1..=10).filter(|seed| run(*seed, options).is_err()).count();
    assert!(
        found >= 8,
        "only {found} of 10 seeds found out the lying disks"
    );
}

fn replay(seed: u64) {
    let trace = number("TRACE").is_none_or(|wanted| wanted != 0);
    match run(
        seed,
        Options {
            trace,
            ..Options::default()
        },
    ) {
        Ok(report) => println!(
            "seed {seed} held; trace {:x}\n{}",
            report.trace, report.counters
        ),
        Err(failure) => panic!("\n{failure}"),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
    )
}
