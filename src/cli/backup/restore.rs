//! `quorate backup restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;

use super::report::{Report, print_notes};
use super::store::Store;
use super::survivor::SurvivorFlags;
use super::{Ended, Keys};
use crate::backup::Error;
use crate::backup::archive::Moment;
use crate::backup::restore::{ObjectPath, Recovery, Restore, Target};
use crate::backup_plan::{JobResult, Restored, size};
use crate::server::operator_api::auth::Key;

/// Gives the standby that is to found a cluster a backup, or any snapshot of etcd's, from a store; or, where the quorum
/// of a cluster is lost, the data of the one member that is left. The operator founds the cluster from it; `quorate
/// restore` is for members without an operator.
#[derive(Debug, Args)]
#[command(mut_arg("to", |to| to.required(false).required_unless_present("survivor")))]
pub(super) struct Arguments {
    #[command(flatten)]
    store: Option<Store>,
    #[command(flatten)]
    keys: Keys,
    /// A backup, or an object that is a snapshot as `etcdctl snapshot save` writes it, below the URL and --prefix.
    #[arg(required_unless_present = "survivor")]
    path: Option<String>,
    /// The moment: latest, revision:N, index:N, or a time such as 2026-01-31T12:00:00Z. The entries of the archive behind
    /// the backup are applied; the path may then be that of the folder of the backups, of which the best one is taken.
    #[arg(long, value_name = "MOMENT", conflicts_with = "survivor")]
    at: Option<Moment>,
    #[command(flatten)]
    survivor: SurvivorFlags,
    /// Directory for the snapshot while it is sent: as many bytes as the data. By default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    #[command(flatten)]
    pub(super) report: Report,
}

/// The standby that gets the data.
#[derive(Debug, Args)]
pub(in crate::cli) struct TargetFlags {
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
}

impl TargetFlags {
    /// The standby, and the bytes a second.
    pub(in crate::cli) fn read(self) -> Result<(Target, Option<u64>), Error> {
        let rate = self.rate.map(|rate| rate << 20);
        let key = Key::read(&self.member_key_file);
        let target = Target {
            host: self.member,
            key: key.map_err(|error| Error::Key(error.to_string()))?,
            roots: self.member_cacert.as_deref().map(read).transpose()?,
            patience: Duration::from_secs(self.member_wait),
            rate,
        };
        Ok((target, rate))
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let began = Instant::now();
    let (target, rate) = arguments.target.read()?;
    let (member, patience) = (target.host.clone(), target.patience);
    let scratch = arguments.scratch.unwrap_or_else(std::env::temp_dir);
    let (from, sent) = match arguments.survivor.read(patience, rate)? {
        Some(survivor) => {
            let from = format!("member {}", survivor.disk_uuid);
            let recovery = Recovery {
                survivor,
                scratch,
                target,
            };
            (from, recovery.run().await?)
        }
        None => {
            // Required without a survivor.
            let from = arguments.path.unwrap_or_default();
            let path = ObjectPath::parse(&from)?;
            let keys = arguments.keys.read()?;
            let store = arguments.store.ok_or_else(|| no_store(&from))?;
            let restore = Restore {
                path,
                at: arguments.at,
                keys,
                scratch,
                target,
            };
            (from, restore.run(&store.open()?).await?)
        }
    };
    println!(
        "restored {} into {}: {}, revision {}, {} keys\nSHA-256 {}",
        from,
        member,
        size(sent.size),
        sent.revision,
        sent.keys,
        sent.sha256,
    );
    let moment = sent.moment;
    if let Some(moment) = &moment {
        println!(
            "entry {}, from the backup {}; as of {}",
            moment.index, moment.base, moment.as_of
        );
        print_notes("quorate backup restore", &moment.notes);
    }
    Ok(Ended {
        code: ExitCode::SUCCESS,
        result: Some(JobResult::Restored(Restored {
            path: from,
            at: Timestamp::now(),
            seconds: began.elapsed().as_secs(),
            sha256: sent.sha256,
            revision: sent.revision,
            keys: sent.keys,
            size: sent.size,
            raft_index: moment.as_ref().map(|it| it.index),
            as_of: moment.map(|it| it.as_of),
        })),
    })
}

fn no_store(path: &str) -> Error {
    Error::Usage(format!("{path} is in no store: give --to"))
}

pub(super) fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|source| Error::File {
        path: file.to_owned(),
        source,
    })
}
