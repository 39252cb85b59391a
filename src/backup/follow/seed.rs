//! The first data of a cluster that follows another one: a snapshot of that one, sent to the standby as a restore sends a
//! backup. Never founds a cluster.

use std::path::PathBuf;

use super::origin::Origin;
use super::{Error, Failed};
use crate::backup::restore::{Sent, Target, deliver, nameless, ready};
use crate::backup::source::{Access, Clients, Source};
use crate::wire::member::StagedSnapshot;

/// What is sent, and where to.
#[derive(Debug)]
pub struct Seed {
    /// The cluster that is to be followed.
    pub from: Clients,
    /// Bytes a second at most that a member of ours writes and sends for this.
    pub rate: Option<u64>,
    /// A directory for the snapshot, which needs as many bytes as it has.
    pub scratch: PathBuf,
    /// Who gets it.
    pub target: Target,
}

impl Seed {
    /// Sends a snapshot, unless the standby has one of a living cluster already: it may be about to found its cluster
    /// from it, and what was written since comes by the watch.
    ///
    /// # Errors
    /// [`Error::Source`] and [`Error::Snapshot`] of the followed cluster, [`Error::Target`] if the standby takes no
    /// snapshot, [`Error::TargetFull`] if it has no room for it; those of the file.
    pub async fn run(&self) -> Result<Sent, Error> {
        let there = self.target.wait().await?;
        if let Some(staged) = there.filter(|it| it.complete)
            && self.leads_on(&staged).await?
        {
            return Ok(Sent {
                sha256: staged.sha256,
                size: staged.length,
                revision: staged.revision,
                keys: staged.keys,
                moment: None,
            });
        }
        std::fs::create_dir_all(&self.scratch).map_err(Error::file(&self.scratch))?;
        let file = nameless(&self.scratch)?;
        let source = Source {
            access: Access::Clients(self.from.clone()),
            rate: self.rate,
        };
        let fetched = source.fetch(&file, &self.scratch).await?;
        fetched.sign(&file, &self.scratch)?;
        let name = format!("the snapshot of {}", fetched.endpoint);
        let mut snapshot = ready(&name, &self.scratch, file, None).await?;
        snapshot.source = fetched.cluster_id;
        deliver(&self.target, snapshot, &name).await
    }

    /// Whether a snapshot that is there is one of this cluster, and what it wrote behind it can still be read.
    async fn leads_on(&self, staged: &StagedSnapshot) -> Result<bool, Error> {
        if staged.source_cluster == 0 {
            return Ok(false);
        }
        let asked = async {
            let origin = Origin::connect(&self.from, 0).await?;
            let same = origin.cluster_id == staged.source_cluster;
            Ok::<_, Failed>(same && origin.is_readable(staged.revision).await?)
        };
        asked.await.map_err(|failed| match failed {
            Failed::Final(error) => error,
            Failed::Passing(why) => Error::Source(why),
            Failed::Compacted(revision) => Error::Source(format!("compacted at {revision}")),
        })
    }
}
