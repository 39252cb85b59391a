//! `status.restore`: how the cluster comes or came to its first data, from what its seed describes.

use super::timestamp;
use crate::crd::{RestorePhase, RestoreStatus};
use crate::plan::observed::Staged;
use crate::plan::situation::Situation;

/// The entry of a cluster that is restored or was.
pub(super) fn status(s: &Situation<'_>) -> Option<RestoreStatus> {
    let bootstrap = s.cluster.spec.bootstrap.as_ref()?;
    let before = s.o.status_memory.restore.clone();
    let known = RestoreStatus {
        source: bootstrap.restore.in_words(),
        message: None,
        expected_end_time: None,
        ..before.clone().unwrap_or_default()
    };
    if s.bootstrapped() {
        return Some(RestoreStatus {
            phase: RestorePhase::Restored,
            // A status that was lost does not tell when that was.
            completion_time: match (&known.completion_time, &before) {
                (None, Some(_)) => Some(timestamp(s.o.now_ms)),
                (completed, _) => completed.clone(),
            },
            ..known
        });
    }
    let seed = s.o.identity_secret.as_ref().map(|it| it.seed.as_str());
    let staged = seed.and_then(|seed| s.description(seed)?.staged.as_ref());
    Some(match staged {
        Some(staged) if staged.received > 0 => receiving(s, staged, known),
        _ => RestoreStatus {
            phase: RestorePhase::Pending,
            message: s.o.restore.as_ref().map(|job| job.message.clone()),
            ..known
        },
    })
}

fn receiving(s: &Situation<'_>, staged: &Staged, known: RestoreStatus) -> RestoreStatus {
    let number = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
    let (phase, revision, keys) = match staged.complete {
        true => (
            RestorePhase::Received,
            Some(staged.revision),
            number(staged.keys),
        ),
        false => (RestorePhase::Receiving, None, None),
    };
    let start = known.start_time.clone();
    RestoreStatus {
        phase,
        message: s.o.restore.as_ref().map(|job| job.message.clone()),
        received_bytes: number(staged.received),
        size_bytes: number(staged.length),
        revision,
        keys,
        start_time: start.or_else(|| Some(timestamp(s.o.now_ms))),
        expected_end_time: left_ms(staged).map(|left| timestamp(s.o.now_ms.saturating_add(left))),
        ..known
    }
}

/// Milliseconds until the rest has arrived, at the speed of this start of the server.
fn left_ms(staged: &Staged) -> Option<u64> {
    let came = staged.received.checked_sub(staged.resumed_at)?;
    let rest = staged.length.checked_sub(staged.received)?;
    if staged.complete || came == 0 || staged.elapsed_ms == 0 {
        return None;
    }
    let left = u128::from(staged.elapsed_ms) * u128::from(rest) / u128::from(came);
    u64::try_from(left).ok()
}
