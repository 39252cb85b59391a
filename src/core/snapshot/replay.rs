//! A database and the entries of the log behind it: the state machine, as shipped, applies them. So leases, users and
//! history are those of the member that applied the same entries.
//!
//! Never skips an entry, and never decides where to stop. Holds the data in memory.

use std::sync::Arc;

use super::{Contents, Error, import};
use crate::bolt::Source;
use crate::node::{Membership, Outcome, StateMachine};
use crate::store::{self, Revision};

pub use crate::raft::{Entry, Position};

/// Records that a compaction freed, and that are given back after each entry.
const RECLAIM: usize = 10_000;

/// A state that goes on.
#[derive(Debug)]
pub struct Replay {
    machine: StateMachine,
}

/// Why a state does not go on with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// It is not the next one.
    #[error("entry {found} does not follow entry {at}")]
    Order {
        /// The last entry that was applied.
        at: Position,
        /// The entry.
        found: Position,
    },
    /// The cluster followed another one then, which no snapshot says.
    #[error(
        "at entry {index} the cluster followed cluster {cluster:x}: restore from a backup that was taken after the cutover"
    )]
    Followed {
        /// The entry.
        index: u64,
        /// The cluster that was followed.
        cluster: u64,
    },
    /// It cannot be applied.
    #[error(transparent)]
    Entry(#[from] crate::node::ApplyError),
}

impl Replay {
    /// Begins with a database that was saved after the entry `at` was applied.
    ///
    /// # Errors
    /// A database that cannot be restored.
    pub fn begin<S: Source>(source: S, at: Position) -> Result<Replay, Error> {
        let view = import(source, 0)?.store.publish();
        // The members of the saved cluster are those of no other one, and no entry about them changes data.
        let membership = Arc::new(Membership::default());
        let machine = StateMachine::continued(&view, membership, (at.index, at.term));
        Ok(Replay { machine })
    }

    /// Whether an entry, by its index and the term before it, is the next one.
    ///
    /// # Errors
    /// [`Discontinuity::Order`].
    pub fn follows(&self, first: u64, term_before: u64) -> Result<(), Discontinuity> {
        let at = self.at();
        match (first, term_before) == (at.index + 1, at.term) {
            true => Ok(()),
            false => Err(Discontinuity::Order {
                at,
                found: Position {
                    index: first,
                    term: term_before,
                },
            }),
        }
    }

    /// Applies the next entry.
    ///
    /// # Errors
    /// It is not the next one, or this version does not know it.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Discontinuity> {
        let at = self.at();
        if entry.index != at.index + 1 || entry.term < at.term {
            return Err(Discontinuity::Order {
                at,
                found: entry.position(),
            });
        }
        let applied = self.machine.apply(entry)?;
        if let Outcome::Store(Err(store::Error::NotFollowed { cluster })) = applied.outcome {
            let index = entry.index;
            return Err(Discontinuity::Followed { index, cluster });
        }
        // Nobody waits for the answers.
        self.machine.take_report();
        self.machine.reclaim(RECLAIM);
        Ok(())
    }

    /// The last entry that was applied.
    #[must_use]
    pub fn at(&self) -> Position {
        Position {
            index: self.machine.index(),
            term: self.machine.term(),
        }
    }

    /// Revision of the data.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.machine.view().revision()
    }

    /// What a database of it contains: everything but the members.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents {
            view: self.machine.view(),
            membership: Arc::clone(self.machine.membership()),
            index: self.machine.index(),
            term: self.machine.term(),
        }
    }
}
