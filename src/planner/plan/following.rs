//! Where a cluster is that follows another one, from what its members describe in this reconcile. What the status remembers
//! counts for nothing here.

use crate::crd::FollowPhase;

use super::observed::{Description, Following};
use super::situation::Situation;

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

/// Revisions that are not applied here yet, as far as they are known.
pub(super) fn lag_revisions(s: &Situation<'_>) -> Option<i64> {
    let (_, leader) = s.view?;
    let source = told(s)?.source_revision;
    (source > 0).then(|| (source - leader.revision).max(0))
}
