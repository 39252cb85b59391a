//! `status.restore`: how the cluster comes or came to its first data, from what its seed describes.

use super::timestamp;
use crate::crd::{RestorePhase, RestoreStatus};
use crate::plan::observed::Staged;
use crate::plan::situation::Situation;

/// The entry of a cluster that is restored or was.
pub(super) fn status(s: &Situation<'_>) -> Option<RestoreStatus> {
    let before = s.o.status_memory.restore.clone();
    let Some(source) = s.source() else {
        // The recovery was deleted since.
        return before.filter(|_| s.starts_with_data());
    };
    let known = RestoreStatus {
        source: source.in_words(),
        message: None,
        expected_end_time: None,
        ..before.clone().unwrap_or_default()
    };
    if s.bootstrapped() {
        // A status that was lost does not tell when that was.
        let saw_it = before.is_some_and(|before| before.phase != RestorePhase::Restored);
        return Some(RestoreStatus {
            phase: RestorePhase::Restored,
            completion_time: match saw_it {
                true => Some(timestamp(s.o.now_ms)),
                false => known.completion_time.clone(),
            },
            ..known
        });
    }
    let message = s.o.restore.as_ref().map(|job| job.message.clone());
    let seed = s.o.identity_secret.as_ref().map(|it| it.seed.as_str());
    let Some(description) = seed.and_then(|seed| s.description(seed)) else {
        // It starts again, or does not answer: it has what it had.
        return Some(RestoreStatus { message, ..known });
    };
    let staged = description.staged.as_ref();
    let message = staged.and_then(|staged| staged.problem.clone()).or(message);
    Some(match staged.filter(|staged| staged.received > 0) {
        Some(staged) => {
            let at_ms = s.o.now_ms.saturating_sub(description.age_ms);
            receiving(staged, at_ms, RestoreStatus { message, ..known })
        }
        None => RestoreStatus {
            source: known.source,
            message,
            ..RestoreStatus::default()
        },
    })
}

/// What the seed described at this time.
fn receiving(staged: &Staged, at_ms: u64, known: RestoreStatus) -> RestoreStatus {
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
        received_bytes: number(staged.received),
        size_bytes: number(staged.length),
        revision,
        keys,
        start_time: start.or_else(|| Some(timestamp(at_ms))),
        expected_end_time: left_ms(staged).map(|left| timestamp(at_ms.saturating_add(left))),
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
