//! `quorate restore`: a member's data directory from a snapshot, with the flags of `etcdutl
//! snapshot restore`. Parses and hands over.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args};

use super::{USAGE, chain};
use crate::server::restore::{Restore, RestoreError};

/// Creates a member's data directory from a snapshot of etcd or Quorate.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The snapshot, as `etcdctl snapshot save` wrote it.
    file: PathBuf,
    /// Name of the member.
    #[arg(long, default_value = "default")]
    name: String,
    /// Directory to create; default 'NAME.etcd'. Must be empty or not exist.
    #[arg(long, default_value = "")]
    data_dir: String,
    /// Refused: the log is always in --data-dir.
    #[arg(long, default_value = "")]
    wal_dir: String,
    /// name=URL of every member of the new cluster, comma-separated; default only this one.
    #[arg(long, default_value = "")]
    initial_cluster: String,
    /// Part of the new cluster's identity.
    #[arg(long, default_value = "etcd-cluster")]
    initial_cluster_token: String,
    /// Peer URLs of this member, as in --initial-cluster.
    #[arg(long, default_value = "http://localhost:2380")]
    initial_advertise_peer_urls: String,
    /// Accept a file without a digest (copied from a data directory), or with a wrong one.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    skip_hash_check: bool,
    /// Raise the revision by this number, so that no client sees it decrease.
    #[arg(long, default_value_t = 0)]
    bump_revision: u64,
    /// Mark everything before the raised revision as compacted; goes with --bump-revision.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    mark_compacted: bool,
    /// Accepted without effect: no memory map is used.
    #[arg(long)]
    initial_memory_map_size: Option<u64>,
}

/// Runs the subcommand.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.initial_memory_map_size.is_some() {
        eprintln!(
            "quorate restore: --initial-memory-map-size has no effect: there is no memory map"
        );
    }
    match restore(arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorate restore: {}", chain(&error));
            match error {
                RestoreError::Flags(_) | RestoreError::Members(_) => ExitCode::from(USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn restore(arguments: &Arguments) -> Result<String, RestoreError> {
    if arguments.mark_compacted != (arguments.bump_revision > 0) {
        return Err(RestoreError::Flags(
            "--bump-revision and --mark-compacted go together: give both or neither".to_owned(),
        ));
    }
    let flags = [
        ("name", &arguments.name),
        ("data-dir", &arguments.data_dir),
        ("wal-dir", &arguments.wal_dir),
        ("initial-cluster", &arguments.initial_cluster),
        ("initial-cluster-token", &arguments.initial_cluster_token),
        (
            "initial-advertise-peer-urls",
            &arguments.initial_advertise_peer_urls,
        ),
    ];
    let given: Vec<String> = flags
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect();
    let mut restore = Restore::from_server_flags(arguments.file.clone(), &given)?;
    restore.skip_hash_check = arguments.skip_hash_check;
    restore.changes.bump_revision = arguments.bump_revision;
    let restored = restore.run()?;
    for warning in &restored.warnings {
        eprintln!("quorate restore: {warning}");
    }
    let auth = match restored.auth_enabled {
        true => "authentication enabled",
        false => "authentication disabled",
    };
    Ok(format!(
        "restored {} into {}\nmember {:x} ({}) of cluster {:x}, revision {}: {} keys, {} leases, {} users, {} alarms, {auth}",
        restore.file.display(),
        restore.data_dir.display(),
        restored.member_id,
        restore.name,
        restored.cluster_id,
        restored.revision,
        restored.keys,
        restored.leases,
        restored.users,
        restored.alarms,
    ))
}
