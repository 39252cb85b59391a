//! Truths for the oracles' own tests.

use super::{History, Of, Step};
use crate::backup_plan::Saved;
use crate::opsim::harness::backup_truth::{Backup, BackupTruth};
use crate::opsim::harness::ground_truth::{ClusterTruth, GroundTruth, Member};
use crate::opsim::work::store::{Object, timestamp};

/// A member that serves and holds everything.
pub(super) fn member(id: u64) -> (u64, Member) {
    let member = Member {
        name: format!("demo-{id}"),
        reached: true,
        leaving: false,
        held: Some(100),
        taken: None,
        claimed: true,
        node_goes: false,
        routed: false,
        released: false,
        retired_ms: None,
        data: Some(0),
        full: false,
    };
    (id, member)
}

/// A sound cluster of so many voters, as wanted.
pub(super) fn cluster(voters: u64) -> ClusterTruth {
    ClusterTruth {
        name: "demo".into(),
        exists: true,
        generation: 1,
        target: usize::try_from(voters).unwrap_or(0),
        unhealthy_ms: 600_000,
        founded: 1,
        configuration_index: 5,
        quorate: true,
        acknowledged: 100,
        voters: (1..=voters).map(member).collect(),
        volumes: (1..=voters).map(|id| format!("demo-{id}")).collect(),
        ..ClusterTruth::default()
    }
}

/// A history in which this was so at time 0.
pub(super) fn history(cluster: &ClusterTruth) -> History {
    let mut history = History::default();
    history.note(&ground_truth(cluster, 0));
    history
}

pub(super) fn ground_truth(cluster: &ClusterTruth, now_ms: u64) -> GroundTruth {
    GroundTruth {
        now_ms,
        clusters: [("uid".to_owned(), cluster.clone())].into(),
        operators: 1,
        ..GroundTruth::default()
    }
}

pub(super) fn of(cluster: &ClusterTruth, now_ms: u64) -> Of<'_> {
    Of {
        uid: "uid",
        cluster,
        now_ms,
    }
}

pub(super) fn step<'a>(before: &'a ClusterTruth, after: &'a ClusterTruth, now_ms: u64) -> Step<'a> {
    Step {
        uid: "uid",
        before,
        after,
        now_ms,
    }
}

/// A backup that is verified, and is stored.
pub(super) fn backups() -> BackupTruth {
    let path = "s3://b/default/demo/one".to_owned();
    let saved = Saved {
        id: "one".to_owned(),
        started: timestamp(0),
        completed: timestamp(0),
        cluster_id: "9f".to_owned(),
        member_id: "1".to_owned(),
        revision: 7,
        raft_index: 7,
        raft_term: 1,
        hash: 0,
        keys: 1,
        size: 1,
        stored: 1,
        key_id: None,
    };
    let backup = Backup {
        name: "one".to_owned(),
        phase: "Verified".to_owned(),
        path: path.clone(),
        cluster_id: "9f".to_owned(),
        revision: 7,
        verified: "now".to_owned(),
        verified_ms: 1_000,
    };
    let stored = Object {
        saved,
        damage: None,
        damaged_ms: 0,
        verified: Some(true),
    };
    BackupTruth {
        backups: [("uid".to_owned(), backup)].into(),
        stored: [(path, stored)].into(),
        ..BackupTruth::default()
    }
}
