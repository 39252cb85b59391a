//! One file a situation. Each rule reads the situation and adds steps, holds, notes and waits;
//! the numbers are those of the contract's order.

mod admitted;
mod alarms;
mod bootstrap;
pub(super) mod certificates;
mod conflict;
mod drain;
mod edited;
pub(super) mod enable_tls;
mod grow;
mod hand_over;
mod hibernate;
mod identity;
mod learner;
mod leftovers;
mod missing_set;
mod objects;
mod pod_disruption_budget;
mod roll;
mod rotate;
mod shrink;
mod slots;
mod standby;
mod timings;
mod unhealthy;
pub(super) mod user_certificates;
mod version;

pub(super) use admitted::refusal;
pub(super) use learner::lag;

use crate::mutants::{Mutant, planted};

use super::draft::Draft;
use super::situation::Situation;
use super::step::Class;

/// Runs every rule in order.
pub(super) fn run(s: &Situation<'_>, draft: &mut Draft) {
    run_in_order(s, draft);
    certificates::waits(s, draft);
}

fn run_in_order(s: &Situation<'_>, draft: &mut Draft) {
    // 1: names that belong to somebody else.
    if conflict::rule(s, draft) {
        return;
    }
    // 2: paused: only the PDB and the certificates are kept up.
    if s.cluster.spec.paused && !planted(Mutant::PauseIgnored) {
        drain::hold_pods(s, draft);
        objects::pdb_only(s, draft);
        pod_disruption_budget::rule(s, draft);
        certificates::rule(s, draft);
        for class in [Class::Membership, Class::Disruption, Class::Objects] {
            draft.hold(class, "paused by spec.paused");
        }
        return;
    }
    // A version that cannot follow the one that runs, or timings: nothing is made from such a spec.
    // Certificates end all the same.
    if version::refused(s, draft) || timings::refused(s, draft) {
        drain::hold_pods(s, draft);
        objects::pdb_only(s, draft);
        pod_disruption_budget::rule(s, draft);
        certificates::rule(s, draft);
        return;
    }
    // 3, of what the user gives: nobody is made or restarted onto what is not fit for use.
    if user_certificates::refused(s, draft) {
        objects::certificates_only(s, draft);
        if s.o.identity_secret.is_some() {
            drain::hold_pods(s, draft);
            objects::pdb_only(s, draft);
            pod_disruption_budget::rule(s, draft);
            certificates::rule(s, draft);
        }
        return;
    }
    // 4, before anything is made: a cluster that was never wanted awake.
    if hibernate::unborn(s, draft) {
        return;
    }
    // 5 begins before 3: nothing of a cluster exists before its identity.
    if identity::identity_secret(s, draft) {
        return;
    }
    // 2 again: what is made from now on is made from this.
    admitted::rule(s, draft);
    // 14, the part that needs no quorum: no eviction takes whom the others need by now.
    drain::hold_pods(s, draft);
    // 3: objects that need no quorum.
    objects::rule(s, draft);
    pod_disruption_budget::rule(s, draft);
    certificates::rule(s, draft);
    // 4: all members sleep, or wake.
    if hibernate::rule(s, draft) {
        return;
    }
    // 5: the first member.
    if bootstrap::seed(s, draft) {
        return;
    }
    // 6: a known member without its set.
    if !planted(Mutant::SetForgotten) {
        missing_set::rule(s, draft);
    }
    edited::rule(s, draft);
    // 7: without a quorum nothing about members is decided.
    if bootstrap::no_quorum(s, draft) {
        return;
    }
    // 8: alarms.
    let alarm = match alarms::rule(s, draft) {
        alarms::Outcome::Leaves => return,
        alarms::Outcome::GoesOn(alarm) => alarm,
    };
    // 9 and 10: the sick.
    unhealthy::rule(s, draft);
    // 8 again, NOSPACE: an alarm that goes on and off holds up nobody who heals, and a later step that fails each
    // time keeps it from being switched off no more. A pause after a disarm is told after all others' waits.
    let earlier = draft.waits.len();
    alarms::space(s, draft);
    let pauses = draft.waits.split_off(earlier);
    // 11: learners.
    learner::rule(s, draft);
    // 12: standbys that answer or do not.
    standby::rule(s, draft);
    // 3, the part that needs a leader's word: after what makes the cluster whole, so that an
    // endpoint that cannot be made holds up no healing.
    if !planted(Mutant::SlotsForgotten) {
        slots::rule(s, draft);
    }
    // 17: what is left over. It holds nothing and is held by nothing; before 13, so that who is
    // out makes room on its node for who comes.
    if !planted(Mutant::LeftoversForgotten) {
        leftovers::rule(s, draft);
    }
    // 13: too few.
    grow::rule(s, draft);
    // 15: too many.
    shrink::rule(s, draft);
    // 14: nodes that go away. Who is one too many leaves first, and may be who stands there.
    let leaves = drain::rule(s, draft);
    // 16: a changed spec reaches the members, one at a time.
    if !leaves && !planted(Mutant::RollForgotten) {
        roll::rule(s, draft);
    }
    enable_tls::rule(s, draft);
    // 3, last part: volumes grow after everything else, so that a class that refuses blocks nothing.
    if !planted(Mutant::VolumesForgotten) {
        objects::volumes(s, draft);
    }
    // 8, what it waits for: after what the others do.
    draft.waits.extend(pauses);
    if let Some(held) = alarm {
        held.tell(draft);
    }
}
