//! The description that a simulated server gives of itself.

use tonic::Status;

use crate::crd::TlsPort;
use crate::node::MemberRecord;
use crate::server::operator_api::digest::digest;
use crate::wire::member as proto;

use super::{Group, Phase, Process, Servers, alarmed};

impl Servers {
    pub(super) fn describe(
        &self,
        pod: &str,
        linearizable: bool,
    ) -> Result<proto::DescribeResponse, Status> {
        if linearizable {
            self.settled(pod)?;
        }
        let process = &self.processes[pod];
        let container = &process.container;
        let disk = &self.disks[&container.volume];
        let group = self.groups.get(&disk.cluster_id);
        let consensus = group.filter(|_| disk.phase == Phase::Member);
        let leads = consensus.is_some_and(|group| group.leader == Some(disk.member_id));
        let learner = disk
            .membership
            .member(disk.member_id)
            .is_some_and(|member| member.learner);
        let members = disk.membership.members.values();
        let members = members.map(|member| self.view(member, consensus.filter(|_| leads)));
        let ready = self.is_ready(process);
        let mut description = proto::DescribeResponse {
            version: container.version.clone(),
            name: container.name.clone(),
            pod_uid: container.pod_uid.clone(),
            disk_uuid: disk.uuid.clone(),
            phase: phase(disk.phase).into(),
            disk_empty: disk.phase == Phase::Standby,
            awaiting: true,
            nonce: disk.nonce.clone(),
            cluster_uid: match disk.cluster_uid.is_empty() {
                true => container.cluster_uid.clone(),
                false => disk.cluster_uid.clone(),
            },
            staged: self.staged(&container.cluster_uid, disk),
            following: self.following_of(disk),
            incarnation: disk.incarnation,
            cluster_id: disk.cluster_id,
            member_id: disk.member_id,
            role: role(leads, learner, consensus).into(),
            term: consensus.map_or(0, |group| group.term),
            leader_id: self.known_leader(process),
            leader_with_quorum: leads
                && consensus.is_some_and(|group| group.is_quorate(self.now_ms)),
            commit: disk.matched,
            applied: disk.matched,
            configuration_index: disk.membership.configuration_index,
            epoch: disk.membership.epoch.max(process.newest),
            members: members.collect(),
            tombstones: (disk.membership.tombstones.iter())
                .map(|stone| proto::Tombstone {
                    id: stone.id,
                    name: stone.name.clone(),
                })
                .collect(),
            changes: (disk.membership.changes.iter())
                .map(|change| proto::Change {
                    index: change.index,
                    kind: change.kind().name().to_owned(),
                    id: change.id,
                    name: change.name.clone(),
                })
                .collect(),
            ready,
            unready_reason: if ready { "" } else { "not ready" }.to_owned(),
            alarms: self.alarms.clone(),
            claim_uid: disk.pvc_uid.clone(),
            activity: String::new(),
            // Logs of the simulation have one term, so that the longest is the one with the highest index.
            last_term: u64::from(disk.phase == Phase::Member),
            last_append_ms: 0,
            archived: self.archived.get(&container.cluster_uid).cloned(),
            last_index: disk.matched,
            revision: 1,
            db_size: alarmed::USED,
            peer_urls: vec![container.peer_url.clone()],
            retiring_ms: (process.retired_ms)
                .map_or(0, |since| self.now_ms.saturating_sub(since).max(1)),
            peer_security: Some(process.security(TlsPort::Peer)),
            client_security: Some(process.security(TlsPort::Client)),
            readable_since: self.behaviour.readable_since.clone(),
            space: Some(self.space(container)),
            comparisons: match group.filter(|_| leads) {
                Some(group) => group.comparisons(self.now_ms),
                None => Vec::new(),
            },
            digest: 0,
        };
        if self.behaviour.tells {
            description.digest = digest(&description);
        }
        Ok(description)
    }

    /// The leader that this server follows; 0 without one.
    fn known_leader(&self, process: &Process) -> u64 {
        let leader = self
            .disks
            .get(&process.container.volume)
            .and_then(|disk| Some((disk, self.groups.get(&disk.cluster_id)?)))
            .filter(|(disk, _)| disk.phase == Phase::Member)
            .and_then(|(disk, group)| {
                let leader = group.leader?;
                self.reaches(group.id, leader, disk.member_id)
                    .then_some(leader)
            });
        leader.unwrap_or(0)
    }

    fn view(&self, member: &MemberRecord, leading: Option<&Group>) -> proto::MemberView {
        let itself = leading.is_some_and(|group| group.leader == Some(member.id));
        let behind = match leading {
            Some(_) if itself => None,
            Some(group) => self.behind(group, member.id),
            None => Some("this server does not lead".to_owned()),
        };
        let age = match leading {
            Some(_) if itself => Some(0),
            Some(group) => group.age_ms(member.id, self.now_ms),
            None => None,
        };
        let held = leading.and_then(|group| self.held(group.id, member.id));
        proto::MemberView {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: member.client_urls.clone(),
            learner: member.learner,
            disk_uuid: member.disk_uuid.clone(),
            match_index: held.unwrap_or(0),
            last_contact_age_ms: age.map_or(-1, |age| i64::try_from(age).unwrap_or(i64::MAX)),
            in_sync: behind.is_none(),
            not_in_sync_reason: behind.unwrap_or_default(),
            snapshot_pending: false,
            unsynced_ms: match (leading, self.hung_disks.get(&member.name)) {
                (Some(_), Some(since)) => self.now_ms.saturating_sub(*since),
                _ => 0,
            },
        }
    }
}

fn phase(phase: Phase) -> proto::Phase {
    match phase {
        Phase::Standby => proto::Phase::Standby,
        Phase::Joining => proto::Phase::Joining,
        Phase::Member => proto::Phase::Member,
        Phase::Removed => proto::Phase::Removed,
    }
}

fn role(leads: bool, learner: bool, consensus: Option<&Group>) -> proto::Role {
    match consensus {
        None => proto::Role::Unspecified,
        Some(_) if leads => proto::Role::Leader,
        Some(_) if learner => proto::Role::Learner,
        Some(_) => proto::Role::Follower,
    }
}
