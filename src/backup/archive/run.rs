//! The archiver: reads the committed entries of a cluster from one of its members, and stores them. Killed at any moment it
//! leaves whole objects, and the next one goes on behind them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::collector::Collector;
use super::idle;
use super::merge::{Small, merge, sealed};
use super::resume::starts;
use super::segment::Mark;
use crate::backup::cipher::Key;
use crate::backup::repository::Repository;
use crate::backup::save::random;
use crate::backup::source::{LogMember, Members, text};
use crate::backup::{Error, chain as causes};
use crate::server::operator_api::backup_client::READ;
use crate::snapshot::replay::Position;
use crate::wire::member::{Archived as Told, EntriesRequest, EntriesResponse};

/// It ends after this, so that whoever runs it gives it new credentials and a new version.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// For so long neither the store nor the members need to be reached.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(2);
/// An answer takes no longer than it was to wait, and this.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest wait for a new entry that is asked for.
const WAIT: Duration = Duration::from_millis(2500);
/// Longest pause between two calls while entries arrive.
const PACE: Duration = Duration::from_millis(500);
/// Characters of the place that members are told: they take 1024 bytes.
const MOST_LOCATION: usize = 250;
/// For so long the store may take to record how far an archive is that stands still.
const RECORD: Duration = Duration::from_secs(5);
/// Once it is to end, what is here is stored within this.
const LAST: Duration = Duration::from_secs(20);

/// What to archive.
#[derive(Debug)]
pub struct Archive {
    /// The members.
    pub members: Members,
    /// The user's keys: the first one encrypts.
    pub keys: Vec<Key>,
    /// New entries are stored after this at the latest.
    pub interval: Duration,
    /// What members are told of the place; `None`: the URL of the cluster's folder.
    pub location: Option<String>,
}

/// How an archiver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// ID of the cluster; 0 if no member had answered.
    pub cluster_id: u64,
    /// The newest entries that are stored without a hole; 0 if there are none.
    pub first: u64,
    /// The last one of them.
    pub last: u64,
    /// Everything that was committed at this time is stored.
    pub as_of: Option<Timestamp>,
    /// Objects that it has written.
    pub objects: u64,
    /// The log no longer holds what comes next.
    pub gap: bool,
    /// Why it ended.
    pub message: String,
}

/// Why there is nothing more to do.
enum Why {
    Gap(String),
    Life,
}

impl Archive {
    /// Archives until `stop`, a gap, or for twelve hours.
    ///
    /// # Errors
    /// The store or the members were not reached for five minutes, the store refuses the credentials, the key does not
    /// fit, or what was stored before is damaged.
    pub async fn run(
        &self,
        repository: &Repository,
        stop: impl Future<Output = ()>,
    ) -> Result<Ended, Error> {
        let mut stop = pin!(stop);
        let begun = tokio::select! {
            begun = self.begin(repository) => begun?,
            () = &mut stop => return Ok(Ended {
                cluster_id: 0,
                first: 0,
                last: 0,
                as_of: None,
                objects: 0,
                gap: false,
                message: "it was asked to end before a member had answered".to_owned(),
            }),
        };
        let mut archiver = begun;
        let (gap, why) = tokio::select! {
            why = archiver.work() => match why? {
                Why::Gap(why) => (true, why),
                Why::Life => (false, "it has run for twelve hours".to_owned()),
            },
            () = &mut stop => (false, "it was asked to end".to_owned()),
        };
        Ok(archiver.finish(gap, why).await)
    }

    /// Finds the cluster, and where to go on.
    async fn begin<'a>(&'a self, repository: &'a Repository) -> Result<Archiver<'a>, Error> {
        let members = patiently(repository, || self.members.logs()).await?;
        // There is one.
        let cluster_id = members.first().map_or(0, |member| member.cluster_id);
        let (run, starts) =
            patiently(repository, || starts(repository, cluster_id, &self.keys)).await?;
        let mut archiver = Archiver {
            settings: self,
            repository,
            cluster_id,
            first: run.first,
            collector: Collector::new(Position::default(), None),
            last: run.mark,
            starts,
            as_of_before: run.as_of_ms,
            recorded_ms: run.as_of_ms,
            tried: None,
            objects: 0,
            small: Small::default(),
            member: None,
            short: BTreeSet::new(),
            failing: None,
            began: Instant::now(),
        };
        archiver.next_start();
        Ok(archiver)
    }
}

struct Archiver<'a> {
    settings: &'a Archive,
    repository: &'a Repository,
    cluster_id: u64,
    /// The first entry of the newest ones without a hole; 0 if none is stored.
    first: u64,
    collector: Collector,
    /// What the archiver before it knew of the time of the last entry that is stored.
    last: Option<Mark>,
    /// Where else it may go on, the last choice first.
    starts: Vec<Position>,
    /// What the archiver before it knew of the time, until this one knows more.
    as_of_before: Option<i64>,
    /// As of when the store says that this is everything.
    recorded_ms: Option<i64>,
    /// When it was last tried to record that.
    tried: Option<Instant>,
    objects: u64,
    small: Small,
    member: Option<LogMember>,
    /// Members whose logs begin behind what comes next.
    short: BTreeSet<u64>,
    /// Since when no member has given what was asked for, and those that were asked.
    failing: Option<(Instant, BTreeSet<u64>)>,
    began: Instant,
}

impl Archiver<'_> {
    async fn work(&mut self) -> Result<Why, Error> {
        if self.collector.at().index == 0 {
            return Ok(Why::Gap(format!(
                "there is neither a backup nor an archive of the cluster {:x} in {} yet: take a backup first",
                self.cluster_id,
                self.repository.url()
            )));
        }
        loop {
            if self.began.elapsed() > LIFE {
                return Ok(Why::Life);
            }
            if self.collector.is_due(self.now_ms(), self.delay_ms()) {
                self.store().await?;
            }
            self.record(millis(idle::EVERY).cast_signed()).await;
            if let Some(why) = self.ask().await? {
                return Ok(Why::Gap(why));
            }
        }
    }

    /// Asks a member for what comes next. A text: no member has it any more.
    async fn ask(&mut self) -> Result<Option<String>, Error> {
        let Some(mut member) = self.connected().await? else {
            return Ok(None);
        };
        let request = self.request();
        let patience = Duration::from_millis(request.wait_ms) + ANSWER;
        let sent = Timestamp::now().as_millisecond();
        let answer = timeout(patience, member.client.entries(request)).await;
        let received = Timestamp::now().as_millisecond();
        let failed = match answer {
            Err(_) => format!("no answer in {} s", patience.as_secs()),
            // The next entry is too large for an archive, whoever is asked.
            Ok(Err(status)) if status.code() == tonic::Code::OutOfRange => {
                return Ok(self.goes_on_elsewhere(text(&status)));
            }
            Ok(Err(status)) => text(&status),
            Ok(Ok(answer)) => {
                // What was read before it was dropped is taken.
                if answer.entries.is_empty() && self.collector.at().index + 1 < answer.first {
                    return self.is_short(&member, answer.first).await;
                }
                match self.took(answer, (sent, received)) {
                    Ok(pause) => {
                        self.failing = None;
                        // The members are asked again which of them knows a leader.
                        let cut_off = self.collector.is_cut_off();
                        self.member = (!cut_off).then_some(member);
                        sleep(pause).await;
                        return Ok(None);
                    }
                    Err(why) => why,
                }
            }
        };
        self.fails(member.id, format!("{}: {failed}", member.endpoint))
            .await?;
        Ok(None)
    }

    /// Takes an answer; for how long to wait before the next call.
    fn took(&mut self, answer: EntriesResponse, at: (i64, i64)) -> Result<Duration, String> {
        let some = !answer.entries.is_empty();
        let now = self.now_ms();
        self.collector.take(answer, at, now)?;
        // One has gone on: others are as good again.
        self.short.clear();
        if some {
            self.starts.clear();
        }
        Ok(match (some, self.collector.is_caught_up()) {
            // There is more, or the member has waited.
            (true, false) | (false, true) => Duration::ZERO,
            (true, true) => (self.settings.interval / 10).min(PACE),
            // No quorum confirms that there is nothing.
            (false, false) => PACE,
        })
    }

    fn request(&self) -> EntriesRequest {
        let Position { index, term } = self.collector.at();
        let wait = (self.settings.interval / 2).min(WAIT);
        let wait_ms = match self.collector.is_caught_up() {
            true => {
                let due = self.collector.due_in(self.now_ms(), self.delay_ms());
                millis(wait).min(due.unwrap_or(u64::MAX))
            }
            false => 0,
        };
        EntriesRequest {
            from: index + 1,
            term_before: term,
            max_bytes: READ,
            wait_ms,
            // Also while nothing is written behind the backup: everything is in it.
            archived: (self.first > 0 || self.collector.as_of_ms().is_some()).then(|| Told {
                index: self.collector.stored_index(),
                as_of_unix_ms: self.as_of_ms().unwrap_or_default(),
                location: {
                    let url = || self.repository.archive_url(self.cluster_id);
                    let text = self.settings.location.clone().unwrap_or_else(url);
                    text.chars().take(MOST_LOCATION).collect()
                },
            }),
        }
    }

    /// A member's log begins too late. A text: so do all that answer, and there is nowhere else to go on.
    async fn is_short(&mut self, member: &LogMember, first: u64) -> Result<Option<String>, Error> {
        self.short.insert(member.id);
        let others = match self.settings.members.logs().await {
            Ok(others) => others,
            // Whoever does not answer now may have it.
            Err(error) => {
                self.fails(member.id, error.to_string()).await?;
                return Ok(None);
            }
        };
        let next = others
            .into_iter()
            .find(|it| !self.short.contains(&it.id) && it.cluster_id == self.cluster_id);
        if next.is_some() {
            self.member = next;
            return Ok(None);
        }
        let at = self.collector.at().index;
        self.short.clear();
        Ok(self.goes_on_elsewhere(format!(
            "the members' log begins with entry {first}, and entry {} comes next in the archive: take a backup, behind which it goes on",
            at + 1
        )))
    }

    /// `None` if there is another place to go on, and nothing is here that follows this one; else why not.
    fn goes_on_elsewhere(&mut self, why: String) -> Option<String> {
        let goes_on = self.collector.segment().is_none() && self.next_start();
        (!goes_on).then_some(why)
    }

    /// Goes on somewhere else, if there is such a place.
    fn next_start(&mut self) -> bool {
        let Some(start) = self.starts.pop() else {
            return false;
        };
        let is_other = self.collector.at().index > 0;
        let known = self.last.filter(|mark| mark.index == start.index);
        self.collector = Collector::new(start, known);
        if is_other || self.first == 0 {
            // Nothing is stored behind it yet.
            (self.first, self.as_of_before) = (0, None);
        }
        true
    }

    /// A member to ask; `None` after a failure and a pause.
    async fn connected(&mut self) -> Result<Option<LogMember>, Error> {
        if let Some(member) = self.member.take() {
            return Ok(Some(member));
        }
        let members = match self.settings.members.logs().await {
            Ok(members) => members,
            Err(Error::Source(why)) => {
                self.fails(0, why).await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let failed = self.failing.as_ref().map(|(_, ids)| ids);
        let failed = |id: u64| failed.is_some_and(|ids| ids.contains(&id));
        let mut own: Vec<LogMember> = members
            .into_iter()
            .filter(|it| it.cluster_id == self.cluster_id)
            .collect();
        // The others first.
        own.sort_by_key(|it| failed(it.id));
        if own.first().is_some_and(|it| failed(it.id))
            && let Some((_, ids)) = &mut self.failing
        {
            // All of them have failed: from the beginning.
            ids.clear();
        }
        match own.into_iter().next() {
            Some(member) => Ok(Some(member)),
            None => Err(Error::Source(format!(
                "another cluster than {:x} answers",
                self.cluster_id
            ))),
        }
    }

    /// Nothing came of it: an error once that has lasted for too long.
    async fn fails(&mut self, member: u64, why: String) -> Result<(), Error> {
        let (since, asked) = self
            .failing
            .get_or_insert_with(|| (Instant::now(), BTreeSet::new()));
        asked.insert(member);
        let since = *since;
        if since.elapsed() >= PATIENCE {
            return Err(Error::Source(format!(
                "not for {} s; the last answer: {why}",
                PATIENCE.as_secs()
            )));
        }
        let first = since.elapsed() < PAUSE;
        if first {
            eprintln!("quorate backup archive: {why}; trying again");
        }
        sleep(PAUSE.min(self.settings.interval)).await;
        Ok(())
    }

    /// Stores what is here.
    async fn store(&mut self) -> Result<(), Error> {
        let Some(segment) = self.collector.segment() else {
            return Ok(());
        };
        let range = segment.range()?;
        let known = segment.marks.iter().filter_map(|mark| mark.as_of_ms).max();
        let keys = &self.settings.keys;
        let bytes = self.collector.bytes();
        let object = sealed(segment, self.cluster_id, keys).await?;
        let (repository, id) = (self.repository, self.cluster_id);
        let created = patiently(repository, || {
            repository.create_archived(id, range, object.clone(), keys)
        })
        .await?;
        self.collector.is_stored();
        if created {
            self.recorded_ms = self.recorded_ms.max(known);
        }
        self.objects += 1;
        if self.first == 0 {
            self.first = range.first;
        }
        self.small.push(range, bytes);
        if let Some(due) = self.small.due()
            && let Err(error) = merge(repository, id, keys, &due).await
        {
            // They stay as they are.
            eprintln!(
                "quorate backup archive: objects are not merged: {}",
                causes(&error)
            );
        }
        Ok(())
    }

    /// Records as of when the last entry is everything, if that is so many milliseconds more than the store says.
    async fn record(&mut self, more_ms: i64) {
        let since = self.recorded_ms.map(|recorded| recorded + more_ms - 1);
        let Some(mark) = self.collector.idle_mark(since) else {
            return;
        };
        if self.tried.is_some_and(|at| at.elapsed() < idle::EVERY) && more_ms > 1 {
            return;
        }
        self.tried = Some(Instant::now());
        let failed = match timeout(RECORD, self.put_mark(mark)).await {
            Ok(Ok(())) => {
                self.recorded_ms = mark.as_of_ms;
                return;
            }
            Ok(Err(error)) => causes(&error),
            Err(_) => format!("no answer in {} s", RECORD.as_secs()),
        };
        eprintln!(
            "quorate backup archive: it is not recorded that nothing was written until {}: {failed}",
            mark.as_of_ms
                .and_then(|ms| Timestamp::from_millisecond(ms).ok())
                .unwrap_or_default()
        );
    }

    async fn put_mark(&self, mark: Mark) -> Result<(), Error> {
        let key = match self.settings.keys.first() {
            Some(key) => Some((key, random::<32>()?)),
            None => None,
        };
        let object = idle::encode(self.cluster_id, mark, key)?;
        self.repository.put_idle_mark(self.cluster_id, object).await
    }

    async fn finish(&mut self, gap: bool, mut message: String) -> Ended {
        match timeout(LAST, self.store()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => message += &format!("; the last entries are not stored: {error}"),
            Err(_) => message += "; the last entries are not stored: the store does not answer",
        }
        self.record(1).await;
        let as_of = self.as_of_ms();
        Ended {
            cluster_id: self.cluster_id,
            first: self.first,
            last: match self.first {
                0 => 0,
                _ => self.collector.stored_index(),
            },
            as_of: as_of.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
            objects: self.objects,
            gap,
            message,
        }
    }

    fn as_of_ms(&self) -> Option<i64> {
        self.collector.as_of_ms().or(self.as_of_before)
    }

    fn now_ms(&self) -> u64 {
        millis(self.began.elapsed())
    }

    /// The interval, without the time in which an entry arrives and is stored.
    fn delay_ms(&self) -> u64 {
        millis(self.settings.interval * 4 / 5)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Repeats what may succeed later.
async fn patiently<T, F: Future<Output = Result<T, Error>>>(
    repository: &Repository,
    mut act: impl FnMut() -> F,
) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        let patience = left.max(ANSWER);
        let error = match timeout(patience, act()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            // Members have times of their own.
            Err(_) => return Err(repository.silent(patience)),
        };
        let passing = matches!(
            &error,
            Error::Store { .. } | Error::Source(_) | Error::Unclear { .. }
        );
        if !passing || error.refuses_credentials() || began.elapsed() + PAUSE >= PATIENCE {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}
