//! `quorate backup fetch`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::report;
use super::store::Backups;
use crate::backup::Error;
use crate::backup::archive::{At, Moment};
use crate::backup::fetch::{fetch, fetch_at};
use crate::backup_plan::size;

/// Fetches a backup into a file, as `etcdctl snapshot save` writes it: `quorate restore` and etcd's own tools read it.
/// With --at, the state of a moment: a backup and the entries of the archive behind it.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// The backup's name. With --at it may be left out: then the best one is taken.
    id: Option<String>,
    /// The file, which must not exist yet.
    file: PathBuf,
    /// The moment: latest, revision:N, index:N, or a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "MOMENT")]
    at: Option<Moment>,
    /// Directory for the backup and the result while entries are applied: twice as many bytes as the data. By default
    /// that of temporary files.
    #[arg(long, value_name = "DIRECTORY", requires = "at")]
    scratch: Option<PathBuf>,
}

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let (repository, keys) = arguments.backups.open()?;
    let file = arguments.file;
    let id = arguments.id.as_deref();
    if let Some(moment) = arguments.at {
        let scratch = arguments.scratch.unwrap_or_else(std::env::temp_dir);
        let at = At {
            moment,
            keys: &keys,
            scratch: &scratch,
        };
        let reached = fetch_at(&repository, id, &at, &file).await?;
        println!(
            "fetched {moment} into {}: revision {}, entry {}, from the backup {}; as of {}",
            file.display(),
            reached.revision,
            reached.index,
            reached.base,
            reached.as_of
        );
        report::print_notes("quorate backup fetch", &reached.notes);
        return Ok(ExitCode::SUCCESS);
    }
    let id = id.ok_or_else(|| {
        Error::Usage("which backup? Give its name and the file, or --at and the file".to_owned())
    })?;
    let manifest = fetch(&repository, id, &keys, &file).await?;
    println!(
        "fetched {} into {}: {}, revision {}",
        manifest.id,
        file.display(),
        size(manifest.snapshot.size),
        manifest.snapshot.revision
    );
    Ok(ExitCode::SUCCESS)
}
