//! The identity of a cluster, in an immutable Secret that is created before anything else. It guards only the bootstrap
//! of a cluster: existing members have the identity on their disks, and a deleted Secret is created again from their
//! answers. So a cluster is never bootstrapped twice, and losing the Secret does not stop one that serves.

use crate::crd::{identity_secret_name, member_name, member_number};
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Description, Phase};
use crate::plan::situation::Situation;
use crate::plan::step::Class;

use super::{adopt, bootstrap, certificates, objects, restore, sets};

/// The identity Secret. Returns whether the plan ends here.
pub(super) fn identity_secret(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let secret = identity_secret_name(&s.cluster.name);
    if let Some(identity_secret) = &s.o.identity_secret {
        if identity_secret.cluster_uid == s.cluster.life {
            return false;
        }
        if s.bootstrapped() {
            // The cluster is formed, so its content is no longer needed.
            let text = format!(
                "Secret {secret} contains the identity of another resource; the members of this one run and are not affected"
            );
            draft.note("ForeignIdentity", text);
            return false;
        }
        let text = format!(
            "Secret {secret} contains the identity of another resource with this name, so no cluster is bootstrapped: use another name for this cluster"
        );
        draft.stall("NameConflict", text);
        return true;
    }
    if s.view.is_none() && s.o.status_cluster_id.is_none() && s.is_adopted() {
        return adopt::identity(s, draft);
    }
    if s.bootstrapped() {
        mutant!(IdentityForgotten => return bootstrap::data_lost(s, draft, "the identity is gone"));
        made_again(s, draft, &secret);
        return false;
    }
    if s.our_pvcs().next().is_some() {
        without_identity_secret(s, draft, &secret);
        return true;
    }
    if s.incarnation > 1 && s.source().is_none() {
        restore::source_gone(draft, "");
        return true;
    }
    let seed = match s.o.sets.keys().next() {
        None if s.incarnation == 1 => member_name(&s.cluster.name, 1),
        _ => s.next_name(),
    };
    let action = Action::Object(ObjectAction::CreateIdentitySecret {
        seed,
        nonce: s.o.entropy.clone(),
        incarnation: s.incarnation,
    });
    draft.step(Rule::Bootstrap, action, "nothing of the cluster exists yet");
    true
}

/// The Secret is gone and the cluster was formed: a leader with a quorum reports the identity. Nothing waits for that.
fn made_again(s: &Situation<'_>, draft: &mut Draft, secret: &str) {
    let Some((_, leader)) = s.view.filter(|_| !s.hibernates()) else {
        let text = format!(
            "Secret {secret} is gone; it is created again once a leader with a quorum answers"
        );
        draft.note("IdentityGone", text);
        return;
    };
    let found = seed_by_nonce(s);
    let seed = found.as_ref().map(|(seed, _)| seed.clone());
    let action = Action::Object(ObjectAction::CreateIdentitySecret {
        seed: seed.unwrap_or_else(|| eldest(s, leader)),
        nonce: found.map_or_else(|| s.o.entropy.clone(), |(_, nonce)| nonce),
        incarnation: leader.incarnation.max(1),
    });
    draft.step(
        Rule::Bootstrap,
        action,
        format!("Secret {secret} is gone, and a quorum of the members reports the identity"),
    );
}

/// The member that formed the cluster, and its nonce, if it still exists and reports it.
fn seed_by_nonce(s: &Situation<'_>) -> Option<(String, String)> {
    let mut names = s.o.descriptions.keys();
    names.find_map(|name| {
        let description = s.description(name)?;
        let ours = description.cluster_uid.as_deref() == Some(s.cluster.life.as_str());
        let nonce = description
            .nonce
            .clone()
            .filter(|_| ours && description.cluster_id != 0)?;
        Some((name.clone(), nonce))
    })
}

/// The member with the lowest number that ever existed, as far as the leader knows.
fn eldest(s: &Situation<'_>, leader: &Description) -> String {
    let cluster = s.cluster.name.as_str();
    let members = leader.members.iter().map(|member| member.name.as_str());
    let names = members.chain(leader.tombstones.iter().map(|(_, name)| name.as_str()));
    let number = names.filter_map(|name| member_number(cluster, name)).min();
    member_name(cluster, number.unwrap_or(1))
}

/// Neither an identity nor proof that the cluster was formed, but a volume that was created for it: the Secret was
/// deleted while the cluster was being created, or the status with it. Only a server on that volume can report which:
/// one is started, which forms nothing by itself.
fn without_identity_secret(s: &Situation<'_>, draft: &mut Draft, secret: &str) {
    objects::rule(s, draft);
    certificates::rule(s, draft);
    let held = format!("Secret {secret} is gone");
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, held.clone());
    }
    if s.hibernates() {
        draft.note(
            "IdentityGone",
            format!("{held}: it is created again when members run"),
        );
        return;
    }
    bootstrap::free_stuck_pods(s, draft, None);
    let mut empty: Vec<(&str, &Description)> = Vec::new();
    for (pvc, facts) in s.our_pvcs() {
        let Some(member) = facts.member.as_deref().filter(|_| !facts.terminating) else {
            draft.wait(
                "Wait",
                "",
                "Terminating",
                format!("PVC {pvc} to be deleted"),
            );
            return;
        };
        // One that sleeps, because replicas was 0 meanwhile, answers as little as one that is missing.
        let set = s.o.sets.get(member);
        if set.is_none_or(|set| set.hibernated && !set.terminating) {
            let why = format!("{held}, and its server reports what is on PVC {pvc}");
            sets::apply(s, draft, Rule::Bootstrap, member, why);
            return;
        }
        match s.description(member) {
            Some(description)
                if description.phase == Phase::Standby && description.proves_an_empty_disk() =>
            {
                empty.push((member, description));
            }
            Some(description) if description.phase == Phase::Standby && description.unsigned => {
                let what = format!(
                    "the server of {member} to sign its answers, which version 0.1.0 does not: {held}, and only its disk shows whether the cluster was formed"
                );
                draft.wait("Wait", member, "IdentityGone", what);
                return;
            }
            Some(_) => {
                let why =
                    format!("{held}, and the disk of {member} is in use by an unknown cluster");
                bootstrap::data_lost(s, draft, &why);
                return;
            }
            None => {
                let what = format!(
                    "the server of {member} to answer: {held}, and only its disk shows whether the cluster was formed"
                );
                draft.wait("Wait", member, "IdentityGone", what);
                return;
            }
        }
    }
    let [(seed, description)] = empty[..] else {
        let why =
            format!("{held}, and there is more than one volume although no cluster was formed");
        bootstrap::data_lost(s, draft, &why);
        return;
    };
    let action = Action::Object(ObjectAction::CreateIdentitySecret {
        seed: seed.to_owned(),
        nonce: description
            .nonce
            .clone()
            .unwrap_or_else(|| s.o.entropy.clone()),
        incarnation: s.incarnation,
    });
    draft.step(
        Rule::Bootstrap,
        action,
        format!("{held}, and the only volume is empty"),
    );
}
