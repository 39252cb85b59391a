//! One attempt to reach a moment from one backup: reads the store, has the state machine apply the entries, and writes the
//! result in the shape of any other snapshot. Never applies an entry behind the moment, and never passes over a hole.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::chain::{Chain, chain};
use super::moment::{Base, Moment};
use super::names::Range;
use super::replay::{At, Reached};
use super::segment::{Mark, Segment, damaged};
use crate::backup::fetch::fetch_text;
use crate::backup::repository::Repository;
use crate::backup::restore::nameless;
use crate::backup::save::ended;
use crate::backup::{Error, chain as causes};
use crate::bolt::HEAD_BYTES;
use crate::mutants::mutant;
use crate::server::snapshot_file::{SnapshotFile, raw_sha256};
use crate::snapshot::export;
use crate::snapshot::replay::{Discontinuity, Entry, Replay};

/// Heads read at once.
const READS: usize = 8;
/// Objects on their way at once.
const IN_FLIGHT: usize = 2;
/// How often the archive is listed again, when an object has been merged with others meanwhile.
const LISTINGS: usize = 5;

/// Objects that are left out at most because they cannot be read.
const MOST_BAD: usize = 16;
/// For so long entries may have been committed of which the time is not known, where a time is asked for: twice the
/// longest interval of an archive.
const UNKNOWN_MS: i64 = 120_000;

/// Where a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    End,
    Index(u64),
    Revision(i64),
}

/// Why an attempt ended.
pub(super) enum Failed {
    /// An object is gone: the archive is to be listed again.
    Gone(Range),
    /// The entries do not lead so far.
    Short(String),
    /// An object is not what was stored: others may lead around it.
    Bad(Range, Box<Error>),
    /// The backup is not what was saved, or is gone: another one may do.
    Base(Error),
    Final(Error),
}

/// What reading an object failed with.
fn unread(range: Range) -> impl Fn(Error) -> Failed {
    move |error| match error {
        Error::Archive(_) | Error::Key(_) => Failed::Bad(range, Box::new(error)),
        error => Failed::Final(error),
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Final(error)
    }
}

pub(super) struct Attempt<'a> {
    pub(super) folder: &'a Repository,
    pub(super) base: &'a Base,
    pub(super) at: &'a At<'a>,
}

impl Attempt<'_> {
    pub(super) async fn run(&self) -> Result<(File, Reached), Failed> {
        let mut listings = 0;
        let mut bad: Vec<Range> = Vec::new();
        let mut why = None;
        loop {
            match self.once(&bad).await {
                Err(Failed::Gone(_)) if listings < LISTINGS => listings += 1,
                // Nothing leads around those that cannot be read: they are the reason.
                Err(Failed::Short(short)) => {
                    return Err(why.map_or(Failed::Short(short), Failed::Final));
                }
                Err(Failed::Bad(range, error)) if bad.len() < MOST_BAD => {
                    bad.push(range);
                    why.get_or_insert(*error);
                }
                Err(Failed::Bad(_, error)) => return Err(Failed::Final(*error)),
                other => return other,
            }
        }
    }

    /// One attempt, without the objects that cannot be read.
    async fn once(&self, bad: &[Range]) -> Result<(File, Reached), Failed> {
        let cluster_id = self.base.cluster_id;
        let archived = self.folder.archived(Some(cluster_id)).await?;
        let ranges = || archived.iter().map(|it| it.range);
        let whole = chain(ranges(), self.base.at.index);
        let readable = ranges().filter(|range| !bad.contains(range));
        let chain = chain(readable, self.base.at.index);
        // The end of the archive is that with them.
        if self.at.moment == Moment::Latest && chain.end < whole.end {
            return Err(Failed::Short(self.short(&chain, None)));
        }
        let idle = match self.at.moment {
            Moment::Latest | Moment::Time(_) => self.idle_mark().await?,
            Moment::Index(_) | Moment::Revision(_) => None,
        };
        let (stop, mut marks) = self.stop(&chain, idle).await?;
        let mut replay = self.begin().await?;
        let links = chain.links.iter().filter(|link| match stop {
            Stop::Index(index) => link.first <= index,
            Stop::End | Stop::Revision(_) => true,
        });
        let gets = links.map(|range| async move {
            let keys = self.at.keys;
            let segment = self.folder.archived_segment(cluster_id, *range, keys).await;
            let segment = segment.map_err(unread(*range))?;
            segment.map(|it| (*range, it)).ok_or(Failed::Gone(*range))
        });
        let mut segments = futures::stream::iter(gets).buffered(IN_FLIGHT);
        while let Some((range, segment)) = segments.try_next().await? {
            marks.extend(&segment.marks);
            let applied = tokio::task::spawn_blocking(move || {
                let done = apply(&mut replay, &segment, stop);
                (replay, done)
            });
            let done;
            (replay, done) = applied.await.map_err(ended)?;
            let done = done.map_err(|error| match error {
                Discontinuity::Order { .. } => {
                    let error = damaged(cluster_id, range, &error.to_string());
                    Failed::Bad(range, Box::new(error))
                }
                // Of a newer version, or of a time when no backup held all that there was to know.
                Discontinuity::Entry(_) | Discontinuity::Followed { .. } => {
                    Failed::Final(Error::Unclear {
                        id: self.base.id.clone(),
                        what: error.to_string(),
                    })
                }
            })?;
            if done {
                break;
            }
        }
        drop(segments);
        self.judge(&replay, stop, &chain)?;
        if let Some(hole) = self.lacking(&chain, idle) {
            return Err(Failed::Short(lacks(hole, &replay)));
        }
        self.finish(replay, &marks).await
    }

    /// How far the archive went when nothing was written any more. It is not needed to reach most moments, so one that is
    /// damaged is as good as none.
    async fn idle_mark(&self) -> Result<Option<Mark>, Failed> {
        let read = self
            .folder
            .idle_mark(self.base.cluster_id, self.at.keys)
            .await;
        match read {
            Err(
                Error::Archive(_) | Error::Key(_) | Error::Unclear { .. } | Error::Damaged { .. },
            ) => Ok(None),
            read => Ok(read?.filter(|mark| mark.index >= self.base.at.index)),
        }
    }

    /// What the end of the archive lacks: whoever takes less has to say so.
    fn lacking(&self, chain: &Chain, idle: Option<Mark>) -> Option<Range> {
        if self.at.moment != Moment::Latest {
            return None;
        }
        let went = idle.and_then(|mark| Range::new(chain.end + 1, mark.index));
        chain.hole.or(went)
    }

    /// Where to stop, and the marks that say so.
    async fn stop(&self, chain: &Chain, idle: Option<Mark>) -> Result<(Stop, Vec<Mark>), Failed> {
        // It says nothing of a log that does not lead there.
        let idle = idle.filter(|mark| mark.index <= chain.end || mutant!(ArchiveMarkBehindHole));
        let time = match self.at.moment {
            Moment::Latest => return Ok((Stop::End, idle.into_iter().collect())),
            Moment::Revision(revision) => return Ok((Stop::Revision(revision), Vec::new())),
            Moment::Index(index) if index > chain.end => {
                return Err(Failed::Short(self.short(chain, None)));
            }
            Moment::Index(index) => return Ok((Stop::Index(index), Vec::new())),
            Moment::Time(time) => time,
        };
        let heads = chain.links.iter().map(|range| async move {
            let (id, keys) = (self.base.cluster_id, self.at.keys);
            let head = self.folder.archived_head(id, *range, keys).await;
            let head = head.map_err(unread(*range))?;
            head.ok_or(Failed::Gone(*range))
        });
        let heads = futures::stream::iter(heads).buffered(READS);
        let heads: Vec<_> = heads.try_collect().await?;
        let marks = heads.into_iter().flat_map(|head| head.marks);
        let marks: Vec<Mark> = marks.chain(idle).collect();
        let newest = marks.iter().map(known_by).max();
        if newest.is_none_or(|newest| newest < time.as_millisecond()) {
            let newest = newest.and_then(|ms| Timestamp::from_millisecond(ms).ok());
            let end = newest.unwrap_or(self.base.completed);
            return Err(Failed::Short(
                self.short(chain, Some(&format!(", of {end}"))),
            ));
        }
        let index = reached(&marks, time.as_millisecond()).max(self.base.at.index);
        let known = known_until(&marks, index, self.base);
        if let Some(next) = next_known(&marks, index)
            && known < time.as_millisecond()
            && next - known > UNKNOWN_MS
        {
            let ends = [known, next].map(|ms| Timestamp::from_millisecond(ms).unwrap_or_default());
            return Err(Failed::Final(Error::Moment(format!(
                "{time} is not reached exactly: the archive was behind between {} and {}, and does not know when the entries from {} on were committed. Give a time outside of that, index:N or revision:N",
                ends[0],
                ends[1],
                index + 1
            ))));
        }
        Ok((Stop::Index(index), marks))
    }

    /// The state of the backup.
    async fn begin(&self) -> Result<Replay, Failed> {
        let id = self.base.id.as_str();
        let path = self.nameable();
        let stored = self.folder.find(id, self.at.keys).await.map_err(of_base)?;
        if stored.manifest.is_none() {
            // Deleted since it was listed.
            return Err(Failed::Base(self.folder.not_found(id)));
        }
        stored.expect_manifest().map_err(of_base)?;
        let text = &stored.text;
        let fetched = fetch_text(self.folder, id, text, self.at.keys, &path).await;
        fetched.map_err(of_base)?;
        let file = SnapshotFile::open(&path).map_err(Error::file(&path));
        std::fs::remove_file(&path).map_err(Error::file(&path))?;
        let (file, at) = (file?, self.base.at);
        let begun = tokio::task::spawn_blocking(move || Replay::begin(file, at));
        let begun = begun.await.map_err(ended)?;
        begun.map_err(|error| Failed::Base(Error::damaged(id, causes(&error))))
    }

    /// Whether the replay got to where it was to stop.
    fn judge(&self, replay: &Replay, stop: Stop, chain: &Chain) -> Result<(), Failed> {
        let there = match stop {
            Stop::End => replay.at().index == chain.end,
            Stop::Index(index) => replay.at().index == index,
            Stop::Revision(revision) => replay.revision() >= revision,
        };
        let revision = format!(", revision {}", replay.revision());
        match there {
            true => Ok(()),
            false => Err(Failed::Short(self.short(chain, Some(&revision)))),
        }
    }

    /// That the moment is not there, and what is.
    fn short(&self, chain: &Chain, end: Option<&str>) -> String {
        let (moment, base) = (self.at.moment, self.base);
        let held = match Range::new(base.at.index + 1, chain.end) {
            None => "nothing follows it in the archive".to_owned(),
            Some(range) => format!("the archive holds {range}{}", end.unwrap_or_default()),
        };
        let then = match chain.hole {
            Some(hole) => format!(
                "; {hole} are missing, and what is behind them needs a backup that is behind them"
            ),
            None => "; for its end, give latest".to_owned(),
        };
        format!(
            "{moment} is not reached: behind {} {held}{then}",
            base.place()
        )
    }

    async fn finish(&self, replay: Replay, marks: &[Mark]) -> Result<(File, Reached), Failed> {
        let index = replay.at().index;
        let known = marks.iter().filter(|mark| mark.index <= index);
        let as_of = known.filter_map(|mark| mark.as_of_ms).max();
        let as_of = as_of.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let as_of = as_of.unwrap_or(self.base.started).max(self.base.started);
        let reached = Reached {
            base: self.base.id.clone(),
            index,
            revision: replay.revision(),
            as_of: match self.at.moment {
                Moment::Time(time) => as_of.min(time),
                _ => as_of,
            },
            notes: Vec::new(),
        };
        let scratch = self.at.scratch.to_owned();
        let written = tokio::task::spawn_blocking(move || write(&replay, &scratch));
        Ok((written.await.map_err(ended)??, reached))
    }

    fn nameable(&self) -> PathBuf {
        let number = uuid::Uuid::new_v4().simple();
        self.at.scratch.join(format!("quorate-replay-{number}.db"))
    }
}

/// What reading a backup failed with: whether another one may do.
fn of_base(error: Error) -> Failed {
    match error {
        Error::Damaged { .. } | Error::NotFound { .. } => Failed::Base(error),
        error => Failed::Final(error),
    }
}

/// That the archive went on behind what is left of it.
fn lacks(hole: Range, replay: &Replay) -> String {
    let end = replay.at().index;
    format!(
        "latest is not reached: {hole} are missing in the archive, and what is behind them needs a backup that is behind them. What is there ends with entry {end}, revision {}: give index:{end} to restore that",
        replay.revision()
    )
}

/// The last entry that was committed by a time.
fn reached(marks: &[Mark], time_ms: i64) -> u64 {
    let by_then = marks.iter().filter(|mark| mark.known_ms <= time_ms);
    by_then.map(|mark| mark.index).max().unwrap_or_default()
}

/// Up to when nothing was committed behind an entry, as far as that is known.
fn known_until(marks: &[Mark], index: u64, base: &Base) -> i64 {
    let of_entry = marks.iter().filter(|mark| mark.index == index);
    let known = of_entry.map(known_by);
    let of_backup = (index == base.at.index).then(|| base.started.as_millisecond());
    known.chain(of_backup).max().unwrap_or_default()
}

/// The latest time of which a mark says something.
fn known_by(mark: &Mark) -> i64 {
    mark.known_ms.max(mark.as_of_ms.unwrap_or_default())
}

/// When the next entry is known to have been committed.
fn next_known(marks: &[Mark], index: u64) -> Option<i64> {
    let later = marks.iter().filter(|mark| mark.index > index);
    later.map(|mark| mark.known_ms).min()
}

/// Applies what is behind the state; whether the replay is to stop.
fn apply(replay: &mut Replay, segment: &Segment, stop: Stop) -> Result<bool, Discontinuity> {
    let is_there = |replay: &Replay| match stop {
        Stop::End => false,
        Stop::Index(index) => replay.at().index >= index,
        Stop::Revision(revision) => replay.revision() >= revision,
    };
    let before = replay.at().index;
    if let Some(term) = segment.term(before) {
        replay.follows(before + 1, term)?;
    }
    for entry in &segment.entries {
        if is_there(replay) {
            return Ok(true);
        }
        if entry.index > before || mutant!(ArchiveEntryTwice) {
            mutant!(ArchiveExpiryDropped => { replay.apply(&unasked(entry))?; continue });
            replay.apply(entry)?;
        }
    }
    Ok(is_there(replay))
}

/// What a planted fault makes of an entry: nothing, where a leader has written it by itself, as the expiry of leases. Then
/// the second field of its payload, the request that waits for it, is absent.
fn unasked(entry: &Entry) -> Entry {
    const REQUEST: u8 = 0x12;
    let mut entry = entry.clone();
    if entry.data.get(2) != Some(&REQUEST) {
        entry.data.clear();
    }
    entry
}

/// The state as a database with its digest, in a file without a name.
fn write(replay: &Replay, scratch: &Path) -> Result<File, Error> {
    let failed = || Error::file(scratch);
    let file = nameless(scratch)?;
    let mut at = HEAD_BYTES as u64;
    let exported = export(&replay.contents(), |bytes| {
        file.write_all_at(bytes, at)?;
        at += bytes.len() as u64;
        Ok(())
    });
    let (head, length) = exported.map_err(|error| match error {
        crate::snapshot::Error::Write(error) => failed()(error),
        error => Error::Archive(format!("the state cannot be written: {}", causes(&error))),
    })?;
    file.write_all_at(&head, 0).map_err(failed())?;
    let digest = raw_sha256(&file, length).map_err(failed())?;
    file.write_all_at(&digest, length).map_err(failed())?;
    Ok(file)
}
