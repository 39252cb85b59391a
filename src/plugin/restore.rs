//! `kubectl quorate restore`: the manifest of an EtcdCluster that starts with the data of a backup, for review. Applies nothing.

use clap::Args;
use kube_core::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::Which;
use super::child::{find, get};
use super::document::{Format, written};
use super::error::Error;
use crate::crd::backups::{BackupPhase, EtcdBackup};

/// What a new cluster has of its own, or must not do as the saved one did.
const OWN: [&str; 4] = ["bootstrap", "replicaOf", "replaceMembers", "paused"];

/// Prints the manifest of an EtcdCluster that starts with the data of an EtcdBackup, otherwise as the saved cluster. Nothing is
/// applied.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// Name of the EtcdBackup.
    backup: String,
    /// Name of the EtcdCluster that is to be created.
    #[arg(long = "as")]
    named: String,
    /// Restore the moment of this time, such as 2026-11-25T08:30:00Z, from the archive that follows the backup.
    #[arg(long, group = "at")]
    at_time: Option<String>,
    /// Restore up to this revision, from that archive.
    #[arg(long, group = "at")]
    at_revision: Option<i64>,
    /// Restore everything that is archived behind the backup.
    #[arg(long, group = "at")]
    latest: bool,
    /// Print the manifest alone, without what its reader should know.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

/// The manifest.
pub(super) fn run(asked: &Restore) -> Result<String, Error> {
    let backup: EtcdBackup = get(&asked.which, ["etcdbackups.quorate.dev", &asked.backup])?;
    let namespace = backup.namespace().unwrap_or_default();
    let of_namespace = format!("--namespace={namespace}");
    let cluster = |name: &str| {
        find(
            &asked.which,
            ["etcdclusters.quorate.dev", name, &of_namespace],
        )
    };
    if cluster(&asked.named)?.is_some() {
        return Err(Error::Exists(asked.named.clone()));
    }
    let saved = cluster(&backup.spec.cluster_ref.name)?;
    let status = backup.status.clone().unwrap_or_default();
    if !matches!(status.phase, BackupPhase::Uploaded | BackupPhase::Verified) {
        let why = status.message.unwrap_or_default();
        return Err(Error::NotSaved(
            asked.backup.clone(),
            format!("{:?}", status.phase),
            why,
        ));
    }
    let manifest = manifest(asked, &namespace, saved.as_ref());
    match asked.output {
        Some(format) => written(&manifest, format),
        None => Ok(heading(&backup, saved.is_some()) + &written(&manifest, Format::Yaml)?),
    }
}

/// What the reader of the manifest should know.
fn heading(backup: &EtcdBackup, is_there: bool) -> String {
    let status = backup.status.clone().unwrap_or_default();
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let of = &backup.spec.cluster_ref.name;
    let taken = known(status.start_time.map(|time| time.0.to_string()));
    let revision = known(status.revision.map(|revision| revision.to_string()));
    let verified = match status.verification {
        Some(verification) => format!("verified {}", verification.time.0),
        None => "never verified".to_owned(),
    };
    let spec = if is_there {
        format!(
            "The rest is as in EtcdCluster {of}: names in certificates of your own and addresses may have to be others."
        )
    } else {
        format!(
            "EtcdCluster {of} is not there any more: add size, storage, TLS and what else it had."
        )
    };
    format!(
        "# EtcdBackup {}: {of} at revision {revision}, taken {taken}, {}, {verified}.\n# {spec}\n# kubectl quorate plan -f shows the steps, kubectl apply -f takes them. Clients need the endpoints of the new cluster.\n",
        backup.name_any(),
        known(status.size)
    )
}

fn manifest(asked: &Restore, namespace: &str, saved: Option<&Value>) -> Value {
    let mut spec: Map<String, Value> = saved
        .and_then(|saved| saved["spec"].as_object().cloned())
        .unwrap_or_default();
    OWN.iter().for_each(|name| drop(spec.remove(*name)));
    // Nothing would be restored into a cluster that hibernates.
    if spec.get("replicas").is_some_and(|replicas| replicas == 0) {
        spec.remove("replicas");
    }
    let mut restore = json!({"backupRef": {"name": asked.backup}});
    if let Some(time) = &asked.at_time {
        restore["at"] = json!({ "time": time });
    } else if let Some(revision) = asked.at_revision {
        restore["at"] = json!({ "revision": revision });
    } else if asked.latest {
        restore["at"] = json!({ "latest": true });
    }
    spec.insert("bootstrap".to_owned(), json!({ "restore": restore }));
    json!({
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {"name": asked.named, "namespace": namespace},
        "spec": spec,
    })
}
