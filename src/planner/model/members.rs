//! What members make of a call: formation, changes of the configuration, leadership, alarms. A call with
//! an old fence, and one without a leader that has a quorum, is refused.

use super::links::url;
use super::{Model, Refused};
use crate::plan::{Fence, FirstData, Following, MemberAction, MemberView, Staged};

/// The cluster ID of whatever is formed here.
const CLUSTER_ID: u64 = 0xc0ffee;
/// So many entries behind the leader a learner has caught up.
const CAUGHT_UP: u64 = 100;

impl Model {
    pub(super) fn call(&mut self, action: &MemberAction) -> Result<(), Refused> {
        match action {
            MemberAction::Bootstrap {
                member,
                incarnation,
                nonce,
                disk_uuid,
                snapshot,
                ..
            } => self.form(
                member,
                (nonce, *incarnation),
                (disk_uuid, snapshot.as_ref()),
            ),
            MemberAction::AddLearner {
                member,
                secure,
                disk_uuid,
                fence,
            } => {
                self.fence(*fence)?;
                self.add_learner(member, *secure, disk_uuid);
                Ok(())
            }
            MemberAction::SetPeerUrls {
                id, urls, fence, ..
            } => {
                self.fence(*fence)?;
                self.member(*id)?.peer_urls.clone_from(urls);
                self.changed_configuration()
            }
            MemberAction::Promote { id, fence, .. } => {
                self.fence(*fence)?;
                self.promote(*id)
            }
            MemberAction::Transfer {
                from, to, fence, ..
            } => {
                self.fence(*fence)?;
                self.transfer(from, to)
            }
            MemberAction::Disarm {
                kind, id, fence, ..
            } => {
                self.fence(*fence)?;
                self.health.disarm(*kind, *id);
                Ok(())
            }
            MemberAction::Retire { member, pod_uid } => self.retire(member, pod_uid),
            MemberAction::Remove { member, id, fence } => {
                self.fence(*fence)?;
                self.remove(member, *id)
            }
        }
    }

    fn fence(&mut self, fence: Fence) -> Result<(), Refused> {
        if !self.is_quorate() {
            return Err(Refused::NoQuorum);
        }
        if fence.configuration_index != self.raft.configuration_index {
            return Refused::changed("the configuration is another one");
        }
        if fence.epoch < self.raft.epoch {
            return Refused::changed("another operator has taken over");
        }
        self.raft.epoch = fence.epoch;
        Ok(())
    }

    fn member(&mut self, id: u64) -> Result<&mut MemberView, Refused> {
        let found = self.raft.members.iter_mut().find(|view| view.id == id);
        found.ok_or_else(|| Refused::Changed(format!("{id:x} is no member")))
    }

    fn changed_configuration(&mut self) -> Result<(), Refused> {
        self.raft.configuration_index += 1;
        Ok(())
    }

    /// A server that has formed its cluster by this call before succeeds again.
    fn form(
        &mut self,
        member: &str,
        (nonce, incarnation): (&str, u64),
        (disk_uuid, snapshot): (&str, Option<&FirstData>),
    ) -> Result<(), Refused> {
        let peer_urls = vec![self.own_url(member)];
        let name = self.pvc_of(member);
        if !self.runs(member) {
            return Refused::changed(format!("{member} does not answer"));
        }
        let staged = self.disks.get(&name).and_then(|disk| self.staged(disk));
        let disk = self.disks.get_mut(&name);
        let Some(disk) = disk.filter(|disk| disk.uuid == disk_uuid) else {
            return Refused::changed(format!("{member} has another disk"));
        };
        match disk.member {
            Some(_) if disk.nonce.as_deref() == Some(nonce) => return Ok(()),
            Some(_) => return Refused::changed(format!("{member} is no standby")),
            None => {}
        }
        let complete = staged.filter(|staged| staged.complete);
        let hash = |staged: &Staged| staged.sha256.clone();
        if complete.as_ref().map(hash) != snapshot.map(|it| it.sha256.clone()) {
            return Refused::changed(format!("{member} has another snapshot"));
        }
        let source = complete.as_ref().map_or(0, |staged| staged.source_cluster);
        let follows = snapshot.is_some_and(|it| it.follow);
        if follows && source == 0 {
            return Refused::changed(format!("{member} has a snapshot of no living cluster"));
        }
        if incarnation > self.raft.incarnation {
            self.leave_behind();
        }
        let Some(disk) = self.disks.get_mut(&name) else {
            return Refused::changed(format!("{member} has another disk"));
        };
        disk.member = Some(1);
        disk.nonce = Some(nonce.to_owned());
        let view = MemberView {
            id: 1,
            name: member.to_owned(),
            disk_uuid: disk_uuid.to_owned(),
            peer_urls,
            ..MemberView::default()
        };
        self.raft.members = vec![view];
        self.raft.formed += 1;
        self.raft.cluster_id = CLUSTER_ID + incarnation.saturating_sub(1);
        self.raft.leader = None;
        self.raft.incarnation = incarnation;
        self.raft.configuration_index = 1;
        self.raft.commit = 10;
        self.raft.revision = complete.map_or(1, |staged| staged.revision);
        self.raft.following = follows.then(|| Following {
            source_cluster: source,
            ..Following::default()
        });
        Ok(())
    }

    /// Members of the incarnation before stay what they were: one of them that starts is a member of another cluster.
    fn leave_behind(&mut self) {
        let names: Vec<String> = (self.raft.members.iter())
            .map(|view| view.name.clone())
            .collect();
        for name in names {
            let was = self.disk(&name).map(|disk| self.as_it_was(&name, disk));
            let pvc = self.pvc_of(&name);
            if let Some(disk) = self.disks.get_mut(&pvc)
                && disk.foreign.is_none()
            {
                disk.foreign = was.map(Box::new);
            }
        }
        self.raft.tombstones.clear();
        self.raft.never_voted.clear();
        self.raft.contact_ms.clear();
    }

    fn add_learner(&mut self, member: &str, secure: bool, disk_uuid: &str) {
        self.last += 1;
        self.raft.members.push(MemberView {
            id: 100 + self.last,
            name: member.to_owned(),
            learner: true,
            disk_uuid: disk_uuid.to_owned(),
            peer_urls: vec![url(member, secure)],
            ..MemberView::default()
        });
        self.raft.configuration_index += 1;
    }

    fn promote(&mut self, id: u64) -> Result<(), Refused> {
        let commit = self.raft.commit;
        let view = self.member(id)?;
        if view.match_index.saturating_add(CAUGHT_UP) < commit {
            return Refused::changed(format!("{} has not caught up", view.name));
        }
        view.learner = false;
        self.changed_configuration()
    }

    fn transfer(&mut self, from: &str, to: &str) -> Result<(), Refused> {
        if self.raft.leader.as_deref() != Some(from) {
            return Refused::changed(format!("{from} does not lead"));
        }
        if !self.is_supported(to) {
            return Refused::changed(format!("{to} cannot lead"));
        }
        self.lead(to);
        Ok(())
    }

    fn lead(&mut self, member: &str) {
        self.raft.leader = Some(member.to_owned());
        self.raft.term += 1;
        self.health.compared.clear();
    }

    /// It becomes unready, and transfers leadership.
    fn retire(&mut self, member: &str, pod_uid: &str) -> Result<(), Refused> {
        let pod = self.api.pods.get(member);
        if pod.is_none_or(|pod| pod.uid != pod_uid) || !self.runs(member) {
            return Refused::changed(format!("{member} does not answer"));
        }
        let now_ms = self.api.now_ms;
        let server = self.servers.entry(pod_uid.to_owned()).or_default();
        server.retires_ms.get_or_insert(now_ms);
        if self.raft.leader.as_deref() == Some(member)
            && let Some(next) = self.successor()
        {
            self.lead(&next);
        }
        Ok(())
    }

    /// A voter that serves, and for which a quorum would vote.
    fn successor(&self) -> Option<String> {
        let mut others = self.raft.voters().map(|view| &view.name);
        let next = others.find(|name| self.serves(name) && self.is_supported(name));
        next.cloned()
    }

    fn remove(&mut self, member: &str, id: u64) -> Result<(), Refused> {
        if self.member(id)?.learner {
            self.raft.never_voted.insert(id);
        }
        self.raft.members.retain(|view| view.id != id);
        self.raft.tombstones.push((id, member.to_owned()));
        for disk in self.disks.values_mut() {
            disk.removed |= disk.member == Some(id);
        }
        if self.raft.leader.as_deref() == Some(member) {
            self.raft.leader = None;
            self.elect();
        }
        self.changed_configuration()
    }
}
