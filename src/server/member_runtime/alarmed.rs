//! The actions of a member while an alarm is on, so that an operator can resolve it: under CORRUPT
//! the leader compares the members' data repeatedly, each member reports how full it is, and the
//! leader disarms an alarm on request. No server disarms one by itself.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tonic::Status;

use super::maintenance::{What, gather};
use super::{MemberRuntime, lock};
use crate::server::core::handle::{RequestError, Role};
use crate::server::maintenance::compared::Compared;
use crate::server::maintenance::verdict;
use crate::store::{AlarmKind, SetAlarm};
use crate::wire::member as proto;

/// Interval between two comparisons.
const AGAIN: Duration = Duration::from_secs(5);
/// The pause before the next comparison, as a multiple of the time that the last one took: it
/// hashes every key on every member.
const REST: u32 = 9;
/// The longest pause: two comparisons have to be recent enough to describe the present state.
const LONGEST_REST: Duration = Duration::from_secs(120);
/// Time for a member to hash everything. With GiB of keys that takes longer than any other answer,
/// and without it there would be no verdict on whose data is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

/// As leader, compares while the alarm CORRUPT is on. The checks that raise the alarm stop under
/// it, since it refuses writes and compactions, so that only this comparison shows whether the data
/// still differs.
pub(super) async fn compare_again(local: &MemberRuntime) {
    loop {
        sleep(AGAIN).await;
        let status = local.shared.status();
        if !is_corrupt(local) || status.role != Role::Leader {
            lock(&local.shared.comparisons).forget();
            continue;
        }
        let began = Instant::now();
        match gather(local, What::Everything, PATIENCE).await {
            Ok(Some((own, answers))) => {
                let latest = local.handle.latest();
                let voters = latest.membership.voters().map(|voter| voter.id);
                let me = local.who().member_id;
                let sides = verdict::sides(me, own, &answers, &voters.collect());
                let compared = Compared::new(Instant::now(), status.term, own, sides);
                lock(&local.shared.comparisons).add(compared);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("cannot compare the members' data again: {error}"),
        }
        sleep(rest(began.elapsed())).await;
    }
}

/// The pause after a comparison that took so long.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).min(LONGEST_REST)
}

/// Whether the alarm CORRUPT is on.
pub(super) fn is_corrupt(local: &MemberRuntime) -> bool {
    let alarms = local.handle.latest().overview.alarms();
    alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt)
}

/// How full this server is, if that was measured recently.
pub(super) fn space(local: &MemberRuntime) -> Option<proto::Space> {
    let volume = local.shared.space()?;
    let limits = &local.config.limits;
    let in_memory = local.shared.in_memory.load(Ordering::Relaxed);
    if limits.in_memory_bytes.is_some() && in_memory == u64::MAX {
        return None;
    }
    Some(proto::Space {
        quota_bytes: limits.quota_bytes.unwrap_or(0),
        in_memory_bytes: limits.in_memory_bytes.map_or(0, |_| in_memory),
        in_memory_most_bytes: limits.in_memory_bytes.unwrap_or(0),
        volume_free_bytes: volume.free,
        volume_needed_bytes: volume.needed,
    })
}

/// The comparisons of this term, the newest first.
pub(super) fn comparisons(local: &MemberRuntime, term: u64) -> Vec<proto::Comparison> {
    let kept = lock(&local.shared.comparisons);
    let record = |compared: &Compared| proto::Comparison {
        revision: compared.revision,
        compact_revision: compared.compacted,
        agree: compared.sides.agree.clone(),
        differ: compared.sides.differ.clone(),
        silent: compared.sides.silent.clone(),
        age_ms: u64::try_from(compared.at.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    kept.of_term(term).map(record).collect()
}

/// Disarms one alarm; returns whether it was on. The caller was admitted.
pub(super) async fn disarm(local: &MemberRuntime, kind: i32, member: u64) -> Result<bool, Disarm> {
    let kind = match proto::AlarmKind::try_from(kind) {
        Ok(proto::AlarmKind::NoSpace) => AlarmKind::NoSpace,
        Ok(proto::AlarmKind::Corrupt) => AlarmKind::Corrupt,
        Ok(proto::AlarmKind::Unspecified) | Err(_) => {
            let text = "which alarm is to be switched off: NO_SPACE or CORRUPT";
            return Err(Disarm::Refused(Status::invalid_argument(text)));
        }
    };
    // The operator decides by the leader's comparisons: a former leader may not have the latest.
    if local.shared.status().role != Role::Leader {
        return Err(Disarm::Failed(RequestError::NotLeader));
    }
    let on = false;
    let change = SetAlarm {
        kind: kind.into(),
        member,
        on,
    };
    let was = local.handle.set_alarm(change).await;
    let was = was.map_err(Disarm::Failed)?;
    if was.is_some() {
        let member = format!("{member:x}");
        tracing::info!(member, ?kind, "the operator has switched this alarm off");
    }
    Ok(was.is_some())
}

/// Why an alarm was not disarmed.
pub(super) enum Disarm {
    /// The request is invalid.
    Refused(Status),
    /// The request failed.
    Failed(RequestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two comparisons of a term have to be kept at the same time, the older one at most ten
    /// minutes old, or data that takes long to hash is never judged.
    #[test]
    fn two_comparisons_fit_into_their_window() {
        let longest = PATIENCE + CATCHING_UP;
        let older = rest(longest) + AGAIN + 2 * longest;
        assert!(older < Duration::from_secs(600), "{older:?}");
        assert_eq!(rest(Duration::from_secs(1)), Duration::from_secs(9));
    }

    /// How long the other side may wait before it hashes.
    const CATCHING_UP: Duration = Duration::from_secs(3);
}
