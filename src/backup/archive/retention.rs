//! Which objects of an archive lead to no moment that is to be kept. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::objects::Archived;

/// Objects of a cluster without a backup are kept for so long: its first one may be on its way.
const ORPHANED: Duration = Duration::from_secs(24 * 3600);

/// The good backups of a cluster that are kept, each with its last entry and when it was complete.
pub type Horizon = BTreeMap<u64, Vec<(u64, Timestamp)>>;

/// Objects that go. `known`: every cluster of which there is a backup, with its good ones; `unread`: there are backups of
/// which nobody knows whose they are. `window`: from the newest good backup that is older on, every moment is kept; zero:
/// from the oldest one on.
#[must_use]
pub fn prunable<'a>(
    archived: &'a [Archived],
    known: &Horizon,
    unread: bool,
    window: Duration,
    now: Timestamp,
) -> Vec<&'a Archived> {
    let goes = |object: &&Archived| match known.get(&object.cluster_id) {
        None => outlived(object.modified, unread, now),
        Some(good) => {
            let oldest = good.iter().map(|(index, _)| *index).min();
            let beyond = good.iter().filter(|(_, at)| is_older(*at, window, now));
            let beyond = beyond.map(|(index, _)| *index).max();
            let from = match window.is_zero() {
                true => oldest,
                false => oldest.max(beyond),
            };
            from.is_some_and(|index| object.range.last <= index)
        }
    };
    archived.iter().filter(goes).collect()
}

/// Whether something of a cluster without any backup that is known goes.
pub(super) fn outlived(modified: Timestamp, unread: bool, now: Timestamp) -> bool {
    !unread && is_older(modified, ORPHANED, now)
}

fn is_older(at: Timestamp, than: Duration, now: Timestamp) -> bool {
    at < now && now.duration_since(at).unsigned_abs() > than
}
