//! Edits of the specification in the simulation of the operator. A few paths run with the other tests;
//! `make sim-operator` runs all paths of `SEEDS` seeds from `SEED_BASE` on, each of which edits every field. `SEED`
//! replays one seed and prints its writes; with `EDITS`, only one path of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quorate::opsim::{self, EditCounts, Wrong};

/// Paths of seed 1 that run with the other tests.
const BOUNDED: usize = 2;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value.map(|value| {
        value
            .parse()
            .expect("SEED, SEEDS, SEED_BASE and EDITS are numbers")
    })
}

/// Seeds and the numbers of their paths.
fn jobs() -> Vec<(u64, usize)> {
    let one = number("EDITS").map(|at| usize::try_from(at).expect("a small number"));
    let paths = || match one {
        Some(one) => one..one + 1,
        None => 0..opsim::edit_paths(),
    };
    if let Some(seed) = number("SEED") {
        return paths().map(|path| (seed, path)).collect();
    }
    let base = number("SEED_BASE").unwrap_or(1);
    match number("SEEDS") {
        Some(seeds) => (base..base + seeds)
            .flat_map(|seed| paths().map(move |path| (seed, path)))
            .collect(),
        None => (0..BOUNDED).map(|path| (1, path)).collect(),
    }
}

#[test]
fn every_way_to_a_specification_ends_alike() {
    let begun = Instant::now();
    let (jobs, next) = (jobs(), AtomicUsize::new(0));
    let verbose = number("SEED").is_some();
    let found = Mutex::new((EditCounts::default(), Vec::<Wrong>::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((seed, path)) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let (counts, wrong) = opsim::edits(*seed, *path, &mut |way, outcome| {
                        if verbose {
                            println!("path {path}, {way}: {:?}", outcome.counts);
                            for (at, words) in &outcome.log {
                                println!("{at:>9} {words}");
                            }
                        }
                    });
                    if verbose || !wrong.is_empty() {
                        println!("{}", opsim::describe_edits(*seed, *path).join("\n  "));
                    }
                    for wrong in &wrong {
                        println!("FAILED {}: {}", wrong.replay, wrong.what);
                    }
                    let mut found = found.lock().expect("no thread panics");
                    found.0.add(&counts);
                    found.1.extend(wrong);
                }
            });
        }
    });
    let (counts, wrong) = found.into_inner().expect("no thread panics");
    let all = opsim::edited_fields().len();
    println!(
        "edits: {} paths, {} edits ({} refused, {} bad, {} corrected, {} in flight, {} by scale), {} of {all} fields, {} ends compared; {} runs, {} reconciles, {} API requests, {} calls of members, {} writes, {} judgements, {} s of virtual time in {:?}",
        counts.paths,
        counts.edits,
        counts.refused,
        counts.bad,
        counts.bad_then_good,
        counts.in_flight,
        counts.scaled,
        counts.fields.len(),
        counts.compared,
        counts.runs.runs,
        counts.runs.reconciles,
        counts.runs.requests,
        counts.runs.calls,
        counts.runs.writes,
        counts.runs.checks,
        counts.runs.seconds,
        begun.elapsed()
    );
    let failed: Vec<&str> = wrong.iter().map(|wrong| wrong.replay.as_str()).collect();
    assert!(wrong.is_empty(), "{} failed: {failed:?}", wrong.len());
    let whole = number("SEEDS").is_some() && number("EDITS").is_none();
    if whole {
        assert_eq!(counts.fields.len(), all, "a field was not edited");
        assert!(counts.scaled > 0, "nothing was scaled");
    }
    if number("SEED").is_none() && number("EDITS").is_none() {
        let some = [
            counts.refused,
            counts.bad,
            counts.bad_then_good,
            counts.in_flight,
            counts.compared,
        ];
        assert!(some.iter().all(|count| *count > 0), "nothing was tested");
    }
}
