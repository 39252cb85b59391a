//! What the operator does about backups: from what was observed of one `EtcdBackup`, `EtcdBackupSchedule` or cluster that
//! is restored or follows another one to the next step and the status. Pure: time, calendar and what Jobs reported are arguments.
//!
//! A Job of the server's image does the work (`quorate backup save`, `verify`, `prune`) and reports it in one line,
//! [`JobResult`]. Whatever ends in the middle, a Job, a node or the operator, is repeated under the same name in the
//! store, where who comes second finds what the first one has finished. Never holds up a cluster: nothing here is an
//! input of its plan.

mod archive;
mod backup;
mod cron;
mod deletion;
mod follow;
mod last;
mod observed;
mod restore;
mod result;
mod schedule;
mod source;
mod store;

#[cfg(test)]
mod archive_test;
#[cfg(test)]
mod follow_edges_test;
#[cfg(test)]
mod follow_test;
#[cfg(test)]
mod restore_test;
#[cfg(test)]
mod schedule_test;
#[cfg(test)]
mod tests;

pub use backup::{plan_backup, size};
pub use cron::{Calendar, CalendarError};
pub use deletion::{
    DeletionPlan, DeletionStep, DeletionWait, LetGo, ObservedDeletion, SeenBackup,
    last_backup_name, plan_deletion,
};
pub use follow::{FollowPlan, FollowReport, ObservedFollow, made_from, plan_follow};
pub use last::last_backups;
pub use observed::{
    ArchivedFacts, BackupFacts, ClusterFacts, JobFacts, JobKind, JobState, NODE_LOST,
    ObservedBackup, ObservedSchedule,
};
pub use restore::{
    NamedBackup, ObservedRestore, RestoreFrom, RestorePlan, RestoreReport, RestoreTarget,
    StorePlace, plan_restore, store_of_restore,
};
pub use result::{Archived, FailureClass, Followed, JobResult, Pruned, Restored, Saved, Verified};
pub use schedule::plan_schedule;
pub use source::{
    ObservedSource, SourceLetGo, SourcePlan, SourceStanding, SourceStep, plan_source,
};
pub use store::{StoreFinding, plan_store};

use crate::crd::backups::{EtcdBackupScheduleStatus, EtcdBackupStatus};

/// A write that the plan asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupStep {
    /// Create a Job; the number is part of its name.
    CreateJob {
        /// What it does.
        kind: JobKind,
        /// Counts from 1.
        attempt: u32,
    },
    /// Make sure that a Job that waits has the Secret with its key.
    ApplyKey {
        /// The Job's name.
        job: String,
    },
    /// Delete a Job and its pods.
    DeleteJob {
        /// Its name.
        name: String,
    },
    /// Create an `EtcdBackup` for this time of the schedule.
    CreateBackup {
        /// Its name.
        name: String,
    },
    /// Ask for the verification of an `EtcdBackup`.
    RequestVerification {
        /// Its name.
        backup: String,
    },
    /// Delete an `EtcdBackup` whose objects were deleted by the retention.
    DeleteBackup {
        /// Its name.
        backup: String,
    },
    /// Record at an `EtcdBackup` that the store does not have it any more.
    MarkGone {
        /// Its name.
        backup: String,
    },
}

/// The next step of a backup, its status, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupPlan {
    /// Written before the step: what a Job reported is kept before the Job is deleted.
    pub status: EtcdBackupStatus,
    /// At most one write.
    pub step: Option<BackupStep>,
    /// Milliseconds; `None`: only when something changes.
    pub again_ms: Option<u64>,
}

/// The next step of a schedule, its status, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulePlan {
    /// Written after the step: it says which backup was created.
    pub status: EtcdBackupScheduleStatus,
    /// At most one write.
    pub step: Option<BackupStep>,
    /// Milliseconds; `None`: only when something changes.
    pub again_ms: Option<u64>,
}
