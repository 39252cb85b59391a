//! One seed, once the identity exists. A cluster is bootstrapped once per resource; where data may have existed, it is
//! never bootstrapped again. Also reports when no leader with a quorum answers.

use crate::crd::RetentionPolicy;
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction, ObjectAction};
use crate::plan::alarms;
use crate::plan::draft::Draft;
use crate::plan::evidence::pod_in_words;
use crate::plan::observed::{IdentitySecret, Phase, PvcFacts, PvcState};
use crate::plan::situation::{Situation, quorum};
use crate::plan::step::Class;

use super::{adopt, restore, sets, trial};

/// The first member. Returns whether the plan ends here.
pub(super) fn seed(s: &Situation<'_>, draft: &mut Draft) -> bool {
    if s.bootstrapped() {
        return mark_joined(s, draft);
    }
    let Some(identity_secret) = &s.o.identity_secret else {
        return true;
    };
    let seed = identity_secret.seed.as_str();
    let pvc_name = s.pvc_name(seed);
    if let Some((other, _)) = s.our_pvcs().find(|(name, _)| *name != pvc_name)
        && !mutant!(FormsAgain)
    {
        return data_lost(
            s,
            draft,
            &format!("PVC {other} exists although no cluster was formed"),
        );
    }
    draft.hold(
        Class::Membership,
        format!("the cluster is not formed yet; {seed} does it"),
    );
    let Some(pvc) = s.pvc(seed) else {
        // The PVC is created before the StatefulSet: a StatefulSet without it means that the disk was replaced.
        if s.o.sets.contains_key(seed) {
            return data_lost(s, draft, &format!("the PVC of the seed {seed} is gone"));
        }
        let volume = s.seed_volume();
        let action = Action::Object(ObjectAction::CreatePvc {
            member: seed.to_owned(),
            incarnation: s.incarnation,
            pvc: pvc_name,
            bytes: volume.bytes,
            asked: volume.asked,
        });
        draft.step(Rule::Bootstrap, action, "the seed needs a volume");
        return true;
    };
    if pvc.terminating {
        draft.wait(
            "Bootstrap",
            seed,
            "Terminating",
            format!("PVC {pvc_name} to be deleted"),
        );
        return true;
    }
    if let Some(why) = s.waits_in_vain(pvc) {
        start_again(s, draft, seed, pvc, why);
        return true;
    }
    if let Some(why) = s.lacks_its_class() {
        draft.stall("NoStorageClass", why);
    }
    let current =
        s.o.sets
            .get(seed)
            .is_some_and(|set| set.inputs.as_ref() == Some(&s.o.wanted_inputs));
    if !current {
        let reason = "the seed needs a pod of the current spec";
        sets::apply(s, draft, Rule::Bootstrap, seed, reason);
        return true;
    }
    form(s, draft, identity_secret, &pvc.uid);
    true
}

/// The seed's StatefulSet exists: form the cluster once its server reports that its disk is empty.
fn form(s: &Situation<'_>, draft: &mut Draft, identity_secret: &IdentitySecret, pvc_uid: &str) {
    let seed = identity_secret.seed.as_str();
    let pod = s.o.pods.get(seed);
    if let Some(pod) = pod
        && !pod.terminating
        && harmless(s, seed)
        && pod
            .inputs
            .as_ref()
            .is_some_and(|inputs| *inputs != s.o.wanted_inputs)
    {
        let action = Action::Object(ObjectAction::DeletePod {
            member: seed.to_owned(),
            uid: pod.uid.clone(),
        });
        draft.step(
            Rule::Bootstrap,
            action,
            "it was created from an older spec, and no member runs in it",
        );
        return;
    }
    let Some(description) = s.description(seed) else {
        let why = pod.map_or(format!("the pod of {seed} to be created"), |pod| {
            format!("the server of {seed} to answer; {}", pod_in_words(pod))
        });
        let created = s.o.sets.get(seed).map(|set| set.created_ms);
        draft.wait("Bootstrap", seed, "SeedNotReady", why).since_ms = created;
        return;
    };
    let same_nonce = description
        .nonce
        .as_ref()
        .is_none_or(|nonce| *nonce == identity_secret.nonce);
    let ours = description
        .cluster_uid
        .as_ref()
        .is_none_or(|uid| *uid == s.cluster.life);
    if description.phase != Phase::Standby || !description.disk_empty || !same_nonce || !ours {
        let why =
            format!("the disk of the seed {seed} is not empty, although no cluster was formed");
        data_lost(s, draft, &why);
        return;
    }
    if restore::waits(s, draft, seed, description) {
        return;
    }
    let action = Action::Member(MemberAction::Bootstrap {
        member: seed.to_owned(),
        pod_uid: description.pod_uid.clone(),
        cluster_uid: s.cluster.life.clone(),
        incarnation: identity_secret.incarnation,
        nonce: identity_secret.nonce.clone(),
        pvc_uid: pvc_uid.to_owned(),
        disk_uuid: description.disk_uuid.clone(),
        snapshot: restore::first_data(s, description),
    });
    draft.step(Rule::Bootstrap, action, "the seed waits with an empty disk");
}

/// Whether the seed's pod certainly serves no clients: it never started, or reports that it is a standby. One that runs
/// and does not answer may have formed the cluster already.
fn harmless(s: &Situation<'_>, seed: &str) -> bool {
    let started =
        s.o.pods
            .get(seed)
            .is_some_and(|pod| pod.started_ms.is_some());
    let standby = s
        .description(seed)
        .is_some_and(|d| d.phase == Phase::Standby && d.proves_an_empty_disk());
    !started || standby
}

/// Records on their PVCs which members live. Returns false: the plan goes on.
fn mark_joined(s: &Situation<'_>, draft: &mut Draft) -> bool {
    // Retired: it was to leave under an alarm that has been disarmed since.
    let is_other = |state| match state {
        PvcState::New => true,
        PvcState::Joined => false,
        PvcState::Retired => s.view.is_some() && !alarms::is_on(s),
    };
    for (name, seat) in s.voters.iter().chain(&s.learners) {
        let lives = s.description(name).is_some_and(|d| {
            matches!(d.phase, Phase::Member | Phase::Joining) && d.member_id == seat.view.id
        });
        if let Some(pvc) = s.pvc(name)
            && lives
            && is_other(pvc.state)
            && !pvc.terminating
        {
            let action = Action::Object(ObjectAction::MarkPvc {
                pvc: s.pvc_name(name),
                uid: pvc.uid.clone(),
                state: PvcState::Joined,
            });
            draft.step(Rule::Bootstrap, action, format!("{name} uses it"));
        }
    }
    false
}

/// The seed's PVC never had a volume, and gets none of the class that it asks for: it is created again. Its set goes
/// first: one without its PVC would count as one that lost its disk.
fn start_again(s: &Situation<'_>, draft: &mut Draft, seed: &str, pvc: &PvcFacts, why: String) {
    let action = match s.o.sets.get(seed) {
        Some(set) if set.terminating => {
            let what = format!("set {seed} to be deleted");
            draft.wait("Bootstrap", seed, "Terminating", what);
            return;
        }
        Some(set) => ObjectAction::DeleteSet {
            member: seed.to_owned(),
            uid: set.uid.clone(),
        },
        None => ObjectAction::DeletePvc {
            pvc: s.pvc_name(seed),
            uid: pvc.uid.clone(),
        },
    };
    draft.step(Rule::Bootstrap, Action::Object(action), why);
}

/// Reports that a formed cluster has no leader with a quorum. Returns whether there is none.
pub(super) fn no_quorum(s: &Situation<'_>, draft: &mut Draft) -> bool {
    if s.view.is_some() {
        return false;
    }
    adopt::report(s, draft);
    if too_few_disks(s, draft) {
        return true;
    }
    let why = "no leader with a quorum was seen: who does not answer is unknown, not dead";
    draft.hold(Class::Membership, why);
    draft.hold(Class::Disruption, why);
    draft.hold(Class::Objects, why);
    // Inputs with which new members failed are remembered until one can be added again.
    let failed = s.o.status_memory.join_failures.clone();
    draft.remembered = failed.filter(|failure| failure.inputs == s.attempt());
    free_stuck_pods(s, draft, None);
    let away: Vec<String> = (known_voters(s).iter())
        .filter_map(|name| Some(format!("; {name}: {}", s.pvc(name)?.no_node.as_ref()?)))
        .collect();
    let what = format!("a leader that holds a quorum to answer{}", away.concat());
    draft.wait("Wait", "", "NoQuorum", what);
    true
}

/// Whether so many voters of a formed cluster have lost their disks that the others have no quorum: then this is
/// reported, and no cluster is bootstrapped.
pub(super) fn too_few_disks(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let known = known_voters(s);
    let lost: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|name| disk_lost(s, name))
        .collect();
    let intact = known.len() - lost.len();
    if known.is_empty() || intact >= quorum(known.len()) {
        return false;
    }
    let why = format!(
        "the disks of {} are lost: at most {intact} of {} voters have data, {} are needed for a quorum",
        lost.join(", "),
        known.len(),
        quorum(known.len())
    );
    data_lost(s, draft, &why)
}

/// Whether so few voters have a pod that they are no quorum, and no set of the current spec is still to show that one starts.
fn creates_no_pods(s: &Situation<'_>) -> bool {
    let known = known_voters(s);
    let with_pod = known.iter().filter(|name| s.o.pods.contains_key(*name));
    let too_few = !known.is_empty() && with_pod.count() < quorum(known.len());
    let mut current = s.o.sets.iter().filter(|(_, set)| {
        set.inputs.as_ref() == Some(&s.o.wanted_inputs) && !set.hibernated && !set.terminating
    });
    let starts = |name: &String| {
        let pod = s.o.pods.get(name);
        pod.is_some_and(|pod| pod.started_ms.is_some())
    };
    too_few && current.all(|(name, _)| starts(name))
}

/// A pod that does not even start, and was created from an older spec, gets the current one: otherwise a bad spec that
/// cost the quorum could never be corrected. It serves no clients. The same for sets without a pod, where those with one are
/// no quorum: the API server may let none be created of them. One at a time, voters first, and the next only
/// once that one runs: the pods may only be away, and a spec that nobody has tried may be worse than the one that they had.
/// `needed` does not wait for the others.
pub(super) fn free_stuck_pods(s: &Situation<'_>, draft: &mut Draft, needed: Option<&str>) {
    let creates_none = creates_no_pods(s) && draft.remembered.is_none();
    let mut stuck: Vec<(&str, Stuck<'_>)> = (s.o.sets.keys())
        .filter_map(|name| Some((name.as_str(), stuck(s, name, creates_none)?)))
        .collect();
    let voters = known_voters(s);
    stuck.sort_by_key(|(name, _)| !voters.iter().any(|voter| voter == name));
    for (name, found) in stuck {
        let other = trial::tried_by(s, draft, name).filter(|_| needed != Some(name));
        if let Some(other) = other {
            trial::note(draft, name, &other);
            continue;
        }
        match found {
            Stuck::Set(reason) => sets::apply(s, draft, Rule::Quorum, name, reason),
            Stuck::Pod(uid) => {
                let action = Action::Object(ObjectAction::DeletePod {
                    member: name.to_owned(),
                    uid: uid.to_owned(),
                });
                let reason = "it does not start and is of an older spec";
                draft.step(Rule::Quorum, action, reason);
            }
        }
    }
}

/// What keeps a member that does not start from the current spec.
enum Stuck<'s> {
    /// Its set is of an older one; why its pod is replaced.
    Set(&'static str),
    /// Its pod alone is, of this UID.
    Pod(&'s str),
}

/// Whether a member certainly serves nobody, and what keeps it from the current spec.
fn stuck<'s>(s: &'s Situation<'_>, name: &str, creates_none: bool) -> Option<Stuck<'s>> {
    let set = s.o.sets.get(name).filter(|set| !set.terminating)?;
    s.pvc(name)?;
    let outdated = set.inputs.as_ref() != Some(&s.o.wanted_inputs);
    let Some(pod) = s.o.pods.get(name) else {
        let why = "it has no pod and the spec has changed since";
        return (creates_none && outdated && !set.hibernated).then_some(Stuck::Set(why));
    };
    let node = pod.node.as_ref();
    let reachable = node.is_none_or(|node| s.o.node_reports(node));
    let starts = pod.started_ms.is_some() || s.description(name).is_some();
    if pod.terminating || starts || !reachable || s.lacks_resources(name) {
        return None;
    }
    let why = "its pod does not start and the spec has changed since";
    if outdated {
        return Some(Stuck::Set(why));
    }
    let inputs = pod.inputs.as_ref()?;
    (*inputs != s.o.wanted_inputs).then_some(Stuck::Pod(&pod.uid))
}

/// The voters according to the most recent answer, if anybody answers.
pub(in crate::plan) fn described_voters(s: &Situation<'_>) -> Option<Vec<String>> {
    let described =
        s.o.descriptions
            .keys()
            .filter_map(|name| s.description(name));
    let ours = described.filter(|d| d.cluster_uid.as_deref() == Some(s.cluster.life.as_str()));
    let best = ours
        .filter(|d| !d.members.is_empty())
        .max_by_key(|d| d.configuration_index);
    let voters = best?.members.iter().filter(|m| !m.learner);
    Some(voters.map(|m| m.name.clone()).collect())
}

/// The voters according to the most recent answer, or as last reported.
pub(super) fn known_voters(s: &Situation<'_>) -> Vec<String> {
    match described_voters(s) {
        Some(voters) => voters,
        None if !s.o.status_memory.voters.is_empty() => s.o.status_memory.voters.clone(),
        // The voters are unknown: any disk that a member used may have data.
        None if s.our_pvcs().any(|(_, pvc)| pvc.state != PvcState::New) => Vec::new(),
        None => {
            s.o.identity_secret
                .iter()
                .map(|identity_secret| identity_secret.seed.clone())
                .collect()
        }
    }
}

/// Whether a voter's disk is certainly gone: its PVC is gone, or its server reports that it is empty.
fn disk_lost(s: &Situation<'_>, name: &str) -> bool {
    let Some(pvc) = s.pvc(name) else {
        return true;
    };
    pvc.volume_gone.is_some()
        || s.description(name)
            .is_some_and(|d| d.phase == Phase::Standby && d.proves_an_empty_disk())
}

/// Condition DataLost: nothing is bootstrapped or added automatically. Returns true: the plan ends here.
pub(super) fn data_lost(s: &Situation<'_>, draft: &mut Draft, why: &str) -> bool {
    // The remaining data may be all that exists: no message may suggest anything that destroys it.
    let kept = match s.cluster.spec.storage.retention.when_deleted {
        RetentionPolicy::Retain => "",
        RetentionPolicy::Delete => {
            "; the remaining volumes are deleted with this resource, so keep it, or set storage.retention.whenDeleted: Retain"
        }
    };
    let text = format!(
        "{why}. The operator neither bootstraps again nor deletes anything{kept}: bring the volumes back, or let the cluster go on from a member that is left or from a backup (kubectl quorate recover)"
    );
    draft.hold(Class::Membership, "data may be lost");
    draft.hold(Class::Disruption, "data may be lost");
    draft.hold(Class::Objects, "data may be lost");
    draft.stall("DataLost", text);
    true
}
