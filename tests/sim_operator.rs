//! The simulation of the operator: scenarios, undisturbed and disturbed. A few runs of each kind are part of the other
//! tests; `make sim-operator` runs all of them: `SEEDS` seeds from `SEED_BASE` on; `SCENARIO` selects one scenario.
//! `SEED`, with `CRASH` (such as `12:After`), `LAG` (milliseconds), `LATE` (a kind), `SECOND_LEADER` (the number of a
//! write) or `INTRUDER`, replays one run and prints its writes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quorate::opsim::{
    self, CACHED, CACHED_OF_BACKUPS, Counts, Crash, Kind, Options, Outcome, Scenario, Wrong,
};

/// A simulated API server spends most of its time allocating and freeing JSON values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The maximum delay of a stale cache, in milliseconds.
const LATE_MS: u64 = 4_000;

/// Scenarios that run with the other tests, undisturbed.
const BOUNDED: [&str; 13] = [
    "create-3",
    "operator-upgraded",
    "edited-on-the-way",
    "deleted-with-volumes",
    "paused",
    "pdb-drain",
    "volume-gone",
    "disk-empty",
    "tls-rotated",
    "nospace-freed",
    "corrupt-leader",
    "quorum-recovered",
    "backup-verified",
];

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    given(name).map(|value| {
        let number = value.parse();
        number.expect("SEED, SEEDS, SEED_BASE, LAG and SECOND_LEADER are numbers")
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

fn kind(name: &str) -> Kind {
    let mut all = CACHED.into_iter().chain(CACHED_OF_BACKUPS);
    let found = all.find(|kind| format!("{kind:?}") == name);
    found.expect("LATE is a kind that operators have a cache of")
}

/// Whether to run only the part that belongs to the other tests.
fn is_bounded() -> bool {
    given("SCENARIO").is_none() && number("SEEDS").is_none()
}

/// `SCENARIO`, or all scenarios if `SEEDS` is set; otherwise those with these names.
fn chosen(with_the_others: &[&str]) -> Vec<Scenario> {
    let wanted = given("SCENARIO");
    let all = opsim::scenarios().into_iter();
    let chosen: Vec<Scenario> = all
        .filter(|scenario| match &wanted {
            Some(wanted) => scenario.name == wanted,
            None => !is_bounded() || with_the_others.contains(&scenario.name),
        })
        .collect();
    assert!(!chosen.is_empty(), "there is no such scenario");
    chosen
}

/// The selected scenarios, with every seed.
fn jobs(with_the_others: &[&str]) -> Vec<(Scenario, u64)> {
    let each = |scenario| seeds().map(move |seed| (scenario, seed));
    chosen(with_the_others).into_iter().flat_map(each).collect()
}

fn seeds() -> std::ops::Range<u64> {
    let base = number("SEED_BASE").unwrap_or(1);
    base..base + number("SEEDS").unwrap_or(1)
}

/// Executes all jobs on two threads; returns their results in order.
fn all_of<J: Sync, T: Send>(jobs: &[J], run: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst);
                    let Some(job) = jobs.get(at) else { break };
                    let result = run(job);
                    done.lock().expect("no thread panics").insert(at, result);
                }
            });
        }
    });
    let done = done.into_inner().expect("no thread panics");
    done.into_values().collect()
}

/// Prints a failure at once, because a long test may be interrupted.
fn report(result: (Counts, Option<Wrong>)) -> (Counts, Option<Wrong>) {
    if let Some(wrong) = &result.1 {
        println!("FAILED {}: {}", wrong.replay, wrong.what);
    }
    result
}

/// Prints the sum of the runs' counts, and fails if a run failed. Returns the counts.
fn judged(what: &str, begun: Instant, done: Vec<(Counts, Option<Wrong>)>) -> Counts {
    let mut counts = Counts::default();
    for (one, _) in &done {
        counts.add(one);
    }
    println!(
        "{what}: {} runs, {} crash points, {} reconciles ({} on stale caches), {} versions coalesced, {} API requests, {} calls of members, {} writes ({} while two operators acted, {} fenced off), {} spec edits, {} judgements, {} s of virtual time in {:?}",
        counts.runs,
        counts.crash_points,
        counts.reconciles,
        counts.stale,
        counts.coalesced,
        counts.requests,
        counts.calls,
        counts.writes,
        counts.contested,
        counts.fenced,
        counts.edits,
        counts.checks,
        counts.seconds,
        begun.elapsed()
    );
    let wrong = done.iter().filter(|(_, wrong)| wrong.is_some()).count();
    assert!(wrong == 0, "{wrong} of {} runs failed", counts.runs);
    let some = [
        counts.reconciles,
        counts.requests,
        counts.calls,
        counts.writes,
    ];
    assert!(some.iter().all(|count| *count > 0), "nothing was tested");
    counts
}

/// Runs once; prints every write if `SEED` is set.
fn once(scenario: &Scenario, options: &Options) -> (Counts, Result<Outcome, Wrong>) {
    match opsim::run(scenario, options.clone()) {
        Ok(outcome) => {
            if number("SEED").is_some() {
                println!("{}: {:?}", scenario.name, outcome.counts);
                for (at, words) in &outcome.log {
                    println!("{at:>9} {words}");
                }
            }
            (outcome.counts, Ok(outcome))
        }
        Err(failed) => {
            let (failure, outcome) = *failed;
            let wrong = opsim::explain(scenario, options, &failure, &outcome);
            (outcome.counts, Err(wrong))
        }
    }
}

/// Replays one run with the parameters in the environment.
fn replayed(seed: u64) {
    let begun = Instant::now();
    let mut options = Options::calm(seed);
    options.crash = given("CRASH").map(|text| crash(&text));
    options.lag_ms = number("LAG").unwrap_or(options.lag_ms);
    options.late = given("LATE").map(|name| kind(&name));
    options.second_leader = number("SECOND_LEADER");
    options.intruder = given("INTRUDER").is_some();
    let done = all_of(&chosen(&BOUNDED), |scenario| {
        let calm = opsim::run(scenario, Options::calm(seed));
        let (counts, run) = once(scenario, &options);
        report(match (calm, run) {
            (_, Err(wrong)) => (counts, Some(wrong)),
            (Ok(calm), Ok(outcome)) if outcome.end != calm.end => {
                let what = opsim::difference(&calm.end, &outcome.end);
                let replay = scenario.name.to_owned();
                (counts, Some(Wrong { replay, what }))
            }
            _ => (counts, None),
        })
    });
    judged("replay", begun, done);
}

/// Runs without a fault, and their results. If such a run fails, the first test reports it.
fn calm(jobs: Vec<(Scenario, u64)>) -> Vec<(Scenario, u64, Outcome)> {
    let done = all_of(&jobs, |(scenario, seed)| {
        opsim::run(scenario, Options::calm(*seed))
    });
    let calm = jobs.into_iter().zip(done);
    calm.filter_map(|((scenario, seed), outcome)| Some((scenario, seed, outcome.ok()?)))
        .collect()
}

/// Runs scenarios with the disturbances that `ways` returns, each of which must end as its undisturbed run does.
fn disturbed(
    what: &str,
    with_the_others: &[&str],
    ways: impl Fn(u64, &Outcome) -> Vec<Options>,
) -> Counts {
    let begun = Instant::now();
    let calm = calm(jobs(with_the_others));
    let mut runs = Vec::new();
    for (scenario, seed, outcome) in &calm {
        let ways = ways(*seed, outcome).into_iter();
        runs.extend(ways.map(|options| (scenario, options, &outcome.end)));
    }
    let done = all_of(&runs, |(scenario, options, end)| {
        report(opsim::compare(scenario, options, end))
    });
    judged(what, begun, done)
}

#[test]
fn scenarios_end_as_they_should() {
    if let Some(seed) = number("SEED") {
        return replayed(seed);
    }
    let begun = Instant::now();
    let done = all_of(&jobs(&BOUNDED), |(scenario, seed)| {
        let (counts, run) = once(scenario, &Options::calm(*seed));
        report((counts, run.err()))
    });
    judged("scenarios", begun, done);
}

/// Caches that are seconds behind: each kind with its own delay, and each kind alone.
#[test]
fn stale_caches_change_nothing_about_the_end() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the test above
    }
    let counts = disturbed("stale caches", &["create-3"], |seed, calm| {
        let late = |kind: Option<Kind>| Options {
            lag_ms: LATE_MS,
            late: kind,
            ..Options::calm(seed)
        };
        let of_backups = calm.end.get("backups").map(|_| CACHED_OF_BACKUPS);
        let kinds = CACHED.into_iter().chain(of_backups.into_iter().flatten());
        let kinds = kinds.map(|kind| late(Some(kind)));
        let kinds = kinds.filter(|_| !is_bounded());
        std::iter::once(late(None)).chain(kinds).collect()
    });
    let some = [counts.stale, counts.coalesced];
    assert!(some.iter().all(|count| *count > 0), "nothing was stale");
}

/// Every write is disturbed in every way; with the other tests, only some writes of `create-3`.
#[test]
fn a_crash_at_any_write_converges() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the first test
    }
    let counts = disturbed("crash points", &["create-1", "create-3"], |seed, calm| {
        let writes = calm.counts.writes;
        // Seven is coprime to the number of ways, so all of them occur.
        let step = if is_bounded() && writes > 12 { 7 } else { 1 };
        opsim::crash_points(seed, writes).step_by(step).collect()
    });
    assert!(
        counts.crash_points > 0 && counts.crash_points == counts.runs,
        "a run without its crash"
    );
}

/// Objects with each cluster's labels that the operator did not create, among them pods that respond as members and
/// return false descriptions.
#[test]
fn foreign_objects_with_labels_change_nothing() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the first test
    }
    disturbed("strangers", &["create-3"], |seed, _| {
        let mut options = Options::calm(seed);
        options.intruder = true;
        vec![options]
    });
}

/// Two operators act at the same time for a while, from every write on.
#[test]
fn a_second_operator_converges() {
    if number("SEED").is_some() {
        return; // one run is replayed, by the first test
    }
    let counts = disturbed("two operators", &["create-1"], |seed, calm| {
        let ways = (1..=calm.counts.writes).map(|at| Options {
            second_leader: Some(at),
            ..Options::calm(seed)
        });
        ways.collect()
    });
    assert!(counts.contested > 0, "two operators never acted at once");
    let fenced = is_bounded() || counts.fenced > 0;
    assert!(fenced, "no operator was ever fenced off");
}
