//! A cluster that follows another one. A Job applies that one's writes, apart from this plan, which only reports what keeps
//! it from going on. Holds nothing up: members are healed and replaced as those of any other cluster.

use crate::crd::{FollowPhase, FollowedCluster, Until};
use crate::plan::draft::Draft;
use crate::plan::following::{self, Source};
use crate::plan::observed::FollowFacts;
use crate::plan::report::timestamp;
use crate::plan::situation::Situation;

/// A standby that has lacked something for so long is reported: its source may be lost at any moment.
const BEHIND_MS: u64 = 180_000;

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
    too_little(s, draft, follow.until);
    fails(s, draft, &follow, phase == Some(FollowPhase::Frozen));
    behind(s, draft, &follow);
}

/// What keeps its Job from going on.
fn fails(s: &Situation<'_>, draft: &mut Draft, follow: &FollowedCluster, frozen: bool) {
    let told = following::told(s).and_then(|told| told.problem.as_ref());
    let job = s.o.follow.as_ref();
    let of_job = job.filter(|job| job.needs_user).map(|job| &job.message);
    let Some(why) = told.or(of_job) else {
        return;
    };
    let source = follow.in_words();
    if frozen {
        let waive = match s.hibernates() {
            true => format!("; {}", following::how_to_waive(s)),
            false => String::new(),
        };
        let text = format!(
            "{source} is closed to writes, and is neither opened nor left: {why}. It is tried again{waive}"
        );
        draft.stall("SourceClosed", text);
        return;
    }
    if let Some(text) = job.and_then(|job| in_vain(job, follow)) {
        draft.stall("FollowFails", text);
        return;
    }
    let text = match (follow.until, follow.standby) {
        (Until::SourceLost { .. }, _) => {
            format!("this cluster is not promoted: {why}. It is tried again")
        }
        (_, true) => format!(
            "{source} is not followed any further: {why}. It is tried again, and no switchover is carried out before that"
        ),
        (_, false) => format!(
            "{source} is not followed any further: {why}. It is tried again, and nothing is cut over before that"
        ),
    };
    draft.stall("FollowFails", text);
}

/// It follows, and its cutovers came to nothing.
fn in_vain(job: &FollowFacts, follow: &FollowedCluster) -> Option<String> {
    let after = timestamp(job.cutover_after_ms?);
    let (source, why) = (
        follow.in_words(),
        job.failure.as_deref().unwrap_or("its Job failed"),
    );
    let what = match follow.standby {
        true => "switchover",
        false => "cutover",
    };
    Some(format!(
        "{source} is followed, and the {what} came to nothing: {why}. It is tried again at {after}, if it is still asked for"
    ))
}

/// A standby that lacks something for too long.
fn behind(s: &Situation<'_>, draft: &mut Draft, follow: &FollowedCluster) {
    let follows = following::phase(s) == Some(FollowPhase::Following);
    let lost = matches!(follow.until, Until::SourceLost { .. });
    let late = following::behind_ms(s).is_some_and(|ms| ms >= BEHIND_MS);
    if follow.standby && follows && late && !lost {
        let text = format!(
            "for three minutes or more not everything that {} wrote has been here: what is missing is lost if that one is lost now. status.follow says since when and why",
            follow.in_words()
        );
        draft.stall("StandbyBehind", text);
    }
}

/// Less is here than what was reviewed: nothing is promoted.
fn too_little(s: &Situation<'_>, draft: &mut Draft, until: Until) {
    let (Until::SourceLost { revision }, Some((_, leader))) = (until, s.view) else {
        return;
    };
    if leader.revision < revision {
        let text = format!(
            "replicaOf.promote.revision is {revision}, and revision {} is here: what was reviewed is not here. Review status.follow.revision, and correct promote.revision",
            leader.revision
        );
        draft.stall("PromotionRefused", text);
    }
}
