//! A cluster that follows another one. A Job applies that one's writes, apart from this plan, which only reports what keeps
//! it from going on. Holds nothing up: members are healed and replaced as those of any other cluster.

use crate::crd::FollowPhase;
use crate::plan::draft::Draft;
use crate::plan::following;
use crate::plan::situation::Situation;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let phase = following::phase(s);
    let Some(follow) = s.to_follow() else {
        return;
    };
    if !matches!(phase, Some(FollowPhase::Following | FollowPhase::Frozen)) {
        return;
    }
    let told = following::told(s).and_then(|told| told.problem.as_ref());
    let job = s.o.follow.as_ref();
    let of_job = job.filter(|job| job.needs_user).map(|job| &job.message);
    if let Some(why) = told.or(of_job) {
        let text = format!(
            "{} is not followed any further: {why}. It is tried again, and nothing is cut over before that",
            follow.in_words()
        );
        draft.stall("FollowFails", text);
    }
}
