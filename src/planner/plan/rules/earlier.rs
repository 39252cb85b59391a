//! Members of earlier incarnations: they stay stopped, but for the survivor while its data are read, and their
//! StatefulSets go once the recovered cluster has a leader. Their PVCs are never touched: only the user knows whether
//! anybody needs them.

use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Description, SetFacts};
use crate::plan::situation::{FRESH_MS, Situation};

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    if let Some(member) = serves(s) {
        let text = format!(
            "{member} is of an earlier incarnation of the cluster, and follows a leader or is ready: it is left alone, because there may be a quorum. If incarnation {} is the one that is meant, stop the earlier members",
            s.incarnation
        );
        draft.note("EarlierServes", text);
        return;
    }
    let survivor = s
        .survivor()
        .filter(|_| !s.bootstrapped() && !s.hibernates());
    for (name, set) in s.o.earlier.sets.iter().filter(|(_, set)| !set.terminating) {
        if survivor.is_some_and(|survivor| survivor.member == *name) {
            if set.hibernated {
                let reason = "a new member gets its data";
                draft.step(Rule::Recovery, s.waking_set(name), reason);
            }
        } else if s.view.is_some() && !s.hibernates() {
            delete(s, draft, name, set);
        } else if !set.hibernated {
            let reason = "it is of an earlier incarnation of the cluster, and stays stopped";
            draft.step(Rule::Recovery, s.sleeping_set(name), reason);
        }
    }
}

/// A member of an earlier incarnation that may belong to a quorum of it.
fn serves<'a>(s: &'a Situation<'_>) -> Option<&'a str> {
    let earlier = &s.o.earlier;
    let fresh = |d: &Description| d.age_ms <= FRESH_MS && d.follows_a_leader();
    let mut described = earlier.descriptions.iter();
    let follows = described.find(|(_, description)| fresh(description));
    let mut pods = earlier.pods.iter();
    let ready = pods.find(|(_, pod)| pod.ready_since_ms.is_some());
    let names = [follows.map(|(name, _)| name), ready.map(|(name, _)| name)];
    names.into_iter().flatten().next().map(String::as_str)
}

fn delete(s: &Situation<'_>, draft: &mut Draft, name: &str, set: &SetFacts) {
    let node =
        s.o.earlier
            .pods
            .get(name)
            .and_then(|pod| pod.node.as_deref());
    let facts = node.and_then(|node| s.o.nodes.get(node));
    // Its node may still run it: then the StatefulSet with 0 replicas is what keeps it away.
    if facts.is_some_and(|node| !node.ready && !node.out_of_service) {
        draft.note("Leaving", format!("{name} is of an earlier incarnation; its objects stay until its node reports, is gone or is tainted out-of-service"));
        return;
    }
    let action = Action::Object(ObjectAction::DeleteSet {
        member: name.to_owned(),
        uid: set.uid.clone(),
    });
    draft.step(
        Rule::Recovery,
        action,
        "the recovered cluster leads without it",
    );
}
