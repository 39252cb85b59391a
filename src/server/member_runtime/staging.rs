//! The snapshot that a standby receives, on its disk: a file that grows, and a record of what was announced and found.
//! Only a standby has one. What is not synced may be lost; what is recorded as checked is not. Never decides whether
//! this server takes a snapshot, and never founds anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::lock;
use crate::disk::{Disk as _, FileDisk};
use crate::persist::Saver;
use crate::server::core::spool::RESERVE;
use crate::server::operator_api::restore_client::WRITE;
use crate::server::snapshot_file::{Mismatch, SnapshotFile, sha256};
use crate::snapshot::{self, Changes};
use crate::store::Store;

/// The directory, in the data directory.
const DIRECTORY: &str = "staged";
/// The bytes of the snapshot.
const SNAPSHOT: &str = "snapshot";
/// What is known of it.
const RECORD: &str = "record";
/// The record while it is written.
const TEMPORARY: &str = "record.tmp";
/// Bytes between two syncs at most, so that the last one takes no longer than the others.
const SYNC_EVERY: u64 = 8 << 20;
/// Characters of a SHA-256 in hexadecimal.
const SHA256: usize = 64;

/// What is known of a snapshot, as its file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    sha256: String,
    length: u64,
    /// The living cluster that it was taken from; 0: none.
    #[serde(default, skip_serializing_if = "is_none")]
    source: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checked: Option<Checked>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_none(source: &u64) -> bool {
    *source == 0
}

/// What a whole snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checked {
    pub(super) revision: i64,
    pub(super) keys: u64,
    /// etcd's HashKV at that revision.
    pub(super) hash: u32,
}

/// The snapshot that is here, for descriptions.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    record: Record,
    received: u64,
    progress: Option<Progress>,
    /// It cannot be used: an earlier start has left it, and not all that it says is here.
    damaged: bool,
}

/// What this start of the server has received.
#[derive(Clone, Copy, Debug)]
struct Progress {
    began: Instant,
    /// Once it is complete.
    ended: Option<Instant>,
    resumed_at: u64,
}

impl Staged {
    pub(super) fn sha256(&self) -> &str {
        &self.record.sha256
    }

    /// The living cluster that it was taken from; 0: none.
    pub(super) fn source(&self) -> u64 {
        self.record.source
    }

    /// In bytes, as announced.
    pub(super) fn length(&self) -> u64 {
        self.record.length
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether nothing but another announcement is of use.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// What is in it; `None` before all of it was checked.
    pub(super) fn checked(&self) -> Option<Checked> {
        self.record.checked
    }

    /// Milliseconds since this start began to receive, and the bytes that were here before.
    pub(super) fn progress(&self, now: Instant) -> (u64, u64) {
        self.progress.map_or((0, 0), |progress| {
            let until = progress.ended.unwrap_or(now);
            let elapsed = until.saturating_duration_since(progress.began);
            let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            (elapsed.max(1), progress.resumed_at)
        })
    }
}

/// What is known here, for descriptions.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) staged: Option<Staged>,
    /// Why the last attempt to receive a snapshot or to found from it failed. In memory alone: a start is an attempt of
    /// its own.
    pub(super) problem: String,
}

/// Shared with whoever describes it.
pub(super) type Shown = Arc<Mutex<Known>>;

/// Why a snapshot was not received.
#[derive(Debug, thiserror::Error)]
pub(super) enum StagingError {
    /// The call cannot be meant.
    #[error("{0}")]
    Invalid(String),
    /// It is for another snapshot than the one that was announced last.
    #[error("{0}")]
    Other(String),
    /// Bytes before these are missing, or these are behind its end.
    #[error("{received} bytes of {length} are here: the next ones begin there")]
    Range { received: u64, length: u64 },
    #[error(
        "the volume of the data directory has {free} bytes free, and {needed} are needed to go on: enlarge the volume by {} bytes, or free them on it; what was received is kept", needed.saturating_sub(*free)
    )]
    Space { needed: u64, free: u64 },
    /// What is here cannot be used, and was dropped.
    #[error("{0}; it was dropped: send it again, or another one")]
    Unusable(String),
    /// The disk failed.
    #[error("cannot {act} {}: {source}", path.display())]
    Disk {
        act: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// No file is open.
    #[error("no file of the snapshot is open: begin again")]
    Closed,
}

/// The directory with the snapshot. Whoever has it alone may change it.
#[derive(Debug)]
pub(super) struct Staging {
    data_dir: PathBuf,
    directory: PathBuf,
    file: Option<File>,
    shown: Shown,
    /// Bytes at the last sync.
    synced: u64,
}

type Result<T> = std::result::Result<T, StagingError>;

impl Staging {
    /// What an earlier start has left in this data directory.
    pub(super) fn load(data_dir: &Path) -> Result<Staging> {
        let mut staging = Staging::empty(data_dir);
        let path = staging.path(RECORD);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A crash may have left a file that no record names.
                staging.discard()?;
                return Ok(staging);
            }
            Err(source) => return Err(failed("read", &path, source)),
        };
        let record: Record = match serde_json::from_slice(&text) {
            Ok(record) => record,
            Err(error) => {
                staging.show_damaged(Record::default(), 0, &error.to_string());
                return Ok(staging);
            }
        };
        let file = staging.open()?;
        let length = file.metadata();
        let length = length.map_err(|source| failed("measure", &staging.path(SNAPSHOT), source))?;
        let received = length.len().min(record.length);
        if record.checked.is_some() && received < record.length {
            let all = record.length;
            let what =
                format!("it names a whole snapshot, of which {received} bytes of {all} are here");
            staging.show_damaged(record, received, &what);
            return Ok(staging);
        }
        staging.file = Some(file);
        staging.show(record, received, None);
        Ok(staging)
    }

    /// A directory with nothing in it.
    pub(super) fn empty(data_dir: &Path) -> Staging {
        Staging {
            data_dir: data_dir.to_owned(),
            directory: data_dir.join(DIRECTORY),
            file: None,
            shown: Shown::default(),
            synced: 0,
        }
    }

    /// The same for whoever describes it.
    pub(super) fn shown(&self) -> Shown {
        Arc::clone(&self.shown)
    }

    /// What is here.
    pub(super) fn staged(&self) -> Option<Staged> {
        lock(&self.shown).staged.clone()
    }

    /// Describes why the snapshot could not be used, until something succeeds.
    pub(super) fn note(&self, problem: String) {
        lock(&self.shown).problem = problem;
    }

    /// Describes what a call has met, if the caller cannot mend it by another call.
    fn noted<T>(&self, done: Result<T>) -> Result<T> {
        match &done {
            Ok(_) => self.note(String::new()),
            Err(StagingError::Invalid(_) | StagingError::Other(_) | StagingError::Range { .. }) => {
            }
            Err(error) => self.note(error.to_string()),
        }
        done
    }

    /// Announces a snapshot. Returns the bytes of it that are here. There has to be room for it and for the first
    /// checkpoint of the cluster that is founded from it, so that no founding fails at its end for want of it.
    pub(super) fn begin(&mut self, sha256: &str, length: u64, source: u64) -> Result<u64> {
        let begun = self.announce(sha256, length, source);
        self.noted(begun)
    }

    fn announce(&mut self, sha256: &str, length: u64, source: u64) -> Result<u64> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if sha256.len() != SHA256 || !sha256.bytes().all(digit) || length == 0 {
            let text = "a snapshot is announced by its SHA-256 in 64 small hexadecimal digits, and its length";
            return Err(StagingError::Invalid(text.to_owned()));
        }
        if let Some(staged) = self.staged() {
            let known = &staged.record;
            let same = (&*known.sha256, known.length, known.source) == (sha256, length, source);
            if same && !staged.damaged {
                self.check_space(length.saturating_mul(2) - staged.received)?;
                if self.file.is_none() {
                    self.file = Some(self.open()?);
                }
                return Ok(staged.received);
            }
            self.discard()?;
        }
        self.check_space(length.saturating_mul(2))?;
        let create = |source| failed("create", &self.directory, source);
        FileDisk::new(&self.directory).map_err(create)?;
        self.file = Some(self.open()?);
        let record = Record {
            sha256: sha256.to_owned(),
            length,
            source,
            checked: None,
        };
        let stored = self.store(&record);
        self.or_dropped(stored)?;
        self.show(record, 0, None);
        Ok(0)
    }

    /// Stores the next bytes. Returns how many are here.
    pub(super) fn write(&mut self, sha256: &str, offset: u64, data: &[u8]) -> Result<u64> {
        let written = self.take(sha256, offset, data);
        self.noted(written)
    }

    fn take(&mut self, sha256: &str, offset: u64, data: &[u8]) -> Result<u64> {
        let bytes = data.len() as u64;
        if !(1..=WRITE).contains(&bytes) {
            let text = format!("a call writes 1 to {WRITE} bytes, and not {bytes}");
            return Err(StagingError::Invalid(text));
        }
        let staged = self.announced(sha256)?;
        let (received, length) = (staged.received, staged.record.length);
        let end = offset.checked_add(bytes);
        let Some(end) = end.filter(|end| offset <= received && *end <= length) else {
            return Err(StagingError::Range { received, length });
        };
        // A repeated call, whose answer was lost.
        if offset < received {
            return Ok(received);
        }
        self.check_space(bytes)?;
        let stored = self.append(offset, data);
        self.or_dropped(stored)?;
        let begun = Progress {
            began: Instant::now(),
            ended: None,
            resumed_at: received,
        };
        let progress = staged.progress.unwrap_or(begun);
        self.show(staged.record, end, Some(progress));
        Ok(end)
    }

    fn append(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let path = self.path(SNAPSHOT);
        let file = self.file.as_ref().ok_or(StagingError::Closed)?;
        file.write_all_at(data, offset)
            .map_err(|source| unwritten("write", &path, data.len() as u64, source))?;
        let end = offset + data.len() as u64;
        if end.saturating_sub(self.synced) >= SYNC_EVERY {
            file.sync_data().map_err(|error| unsynced(&path, &error))?;
            self.synced = end;
        }
        Ok(())
    }

    /// Makes the bytes of the snapshot durable.
    fn sync_whole(&self, length: u64) -> Result<()> {
        let path = self.path(SNAPSHOT);
        let file = self.file.as_ref().ok_or(StagingError::Closed)?;
        // Bytes behind the announced ones are of a write that this server did not live to acknowledge.
        let cut = file.set_len(length);
        cut.map_err(|source| failed("cut", &path, source))?;
        file.sync_all().map_err(|error| unsynced(&path, &error))
    }

    /// Checks the whole snapshot, as a restore does, and records what is in it, if that is what the caller expects. Takes
    /// about the time of a restore, and no value stays in memory.
    pub(super) fn finish(&mut self, sha256: &str, expected: Option<Checked>) -> Result<Checked> {
        let finished = self.check(sha256, expected);
        self.noted(finished)
    }

    fn check(&mut self, sha256: &str, expected: Option<Checked>) -> Result<Checked> {
        let staged = self.announced(sha256)?;
        if let Some(checked) = staged.record.checked {
            return self.or_dropped(fits(checked, expected));
        }
        let (received, length) = (staged.received, staged.record.length);
        if received < length {
            return Err(StagingError::Range { received, length });
        }
        let whole = self.sync_whole(length);
        self.or_dropped(whole)?;
        let checked = self.contents(&staged.record);
        let checked = checked.and_then(|checked| fits(checked, expected));
        let checked = self.or_dropped(checked)?;
        let record = Record {
            checked: Some(checked),
            ..staged.record
        };
        let stored = self.store(&record);
        self.or_dropped(stored)?;
        let progress = staged.progress.map(|progress| Progress {
            ended: Some(Instant::now()),
            ..progress
        });
        self.show(record, length, progress);
        Ok(checked)
    }

    /// The data of the snapshot, with a revision that is raised by `bump`, and values in a file where this saver has
    /// them in files. What cannot be used is dropped.
    pub(super) fn import(&mut self, bump: u64, saver: &Saver) -> Result<Store> {
        let staged = self.staged();
        let staged = staged.ok_or_else(|| StagingError::Other("no snapshot is here".to_owned()))?;
        let read = self.read(&staged.record, bump, saver);
        self.or_dropped(read)
    }

    fn read(&self, record: &Record, bump: u64, saver: &Saver) -> Result<Store> {
        let snapshot = self.database(record)?;
        let changes = Changes {
            bump_revision: bump,
            ..Changes::default()
        };
        let not_written = |source| self.not_written(source);
        let placed = saver.place();
        let mut placed = placed.map_err(|error| not_written(io::Error::other(error)))?;
        let imported = snapshot.import_placed(&changes, |value| placed.put(value));
        let imported = imported.map_err(|error| match error {
            snapshot::Error::Write(source) => not_written(source),
            // The data were read before without a raised revision.
            error if bump > 0 && !is_unread(&error) => StagingError::Invalid(format!(
                "the snapshot cannot be used with a revision raised by {bump}: {error}"
            )),
            error => self.unusable(error),
        })?;
        placed.finish().map_err(not_written)?;
        Ok(imported.store)
    }

    /// What is in the snapshot. Reads it through.
    fn contents(&self, record: &Record) -> Result<Checked> {
        let found = snapshot::summarize(self.database(record)?);
        let found = found.map_err(|error| self.unusable(error))?;
        Ok(Checked {
            revision: found.revision,
            keys: found.keys,
            hash: found.hash,
        })
    }

    fn unusable(&self, error: snapshot::Error) -> StagingError {
        match error {
            snapshot::Error::Bolt(crate::bolt::Error::Read(source)) => {
                failed("read", &self.path(SNAPSHOT), source)
            }
            error => StagingError::Unusable(format!("the snapshot cannot be restored: {error}")),
        }
    }

    /// A value could not be written to its file; the snapshot is kept.
    fn not_written(&self, source: io::Error) -> StagingError {
        let needed = self.staged().map_or(0, |staged| staged.length());
        unwritten("write the values of", &self.path(SNAPSHOT), needed, source)
    }

    /// The database in the snapshot, whose checksums are right.
    fn database(&self, record: &Record) -> Result<SnapshotFile> {
        let path = self.path(SNAPSHOT);
        let read = |source| failed("read", &path, source);
        let file = File::open(&path).map_err(read)?;
        // Again before a cluster is founded from it: a disk may give back something else than it got.
        let found = sha256(&file, record.length).map_err(read)?;
        if found != record.sha256 {
            return Err(StagingError::Unusable(format!(
                "the SHA-256 of the snapshot is {found}, and {} was announced",
                record.sha256
            )));
        }
        let snapshot = SnapshotFile::open(&path).map_err(read)?;
        let digest = snapshot.check_digest().map_err(read)?;
        digest.map_err(|Mismatch { expected, found }| {
            StagingError::Unusable(format!(
                "the snapshot ends with the SHA-256 {expected}, and that of its data is {found}"
            ))
        })?;
        Ok(snapshot)
    }

    /// Deletes what is here.
    pub(super) fn discard(&mut self) -> Result<()> {
        *lock(&self.shown) = Known::default();
        self.file = None;
        self.synced = 0;
        // The record first, durably: without it the rest is nothing, and without the rest it would be damaged.
        for (name, synced) in [(RECORD, true), (TEMPORARY, false), (SNAPSHOT, false)] {
            let path = self.path(name);
            let removed = fs::remove_file(&path);
            let removed = match removed {
                Ok(()) if synced => File::open(&self.directory).and_then(|it| it.sync_all()),
                removed => removed,
            };
            removed
                .or_else(absent)
                .map_err(|source| failed("delete", &path, source))?;
        }
        // Anything else in it is not this server's.
        match fs::remove_dir(&self.directory).or_else(absent) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                Err(failed("delete", &self.directory, error))
            }
            _ => Ok(()),
        }
    }

    fn or_dropped<T>(&mut self, done: Result<T>) -> Result<T> {
        if matches!(done, Err(StagingError::Unusable(_))) {
            self.discard()?;
        }
        done
    }

    fn announced(&self, sha256: &str) -> Result<Staged> {
        let other = |text: &str| Err(StagingError::Other(text.to_owned()));
        match self.staged() {
            Some(staged) if staged.damaged => other("what is here cannot be used: begin again"),
            Some(staged) if staged.sha256() == sha256 => Ok(staged),
            Some(_) => other("another snapshot was announced after this one: begin again"),
            None => other("nothing of this snapshot is here any more: begin again"),
        }
    }

    fn check_space(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let free = FileDisk::new(&self.data_dir).and_then(|disk| disk.free_bytes());
        let free = free.map_err(|source| failed("measure", &self.data_dir, source))?;
        let needed = bytes.saturating_add(RESERVE);
        match needed > free {
            true => Err(StagingError::Space { needed, free }),
            false => Ok(()),
        }
    }

    fn show(&self, record: Record, received: u64, progress: Option<Progress>) {
        lock(&self.shown).staged = Some(Staged {
            record,
            received,
            progress,
            damaged: false,
        });
    }

    /// What no cluster can be founded from, nor an empty one: it may be all that is left of the one that was meant.
    fn show_damaged(&self, record: Record, received: u64, what: &str) {
        let path = self.path(RECORD);
        let problem = format!(
            "{} is damaged: {what}; no cluster is founded here before a snapshot is sent again",
            path.display()
        );
        tracing::error!("{problem}");
        let record = Record {
            checked: None,
            ..record
        };
        let staged = Some(Staged {
            record,
            received,
            progress: None,
            damaged: true,
        });
        *lock(&self.shown) = Known { staged, problem };
    }

    /// The snapshot's file, made if it is not there. It holds everybody's data, so nobody else may read it.
    fn open(&self) -> Result<File> {
        let path = self.path(SNAPSHOT);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(&path);
        file.map_err(|source| failed("open", &path, source))
    }

    /// Replaces the record, durably.
    fn store(&self, record: &Record) -> Result<()> {
        let (temporary, path) = (self.path(TEMPORARY), self.path(RECORD));
        let write = |source: io::Error| failed("write", &path, source);
        let text = serde_json::to_vec(record).map_err(|error| write(error.into()))?;
        let mut file = File::create(&temporary).map_err(write)?;
        file.write_all(&text).map_err(write)?;
        let lost = |error: io::Error| unsynced(&path, &error);
        file.sync_all().map_err(lost)?;
        fs::rename(&temporary, &path).map_err(write)?;
        for directory in [&self.directory, &self.data_dir] {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(lost)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Whether it is the disk that gave no answer.
fn is_unread(error: &snapshot::Error) -> bool {
    matches!(error, snapshot::Error::Bolt(crate::bolt::Error::Read(_)))
}

/// What was found, unless something else was saved: then no cluster may be founded from it.
fn fits(found: Checked, expected: Option<Checked>) -> Result<Checked> {
    match expected {
        Some(saved) if saved != found => Err(StagingError::Unusable(format!(
            "revision {}, {} keys and hash {} were saved, and the snapshot holds revision {}, {} keys and hash {}",
            saved.revision, saved.keys, saved.hash, found.revision, found.keys, found.hash
        ))),
        _ => Ok(found),
    }
}

/// What was written before a failed sync may be lost, and a later one does not tell.
fn unsynced(path: &Path, error: &io::Error) -> StagingError {
    let path = path.display();
    StagingError::Unusable(format!("the sync of {path} failed: {error}"))
}

/// What is not there need not be deleted.
fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// A write found no room for so many bytes, or failed.
fn unwritten(act: &'static str, path: &Path, needed: u64, source: io::Error) -> StagingError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StagingError::Space { needed, free: 0 }
        }
        _ => failed(act, path, source),
    }
}

fn failed(act: &'static str, path: &Path, source: io::Error) -> StagingError {
    let path = path.to_owned();
    StagingError::Disk { act, path, source }
}

#[cfg(test)]
#[path = "staging_test.rs"]
pub(super) mod tests;
