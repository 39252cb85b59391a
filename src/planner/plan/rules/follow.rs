//! A cluster that follows another one. A Job applies that one's writes, apart from this plan, which only reports what keeps
//! it from going on. Holds nothing up: members are healed and replaced as those of any other cluster.

use crate::crd::FollowPhase;
use crate::plan::draft::Draft;
use crate::plan::following::{self, Source};
use crate::plan::situation::Situation;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let phase = following::phase(s);
    let Some(follow) = s.to_follow() else {
        return;
    };
    if following::source(s) == Source::LastClosed {
        let by_hand = following::by_hand(s);
        let text = format!("no leader with a quorum was seen, and {by_hand}");
        draft.stall("SourceClosed", text);
        return;
    }
    if !matches!(phase, Some(FollowPhase::Following | FollowPhase::Frozen)) {
        return;
    }
    let told = following::told(s).and_then(|told| told.problem.as_ref());
    let job = s.o.follow.as_ref();
    let of_job = job.filter(|job| job.needs_user).map(|job| &job.message);
    let Some(why) = told.or(of_job) else {
        return;
    };
    if phase == Some(FollowPhase::Frozen) {
        let text = format!(
            "{} is closed to writes, and is neither opened nor left: {why}. It is tried again",
            follow.in_words()
        );
        draft.stall("SourceClosed", text);
    } else {
        let text = format!(
            "{} is not followed any further: {why}. It is tried again, and nothing is cut over before that",
            follow.in_words()
        );
        draft.stall("FollowFails", text);
    }
}
