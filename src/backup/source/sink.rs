//! The file that a snapshot is written into, with its digest, not faster than was asked for.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::backup::{Error, hex};

pub(super) struct Sink<'a> {
    file: &'a File,
    place: &'a Path,
    /// Bytes a second at most.
    rate: Option<u64>,
    /// The first byte: what a member does before is no reason to hurry afterwards.
    begun: Option<Instant>,
    digest: Sha256,
    length: u64,
}

/// What was written.
pub(super) struct Written {
    pub(super) length: u64,
    pub(super) sha256: String,
}

impl Sink<'_> {
    /// Empties the file, which errors name by `place`.
    pub(super) fn new<'a>(
        mut file: &'a File,
        place: &'a Path,
        rate: Option<u64>,
    ) -> Result<Sink<'a>, Error> {
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.map_err(Error::file(place))?;
        Ok(Sink {
            file,
            place,
            rate,
            begun: None,
            digest: Sha256::new(),
            length: 0,
        })
    }

    /// Writes; waits while it is ahead of the rate.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.digest.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(Error::file(self.place))?;
        self.length += bytes.len() as u64;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.length as f64 / rate as f64);
            tokio::time::sleep_until(begun + due).await;
        }
        Ok(())
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Ends; `digest` is what the member says of the bytes.
    pub(super) fn finish(self, digest: &[u8], endpoint: &str) -> Result<Written, Error> {
        let found = self.digest.finalize();
        if *digest != *found {
            return Err(Error::Snapshot {
                endpoint: endpoint.to_owned(),
                what: format!("its SHA-256 is not that of its {} bytes", self.length),
            });
        }
        Ok(Written {
            length: self.length,
            sha256: hex(&found),
        })
    }
}
