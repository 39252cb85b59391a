//! A checkpoint that comes from a leader, chunk by chunk, to the disk: with its values in a file of their own if this member
//! has such files. With one chunk in memory at a time, so that data larger than memory can be received.
//!
//! Never judges whether the sender may send it, and never starts from it.

use crate::disk::{CheckpointInfo, CheckpointWriter, Position, ValueWriter};
use crate::store::{self, Outline};

use super::{Error, Saver};

/// A checkpoint that is being received. Dropping it unfinished removes what there is of it.
#[derive(Debug)]
pub struct ReceivedCheckpoint {
    position: Position,
    out: CheckpointWriter,
    /// `None`: it is stored as it comes.
    values: Option<(Outline, ValueWriter)>,
    chunks: u64,
}

impl Saver {
    /// Begins to receive a checkpoint. `spare`: so many bytes of the volume stay free, since the sender determines the size,
    /// and must not use the space that the log needs meanwhile.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn receive(
        &self,
        position: Position,
        meta: &[u8],
        spare: u64,
    ) -> Result<ReceivedCheckpoint, Error> {
        let values = match self.to_files() {
            None => None,
            Some(from) => {
                let writer = self.checkpoints().values().begin()?.leaving(spare);
                Some((Outline::new(writer.number(), from), writer))
            }
        };
        let files: Vec<u64> = values.iter().map(|(_, writer)| writer.number()).collect();
        let out = self
            .checkpoints()
            .begin_with(position, (meta, &files), true)?;
        Ok(ReceivedCheckpoint {
            position,
            out: out.leaving(spare),
            values,
            chunks: 0,
        })
    }
}

impl ReceivedCheckpoint {
    /// Takes the next chunk.
    ///
    /// # Errors
    /// Those of the disk; a chunk that continues no stream.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.chunks += 1;
        let Some((outline, writer)) = &mut self.values else {
            return Ok(self.out.chunk(chunk)?);
        };
        outline.push(chunk);
        while let Some(chunk) = next(self.position, outline, writer)? {
            self.out.chunk(&chunk)?;
        }
        Ok(())
    }

    /// How many chunks were received.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Ends it. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk; a stream that ends early.
    pub fn finish(mut self) -> Result<CheckpointInfo, Error> {
        // Held open until the checkpoint names it: until then it would be removed as unused.
        let mut file = None;
        if let Some((outline, writer)) = self.values {
            let last = outline.finish();
            if let Some(chunk) = last.map_err(|error| Error::of_store(self.position, error))? {
                self.out.chunk(&chunk)?;
            }
            file = Some(writer.finish()?);
        }
        let info = self.out.finish()?;
        drop(file);
        Ok(info)
    }
}

fn next(
    position: Position,
    outline: &mut Outline,
    writer: &mut ValueWriter,
) -> Result<Option<bytes::Bytes>, Error> {
    let chunk = outline.next_chunk(|value| writer.put(value).map_err(Failure::Disk));
    chunk.map_err(|failure| match failure {
        Failure::Disk(error) => error.into(),
        Failure::Stream(error) => Error::of_store(position, error),
    })
}

/// Why the stream does not go on.
enum Failure {
    Disk(crate::disk::Error),
    Stream(store::Error),
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Failure::Stream(error)
    }
}
