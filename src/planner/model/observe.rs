//! What an operator observes: the objects in the API server, and the description of each member that answers. Changes
//! nothing.

use super::{Disk, Model};
use crate::crd::EtcdRecoverySpec;
use crate::plan::{Description, MemberView, Observed, Phase, Staged};

/// How old an answer is when it is planned from.
const ANSWER_MS: u64 = 100;
/// ID of every cluster that is followed.
const SOURCE: u64 = 0x5e0c;
/// A learner whose last contact is this recent is promotable.
const HEARD_MS: u64 = 1_000;

impl Model {
    /// Everything that can be seen now.
    pub fn observe(&self) -> Observed {
        let mut o = self.api.clone();
        if let Some(pdb) = &mut o.pdb {
            pdb.available = u32::try_from(self.available()).ok();
        }
        let seen = self.api.pods.keys();
        let seen = seen.filter(|name| !self.faults.unseen.contains(*name));
        o.descriptions = seen
            .filter_map(|name| Some((name.clone(), self.describe(name)?)))
            .collect();
        o
    }

    fn describe(&self, name: &str) -> Option<Description> {
        if !self.runs(name) {
            return None;
        }
        let (pod, disk) = (self.api.pods.get(name)?, self.disk(name)?);
        if let Some(foreign) = &disk.foreign {
            return Some(Description {
                pod_uid: pod.uid.clone(),
                ..Description::clone(foreign)
            });
        }
        let description = self.of_itself(name, disk);
        Some(match disk.member {
            Some(id) => self.of_the_cluster(name, id, description),
            None => description,
        })
    }

    /// What the server on a disk reports once its cluster is another one.
    pub(super) fn as_it_was(&self, name: &str, disk: &Disk) -> Description {
        let description = self.of_itself(name, disk);
        match disk.member {
            Some(id) => Description {
                leads: false,
                leader_id: 0,
                ready: false,
                ..self.of_the_cluster(name, id, description)
            },
            None => description,
        }
    }

    /// The part of its description that does not depend on membership.
    fn of_itself(&self, name: &str, disk: &Disk) -> Description {
        let pod = self.api.pods.get(name);
        let uid = pod.map(|pod| pod.uid.clone()).unwrap_or_default();
        let server = self.servers.get(&uid).cloned().unwrap_or_default();
        let version = pod.and_then(|pod| {
            let mut keys = [Some(&pod.uid), pod.inputs.as_ref()].into_iter().flatten();
            keys.find_map(|key| self.versions.get(key))
        });
        let now_ms = self.api.now_ms;
        Description {
            age_ms: ANSWER_MS,
            pod_uid: uid,
            version: version.unwrap_or(&self.version).clone(),
            readable_since: self.readable_since.clone(),
            disk_uuid: disk.uuid.clone(),
            disk_empty: disk.member.is_none(),
            unsigned: self.faults.unsigned.contains(name),
            phase: match (disk.member, disk.removed) {
                (None, _) => Phase::Standby,
                (_, true) => Phase::Removed,
                _ => Phase::Member,
            },
            staged: self.staged(disk),
            archived: self.faults.archived.clone(),
            nonce: disk.nonce.clone(),
            cluster_uid: Some(self.uid().to_owned()),
            retiring_ms: server.retires_ms.map(|at| now_ms.saturating_sub(at).max(1)),
            security: server.loaded,
            space: self.health.space_of(name),
            term: self.raft.term,
            commit: self.raft.commit,
            applied: self.raft.commit,
            alarms: self.health.alarms.clone(),
            configuration_index: self.raft.configuration_index,
            never_voted: self.raft.never_voted.clone(),
            ..Description::default()
        }
    }

    /// The Job of a restore gives a standby all data as soon as it runs.
    pub(super) fn staged(&self, disk: &Disk) -> Option<Staged> {
        let cluster = self.api.cluster.as_ref().ok()?;
        let identity = self.api.identity_secret.as_ref();
        let recovers = identity.is_some_and(|identity| {
            let lost = |spec: &EtcdRecoverySpec| u64::try_from(spec.incarnation).ok();
            let mut asked = self.api.recoveries.iter();
            asked.any(|it| lost(&it.spec).is_some_and(|lost| lost + 1 == identity.incarnation))
        });
        let followed = !recovers && cluster.spec.follow().is_some();
        (recovers || followed || cluster.spec.restore().is_some()).then_some(())?;
        let whole = || Staged {
            source_cluster: if followed { SOURCE } else { 0 },
            sha256: "snapshot".to_owned(),
            length: 1 << 20,
            received: 1 << 20,
            complete: true,
            revision: 100,
            keys: 10,
            ..Staged::default()
        };
        let staged = self.faults.staged.clone().unwrap_or_else(whole);
        disk.member.is_none().then_some(staged)
    }

    fn of_the_cluster(&self, name: &str, id: u64, description: Description) -> Description {
        let leader = self.raft.leader.as_deref();
        let leads = leader == Some(name);
        let follows = leader.filter(|leader| self.reach(leader, name));
        let follows = follows.and_then(|leader| self.raft.by_name(leader));
        let (mut comparisons, mut tombstones, mut members) = (Vec::new(), Vec::new(), Vec::new());
        if description.phase == Phase::Member {
            members = self.views(leads);
        }
        if leads {
            comparisons = self.health.comparisons(self.api.now_ms);
            tombstones.clone_from(&self.raft.tombstones);
        }
        let held = self.raft.members.iter().find(|view| view.id == id);
        Description {
            last_term: self.raft.term.max(1),
            last_index: held.map_or(0, |view| view.match_index.max(1)),
            incarnation: self.raft.incarnation,
            cluster_id: self.raft.cluster_id,
            member_id: id,
            leads,
            leader_id: follows.map_or(0, |view| view.id),
            following: self.raft.following.clone(),
            revision: self.raft.revision,
            ready: self.serves(name),
            comparisons,
            members,
            tombstones,
            ..description
        }
    }

    /// The member list of one of them; only the leader has contact and progress.
    fn views(&self, leads: bool) -> Vec<MemberView> {
        let mut views = self.raft.members.clone();
        for view in &mut views {
            if !leads {
                view.last_contact_ms = None;
                continue;
            }
            let contact = self.raft.contact_ms.get(&view.id);
            view.last_contact_ms = contact.map(|at| self.api.now_ms.saturating_sub(*at));
            view.promotable = view.learner
                && self.lives(view)
                && view.match_index >= self.raft.commit
                && view.last_contact_ms.is_some_and(|age| age < HEARD_MS);
            if !view.promotable {
                view.not_promotable = "its log is behind".into();
            }
        }
        views
    }
}
