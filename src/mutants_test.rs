//! Plants every fault and sees that it is noticed by what must notice it. `make mutants`.
//!
//! `MUTANT=name,name` plants some alone (`MUTANT=name SEED=x` one seed, with its trace);
//! `MUTANT_SEEDS` (60) is how many seeds of the simulator a fault may live through; `WRITE=1`
//! writes the table into `docs/mutants.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Seek as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::opsim;
use crate::sim::{Options, run};

use crate::mutants::{ALL, Fault, Killer, Mutant, STORY, with};

/// The page that holds the table, and the lines around it.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mutants.md");
const BEGIN: &str = "<!-- what `make mutants WRITE=1` printed -->";
const END: &str = "<!-- end of what was printed -->";
/// A test that takes longer hangs, which no oracle is named for.
const TEST_BOUND: Duration = Duration::from_secs(180);
/// Seeds of the operator's simulation that a fault may live through.
const OPERATOR_SEEDS: u64 = 5;

/// What became of one fault.
struct Outcome {
    fault: &'static Fault,
    /// What noticed it; `Err` is what happened instead.
    killed_by: Result<String, String>,
    seed: Option<u64>,
    runs: u64,
    seconds: f64,
}

#[test]
#[ignore = "takes minutes: make mutants runs it"]
fn every_mutant_is_noticed() {
    let only = std::env::var("MUTANT").ok();
    let named = |fault: &Fault, names: &str| names.split(',').any(|name| fault.name == name);
    let wanted = |fault: &&Fault| only.as_ref().is_none_or(|names| named(fault, names));
    let faults: Vec<&'static Fault> = ALL.iter().filter(wanted).collect();
    assert!(!faults.is_empty(), "no such fault: {only:?}");
    let began = Instant::now();
    let outcomes = plant_all(&faults);
    let table = table(&outcomes);
    println!("{table}");
    println!(
        "{} faults in {:.0} s on {} cores",
        outcomes.len(),
        began.elapsed().as_secs_f64(),
        cores()
    );
    if number("WRITE").is_some() && only.is_none() {
        write_page(&table);
    }
    let left = outcomes.iter().filter_map(|outcome| {
        let what = outcome.killed_by.as_ref().err()?;
        Some(format!("{}: {what}", outcome.fault.name))
    });
    let left: Vec<String> = left.collect();
    assert!(left.is_empty(), "not noticed:\n{}", left.join("\n"));
}

/// Without a fault, the tests that are named pass, and each name is that of one test.
#[test]
#[ignore = "takes minutes: make mutants runs it"]
fn named_tests_pass_without_a_mutant() {
    let named = ALL.iter().filter_map(|fault| match fault.killer {
        Killer::Test(name) => Some(name),
        Killer::Sim(_) | Killer::Operator(..) => None,
    });
    let named: BTreeSet<&str> = named.collect();
    let mut by_package: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in named {
        by_package.entry(package_of(name)).or_default().push(name);
    }
    for (package, mut arguments) in by_package {
        let count = arguments.len();
        arguments.push("--exact");
        let output = tests_of(package, &arguments, "").output();
        let text = String::from_utf8_lossy(&output.expect("it starts").stdout).into_owned();
        let expected = format!("test result: ok. {count} passed; 0 failed; 0 ignored");
        assert!(
            text.contains(&expected),
            "{package}: not {count} tests:\n{text}"
        );
    }
}

#[test]
fn each_mutant_is_at_its_place_in_the_table() {
    let mut names = BTreeMap::new();
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    for fault in ALL {
        assert!(
            names.insert(fault.name, ()).is_none(),
            "{} twice",
            fault.name
        );
        let place = format!("{}/src/{}", env!("CARGO_MANIFEST_DIR"), fault.place);
        let text = std::fs::read_to_string(&place).expect("the place is a file");
        let asks = ["{)", "{ =>"].map(|form| form.replace('{', fault.symbol));
        let planted = asks
            .iter()
            .any(|form| text.contains(&format!("mutant!({form}")));
        assert!(planted, "{place} has no mutant!({})", fault.symbol);
        let cell = format!("| `{}` |", fault.name);
        assert!(page.contains(&cell), "docs/mutants.md lacks {cell}");
    }
}

/// Where an oracle notices a fault, the same one made blind does not: it is that oracle that sees,
/// and not another of the same name.
#[test]
#[ignore = "takes minutes: make mutants runs it"]
fn a_blind_oracle_misses_what_it_noticed() {
    for (fault, blind) in [
        (Mutant::AckBeforeFsync, Mutant::BlindAcknowledged),
        (Mutant::VoteBeforeFsync, Mutant::BlindVoteDurable),
        (Mutant::WrongPrevKv, Mutant::BlindPrevKv),
        (Mutant::LeaseEarly, Mutant::BlindLeases),
        (Mutant::SkipReadRound, Mutant::BlindStaleRead),
        (Mutant::PromoteEarly, Mutant::BlindPromotion),
        (Mutant::DeadByTerm, Mutant::BlindAppliedTwice),
    ] {
        let noticed = |seed, mutants: &[Mutant]| {
            let failure = with(mutants, || run(seed, Options::default())).err();
            failure.map(|failure| failure.violation)
        };
        let seen = (1..=60).find_map(|seed| Some((seed, noticed(seed, &[fault])?)));
        let (seed, seen) = seen.expect("some seed shows it");
        let still = noticed(seed, &[fault, blind]);
        assert_ne!(still.as_ref(), Some(&seen), "{fault:?} at seed {seed}");
    }
}

fn plant_all(faults: &[&'static Fault]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let began = Instant::now();
                    let mut outcome = plant(fault);
                    outcome.seconds = began.elapsed().as_secs_f64();
                    println!("{}", row(&outcome));
                    outcomes.lock().expect("unpoisoned").push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("unpoisoned");
    outcomes.sort_by_key(|outcome| outcome.fault.mutant);
    outcomes
}

fn plant(fault: &'static Fault) -> Outcome {
    let (killed_by, seed, runs) = match fault.killer {
        Killer::Sim(oracles) => simulate(fault, oracles),
        Killer::Test(name) => (run_test(fault, name), None, 1),
        Killer::Operator(scenario, oracles) => operate(fault, scenario, oracles),
    };
    Outcome {
        fault,
        killed_by,
        seed,
        runs,
        seconds: 0.0,
    }
}

type Ran = (Result<String, String>, Option<u64>, u64);

/// Seeds until one of the oracles notices.
fn simulate(fault: &Fault, oracles: &[&str]) -> Ran {
    let (one, most) = (number("SEED"), number("MUTANT_SEEDS").unwrap_or(60));
    let trace = one.is_some();
    let first = one.unwrap_or(1);
    let last = one.unwrap_or(most);
    // What noticed it that is not named for it: how often.
    let mut others: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..=last {
        let options = Options {
            trace,
            ..Options::default()
        };
        let ran = with(&[fault.mutant], || {
            catch_unwind(AssertUnwindSafe(|| run(seed, options)))
        });
        let noticed = match ran {
            Ok(Ok(_)) => continue,
            Ok(Err(failure)) => {
                let violation = &failure.violation;
                if trace {
                    println!("{failure}");
                }
                if oracles.contains(&violation.oracle) {
                    let killed = match holds_without_a_fault(seed) {
                        true => Ok(violation.oracle.to_owned()),
                        false => Err(format!("seed {seed} fails without a fault")),
                    };
                    return (killed, Some(seed), seed - first + 1);
                }
                format!("{}: {}", violation.oracle, violation.text)
            }
            Err(panic) => format!("panic: {}", words(&*panic)),
        };
        let noticed: String = noticed.chars().take(160).collect();
        *others.entry(noticed).or_default() += 1;
    }
    let what = format!("lives through {} seeds; {others:?}", last + 1 - first);
    (Err(what), None, last + 1 - first)
}

/// What notices a wrong plan, or a server that lets an overtaken one through, in this scenario of
/// the operator's simulation. The first oracle that fails has to be one that is named.
fn operate(fault: &Fault, name: &str, oracles: &[&str]) -> Ran {
    let found = opsim::scenarios().into_iter().find(|one| one.name == name);
    let Some(scenario) = found else {
        return (Err(format!("there is no scenario {name}")), None, 0);
    };
    let planted = [fault.mutant, Mutant::LintOff];
    let first = number("SEED").unwrap_or(1);
    let last = number("SEED").unwrap_or(OPERATOR_SEEDS);
    for seed in first..=last {
        let Some((oracle, what)) = with(&planted, || failing_oracle(&scenario, seed)) else {
            continue;
        };
        let killed = if !oracles.contains(&oracle) {
            let what: String = what.chars().take(200).collect();
            Err(format!("{oracle} notices it: {what}"))
        } else if goes_well(&scenario, seed) {
            Ok(oracle.to_owned())
        } else {
            Err(format!("{name} fails without a fault at seed {seed}"))
        };
        return (killed, Some(seed), seed - first + 1);
    }
    let what = format!("lives through {} seeds of {name}", last + 1 - first);
    (Err(what), None, last + 1 - first)
}

/// Which oracle fails in a scenario, and its message.
fn failing_oracle(scenario: &opsim::Scenario, seed: u64) -> Option<(&'static str, String)> {
    let failed = opsim::run(scenario, opsim::Options::calm(seed)).err()?;
    let (failure, _) = *failed;
    let oracle = match &failure {
        opsim::Failure::Broken(violation) => violation.invariant,
        opsim::Failure::Unexpected { .. } => STORY,
    };
    Some((oracle, failure.to_string()))
}

/// Whether no oracle fails in a scenario without a fault.
fn goes_well(scenario: &opsim::Scenario, seed: u64) -> bool {
    static KNOWN: Mutex<BTreeMap<(&str, u64), bool>> = Mutex::new(BTreeMap::new());
    let key = (scenario.name, seed);
    let known = KNOWN.lock().expect("unpoisoned").get(&key).copied();
    known.unwrap_or_else(|| {
        let well = with(&[], || failing_oracle(scenario, seed).is_none());
        KNOWN.lock().expect("unpoisoned").insert(key, well);
        well
    })
}

/// Only then does a failure with one show something.
fn holds_without_a_fault(seed: u64) -> bool {
    static KNOWN: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());
    let known = KNOWN.lock().expect("unpoisoned").get(&seed).copied();
    known.unwrap_or_else(|| {
        let holds = with(&[], || run(seed, Options::default()).is_ok());
        KNOWN.lock().expect("unpoisoned").insert(seed, holds);
        holds
    })
}

/// The named test fails where the fault is planted.
#[expect(
    clippy::disallowed_methods,
    reason = "a child's end cannot be waited for with a bound"
)]
fn run_test(fault: &Fault, name: &str) -> Result<String, String> {
    // A file, because a full pipe that is not read would stop a test with much output.
    let mut output = tempfile::tempfile().map_err(|e| e.to_string())?;
    let mut child = tests_of(package_of(name), &[name, "--exact"], fault.name)
        .stdout(output.try_clone().map_err(|e| e.to_string())?)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let began = Instant::now();
    while began.elapsed() < TEST_BOUND {
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            let mut bytes = Vec::new();
            output.rewind().map_err(|e| e.to_string())?;
            output.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&bytes);
            let failed = text.contains("test result: FAILED. 0 passed; 1 failed");
            return if failed {
                Ok(name.to_owned())
            } else if text.contains("test result: ok. 1 passed") {
                Err(format!("{name} passes"))
            } else {
                Err(format!("{name} did not run: {text}"))
            };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("{name} hangs"))
}

/// The unit tests of a package, to run some of them with a fault planted.
fn tests_of(package: &str, arguments: &[&str], fault: &str) -> Command {
    let binary = UNIT_TESTS
        .get(package)
        .expect("each package has unit tests");
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .env("QUORATE_MUTANT", fault)
        .env_remove("SEED")
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::piped());
    command
}

/// The package whose unit tests contain the test of this path: its first part is a room.
fn package_of(test: &str) -> &'static str {
    let room = test.split("::").next().unwrap_or_default();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let below = |package: &str| PathBuf::from(format!("{source}/{package}/{room}")).is_dir();
    match room {
        _ if below("core") => "quorate_core",
        _ if below("planner") => "quorate_planner",
        _ => "quorate",
    }
}

/// The binary with the unit tests of each package. Cargo has built them together with this one, by the same
/// command, and knows their names.
static UNIT_TESTS: LazyLock<BTreeMap<String, PathBuf>> = LazyLock::new(|| {
    let own = std::env::current_exe().expect("a test knows its binary");
    let folder = own.ancestors().nth(2).and_then(|folder| folder.file_name());
    let profile = match folder.and_then(|name| name.to_str()).expect("below target") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "test",
            "--locked",
            "--lib",
            "--no-run",
            "--message-format=json",
        ])
        .args(["--profile", profile])
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo lists no unit tests");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let binaries = messages.filter_map(|message| {
        let path = message["executable"].as_str()?;
        Some((message["target"]["name"].as_str()?.to_owned(), path.into()))
    });
    binaries.collect()
});

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn expected(killer: Killer) -> String {
    match killer {
        Killer::Sim(oracles) => format!("simulator: {}", oracles.join(" or ")),
        Killer::Test(name) => format!("`{name}`"),
        Killer::Operator(scenario, oracles) => {
            format!(
                "operator's simulation, `{scenario}`: {}",
                oracles.join(" or ")
            )
        }
    }
}

fn row(outcome: &Outcome) -> String {
    let Outcome {
        fault,
        killed_by,
        seed,
        runs,
        seconds,
    } = outcome;
    let killed_by = match (killed_by, fault.killer) {
        (Ok(_), Killer::Test(_)) => "that test".to_owned(),
        (Ok(oracle), Killer::Sim(_) | Killer::Operator(..)) => oracle.clone(),
        (Err(what), _) => format!("SURVIVES: {what}"),
    };
    let seed = seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
    format!(
        "| `{}` | {} | {} | {} | {killed_by} | {seed} | {runs} | {seconds:.1} |",
        fault.name,
        fault.breaks.trim(),
        fault.like,
        expected(fault.killer)
    )
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| fault | what it breaks | like | must be noticed by | noticed by | seed | runs | seconds |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        // A string takes everything that is written to it.
        let _ = writeln!(text, "{}", row(outcome));
    }
    text
}

fn write_page(table: &str) {
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page marks the table");
    let (_, after) = rest.split_once(END).expect("the page marks its end");
    let page = format!("{before}{BEGIN}\n\n{table}\n{END}{after}");
    std::fs::write(PAGE, page).expect("the page can be written");
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
