//! `quorate backup verify`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Ended;
use super::report::Report;
use super::store::Backups;
use crate::backup::Error;
use crate::backup::verify::verify;
use crate::backup_plan::{JobResult, Verified};

/// Restores a backup into a member that is thrown away, compares its hash and counts with what was saved, and records
/// the result beside the backup. Ends with 1 if the backup cannot be restored.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// The backup's name; by default the newest.
    id: Option<String>,
    /// Directory for the member: three times as many bytes as the data. By default that of temporary
    /// files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    pub(super) report: Report,
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let (repository, keys) = arguments.backups.open()?;
    let id = match arguments.id {
        Some(id) => id,
        None => {
            // Without the keys, so that one that they do not fit is not passed over.
            let stored = repository.list(&[]).await?;
            if let Some(unread) = stored.iter().find(|it| matches!(it.manifest, Some(Err(_)))) {
                return Err(Error::Unclear {
                    id: unread.id.clone(),
                    what: "its manifest cannot be read, and it may be the newest: see `quorate backup list`, and name the backup to verify".to_owned(),
                });
            }
            let whole = stored.into_iter().filter_map(|it| match it.manifest {
                Some(Ok(manifest)) => Some((manifest.started, it.id)),
                _ => None,
            });
            let newest = whole.max();
            newest.map(|(_, id)| id).ok_or_else(|| {
                Error::Usage(format!("there is no backup in {} yet", repository.url()))
            })?
        }
    };
    let program = std::env::current_exe().map_err(|source| Error::File {
        path: PathBuf::from("the program itself"),
        source,
    })?;
    let scratch = arguments.scratch.unwrap_or_else(std::env::temp_dir);
    let result = verify(&repository, &id, &keys, &scratch, &program).await?;
    let verified = JobResult::Verified(Verified {
        id: id.clone(),
        at: result.at,
        seconds: result.seconds,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        failure: result.failure.clone(),
    });
    let code = match result.failure {
        None => {
            println!(
                "verified {id}: restored and compared in {:.1} s",
                result.seconds
            );
            ExitCode::SUCCESS
        }
        Some(failure) => {
            eprintln!("quorate backup verify: the backup {id} cannot be restored: {failure}");
            ExitCode::FAILURE
        }
    };
    Ok(Ended {
        code,
        result: Some(verified),
    })
}
