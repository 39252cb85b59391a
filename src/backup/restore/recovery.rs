//! From the one member that is left of a cluster to the standby that founds the next one, by a file without a name.
//! Never changes that member.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::download::{nameless, ready};
use super::{Sent, Target, deliver};
use crate::backup::Error;
use crate::backup::source::{Fetched, Survivor};

/// Whose data are recovered, and where they go.
#[derive(Debug)]
pub struct Recovery {
    /// Whose they are.
    pub survivor: Survivor,
    /// A directory for the snapshot, which needs as many bytes as it has.
    pub scratch: PathBuf,
    /// Who gets them.
    pub target: Target,
}

impl Recovery {
    /// Recovers. A second run reads the member again: what the standby has already is sent again only if the member's
    /// log has grown meanwhile.
    ///
    /// # Errors
    /// [`Error::Source`] and [`Error::Snapshot`] of the member, [`Error::Target`] if the standby takes no snapshot,
    /// [`Error::TargetFull`] if it has no room for it; those of the file.
    pub async fn run(&self) -> Result<Sent, Error> {
        // Nothing is read for a standby that takes nothing.
        self.target.wait().await?;
        std::fs::create_dir_all(&self.scratch).map_err(Error::file(&self.scratch))?;
        let file = nameless(&self.scratch)?;
        let fetched = self.survivor.fetch(&file, &self.scratch).await?;
        self.sign(&file, &fetched)?;
        let name = format!("member {}", self.survivor.disk_uuid);
        let sent = async {
            let snapshot = ready(&name, &self.scratch, file, None).await?;
            deliver(&self.target, snapshot, &name).await
        };
        sent.await.map_err(|error| match error {
            Error::Damaged { what, .. } => Error::Snapshot {
                endpoint: fetched.endpoint,
                what,
            },
            error => error,
        })
    }

    /// Puts the digest behind the database, as `etcdctl snapshot save` does.
    fn sign(&self, file: &File, fetched: &Fetched) -> Result<(), Error> {
        let digits = fetched.sha256.as_bytes().chunks(2);
        let digest: Vec<u8> = digits
            .filter_map(|byte| u8::from_str_radix(std::str::from_utf8(byte).ok()?, 16).ok())
            .collect();
        let written = file.write_all_at(&digest, fetched.length);
        written.map_err(Error::file(&self.scratch))
    }
}
