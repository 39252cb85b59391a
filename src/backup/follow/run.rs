//! The following itself: the watch of one cluster as steps of another one, with its leases, its users and its
//! compactions. What fails in passing is repeated from what the following cluster says it has.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::open::{Opened, open_again};
use super::origin::Origin;
use super::target::Target;
use super::watch::{Arrived, Watch, pieces};
use super::{CutOver, Failed, now_ms};
use crate::backup::Error;
use crate::backup::restore::nameless;
use crate::backup::source::{Access, Clients, Members, Source};
use crate::server::snapshot_file::SnapshotFile;
use crate::snapshot;
use crate::store::{Auth, Follow as Step, FollowedLease, FollowedRevision, Revision};
use crate::wire::member::{Following, PositionResponse};

/// It ends after this, so that whoever runs it gives it new credentials and a new version.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// For so long neither cluster needs to be reached.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the followed cluster is asked how far it is.
const TICK: Duration = Duration::from_secs(1);
/// How often its leases and users are compared, in ticks, and its compactions.
const LEASES: u64 = 5;
const REST: u64 = 30;
/// Between two snapshots that users are read from: each is all its data.
const USERS: Duration = Duration::from_secs(30);
/// Leases in one step, and how many are asked for their time at once.
const LEASES_AT_ONCE: usize = 5_000;
const ASKED_AT_ONCE: usize = 16;
/// How often the followed cluster may be closed in vain before a person has to look.
const IN_VAIN: u32 = 3;
/// Characters of a problem that members are told: they take 1024 bytes.
const MOST_PROBLEM: usize = 250;

/// When the followed cluster is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cutover {
    /// Not by this process.
    Manual,
    /// As soon as everything that it wrote is here.
    WhenCaughtUp,
    /// Now, because it is lost: with what is here, and at least this revision.
    SourceLost {
        /// The revision.
        least: Revision,
    },
}

/// What is followed, and by whom.
#[derive(Debug)]
pub struct Follow {
    /// The followed cluster: its user has the role root, where it has users.
    pub from: Clients,
    /// The cluster that follows, with the key of followings.
    pub members: Members,
    /// When the followed one is left.
    pub cutover: Cutover,
    /// A directory for a snapshot of the followed cluster, which is taken for its users.
    pub scratch: PathBuf,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It may be started again, and why it ended.
    Stopped(String),
    /// Clients write here now. Without numbers if an earlier process has done that.
    CutOver(Option<CutOver>),
}

/// What an earlier connection leaves to the next one.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The attempt that has closed the followed cluster and may open it again: not one that may have succeeded.
    pub(super) closed: Cell<Option<u64>>,
    /// How often it was closed in vain.
    pub(super) vain: Cell<u32>,
    /// The cluster that follows.
    cluster: Cell<Option<u64>>,
    /// Which endpoint is tried first.
    endpoint: Cell<usize>,
    /// When a snapshot was last asked for its users.
    users_read: Cell<Option<Instant>>,
}

impl Follow {
    /// Follows until `stop`, the cutover, or for twelve hours.
    ///
    /// # Errors
    /// One of the clusters was not reached for five minutes; the followed one has lost what comes next, has another past,
    /// is not the one that was followed before, was closed in vain several times, or is said to be lost and answers.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Ended, Error> {
        let mut stop = pin!(stop);
        let memory = Memory::default();
        let ended = tokio::select! {
            ended = self.repeat(&memory) => ended,
            () = &mut stop => Ok(Ended::Stopped("it was asked to end".to_owned())),
            () = sleep(LIFE) => Ok(Ended::Stopped("it has run for twelve hours".to_owned())),
        };
        match memory.closed.get() {
            Some(attempt) => with(ended, self.open_at_last(attempt).await),
            None => ended,
        }
    }

    async fn repeat(&self, memory: &Memory) -> Result<Ended, Error> {
        let mut failing: Option<Instant> = None;
        loop {
            let mut target = Target::new(&self.members);
            let mut well = false;
            let failed = match self.attempt(&mut target, memory, &mut well).await {
                Ok(ended) => return Ok(ended),
                Err(failed) => failed,
            };
            let why = match bear(failed, memory) {
                Ok(why) => why,
                Err(error) => {
                    self.tell(&mut target, &error.to_string()).await;
                    return Err(error);
                }
            };
            eprintln!("quorate follow: {why}");
            self.tell(&mut target, &why).await;
            memory.endpoint.set(memory.endpoint.get().wrapping_add(1));
            let since = match well {
                true => *failing.insert(Instant::now()),
                false => *failing.get_or_insert_with(Instant::now),
            };
            if since.elapsed() > PATIENCE {
                return Err(Error::Source(why));
            }
            sleep(PAUSE).await;
        }
    }

    /// `well` is set once something was brought over.
    async fn attempt(
        &self,
        target: &mut Target<'_>,
        memory: &Memory,
        well: &mut bool,
    ) -> Result<Ended, Failed> {
        let position = target.connect().await?;
        let first = memory.cluster.get().unwrap_or(position.cluster_id);
        memory.cluster.set(Some(first));
        if position.cluster_id != first {
            return Err(Failed::Final(Error::Follow(format!(
                "cluster {first:x} has become cluster {:x}: it was recovered, and follows none. The followed cluster may still take writes, or be closed by its alarms",
                position.cluster_id
            ))));
        }
        let Some(following) = position.following.clone() else {
            memory.closed.set(None);
            return Ok(Ended::CutOver(None));
        };
        if let Cutover::SourceLost { least } = self.cutover {
            let promoted = self.promote(target, &position, least).await;
            if matches!(promoted, Err(Failed::Final(_))) && following.attempt != 0 {
                // It lives, and an earlier attempt may have closed it: nobody else opens it while this is asked for.
                if let Ok(origin) = Origin::connect(&self.from, memory.endpoint.get()).await {
                    // Where that fails, the next one tries it again.
                    let _ = open_again(&origin, target, None).await;
                }
            }
            return promoted.map(|done| Ended::CutOver(Some(done)));
        }
        let origin = Origin::connect(&self.from, memory.endpoint.get()).await?;
        origin.expect(following.source_cluster)?;
        // From the revision that is here, which is passed over: etcd says how far a watch is only once there is something
        // that it begins with.
        let watch = origin.watch(position.revision).await?;
        let mut follower = Follower::new(self, origin, target, watch, &position, memory);
        // An earlier process may have been ended in the middle of a cutover.
        if follower.open_again(None).await? == Opened::Left {
            return Ok(Ended::CutOver(None));
        }
        let ended = follower.work().await;
        *well = follower.advanced;
        ended
    }

    /// Tells the cluster that follows why this does not go on; if it cannot be told, it is not.
    async fn tell(&self, target: &mut Target<'_>, problem: &str) {
        let problem = problem.chars().take(MOST_PROBLEM).collect();
        let told = Following {
            problem,
            ..Following::default()
        };
        let _ = target.advance(None, told).await;
    }
}

/// The end, with what is left behind.
fn with(ended: Result<Ended, Error>, left: Option<String>) -> Result<Ended, Error> {
    let Some(left) = left else {
        return ended;
    };
    match ended {
        Ok(Ended::Stopped(why)) => Ok(Ended::Stopped(format!("{why}; {left}"))),
        Ok(done @ Ended::CutOver(_)) => Ok(done),
        Err(Error::Source(why)) => Err(Error::Source(format!("{why}; {left}"))),
        Err(error) => Err(Error::Follow(format!("{error}; {left}"))),
    }
}

/// Why another attempt is made, if one is.
fn bear(failed: Failed, memory: &Memory) -> Result<String, Error> {
    match failed {
        Failed::Passing(why) if memory.vain.get() >= IN_VAIN => Err(Error::Follow(format!(
            "the followed cluster was closed to writes {IN_VAIN} times in vain: {why}"
        ))),
        Failed::Passing(why) => Ok(why),
        Failed::Compacted(revision) => Err(Error::Follow(format!(
            "the followed cluster was compacted at revision {revision}, and what it wrote before that is not here: delete this EtcdCluster with its volumes and create it again, or let the followed one keep its history for longer"
        ))),
        Failed::Final(error) => Err(error),
    }
}

/// One attempt, while both clusters answer.
pub(super) struct Follower<'a, 'b> {
    pub(super) settings: &'a Follow,
    pub(super) origin: Origin,
    pub(super) target: &'a mut Target<'b>,
    pub(super) watch: Watch,
    pub(super) memory: &'a Memory,
    /// The cluster that is followed.
    pub(super) source: u64,
    /// The revision that is reached.
    pub(super) reached: Revision,
    /// That of the last compaction here.
    pub(super) compacted: Revision,
    /// Leases that are here.
    pub(super) leases: BTreeSet<i64>,
    /// Leases that have ended there, before their keys were deleted here.
    gone: BTreeSet<i64>,
    pub(super) auth_revision: u64,
    /// Both were compared, and had the same data.
    pub(super) compared: bool,
    /// How far the followed cluster was when, where that is not reached yet.
    ahead: Option<(Revision, i64)>,
    /// What is told.
    told: Following,
    told_at: Instant,
    advanced: bool,
}

impl<'a, 'b> Follower<'a, 'b> {
    fn new(
        settings: &'a Follow,
        origin: Origin,
        target: &'a mut Target<'b>,
        watch: Watch,
        position: &PositionResponse,
        memory: &'a Memory,
    ) -> Self {
        Follower {
            settings,
            source: origin.cluster_id,
            origin,
            target,
            watch,
            memory,
            reached: position.revision,
            compacted: position.compact_revision,
            leases: position.leases.iter().copied().collect(),
            gone: BTreeSet::new(),
            auth_revision: position.auth_revision,
            compared: false,
            ahead: None,
            told: Following::default(),
            told_at: Instant::now(),
            advanced: false,
        }
    }

    async fn work(&mut self) -> Result<Ended, Failed> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number: u64 = 0;
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {
                    self.tick(number).await?;
                    number += 1;
                }
                arrived = self.watch.next() => match arrived {
                    Ok(arrived) => self.take(arrived).await?,
                    Err(failed) => self.watch_again(failed).await?,
                },
            }
            if self.settings.cutover == Cutover::WhenCaughtUp
                && self.is_caught_up()
                && let Some(done) = self.cut_over().await?
            {
                return Ok(Ended::CutOver(Some(done)));
            }
        }
    }

    /// What is compacted away at the revision that is here is not needed.
    async fn watch_again(&mut self, failed: Failed) -> Result<(), Failed> {
        match failed {
            Failed::Compacted(revision) if revision <= self.reached + 1 => {
                self.watch = self.origin.watch(self.reached + 1).await?;
                Ok(())
            }
            failed => Err(failed),
        }
    }

    async fn tick(&mut self, number: u64) -> Result<(), Failed> {
        self.watch.ask_progress()?;
        if number.is_multiple_of(LEASES) {
            let _ = self.follow_leases().await?;
            let read = self.memory.users_read.get();
            if read.is_none_or(|at| at.elapsed() >= USERS) {
                self.follow_users(false).await?;
            }
        }
        if number.is_multiple_of(REST) {
            self.open_late().await?;
            self.follow_compaction().await?;
        }
        if self.told_at.elapsed() >= TICK {
            let told = self.told.clone();
            self.target.advance(None, told).await?;
            self.told_at = Instant::now();
        }
        self.watch.awake();
        Ok(())
    }

    /// Everything that it had a moment ago is here.
    fn is_caught_up(&self) -> bool {
        self.told.source_revision == self.reached
            && now_ms() - self.told.as_of_unix_ms
                <= i64::try_from(2 * TICK.as_millis()).unwrap_or(0)
    }

    /// Brings over what has arrived.
    pub(super) async fn take(&mut self, arrived: Arrived) -> Result<(), Failed> {
        for revisions in pieces(arrived.revisions) {
            let last = revisions
                .last()
                .map_or(0, |it: &FollowedRevision| it.revision);
            self.told.source_revision = self.told.source_revision.max(last);
            let leases = self.leases_of(&revisions).await?;
            let step = Step {
                leases,
                revisions,
                ..self.step()
            };
            self.advance(&step).await?;
            self.leases.extend(step.leases.iter().map(|it| it.id));
            self.advanced = true;
        }
        self.ahead = arrived.progress.or(self.ahead);
        if let Some((revision, asked_ms)) = self.ahead {
            self.told.source_revision = self.told.source_revision.max(revision);
            if revision <= self.reached {
                self.told.as_of_unix_ms = asked_ms;
                self.ahead = None;
            }
        }
        Ok(())
    }

    pub(super) fn step(&self) -> Step {
        Step {
            source: self.source,
            ..Step::default()
        }
    }

    /// Replicates a step.
    pub(super) async fn advance(&mut self, step: &Step) -> Result<(), Failed> {
        let told = self.told.clone();
        self.reached = self.target.advance(Some(step), told).await?;
        self.told_at = Instant::now();
        Ok(())
    }

    /// Grants here what was granted there, and ends what has ended there. Returns those that it has, and when.
    pub(super) async fn follow_leases(&mut self) -> Result<(BTreeSet<i64>, Revision), Failed> {
        let (there, at) = self.origin.leases().await?;
        let granted = self.granted(&there).await?;
        for leases in granted.chunks(LEASES_AT_ONCE) {
            let step = Step {
                leases: leases.to_vec(),
                ..self.step()
            };
            self.advance(&step).await?;
            self.leases.extend(leases.iter().map(|lease| lease.id));
        }
        let there: BTreeSet<i64> = there.into_iter().collect();
        // Before that revision is reached their keys may still be here.
        let ended: Vec<i64> = match at <= self.reached {
            true => self.leases.difference(&there).copied().collect(),
            false => Vec::new(),
        };
        for ended in ended.chunks(LEASES_AT_ONCE) {
            let step = Step {
                ended: ended.to_vec(),
                ..self.step()
            };
            self.advance(&step).await?;
            for id in ended {
                self.leases.remove(id);
            }
        }
        Ok((there, at))
    }

    /// Leases of these keys that are not here: a key never waits for its lease, in case that the followed cluster is lost.
    async fn leases_of(
        &mut self,
        revisions: &[FollowedRevision],
    ) -> Result<Vec<FollowedLease>, Failed> {
        let events = revisions.iter().flat_map(|it| &it.events);
        let puts = events.filter(|it| !it.deleted && it.kv.lease != 0);
        let ids: BTreeSet<i64> = puts.map(|it| it.kv.lease).collect();
        let ids: Vec<i64> = ids.difference(&self.gone).copied().collect();
        match self.granted(&ids).await {
            Ok(granted) => {
                let here = |id: &i64| granted.iter().any(|it| it.id == *id);
                let gone = ids
                    .iter()
                    .filter(|id| !self.leases.contains(id) && !here(id));
                self.gone.extend(gone);
                Ok(granted)
            }
            // What has arrived is not held up: a cluster that loses its leader may be about to be lost.
            Err(Failed::Passing(_)) => Ok(Vec::new()),
            Err(failed) => Err(failed),
        }
    }

    /// Those of these leases that are not here, as far as they have not ended meanwhile.
    async fn granted(&self, there: &[i64]) -> Result<Vec<FollowedLease>, Failed> {
        let new = there.iter().copied();
        let new: Vec<i64> = new.filter(|id| !self.leases.contains(id)).collect();
        let mut granted = Vec::new();
        for ids in new.chunks(ASKED_AT_ONCE) {
            let asked = ids.iter().map(|id| self.origin.lease_ttl(*id));
            for (id, ttl) in ids.iter().zip(try_join_all(asked).await?) {
                granted.extend(ttl.map(|ttl| FollowedLease { id: *id, ttl }));
            }
        }
        Ok(granted)
    }

    /// Brings users and roles over if they have changed there.
    /// `closed`: the followed cluster is closed to writes.
    pub(super) async fn follow_users(&mut self, closed: bool) -> Result<(), Failed> {
        if let Some(auth) = self.changed_users(closed).await? {
            let step = Step {
                auth: Some(auth),
                ..self.step()
            };
            self.advance(&step).await?;
        }
        Ok(())
    }

    /// Users and roles there, if they have changed since the last time. No call of etcd's says what a password is, so they
    /// come from a snapshot.
    async fn changed_users(&mut self, closed: bool) -> Result<Option<Auth>, Failed> {
        // Both count from 1, whichever they begin with.
        let asked = self.origin.auth_revision().await?.max(1);
        if asked == self.auth_revision {
            return Ok(None);
        }
        let place = &self.settings.scratch;
        std::fs::create_dir_all(place).map_err(Error::file(place))?;
        let file = nameless(place)?;
        let from = Clients {
            endpoints: vec![self.origin.endpoint.clone()],
            under_corrupt: closed,
            ..self.settings.from.clone()
        };
        let source = Source {
            access: Access::Clients(from),
            rate: None,
        };
        self.memory.users_read.set(Some(Instant::now()));
        let fetched = source.fetch(&file, place).await?;
        let read = tokio::task::spawn_blocking(move || {
            let file = SnapshotFile::new(file).map_err(|error| error.to_string())?;
            snapshot::users(file).map_err(|error| error.to_string())
        });
        let users = read.await.map_err(|error| error.to_string());
        let users = users
            .and_then(|users| users)
            .map_err(|what| Error::Snapshot {
                endpoint: fetched.endpoint,
                what,
            })?;
        if users.revision() < asked {
            // Behind one address there may be several members.
            let why = "a member that lags behind gave the users of the followed cluster";
            return Err(Failed::Passing(why.to_owned()));
        }
        self.auth_revision = users.revision();
        Ok(Some((&users).into()))
    }

    /// Compacts here at the revision of there: HashKV is the same on both only then.
    pub(super) async fn follow_compaction(&mut self) -> Result<(), Failed> {
        let known = self.compacted.max(1);
        if self.origin.is_readable(known).await? {
            return Ok(());
        }
        // The first revision that can be read there is that of its last compaction.
        let (mut gone, mut readable) = (known, self.reached);
        if !self.origin.is_readable(readable).await? {
            // Not here yet either: the next time.
            return Ok(());
        }
        while gone + 1 < readable {
            let middle = gone + (readable - gone) / 2;
            match self.origin.is_readable(middle).await? {
                true => readable = middle,
                false => gone = middle,
            }
        }
        self.compact(readable).await
    }

    pub(super) async fn compact(&mut self, revision: Revision) -> Result<(), Failed> {
        let step = Step {
            compact: revision,
            ..self.step()
        };
        self.advance(&step).await?;
        self.compacted = revision;
        Ok(())
    }
}
