//! `quorate backup restore`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;

use super::Ended;
use super::report::Report;
use super::store::Backups;
use crate::backup::Error;
use crate::backup::restore::{ObjectPath, Restore, Target};
use crate::backup_plan::{JobResult, Restored, size};
use crate::server::operator_api::auth::Key;

/// Gives the standby that is to found a cluster a backup, or any snapshot of etcd's, from a store. The operator founds
/// the cluster from it; `quorate restore` is for members without an operator.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// A backup, or an object that is a snapshot as `etcdctl snapshot save` writes it, below the URL and --prefix.
    path: String,
    /// Directory for the snapshot while it is sent: as many bytes as the data. By default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    /// HOST:PORT of the standby's peer port.
    #[arg(long, value_name = "HOST:PORT")]
    member: String,
    /// File with the key of restores, which the operator makes for its Jobs.
    #[arg(long, value_name = "FILE")]
    member_key_file: PathBuf,
    /// PEM roots of the certificate of the peer port; without them no TLS is used.
    #[arg(long, value_name = "FILE")]
    member_cacert: Option<PathBuf>,
    /// Seconds for which a standby is waited for that is not there or does not answer; for one that has no room, 60 at
    /// most.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    member_wait: u64,
    /// MiB a second at most that are sent to the standby.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    #[command(flatten)]
    pub(super) report: Report,
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let began = Instant::now();
    let path = ObjectPath::parse(&arguments.path)?;
    let roots = arguments.member_cacert.as_ref().map(|file| {
        std::fs::read_to_string(file).map_err(|source| Error::File {
            path: file.clone(),
            source,
        })
    });
    let key = Key::read(&arguments.member_key_file);
    let target = Target {
        host: arguments.member,
        key: key.map_err(|error| Error::Key(error.to_string()))?,
        roots: roots.transpose()?,
        patience: Duration::from_secs(arguments.member_wait),
        rate: arguments.rate.map(|rate| rate << 20),
    };
    let (repository, keys) = arguments.backups.open()?;
    let restore = Restore {
        path,
        keys,
        scratch: arguments.scratch.unwrap_or_else(std::env::temp_dir),
        target,
    };
    let sent = restore.run(&repository).await?;
    println!(
        "restored {} into {}: {}, revision {}, {} keys\nSHA-256 {}",
        arguments.path,
        restore.target.host,
        size(sent.size),
        sent.revision,
        sent.keys,
        sent.sha256,
    );
    Ok(Ended {
        code: ExitCode::SUCCESS,
        result: Some(JobResult::Restored(Restored {
            path: arguments.path,
            at: Timestamp::now(),
            seconds: began.elapsed().as_secs(),
            sha256: sent.sha256,
            revision: sent.revision,
            keys: sent.keys,
            size: sent.size,
        })),
    })
}
