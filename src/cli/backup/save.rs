//! `quorate backup save`, with etcdctl's flags for the cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::store::Store;
use super::{print_json, read_key, size};
use crate::backup::Error;
use crate::backup::manifest::Manifest;
use crate::backup::save::{Save, Saved};
use crate::backup::source::Source;

/// Saves a snapshot of a cluster, of one follower's state.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    store: Store,
    /// Client endpoints of the cluster, comma-separated.
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379"
    )]
    endpoints: Vec<String>,
    /// PEM roots of the servers' certificates; by default those that this machine trusts.
    #[arg(long, env = "ETCDCTL_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// PEM certificate of this client.
    #[arg(long, env = "ETCDCTL_CERT", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM key of this client.
    #[arg(long, env = "ETCDCTL_KEY", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// User with the role root, as NAME:PASSWORD or with --password, if authentication is enabled.
    #[arg(long, env = "ETCDCTL_USER", hide_env_values = true)]
    user: Option<String>,
    /// Password of the user.
    #[arg(
        long,
        env = "ETCDCTL_PASSWORD",
        hide_env_values = true,
        requires = "user"
    )]
    password: Option<String>,
    /// The backup's name; by default its time and some digits. If there is one of this name, nothing is saved.
    #[arg(long)]
    id: Option<String>,
    /// File with 32 random bytes in base64 (openssl rand -base64 32), with which the backup is encrypted.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Directory for the snapshot while it is uploaded: as many bytes as the data. By default that of
    /// temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    /// MiB a second at most that are read from the member.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// MiB of the data in one object.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    part_size: u64,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let source = source(&arguments)?;
    let key = arguments.key_file.as_deref().map(read_key).transpose()?;
    let repository = arguments.store.open()?;
    let save = Save {
        source,
        id: arguments.id,
        scratch: arguments.scratch.unwrap_or_else(std::env::temp_dir),
        key,
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
        (true, _) => print_json(&Report {
            existing: matches!(saved, Saved::Existing(_)),
            manifest,
        })?,
        (false, Saved::New(_)) => println!("{}", text(manifest)),
        (false, Saved::Existing(_)) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Report<'a> {
    /// Whether it was there before, and nothing was saved.
    existing: bool,
    #[serde(flatten)]
    manifest: &'a Manifest,
}

fn source(arguments: &Arguments) -> Result<Source, Error> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| Error::File {
            path: file.clone(),
            source,
        })
    };
    let identity = match (&arguments.cert, &arguments.key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let user = match (arguments.user.clone(), arguments.password.clone()) {
        (Some(name), Some(password)) => Some((name, password)),
        (Some(both), None) => {
            let split = both.split_once(':');
            let (name, password) = split.ok_or_else(|| {
                Error::Usage(
                    "--user without a password: give NAME:PASSWORD, or --password".to_owned(),
                )
            })?;
            Some((name.to_owned(), password.to_owned()))
        }
        (None, _) => None,
    };
    Ok(Source {
        endpoints: arguments.endpoints.clone(),
        ca: arguments.cacert.as_ref().map(read).transpose()?,
        identity,
        user,
        rate: arguments.rate.map(|rate| rate << 20),
    })
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
