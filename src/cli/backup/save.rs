//! `quorate backup save`, with etcdctl's flags for the cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::report::{self, Report};
use super::source::Cluster;
use super::store::Store;
use super::{Ended, print_json, read_key};
use crate::backup::Error;
use crate::backup::manifest::Manifest;
use crate::backup::save::{Save, Saved};
use crate::backup_plan::size;

/// Saves a snapshot of a cluster, of one follower's state.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    cluster: Cluster,
    /// The backup's name; by default its time and some digits. If there is one of this name, nothing is saved.
    #[arg(long)]
    id: Option<String>,
    /// File with 32 random bytes in base64 (openssl rand -base64 32), with which the backup is encrypted. May be given
    /// several times: with the others a backup is read that exists under the name.
    #[arg(long = "key-file", value_name = "FILE")]
    key_files: Vec<PathBuf>,
    /// Directory for the snapshot while it is uploaded: as many bytes as the data. By default that of
    /// temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    /// MiB of the data in one object.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    part_size: u64,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) report: Report,
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let source = arguments.cluster.source()?;
    let keys = arguments.key_files.iter().map(|file| read_key(file));
    let keys = keys.collect::<Result<Vec<_>, Error>>()?;
    let repository = arguments.store.open()?;
    let save = Save {
        source,
        id: arguments.id,
        scratch: arguments.scratch.unwrap_or_else(std::env::temp_dir),
        keys,
        part_bytes: arguments.part_size << 20,
    };
    let saved = save.run(&repository).await?;
    let manifest = match &saved {
        Saved::New(manifest) => manifest,
        Saved::Existing(manifest) => {
            let since = manifest.completed.strftime("%Y-%m-%dT%H:%M:%SZ");
            eprintln!(
                "quorate backup save: nothing was saved: {} exists since {since}",
                manifest.id
            );
            manifest
        }
    };
    match (arguments.json, &saved) {
        (true, _) => print_json(&Printed {
            existing: matches!(saved, Saved::Existing(_)),
            manifest,
        })?,
        (false, Saved::New(_)) => println!("{}", text(manifest)),
        (false, Saved::Existing(_)) => {}
    }
    Ok(Ended {
        code: ExitCode::SUCCESS,
        result: Some(report::saved(manifest)),
    })
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Printed<'a> {
    /// Whether it was there before, and nothing was saved.
    existing: bool,
    #[serde(flatten)]
    manifest: &'a Manifest,
}

fn text(manifest: &Manifest) -> String {
    let snapshot = &manifest.snapshot;
    let stored: u64 = manifest.parts.iter().map(|part| part.stored).sum();
    let encrypted = match &manifest.encryption {
        None => "not encrypted".to_owned(),
        Some(it) => format!("encrypted with the key {}", it.key_id),
    };
    let seconds = manifest.completed.duration_since(manifest.started);
    format!(
        "saved {} of cluster {} from {}\nrevision {}, {} keys, {} leases, {} users; hash {}\n{} in {} parts of {}, {encrypted}, {:.1} s",
        manifest.id,
        manifest.source.cluster_id,
        manifest.source.endpoint,
        snapshot.revision,
        snapshot.keys,
        snapshot.leases,
        snapshot.users,
        snapshot.hash,
        size(snapshot.size),
        manifest.parts.len(),
        size(stored),
        seconds.as_secs_f64(),
    )
}
