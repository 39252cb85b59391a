//! What the plan of a backup is made from.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::result::JobResult;
use crate::crd::backups::{
    BackupPhase, EtcdBackupScheduleSpec, EtcdBackupScheduleStatus, EtcdBackupSpec,
    EtcdBackupStatus, LocalRef,
};

/// What a Job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Saves.
    Save,
    /// Restores and compares.
    Verify,
    /// Applies the retention.
    Prune,
    /// Gives a member that forms a cluster its first data.
    Restore,
    /// Stores what is committed, until it is ended.
    Archive,
    /// Applies the writes of a followed cluster, until its place is taken.
    Follow,
}

impl JobKind {
    /// Part of a Job's name, and the value of its label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Save => "save",
            JobKind::Verify => "verify",
            JobKind::Prune => "prune",
            JobKind::Restore => "restore",
            JobKind::Archive => "archive",
            JobKind::Follow => "follow",
        }
    }

    /// Parses the value of a Job's label.
    #[must_use]
    pub fn read(text: &str) -> Option<JobKind> {
        let all = [
            JobKind::Save,
            JobKind::Verify,
            JobKind::Prune,
            JobKind::Restore,
            JobKind::Archive,
            JobKind::Follow,
        ];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A Job, as observed.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: JobKind,
    /// Its number.
    pub attempt: u32,
    /// UID of the EtcdRecovery that it is for.
    pub recovery: Option<String>,
    /// When it was created.
    pub created: Timestamp,
    /// Where the store was then.
    pub location: String,
    /// Of a Job that archives: after how many seconds it stores what is new.
    pub interval: Option<i32>,
    /// Of a Job that follows: what it was made from.
    pub made_from: Option<String>,
    /// How far it is.
    pub state: JobState,
}

/// The reason of a Job that counts as ended because its node does not answer: its pod may run on there.
pub const NODE_LOST: &str = "the node of its pod does not answer";

/// How far a Job is.
#[derive(Clone, Debug, PartialEq)]
pub enum JobState {
    /// Its pod does not run; why, if it is known.
    Waiting(Option<String>),
    /// Its pod runs.
    Running,
    /// It has ended, at this time.
    Ended {
        /// When.
        at: Timestamp,
        /// What it reported; `None` if it could not, as after a kill.
        result: Option<JobResult>,
        /// Why it ended, as Kubernetes has it.
        reason: String,
    },
    /// It is being deleted.
    Deleting,
}

/// The cluster of a backup, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The version that every voter runs; `None` while it is changed.
    pub version: Option<String>,
    /// Why its spec cannot be used.
    pub invalid: Option<String>,
    /// It has no running members.
    pub hibernated: bool,
    /// It follows another cluster: its data are that one's.
    pub follows: bool,
    /// It does so as its standby.
    pub standby: bool,
    /// Since when its data are its own, where it has followed another one.
    pub own_since: Option<Timestamp>,
    /// It has the key that the Jobs' key is derived from.
    pub has_key: bool,
    /// How far its log is archived, as far as its members know.
    pub archived: Option<ArchivedFacts>,
}

/// The newest Job of a kind.
pub(super) fn newest_job(jobs: &[JobFacts], kind: JobKind) -> Option<&JobFacts> {
    let jobs = jobs.iter().filter(|job| job.kind == kind);
    jobs.max_by_key(|job| job.attempt)
}

/// What a Job lacks, by the names of the store and the cluster; `serves`: it needs members that run, and have data of
/// their own.
pub(super) fn missing(
    (store, found): (&LocalRef, Option<&String>),
    (cluster, facts): (&LocalRef, Option<&ClusterFacts>),
    serves: bool,
) -> Option<String> {
    if found.is_none() {
        return Some(format!("there is no EtcdBackupStore {}", store.name));
    }
    let name = &cluster.name;
    let Some(facts) = facts else {
        return Some(format!("there is no EtcdCluster {name}"));
    };
    if let Some(why) = &facts.invalid {
        return Some(format!("EtcdCluster {name}: {why}"));
    }
    if serves && facts.hibernated {
        return Some(format!(
            "EtcdCluster {name} is hibernated: set spec.replicas"
        ));
    }
    if serves && facts.follows {
        return Some(follows(name, facts));
    }
    (!facts.has_key).then(|| format!("EtcdCluster {name} is not set up yet"))
}

/// Why a cluster that follows another one is not saved.
pub(super) fn follows(cluster: &str, facts: &ClusterFacts) -> String {
    if facts.standby {
        return format!(
            "EtcdCluster {cluster} is a standby, and its data are its source's: it is saved once it is promoted"
        );
    }
    format!(
        "EtcdCluster {cluster} follows another cluster, and its data are that one's: it is saved once it has cut over"
    )
}

/// How far a log is archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFacts {
    /// Where to.
    pub location: String,
    /// Everything that was committed then is stored.
    pub through: Timestamp,
    /// The last entry that is stored.
    pub index: i64,
}

/// An `EtcdBackup` and what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedBackup {
    /// Its spec.
    pub spec: EtcdBackupSpec,
    /// Its status.
    pub status: EtcdBackupStatus,
    /// When it was created.
    pub created: Timestamp,
    /// A verification was asked for at this time.
    pub verification_requested: Option<Timestamp>,
    /// The store was found not to have it.
    pub gone: bool,
    /// The cluster, if it exists.
    pub cluster: Option<ClusterFacts>,
    /// The name under which it is stored.
    pub id: String,
    /// The store, if it exists: the location of the cluster's backups in it.
    pub store: Option<String>,
    /// Its Jobs.
    pub jobs: Vec<JobFacts>,
    /// Now.
    pub now: Timestamp,
}

/// An `EtcdBackup` of a schedule's cluster and store.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupFacts {
    /// Its name.
    pub name: String,
    /// This schedule created it.
    pub of_schedule: bool,
    /// When it was created.
    pub created: Timestamp,
    /// Its status.
    pub status: EtcdBackupStatus,
    /// A verification was asked for at this time.
    pub verification_requested: Option<Timestamp>,
    /// The store was found not to have it.
    pub gone: bool,
}

impl BackupFacts {
    /// Stored, and nothing is known against it.
    pub(super) fn good(&self) -> bool {
        let stored = matches!(
            self.status.phase,
            BackupPhase::Uploaded | BackupPhase::Verified
        );
        stored && !self.gone
    }

    /// It will be something else.
    pub(super) fn unfinished(&self) -> bool {
        matches!(
            self.status.phase,
            BackupPhase::Pending | BackupPhase::Streaming
        )
    }

    /// When its data were read.
    pub(super) fn taken(&self) -> Timestamp {
        self.status
            .start_time
            .as_ref()
            .map_or(self.created, |time| time.0)
    }
}

/// An `EtcdBackupSchedule` and what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedSchedule {
    /// Its name.
    pub name: String,
    /// Its UID, from which its delay follows.
    pub uid: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its spec.
    pub spec: EtcdBackupScheduleSpec,
    /// Its status.
    pub status: EtcdBackupScheduleStatus,
    /// When it was created.
    pub created: Timestamp,
    /// Its time zone; `None` if there is none of this name.
    pub zone: Option<TimeZone>,
    /// The cluster, if it exists.
    pub cluster: Option<ClusterFacts>,
    /// The store, if it exists: the location of the cluster's backups in it.
    pub store: Option<String>,
    /// Another schedule of the same cluster and location.
    pub rival: Option<String>,
    /// An older schedule that archives the same cluster.
    pub archiver: Option<String>,
    /// The backups of this cluster in this store.
    pub backups: Vec<BackupFacts>,
    /// Its Jobs.
    pub jobs: Vec<JobFacts>,
    /// Now.
    pub now: Timestamp,
}
