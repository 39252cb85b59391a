//! A cluster of simulated servers: who leads, who is in contact, and what is committed. A model
//! of consensus, with the times of the real one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt as _;

use crate::node::{ChangeBody, Join, Membership, Standing};
use crate::raft::{ProgressState, ProgressStatus};
use crate::wire::member as proto;

use super::{CATCH_UP_MS, Phase, Servers};

/// Without contact for this long a leader steps down.
pub(super) const ELECTION_MS: u64 = 1_000;
/// A member is in sync only if it answered within this.
const CONTACT_MS: u64 = 200;
/// In contact for this long, a member counts as steady.
const HEALTH_MS: u64 = 5_000;

/// One cluster.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: u64,
    /// As committed.
    pub(crate) membership: Membership,
    pub(crate) commit: u64,
    /// The last entry that was acknowledged to a client.
    pub(crate) acknowledged: u64,
    pub(crate) term: u64,
    pub(crate) leader: Option<u64>,
    leading_since: u64,
    /// When the next election may succeed.
    elects_ms: u64,
    /// When the leader last heard from a member.
    contact: BTreeMap<u64, u64>,
    /// Since when a member has been in contact without a gap.
    since: BTreeMap<u64, u64>,
    commits: VecDeque<(u64, u64)>,
    /// Writes of clients that are not yet a whole entry, in thousandths.
    rest: u64,
    /// Comparisons of the members' data that its leader made, the newest first, with when.
    pub(super) compared: Vec<(u64, proto::Comparison)>,
}

impl Group {
    pub(super) fn found(id: u64, membership: Membership, leader: u64, now_ms: u64) -> Self {
        Self {
            id,
            membership,
            commit: 1,
            acknowledged: 1,
            term: 1,
            leader: Some(leader),
            leading_since: now_ms,
            elects_ms: 0,
            contact: [(leader, now_ms)].into(),
            since: [(leader, now_ms)].into(),
            commits: VecDeque::new(),
            rest: 0,
            compared: Vec::new(),
        }
    }

    pub(crate) fn quorum(&self) -> usize {
        self.membership.voters().count() / 2 + 1
    }

    /// The age of the leader's last contact with a member, in milliseconds.
    pub(super) fn age_ms(&self, id: u64, now_ms: u64) -> Option<u64> {
        let at = self.contact.get(&id)?;
        Some(now_ms.saturating_sub(*at))
    }

    /// Members that the leader heard from within an election timeout.
    pub(super) fn in_contact(&self, now_ms: u64) -> BTreeSet<u64> {
        let young = |at: &u64| now_ms.saturating_sub(*at) <= ELECTION_MS;
        let contact = self.contact.iter().filter(|(_, at)| young(at));
        contact.map(|(id, _)| *id).collect()
    }

    /// Members in contact for long enough to count on.
    pub(super) fn steady(&self, now_ms: u64) -> BTreeSet<u64> {
        let from_the_start = self.leading_since + ELECTION_MS;
        let long_ago = now_ms.saturating_sub(HEALTH_MS);
        let in_contact = self.in_contact(now_ms);
        let since = self.since.iter().filter(|(id, since)| {
            let young = from_the_start >= long_ago && **since <= from_the_start;
            in_contact.contains(id) && (young || **since <= long_ago)
        });
        since.map(|(id, _)| *id).collect()
    }

    /// Whether the leader has heard from a quorum of the voters within an election timeout.
    pub(crate) fn is_quorate(&self, now_ms: u64) -> bool {
        let in_contact = self.in_contact(now_ms);
        let voters = self.membership.voters();
        let reached = voters.filter(|member| in_contact.contains(&member.id));
        self.leader.is_some() && reached.count() >= self.quorum()
    }

    pub(crate) fn lead(&mut self, leader: u64, now_ms: u64) {
        self.term += 1;
        self.leader = Some(leader);
        self.leading_since = now_ms;
        self.contact = [(leader, now_ms)].into();
        self.since = [(leader, now_ms)].into();
        self.commits.clear();
        self.compared.clear();
    }

    /// The commit index one election timeout ago; a newer leader asks for all there is.
    fn commit_before(&self, now_ms: u64) -> u64 {
        match self.commits.front() {
            Some((at, commit)) if at + ELECTION_MS <= now_ms => *commit,
            _ => self.commit,
        }
    }
}

impl Servers {
    /// One cluster's life until now.
    pub(super) fn lead(&mut self, id: u64, past_ms: u64) {
        let Some(mut group) = self.groups.remove(&id) else {
            return;
        };
        self.groups.insert(id, group.clone());
        self.keep_or_elect(&mut group);
        self.groups.insert(id, group.clone());
        if group.leader.is_some() {
            self.note_contacts(&mut group);
            self.replicate(&mut group, past_ms);
            self.welcome(&mut group);
            self.compare(&mut group);
        }
        self.groups.insert(id, group);
        self.spread(id);
    }

    fn keep_or_elect(&mut self, group: &mut Group) {
        let now_ms = self.now_ms;
        if let Some(leader) = group.leader {
            let voter = group.membership.member(leader).is_some_and(|m| !m.learner);
            let retires = self
                .process_of(group.id, leader)
                .is_some_and(|p| p.container.stopping);
            if retires {
                // Asked to end, it hands over before it goes.
                if let Some(heir) = self.heir(group, leader) {
                    group.lead(heir, now_ms);
                    return;
                }
            }
            let reached = self.reached_voters(group).len() >= group.quorum();
            if voter && self.lives(group.id, leader) && (reached || group.is_quorate(now_ms)) {
                return;
            }
            group.leader = None;
            group.elects_ms = now_ms + ELECTION_MS + self.random.random_range(0..ELECTION_MS);
        }
        if now_ms < group.elects_ms {
            return;
        }
        if let Some(leader) = self.electable(group) {
            group.lead(leader, now_ms);
        }
    }

    /// A live voter that reaches a quorum and holds all that is committed. If the disks that hold
    /// it are gone, so is the data: then one that holds most.
    fn electable(&mut self, group: &mut Group) -> Option<u64> {
        let voters: Vec<u64> = group.membership.voters().map(|m| m.id).collect();
        let able = |id: &u64| {
            let reached = voters
                .iter()
                .filter(|other| self.reaches(group.id, *id, **other));
            let whole = self
                .disk_of(group.id, *id)
                .is_some_and(|d| d.phase == Phase::Member);
            whole && reached.count() >= group.quorum()
        };
        let able: Vec<u64> = voters.iter().copied().filter(able).collect();
        let most = able
            .iter()
            .filter_map(|id| self.held(group.id, *id))
            .max()?;
        group.commit = group.commit.min(most);
        let fit: Vec<u64> = able
            .into_iter()
            .filter(|id| self.held(group.id, *id) == Some(most))
            .collect();
        let chosen = self.random.random_range(0..fit.len());
        fit.get(chosen).copied()
    }

    /// A voter that can take over at once.
    pub(super) fn heir(&self, group: &Group, leader: u64) -> Option<u64> {
        let reached = self.reached_voters(group);
        let fit = |id: &u64| {
            let process = self.process_of(group.id, *id);
            *id != leader
                && self.held(group.id, *id) == Some(group.commit)
                && process.is_some_and(|p| !p.container.stopping && p.retired_ms.is_none())
        };
        reached.into_iter().find(fit)
    }

    fn note_contacts(&mut self, group: &mut Group) {
        let Some(leader) = group.leader else { return };
        let now_ms = self.now_ms;
        let members: Vec<u64> = group.membership.members.keys().copied().collect();
        for id in &members {
            if self.reaches(group.id, leader, *id) {
                let gap = group
                    .age_ms(*id, now_ms)
                    .is_none_or(|age| age > ELECTION_MS);
                group.contact.insert(*id, now_ms);
                if gap {
                    group.since.insert(*id, now_ms);
                }
            }
        }
        group.contact.retain(|id, _| members.contains(id));
        group.since.retain(|id, _| members.contains(id));
        group.since.entry(leader).or_insert(now_ms);
    }

    /// Clients write, and those in contact follow.
    fn replicate(&mut self, group: &mut Group, past_ms: u64) {
        let Some(leader) = group.leader else { return };
        let now_ms = self.now_ms;
        let before = group.commit;
        let in_sync: Vec<u64> = group
            .membership
            .voters()
            .map(|m| m.id)
            .filter(|id| self.reaches(group.id, leader, *id))
            .filter(|id| self.held(group.id, *id) == Some(before))
            .collect();
        if in_sync.len() >= group.quorum() {
            group.rest += past_ms.min(5_000) * self.behaviour.writes_per_second;
            group.commit += group.rest / 1000;
            group.rest %= 1000;
            group.acknowledged = group.commit;
        }
        let members: Vec<u64> = group.membership.members.keys().copied().collect();
        let data = self.disk_of(group.id, leader).map_or(0, |disk| disk.data);
        for id in members {
            let reached = self.reaches(group.id, leader, id);
            let commit = group.commit;
            let Some(disk) = self.disk_mut(group.id, id) else {
                continue;
            };
            if !reached {
                disk.caught_up_ms = None;
            } else if disk.matched == before && disk.phase == Phase::Member {
                disk.matched = commit;
                disk.caught_up_ms = None;
            } else {
                let due = *disk.caught_up_ms.get_or_insert(now_ms + CATCH_UP_MS);
                if now_ms >= due {
                    if disk.phase == Phase::Joining {
                        disk.data = data;
                    }
                    disk.phase = Phase::Member;
                    disk.matched = commit;
                    disk.caught_up_ms = None;
                }
            }
        }
        group.commits.push_back((now_ms, group.commit));
        let old = |at: u64| at + ELECTION_MS <= now_ms;
        while group.commits.get(1).is_some_and(|(at, _)| old(*at)) {
            group.commits.pop_front();
        }
    }

    /// The leader binds those who have joined.
    fn welcome(&mut self, group: &mut Group) {
        let Some(leader) = group.leader else { return };
        let waiting: Vec<u64> = group
            .membership
            .members
            .values()
            .filter(|m| !m.started && self.reaches(group.id, leader, m.id))
            .map(|m| m.id)
            .collect();
        for id in waiting {
            let Some(process) = self.process_of(group.id, id) else {
                continue;
            };
            let container = &process.container;
            let disk = self.disks.get(&container.volume);
            let join = ChangeBody::Join(Join {
                id,
                disk_uuid: disk.map(|disk| disk.uuid.clone()).unwrap_or_default(),
                name: container.name.clone(),
                client_urls: vec![container.client_url.clone()],
            });
            if let Ok(after) = group.membership.after(group.commit, &join.into()) {
                group.membership = after;
            }
        }
    }

    /// Who is in contact learns the membership; who was removed learns that.
    pub(super) fn spread(&mut self, id: u64) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        let Some(leader) = group.leader else { return };
        let Some(own) = self.process_of(id, leader).map(|p| p.container.clone()) else {
            return;
        };
        let membership = group.membership.clone();
        let processes = self.processes.values();
        let volumes: Vec<String> = processes
            .filter(|p| self.answers(p) && self.connected(&p.container, &own))
            .map(|p| p.container.volume.clone())
            .collect();
        for volume in volumes {
            let Some(disk) = self.disks.get_mut(&volume).filter(|d| d.cluster_id == id) else {
                continue;
            };
            if membership.is_removed(disk.member_id) {
                disk.phase = Phase::Removed;
                disk.membership = membership.clone();
            } else if disk.phase == Phase::Member {
                disk.membership = membership.clone();
            }
        }
    }

    /// An entry of the leader's own is committed, and held by everyone who was up to date.
    pub(super) fn append(&mut self, group: u64, index: u64) {
        let Some(found) = self.groups.get_mut(&group) else {
            return;
        };
        let before = found.commit;
        found.commit = index;
        found.acknowledged = index;
        let leader = found.leader.unwrap_or_default();
        let members: Vec<u64> = found.membership.members.keys().copied().collect();
        for id in members {
            let reached = self.reaches(group, leader, id);
            if let Some(disk) = self.disk_mut(group, id)
                && reached
                && disk.matched == before
            {
                disk.matched = index;
            }
        }
    }

    fn disk_mut(&mut self, group: u64, id: u64) -> Option<&mut super::Disk> {
        let record = self.groups.get(&group)?.membership.member(id)?.clone();
        self.disks.values_mut().find(|disk| {
            disk.cluster_id == group && disk.member_id == id && disk.uuid == record.disk_uuid
        })
    }

    /// Why a member is not in sync with its leader, by the server's own measure.
    pub(super) fn behind(&self, group: &Group, id: u64) -> Option<String> {
        let matched = self.held(group.id, id).unwrap_or(0);
        let disk = self.disk_of(group.id, id);
        let joining = disk.is_some_and(|disk| disk.phase == Phase::Joining);
        let bound = group.membership.expected_disk(id).is_some();
        let standing = Standing {
            commit_before: group.commit_before(self.now_ms),
            leader_last: group.commit,
            contact_within_ms: CONTACT_MS,
        };
        let progress = ProgressStatus {
            matched,
            next: matched + 1,
            state: if joining {
                ProgressState::Snapshot
            } else {
                ProgressState::Replicate
            },
            learner: true,
            recent_active: true,
            last_ack_tick: None,
            applied: matched,
            pending_snapshot: joining.then_some(group.commit),
            inflight_messages: 0,
            inflight_bytes: 0,
        };
        standing.behind(&progress, group.age_ms(id, self.now_ms), bound)
    }

    /// Who can answer a linearizable read now.
    pub(super) fn update_ready(&mut self) {
        let serving = |process: &super::Process| {
            let disk = self.disks.get(&process.container.volume)?;
            let group = self.groups.get(&disk.cluster_id)?;
            let voter = group
                .membership
                .member(disk.member_id)
                .is_some_and(|m| !m.learner);
            let leader = group.leader?;
            let reached = self.reaches(group.id, leader, disk.member_id);
            (voter && reached && group.is_quorate(self.now_ms) && disk.phase == Phase::Member)
                .then_some(())
        };
        let ready: Vec<String> = (self.processes.iter())
            .filter(|(_, process)| self.answers(process) && serving(process).is_some())
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in ready {
            if let Some(process) = self.processes.get_mut(&uid) {
                process.ready_ms = Some(self.now_ms);
            }
        }
    }
}
