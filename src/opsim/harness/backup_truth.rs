//! What is really so about backups: resources beside what is stored under their names, and Jobs beside what runs of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::crd::{LABEL_BACKUP_JOB, LABEL_RECOVERY};
use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::servers::Servers;
use crate::opsim::work::Work;
use crate::opsim::work::store::{Deletion, Object};

/// One moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackupTruth {
    /// By UID.
    pub(crate) backups: BTreeMap<String, Backup>,
    /// By path.
    pub(crate) stored: BTreeMap<String, Object>,
    pub(crate) deletions: Vec<Deletion>,
    /// What was sent to servers that hold data.
    pub(crate) overwrites: Vec<String>,
    /// By UID.
    pub(crate) jobs: BTreeMap<String, JobTruth>,
}

/// An EtcdBackup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backup {
    pub(crate) name: String,
    pub(crate) phase: String,
    /// Where it is said to be stored.
    pub(crate) path: String,
    pub(crate) cluster_id: String,
    pub(crate) revision: i64,
    /// When it was verified, as the status has it.
    pub(crate) verified: String,
    pub(crate) verified_ms: u64,
}

/// A Job of the operator's.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobTruth {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) owner: String,
    /// The resource that owns it is there.
    pub(crate) owned: bool,
    /// The incarnation of a cluster that it gives data to.
    pub(crate) founds: Option<u64>,
    /// It is for an EtcdRecovery.
    pub(crate) recovers: bool,
    /// A process of it runs, and was not told to end.
    pub(crate) runs: bool,
}

impl BackupTruth {
    pub(super) fn of(api: &ApiServer, servers: &Servers, work: &Work) -> Arc<Self> {
        let kinds = [Kind::EtcdBackup, Kind::Job];
        if kinds.iter().all(|kind| api.all(*kind).next().is_none()) && work.store.objects.is_empty()
        {
            return Arc::default();
        }
        let backups = api.all(Kind::EtcdBackup);
        let backups = backups.map(|it| (object::uid(it).to_owned(), backup(it)));
        let jobs = api.all(Kind::Job);
        let jobs = jobs.map(|it| (object::uid(it).to_owned(), job(api, it)));
        Arc::new(Self {
            backups: backups.collect(),
            stored: work.store.objects.clone(),
            deletions: work.store.deletions.clone(),
            overwrites: servers.overwrites.clone(),
            jobs: jobs.collect(),
        })
    }
}

fn backup(found: &Value) -> Backup {
    let text = |path: &[&str]| object::text(found, path).to_owned();
    let (url, id) = (text(&["status", "url"]), text(&["status", "id"]));
    Backup {
        name: object::name(found).to_owned(),
        phase: text(&["status", "phase"]),
        path: format!("{url}/{id}"),
        cluster_id: text(&["status", "clusterID"]),
        revision: object::number(found, &["status", "revision"]).unwrap_or(0),
        verified: text(&["status", "verification", "time"]),
        verified_ms: object::time_ms(found, &["status", "verification", "time"]).unwrap_or(0),
    }
}

fn job(api: &ApiServer, found: &Value) -> JobTruth {
    let owner = object::controller(found).cloned().unwrap_or_default();
    let kind = object::label(found, LABEL_BACKUP_JOB).unwrap_or_default();
    let owned = Kind::of(
        object::text(&owner, &["apiVersion"]),
        object::text(&owner, &["kind"]),
    )
    .and_then(|kind| {
        let name = object::text(&owner, &["name"]);
        api.get(kind, object::namespace(found), name)
    });
    let owned = owned.filter(|it| it["metadata"]["uid"] == owner["uid"]);
    let recovery = object::label(found, LABEL_RECOVERY);
    let incarnation = recovery.map(|uid| {
        let mut all = api.all(Kind::EtcdRecovery);
        let asked = all.find(|it| object::uid(it) == uid);
        let lost = asked.and_then(|it| object::number(it, &["spec", "incarnation"]));
        u64::try_from(lost.unwrap_or(1)).unwrap_or(1) + 1
    });
    let mut pods = api.all(Kind::Pod).filter(|pod| {
        let owner = object::controller(pod);
        owner.is_some_and(|owner| owner["uid"] == found["metadata"]["uid"])
    });
    JobTruth {
        name: object::name(found).to_owned(),
        kind: kind.to_owned(),
        // Clusters are known by the UID that their objects carry.
        owner: match &owned {
            Some(cluster) if owner["kind"] == "EtcdCluster" => object::life(cluster).to_owned(),
            _ => object::text(&owner, &["uid"]).to_owned(),
        },
        owned: owned.is_some(),
        founds: (kind == "restore").then(|| incarnation.unwrap_or(1)),
        recovers: recovery.is_some(),
        runs: pods.any(|pod| {
            object::text(pod, &["status", "phase"]) == "Running" && !object::is_deleting(pod)
        }),
    }
}
