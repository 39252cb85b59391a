//! `replicas: 0` stops every member, the leader last, and leaves members, volumes and
//! identities as they are; nothing about the membership is decided meanwhile. Any other size wakes
//! all members together. What is grown, shrunk or replaced then waits for their quorum, by the
//! rules that wait for one anyway. Members that another cluster is closed for do not stop before it is open again.

use crate::plan::Rule;
use std::cmp::Reverse;

use crate::crd::member_number;
use crate::mutants::mutant;
use crate::plan::draft::Draft;
use crate::plan::following::{self, Source};
use crate::plan::situation::Situation;
use crate::plan::step::Class;

use super::{bootstrap, sets};

/// Whether a cluster that was never created should not run: nothing is created for it, not even its identity.
pub(super) fn unborn(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let made = s.o.identity_secret.is_some() || s.bootstrapped() || s.our_pvcs().next().is_some();
    let unborn = s.hibernates() && !made && s.o.sets.is_empty();
    if unborn {
        hold(draft);
    }
    unborn
}

/// Returns whether the plan ends here.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    if s.hibernates() && following::keeps_awake(s) {
        stay_awake(s, draft);
        return true;
    }
    if s.hibernates() && !mutant!(SleepForgotten) {
        sleep(s, draft);
        return true;
    }
    wake(s, draft)
}

fn hold(draft: &mut Draft) {
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, "replicas is 0: the cluster hibernates");
    }
}

/// The followed cluster is closed to writes, and nobody but these members and their Job can open it.
fn stay_awake(s: &Situation<'_>, draft: &mut Draft) {
    let (why, noun) = (following::awake_because(s), following::noun(s));
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, why.clone());
    }
    let what = match following::source(s) {
        Source::LastClosed => {
            let (by_hand, waive) = (following::by_hand(s), following::how_to_waive(s));
            let text =
                format!("replicas is 0 and no leader with a quorum was seen: {by_hand}; {waive}");
            draft.stall("SourceClosed", text);
            format!("a leader with a quorum: {noun} is closed to writes")
        }
        Source::Closed => format!("{noun} to take writes again, or its place to be taken"),
        _ => format!("the Job to end that may close {noun} to writes"),
    };
    draft.wait("Hibernate", "", "SourceClosed", what);
}

fn sleep(s: &Situation<'_>, draft: &mut Draft) {
    hold(draft);
    let awake = s.o.sets.iter();
    let awake = awake.filter(|(_, set)| !set.hibernated && !set.terminating);
    let mut names: Vec<&str> = awake.map(|(name, _)| name.as_str()).collect();
    names.sort_by_key(|name| {
        let leads = s.view.is_some_and(|(leader, _)| leader == *name);
        let leads = leads != mutant!(LeaderSleepsFirst);
        (leads, Reverse(member_number(&s.cluster.name, name)))
    });
    for name in &names {
        let reason = "replicas is 0: it stops, and its volume stays";
        sets::apply(s, draft, Rule::Hibernation, name, reason);
    }
    if names.is_empty() && !s.o.pods.is_empty() {
        let pods: Vec<&str> = s.o.pods.keys().map(String::as_str).collect();
        let what = format!("{} to stop", pods.join(", "));
        draft.wait("Hibernate", "", "Stopping", what);
    }
    // Nothing is done about it now, but it is reported before the data is needed.
    if s.sleeps() && s.bootstrapped() {
        bootstrap::too_few_disks(s, draft);
    }
}

fn wake(s: &Situation<'_>, draft: &mut Draft) -> bool {
    // Without its PVC a StatefulSet is not changed: its member's disk is gone, and the others decide about it.
    let hibernated = s.o.sets.iter().filter(|(name, set)| {
        let stays = s.leaving.contains(*name) || s.fenced.contains(*name);
        set.hibernated && !set.terminating && s.pvc(name).is_some() && !stays
    });
    let reason = match s.view {
        None => format!("replicas is {} again", s.cluster.target()),
        Some(_) => "its set has no pod, and it is to run".to_owned(),
    };
    let mut wakes = false;
    for (name, _) in hibernated {
        sets::apply(s, draft, Rule::Hibernation, name, reason.clone());
        wakes = true;
    }
    if wakes {
        let why = "the members wake: all start, and have to find a quorum first";
        for class in [Class::Membership, Class::Disruption, Class::Objects] {
            draft.hold(class, why);
        }
    }
    wakes
}
