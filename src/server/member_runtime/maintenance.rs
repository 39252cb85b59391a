//! Background work of a member: raises NOSPACE when its store is full, compacts automatically, compares
//! the members' data, and heals damaged values. When to do so, and which member is wrong, is decided by
//! `server::maintenance`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::join::{ANSWER_LIMIT, ROUND};
use super::{MemberRuntime, alarmed, healing, key_memory, lock, values};
use crate::disk::{self, Class, Disk, Reserve};
use crate::node::Input;
use crate::persist::Saver;
use crate::server::core::handle::{Latest, QUOTA_IS_USED_UP, RequestError, Role};
use crate::server::core::state::VolumeSpace;
use crate::server::flags::config::{AutoCompaction, ValuesOnDisk};
use crate::server::link::hello::{HashAt, HashOf, PeerResponse, RequestKind};
use crate::server::maintenance::compactor::Compactor;
use crate::server::maintenance::verdict::{self, Hashed, Verdict};
use crate::server::process::exit::{self, Stop};
use crate::server::process::host_facts;
use crate::store::{Alarm, AlarmKind, Compact, Error as StoreError, Operation, SetAlarm, View};

/// How often the size of the store is checked.
const SIZE: Duration = Duration::from_millis(500);
/// The shortest interval between two requests for a checkpoint when space is short.
const MAKE_SPACE: Duration = Duration::from_secs(2);
/// How long a released reserve is left to the write that needed it.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Reason for NOSPACE, for the log.
const VOLUME_IS_NEARLY_FULL: &str = "the data directory's volume is nearly full; delete what is \
                                     not needed and compact, or enlarge the volume";
/// How long a member that is asked for a hash waits for the revision.
const CATCH_UP: Duration = Duration::from_secs(3);
/// Attempts at a comparison that a compaction may interrupt.
const ATTEMPTS: usize = 3;

/// The subject of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All keys.
    Everything,
    /// The keys that the last compaction left.
    Compaction,
}

/// Starts all of these tasks. `returns`: this server was a member before it started.
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
    let healed = Arc::clone(local);
    tokio::spawn(async move { healing::heal(&healed).await });
    let alarmed = Arc::clone(local);
    tokio::spawn(async move { alarmed::compare_again(&alarmed).await });
    if let Some(quota) = local.config.limits.quota_bytes {
        let local = Arc::clone(local);
        tokio::spawn(async move { watch_size(&local, quota).await });
    }
    if let Some(most) = local.config.limits.in_memory_bytes {
        let local = Arc::clone(local);
        tokio::spawn(async move { key_memory::watch(&local, most).await });
    }
    if maintenance.values_on_disk == ValuesOnDisk::OnceAllCan {
        let local = Arc::clone(local);
        tokio::spawn(async move { values::allow_files(&local).await });
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

/// Raises NOSPACE when writes through other members fill this one beyond its own quota. Only growth
/// raises it, so that it stays off while an administrator who disarmed it frees space.
async fn watch_size(local: &MemberRuntime, quota: u64) {
    let mut before = u64::MAX;
    loop {
        let size = local.handle.latest().overview.db_size();
        if size >= quota && size > before {
            local.handle.raise_no_space(QUOTA_IS_USED_UP).await;
        }
        before = size;
        sleep(SIZE).await;
    }
}

/// The result of one measurement of the volume.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// Writes are to be refused while there is still room for what frees space.
    alarm: bool,
    /// Log, checkpoints and values should be dropped, which takes a checkpoint.
    checkpoint: bool,
    /// The reserve may be created again.
    reserve: bool,
}

/// Judges the space of a volume, the free bytes of the previous measurement, and the room that
/// the next segments of the log need, which is a part of what compacting needs.
fn judge_space(space: VolumeSpace, before: Option<u64>, log: u64) -> Wanted {
    let VolumeSpace { free, needed, .. } = space;
    Wanted {
        // As with the quota, only a decrease raises it. A start is no decrease: an administrator
        // who disarmed the alarm may restart members while there is room for the log.
        alarm: free < needed && free < before.unwrap_or(log),
        checkpoint: space.is_short(),
        reserve: free >= needed,
    }
}

/// Raises NOSPACE before the volume of the data directory is full, has log dropped when space is
/// short, and keeps the reserve. The quota does not cover other files on the volume, the log and
/// the checkpoints.
async fn watch_volume(local: &MemberRuntime) {
    let disk = Arc::clone(local.files().disk());
    let segment = local.log_options().segment_bytes;
    let reserve = Reserve::new(Arc::clone(&disk));
    let (mut before, mut asked) = (None, None::<Instant>);
    let mut gone = None::<Instant>;
    // Before the log is applied the size of the store is unknown, and all log seems droppable.
    while local.handle.linearizable().await.is_err() {
        sleep(SIZE).await;
    }
    loop {
        let saver = local.saver.get().cloned();
        let room = on_disk(&disk, move |disk| room(disk, saver.as_deref()));
        let Some((free, passing)) = room.await else {
            sleep(SIZE).await;
            continue;
        };
        let needed = stored(local).saturating_add(2 * segment);
        let at = Instant::now();
        let space = VolumeSpace {
            free,
            passing,
            needed,
            at,
        };
        *lock(&local.shared.volume) = Some(space);
        let wanted = judge_space(space, before, 2 * segment);
        let raised = !wanted.alarm || local.handle.raise_no_space(VOLUME_IS_NEARLY_FULL).await;
        if wanted.checkpoint && asked.is_none_or(|at| at.elapsed() > MAKE_SPACE) {
            asked = Some(Instant::now());
            let saver = local.saver.get().cloned();
            if let Some(saver) = saver.clone() {
                on_disk(&disk, move |_| saver.checkpoints().drop_unused_values()).await;
            }
            let held = on_disk(&disk, move |disk| Held::of(disk, saver.as_deref())).await;
            if held.is_some_and(|held| held.is_worth_two_checkpoints(stored(local), segment)) {
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
        // A reserve released for a checkpoint is left to it for a while. Then it is created again
        // from whatever is free: the next start needs it more.
        let overdue = gone.is_some_and(|since| since.elapsed() > GIVEN_UP);
        if wanted.reserve || overdue {
            let (own, spare) = (reserve.clone(), if overdue { 0 } else { needed });
            on_disk(&disk, move |_| own.keep(bytes, spare)).await;
        }
        // If the alarm could not be raised, as during an election, the next measurement raises it.
        before = Some(if raised { free } else { u64::MAX });
        sleep(SIZE).await;
    }
}

/// What is on the disk that two checkpoints take the place of, in bytes.
#[derive(Clone, Copy, Debug)]
struct Held {
    log: u64,
    /// Of the checkpoints that are kept, with their files of values.
    checkpoints: u64,
}

impl Held {
    fn of(disk: &dyn Disk, saver: Option<&Saver>) -> disk::Result<Held> {
        let checkpoints = saver.map_or(Ok(0), |saver| saver.checkpoints().kept_bytes());
        Ok(Held {
            log: disk::log_bytes(disk)?,
            checkpoints: checkpoints?,
        })
    }

    /// Whether two checkpoints of what is stored by now free more than they take. What was compacted is in the log, and
    /// in the checkpoints from before: one that was taken right before a compaction would keep all of it there until so much
    /// was written that another is due. Where nothing was compacted the checkpoints are as large as the next ones, and only log is
    /// dropped. `stored` is counted when it has been measured what is there, since a disk that is slow to answer is one that
    /// is being written to.
    fn is_worth_two_checkpoints(self, stored: u64, segment: u64) -> bool {
        let compacted = self.checkpoints.saturating_sub(2 * stored);
        self.log.saturating_add(compacted) > 2 * (stored + segment)
    }
}

/// The size of the store.
fn stored(local: &MemberRuntime) -> u64 {
    local.handle.latest().overview.db_size()
}

/// The bytes that are free or will become free without any action, and those of the latter alone: `needed` includes the room for a
/// checkpoint, so the one that is being written must not count as used.
fn room(disk: &dyn Disk, saver: Option<&Saver>) -> disk::Result<(u64, u64)> {
    // What cannot be measured does not come back: the volume is watched all the same.
    let passing = match saver.map_or(Ok(0), |saver| saver.checkpoints().passing_bytes()) {
        Ok(passing) => passing,
        Err(error) => {
            tracing::warn!("what is being written to the data directory: {error}");
            0
        }
    };
    let free = disk.free_bytes();
    let free = free.map_err(|e| disk::Error::io("measure", disk.describe(""), e))?;
    Ok((free.saturating_add(passing), passing))
}

/// Accesses the disk on another thread: one that does not answer must not block the runtime.
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
        // The server is ending.
        Err(_) => None,
    }
}

/// As leader, compacts when it is due.
async fn compact(local: &MemberRuntime, mode: AutoCompaction) {
    let began = Instant::now();
    let mut compactor = Compactor::new(mode, Duration::ZERO);
    let revision = || local.handle.latest().overview.revision();
    loop {
        compactor.record(revision());
        sleep(compactor.interval()).await;
        // A cluster that follows another one is compacted where that one is.
        let follows = local.handle.latest().overview.following().is_some();
        let leads = local.shared.status().role == Role::Leader && !follows;
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

/// As leader, compares the members' data periodically.
async fn check(local: &MemberRuntime, what: What, every: Duration) {
    let mut checked = 0;
    loop {
        sleep(every).await;
        if local.shared.status().role != Role::Leader {
            continue;
        }
        // Under CORRUPT everything is compared anyway, and two comparisons at a time would delay
        // each other.
        if what == What::Everything && alarmed::is_corrupt(local) {
            continue;
        }
        let compacted = local.handle.latest().overview.compacted();
        // The result of one compaction never changes.
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

/// Raises CORRUPT for a member; 0: for which one is not known.
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
    if local.handle.latest().overview.alarms().contains(&raised) {
        return;
    }
    let (kind, on) = (kind.into(), true);
    if let Err(error) = local.handle.set_alarm(SetAlarm { kind, member, on }).await {
        tracing::warn!(member = id, "cannot raise the alarm CORRUPT yet: {error}");
    }
}

fn name_of(local: &MemberRuntime, member: u64) -> String {
    let latest = local.handle.latest();
    let known = latest.membership.member(member);
    known.map(|known| known.name.clone()).unwrap_or_default()
}

/// Compares this member's data with the others' before clients are served, if the others answer.
/// Without a quorum there is nothing to compare with.
async fn check_first(local: &MemberRuntime) {
    let patience = 2 * local.config.request_timeout();
    let result = timeout(patience, async {
        loop {
            match compare(local, What::Everything).await {
                Ok(verdict) => return verdict,
                Err(error @ RequestError::Store(StoreError::Value(_))) => {
                    tracing::error!("cannot compare the members' data: {error}");
                    return Verdict::Unclear;
                }
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

/// The stop of a member that must not serve its data. Only if a majority disagrees is its disk
/// known to be bad.
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
    let latest = local.handle.latest();
    let voters = latest.membership.voters().map(|voter| voter.id);
    let me = local.who().member_id;
    Ok(verdict::judge(me, own, &answers, &voters.collect()))
}

/// This member's hash and the others' at one revision; `None`: compactions interrupted every
/// attempt. A member that has compacted meanwhile is left out of the last attempt, and so is one
/// that returns no hash within `patience`.
pub(super) async fn gather(
    local: &MemberRuntime,
    what: What,
    patience: Duration,
) -> Result<Option<(Hashed, Vec<verdict::HashResponse>)>, RequestError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let state = local.handle.linearizable().await?;
        let revision = match what {
            What::Everything => state.view.revision(),
            What::Compaction => state.view.compacted(),
        };
        let own = match hash(&state.view, revision).await {
            Ok(own) => own,
            // Compacted since: the view is outdated.
            Err(RequestError::Store(StoreError::Compacted { .. })) => continue,
            Err(error) => return Err(error),
        };
        let me = local.who().member_id;
        let others = state.membership.members.keys().filter(|id| **id != me);
        let asked = others.map(|id| async move {
            let hash = ask(local, *id, own, patience).await;
            (*id, hash)
        });
        let answers: Vec<verdict::HashResponse> = futures::future::join_all(asked)
            .await
            .into_iter()
            .map(|(member, hash)| verdict::HashResponse { member, hash })
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
            .ask_member(
                id,
                &endpoint,
                RequestKind::Hash(at),
                (patience, ANSWER_LIMIT),
            )
            .await
        {
            Ok(PeerResponse {
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

/// Hashes on another thread: it takes time in proportion to the number of keys.
async fn hash(view: &Arc<View>, revision: i64) -> Result<Hashed, RequestError> {
    let view = Arc::clone(view);
    let hash = move || view.hash_kv_paced(revision, &host_facts::pace());
    let hashed = tokio::task::spawn_blocking(hash).await;
    Ok(hashed.map_err(|_| RequestError::Stopped)??.into())
}

/// The hash at a revision, or why there is none.
async fn hash_response(cluster_id: u64, view: &Arc<View>, revision: i64) -> PeerResponse {
    use StoreError::{Compacted, FutureRevision};
    let (hash, error) = match hash(view, revision).await {
        Ok(hash) => {
            let hash = HashOf {
                hash: hash.hash,
                compacted: hash.compacted,
                revision: hash.revision,
            };
            (Some(hash), String::new())
        }
        Err(RequestError::Store(Compacted { .. } | FutureRevision { .. })) => {
            let (from, to) = (view.compacted(), view.revision());
            let error = format!("revision {revision} is not among {from} to {to}");
            (None, error)
        }
        Err(error) => (None, error.to_string()),
    };
    PeerResponse {
        cluster_id,
        hash,
        error,
        ..PeerResponse::default()
    }
}

impl MemberRuntime {
    /// Answers another member that compares data.
    pub(super) async fn hash(&self, at: HashAt) -> PeerResponse {
        let mut latest = self.shared.latest.subscribe();
        let reached = |latest: &Arc<Latest>| {
            let overview = &latest.overview;
            overview.revision() >= at.revision && overview.compacted() >= at.compacted
        };
        // On a timeout the answer contains how far this member has applied.
        let _ = timeout(CATCH_UP, latest.wait_for(reached)).await;
        let view = Arc::clone(&self.handle.published().view);
        hash_response(self.who().cluster_id, &view, at.revision).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;

    use crate::store::{
        DamagedValue, Operation, Position, Put, ReadFailure, Store, ValueBytes, ValueFile,
    };

    /// A file that gives no value.
    #[derive(Debug)]
    struct Unreadable;

    impl ValueBytes for Unreadable {
        fn read(&self, _: u64, _: u32) -> Result<Bytes, ReadFailure> {
            Err(ReadFailure::Damaged("the file is damaged".to_owned()))
        }

        fn read_many(
            &self,
            places: &[(u64, u32)],
            each: &mut dyn FnMut(usize, Bytes),
        ) -> Result<(), (u64, ReadFailure)> {
            for (number, (offset, length)) in places.iter().enumerate() {
                let value = self.read(*offset, *length);
                each(number, value.map_err(|failure| (*offset, failure))?);
            }
            Ok(())
        }

        fn read_ahead(&self, _: u64, _: u32) {}

        fn length(&self) -> u64 {
            0
        }
    }

    /// It was reported as a revision that this member does not have.
    #[tokio::test]
    async fn unreadable_value_is_named_in_a_comparison() {
        let mut store = Store::new();
        let put = Put {
            key: "key".into(),
            value: "value".into(),
            ..Put::default()
        };
        let position = Position { index: 2, term: 1 };
        let put = Operation::Put(put).into();
        store.apply(&put, position).expect("it is carried out");
        let view = store.publish();
        assert!(super::hash_response(1, &view, 0).await.hash.is_some());
        let absent = super::hash_response(1, &view, 9).await.error;
        assert!(absent.starts_with("revision 9 is not among "), "{absent}");
        let place = |_: &[u8]| Ok::<u64, DamagedValue>(0);
        let moved = view.move_values(0, (&BTreeSet::new(), 0), place);
        let moved = moved.expect("it is in memory");
        moved.settle(&ValueFile::new(1, Unreadable));
        let response = super::hash_response(1, &view, 0).await;
        assert_eq!(response.hash, None);
        let error = response.error;
        assert!(error.starts_with("a value cannot be read: "), "{error}");
    }

    /// Only the quota raised the alarm: when other files filled the volume, the server ended at its
    /// last byte.
    #[test]
    fn nospace_leaves_room_to_compact() {
        let judge_space = |free, before| {
            let space = super::VolumeSpace {
                free,
                passing: 0,
                needed: 100,
                at: std::time::Instant::now(),
            };
            super::judge_space(space, before, 20)
        };
        let (roomy, tight) = (judge_space(400, Some(500)), judge_space(150, Some(400)));
        let low = judge_space(90, Some(150));
        assert!(!roomy.alarm && !roomy.checkpoint && roomy.reserve);
        assert!(!tight.alarm && tight.checkpoint && tight.reserve);
        assert!(low.alarm && low.checkpoint && !low.reserve);
        // An administrator who disarmed it to free space may do so, until space decreases again.
        assert!(!judge_space(90, Some(90)).alarm && !judge_space(95, Some(90)).alarm);
        assert!(judge_space(89, Some(90)).alarm);
        // A start after that does not raise it, unless there is not even room for the log.
        assert!(!judge_space(90, None).alarm && judge_space(19, None).alarm);
        assert!(
            judge_space(90, Some(u64::MAX)).alarm,
            "it could not be raised before"
        );
    }

    /// A checkpoint that was taken right before everything was deleted and compacted kept a full volume full: little was in the log,
    /// and only that was looked at.
    #[test]
    fn checkpoints_are_wanted_for_what_they_free() {
        let worth = |log, checkpoints, stored| {
            super::Held { log, checkpoints }.is_worth_two_checkpoints(stored, 4)
        };
        assert!(worth(9, 0, 0) && !worth(8, 0, 0), "of log alone");
        assert!(worth(8, 16, 0), "the values are in the checkpoint before");
        assert!(worth(1, 16, 1) && !worth(1, 16, 4), "not for a little");
        // Nothing was compacted: the next ones are as large, however large that is.
        assert!(!worth(12, 200, 100) && !worth(208, 200, 100) && worth(209, 200, 100));
    }
}
