//! From the one member that is left of a cluster to the standby that founds the next one, by a file without a name.
//! Never changes that member.

use std::path::PathBuf;

use super::download::{nameless, ready};
use super::{Sent, Target, deliver};
use crate::backup::Error;
use crate::backup::source::Survivor;

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
        fetched.sign(&file, &self.scratch)?;
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
}
