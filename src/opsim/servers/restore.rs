//! Standbys that receive a snapshot: what a Job gives them, what they describe of it, and which call may found a cluster.

use tonic::Status;

use super::{Disk, Phase, Servers};
use crate::wire::member as proto;

/// Bytes of every snapshot.
const LENGTH: u64 = 4 << 20;
/// Bytes that a Job sends in a millisecond.
const PACE: u64 = 1 << 10;

/// What a Job gives to a standby.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    sha256: String,
    /// The member that it is read from; none: a store.
    giver: Option<String>,
}

impl Servers {
    /// From now on a Job gives this snapshot to the cluster's standbys, for as long as its giver answers.
    pub(crate) fn send(&mut self, cluster_uid: String, sha256: &str, giver: Option<String>) {
        let snapshot = Snapshot {
            sha256: sha256.to_owned(),
            giver,
        };
        self.snapshots.insert(cluster_uid, snapshot);
    }

    /// Whether the snapshot of this cluster can be read now.
    fn is_given(&self, cluster_uid: &str) -> bool {
        let Some(snapshot) = self.snapshots.get(cluster_uid) else {
            return false;
        };
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
        let sha256 = self.snapshots.get(cluster_uid)?.sha256.clone();
        (disk.phase == Phase::Standby && disk.staged > 0).then(|| proto::StagedSnapshot {
            sha256,
            length: LENGTH,
            received: disk.staged,
            complete: disk.staged == LENGTH,
            revision: 1_000,
            keys: 100,
            elapsed_ms: disk.staged / PACE,
            ..proto::StagedSnapshot::default()
        })
    }

    /// The snapshot that this call founds a cluster from, by the server's own rules.
    pub(super) fn first_data(
        &self,
        disk: &Disk,
        request: &proto::BootstrapRequest,
    ) -> Result<Option<String>, Status> {
        let staged = self.staged(&request.cluster_uid, disk);
        match (&request.snapshot, staged) {
            (None, None) => Ok(None),
            (Some(named), Some(staged)) if staged.complete && named.sha256 == staged.sha256 => {
                Ok(Some(staged.sha256))
            }
            _ => Err(Status::failed_precondition(
                "the call names another snapshot than this standby holds",
            )),
        }
    }
}
