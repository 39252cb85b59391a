//! `kubectl quorate backup`: creates an EtcdBackup, which the operator carries out, and follows it where that is asked for.
//! Saves nothing itself.

use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt;
use serde::Deserialize;
use serde_json::Value;

use super::Which;
use super::ask;
use super::child::{find, get, kubectl, run as carried_out};
use super::document::{Format, written};
use super::error::Error;
use super::{chain, pause, shown, warn};
use crate::crd::EtcdCluster;
use crate::crd::backups::{BackupPhase, EtcdBackup, EtcdBackupSpec, EtcdBackupStore, LocalRef};

const RESOURCE: &str = "etcdbackups.quorate.dev";
/// As kubectl names it.
const KIND: &str = "etcdbackup.quorate.dev";
/// Between two looks at it.
const PAUSE: Duration = Duration::from_secs(2);
/// Characters that the name of a backup may have.
const LONGEST: usize = 50;

/// Creates an EtcdBackup: the operator saves the cluster as it is, in a store that an EtcdBackupStore describes.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// Name of the EtcdCluster; optional if there is only one.
    name: Option<String>,
    /// The EtcdBackupStore; optional if there is only one in the namespace.
    #[arg(long)]
    store: Option<String>,
    /// Name of the EtcdBackup, at most 50 characters. By default the cluster's, with the time.
    #[arg(long = "as")]
    named: Option<String>,
    /// Restore it into a throw-away member and compare, right after it is saved.
    #[arg(long)]
    verify: bool,
    /// Wait until it is saved, and verified with --verify; exit code 1 if that fails. Ending this command does not end the
    /// backup.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most, such as 10m; then exit code 1, and the backup goes on.
    #[arg(long, default_value = "6h", requires = "wait")]
    timeout: SignedDuration,
    /// Print the EtcdBackup for programs instead: as it was created, or with --wait as it has ended.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

#[derive(Deserialize)]
struct Stores {
    items: Vec<EtcdBackupStore>,
}

/// Creates it. Returns what is to be printed at last.
pub(super) fn run(asked: &Backup) -> Result<String, Error> {
    let cluster = ask::cluster(&asked.which, asked.name.as_deref())?;
    let namespace = cluster.namespace().unwrap_or_default();
    let backup = wanted(asked, &cluster, store(asked, &namespace)?, Timestamp::now());
    let mut command = kubectl(&asked.which, "create");
    command.arg(match asked.output {
        Some(_) => "--output=json",
        None => "--output=name",
    });
    command.arg("--filename=-");
    let manifest = serde_json::to_vec(&backup).map_err(Error::Unreadable)?;
    let created = carried_out(command, Some(&manifest))?;
    let Some(format) = asked.output else {
        let created = String::from_utf8_lossy(&created).into_owned();
        if !asked.wait {
            return Ok(created);
        }
        shown(&created)?;
        return followed(asked, &namespace, &backup.name_any());
    };
    // Whatever happens to the document, what was created is known.
    warn(&format!("{KIND}/{}\n", backup.name_any()));
    if !asked.wait {
        let created: Value = serde_json::from_slice(&created).map_err(Error::Unreadable)?;
        return written(&created, format);
    }
    followed(asked, &namespace, &backup.name_any())
}

/// The store that was named, or the only one.
fn store(asked: &Backup, namespace: &str) -> Result<String, Error> {
    if let Some(name) = &asked.store {
        return Ok(name.clone());
    }
    let of_namespace = format!("--namespace={namespace}");
    let found: Stores = get(
        &asked.which,
        ["etcdbackupstores.quorate.dev", &of_namespace],
    )?;
    let names: Vec<String> = found.items.iter().map(ResourceExt::name_any).collect();
    match names.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::NoStore(namespace.to_owned())),
        several => Err(Error::SeveralStores(several.join(", "))),
    }
}

fn wanted(asked: &Backup, cluster: &EtcdCluster, store: String, now: Timestamp) -> EtcdBackup {
    let time = now.strftime("-%Y%m%d-%H%M%S").to_string();
    let of_cluster = || {
        let name: String = cluster
            .name_any()
            .chars()
            .take(LONGEST - time.len())
            .collect();
        name.trim_end_matches('-').to_owned() + &time
    };
    let spec = EtcdBackupSpec {
        cluster_ref: LocalRef {
            name: cluster.name_any(),
        },
        store_ref: LocalRef { name: store },
        verify: asked.verify,
        rate_mib_per_second: None,
        deadline_seconds: EtcdBackupSpec::DEADLINE_SECONDS,
    };
    let mut backup = EtcdBackup::new(&asked.named.clone().unwrap_or_else(of_cluster), spec);
    backup.metadata.namespace = cluster.namespace();
    backup
}

/// Prints each change of it on standard error until it has ended. An API server that does not answer for a while ends nothing.
fn followed(asked: &Backup, namespace: &str, name: &str) -> Result<String, Error> {
    let (mut last, begun) = (String::new(), Instant::now());
    let longest = Duration::try_from(asked.timeout).unwrap_or_default();
    let of_namespace = format!("--namespace={namespace}");
    loop {
        match find(&asked.which, [RESOURCE, name, &of_namespace]) {
            Ok(Some(backup)) => {
                let known = serde_json::from_value(backup.clone()).map_err(Error::Unreadable)?;
                match (ended(asked, known, &mut last), asked.output) {
                    (Some(Ok(_)), Some(format)) => return written(&backup, format),
                    (Some(ended), _) => return ended,
                    (None, _) => {}
                }
            }
            Ok(None) => return Err(Error::BackupFailed("it was deleted".to_owned())),
            Err(error) => said(&mut last, format!("{}\n", chain(&error))),
        }
        if begun.elapsed() >= longest {
            return Err(Error::BackupGoesOn(name.to_owned()));
        }
        pause(PAUSE);
    }
}

/// Prints what was not printed last.
fn said(last: &mut String, line: String) {
    if line != *last {
        warn(&line);
        *last = line;
    }
}

/// How it ended, if it did; otherwise what happens is printed.
fn ended(asked: &Backup, backup: EtcdBackup, last: &mut String) -> Option<Result<String, Error>> {
    let name = backup.name_any();
    let status = backup.status.unwrap_or_default();
    let message = status.message.map(|text| format!(": {text}"));
    let line = format!("{:?}{}\n", status.phase, message.unwrap_or_default());
    match status.phase {
        BackupPhase::Failed => {
            return Some(Err(Error::BackupFailed(line.trim_end().to_owned())));
        }
        BackupPhase::Verified => return Some(Ok(format!("{KIND}/{name} verified\n"))),
        BackupPhase::Uploaded if !asked.verify => {
            return Some(Ok(format!("{KIND}/{name} saved\n")));
        }
        BackupPhase::Pending | BackupPhase::Streaming | BackupPhase::Uploaded => {}
    }
    said(last, line);
    None
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::screen_test;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        backup: Backup,
    }

    fn named(words: &[&str], cluster: &str) -> String {
        let parsed = Parsed::try_parse_from([&["backup"], words].concat()).expect("flags");
        let resource = screen_test::cluster(json!({"replicas": 3}), json!({}));
        let mut resource: EtcdCluster = serde_json::from_value(resource).expect("a cluster");
        resource.metadata.name = Some(cluster.to_owned());
        let now = Timestamp::from_second(1_764_400_000).expect("a time");
        let backup = wanted(&parsed.backup, &resource, "s3".to_owned(), now);
        assert_eq!(backup.spec.cluster_ref.name, cluster);
        backup.name_any()
    }

    /// At most 50 characters, because Jobs are named after it.
    #[test]
    fn name_is_the_clusters_with_the_time() {
        assert_eq!(named(&[], "demo"), "demo-20251129-070640");
        assert_eq!(named(&["--as=before"], "demo"), "before");
        let long = format!("{}-{}", "a".repeat(33), "b".repeat(20));
        assert_eq!(
            named(&[], &long),
            format!("{}-20251129-070640", "a".repeat(33))
        );
        assert!(named(&[], &"a".repeat(60)).len() <= LONGEST);
    }
}
