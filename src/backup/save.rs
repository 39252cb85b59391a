//! `save`: a snapshot into a file, the file in parts into the store, the manifest last.
//!
//! Killed at any moment it leaves no backup, and parts that `prune` removes. Repeated under the same name it
//! makes one backup: who comes second finds the first one's manifest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::cipher::{AttemptKeys, Key};
use super::manifest::{CIPHER, Encryption, FORMAT, Manifest, Origin, Part, Snapshot, check_id};
use super::repository::{Repository, read_signed};
use super::source::{Fetched, Source};
use super::{Error, hex, part};
use crate::bolt;
use crate::snapshot::{Summary, summarize};

/// Parts on their way at once: two, so that one is packed while another one travels.
const IN_FLIGHT: usize = 2;
/// A `save` ends after this; `prune` leaves parts alone for twice as long.
pub(super) const DEADLINE: Duration = Duration::from_secs(12 * 3600);

/// What to save and how.
#[derive(Debug)]
pub struct Save {
    /// Where from.
    pub source: Source,
    /// The backup's name; by default its time and some random digits.
    pub id: Option<String>,
    /// A directory for the snapshot, which needs as many bytes as it has.
    pub scratch: PathBuf,
    /// The user's keys: the first one encrypts, with all of them an existing backup is read.
    pub keys: Vec<Key>,
    /// Bytes of the database in a part.
    pub part_bytes: u64,
}

impl Save {
    /// Saves.
    ///
    /// # Errors
    /// Anything before the manifest is written. What is stored by then is no backup.
    pub async fn run(self, repository: &Repository) -> Result<Saved, Error> {
        let deadline = Instant::now() + DEADLINE;
        let saved = tokio::time::timeout_at(deadline.into(), self.save(repository)).await;
        saved.unwrap_or_else(|_| {
            Err(Error::Interrupted(format!(
                "saving took more than {} hours, and nothing was saved: is the link to the store, or --rate, too slow for this much data?",
                DEADLINE.as_secs() / 3600
            )))
        })
    }

    async fn save(self, repository: &Repository) -> Result<Saved, Error> {
        let started = Timestamp::now();
        let attempt = hex(&random::<4>()?);
        let id = match &self.id {
            Some(id) => id.clone(),
            None => format!("{}-{attempt}", started.strftime("%Y%m%dT%H%M%SZ")),
        };
        check_id(&id)?;
        let keys = &self.keys;
        if repository.manifest_bytes(&id).await?.is_some() {
            return existing(repository, &id, keys).await;
        }
        let file = Arc::new(spool(&self.scratch, &attempt)?);
        let fetched = self.source.fetch(&file, &self.scratch).await?;
        let summary = summary(Arc::clone(&file), &fetched).await?;
        let salt = random::<32>()?;
        let key = keys.first();
        let sealing = key.map(|key| key.of_attempt(&salt));
        let sealing = sealing.transpose()?.map(Arc::new);
        let upload = Upload {
            repository,
            id: &id,
            attempt: &attempt,
            scratch: &self.scratch,
            file,
            keys: sealing.clone(),
        };
        let parts = upload.run(fetched.length, self.part_bytes).await?;
        let manifest = Manifest {
            format: FORMAT,
            id: id.clone(),
            attempt: attempt.clone(),
            started,
            completed: Timestamp::now(),
            source: origin(&fetched),
            snapshot: contents(&fetched, &summary),
            encryption: key.map(|key| Encryption {
                cipher: CIPHER.to_owned(),
                key_id: key.id().to_owned(),
                salt: BASE64_STANDARD.encode(salt),
            }),
            parts,
        };
        conclude(repository, manifest, sealing.as_deref(), keys).await
    }
}

/// What a `save` ended with.
#[derive(Debug)]
pub enum Saved {
    /// A new backup.
    New(Manifest),
    /// There was one under this name already, and it is whole.
    Existing(Manifest),
}

/// The backup that exists under a name, if nothing is known against it.
async fn existing(repository: &Repository, id: &str, keys: &[Key]) -> Result<Saved, Error> {
    let stored = repository.find(id, keys).await?;
    stored.expect_manifest()?;
    if let Some(what) = stored.damage() {
        let what = format!("{what}; nothing was saved under its name: give another one");
        return Err(Error::damaged(id, what));
    }
    // Without a key, the manifest of an encrypted one is not believed.
    let (manifest, _) = read_signed(id, &stored.text, keys)?;
    Ok(Saved::Existing(manifest))
}

/// Writes the manifest, unless a part has gone meanwhile or somebody else was first.
async fn conclude(
    repository: &Repository,
    manifest: Manifest,
    sealing: Option<&AttemptKeys>,
    keys: &[Key],
) -> Result<Saved, Error> {
    let id = &manifest.id;
    let sizes = match repository.find(id, &[]).await {
        Ok(stored) => stored.part_sizes(&manifest.attempt),
        Err(Error::NotFound { .. }) => std::collections::BTreeMap::new(),
        Err(error) => return Err(error),
    };
    for (number, part) in (1..).zip(&manifest.parts) {
        if sizes.get(&number) != Some(&part.stored) {
            let what = format!("part {number} is not in the store after it was written");
            let id = id.clone();
            return Err(Error::Unclear { id, what });
        }
    }
    let text = manifest.seal(sealing)?;
    let written = repository.create_manifest(id, &text).await;
    if matches!(written, Ok(true)) {
        return Ok(Saved::New(manifest));
    }
    // The answer to our own write may have been lost, and its repetition been refused.
    match repository.manifest_bytes(id).await {
        Ok(Some(bytes)) if bytes == text => Ok(Saved::New(manifest)),
        Ok(Some(_)) => existing(repository, id, keys).await,
        Ok(None) => Err(written.err().unwrap_or_else(|| Error::Unclear {
            id: id.clone(),
            what: "its manifest was there and is gone: another process deletes here".to_owned(),
        })),
        Err(error) => Err(written.err().unwrap_or(error)),
    }
}

/// A file without a name that nobody else can read: it holds everybody's data, and is gone with the process.
fn spool(directory: &Path, attempt: &str) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::create_dir_all(directory).map_err(Error::file(directory))?;
    let path = directory.join(format!("quorate-backup-{attempt}.db"));
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(Error::file(&path))?;
    std::fs::remove_file(&path).map_err(Error::file(&path))?;
    Ok(file)
}

struct Upload<'a> {
    repository: &'a Repository,
    id: &'a str,
    attempt: &'a str,
    scratch: &'a Path,
    file: Arc<File>,
    keys: Option<Arc<AttemptKeys>>,
}

impl Upload<'_> {
    async fn run(&self, length: u64, part_bytes: u64) -> Result<Vec<Part>, Error> {
        let pieces = (0..length.div_ceil(part_bytes)).map(|index| {
            let offset = index * part_bytes;
            (index + 1, offset, part_bytes.min(length - offset))
        });
        let puts = pieces.map(|(number, offset, bytes)| self.put(number, offset, bytes));
        futures::stream::iter(puts)
            .buffered(IN_FLIGHT)
            .try_collect()
            .await
    }

    async fn put(&self, number: u64, offset: u64, bytes: u64) -> Result<Part, Error> {
        let number = u32::try_from(number)
            .map_err(|_| Error::Usage("too many parts: make them larger".to_owned()))?;
        let (file, keys) = (Arc::clone(&self.file), self.keys.clone());
        let scratch = self.scratch.to_owned();
        let packed = tokio::task::spawn_blocking(move || {
            let length = usize::try_from(bytes).map_err(io::Error::other);
            let buffer = length.and_then(|length| {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, offset)?;
                Ok(buffer)
            });
            let buffer = buffer.map_err(Error::file(&scratch))?;
            part::pack(number, &buffer, keys.as_deref())
        });
        let (part, object) = packed.await.map_err(ended)??;
        let put = self
            .repository
            .put_part(self.id, self.attempt, number, object);
        put.await?;
        Ok(part)
    }
}

fn origin(fetched: &Fetched) -> Origin {
    Origin {
        endpoint: fetched.endpoint.clone(),
        cluster_id: format!("{:x}", fetched.cluster_id),
        member_id: format!("{:x}", fetched.member_id),
        version: fetched.version.clone(),
    }
}

fn contents(fetched: &Fetched, summary: &Summary) -> Snapshot {
    Snapshot {
        size: fetched.length,
        sha256: fetched.sha256.clone(),
        revision: summary.revision,
        compact_revision: summary.compact_revision,
        hash: summary.hash,
        raft_index: summary.index,
        raft_term: summary.term,
        keys: summary.keys,
        leases: summary.leases,
        users: summary.users,
        roles: summary.roles,
    }
}

/// What the file holds; a server whose snapshot cannot be read is named.
async fn summary(file: Arc<File>, fetched: &Fetched) -> Result<Summary, Error> {
    let database = Database {
        file,
        length: fetched.length,
    };
    let read = tokio::task::spawn_blocking(move || summarize(database));
    read.await.map_err(ended)?.map_err(|error| Error::Snapshot {
        endpoint: fetched.endpoint.clone(),
        what: error.to_string(),
    })
}

/// The database in the file.
struct Database {
    file: Arc<File>,
    length: u64,
}

impl bolt::Source for Database {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Error::Key("no random numbers".to_owned()))?;
    Ok(bytes)
}

pub(super) fn ended(error: tokio::task::JoinError) -> Error {
    Error::Usage(format!("a thread ended: {error}"))
}
