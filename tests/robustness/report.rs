//! The verdict of a run: what was injected and recorded, whether it was enough, and whether it was correct.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::checks::{self, Looked, Violation};
use crate::history::{History, Outcome as Fate, Request};
use crate::porcupine::{self, Opinion};
use crate::run::{Outcome, Plan};
use crate::schedule::{HARD, SOFT};

/// Minimum counts: those of the first list for each whole minute of a run, those of the second for the whole run.
const LEAST_A_MINUTE: &[(&str, u64)] = &[
    ("operations answered", 500),
    ("events shown", 2_000),
    ("messages between members", 1_000),
];
const LEAST_A_RUN: &[(&str, u64)] = &[
    ("bookmarks", 10),
    ("compactions", 2),
    ("disk faults", 3),
    ("disks lost", 1),
    ("kills", 6),
    ("leader changes", 5),
    ("leases expired", 5),
    ("members joined", 2),
    ("members replaced", 1),
    ("messages delayed", 100),
    ("messages lost", 10),
    ("partitions", 6),
    ("pieces held", 6),
    ("power losses", 4),
    ("stops", 2),
    ("syncs delayed", 20),
    ("syncs failed", 1),
    ("unknown fates", 10),
    ("unsynced writes lost", 2),
    ("watches compacted", 1),
    ("watches resumed", 20),
    ("writes failed", 2),
    ("wrong clocks read", 1),
];

/// Prints the report and asserts the verdict.
pub(crate) fn judge(plan: Plan, outcome: Outcome) {
    let Outcome {
        history,
        counts,
        home,
        took,
        broken,
    } = outcome;
    history.write(&home).expect("the record is kept");
    let (looked, violations, opinion, checked) = verdict(&history, &home);
    let mut counts = counts.all();
    counts.extend(seen(&history, &looked));
    let logged = |words: &str| logs(&home, words);
    counts.insert(
        "checkpoints received".to_owned(),
        logged("receiving a checkpoint"),
    );
    let mut complaints: Vec<String> = broken.into_iter().collect();
    complaints.extend(violations.iter().map(ToString::to_string));
    complaints.extend(second(&opinion));
    if complaints.is_empty() {
        complaints.extend(missing(&counts, plan.lasts));
    }
    println!(
        "robustness: seed {}, {} members, {:.0} s, judged in {:.1} s",
        plan.seed,
        plan.members,
        took.as_secs_f64(),
        checked.as_secs_f64()
    );
    for (what, number) in &counts {
        println!("  {number:>9}  {what}");
    }
    print(&opinion);
    if complaints.is_empty() {
        let _ = std::fs::remove_dir_all(&home);
        return;
    }
    let text = complaints.join("\n");
    panic!(
        "{text}\nthe record and the logs are kept in {}",
        home.display()
    );
}

/// Checks a stored record again.
pub(crate) fn judge_again(folder: &Path) {
    let history = History::read(folder).expect("a record");
    let (looked, violations, opinion, _) = verdict(&history, folder);
    println!("{looked:?}");
    print(&opinion);
    let complaints: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let complaints = [complaints, second(&opinion)].concat();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

type Judged = Result<Option<Opinion>, String>;

fn verdict(history: &History, folder: &Path) -> (Looked, Vec<Violation>, Judged, Duration) {
    let begun = Instant::now();
    let (looked, violations) = checks::check(history);
    let opinion = porcupine::opinion(folder);
    (looked, violations, opinion, begun.elapsed())
}

fn second(opinion: &Judged) -> Vec<String> {
    match opinion {
        Ok(Some(opinion)) if !opinion.illegal.is_empty() => {
            vec![format!(
                "porcupine: no order explains {:?}",
                opinion.illegal
            )]
        }
        // Undecided histories are printed; if fewer than half are decided, the check fails.
        Ok(Some(opinion)) if opinion.ok * 2 < opinion.histories => {
            vec![format!("porcupine: undecided {:?}", opinion.unknown)]
        }
        Ok(_) => Vec::new(),
        Err(text) => vec![text.clone()],
    }
}

fn print(opinion: &Judged) {
    match opinion {
        Ok(Some(opinion)) => println!(
            "  porcupine: {} operations in {} histories: {} right, {} wrong, {} undecided {:?}; the longest took {:.1} s",
            opinion.operations,
            opinion.histories,
            opinion.ok,
            opinion.illegal.len(),
            opinion.unknown.len(),
            opinion.unknown,
            opinion.longest_seconds
        ),
        Ok(None) => {
            println!("  porcupine: skipped, it was not built (tests/interop/porcupine/build.sh)")
        }
        Err(text) => println!("  porcupine: {text}"),
    }
}

fn seen(history: &History, looked: &Looked) -> BTreeMap<String, u64> {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |what: &str, number| *seen.entry(what.to_owned()).or_default() += number;
    for operation in &history.operations {
        let compacts = matches!(operation.request, Request::Compact { .. });
        match operation.outcome {
            Fate::Done { .. } if compacts => add("compactions", 1),
            Fate::Refused { .. } => add("operations refused", 1),
            _ => {}
        }
    }
    add("operations", history.operations.len() as u64);
    add("operations answered", looked.answered);
    add("unknown fates", looked.unknown);
    add("unknown fates that were done", looked.unknown_done);
    add("revisions", looked.revisions);
    add("watches", history.watches.len() as u64);
    add("watches resumed", looked.resumed);
    add("watches compacted", looked.compacted_watches);
    add("events shown", looked.events);
    add("bookmarks", looked.bookmarks);
    add("leases expired", looked.leases_expired);
    seen
}

fn logs(home: &Path, words: &str) -> u64 {
    let Ok(files) = std::fs::read_dir(home) else {
        return 0;
    };
    let logs = files.flatten().map(|file| file.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let found = logs.map(|path| {
        let log = std::fs::read_to_string(path).unwrap_or_default();
        log.lines().filter(|line| line.contains(words)).count() as u64
    });
    found.sum()
}

/// The counts that are below their minimum.
fn missing(counts: &BTreeMap<String, u64>, lasts: Duration) -> Vec<String> {
    let minutes = lasts.as_secs() / 60;
    let often = LEAST_A_MINUTE.iter();
    let often = often.map(|(what, least)| ((*what).to_owned(), least * minutes));
    let once = LEAST_A_RUN
        .iter()
        .map(|(what, least)| ((*what).to_owned(), *least));
    let hard = HARD.iter().map(|fault| (format!("fault {fault:?}"), 1));
    let soft = SOFT.iter().map(|fault| (format!("fault {fault:?}"), 1));
    let wanted = often.chain(once).chain(hard).chain(soft);
    let short = wanted.filter_map(|(what, least)| {
        let there = counts.get(&what).copied().unwrap_or(0);
        (there < least)
            .then(|| format!("too few events: {there} {what}, at least {least} required"))
    });
    short.collect()
}
