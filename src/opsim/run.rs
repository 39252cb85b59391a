//! Runs a scenario: once, or with each write of its calm run disturbed in each way.

use std::pin::Pin;

use serde_json::Value;

use super::harness::request_faults::{Crash, lock};
use super::harness::world::{Failure, Options, World};

/// What a scenario does to a world.
pub(crate) type Script =
    for<'a> fn(&'a mut World) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// A story that an operator has to live through.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, for the command line.
    pub name: &'static str,
    /// What happens, and what has to come of it.
    pub story: &'static str,
    pub(crate) script: Script,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scenario")
            .field("name", &self.name)
            .finish()
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub runs: u64,
    /// Writes that were disturbed.
    pub crash_points: u64,
    /// Passes that began while a cache was behind the API server.
    pub stale: u64,
    /// Versions of objects that no cache showed, because a newer one came with them.
    pub coalesced: u64,
    /// Writes that were made while two operators acted.
    pub contested: u64,
    /// Changes that members refused, because a newer operator had made one.
    pub fenced: u64,
    /// Passes of operators.
    pub reconciles: u64,
    /// Requests to the API server.
    pub requests: u64,
    /// Requests to members.
    pub calls: u64,
    /// Writes, the status and events aside.
    pub writes: u64,
    /// Changes of specifications by users.
    pub edits: u64,
    /// Judgements of oracles.
    pub checks: u64,
    /// Virtual time, in seconds.
    pub seconds: u64,
}

impl Counts {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.crash_points += other.crash_points;
        self.stale += other.stale;
        self.coalesced += other.coalesced;
        self.contested += other.contested;
        self.fenced += other.fenced;
        self.reconciles += other.reconciles;
        self.requests += other.requests;
        self.calls += other.calls;
        self.writes += other.writes;
        self.edits += other.edits;
        self.checks += other.checks;
        self.seconds += other.seconds;
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was counted.
    pub counts: Counts,
    /// The end state, without what is random by design.
    pub end: Value,
    /// Each write with its time in milliseconds since the start.
    pub log: Vec<(u64, String)>,
}

/// Runs a scenario once.
///
/// # Errors
/// The first invariant that was broken, or what did not come about, with the log so far.
pub fn run(scenario: &Scenario, options: Options) -> Result<Outcome, Box<(Failure, Outcome)>> {
    block_on(async {
        let mut world = World::new(options);
        let result = (scenario.script)(&mut world).await;
        let result = result.and_then(|()| world.final_checks());
        let outcome = outcome(&world);
        match result {
            Ok(()) => Ok(outcome),
            Err(failure) => Err(Box::new((failure, outcome))),
        }
    })
}

/// Runs a world to its end, on this thread alone.
pub(super) fn block_on<T>(story: impl Future<Output = T>) -> T {
    runtime().block_on(story)
}

/// What a world runs on: this thread.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let Ok(runtime) = runtime else {
        unreachable!("a runtime without threads and sockets needs nothing of the system");
    };
    runtime
}

pub(super) fn outcome(world: &World) -> Outcome {
    let ledger = lock(&world.ledger);
    let fenced = lock(&world.servers).fenced;
    Outcome {
        counts: Counts {
            runs: 1,
            crash_points: u64::from(ledger.disturbed),
            stale: world.stale,
            coalesced: world.coalesced,
            contested: ledger.contested,
            fenced,
            reconciles: world.reconciles,
            requests: ledger.requests,
            calls: ledger.calls,
            writes: ledger.writes,
            edits: world.edits,
            checks: lock(&world.monitor.oracles).checks,
            seconds: world.ran_seconds(),
        },
        end: world.end_state(),
        log: ledger.log.clone(),
    }
}

/// What is wrong with a scenario, in words.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Which one, and how it is replayed.
    pub replay: String,
    /// What.
    pub what: String,
}

/// Runs a scenario with these options; its end has to be that of a calm run.
pub fn compare(scenario: &Scenario, options: &Options, calm: &Value) -> (Counts, Option<Wrong>) {
    match run(scenario, options.clone()) {
        Ok(outcome) if outcome.end == *calm => (outcome.counts, None),
        Ok(outcome) => {
            let what = difference(calm, &outcome.end);
            let wrong = Wrong {
                replay: replay(scenario, options),
                what: format!("it ends otherwise than without a fault: {what}"),
            };
            (outcome.counts, Some(wrong))
        }
        Err(failed) => {
            let (failure, outcome) = *failed;
            let wrong = explain(scenario, options, &failure, &outcome);
            (outcome.counts, Some(wrong))
        }
    }
}

/// Every way to disturb each write of a run that makes so many of them.
pub fn crash_points(seed: u64, writes: u64) -> impl Iterator<Item = Options> {
    let points = (1..=writes).flat_map(|at| Crash::ALL.map(|crash| (at, crash)));
    points.map(move |point| {
        let mut options = Options::calm(seed);
        options.crash = Some(point);
        options
    })
}

/// How a run is replayed.
fn replay(scenario: &Scenario, options: &Options) -> String {
    let calm = Options::calm(options.seed);
    let mut words = format!("SCENARIO={} SEED={}", scenario.name, options.seed);
    if let Some((at, crash)) = options.crash {
        words += &format!(" CRASH={at}:{crash:?}");
    }
    if options.lag_ms != calm.lag_ms {
        words += &format!(" LAG={}", options.lag_ms);
    }
    if let Some(kind) = options.late {
        words += &format!(" LATE={kind:?}");
    }
    if let Some(at) = options.second_leader {
        words += &format!(" SECOND_LEADER={at}");
    }
    if options.intruder {
        words += " INTRUDER=1";
    }
    words
}

/// The report of a failed run, with the last writes before the failure.
pub fn explain(
    scenario: &Scenario,
    options: &Options,
    failure: &Failure,
    outcome: &Outcome,
) -> Wrong {
    Wrong {
        replay: replay(scenario, options),
        what: in_words(failure, outcome),
    }
}

/// A failure with the last writes before it.
pub(super) fn in_words(failure: &Failure, outcome: &Outcome) -> String {
    let last = outcome.log.iter().rev().take(8).rev();
    let last: Vec<String> = last.map(|(at, words)| format!("{at} ms {words}")).collect();
    format!("{failure}\n  last writes: {}", last.join("; "))
}

/// Where two end states differ first, in words.
pub fn difference(one: &Value, other: &Value) -> String {
    fn walk(path: &str, one: &Value, other: &Value) -> Option<String> {
        if one == other {
            return None;
        }
        match (one, other) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                keys.into_iter().find_map(|key| {
                    let none = &Value::Null;
                    let (one, other) = (a.get(key).unwrap_or(none), b.get(key).unwrap_or(none));
                    walk(&format!("{path}.{key}"), one, other)
                })
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let mut both = a.iter().zip(b).enumerate();
                both.find_map(|(at, (one, other))| walk(&format!("{path}[{at}]"), one, other))
            }
            _ => Some(format!("{path}: {one} is {other}")),
        }
    }
    walk("", one, other).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::operator::reconcile::Rules;
    use crate::plan::{Observed, Plan, plan};

    thread_local! {
        /// When each plan of this thread's run was made.
        static PLANNED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn noted(observed: &Observed) -> Plan {
        PLANNED.with_borrow_mut(|all| all.push(observed.now_ms));
        plan(observed)
    }

    /// A reconcile acts only where what it planned from its caches is planned again from its live observation,
    /// a moment later. If time stood still between the two, a step that carries the time of its
    /// plan would be carried out here and never on a real Kubernetes.
    #[test]
    fn clock_advances_within_a_reconcile() {
        let mut options = Options::calm(1);
        options.rules = Rules {
            plan: noted,
            ..Rules::SHIPPED
        };
        let scenarios = crate::opsim::scenarios();
        let one = scenarios.iter().find(|one| one.name == "create-1");
        let outcome = run(one.expect("it is there"), options).expect("it ends well");
        let planned = PLANNED.take();
        let reconciles = usize::try_from(outcome.counts.reconciles).expect("few");
        assert!(planned.len() > reconciles, "no reconcile looked twice");
        let later = planned.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(later, "two plans at one time: {planned:?}");
    }
}
