//! Our own check of a recorded history, after the run. Every change in the store has a revision, so no search is
//! needed: the watchers of the whole key space recorded all changes in order, each write belongs to its revision, and
//! each read has a revision. The check compares every response with the state at its revision, and the order of
//! revisions with real time.
//!
//! It sends no requests, and treats a failed write as one that may have been applied.

pub(crate) mod leases;
pub(crate) mod linear;
pub(crate) mod log;
pub(crate) mod rest;
#[cfg(test)]
mod tests;
pub(crate) mod watches;

use crate::history::{History, Nanos, Operation, Outcome, Request};
use log::Log;

/// A guarantee that was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the guarantee.
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}: {}", self.rule, self.text)
    }
}

/// The violations found, up to a maximum number.
#[derive(Debug, Default)]
pub(crate) struct Found(pub(crate) Vec<Violation>);

impl Found {
    const MOST: usize = 50;

    pub(crate) fn add(&mut self, rule: &'static str, text: String) {
        if self.0.len() < Self::MOST {
            self.0.push(Violation { rule, text });
        }
    }
}

/// How much the checks examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) revisions: u64,
    pub(crate) answered: u64,
    /// Operations with an unknown outcome: those that turn out to have been applied, and all of them.
    pub(crate) unknown_done: u64,
    pub(crate) unknown: u64,
    pub(crate) events: u64,
    pub(crate) bookmarks: u64,
    pub(crate) resumed: u64,
    pub(crate) compacted_watches: u64,
    pub(crate) leases_expired: u64,
}

/// Checks a whole history.
pub(crate) fn check(history: &History) -> (Looked, Vec<Violation>) {
    let mut found = Found::default();
    let mut looked = Looked::default();
    let log = Log::of(history, &mut found);
    looked.revisions = log.changes.len() as u64;
    let compactions = Compactions::of(&history.operations);
    linear::check(history, &log, &compactions, &mut looked, &mut found);
    watches::check(history, &log, &compactions, &mut looked, &mut found);
    leases::check(history, &log, &mut looked, &mut found);
    rest::check(history, &log, &mut found);
    (looked, found.0)
}

/// Up to which revision history may be compacted, and up to which it certainly is.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    /// (when it was requested, when it was acknowledged, the revision)
    all: Vec<(Nanos, Option<Nanos>, i64)>,
}

impl Compactions {
    fn of(operations: &[Operation]) -> Compactions {
        let one = |operation: &Operation| match (&operation.request, &operation.outcome) {
            (_, Outcome::Refused { .. }) => None,
            (Request::Compact { revision }, outcome) => {
                let done = matches!(outcome, Outcome::Done { .. }).then_some(operation.ended);
                Some((operation.began, done, *revision))
            }
            _ => None,
        };
        Compactions {
            all: operations.iter().filter_map(one).collect(),
        }
    }

    /// The greatest revision that may be compacted at a time.
    pub(crate) fn possible(&self, at: Nanos) -> i64 {
        let asked = self.all.iter().filter(|(began, _, _)| *began <= at);
        asked.map(|(_, _, to)| *to).max().unwrap_or(0)
    }

    /// The revision that is compacted for all requests from that time on.
    pub(crate) fn sure(&self, at: Nanos) -> i64 {
        let done = self.all.iter();
        let done = done.filter(|(_, done, _)| done.is_some_and(|done| done < at));
        done.map(|(_, _, to)| *to).max().unwrap_or(0)
    }
}
