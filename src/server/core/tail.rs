//! The end of a log that no quorum has confirmed, applied to a state apart from the member's own: what is left of a
//! cluster whose quorum is lost. Reads the log and changes nothing of the member.
//!
//! An entry that a client was told is stored may be here without this member knowing that it is committed. One that
//! nobody was told of may be kept as well: its client saw an unknown outcome.

use std::sync::Arc;

use super::handle::Published;
use crate::disk::{self, LogReader};
use crate::node::{ApplyError, StateMachine, UnknownEntry};
use crate::store::DamagedValue;

/// Bytes of entries that are in memory at once.
const BATCH: u64 = 4 << 20;

/// Why the end of the log cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum TailError {
    /// The log cannot be read, or no longer holds what it did.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// A leader has replaced what was read.
    #[error("the end of the log was replaced while it was read")]
    Replaced,
    /// An entry of a newer version.
    #[error(transparent)]
    Entry(#[from] UnknownEntry),
    /// A value that an entry needs is damaged.
    #[error("a value cannot be read: {0}")]
    Value(DamagedValue),
}

impl From<ApplyError> for TailError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Entry(unknown) => Self::Entry(unknown),
            ApplyError::Value { value, .. } => Self::Value(value),
        }
    }
}

/// Applies what the log holds behind the machine's index.
pub(in crate::server) fn apply_tail(
    machine: &mut StateMachine,
    log: &LogReader,
) -> Result<(), TailError> {
    let last = log.last();
    while machine.index() < last.index {
        let entries = log.read(machine.index() + 1, last.index + 1, BATCH)?;
        continues(machine, log)?;
        for entry in entries {
            machine.apply(&entry)?;
        }
        // Nobody waits for the answers.
        machine.take_report();
    }
    continues(machine, log)
}

/// Whether the log still holds what was applied so far: one read is of one log, and a leader may have replaced its end
/// between two.
fn continues(machine: &StateMachine, log: &LogReader) -> Result<(), TailError> {
    match log.shape().term(machine.index()) {
        Some(term) if term != machine.term() => Err(TailError::Replaced),
        None if machine.index() > log.last().index => Err(TailError::Replaced),
        // Below the log's first entry it is in the checkpoint.
        _ => Ok(()),
    }
}

/// A published state with the end of the log. Shares with it what the entries do not change.
pub(in crate::server) fn with_tail(
    published: &Published,
    log: &LogReader,
) -> Result<Published, TailError> {
    let membership = Arc::clone(&published.membership);
    let at = (published.applied, published.term);
    let mut machine = StateMachine::continued(&published.view, membership, at);
    apply_tail(&mut machine, log)?;
    Ok(Published {
        view: machine.view(),
        membership: Arc::clone(machine.membership()),
        applied: machine.index(),
        term: machine.term(),
    })
}
