//! Standbys that receive a snapshot: what a Job gives them, what they describe of it, and which call may found a cluster.

use tonic::Status;

use super::{Disk, Phase, Servers};
use crate::wire::member as proto;

/// Bytes of every snapshot.
pub(super) const LENGTH: u64 = 4 << 20;
/// Bytes that a Job sends in a millisecond.
pub(super) const PACE: u64 = 1 << 10;

/// What a Job gives to a standby.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) sha256: String,
    /// The member that it is read from; none: a store.
    giver: Option<String>,
    /// A simulated Job sends it, piece by piece.
    by_job: bool,
    /// ID of the living cluster that it is taken from; 0: of none.
    source_cluster: u64,
}

impl Snapshot {
    pub(super) fn of_a_job(sha256: &str) -> Self {
        Self {
            sha256: sha256.to_owned(),
            giver: None,
            by_job: true,
            source_cluster: 0,
        }
    }
}

/// What a cluster is founded from.
pub(super) struct FirstData {
    pub(super) sha256: String,
    /// The living cluster that it follows.
    pub(super) follows: Option<u64>,
}

impl Servers {
    /// From now on a Job gives this snapshot to the cluster's standbys, for as long as its giver answers.
    pub(crate) fn send(&mut self, cluster_uid: String, sha256: &str, giver: Option<String>) {
        let snapshot = Snapshot {
            sha256: sha256.to_owned(),
            giver,
            by_job: false,
            source_cluster: 0,
        };
        self.snapshots.insert(cluster_uid, snapshot);
    }

    /// The same with the snapshot of a living cluster.
    pub(crate) fn send_living(&mut self, cluster_uid: String, source_cluster: u64) {
        let snapshot = Snapshot {
            sha256: format!("{source_cluster:x}"),
            giver: None,
            by_job: false,
            source_cluster,
        };
        self.snapshots.insert(cluster_uid, snapshot);
    }

    /// The clusters of a resource take the place of those that they follow.
    pub(crate) fn cut_over(&mut self, cluster_uid: &str) {
        for id in self.founded.get(cluster_uid).into_iter().flatten() {
            self.following.remove(id);
        }
    }

    /// Whether the snapshot of this cluster can be read now.
    fn is_given(&self, cluster_uid: &str) -> bool {
        let Some(snapshot) = self.snapshots.get(cluster_uid) else {
            return false;
        };
        if snapshot.by_job {
            return false;
        }
        let Some(giver) = &snapshot.giver else {
            return true;
        };
        let mut processes = self.processes.values();
        processes.any(|process| {
            let container = &process.container;
            let disk = self.disks.get(&container.volume);
            container.name == *giver
                && container.cluster_uid == cluster_uid
                && disk.is_some_and(|disk| disk.phase == Phase::Member)
                && self.answers(process)
        })
    }

    /// Jobs send for so long.
    pub(super) fn receive(&mut self, passed_ms: u64) {
        let standbys = self.processes.values().filter(|process| {
            let container = &process.container;
            let disk = self.disks.get(&container.volume);
            let standby = disk.is_some_and(|disk| disk.phase == Phase::Standby);
            standby && self.is_given(&container.cluster_uid) && self.answers(process)
        });
        let volumes: Vec<String> = standbys
            .map(|process| process.container.volume.clone())
            .collect();
        for volume in volumes {
            if let Some(disk) = self.disks.get_mut(&volume) {
                disk.staged = LENGTH.min(disk.staged + passed_ms * PACE);
            }
        }
    }

    /// What a standby describes of it.
    pub(super) fn staged(&self, cluster_uid: &str, disk: &Disk) -> Option<proto::StagedSnapshot> {
        let snapshot = self.snapshots.get(cluster_uid)?;
        let (sha256, source_cluster) = (snapshot.sha256.clone(), snapshot.source_cluster);
        (disk.phase == Phase::Standby && disk.staged > 0).then(|| proto::StagedSnapshot {
            sha256,
            length: LENGTH,
            received: disk.staged,
            complete: disk.staged == LENGTH,
            revision: 1_000,
            keys: 100,
            elapsed_ms: disk.staged / PACE,
            source_cluster,
            ..proto::StagedSnapshot::default()
        })
    }

    /// What a member describes of the cluster that is followed.
    pub(super) fn following_of(&self, disk: &Disk) -> Option<proto::Following> {
        let source = self.following.get(&disk.cluster_id);
        let source = source.filter(|_| disk.phase == Phase::Member);
        source.map(|source| proto::Following {
            source_cluster: *source,
            frozen_unix_ms: i64::from(self.frozen),
            ..proto::Following::default()
        })
    }

    /// The snapshot that this call founds a cluster from, by the server's own rules.
    pub(super) fn first_data(
        &self,
        disk: &Disk,
        request: &proto::BootstrapRequest,
    ) -> Result<Option<FirstData>, Status> {
        let staged = self.staged(&request.cluster_uid, disk);
        match (&request.snapshot, staged) {
            (None, None) => Ok(None),
            (Some(named), Some(staged)) if named.follow && staged.source_cluster == 0 => {
                let why = format!("{} was taken from no living cluster", staged.sha256);
                Err(Status::failed_precondition(why))
            }
            (Some(named), Some(staged)) if staged.complete && named.sha256 == staged.sha256 => {
                Ok(Some(FirstData {
                    sha256: staged.sha256,
                    follows: named.follow.then_some(staged.source_cluster),
                }))
            }
            _ => Err(Status::failed_precondition(
                "the call names another snapshot than this standby holds",
            )),
        }
    }
}
