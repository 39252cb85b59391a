//! The disks of a hibernating cluster: the voters in the status, each on its own disk. They cannot be queried before
//! they run; learners are not recorded.

use super::{Disk, Model};
use crate::plan::{MemberView, Observed, PvcState};

impl Model {
    /// Recalls the members of a cluster of which none answers, for it hibernates.
    pub(super) fn recall_sleepers(&mut self, o: &Observed) {
        let hibernates = |name: &String| o.sets.get(name).is_some_and(|set| set.hibernated);
        if !o.descriptions.is_empty() || !o.status_memory.voters.iter().any(hibernates) {
            return;
        }
        for (id, name) in (1..).zip(&o.status_memory.voters) {
            let view = MemberView {
                id,
                name: name.clone(),
                disk_uuid: format!("disk-of-{name}"),
                ..MemberView::default()
            };
            let pvc = self.pvc_of(name);
            let joined = |pvc| o.pvcs.get(pvc).map(|facts| facts.state) == Some(PvcState::Joined);
            if joined(&pvc) {
                let disk = Disk {
                    uuid: view.disk_uuid.clone(),
                    member: Some(id),
                    ..Disk::default()
                };
                self.disks.insert(pvc, disk);
            }
            self.raft.members.push(view);
        }
        self.raft.cluster_id = 1;
        self.raft.configuration_index = 1;
        self.raft.formed = 1;
    }
}
