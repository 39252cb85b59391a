//! `status.follow` and the condition Following: how far a cluster is that follows another one, from what its members and
//! its Job say.

use super::conditions::input;
use super::{count, timestamp};
use crate::crd::ConditionStatus::{False, True, Unknown};
use crate::crd::{ConditionType, FollowPhase, FollowStatus, FollowedCluster, Until};
use crate::plan::following::{self, Source};
use crate::plan::observed::{CutOverFacts, FollowFacts};
use crate::plan::situation::Situation;
use crate::plan::status_memory::milliseconds;
use crate::plan::step::ConditionInput;

/// The reason of the condition by which the deletion of a cluster learns that the followed one stays open.
pub const SOURCE_OPEN: &str = "SourceOpen";
/// While nothing is written there, the status says so twice a minute.
const STEP_MS: u64 = 30_000;
/// The Job tells a member every few seconds: less is no lag.
const BEHIND_MS: u64 = 10_000;

/// The entry of a cluster that follows another one or has done so.
pub(super) fn status(s: &Situation<'_>) -> Option<FollowStatus> {
    s.cluster.spec.follow()?;
    let before = s.o.status_memory.follow.as_ref();
    if s.to_follow().is_none() {
        return before.and_then(recovered);
    }
    let job = s.o.follow.as_ref();
    let failure = job.and_then(|job| job.failure.clone());
    let known = before.cloned().unwrap_or_default();
    let known = FollowStatus {
        message: None,
        last_failure: failure.or(known.last_failure),
        ..known
    };
    match following::phase(s) {
        None => before.map(|_| unseen(s, known)),
        Some(FollowPhase::Seeding) => Some(seeding(s, known)),
        Some(FollowPhase::CutOver) => {
            let saw_it = before.is_some_and(|it| it.phase != FollowPhase::CutOver);
            Some(cut_over(s, known, saw_it))
        }
        Some(phase) => Some(follows(s, phase, known)),
    }
}

/// A recovered cluster follows none. What it has left behind is not forgotten.
fn recovered(known: &FollowStatus) -> Option<FollowStatus> {
    match known.phase {
        FollowPhase::CutOver => Some(known.clone()),
        FollowPhase::Frozen => Some(FollowStatus {
            phase: FollowPhase::Frozen,
            source_cluster_id: known.source_cluster_id.clone(),
            source_revision: known.source_revision,
            frozen_time: known.frozen_time.clone(),
            message: Some("a recovery has made this cluster one of its own: the followed one stays closed to writes until its alarms are disarmed".to_owned()),
            ..FollowStatus::default()
        }),
        FollowPhase::Seeding | FollowPhase::Following => None,
    }
}

/// No leader says how far it is: it was as far as is known.
fn unseen(s: &Situation<'_>, known: FollowStatus) -> FollowStatus {
    let message = match following::source(s) {
        Source::LastClosed => following::by_hand(s),
        _ if s.hibernates() => "the cluster hibernates: set spec.replicas".to_owned(),
        _ => "no leader with a quorum was seen".to_owned(),
    };
    if known.phase == FollowPhase::CutOver {
        return FollowStatus {
            message: None,
            ..known
        };
    }
    // What it lacks grows, though nobody says how much.
    let lag_ms = following::lag_ms(s).map(in_steps);
    FollowStatus {
        message: Some(message),
        lag_revisions: None,
        lag_seconds: lag_ms.and_then(seconds).or(known.lag_seconds),
        ..known
    }
}

fn seeding(s: &Situation<'_>, known: FollowStatus) -> FollowStatus {
    let seed = s.o.identity_secret.as_ref().map(|it| it.seed.as_str());
    let staged = seed.and_then(|seed| s.description(seed)?.staged.as_ref());
    let source = staged.map_or(0, |staged| staged.source_cluster);
    let job = s.o.restore.as_ref().map(|job| job.message.clone());
    FollowStatus {
        phase: FollowPhase::Seeding,
        source_cluster_id: id(source).or(known.source_cluster_id),
        message: staged.and_then(|staged| staged.problem.clone()).or(job),
        last_failure: known.last_failure,
        ..FollowStatus::default()
    }
}

fn follows(s: &Situation<'_>, phase: FollowPhase, known: FollowStatus) -> FollowStatus {
    let leader = s.view.map(|(_, leader)| leader);
    let described = leader.and_then(|leader| leader.following.as_ref());
    let told = following::told(s);
    let source_revision = told.map(|told| told.source_revision).filter(|it| *it > 0);
    let as_of_ms = following::as_of_ms(s).or(known.as_of.as_deref().and_then(milliseconds));
    let problem = told.and_then(|told| told.problem.clone());
    let lag_ms = following::lag_ms(s);
    let lag_ms = lag_ms.map(|ms| if as_of_ms.is_some() { ms } else { in_steps(ms) });
    FollowStatus {
        phase,
        source_cluster_id: described.and_then(|it| id(it.source_cluster)),
        revision: leader.map(|leader| leader.revision),
        source_revision: source_revision.or(known.source_revision),
        lag_revisions: following::lag_revisions(s).or(known.lag_revisions),
        as_of: as_of_ms.map(|at| stepped(at, known.as_of.as_deref())),
        lag_seconds: lag_ms.and_then(seconds),
        frozen_time: described.and_then(|it| it.frozen_ms).map(timestamp),
        cut_over_time: None,
        write_gap_milliseconds: None,
        message: problem.or_else(|| said(s.o.follow.as_ref())),
        last_failure: known.last_failure,
    }
}

/// Clients write here. What the Job has reported of it is exact; that this was seen is not.
fn cut_over(s: &Situation<'_>, known: FollowStatus, saw_it: bool) -> FollowStatus {
    let job = s.o.follow.as_ref();
    let reported = job.and_then(|job| job.cut_over);
    let seen = saw_it.then(|| timestamp(s.o.now_ms));
    // Whatever was closed before a promotion without it: nobody knows how that one is now.
    let known_frozen = known.frozen_time.filter(|_| !was_lost(s));
    let frozen = reported.filter(|it| it.frozen_ms > 0);
    let frozen = frozen.map(|it| timestamp(it.frozen_ms));
    let writable = reported.map(|it| timestamp(it.writable_ms));
    FollowStatus {
        phase: FollowPhase::CutOver,
        revision: taken_at(s),
        lag_revisions: None,
        as_of: None,
        lag_seconds: None,
        frozen_time: frozen.or(known_frozen),
        cut_over_time: writable.or(known.cut_over_time).or(seen),
        write_gap_milliseconds: reported.and_then(gap_ms).or(known.write_gap_milliseconds),
        message: None,
        ..known
    }
}

/// Whether the cluster was promoted without the followed one. What the Job has reported, and the time at which that one
/// was closed, say so for certain: the spec may have changed in the second before the promotion was seen.
fn was_lost(s: &Situation<'_>) -> bool {
    let reported = s.o.follow.as_ref().and_then(|job| job.cut_over);
    if let Some(reported) = reported {
        return reported.frozen_ms == 0;
    }
    asks_without_source(s) && !is_known_closed(s)
}

fn asks_without_source(s: &Situation<'_>) -> bool {
    let follow = s.cluster.spec.follow();
    follow.is_some_and(|it| matches!(it.until, Until::SourceLost { .. }))
}

/// Whether the time is known at which the followed cluster was closed and its place taken.
fn is_known_closed(s: &Situation<'_>) -> bool {
    let reported = s.o.follow.as_ref().and_then(|job| job.cut_over);
    let closed = |known: &FollowStatus| match known.phase {
        FollowPhase::CutOver => known.frozen_time.is_some(),
        // It was taken over since.
        FollowPhase::Frozen => !asks_without_source(s),
        FollowPhase::Seeding | FollowPhase::Following => false,
    };
    let known = s.o.status_memory.follow.as_ref();
    reported.is_some_and(|it| it.frozen_ms > 0) || known.is_some_and(closed)
}

/// The revision at which clients could write here: as the Job reported it, or when that was first seen.
fn taken_at(s: &Situation<'_>) -> Option<i64> {
    let reported = s.o.follow.as_ref().and_then(|job| job.cut_over);
    let before = s.o.status_memory.follow.as_ref();
    let known = before.filter(|it| it.phase == FollowPhase::CutOver);
    let leader = || s.view.map(|(_, leader)| leader.revision);
    match (reported, known) {
        (Some(reported), _) => Some(reported.revision),
        (None, Some(known)) => known.revision,
        (None, None) => leader().filter(|_| before.is_some()),
    }
}

/// Nobody has closed one that was lost.
fn gap_ms(reported: CutOverFacts) -> Option<i64> {
    if reported.frozen_ms == 0 {
        return None;
    }
    i64::try_from(reported.writable_ms.saturating_sub(reported.frozen_ms)).ok()
}

/// What the Job does or waits for, where that says more than the phase.
fn said(job: Option<&FollowFacts>) -> Option<String> {
    let message = job.map(|job| job.message.clone());
    message.filter(|message| !message.is_empty())
}

fn id(cluster: u64) -> Option<String> {
    (cluster != 0).then(|| format!("{cluster:x}"))
}

/// A time that is not much later than the known one is that.
fn stepped(at_ms: u64, known: Option<&str>) -> String {
    let before = known.and_then(|known| Some((known, milliseconds(known)?)));
    match before {
        Some((text, before)) if at_ms >= before && at_ms < before + STEP_MS => text.to_owned(),
        _ => timestamp(at_ms),
    }
}

/// Nobody has said more about it: twice a minute is enough.
fn in_steps(ms: u64) -> u64 {
    ms / STEP_MS * STEP_MS
}

fn seconds(ms: u64) -> Option<i64> {
    match ms < BEHIND_MS {
        true => Some(0),
        false => i64::try_from(ms / 1000).ok(),
    }
}

/// The condition of a cluster that follows another one or has done so.
pub(super) fn condition(s: &Situation<'_>) -> Option<ConditionInput> {
    let asked = s.cluster.spec.follow()?;
    let type_ = ConditionType::Following;
    let Some(follow) = s.to_follow() else {
        return Some(input(type_, False, "Recovered", own(s, &asked)));
    };
    if s.o.deleting && is_left(s) {
        let message = format!(
            "this cluster is being deleted, and does not close {} to writes",
            follow.in_words()
        );
        let holds = match s.view {
            Some(_) => True,
            None => Unknown,
        };
        return Some(input(type_, holds, SOURCE_OPEN, message));
    }
    let remembered = s.o.status_memory.follow.as_ref().map(|it| it.phase);
    // It does not follow again.
    let over = remembered.filter(|phase| *phase == FollowPhase::CutOver);
    let Some(phase) = following::phase(s).or(over) else {
        let message = match remembered {
            Some(FollowPhase::Frozen) => {
                let by_hand = following::by_hand(s);
                format!("no leader with a quorum was seen, and {by_hand}")
            }
            _ => "no leader with a quorum was seen".to_owned(),
        };
        return Some(input(type_, Unknown, "NoQuorumSeen", message));
    };
    let holds = match phase {
        FollowPhase::CutOver => False,
        _ => True,
    };
    Some(input(
        type_,
        holds,
        phase.as_str(),
        in_words(s, &follow, phase),
    ))
}

/// Whether the followed cluster stays open, whatever becomes of the members here. What sleeps closes nothing.
fn is_left(s: &Situation<'_>) -> bool {
    let remembered = s.o.status_memory.follow.as_ref().map(|it| it.phase);
    let sleeps = s.sleeps() && remembered == Some(FollowPhase::Following);
    let follows = following::phase(s) == Some(FollowPhase::Following);
    sleeps || follows && following::source(s) == Source::Left
}

/// What a recovery of a follower may leave behind.
fn own(s: &Situation<'_>, follow: &FollowedCluster) -> String {
    let source = follow.in_words();
    let remembered = s.o.status_memory.follow.as_ref().map(|it| it.phase);
    let there = match remembered {
        Some(FollowPhase::CutOver) if was_lost(s) => {
            "was lost when this cluster was promoted, and takes writes if it comes back: keep its clients from it".to_owned()
        }
        Some(FollowPhase::CutOver) => "stays closed to writes by its alarm CORRUPT".to_owned(),
        Some(FollowPhase::Frozen) => "was closed to writes when that was last seen, and stays so until its alarms are disarmed: do that only if clients are to write there instead of here".to_owned(),
        _ => "may go on taking writes, which do not come here, or be closed to them by its alarms: keep clients from writing to both".to_owned(),
    };
    format!(
        "a recovery has made it a cluster of its own: it follows none, and takes the writes of clients; {source} {there}"
    )
}

fn in_words(s: &Situation<'_>, follow: &FollowedCluster, phase: FollowPhase) -> String {
    if follow.standby {
        return of_standby(s, follow, phase);
    }
    let source = follow.in_words();
    match phase {
        FollowPhase::Seeding => {
            format!("the first member receives a snapshot of {source}; clients go on there")
        }
        FollowPhase::Following => {
            let next = match follow.until {
                Until::CaughtUp => "the cutover follows once it has caught up",
                _ => "set bootstrap.follow.cutover to WhenCaughtUp for the cutover",
            };
            format!(
                "{source} is followed, {}: clients may read here, and their writes are refused here before the cutover; {next}",
                behind(s)
            )
        }
        FollowPhase::Frozen => format!(
            "{source} is closed to writes, {}: clients' writes are refused here until the rest is applied",
            behind(s)
        ),
        FollowPhase::CutOver => format!(
            "clients write here; {source} is not followed any more, and stays closed to writes by its alarm CORRUPT"
        ),
    }
}

fn of_standby(s: &Situation<'_>, follow: &FollowedCluster, phase: FollowPhase) -> String {
    let source = follow.in_words();
    match phase {
        FollowPhase::Seeding if follow.until == Until::Stay => {
            format!("the first member receives a snapshot of {source}; clients go on there")
        }
        FollowPhase::Seeding => format!(
            "the first member receives a snapshot of {source}: this cluster is not formed yet, and cannot be promoted before that"
        ),
        FollowPhase::Following => {
            let next = match follow.until {
                Until::Stay => "set replicaOf.promote to let them write here",
                Until::CaughtUp => "the switchover follows once it has caught up",
                Until::SourceLost { .. } => {
                    "it is promoted once its Job has seen that no endpoint of the source answers; what that one wrote and is not here is lost"
                }
            };
            format!(
                "this cluster is a standby of {source}, {}: clients may read here, and their writes are refused here; {next}",
                behind(s)
            )
        }
        FollowPhase::Frozen => format!(
            "{source} is closed to writes for the switchover, {}: clients' writes are refused here until the rest is applied",
            behind(s)
        ),
        FollowPhase::CutOver if was_lost(s) => {
            let from = taken_at(s).map(|revision| format!(" from revision {revision} on"));
            format!(
                "this cluster was promoted without {source}, which was lost: clients write here{}, and what that one wrote and was not here is lost. A source that comes back takes writes: keep its clients from it, and delete it or create it anew as a standby of this cluster",
                from.unwrap_or_default()
            )
        }
        FollowPhase::CutOver => {
            let closed = match is_known_closed(s) {
                true => ", and stays closed to writes by its alarm CORRUPT",
                false => {
                    ", and whether it is closed to writes is not known: keep its clients from it"
                }
            };
            format!(
                "this cluster was promoted: clients write here; {source} is not followed any more{closed}"
            )
        }
    }
}

fn behind(s: &Situation<'_>) -> String {
    let lag = following::lag_revisions(s);
    match lag.and_then(|lag| usize::try_from(lag).ok()) {
        Some(lag) => format!("{} behind", count(lag, "revision")),
        None => "and how far behind is not known".to_owned(),
    }
}

/// What the summary of a cluster at rest adds.
pub(super) fn summary(s: &Situation<'_>) -> Option<String> {
    match following::phase(s)? {
        FollowPhase::Following if is_standby(s) => Some(format!("; a standby, {}", behind(s))),
        FollowPhase::Following => Some(format!("; follows another cluster, {}", behind(s))),
        FollowPhase::Frozen if is_standby(s) => Some(format!(
            "; a standby, and its source is frozen, {}",
            behind(s)
        )),
        FollowPhase::Frozen => Some(format!("; the followed cluster is frozen, {}", behind(s))),
        FollowPhase::Seeding | FollowPhase::CutOver => None,
    }
}

fn is_standby(s: &Situation<'_>) -> bool {
    s.to_follow().is_some_and(|follow| follow.standby)
}
