//! A standby that answers is added as a learner; one that never starts is given up after
//! its deadline. A pending pod or a bad image never touches the membership.

use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction, ObjectAction};
use crate::plan::draft::{Draft, fence};
use crate::plan::evidence::pod_in_words;
use crate::plan::guards;
use crate::plan::observed::{Phase, PodFacts};
use crate::plan::situation::{Situation, in_ms};

use super::enable_tls;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let mut free = s.goal().saturating_sub(s.voters.len() + s.learners.len());
    for name in &s.standbys {
        if free == 0 {
            return; // one too many: `shrink`
        }
        free -= 1;
        if let Some(why) = s.turned_back(name)
            && let Some(pvc) = s.pvc(name)
        {
            let action = Action::Object(ObjectAction::DeletePvc {
                pvc: s.pvc_name(name),
                uid: pvc.uid.clone(),
            });
            draft.step(Rule::Drain, action, why);
            continue;
        }
        let Some(set) = s.o.sets.get(name) else {
            continue;
        }; // `grow` makes it
        let pod = s.o.pods.get(name);
        let outdated = set.inputs.as_ref() != Some(&s.o.wanted_inputs)
            || pod.is_some_and(|p| p.inputs.as_ref().is_some_and(|i| *i != s.o.wanted_inputs));
        if outdated && super::unhealthy::unstick(s, draft, name, "it is no member yet") {
            continue;
        }
        let waits = s.description(name).filter(|d| {
            let ours = d
                .cluster_uid
                .as_ref()
                .is_none_or(|uid| *uid == s.cluster.life);
            d.phase == Phase::Standby && d.disk_empty && ours && !d.disk_uuid.is_empty()
        });
        if let Some(description) = waits {
            match guards::add_learner(s) {
                Ok(()) => {
                    let action = Action::Member(MemberAction::AddLearner {
                        member: name.clone(),
                        disk_uuid: description.disk_uuid.clone(),
                        secure: s.cluster.spec.tls.is_some() && !enable_tls::is_under_way(s),
                        fence: fence(s),
                    });
                    draft.step(Rule::Standby, action, "its server waits with an empty disk");
                }
                Err(held) => {
                    draft.guarded("AddLearner", name, &held);
                }
            }
            continue;
        }
        let state = match (s.description(name), pod) {
            (Some(d), _) => format!("its server reports phase {:?} on a disk in use", d.phase),
            (None, Some(pod)) => format!("{}{}", pod_in_words(pod), remedy(s, pod)),
            (None, None) => "it has no pod".to_owned(),
        };
        let patience = in_ms(s.cluster.spec.healing.learner_deadline_seconds);
        let since = s.tries_since(name);
        let deadline = since + patience;
        if s.o.now_ms < deadline {
            let wait = draft.wait(
                "AddLearner",
                name,
                "StandbyNotReady",
                format!("{name} to start: {state}"),
            );
            wait.since_ms = Some(since);
            wait.deadline_ms = Some(deadline);
            continue;
        }
        // Its PVC first: a standby without a PVC, or with one that is being deleted, is leaving.
        if let Some(pvc) = s.pvc(name) {
            let action = Action::Object(ObjectAction::DeletePvc {
                pvc: s.pvc_name(name),
                uid: pvc.uid.clone(),
            });
            draft
                .failed_joins
                .push((action.clone(), format!("{name}: {state}")));
            draft.step(
                Rule::Standby,
                action,
                format!("{name} did not start in time: {state}"),
            );
        }
    }
}

/// What to do about a pod that finds no node because members are kept apart.
fn remedy(s: &Situation<'_>, pod: &PodFacts) -> &'static str {
    let waiting = pod.waiting.as_deref().unwrap_or_default();
    if s.keeps_apart() && waiting.starts_with("Unschedulable") {
        "; volumes here stay on their nodes, so each member needs a node of its own: add one, or set scheduling.spread: Preferred"
    } else {
        ""
    }
}
