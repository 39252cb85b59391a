//! Where a cluster is that follows another one, and whether that one is closed to writes, from what its members describe in
//! this reconcile. What the status remembers counts only where no leader says anything, and then only to be careful.

use crate::crd::{ANNOTATION_LEAVE_CLOSED, FollowPhase, FollowedCluster, Until};

use super::observed::{Description, Following};
use super::situation::Situation;
use super::status_memory::milliseconds;

/// Clocks of nodes differ by less.
const AHEAD_MS: u64 = 60_000;

/// Its phase; `None`: it is to follow none, or no leader with a quorum says.
pub(super) fn phase(s: &Situation<'_>) -> Option<FollowPhase> {
    s.to_follow()?;
    if !s.bootstrapped() {
        return Some(FollowPhase::Seeding);
    }
    let (_, leader) = s.view?;
    Some(match &leader.following {
        None => FollowPhase::CutOver,
        Some(following) if following.frozen_ms.is_some() => FollowPhase::Frozen,
        Some(_) => FollowPhase::Following,
    })
}

/// Whether the followed cluster is closed to writes by this one, as far as that matters before the members here stop or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Not closed, and no Job is there that would close it; or its place was taken; or none is followed.
    Left,
    /// A Job may be about to close it.
    MayClose,
    /// A leader with a quorum says that it is.
    Closed,
    /// No leader with a quorum says anything now, and it was closed when one last did, or a Job was about to close it: that
    /// takes less time than passes between two looks.
    LastClosed,
    /// No leader with a quorum says anything.
    Unseen,
}

pub(super) fn source(s: &Situation<'_>) -> Source {
    if s.to_follow().is_none() {
        return Source::Left;
    }
    let remembered = s.o.status_memory.follow.as_ref().map(|it| it.phase);
    match (phase(s), remembered) {
        (Some(FollowPhase::Seeding | FollowPhase::CutOver), _) => Source::Left,
        (Some(FollowPhase::Frozen), _) => Source::Closed,
        (Some(FollowPhase::Following), _) if is_quiet(s) => Source::Left,
        (Some(FollowPhase::Following), _) => Source::MayClose,
        (None, Some(FollowPhase::CutOver)) => Source::Left,
        (None, Some(FollowPhase::Frozen)) => Source::LastClosed,
        (None, Some(FollowPhase::Following)) if is_about_to_close(s) => Source::LastClosed,
        (None, _) => Source::Unseen,
    }
}

/// Whether a Job cuts over as soon as it can. Members that stop or sleep were let go when it was open.
fn is_about_to_close(s: &Situation<'_>) -> bool {
    let closes = s.to_follow().is_some_and(|it| it.until == Until::CaughtUp);
    let stops = s.o.sets.values().any(|set| set.hibernated);
    closes && !stops
}

/// Whether no Job may close it any more that the leader's description does not know of.
fn is_quiet(s: &Situation<'_>) -> bool {
    let (Some(follow), Some((_, leader))) = (s.to_follow(), s.view) else {
        return false;
    };
    // The cutover of one that moves does not become Manual again: there was never another Job.
    // Not where the spec is not the one that a Job is made from.
    if !follow.standby && follow.until == Until::Stay && s.o.refused.is_none() {
        return true;
    }
    let since = s.o.follow.as_ref().and_then(|job| job.quiet_since_ms);
    since.is_some_and(|since| s.o.now_ms.saturating_sub(leader.age_ms) >= since)
}

/// Whether members that are to stop go on, because only they can open the followed cluster again. What has begun to stop
/// without a leader is not held up: nobody says anything then. Nor is anything where the user does not care.
pub(super) fn keeps_awake(s: &Situation<'_>) -> bool {
    if s.o.source_waived {
        return false;
    }
    let stops = s.o.sets.values().any(|set| set.hibernated);
    match source(s) {
        Source::MayClose | Source::Closed => true,
        Source::LastClosed => !stops,
        Source::Left | Source::Unseen => false,
    }
}

/// Why members that are to stop go on.
pub(super) fn awake_because(s: &Situation<'_>) -> String {
    format!(
        "replicas is 0, and the members go on until {} takes writes again or its place is taken",
        noun(s)
    )
}

/// How somebody says that nobody has to open it.
pub(super) fn how_to_waive(s: &Situation<'_>) -> String {
    format!(
        "if it does not matter, because {} is gone or is opened by hand: kubectl annotate etcdcluster {} {ANNOTATION_LEAVE_CLOSED}=true",
        noun(s),
        s.cluster.name
    )
}

/// What the followed cluster is to this one.
pub(super) fn noun(s: &Situation<'_>) -> &'static str {
    let follow = s.cluster.spec.follow();
    follow.map_or("the followed cluster", |follow| follow.noun())
}

/// How a followed cluster is opened without the one here. No leader says whether its last entry is in the log.
pub(super) fn by_hand(s: &Situation<'_>) -> String {
    let follow = s.cluster.spec.follow();
    let source = follow.as_ref().map(FollowedCluster::in_words);
    let source = source.unwrap_or_default();
    let known = s.o.status_memory.follow.as_ref();
    let began = known.and_then(|it| it.frozen_time.as_ref());
    let began = began.map(|at| format!(" that began at {at}"));
    let seen = known.is_some_and(|it| it.phase == FollowPhase::Frozen);
    let (is, the) = match seen {
        true => ("is", "the"),
        false => ("may be", "an"),
    };
    format!(
        "{source} {is} closed to writes by {the} attempt{} to take its place. A leader here lets a Job open it or take its place: restore the quorum. By hand only once no member of this cluster can come back (delete this EtcdCluster and its volumes), because it may have taken that place already: etcdctl alarm disarm, there",
        began.unwrap_or_default()
    )
}

/// What a member was told last of the followed cluster: the Job tells one of them at a time.
pub(super) fn told<'a>(s: &Situation<'a>) -> Option<&'a Following> {
    let names = s.o.descriptions.keys();
    let described = names.filter_map(|name| s.description(name));
    let all = described.filter_map(|description| {
        let following = told_to(s, description)?;
        Some((following.told_ms? + description.age_ms, following))
    });
    let newest = all.min_by_key(|(age_ms, _)| *age_ms);
    newest.map(|(_, following)| following)
}

fn told_to<'a>(s: &Situation<'a>, description: &'a Description) -> Option<&'a Following> {
    let ours = description.cluster_uid.as_deref() == Some(s.cluster.life.as_str());
    description.following.as_ref().filter(|_| ours)
}

/// Everything that the followed cluster had then is applied, in Unix milliseconds.
pub(super) fn as_of_ms(s: &Situation<'_>) -> Option<u64> {
    // Nobody knows what will be written: that clock is wrong, or it is a lie.
    let latest = s.o.now_ms.saturating_add(AHEAD_MS);
    told(s)?.as_of_ms.filter(|at| *at <= latest)
}

/// For how long not everything of the followed cluster is known to be here. A member that was started again was told of
/// nothing yet: then what the status remembers counts.
pub(super) fn behind_ms(s: &Situation<'_>) -> Option<u64> {
    let known = s.o.status_memory.follow.as_ref();
    let known = known.and_then(|it| milliseconds(it.as_of.as_deref()?));
    let as_of_ms = as_of_ms(s).or(known)?;
    Some(s.o.now_ms.saturating_sub(as_of_ms))
}

/// The same, also while no member was ever told a time and the status remembers none: since the oldest of its members was made,
/// which was before it had anything. A cluster that is lost so early would otherwise not be missed.
pub(super) fn lag_ms(s: &Situation<'_>) -> Option<u64> {
    let made = s.o.sets.values().map(|set| set.created_ms).min();
    let since_made = || made.map(|at| s.o.now_ms.saturating_sub(at));
    behind_ms(s).or_else(since_made)
}

/// Revisions that are not applied here yet, as far as they are known.
pub(super) fn lag_revisions(s: &Situation<'_>) -> Option<i64> {
    let (_, leader) = s.view?;
    let source = told(s)?.source_revision;
    (source > 0).then(|| (source - leader.revision).max(0))
}
