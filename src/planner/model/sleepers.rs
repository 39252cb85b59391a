//! The disks of a cluster of which nothing runs: of one that hibernates those of the voters in the status, and of one that
//! adopts volumes those that members have used. They cannot be queried before they run; learners are not recorded.

use super::{Disk, Model};
use crate::plan::{MemberView, Observed, PvcFacts, PvcState};

impl Model {
    /// Recalls the members of a cluster of which none answers, for it hibernates.
    pub(super) fn recall_sleepers(&mut self, o: &Observed) {
        if !o.descriptions.is_empty() {
            return;
        }
        let hibernates = |name: &String| o.sets.get(name).is_some_and(|set| set.hibernated);
        let voters = &o.status_memory.voters;
        let names = match voters.iter().any(hibernates) {
            true => voters.clone(),
            false => self.adopted(o),
        };
        if names.is_empty() {
            return;
        }
        for (id, name) in (1..).zip(&names) {
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

    /// The members whose volumes are adopted: those of the newest incarnation.
    fn adopted(&self, o: &Observed) -> Vec<String> {
        let adopts = self.cluster().is_some_and(|it| it.spec.adopts().is_some());
        let ours = |pvc: &&PvcFacts| pvc.cluster_uid.as_deref() == Some(self.uid());
        let used = o.pvcs.values().filter(ours);
        let used = used.filter(|pvc| adopts && pvc.state == PvcState::Joined);
        let newest = used.clone().map(|pvc| pvc.incarnation).max();
        let used = used.filter(|pvc| Some(pvc.incarnation) == newest);
        used.filter_map(|pvc| pvc.member.clone()).collect()
    }
}
