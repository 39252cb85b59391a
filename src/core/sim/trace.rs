//! What happened in a run, as a rolling hash (two runs of one seed must agree) and, on request,
//! as lines for a person.

use std::fmt;
use std::hash::Hasher as _;

use super::clock::{MILLISECOND, Micros};

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    hash: std::hash::DefaultHasher,
    printed: bool,
    /// The last lines, kept for a failure's report.
    tail: std::collections::VecDeque<String>,
}

/// Lines that a failure's report shows.
const TAIL: usize = 60;

impl Trace {
    pub(super) fn new(printed: bool) -> Self {
        Self {
            // The default keys are fixed: the same on every run and machine of one toolchain.
            hash: std::hash::DefaultHasher::new(),
            printed,
            tail: std::collections::VecDeque::new(),
        }
    }

    pub(super) fn note(&mut self, now: Micros, line: fmt::Arguments<'_>) {
        let line = format!(
            "{:>6}.{:03} ms  {line}",
            now / MILLISECOND,
            now % MILLISECOND
        );
        self.hash.write(line.as_bytes());
        if self.printed {
            println!("{line}");
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// The last lines.
    pub fn tail(&self) -> impl Iterator<Item = &str> {
        self.tail.iter().map(String::as_str)
    }
}
