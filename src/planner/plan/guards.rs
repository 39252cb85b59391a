//! The worst-case projection: when a membership change or a restart is allowed at all. H counts
//! voters seen healthy within the freshness bound; Unknown counts as not healthy.

use crate::mutants::mutant;

use super::alarms;
use super::rules::certificates;
use super::situation::{Situation, quorum};

/// Whether a learner may be added now.
///
/// # Errors
/// The reason.
pub(super) fn add_learner(s: &Situation<'_>) -> Result<(), String> {
    seen(s)?;
    let (healthy, voters) = (s.healthy(), s.voters.len());
    if healthy != voters && !mutant!(AddBesideDead) {
        return Err(format!(
            "{healthy} of {voters} voters are healthy; all have to be"
        ));
    }
    alarms::may_add(s)?;
    let most = if s.grows_by_two() { 2 } else { 1 };
    match s.learners.keys().next() {
        _ if mutant!(TwoLearners) => Ok(()),
        Some(learner) if s.learners.len() >= most => Err(format!("{learner} is still a learner")),
        _ => Ok(()),
    }
}

/// Whether a caught-up learner may become a voter now.
///
/// # Errors
/// The reason.
pub(super) fn promote(s: &Situation<'_>, id: u64) -> Result<(), String> {
    seen(s)?;
    alarms::may_vote(s, id)?;
    let (healthy, voters) = (s.healthy(), s.voters.len());
    let needed = quorum(voters + 1);
    if voters > 1 && healthy < needed {
        return Err(format!(
            "{healthy} of {voters} voters are healthy; {needed} have to be"
        ));
    }
    let kept = s.o.pdb.and_then(|pdb| pdb.min_available()).unwrap_or(0) as usize;
    let evicted = s.counts_evictions_by_pdb() || s.may_lose_one();
    if evicted && kept < needed && !mutant!(PromotedUnbudgeted) {
        return Err(format!(
            "the PDB keeps {kept} members available; {needed} have to be"
        ));
    }
    Ok(())
}

/// Whether a voter may be removed now.
///
/// # Errors
/// The reason.
pub(super) fn remove_voter(s: &Situation<'_>, member: &str) -> Result<(), String> {
    seen(s)?;
    let voters = s.voters.len();
    if voters <= 1 {
        return Err("the last voter is never removed".to_owned());
    }
    alarms::may_leave(s)?;
    let rest = others_healthy(s, member);
    let needed = quorum(voters - 1);
    if rest >= needed {
        return Ok(());
    }
    Err(format!(
        "{rest} other voters are healthy; {needed} have to be"
    ))
}

/// Whether a voter's pod may be deleted now.
///
/// # Errors
/// The reason.
pub(super) fn restart_voter(s: &Situation<'_>, member: &str) -> Result<(), String> {
    seen(s)?;
    // Its next pod would not start.
    if let Some(secret) = s.o.tls.missing(member).first() {
        return Err(format!("its Secret {secret} is not there"));
    }
    if s.o.tls.is_unanswerable() {
        return Err("its kubelet's request for a certificate could not be answered".to_owned());
    }
    if let Some(why) = certificates::withheld(s, Some(member)) {
        return Err(why);
    }
    fence_voter(s, member)
}

/// Whether a voter may be stopped now, for as long as the user likes.
///
/// # Errors
/// The reason.
pub(super) fn fence_voter(s: &Situation<'_>, member: &str) -> Result<(), String> {
    seen(s)?;
    let others = s.voters.iter().filter(|(name, _)| *name != member);
    // Its server answers until the end of its grace period.
    let ends = |name: &String| s.o.pods.get(name).is_some_and(|pod| pod.terminating);
    let stay = others.filter(|(name, seat)| seat.healthy() && !ends(name));
    let (rest, needed) = (stay.count(), quorum(s.voters.len()));
    if rest >= needed {
        return Ok(());
    }
    Err(format!(
        "{rest} other voters are healthy; {needed} have to be"
    ))
}

fn others_healthy(s: &Situation<'_>, member: &str) -> usize {
    s.voters
        .iter()
        .filter(|(name, seat)| *name != member && seat.healthy())
        .count()
}

fn seen(s: &Situation<'_>) -> Result<(), String> {
    s.view
        .map(|_| ())
        .ok_or_else(|| "no leader with a quorum was seen".to_owned())
}
