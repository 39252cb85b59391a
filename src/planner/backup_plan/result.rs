//! What a Job reports of its end: one line of JSON, in its termination message. Written by `quorate backup
//! --result-file`, read by the operator, which may be of another version: fields are only ever added.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Bytes that Kubernetes keeps of a termination message.
pub(super) const LIMIT: usize = 4096;

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum JobResult {
    /// A backup is stored.
    Saved(Box<Saved>),
    /// A backup was restored and compared.
    Verified(Verified),
    /// Backups were deleted by the retention.
    Pruned(Pruned),
    /// A member that founds a cluster has received a snapshot.
    Restored(Restored),
    /// An archiver has ended, and may be started again.
    Archived(Archived),
    /// A cluster that followed another one has taken its place.
    Followed(Followed),
    /// It did not come to an end.
    Failed {
        /// What is to be done about it.
        class: FailureClass,
        /// Why, in words.
        message: String,
    },
}

/// What is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Its name.
    pub id: String,
    /// When the member was asked.
    pub started: Timestamp,
    /// When everything was stored.
    pub completed: Timestamp,
    /// ID of the cluster, in hexadecimal.
    pub cluster_id: String,
    /// ID of the member, in hexadecimal.
    pub member_id: String,
    /// Revision of the data.
    pub revision: i64,
    /// Index of the last entry in them.
    pub raft_index: u64,
    /// Its term.
    pub raft_term: u64,
    /// etcd's HashKV.
    pub hash: u32,
    /// Keys.
    pub keys: u64,
    /// Bytes of the data.
    pub size: u64,
    /// Bytes in the store.
    pub stored: u64,
    /// Name of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The backup.
    pub id: String,
    /// When it ended.
    pub at: Timestamp,
    /// From the first byte read to a member that answers.
    pub seconds: f64,
    /// Version of the member.
    pub version: String,
    /// Why the backup cannot be restored; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What a member has received, to found a cluster from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// Where it is in the store, as the Job was told.
    pub path: String,
    /// When the member had all of it.
    pub at: Timestamp,
    /// Seconds from the first byte that was read.
    pub seconds: u64,
    /// SHA-256 of the snapshot, in hexadecimal.
    pub sha256: String,
    /// Revision of the data.
    pub revision: i64,
    /// Keys.
    pub keys: u64,
    /// Bytes of the snapshot.
    pub size: u64,
    /// Index of the last entry of the log in them, where a moment was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<u64>,
    /// Everything that was committed at this time is in them, where a moment was asked for and the archive knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
}

/// What an archiver has stored of a cluster's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Archived {
    /// ID of the cluster, in hexadecimal.
    pub cluster_id: String,
    /// Index of the first entry of the last run without a hole; 0 if nothing is stored.
    pub first: u64,
    /// Index of the last one.
    pub last: u64,
    /// Everything that was committed at this time is stored; absent if no time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// Objects that this archiver has written.
    pub objects: u64,
    /// The log no longer holds what comes next: the archive goes on behind the next backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
    /// Why it ended, in words.
    pub message: String,
}

/// A cutover. All 0: an earlier Job has done it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// The last revision of the followed cluster.
    pub revision: i64,
    /// When it was about to be closed to writes, in Unix milliseconds.
    pub frozen_unix_ms: i64,
    /// When the cluster here took writes, by the same clock.
    pub writable_unix_ms: i64,
}

/// What a prune did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// Backups that it deleted.
    pub deleted: Vec<String>,
    /// Backups that are there.
    pub kept: Vec<String>,
    /// When they were listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Timestamp>,
    /// More of them than there is room for here: what is missing above says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
}

/// What is to be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureClass {
    /// The store refuses the credentials.
    Credentials,
    /// The store cannot be reached, is full, or fails.
    Store,
    /// No member gave its data.
    Source,
    /// The member that founds the cluster took no snapshot.
    Target,
    /// Its volume is full.
    TargetFull,
    /// The user's key is missing or another one.
    Key,
    /// The backup is not in the store.
    NotFound,
    /// The backup cannot be restored.
    Damaged,
    /// The settings cannot be used.
    Settings,
    /// Anything else: the Job's machine, a signal.
    #[serde(other)]
    Other,
}

impl JobResult {
    /// Its line, of at most 4 KiB.
    #[must_use]
    pub fn line(&self) -> String {
        let text = |result: &JobResult| serde_json::to_string(result).unwrap_or_default();
        let line = text(self);
        if line.len() <= LIMIT {
            return line;
        }
        match self {
            JobResult::Failed { class, message } => {
                let message = message.chars().take(LIMIT / 8).collect();
                let class = *class;
                text(&JobResult::Failed { class, message })
            }
            JobResult::Verified(verified) => text(&JobResult::Verified(Verified {
                failure: verified
                    .failure
                    .as_ref()
                    .map(|failure| failure.chars().take(LIMIT / 8).collect()),
                ..verified.clone()
            })),
            JobResult::Pruned(pruned) => text(&JobResult::Pruned(pruned.shorten())),
            JobResult::Archived(archived) => text(&JobResult::Archived(Archived {
                message: archived.message.chars().take(LIMIT / 8).collect(),
                ..archived.clone()
            })),
            JobResult::Saved(_) | JobResult::Restored(_) | JobResult::Followed(_) => line,
        }
    }

    /// Reads a termination message; `None` if it is none of these, as that of a Job that was killed.
    #[must_use]
    pub fn read(message: &str) -> Option<JobResult> {
        serde_json::from_str(message.trim()).ok()
    }
}

impl Pruned {
    /// As many of them as surely fit.
    fn shorten(&self) -> Pruned {
        let mut room = LIMIT - 128;
        let mut fits = |id: &&String| {
            // Names are of characters that JSON does not escape.
            room = room.saturating_sub(id.len() + 3);
            room > 0
        };
        let deleted: Vec<String> = self.deleted.iter().take_while(&mut fits).cloned().collect();
        let kept = self.kept.iter().take_while(&mut fits).cloned().collect();
        Pruned {
            deleted,
            kept,
            listed: self.listed,
            shortened: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an archiver and a restore to a moment add fits, and what an older version wrote is still read.
    #[test]
    fn moments_and_archives_are_read_back() {
        let archived = |message: String| {
            JobResult::Archived(Archived {
                cluster_id: "9f".to_owned(),
                first: 12,
                last: 40,
                as_of: Some(Timestamp::UNIX_EPOCH),
                objects: 3,
                gap: true,
                message,
            })
        };
        let result = archived("the log begins with entry 60".to_owned());
        assert_eq!(JobResult::read(&result.line()), Some(result));
        let long = archived("é".repeat(LIMIT));
        assert!(long.line().len() <= LIMIT);
        let read = JobResult::read(&long.line());
        assert!(matches!(read, Some(JobResult::Archived(it)) if it.last == 40 && it.gap));

        let followed = JobResult::Followed(Followed {
            revision: 1207,
            frozen_unix_ms: 1_764_000_000_000,
            writable_unix_ms: 1_764_000_000_450,
        });
        let line = r#"{"result":"followed","revision":1207,"frozenUnixMs":1764000000000,"writableUnixMs":1764000000450}"#;
        assert_eq!(followed.line(), line);
        assert_eq!(JobResult::read(line), Some(followed));

        let older = r#"{"result":"restored","path":"a","at":"2026-01-01T00:00:00Z","seconds":1,"sha256":"","revision":7,"keys":1,"size":9}"#;
        let Some(JobResult::Restored(restored)) = JobResult::read(older) else {
            panic!("not read");
        };
        assert_eq!((restored.raft_index, restored.as_of), (None, None));
        assert_eq!(
            JobResult::Restored(restored.clone()).line(),
            older,
            "nothing is added"
        );
        let moment = JobResult::Restored(Restored {
            raft_index: Some(41),
            as_of: Some(Timestamp::UNIX_EPOCH),
            ..restored
        });
        assert_eq!(JobResult::read(&moment.line()), Some(moment));
    }
}
