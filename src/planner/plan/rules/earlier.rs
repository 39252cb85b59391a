//! Members of earlier incarnations: they stay stopped, but for the survivor while its data are read, and their
//! StatefulSets go once the recovered cluster has a leader. Their PVCs are never touched: only the user knows whether
//! anybody needs them.

use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::SetFacts;
use crate::plan::situation::Situation;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
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
