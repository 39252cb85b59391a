//! What a simulated server does when the operator asks: bootstrap, membership, transfer, retire.
//! The rules are the server's own; only how a change is agreed on is left out.

use std::collections::BTreeMap;

use tonic::Status;

use crate::node::{
    Add, ChangeBody, Facts, MemberRecord, Membership, MembershipCommand, MembershipError, Target,
    Update, cluster_id, member_id,
};
use crate::server::refusal;
use crate::wire::member as proto;

use super::{Group, Phase, Servers};

/// Learners that operator-run servers allow at a time.
const MAX_LEARNERS: usize = 3;

impl Servers {
    /// Founds a cluster on this pod's disk, or answers that this very call was carried out before.
    pub(super) fn bootstrap(
        &mut self,
        pod: &str,
        request: &proto::BootstrapRequest,
    ) -> Result<proto::BootstrapResponse, Status> {
        let process = &self.processes[pod];
        let container = process.container.clone();
        let disk = &self.disks[&container.volume];
        if request.disk_uuid != disk.uuid {
            return Err(Status::failed_precondition("the call is for another disk"));
        }
        if container.cluster_uid != request.cluster_uid {
            return Err(Status::failed_precondition(
                "this server was started for another cluster",
            ));
        }
        if disk.phase != Phase::Standby {
            let same = disk.cluster_uid == request.cluster_uid
                && disk.incarnation == request.incarnation
                && disk.nonce == request.nonce
                && disk.pvc_uid == request.claim_uid;
            if !same {
                return Err(Status::failed_precondition(
                    "this disk belongs to a cluster already and was not founded by this call",
                ));
            }
            return Ok(proto::BootstrapResponse {
                cluster_id: disk.cluster_id,
                member_id: disk.member_id,
                already: true,
            });
        }
        let first_data = self.first_data(disk, request)?;
        let token = format!("{}/{}", request.cluster_uid, request.incarnation);
        let urls = vec![container.peer_url.clone()];
        let member_id = member_id(&urls, &token, None);
        // Two clusters of one resource are two, though they would have the same number.
        let before = self.founded.get(&request.cluster_uid).map_or(0, Vec::len);
        let cluster_id = cluster_id([member_id]).wrapping_add(before as u64);
        let own = MemberRecord {
            id: member_id,
            name: container.name.clone(),
            peer_urls: urls,
            client_urls: vec![container.client_url.clone()],
            learner: false,
            disk_uuid: disk.uuid.clone(),
            started: true,
        };
        let (uid, incarnation) = (&request.cluster_uid, request.incarnation);
        let membership = Membership::found(cluster_id, uid, incarnation, vec![own])
            .map_err(|error| Status::internal(error.to_string()))?;
        let founded = self.founded.entry(uid.clone()).or_default();
        founded.push(cluster_id);
        if let Some(data) = first_data {
            self.founded_from.insert(cluster_id, data.sha256);
            if let Some(source) = data.follows {
                self.founded_following.insert(cluster_id);
                self.following.insert(cluster_id, source);
            }
        }
        if let Some(disk) = self.disks.get_mut(&container.volume) {
            disk.phase = Phase::Member;
            disk.cluster_uid.clone_from(uid);
            disk.incarnation = incarnation;
            disk.nonce.clone_from(&request.nonce);
            disk.pvc_uid.clone_from(&request.claim_uid);
            disk.cluster_id = cluster_id;
            disk.member_id = member_id;
            disk.matched = 1;
            disk.membership = membership.clone();
        }
        let group = Group::found(cluster_id, membership, member_id, self.now_ms);
        self.groups.insert(cluster_id, group);
        Ok(proto::BootstrapResponse {
            cluster_id,
            member_id,
            already: false,
        })
    }

    /// The group that this pod's server can speak for: it has a leader that holds a quorum, and
    /// this server reaches it.
    pub(super) fn settled(&self, pod: &str) -> Result<&Group, Status> {
        let disk = &self.disks[&self.processes[pod].container.volume];
        let group = self.groups.get(&disk.cluster_id);
        let group = group
            .filter(|_| disk.phase == Phase::Member)
            .ok_or_else(|| Status::failed_precondition("this server is not a member"))?;
        let leader = group
            .leader
            .ok_or_else(|| Status::unavailable("there is no leader"))?;
        let reached = self.reaches(group.id, leader, disk.member_id);
        let quorate = self.reached_voters(group).len() >= group.quorum();
        if !reached || !quorate {
            return Err(Status::unavailable("the request timed out"));
        }
        Ok(group)
    }

    fn change(
        &mut self,
        pod: &str,
        body: ChangeBody,
        fence: Option<proto::Fence>,
    ) -> Result<proto::ChangeResponse, Status> {
        let fence = fence.ok_or_else(|| Status::invalid_argument("a change needs a fence"))?;
        let command = MembershipCommand {
            body: Some(body.clone()),
            expected_configuration_index: Some(fence.configuration_index),
            epoch: Some(fence.epoch),
        };
        let group = self.settled(pod)?;
        let own = group.leader.unwrap_or_default();
        let (in_contact, steady) = (group.in_contact(self.now_ms), group.steady(self.now_ms));
        let others = group.membership.members.keys().filter(|id| **id != own);
        let behind: BTreeMap<u64, Option<String>> =
            others.map(|id| (*id, self.behind(group, *id))).collect();
        let facts = Facts {
            own,
            membership: &group.membership,
            max_learners: MAX_LEARNERS,
            strict: true,
            in_contact: &in_contact,
            steady: &steady,
            behind: &behind,
        };
        let refused = |error| refusal(&error, error.to_string());
        let admitted = facts.admit(&command);
        let fenced = matches!(admitted, Err(MembershipError::StaleEpoch { .. }));
        let index = group.commit + 1;
        let after = admitted.and_then(|()| group.membership.after(index, &command));
        let group_id = group.id;
        self.fenced += u64::from(fenced);
        let after = after.map_err(refused)?;
        let id = match body {
            ChangeBody::Add(add) => add.id,
            ChangeBody::Promote(target) | ChangeBody::Remove(target) => target.id,
            _ => 0,
        };
        let configuration_index = after.configuration_index;
        // The entry is on a quorum at once, and everyone in contact has it: also where it removes
        // the leader, who leads until then.
        self.append(group_id, index);
        if let Some(group) = self.groups.get_mut(&group_id) {
            group.membership = after;
            group.membership.settled_index = index;
        }
        self.spread(group_id);
        Ok(proto::ChangeResponse {
            id,
            configuration_index,
        })
    }

    pub(super) fn add_learner(
        &mut self,
        pod: &str,
        request: proto::AddLearnerRequest,
    ) -> Result<proto::ChangeResponse, Status> {
        if request.disk_uuid.is_empty() || request.peer_urls.is_empty() {
            return Err(Status::invalid_argument(
                "a learner needs the disk UUID and the peer URLs that its standby describes",
            ));
        }
        let add = ChangeBody::Add(Add {
            id: member_id(&request.peer_urls, "", Some(self.now_ms / 1000)),
            name: request.name,
            peer_urls: request.peer_urls,
            client_urls: Vec::new(),
            learner: true,
            disk_uuid: request.disk_uuid,
        });
        self.change(pod, add, request.fence)
    }

    pub(super) fn promote(
        &mut self,
        pod: &str,
        request: &proto::PromoteRequest,
    ) -> Result<proto::ChangeResponse, Status> {
        let target = Target { id: request.id };
        self.change(pod, ChangeBody::Promote(target), request.fence)
    }

    pub(super) fn remove(
        &mut self,
        pod: &str,
        request: &proto::RemoveRequest,
    ) -> Result<proto::ChangeResponse, Status> {
        let target = Target { id: request.id };
        self.change(pod, ChangeBody::Remove(target), request.fence)
    }

    pub(super) fn update_peer_urls(
        &mut self,
        pod: &str,
        request: proto::UpdatePeerUrlsRequest,
    ) -> Result<proto::ChangeResponse, Status> {
        let update = Update {
            id: request.id,
            peer_urls: request.peer_urls,
        };
        self.change(pod, ChangeBody::Update(update), request.fence)
    }

    pub(super) fn transfer(&mut self, pod: &str, to: u64) -> Result<u64, Status> {
        let disk = &self.disks[&self.processes[pod].container.volume];
        let (own, id) = (disk.member_id, disk.cluster_id);
        let group = self
            .groups
            .get(&id)
            .filter(|group| group.leader == Some(own))
            .ok_or_else(|| Status::failed_precondition("not leader"))?;
        let voters = self.reached_voters(group);
        let target = match to {
            0 => self.heir(group, own),
            to => Some(to).filter(|to| voters.contains(to)),
        };
        let target = target.ok_or_else(|| Status::failed_precondition("bad leader transferee"))?;
        if self.held(id, target) != Some(group.commit) {
            return Err(Status::unavailable("the transfer timed out"));
        }
        let now_ms = self.now_ms;
        if let Some(group) = self.groups.get_mut(&id).filter(|_| target != own) {
            group.lead(target, now_ms);
        }
        Ok(target)
    }

    /// Makes a server unready and hands its leadership over.
    pub(super) fn retire(&mut self, pod: &str) -> u64 {
        let now = self.now_ms;
        if let Some(process) = self.processes.get_mut(pod) {
            process.retired_ms.get_or_insert(now);
        }
        let disk = &self.disks[&self.processes[pod].container.volume];
        let (own, id) = (disk.member_id, disk.cluster_id);
        let leader = self.groups.get(&id).and_then(|group| group.leader);
        if leader == Some(own)
            && let Ok(heir) = self.transfer(pod, 0)
        {
            return heir;
        }
        leader.unwrap_or(0)
    }
}
