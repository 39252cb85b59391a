//! Our own check of a recorded history, after the run. The store numbers its changes, so no search is needed: all
//! changes in order are known from the watchers of everything, each write belongs to its revision, and each read has a
//! revision. What remains is to compare every answer with the state at its revision, and revisions with real time.
//!
//! Never talks to a server, and never takes a failed write for one that did not happen.

pub(crate) mod leases;
pub(crate) mod linear;
pub(crate) mod log;
pub(crate) mod rest;
#[cfg(test)]
mod tests;
pub(crate) mod watches;

use crate::history::{History, Nanos, Operation, Outcome, Request};
use log::Log;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which promise.
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}: {}", self.rule, self.text)
    }
}

/// Violations as they are found; only so many are kept.
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

/// What the checks looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) revisions: u64,
    pub(crate) answered: u64,
    /// Operations of unknown fate that turn out to have been carried out, and all of them.
    pub(crate) unknown_done: u64,
    pub(crate) unknown: u64,
    pub(crate) events: u64,
    pub(crate) bookmarks: u64,
    pub(crate) resumed: u64,
    pub(crate) compacted_watches: u64,
    pub(crate) leases_expired: u64,
}

/// Judges a whole history.
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

/// How far history may be gone, and how far it is gone for sure.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    /// (when it was asked for, when it was acknowledged, up to)
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

    /// The most that can be gone at a time.
    pub(crate) fn possible(&self, at: Nanos) -> i64 {
        let asked = self.all.iter().filter(|(began, _, _)| *began <= at);
        asked.map(|(_, _, to)| *to).max().unwrap_or(0)
    }

    /// What is gone for all requests from that time on.
    pub(crate) fn sure(&self, at: Nanos) -> i64 {
        let done = self.all.iter();
        let done = done.filter(|(_, done, _)| done.is_some_and(|done| done < at));
        done.map(|(_, _, to)| *to).max().unwrap_or(0)
    }
}
