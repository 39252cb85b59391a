//! The resource `EtcdBackupSchedule`: when a cluster is saved, which backups are kept, and how often one is verified.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LocalRef;
use crate::crd::schema;

/// A schedule of backups.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdBackupSchedule",
    plural = "etcdbackupschedules",
    shortname = "qbsched",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdBackupScheduleStatus",
    derive = "PartialEq",
    doc = "When an EtcdCluster is saved, which backups are kept, and how often one is verified. Deleting it keeps the backups.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "What is saved"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule", description = "When"),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend", description = "Whether no backups are created"),
    printcolumn(name = "Last success", type_ = "date", json_path = ".status.lastSuccess.time", description = "When the newest good backup was taken"),
    printcolumn(name = "Verified", type_ = "date", json_path = ".status.lastVerified.time", description = "When the newest verified backup was taken"),
    printcolumn(name = "Archived", type_ = "date", json_path = ".status.archive.through", description = "Everything that was committed then can be restored"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextScheduleTime", description = "When the next one is taken"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = "1", description = "What happens now, or went wrong"),
    validation = kube_core::Rule::new("size(self.metadata.name) <= 36")
        .message("the name must have at most 36 characters, because backups are named after it: choose a shorter metadata.name")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupScheduleSpec {
    /// The EtcdCluster that is saved.
    pub cluster_ref: LocalRef,
    /// The EtcdBackupStore that it is saved in.
    pub store_ref: LocalRef,
    /// When, as five fields of cron: minute, hour, day of the month, month, day of the week. Also @hourly, @daily and
    /// so on.
    #[schemars(length(min = 1, max = 128))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^@[a-z]+$') || self.matches('^ *[^ ]+( +[^ ]+){4} *$')", "schedule has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily, @weekly, @monthly or @yearly")])))]
    pub schedule: String,
    /// Time zone of the schedule and of days and weeks of the retention, such as Europe/Berlin.
    #[serde(default = "default_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// While this is true no backups are created, none are deleted and none are verified.
    #[serde(default)]
    pub suspend: bool,
    /// Seconds by which a backup is delayed at most. The delay differs from schedule to schedule and stays the same for
    /// each, so that many clusters are not saved in the same second.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 0 && self <= 3600", "jitterSeconds must be 0 to 3600")])))]
    pub jitter_seconds: i32,
    /// Which backups are kept.
    #[serde(default)]
    pub retention: ScheduleRetention,
    /// Seconds after which the newest backup is verified again: restored into a throw-away member and compared. It is
    /// also verified after the version of the cluster has changed. 0: never.
    #[serde(default = "default_verify")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self == 0 || (self >= 60 && self <= 31536000)", "verifyEverySeconds must be 0 (never), or 60 to 31536000 (a year)")])))]
    pub verify_every_seconds: i32,
    /// MiB a second at most that the member writes for the backup, and that are read from it. By default 25: members serve
    /// beside it as without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 100000", "rateMiBPerSecond must be 1 to 100000")])))]
    #[serde(rename = "rateMiBPerSecond")]
    pub rate_mib_per_second: Option<i32>,
    /// Store every committed entry of the log as well, so that the cluster can be restored to any moment between and after
    /// its backups. `{}` is enough. Without it, what was written since the last backup is lost with the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ScheduleArchive>,
}

/// How the log is archived: by a Job that reads a member and keeps nothing there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScheduleArchive {
    /// Seconds after which new entries are stored at the latest; while nothing is written, nothing is stored.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 60", "archive.intervalSeconds must be 1 to 60")])))]
    pub interval_seconds: i32,
    /// For so many seconds back any moment can be restored: 604800, a week, by default. Older entries are deleted with the
    /// next retention. 0: from the oldest backup that the retention keeps.
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self == 0 || (self >= 3600 && self <= 315360000)", "archive.windowSeconds must be 0 (from the oldest backup), or 3600 to 315360000 (ten years)")])))]
    pub window_seconds: i32,
}

impl Default for ScheduleArchive {
    fn default() -> Self {
        ScheduleArchive {
            interval_seconds: 5,
            window_seconds: 604_800,
        }
    }
}

fn default_zone() -> String {
    "UTC".to_owned()
}

/// A week.
fn default_verify() -> i32 {
    604_800
}

/// Which backups of the cluster are kept: one that any of these keeps stays, also those that were not created by this
/// schedule. The newest good one and the newest verified one always stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.last + self.hourly + self.daily + self.weekly > 0", "retention must keep something: set last, hourly, daily or weekly")])))]
pub struct ScheduleRetention {
    /// The newest so many.
    #[schemars(range(min = 0, max = 10000))]
    pub last: i32,
    /// The newest of each of the last so many hours that have one.
    #[schemars(range(min = 0, max = 10000))]
    pub hourly: i32,
    /// The same of days.
    #[schemars(range(min = 0, max = 10000))]
    pub daily: i32,
    /// The same of weeks, which begin on Monday.
    #[schemars(range(min = 0, max = 10000))]
    pub weekly: i32,
    /// So many good ones stay whatever the others say.
    #[schemars(range(min = 1, max = 10000))]
    pub min_keep: i32,
}

impl Default for ScheduleRetention {
    fn default() -> Self {
        ScheduleRetention {
            last: 3,
            hourly: 0,
            daily: 7,
            weekly: 4,
            min_keep: 3,
        }
    }
}

/// State of a schedule as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdBackupScheduleStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What happens now, or went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time of the schedule for which the last backup was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_schedule_time: Option<Time>,
    /// When the next one is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub next_schedule_time: Option<Time>,
    /// The newest good backup: what would be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<LastBackup>,
    /// The newest backup that was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified: Option<LastBackup>,
    /// Seconds that its verification took: the recovery time as last measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_seconds: Option<i64>,
    /// How the archive of the log is doing, where `archive` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveStatus>,
    /// When backups were last pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_prune_time: Option<Time>,
    /// Ready: the last backup, prune and verification succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How the archive of the log is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArchiveStatus {
    /// Whether entries are stored at the moment.
    pub phase: ArchivePhase,
    /// What it waits for, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Everything that was committed at this time is in the store: the recovery point, to half a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub through: Option<Time>,
    /// Index of the last entry that is in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,
}

/// Whether entries are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ArchivePhase {
    /// Not yet, or not now.
    #[default]
    Pending,
    /// A Job stores what is committed.
    Archiving,
}

/// A backup, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastBackup {
    /// Name of the EtcdBackup.
    pub name: String,
    /// When its data were read.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
    /// Their revision.
    pub revision: i64,
    /// Where it is stored, with the other backups of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
