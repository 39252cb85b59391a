//! One file per situation. Each rule reads the situation and adds steps, holds, notes and waits; their order is that of
//! `run_in_order`, and each step names by [`Rule`](super::Rule) the rule that wants it.

mod admitted;
mod adopt;
mod alarms;
mod autogrow;
pub(super) mod bootstrap;
pub(super) mod certificates;
mod conflict;
mod deletion;
mod drain;
mod earlier;
mod edited;
pub(super) mod enable_tls;
mod evictions;
mod fence;
mod follow;
mod grow;
mod hand_over;
mod hibernate;
mod identity;
mod learner;
mod leftovers;
mod missing_set;
mod objects;
mod pod_certificates;
mod pod_disruption_budget;
mod recovery;
mod restore;
mod roll;
mod rotate;
mod sets;
mod shrink;
mod slots;
mod standby;
mod timings;
mod trial;
mod trust_bundle;
mod unhealthy;
pub(super) mod user_certificates;
mod version;

pub(super) use admitted::refusal;
pub(super) use learner::lag;

use crate::mutants::mutant;

use super::draft::Draft;
use super::situation::Situation;
use super::step::Class;

/// Runs every rule in order.
pub(super) fn run(s: &Situation<'_>, draft: &mut Draft) {
    run_in_order(s, draft);
    // Whatever ended the rules: a pod that restarts meanwhile needs its certificates.
    certificates::answer(s, draft);
    recovery::held(s, draft);
    follow::rule(s, draft);
    certificates::waits(s, draft);
    deletion::rule(s, draft);
    // After all that may be under way.
    evictions::rule(s, draft);
}

fn run_in_order(s: &Situation<'_>, draft: &mut Draft) {
    // Names that belong to other objects.
    if conflict::rule(s, draft) {
        return;
    }
    // Paused: only the PDB and the certificates are kept up.
    if s.cluster.spec.paused && !mutant!(PauseIgnored) {
        drain::hold_pods(s, draft);
        objects::pdb_only(s, draft);
        pod_disruption_budget::rule(s, draft, None);
        certificates::rule(s, draft);
        for class in [Class::Membership, Class::Disruption, Class::Objects] {
            draft.hold(class, "paused by spec.paused");
        }
        return;
    }
    // A version that cannot follow the running one, or incompatible timings: nothing is created from such a spec.
    // Certificates expire all the same.
    if version::refused(s, draft) || timings::refused(s, draft) {
        drain::hold_pods(s, draft);
        objects::pdb_only(s, draft);
        pod_disruption_budget::rule(s, draft, None);
        certificates::rule(s, draft);
        return;
    }
    // Certificates of the user: no member is created or restarted with one that is not usable.
    if user_certificates::refused(s, draft) {
        objects::certificates_only(s, draft);
        if s.o.identity_secret.is_some() {
            drain::hold_pods(s, draft);
            objects::pdb_only(s, draft);
            pod_disruption_budget::rule(s, draft, None);
            certificates::rule(s, draft);
        }
        return;
    }
    // Before anything is created: a cluster that was never scaled above 0.
    if hibernate::unborn(s, draft) {
        return;
    }
    // A quorum was lost for good, and the user has asked to go on.
    if recovery::rule(s, draft) {
        return;
    }
    // Nothing of a cluster exists before its identity.
    if identity::identity_secret(s, draft) {
        return;
    }
    // Everything from here on is created from this.
    admitted::rule(s, draft);
    // Needs no quorum: no eviction may take a member that the others need by now.
    drain::hold_pods(s, draft);
    // Objects that need no quorum.
    objects::rule(s, draft);
    pod_disruption_budget::rule(s, draft, fence::next(s));
    certificates::rule(s, draft);
    // What is left of earlier incarnations.
    earlier::rule(s, draft);
    // Who is stopped, and stays so.
    fence::notes(s, draft);
    // All members stop, or start again.
    if hibernate::rule(s, draft) {
        return;
    }
    // The first member.
    if bootstrap::seed(s, draft) {
        return;
    }
    // A known member without its set.
    if !mutant!(SetForgotten) {
        missing_set::rule(s, draft);
    }
    edited::rule(s, draft);
    // Without a quorum nothing about members is decided.
    if bootstrap::no_quorum(s, draft) {
        return;
    }
    // The user wants to look at a member's volume: before anything is done about the member.
    let stops = fence::rule(s, draft);
    // Alarms.
    let alarm = match alarms::rule(s, draft) {
        alarms::Outcome::Leaves => return,
        alarms::Outcome::GoesOn(alarm) => alarm,
    };
    // Unhealthy voters.
    unhealthy::rule(s, draft);
    // NOSPACE: an alarm that is raised repeatedly does not block healing, and a later step that always fails no longer
    // prevents disarming. The pause after a disarm is reported after all other waits.
    let earlier = draft.waits.len();
    alarms::space(s, draft);
    let pauses = draft.waits.split_off(earlier);
    // Learners.
    learner::rule(s, draft);
    // Standbys that answer or do not.
    standby::rule(s, draft);
    // Services that depend on a leader's description: after what restores the cluster, so that an endpoint that cannot
    // be created does not block healing.
    if !mutant!(SlotsForgotten) {
        slots::rule(s, draft);
    }
    // Leftovers. This blocks nothing and is blocked by nothing; before `grow`, so that a removed member frees its node
    // for a new one.
    if !mutant!(LeftoversForgotten) {
        leftovers::rule(s, draft);
    }
    // Too few.
    grow::rule(s, draft);
    // Too many.
    shrink::rule(s, draft);
    // Drained nodes. Surplus members leave first, and may be on such a node.
    // One that hands over to be fenced is not restarted for that.
    let leaves = stops || drain::rule(s, draft);
    // A changed spec reaches the members, one at a time.
    if !leaves && !mutant!(RollForgotten) {
        roll::rule(s, draft);
    }
    enable_tls::rule(s, draft);
    // Volumes grow after everything else, so that a class that refuses blocks nothing.
    if !mutant!(VolumesForgotten) {
        objects::volumes(s, draft);
        autogrow::rule(s, draft);
    }
    // What the alarm waits for: after what the others do.
    draft.waits.extend(pauses);
    if let Some(held) = alarm {
        held.add_to(draft);
    }
}
