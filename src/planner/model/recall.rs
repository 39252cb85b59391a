//! From the observation to the state behind it, as far as that is visible: a server that answers keeps answering, one
//! that does not stays silent until its pod is replaced, and then finds on its volume the data that the leader has
//! recorded. What was not observed is assumed to work, and so is a member that answers but without contact to its
//! leader: it may have just started. Makes no further requests.

use std::collections::BTreeMap;

use super::kubelets::{Server, is_up};
use super::{Disk, Faults, Health, Model, Pace, Raft, Template};
use crate::crd::TlsPort;
use crate::plan::{
    CONTACT_MS, Certificate, Description, MemberView, Observed, Phase, PodFacts, Resize,
};

/// A learner of a recalled cluster has caught up at once.
const AT_ONCE: u64 = u64::MAX;
/// Validity of the operator's own certificates and CAs, in days.
const DAYS: (u64, u64) = (90, 3650);

impl Model {
    /// What was observed, carried on: starting, catching up and carrying Secrets take no time.
    pub fn of(o: &Observed) -> Self {
        let mut api = o.clone();
        api.descriptions = BTreeMap::new();
        let known = known_best(o);
        let raft = raft(o, known);
        let version = o.cluster.as_ref().map(|cluster| &cluster.spec.version);
        let class = o.pvcs.values().find_map(|pvc| pvc.node_bound);
        let mut model = Self {
            templates: BTreeMap::new(),
            disks: BTreeMap::new(),
            servers: BTreeMap::new(),
            health: health(o, known.map(|(_, description)| description)),
            written_ms: BTreeMap::new(),
            issued: issued(o),
            signed: signed(o),
            versions: versions(o),
            version: version.cloned().unwrap_or_default(),
            readable_since: readable_since(o, known),
            pace: Pace {
                catch_up: AT_ONCE,
                carried_ms: 0,
                // As other volumes of this cluster do, or as their class promises.
                node_bound: class.or(o.class_node_bound).unwrap_or(false),
                days: DAYS,
            },
            faults: faults(o, &raft),
            raft,
            // Fewer objects are created than milliseconds pass, so no name is reused.
            last: o.now_ms,
            api,
        };
        model.recall_templates(o);
        model.recall_disks(o);
        model.recall_servers(o);
        model.recall_sleepers(o);
        model
    }

    /// The inputs of a StatefulSet's pod, if they are the same; otherwise the wanted ones.
    fn recall_templates(&mut self, o: &Observed) {
        for (member, set) in &o.sets {
            let pod = o.pods.get(member).filter(|pod| pod.inputs == set.inputs);
            let now = self.template_now();
            let template = pod.map_or(now, |pod| Template {
                peer_tls: pod.peer_tls,
                server: pod.server,
                one_per_node: false,
            });
            self.templates.insert(member.clone(), template);
        }
    }

    fn recall_disks(&mut self, o: &Observed) {
        // The leader's knowledge of members that do not answer.
        let mut disks = BTreeMap::new();
        for view in &self.raft.members {
            let pvc = self.pvc_of(&view.name);
            let found = o.pvcs.get(&pvc).filter(|facts| facts.volume_gone.is_none());
            if found.is_some() && !view.disk_uuid.is_empty() {
                let disk = Disk {
                    uuid: view.disk_uuid.clone(),
                    member: Some(view.id),
                    ..Disk::default()
                };
                disks.insert(pvc, disk);
            }
        }
        for (member, description) in &o.descriptions {
            disks.insert(self.pvc_of(member), self.disk_of(description));
        }
        self.disks = disks;
    }

    fn disk_of(&self, description: &Description) -> Disk {
        let id = Some(description.member_id);
        let ours = description.cluster_uid.as_deref() == Some(self.uid());
        let formed = matches!(description.phase, Phase::Member | Phase::Removed);
        // A member that receives its first snapshot reports this until it has joined.
        let strange = match description.phase {
            Phase::Member | Phase::Removed => {
                !ours || description.cluster_id != self.raft.cluster_id
            }
            Phase::Standby => !description.disk_empty || description.cluster_uid.is_some() && !ours,
            Phase::Joining => true,
        };
        Disk {
            uuid: description.disk_uuid.clone(),
            member: id.filter(|_| formed),
            removed: description.phase == Phase::Removed,
            nonce: description.nonce.clone(),
            foreign: strange.then(|| Box::new(description.clone())),
        }
    }

    fn recall_servers(&mut self, o: &Observed) {
        for (member, pod) in &o.pods {
            let description = o.descriptions.get(member);
            let since = description.and_then(|description| description.retiring_ms);
            let set = o.sets.get(member);
            let server = Server {
                plain_peers: set.is_some_and(|set| set.plain_peers),
                loaded: description
                    .map(|description| description.security.clone())
                    .unwrap_or_default(),
                retires_ms: since.map(|since| o.now_ms.saturating_sub(since)),
            };
            self.servers.insert(pod.uid.clone(), server);
            if description.is_none() {
                self.load(member);
            }
        }
    }
}

/// What was signed for the keys that kubelets made for the pods that run: what their servers have loaded.
fn signed(o: &Observed) -> BTreeMap<(String, TlsPort), String> {
    let of = |member: &String| {
        let uid = &o.pods.get(member)?.uid;
        let loaded = &o.descriptions.get(member)?.security;
        let kept = |(port, _): &(&TlsPort, _)| o.tls.pod_keys.contains(port);
        let all = loaded.iter().filter(kept);
        let all = all.map(|(port, one)| ((uid.clone(), *port), one.fingerprint.clone()));
        Some(all.collect::<Vec<_>>())
    };
    o.pods.keys().filter_map(of).flatten().collect()
}

/// The member with the most recent knowledge: a leader with the highest term, or one that has seen the last
/// configuration change.
fn known_best(o: &Observed) -> Option<(&String, &Description)> {
    let uid = o.cluster.as_ref().ok().map(|cluster| cluster.life.as_str());
    let all = o.descriptions.iter();
    let all = all.filter(|(_, description)| {
        description.phase == Phase::Member
            && description.cluster_id != 0
            && description.cluster_uid.as_deref() == uid
    });
    all.max_by_key(|(_, description)| {
        (
            description.leads,
            description.leads.then_some(description.term),
            description.configuration_index,
        )
    })
}

fn raft(o: &Observed, known: Option<(&String, &Description)>) -> Raft {
    let Some((name, description)) = known else {
        return Raft {
            epoch: o.epoch,
            ..Raft::default()
        };
    };
    let now_ms = o.now_ms;
    let led = (description.members.iter()).find(|view| view.id == description.leader_id);
    let leader = match description.leads {
        true => Some(name.clone()),
        false => led.map(|view| view.name.clone()),
    };
    let contact = |view: &MemberView| Some((view.id, now_ms.saturating_sub(view.last_contact_ms?)));
    let plain = |view: &MemberView| MemberView {
        last_contact_ms: None,
        promotable: false,
        not_promotable: String::new(),
        ..view.clone()
    };
    Raft {
        members: description.members.iter().map(plain).collect(),
        tombstones: description.tombstones.clone(),
        never_voted: description.never_voted.clone(),
        configuration_index: description.configuration_index,
        leader,
        term: description.term,
        commit: description.commit,
        contact_ms: description.members.iter().filter_map(contact).collect(),
        epoch: o.epoch,
        cluster_id: description.cluster_id,
        incarnation: description.incarnation,
        formed: 1,
        following: description.following.clone(),
        revision: description.revision,
    }
}

/// A member whose data differs now differs for as long as it is a member, and new members have the others' data. If
/// nothing was compared, nothing will be.
fn health(o: &Observed, known: Option<&Description>) -> Health {
    let spaces = o.descriptions.iter();
    let spaces = spaces.map(|(name, description)| (name.clone(), description.space));
    let mut health = Health {
        spaces: spaces.collect(),
        ..Health::default()
    };
    let Some(description) = known else {
        return health;
    };
    health.alarms.clone_from(&description.alarms);
    let Some(newest) = description.comparisons.first() else {
        return health;
    };
    let differs = |view: &&MemberView| newest.differ.contains(&view.id);
    let differing = description.members.iter().filter(differs);
    health.differing = differing.map(|view| view.name.clone()).collect();
    health.compares = !newest.agree.is_empty();
    let made_ms = |age_ms| o.now_ms.saturating_sub(age_ms);
    let compared = description.comparisons.iter();
    health.compared = compared
        .map(|one| (made_ms(one.age_ms), one.clone()))
        .collect();
    health
}

/// Certificates whose signer is known.
fn issued(o: &Observed) -> BTreeMap<String, Certificate> {
    let secrets = o.tls.secrets.values();
    let own = secrets.flat_map(|facts| facts.certificate.iter().chain(&facts.next));
    let user_certificates = o
        .tls
        .user_certificates
        .values()
        .filter_map(|one| one.certificate.as_ref());
    let all = own
        .chain(user_certificates)
        .filter(|one| one.issuer.is_some());
    all.map(|one| (one.fingerprint.clone(), one.clone()))
        .collect()
}

/// From the leader's description of its own disk; without a leader, from any.
fn readable_since(o: &Observed, known: Option<(&String, &Description)>) -> Option<String> {
    let best = known.map(|(_, description)| description);
    let description = best.or_else(|| o.descriptions.values().next())?;
    description.readable_since.clone()
}

fn versions(o: &Observed) -> BTreeMap<String, String> {
    let inputs = |name| o.pods.get(name).and_then(|pod| pod.inputs.clone());
    let seen = o.descriptions.iter();
    seen.filter_map(|(name, description)| Some((inputs(name)?, description.version.clone())))
        .collect()
}

/// A member that does not answer, but has contact with the leader, is running: only the operator cannot reach it.
fn faults(o: &Observed, raft: &Raft) -> Faults {
    let mut faults = Faults::default();
    for (name, pod) in &o.pods {
        let description = o.descriptions.get(name);
        let waits = pod.waiting.is_some() || pod.started_ms.is_some() || pod.terminating;
        if description.is_none() && pod.started_ms.is_some() && is_heard(o, raft, name) {
            faults.unseen.insert(name.clone());
        } else if description.is_none() && waits {
            faults.stuck.insert(pod.uid.clone());
        }
        if description.is_some() && !starts(o, pod) {
            faults.answering.insert(pod.uid.clone());
        }
        if let Some(Resize::Asked {
            infeasible: true, ..
        }) = pod.resize
        {
            faults.confined.insert(name.clone());
        }
        if description.is_some_and(|description| description.unsigned) {
            faults.unsigned.insert(name.clone());
        }
    }
    faults
}

fn is_heard(o: &Observed, raft: &Raft, name: &str) -> bool {
    let heard_ms = |view: &MemberView| raft.contact_ms.get(&view.id).copied();
    let lately = |at| o.now_ms.saturating_sub(at) < CONTACT_MS;
    raft.leader.as_deref() == Some(name)
        || raft.by_name(name).and_then(heard_ms).is_some_and(lately)
}

fn starts(o: &Observed, pod: &PodFacts) -> bool {
    pod.started_ms.is_some() && is_up(o, pod.node.as_ref())
}
