//! From a checkpoint on disk to a machine. Never repairs anything.

use bytes::Bytes;

use super::{Error, files};
use crate::disk::{self, CheckpointReader, Checkpoints, Position};
use crate::node::{CheckpointMeta, StateMachine};

/// The machine restored from a checkpoint, for a member and its start. `alive` is called with every
/// chunk: reading a large checkpoint takes longer than a thread may go without a beat.
///
/// # Errors
/// A checkpoint, or a file of values that it names, that is damaged, missing or of a newer version.
pub fn restore(
    checkpoints: &Checkpoints,
    position: Position,
    (member, boot_nonce): (u64, u64),
    alive: impl Fn(),
) -> Result<StateMachine, Error> {
    let mut reader = checkpoints.open(position)?;
    let files = files(checkpoints, &reader)?;
    let unusable = |error| Error::of_restore(position, error);
    let meta = CheckpointMeta::read(reader.meta()).map_err(unusable)?;
    let mut failure = None;
    let chunks = std::iter::from_fn(|| next(&mut reader, &mut failure)).inspect(|_| alive());
    let machine = StateMachine::restore_with(member, boot_nonce, meta, files, chunks);
    if let Some(error) = failure {
        return Err(error.into());
    }
    machine.map_err(unusable)
}

fn next(reader: &mut CheckpointReader, failure: &mut Option<disk::Error>) -> Option<Bytes> {
    match reader.next_chunk() {
        Ok(chunk) => chunk,
        Err(error) => {
            *failure = Some(error);
            None
        }
    }
}
