//! `quorate backup fetch`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::store::Backups;
use crate::backup::Error;
use crate::backup::fetch::fetch;
use crate::backup_plan::size;

/// Fetches a backup into a file, as `etcdctl snapshot save` writes it: `quorate restore` and etcd's own tools read it.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// The backup's name.
    id: String,
    /// The file, which must not exist yet.
    file: PathBuf,
}

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let (repository, keys) = arguments.backups.open()?;
    let manifest = fetch(&repository, &arguments.id, &keys, &arguments.file).await?;
    println!(
        "fetched {} into {}: {}, revision {}",
        manifest.id,
        arguments.file.display(),
        size(manifest.snapshot.size),
        manifest.snapshot.revision
    );
    Ok(ExitCode::SUCCESS)
}
