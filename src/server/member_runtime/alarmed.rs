//! What a member does and tells while an alarm is on, so that an operator can act on it: the leader
//! compares the members' data again and again under CORRUPT, each member says how full it is, and
//! the leader switches an alarm off where it is asked to. By itself no server ever does that.

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

/// Between two comparisons.
const AGAIN: Duration = Duration::from_secs(5);
/// Of the time of a comparison this often is waited before the next one: it hashes every key on every
/// member.
const REST: u32 = 9;
/// But no longer: two of them have to be young enough to say something of now.
const LONGEST_REST: Duration = Duration::from_secs(120);
/// So long a member may take to hash everything. With GiB of keys it takes longer than any other answer, and
/// without it nobody would ever learn whose data is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
/// What was seen of a volume longer ago is not told of: a disk that does not answer may be full by now.
const STALE: Duration = Duration::from_secs(15);

/// Compares as leader while the alarm CORRUPT is on. The checks that raise it stop there: writes are
/// refused under it, compactions too, so that nobody would learn whether the data still differs.
pub(super) async fn compare_again(local: &MemberRuntime) {
    loop {
        sleep(AGAIN).await;
        let said = local.shared.status();
        if !is_corrupt(local) || said.role != Role::Leader {
            lock(&local.shared.comparisons).forget();
            continue;
        }
        let began = Instant::now();
        match gather(local, What::Everything, PATIENCE).await {
            Ok(Some((own, answers))) => {
                let published = local.handle.published();
                let voters = published.membership.voters().map(|voter| voter.id);
                let me = local.who().member_id;
                let sides = verdict::sides(me, own, &answers, &voters.collect());
                let compared = Compared::new(Instant::now(), said.term, own, sides);
                lock(&local.shared.comparisons).add(compared);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("cannot compare the members' data again: {error}"),
        }
        sleep(rest(began.elapsed())).await;
    }
}

/// How long the next comparison waits after one that took so long.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).min(LONGEST_REST)
}

/// Whether the alarm CORRUPT is on.
pub(super) fn is_corrupt(local: &MemberRuntime) -> bool {
    let alarms = local.handle.published().view.alarms();
    alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt)
}

/// How full this server is, as far as it has looked lately.
pub(super) fn space(local: &MemberRuntime) -> Option<proto::Space> {
    let volume = (*lock(&local.shared.volume)).filter(|seen| seen.at.elapsed() <= STALE)?;
    Some(proto::Space {
        quota_bytes: local.config.limits.quota_bytes.unwrap_or(0),
        volume_free_bytes: volume.free,
        volume_needed_bytes: volume.needed,
    })
}

/// The comparisons of this term, the newest first.
pub(super) fn comparisons(local: &MemberRuntime, term: u64) -> Vec<proto::Comparison> {
    let kept = lock(&local.shared.comparisons);
    let told = |compared: &Compared| proto::Comparison {
        revision: compared.revision,
        compact_revision: compared.compacted,
        agree: compared.sides.agree.clone(),
        differ: compared.sides.differ.clone(),
        silent: compared.sides.silent.clone(),
        age_ms: u64::try_from(compared.at.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    kept.of_term(term).map(told).collect()
}

/// Switches one alarm off; tells whether it was on. The caller was admitted.
pub(super) async fn disarm(local: &MemberRuntime, kind: i32, member: u64) -> Result<bool, Disarm> {
    let kind = match proto::AlarmKind::try_from(kind) {
        Ok(proto::AlarmKind::NoSpace) => AlarmKind::NoSpace,
        Ok(proto::AlarmKind::Corrupt) => AlarmKind::Corrupt,
        Ok(proto::AlarmKind::Unspecified) | Err(_) => {
            let text = "which alarm is to be switched off: NO_SPACE or CORRUPT";
            return Err(Disarm::Refused(Status::invalid_argument(text)));
        }
    };
    // What it is decided on is the leader's word: whoever does not lead any more knows less.
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

/// Why an alarm is as it was.
pub(super) enum Disarm {
    /// Such a call is answered by nobody.
    Refused(Status),
    /// It could not be carried out.
    Failed(RequestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two comparisons of a term have to be there at once, the older one no more than ten minutes old, or
    /// what takes long to hash is never judged.
    #[test]
    fn two_comparisons_fit_into_their_window() {
        let longest = PATIENCE + CATCHING_UP;
        let older = rest(longest) + AGAIN + 2 * longest;
        assert!(older < Duration::from_secs(600), "{older:?}");
        assert_eq!(rest(Duration::from_secs(1)), Duration::from_secs(9));
    }

    /// What the other side may wait before it hashes.
    const CATCHING_UP: Duration = Duration::from_secs(3);
}
