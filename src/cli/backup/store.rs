//! Flags that name a store.

use std::path::PathBuf;

use clap::Args;

use super::Keys;
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::location::Location;
use crate::backup::repository::Repository;

/// Where backups are. Credentials come from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a role's
/// token, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY and so on.
#[derive(Debug, Args)]
pub(super) struct Store {
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY.
    #[arg(long, value_name = "URL")]
    to: String,
    /// A folder below that URL, which need not exist.
    #[arg(long, value_name = "PATH")]
    prefix: Option<String>,
    /// Endpoint of a store other than the provider's own, with http:// or https://.
    #[arg(long, value_name = "URL")]
    store_endpoint: Option<String>,
    /// PEM roots of the store's certificate, beside those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    store_ca_file: Option<PathBuf>,
    /// How often a failed request to the store is repeated, with growing pauses and for four minutes at most.
    #[arg(long, default_value_t = 10)]
    store_retries: usize,
}

/// A store whose backups are read.
#[derive(Debug, Args)]
pub(super) struct Backups {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    keys: Keys,
}

impl Backups {
    pub(super) fn open(self) -> Result<(Repository, Vec<Key>), Error> {
        let keys = self.keys.read()?;
        Ok((self.store.open()?, keys))
    }
}

impl Store {
    pub(super) fn open(self) -> Result<Repository, Error> {
        let location = Location {
            url: self.to,
            folder: self.prefix,
            endpoint: self.store_endpoint,
            ca_file: self.store_ca_file,
            retries: self.store_retries,
        };
        location.open()
    }
}
