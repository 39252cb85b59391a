//! Flags that name the one member that is left of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::restore::read;
use crate::backup::Error;
use crate::backup::source::Survivor;
use crate::server::operator_api::auth::Key;

/// The member, and what was seen of it. All flags but that of the roots go together.
#[derive(Debug, Args)]
pub(super) struct SurvivorFlags {
    /// Instead of a backup: HOST:PORT of the peer port of the member that is left, whose quorum is lost for good. It
    /// gives all that is in its log, and is not changed.
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with_all = ["path", "to", "prefix", "store_endpoint", "store_ca_file", "store_retries", "key_files"],
        requires_all = ["survivor_key_file", "survivor_disk", "survivor_term", "survivor_index"]
    )]
    survivor: Option<String>,
    /// File with the key of backups, which the operator makes for its Jobs.
    #[arg(long, value_name = "FILE", requires = "survivor")]
    survivor_key_file: Option<PathBuf>,
    /// PEM roots of the certificate of that peer port; without them no TLS is used.
    #[arg(long, value_name = "FILE", requires = "survivor")]
    survivor_cacert: Option<PathBuf>,
    /// UUID of its disk: another one is refused.
    #[arg(long, value_name = "UUID", requires = "survivor")]
    survivor_disk: Option<String>,
    /// Term of the last entry of its log, as described: a shorter log is refused.
    #[arg(long, value_name = "TERM", requires = "survivor")]
    survivor_term: Option<u64>,
    /// Index of that entry.
    #[arg(long, value_name = "INDEX", requires = "survivor")]
    survivor_index: Option<u64>,
}

impl SurvivorFlags {
    /// The member, if one is named.
    pub(super) fn read(
        self,
        patience: Duration,
        rate: Option<u64>,
    ) -> Result<Option<Survivor>, Error> {
        let Some(host) = self.survivor else {
            return Ok(None);
        };
        // Required with it, as are the others.
        let file = self.survivor_key_file.unwrap_or_default();
        Ok(Some(Survivor {
            host,
            key: Key::read(&file).map_err(|error| Error::Key(error.to_string()))?,
            roots: self.survivor_cacert.as_deref().map(read).transpose()?,
            disk_uuid: self.survivor_disk.unwrap_or_default(),
            term: self.survivor_term.unwrap_or_default(),
            index: self.survivor_index.unwrap_or_default(),
            patience,
            rate,
        }))
    }
}
