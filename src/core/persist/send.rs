//! A checkpoint on disk as the stream that other members receive: every value in it, whatever files the sender has
//! them in. With one chunk and one value in memory at a time.

use bytes::Bytes;

use super::{Error, files};
use crate::disk::{CheckpointInfo, CheckpointReader, Checkpoints, Position};
use crate::mutants::mutant;
use crate::store::Inline;

/// A checkpoint that is being read, with the values of its files in their places.
#[derive(Debug)]
pub struct WholeCheckpoint {
    reader: CheckpointReader,
    /// `None`: all values are in the checkpoint already, or the end was reached.
    inline: Option<Inline>,
}

impl WholeCheckpoint {
    /// Opens a checkpoint and its files. They stay readable if they are removed meanwhile.
    ///
    /// # Errors
    /// As [`Checkpoints::open`].
    pub fn open(checkpoints: &Checkpoints, position: Position) -> Result<Self, Error> {
        let reader = checkpoints.open(position)?;
        let files = files(checkpoints, &reader)?;
        Ok(Self {
            reader,
            inline: (!files.is_empty() && !mutant!(PlacesSent)).then(|| Inline::new(files)),
        })
    }

    /// What the node wrote in addition to the chunks.
    pub fn meta(&self) -> &Bytes {
        self.reader.meta()
    }

    /// What is known of the checkpoint's own file.
    pub fn info(&self) -> CheckpointInfo {
        self.reader.info()
    }

    /// The next chunk of the stream, `None` after the last one.
    ///
    /// # Errors
    /// Anything that differs from what was written.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let position = self.info().position;
        let of_store = |error| Error::of_store(position, error);
        loop {
            let Some(inline) = &mut self.inline else {
                return Ok(self.reader.next_chunk()?);
            };
            if let Some(chunk) = inline.next_chunk().map_err(of_store)? {
                return Ok(Some(chunk));
            }
            if let Some(chunk) = self.reader.next_chunk()? {
                inline.push(&chunk);
                continue;
            }
            let last = self.inline.take().map(Inline::finish);
            return last.transpose().map(Option::flatten).map_err(of_store);
        }
    }
}
