//! Edits of the specification, of every field: values that work, that are refused, that are taken
//! and do not work until they are corrected, in any order and in the middle of each other's work.
//! Whatever the way, the end is the one of a cluster that was edited straight to the last
//! specification, and of one that was made with it.

mod fields;
#[cfg(test)]
mod leaves;
mod path;
mod state;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;

use super::harness::world::{Failure, Options, World};
use super::run::{self, Counts, Outcome, Wrong, difference};
use path::Path;
use walk::Way;

/// What was counted of edits.
#[derive(Clone, Debug, Default)]
pub struct EditCounts {
    /// What runs counted.
    pub runs: Counts,
    /// Paths.
    pub paths: u64,
    /// Edits that were tried.
    pub edits: u64,
    /// Those that were refused, as they had to be.
    pub refused: u64,
    /// Those that were taken and could not work.
    pub bad: u64,
    /// Those that corrected such a one.
    pub bad_then_good: u64,
    /// Those that met a cluster that was not at rest.
    pub in_flight: u64,
    /// Those through the scale subresource.
    pub scaled: u64,
    /// End states that were compared.
    pub compared: u64,
    /// Fields that were edited.
    pub fields: BTreeSet<&'static str>,
    /// Fields whose value does not work now.
    open: BTreeSet<&'static str>,
}

impl EditCounts {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        self.runs.add(&other.runs);
        self.paths += other.paths;
        self.edits += other.edits;
        self.refused += other.refused;
        self.bad += other.bad;
        self.bad_then_good += other.bad_then_good;
        self.in_flight += other.in_flight;
        self.scaled += other.scaled;
        self.compared += other.compared;
        self.fields.extend(&other.fields);
    }
}

/// Every field that is edited, what stands beside the specification included.
pub fn edited_fields() -> Vec<&'static str> {
    let fields = fields::all().into_iter().map(|field| field.path);
    fields.chain(path::BESIDE).collect()
}

/// How many paths of one seed edit every field.
pub fn edit_paths() -> usize {
    path::of_a_seed()
}

/// One path of a seed in words.
pub fn describe_edits(seed: u64, number: usize) -> Vec<String> {
    let path = path::path(seed, number);
    let mut words = vec![format!("begins with {}", path.first)];
    words.extend(path.edits.iter().map(|edit| format!("{edit:?}")));
    words
}

/// Walks one path of a seed, and the straight ways to its end. `log` takes each write of each way.
pub fn edits(
    seed: u64,
    number: usize,
    log: &mut dyn FnMut(&str, &Outcome),
) -> (EditCounts, Vec<Wrong>) {
    let path = path::path(seed, number);
    let mut counts = EditCounts {
        paths: 1,
        ..EditCounts::default()
    };
    let mut wrong = Vec::new();
    let mut ends: Vec<(Way, Value)> = Vec::new();
    for way in [Way::Edits, Way::Straight, Way::Made] {
        let (result, outcome, end) = walk(seed, &path, way, &mut counts);
        counts.runs.add(&outcome.counts);
        log(&format!("{way:?}"), &outcome);
        let replay = format!("SEED={seed} EDITS={number}");
        if let Err(failure) = result {
            let what = format!("{way:?}: {}", run::in_words(&failure, &outcome));
            wrong.push(Wrong { replay, what });
            continue;
        }
        if let Some((first, known)) = ends.first() {
            counts.compared += 1;
            if *known != end {
                let what = difference(known, &end);
                let what = format!("{first:?} ends otherwise than {way:?}: {what}");
                wrong.push(Wrong { replay, what });
            }
        }
        ends.push((way, end));
    }
    (counts, wrong)
}

fn walk(
    seed: u64,
    path: &Path,
    way: Way,
    counts: &mut EditCounts,
) -> (Result<(), Failure>, Outcome, Value) {
    run::block_on(async {
        let mut world = World::new(Options::calm(seed));
        let result = walk::go(&mut world, path, way, counts).await;
        let result = result.and_then(|()| world.final_checks());
        let end = state::of(&world);
        (result, run::outcome(&world), end)
    })
}
