//! The simulation of the operator: scenarios, crash points and stale caches. A few scenarios run
//! with the other tests; `make sim-operator` runs all of it: `SEEDS` seeds from `SEED_BASE`,
//! `SCENARIO` chooses one. `SEED`, with `CRASH` (such as `12:After`) or `LAG` (milliseconds),
//! replays one run and tells its writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quorate::opsim::{self, Counts, Crash, Options, Scenario, Wrong};

/// Scenarios that run with the other tests, undisturbed.
const BOUNDED: [&str; 6] = [
    "create-3",
    "edited-on-the-way",
    "deleted-with-volumes",
    "paused",
    "volume-gone",
    "disk-empty",
];

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    given(name).map(|value| {
        let number = value.parse();
        number.expect("SEED, SEEDS, SEED_BASE and LAG are numbers")
    })
}

fn crash(text: &str) -> (u64, Crash) {
    let (at, how) = text.split_once(':').expect("CRASH is such as 12:After");
    let found = Crash::ALL
        .into_iter()
        .find(|crash| format!("{crash:?}") == how);
    let at = at.parse().expect("a number of a write");
    (at, found.expect("Before, After or ReplyLost"))
}

/// `SCENARIO`, or all where `SEEDS` asks for them; with the other tests those of these names.
fn chosen(with_the_others: &[&str]) -> Vec<Scenario> {
    let wanted = given("SCENARIO");
    let all = opsim::scenarios().into_iter();
    let bounded = wanted.is_none() && number("SEEDS").is_none();
    let chosen: Vec<Scenario> = all
        .filter(|scenario| match &wanted {
            Some(wanted) => scenario.name == wanted,
            None => !bounded || with_the_others.contains(&scenario.name),
        })
        .collect();
    assert!(!chosen.is_empty(), "there is no such scenario");
    chosen
}

/// What is chosen, with every seed.
fn jobs(with_the_others: &[&str]) -> Vec<(Scenario, u64)> {
    let each = |scenario| seeds().map(move |seed| (scenario, seed));
    chosen(with_the_others).into_iter().flat_map(each).collect()
}

fn seeds() -> std::ops::Range<u64> {
    let base = number("SEED_BASE").unwrap_or(1);
    base..base + number("SEEDS").unwrap_or(1)
}

/// Does all the jobs on two threads, and tells what they counted.
fn all_of<J: Sync>(what: &str, jobs: &[J], run: impl Fn(&J) -> (Counts, Vec<Wrong>) + Sync) {
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let found = Mutex::new((Counts::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let (counts, wrong) = run(job);
                    let mut found = found.lock().expect("no thread panics");
                    found.0.add(&counts);
                    found.1.extend(wrong);
                }
            });
        }
    });
    let (counts, wrong) = found.into_inner().expect("no thread panics");
    println!(
        "{what}: {} runs, {} crash points, {} passes, {} API requests, {} calls of members, {} writes, {} spec edits, {} judgements, {} s of virtual time in {:?}",
        counts.runs,
        counts.crash_points,
        counts.passes,
        counts.requests,
        counts.calls,
        counts.writes,
        counts.edits,
        counts.checks,
        counts.seconds,
        begun.elapsed()
    );
    for wrong in &wrong {
        println!("FAILED {}: {}", wrong.replay, wrong.what);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} runs failed",
        wrong.len(),
        counts.runs
    );
    let some = [
        counts.runs,
        counts.passes,
        counts.requests,
        counts.calls,
        counts.writes,
    ];
    assert!(some.iter().all(|count| *count > 0), "nothing was tested");
}

/// Runs once; with `SEED` given, tells every write.
fn once(scenario: &Scenario, options: Options) -> (Counts, Vec<Wrong>) {
    let (seed, crash) = (options.seed, options.crash);
    let lag = options.lag_ms;
    match opsim::run(scenario, options) {
        Ok(outcome) => {
            if number("SEED").is_some() {
                println!("{}: {:?}", scenario.name, outcome.counts);
                for (at, words) in &outcome.log {
                    println!("{at:>9} {words}");
                }
            }
            (outcome.counts, Vec::new())
        }
        Err(failed) => {
            let (failure, outcome) = *failed;
            let mut wrong = opsim::told(scenario, seed, crash, &failure, &outcome);
            if lag > 100 {
                wrong.replay += &format!(" LAG={lag}");
            }
            (outcome.counts, vec![wrong])
        }
    }
}

#[test]
fn scenarios_end_as_they_should() {
    if let Some(seed) = number("SEED") {
        let mut options = Options::calm(seed);
        options.crash = given("CRASH").map(|text| crash(&text));
        options.lag_ms = number("LAG").unwrap_or(options.lag_ms);
        return all_of("replay", &chosen(&BOUNDED), |scenario| {
            once(scenario, options.clone())
        });
    }
    all_of("scenarios", &jobs(&BOUNDED), |(scenario, seed)| {
        once(scenario, Options::calm(*seed))
    });
}

/// Caches that are seconds behind, each kind by its own time.
#[test]
fn stale_caches_break_nothing() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the test above
    }
    all_of("stale caches", &jobs(&["create-3"]), |(scenario, seed)| {
        let mut options = Options::calm(*seed);
        options.lag_ms = 4_000;
        once(scenario, options)
    });
}

/// Every write is disturbed in every way.
#[test]
fn a_crash_at_any_write_changes_nothing_about_the_end() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the first test
    }
    all_of("crash points", &jobs(&["create-1"]), |(scenario, seed)| {
        opsim::crash_points(scenario, *seed, |_, _| true)
    });
}
