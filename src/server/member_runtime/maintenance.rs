//! What a member does in the background: raises the alarm when its store is full, compacts by
//! itself, and compares the members' data. When and who is wrong is decided by `server::maintenance`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::join::ROUND;
use super::{MemberRuntime, alarmed, lock};
use crate::disk::{self, Class, Disk, Reserve};
use crate::node::Input;
use crate::server::core::handle::{QUOTA_IS_USED_UP, RequestError, Role};
use crate::server::core::state::VolumeSpace;
use crate::server::flags::config::AutoCompaction;
use crate::server::link::hello::{Answer, Ask, HashAt, HashOf};
use crate::server::maintenance::compactor::Compactor;
use crate::server::maintenance::verdict::{self, Hashed, Verdict};
use crate::server::process::exit::{self, Stop};
use crate::server::process::host_facts;
use crate::store::{Alarm, AlarmKind, Compact, Error as StoreError, Operation, SetAlarm, View};

/// How often the size of the store is looked at.
const SIZE: Duration = Duration::from_millis(500);
/// How often log is dropped, at most, where space is short.
const MAKE_SPACE: Duration = Duration::from_secs(2);
/// How long a reserve that was given up is left to what it was given up for.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Why NOSPACE is raised.
const VOLUME_IS_NEARLY_FULL: &str = "the data directory's volume is nearly full; delete what is \
                                     not needed and compact, or enlarge the volume";
/// How long a member that is asked for a hash waits for the revision.
const CATCH_UP: Duration = Duration::from_secs(3);
/// Comparisons in which a compaction may come in between.
const ATTEMPTS: usize = 3;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All that there is.
    Everything,
    /// What the last compaction left.
    Compaction,
}

/// Starts all of it. `returns`: this server was a member before it started.
pub(super) fn start(local: &Arc<MemberRuntime>, returns: bool) {
    let maintenance = local.config.maintenance;
    if maintenance.initial_check && returns {
        let local = Arc::clone(local);
        tokio::spawn(async move { check_first(&local).await });
    } else {
        local.shared.held.store(false, Ordering::Release);
    }
    let watched = Arc::clone(local);
    tokio::spawn(async move { watch_volume(&watched).await });
    let alarmed = Arc::clone(local);
    tokio::spawn(async move { alarmed::compare_again(&alarmed).await });
    if let Some(quota) = local.config.limits.quota_bytes {
        let local = Arc::clone(local);
        tokio::spawn(async move { watch_size(&local, quota).await });
    }
    if let Some(mode) = maintenance.auto_compaction {
        let local = Arc::clone(local);
        tokio::spawn(async move { compact(&local, mode).await });
    }
    for (what, every) in [
        (What::Everything, maintenance.check),
        (What::Compaction, maintenance.compact_check),
    ] {
        if let Some(every) = every {
            let local = Arc::clone(local);
            tokio::spawn(async move { check(&local, what, every).await });
        }
    }
}

/// Raises NOSPACE when what others wrote fills this member beyond its own quota. Only growth
/// raises it, so that it stays off for whoever has switched it off to make space.
async fn watch_size(local: &MemberRuntime, quota: u64) {
    let mut before = u64::MAX;
    loop {
        let size = local.handle.published().view.db_size();
        if size >= quota && size > before {
            local.handle.raise_no_space(QUOTA_IS_USED_UP).await;
        }
        before = size;
        sleep(SIZE).await;
    }
}

/// What one look at the volume asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// Writes are to be refused while there is still room for what makes space.
    alarm: bool,
    /// Log may have to go.
    checkpoint: bool,
    /// The reserve may be made again.
    reserve: bool,
}

/// Judges the free bytes of a volume, those at the look before, and the room that compacting needs:
/// the next segments of the log, and a checkpoint of what is stored (`log` and all of `needed`).
fn look(free: u64, before: Option<u64>, log: u64, needed: u64) -> Wanted {
    Wanted {
        // As with the quota, only less space than before raises it. A start is no loss of space:
        // whoever has switched the alarm off may restart his members, while there is room for the log.
        alarm: free < needed && free < before.unwrap_or(log),
        checkpoint: free < needed.saturating_mul(2),
        reserve: free >= needed,
    }
}

/// Raises NOSPACE before the volume of the data directory is full, has log dropped when space is
/// short, and keeps the reserve. The quota does not know what else lies on the volume, nor how much
/// log and how many checkpoints there are.
async fn watch_volume(local: &MemberRuntime) {
    let disk = Arc::clone(local.files().disk());
    let segment = local.log_options().segment_bytes;
    let reserve = Reserve::new(Arc::clone(&disk));
    let (mut before, mut asked) = (None, None::<Instant>);
    let mut gone = None::<Instant>;
    // Before the log was applied nothing is known of what is stored, and all of it seems droppable.
    while local.handle.linearizable().await.is_err() {
        sleep(SIZE).await;
    }
    loop {
        let stored = local.handle.published().view.db_size();
        let needed = stored.saturating_add(2 * segment);
        let free = on_disk(&disk, room);
        let Some(free) = free.await else {
            sleep(SIZE).await;
            continue;
        };
        let at = Instant::now();
        *lock(&local.shared.volume) = Some(VolumeSpace { free, needed, at });
        let wanted = look(free, before, 2 * segment, needed);
        let raised = !wanted.alarm || local.handle.raise_no_space(VOLUME_IS_NEARLY_FULL).await;
        if wanted.checkpoint && asked.is_none_or(|at| at.elapsed() > MAKE_SPACE) {
            asked = Some(Instant::now());
            let log = on_disk(&disk, disk::log_bytes).await;
            // Two checkpoints have to take less room than the log that goes for them.
            if log.is_some_and(|log| log > 2 * (stored + segment)) {
                local.shared.report(Input::WantCheckpoint);
            }
        }
        let (own, bytes) = (reserve.clone(), local.log_options().reserve_bytes());
        let kept = on_disk(&disk, move |_| own.is_kept()).await;
        if kept == Some(false) {
            gone.get_or_insert_with(Instant::now);
        } else {
            gone = None;
        }
        // Given up for a checkpoint, it is that one's for a while. Then it is made again of whatever
        // there is: the next start needs it more.
        let overdue = gone.is_some_and(|since| since.elapsed() > GIVEN_UP);
        if wanted.reserve || overdue {
            let (own, spare) = (reserve.clone(), if overdue { 0 } else { needed });
            on_disk(&disk, move |_| own.keep(bytes, spare)).await;
        }
        // What could not be raised, in an election perhaps, is raised at the next look.
        before = Some(if raised { free } else { u64::MAX });
        sleep(SIZE).await;
    }
}

/// The bytes that are free, and those that will be without anybody's doing: `needed` holds the room
/// for a checkpoint, so the one that is being written must not count as lost.
fn room(disk: &dyn Disk) -> disk::Result<u64> {
    let passing = disk::passing_checkpoint_bytes(disk)?;
    let free = disk.free_bytes();
    let free = free.map_err(|e| disk::Error::io("measure", disk.describe(""), e))?;
    Ok(free.saturating_add(passing))
}

/// Asks the disk aside: one that does not answer must not hold up the runtime.
async fn on_disk<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
    disk: &Arc<dyn Disk>,
    act: impl FnOnce(&dyn Disk) -> Result<T, E> + Send + 'static,
) -> Option<T> {
    let disk = Arc::clone(disk);
    match tokio::task::spawn_blocking(move || act(&*disk)).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            tracing::warn!("the data directory's volume: {error}");
            None
        }
        // The server ends.
        Err(_) => None,
    }
}

/// Compacts as leader, when it is time.
async fn compact(local: &MemberRuntime, mode: AutoCompaction) {
    let began = Instant::now();
    let mut compactor = Compactor::new(mode, Duration::ZERO);
    let revision = || local.handle.published().view.revision();
    loop {
        compactor.look(revision());
        sleep(compactor.interval()).await;
        let leads = local.shared.status().role == Role::Leader;
        let Some(at) = compactor.due(began.elapsed(), revision(), leads) else {
            continue;
        };
        let command = Operation::Compact(Compact { revision: at });
        match local.handle.propose(command.into()).await {
            Ok(_) | Err(RequestError::Store(StoreError::Compacted { .. })) => {
                tracing::info!(revision = at, ?mode, "completed auto compaction");
                compactor.done(began.elapsed(), at);
            }
            Err(error) => tracing::warn!(revision = at, "cannot compact yet: {error}"),
        }
    }
}

/// Compares the members' data as leader, again and again.
async fn check(local: &MemberRuntime, what: What, every: Duration) {
    let mut checked = 0;
    loop {
        sleep(every).await;
        if local.shared.status().role != Role::Leader {
            continue;
        }
        // Under CORRUPT all is compared in any case, and two at a time would hold each other up.
        if what == What::Everything && alarmed::is_corrupt(local) {
            continue;
        }
        let compacted = local.handle.published().view.compacted();
        // What a compaction left never changes.
        if what == What::Compaction && compacted <= checked {
            continue;
        }
        match compare(local, what).await {
            Ok(Verdict::Equal {
                compared,
                passed_over,
            }) => {
                tracing::info!(?what, compared, "the members' data is equal");
                if passed_over.is_empty() {
                    checked = compacted;
                }
            }
            Ok(Verdict::Wrong(members)) => {
                checked = compacted;
                for member in members {
                    alarm(local, member).await;
                }
            }
            Ok(Verdict::Unclear) => {
                checked = compacted;
                alarm(local, 0).await;
            }
            Err(error) => tracing::warn!(?what, "cannot compare the members' data: {error}"),
        }
    }
}

/// Raises CORRUPT for a member; 0: nobody knows for which.
async fn alarm(local: &MemberRuntime, member: u64) {
    let name = name_of(local, member);
    let id = format!("{member:x}");
    match member {
        0 => tracing::error!(
            "the members' data differs, and no majority agrees: it is not known whose is wrong"
        ),
        _ => tracing::error!(
            member = id,
            name,
            "this member's data differs from the majority's: remove it and add it again with an \
             empty data directory, then switch the alarm off"
        ),
    }
    let kind = AlarmKind::Corrupt;
    let raised = Alarm { kind, member };
    if local.handle.published().view.alarms().contains(&raised) {
        return;
    }
    let (kind, on) = (kind.into(), true);
    if let Err(error) = local.handle.set_alarm(SetAlarm { kind, member, on }).await {
        tracing::warn!(member = id, "cannot raise the alarm CORRUPT yet: {error}");
    }
}

fn name_of(local: &MemberRuntime, member: u64) -> String {
    let published = local.handle.published();
    let known = published.membership.member(member);
    known.map(|known| known.name.clone()).unwrap_or_default()
}

/// Compares this member's data with the others' before clients are served, as far as the others
/// answer. Without a quorum there is nothing to compare with.
async fn check_first(local: &MemberRuntime) {
    let patience = 2 * local.config.request_timeout();
    let result = timeout(patience, async {
        loop {
            match compare(local, What::Everything).await {
                Ok(verdict) => return verdict,
                Err(error) => tracing::info!("cannot compare the members' data yet: {error}"),
            }
            sleep(local.config.heartbeat).await;
        }
    });
    let own = local.who().member_id;
    match result.await {
        Ok(Verdict::Equal {
            compared,
            passed_over,
        }) => tracing::info!(
            compared,
            passed_over = passed_over.len(),
            "this member's data is equal to the others'"
        ),
        Ok(Verdict::Wrong(members)) if members.contains(&own) => {
            return local
                .shared
                .stop(inconsistent(own, Class::Corrupt.exit_code()));
        }
        Ok(Verdict::Unclear) => return local.shared.stop(inconsistent(own, exit::OTHER)),
        Ok(Verdict::Wrong(members)) => {
            for member in members {
                let (id, name) = (format!("{member:x}"), name_of(local, member));
                tracing::error!(member = id, name, "this member's data differs");
            }
        }
        Err(_) => tracing::warn!(
            "this member's data was not compared with the others': there was no quorum in time"
        ),
    }
    local.shared.held.store(false, Ordering::Release);
}

/// The end of a member that must not serve what it has. Only where a majority says so is its
/// disk known to be bad.
fn inconsistent(own: u64, code: u8) -> Stop {
    let (class, rest) = match code == exit::OTHER {
        true => (
            "inconsistent",
            "no majority agrees, so it is not known whose is wrong: start the other members first",
        ),
        false => (
            Class::Corrupt.name(),
            "the others agree: remove this member and add it again with an empty data directory",
        ),
    };
    Stop {
        code,
        class,
        message: format!("member {own:x} found data inconsistency with peers; {rest}"),
    }
}

/// Hashes at one revision everywhere and compares.
async fn compare(local: &MemberRuntime, what: What) -> Result<Verdict, RequestError> {
    let Some((own, answers)) = gather(local, what, ROUND).await? else {
        return Ok(Verdict::Unclear);
    };
    let published = local.handle.published();
    let voters = published.membership.voters().map(|voter| voter.id);
    let me = local.who().member_id;
    Ok(verdict::judge(me, own, &answers, &voters.collect()))
}

/// This member's hash and the others' at one revision; `None`: compactions came in between again and
/// again. Where one came in between at another member, it is passed over at the last attempt. Who gives
/// no hash for as long as `patience` is passed over as well.
pub(super) async fn gather(
    local: &MemberRuntime,
    what: What,
    patience: Duration,
) -> Result<Option<(Hashed, Vec<verdict::Answer>)>, RequestError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let state = local.handle.linearizable().await?;
        let revision = match what {
            What::Everything => state.view.revision(),
            What::Compaction => state.view.compacted(),
        };
        let Some(own) = hash(&state.view, revision).await else {
            // Compacted since: the view is old.
            continue;
        };
        let me = local.who().member_id;
        let others = state.membership.members.keys().filter(|id| **id != me);
        let asked = others.map(|id| async move {
            let hash = ask(local, *id, own, patience).await;
            (*id, hash)
        });
        let answers: Vec<verdict::Answer> = futures::future::join_all(asked)
            .await
            .into_iter()
            .map(|(member, hash)| verdict::Answer { member, hash })
            .collect();
        let between = answers.iter().any(|answer| {
            answer
                .hash
                .is_some_and(|hash| hash.compacted != own.compacted)
        });
        last = Some((own, answers));
        if !between {
            break;
        }
    }
    Ok(last)
}

/// Another member's hash.
async fn ask(local: &MemberRuntime, id: u64, own: Hashed, patience: Duration) -> Option<Hashed> {
    let at = HashAt {
        revision: own.revision,
        compacted: own.compacted,
    };
    for endpoint in local.endpoints(id) {
        match local
            .ask_member(id, &endpoint, Ask::Hash(at), patience)
            .await
        {
            Ok(Answer {
                hash: Some(hash), ..
            }) => {
                return Some(Hashed {
                    hash: hash.hash,
                    compacted: hash.compacted,
                    revision: hash.revision,
                });
            }
            Ok(refused) => {
                let id = format!("{id:x}");
                tracing::warn!(member = id, "gives no hash: {}", refused.error);
            }
            Err(error) => {
                let id = format!("{id:x}");
                tracing::warn!(member = id, "cannot be asked for a hash: {error}");
            }
        }
    }
    None
}

/// Hashes aside: it takes time in proportion to the number of keys.
async fn hash(view: &Arc<View>, revision: i64) -> Option<Hashed> {
    let view = Arc::clone(view);
    let hash = move || view.hash_kv_paced(revision, &host_facts::pace());
    let hashed = tokio::task::spawn_blocking(hash).await;
    hashed.ok()?.ok().map(Hashed::from)
}

impl MemberRuntime {
    /// Answers another member that compares data.
    pub(super) async fn hash(&self, at: HashAt) -> Answer {
        let mut published = self.shared.published.subscribe();
        let reached = |state: &Arc<crate::server::core::handle::Published>| {
            state.view.revision() >= at.revision && state.view.compacted() >= at.compacted
        };
        // Out of time, the answer says how far this member has come.
        let _ = timeout(CATCH_UP, published.wait_for(reached)).await;
        let view = Arc::clone(&self.handle.published().view);
        let cluster_id = self.who().cluster_id;
        match hash(&view, at.revision).await {
            Some(hash) => Answer {
                cluster_id,
                hash: Some(HashOf {
                    hash: hash.hash,
                    compacted: hash.compacted,
                    revision: hash.revision,
                }),
                ..Answer::default()
            },
            None => Answer {
                cluster_id,
                error: format!(
                    "revision {} is not among {} to {}",
                    at.revision,
                    view.compacted(),
                    view.revision()
                ),
                ..Answer::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    /// The alarm came from the quota alone: a volume that filled up with anything else ended the
    /// server at its last byte.
    #[test]
    fn nospace_leaves_room_to_compact() {
        let look = |free, before| super::look(free, before, 20, 100);
        let (roomy, tight) = (look(400, Some(500)), look(150, Some(400)));
        let low = look(90, Some(150));
        assert!(!roomy.alarm && !roomy.checkpoint && roomy.reserve);
        assert!(!tight.alarm && tight.checkpoint && tight.reserve);
        assert!(low.alarm && low.checkpoint && !low.reserve);
        // Whoever has switched it off to make space is left to it, until there is less again.
        assert!(!look(90, Some(90)).alarm && !look(95, Some(90)).alarm);
        assert!(look(89, Some(90)).alarm);
        // A start after that is no reason, unless not even the log has room.
        assert!(!look(90, None).alarm && look(19, None).alarm);
        assert!(
            look(90, Some(u64::MAX)).alarm,
            "it could not be raised before"
        );
    }
}
