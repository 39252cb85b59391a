//! The objects of a store, as backups. Reads and writes objects; never decides which to delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};

use super::cipher::{AttemptKeys, Key};
use super::manifest::{Manifest, Verification, check_id};
use super::{Error, part, sha256};

/// Manifests read at once.
const READS: usize = 8;
/// Longest manifest or verification: that of a terabyte has fewer bytes.
const MOST_TEXT: u64 = 16 << 20;
const MANIFEST: &str = "manifest";
const VERIFIED: &str = "verified";

/// A store, or a folder of one, whose only user is this program.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    url: String,
}

/// A backup as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub id: String,
    /// Its manifest; `None` if it has none, as long as `save` has not ended.
    pub manifest: Option<Result<Manifest, Unreadable>>,
    /// The text of the manifest.
    pub(super) text: Vec<u8>,
    /// The newest verification of it.
    pub verification: Option<Verification>,
    /// Every object of it.
    pub objects: Vec<Object>,
}

/// A manifest that says nothing.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Whether it is not what was written; otherwise it is another key's, a newer version's, or the store lists it and
    /// does not give it.
    pub damaged: bool,
    /// What is wrong with it.
    pub what: String,
}

/// An object of a backup.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its place in the store.
    pub path: Path,
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the store's clock.
    pub modified: Timestamp,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The manifest.
    Manifest,
    /// A part of an attempt.
    Part {
        /// The attempt.
        attempt: String,
        /// Its number.
        number: u32,
    },
    /// The result of a verification.
    Verification,
}

impl Repository {
    /// The folder `prefix` of a store that is known as `url`.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, url: String) -> Repository {
        Repository { store, prefix, url }
    }

    /// The URL by which the user knows it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A folder of it.
    pub(super) fn below(&self, folder: &[&str]) -> Repository {
        let deeper = |prefix: Path, name: &&str| prefix.join(*name);
        let names = folder.iter().map(|name| format!("/{name}"));
        Repository {
            store: Arc::clone(&self.store),
            prefix: folder.iter().fold(self.prefix.clone(), deeper),
            url: names.fold(self.url.trim_end_matches('/').to_owned(), |url, name| {
                url + &name
            }),
        }
    }

    /// Every backup, the oldest name first. What is not ours is left out. With keys, what none of them signed counts as
    /// not readable.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self, keys: &[Key]) -> Result<Vec<Stored>, Error> {
        self.list_below(None, keys).await
    }

    /// One backup.
    ///
    /// # Errors
    /// [`Error::NotFound`], and those of the store.
    pub async fn find(&self, id: &str, keys: &[Key]) -> Result<Stored, Error> {
        check_id(id)?;
        let found = self.list_below(Some(id), keys).await?;
        found.into_iter().next().ok_or_else(|| self.not_found(id))
    }

    pub(super) fn not_found(&self, id: &str) -> Error {
        Error::NotFound {
            id: id.to_owned(),
            url: self.url.clone(),
        }
    }

    async fn list_below(&self, id: Option<&str>, keys: &[Key]) -> Result<Vec<Stored>, Error> {
        let below = match id {
            None => self.prefix.clone(),
            Some(id) => self.prefix.clone().join(id),
        };
        let mut listing = self.store.list(Some(&below));
        let mut backups: BTreeMap<String, Vec<Object>> = BTreeMap::new();
        while let Some(meta) = listing.next().await {
            let meta = meta.map_err(self.failed("listing objects"))?;
            let Some((id, kind)) = self.parse(&meta.location) else {
                continue;
            };
            let modified = Timestamp::from_second(meta.last_modified.timestamp());
            backups.entry(id).or_default().push(Object {
                path: meta.location,
                kind,
                size: meta.size,
                modified: modified.unwrap_or_default(),
            });
        }
        let read = backups
            .into_iter()
            .map(|(id, objects)| self.stored(id, objects, keys));
        futures::stream::iter(read)
            .buffered(READS)
            .try_collect()
            .await
    }

    async fn stored(
        &self,
        id: String,
        objects: Vec<Object>,
        keys: &[Key],
    ) -> Result<Stored, Error> {
        let mut stored = Stored {
            id,
            manifest: None,
            text: Vec::new(),
            verification: None,
            objects,
        };
        let mut objects = stored.objects.iter();
        if !objects.any(|it| it.kind == Kind::Manifest) {
            return Ok(stored);
        }
        let id = stored.id.as_str();
        let text = match self.manifest_bytes(id).await {
            Ok(Some(text)) => text,
            // Deleted meanwhile, or a store that contradicts itself: nothing to decide on.
            Ok(None) => {
                let what = "its manifest is listed and the store does not give it".to_owned();
                let damaged = false;
                stored.manifest = Some(Err(Unreadable { damaged, what }));
                return Ok(stored);
            }
            Err(error @ Error::Unclear { .. }) => {
                stored.manifest = Some(Err(Unreadable::from(error)));
                return Ok(stored);
            }
            Err(error) => return Err(error),
        };
        match read(id, &text, keys) {
            Err(error) => stored.manifest = Some(Err(error.into())),
            Ok((manifest, keys)) => {
                let found = self.verification(&stored, &text, keys.as_ref()).await?;
                stored.verification = found;
                stored.manifest = Some(Ok(manifest));
            }
        }
        stored.text = text;
        Ok(stored)
    }

    /// The newest verification of this manifest, by the time in it: that of an object is another one in a copy of the
    /// store. One that cannot be read says nothing.
    async fn verification(
        &self,
        stored: &Stored,
        text: &[u8],
        keys: Option<&AttemptKeys>,
    ) -> Result<Option<Verification>, Error> {
        let manifest = sha256(text);
        let mut newest: Option<Verification> = None;
        let objects = stored.objects.iter();
        for record in objects.filter(|it| it.kind == Kind::Verification) {
            let read = self.get(&record.path, MOST_TEXT, "reading a verification");
            let bytes = match read.await {
                Ok(bytes) => bytes,
                Err(Error::Unclear { .. }) => None,
                Err(error) => return Err(error),
            };
            let opened = bytes.map(|bytes| Verification::open(&stored.id, &bytes, keys));
            if let Some(Ok(it)) = opened
                && it.manifest == manifest
                && newest.as_ref().is_none_or(|before| before.at < it.at)
            {
                newest = Some(it);
            }
        }
        Ok(newest)
    }

    /// The text of a manifest, if there is one.
    pub(super) async fn manifest_bytes(&self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.prefix.clone().join(id).join(MANIFEST);
        self.get(&path, MOST_TEXT, &format!("reading the manifest of {id}"))
            .await
    }

    /// Writes a manifest if there is none; false if there is one.
    pub(super) async fn create_manifest(&self, id: &str, text: &[u8]) -> Result<bool, Error> {
        let path = self.prefix.clone().join(id).join(MANIFEST);
        let payload = PutPayload::from(text.to_vec());
        let put = self.store.put_opts(&path, payload, PutMode::Create.into());
        match put.await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed(&format!("writing the manifest of {id}"))(error)),
        }
    }

    pub(super) async fn put_part(
        &self,
        id: &str,
        attempt: &str,
        number: u32,
        object: Vec<u8>,
    ) -> Result<(), Error> {
        let path = self.part(id, attempt, number);
        let put = self.store.put(&path, PutPayload::from(object)).await;
        put.map_err(self.failed(&format!("writing part {number} of {id}")))?;
        Ok(())
    }

    /// An object of an attempt; `None` if it is gone.
    pub(super) async fn get_part(
        &self,
        id: &str,
        attempt: &str,
        number: u32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let path = self.part(id, attempt, number);
        // A sealed part that does not compress is a little longer than what it holds.
        let most = 2 * part::MOST_BYTES;
        self.get(&path, most, &format!("reading part {number} of {id}"))
            .await
    }

    /// Length of an object of any kind in bytes, and what changes with its content; `None` if there is none.
    pub(super) async fn measure(&self, name: &str) -> Result<Option<(u64, Option<String>)>, Error> {
        match self.store.head(&self.prefix.clone().join(name)).await {
            Ok(meta) => Ok(Some((meta.size, meta.e_tag))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(&format!("looking for {name}"))(error)),
        }
    }

    /// Some bytes of an object, if it is still what it was when it was measured.
    pub(super) async fn get_piece(
        &self,
        name: &str,
        bytes: std::ops::Range<u64>,
        e_tag: Option<&str>,
    ) -> Result<bytes::Bytes, Error> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(bytes)),
            if_match: e_tag.map(str::to_owned),
            ..GetOptions::default()
        };
        let path = self.prefix.clone().join(name);
        let read = async { self.store.get_opts(&path, options).await?.bytes().await };
        read.await.map_err(self.failed(&format!("reading {name}")))
    }

    pub(super) async fn put_verification(
        &self,
        id: &str,
        it: &Verification,
        keys: Option<&AttemptKeys>,
    ) -> Result<(), Error> {
        // Sorts by time.
        let name = it.at.strftime("%Y%m%dT%H%M%S%.9fZ").to_string();
        let path = self.prefix.clone().join(id).join(VERIFIED).join(name);
        let put = self
            .store
            .put(&path, PutPayload::from(it.seal(id, keys)?))
            .await;
        put.map_err(self.failed(&format!("recording the verification of {id}")))?;
        Ok(())
    }

    /// Deletes an object; one that is gone already is no error.
    pub(super) async fn delete(&self, path: &Path) -> Result<(), Error> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&format!("deleting {path}"))(error)),
        }
    }

    /// An object of at most so many bytes; `None` if it is not there.
    pub(super) async fn get(
        &self,
        path: &Path,
        most: u64,
        doing: &str,
    ) -> Result<Option<Vec<u8>>, Error> {
        let read = async {
            let found = self.store.get(path).await?;
            let size = found.meta.size;
            match size > most {
                true => Ok(Err(size)),
                false => found.bytes().await.map(Ok),
            }
        };
        match read.await {
            Ok(Ok(bytes)) => Ok(Some(bytes.into())),
            Ok(Err(size)) => Err(Error::Unclear {
                id: path.to_string(),
                what: format!("an object of {size} bytes is in the place of one of at most {most}"),
            }),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(doing)(error)),
        }
    }

    fn part(&self, id: &str, attempt: &str, number: u32) -> Path {
        let name = format!("{number:08}");
        self.prefix.clone().join(id).join(attempt).join(name)
    }

    /// The backup and the kind of an object; `None` for what is not ours.
    fn parse(&self, path: &Path) -> Option<(String, Kind)> {
        let names: Vec<_> = path.prefix_match(&self.prefix)?.collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let (id, kind) = match names[..] {
            [id, MANIFEST] => (id, Kind::Manifest),
            [id, VERIFIED, _] => (id, Kind::Verification),
            [id, attempt, number] if number.len() == 8 => {
                let attempt = attempt.to_owned();
                let number = number.parse().ok()?;
                (id, Kind::Part { attempt, number })
            }
            _ => return None,
        };
        check_id(id).ok()?;
        Some((id.to_owned(), kind))
    }

    pub(super) fn failed(&self, doing: &str) -> impl FnOnce(object_store::Error) -> Error + use<> {
        let (doing, url) = (doing.to_owned(), self.url.clone());
        move |error| Error::Store { doing, url, error }
    }
}

/// Whether there is no such object. In a directory, a file has nothing below it.
pub(super) fn is_absent(error: &object_store::Error) -> bool {
    let is_file = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::NotADirectory)
    };
    let first: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut causes = std::iter::successors(first, |error| error.source());
    matches!(error, object_store::Error::NotFound { .. }) || causes.any(is_file)
}

/// The manifest in a text and its keys; with keys, only if one of them signed it.
fn read(id: &str, text: &[u8], keys: &[Key]) -> Result<(Manifest, Option<AttemptKeys>), Error> {
    match keys.is_empty() {
        true => Ok((Manifest::open(id, text)?, None)),
        false => read_signed(id, text, keys),
    }
}

/// The same, and without keys only if it is not encrypted.
pub(super) fn read_signed(
    id: &str,
    text: &[u8],
    keys: &[Key],
) -> Result<(Manifest, Option<AttemptKeys>), Error> {
    let manifest = Manifest::open(id, text)?;
    let keys = manifest.keys(keys)?;
    Manifest::authenticate(id, text, keys.as_ref())?;
    Ok((manifest, keys))
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        match error {
            Error::Damaged { what, .. } => Self {
                damaged: true,
                what,
            },
            Error::Unclear { what, .. } => Self {
                damaged: false,
                what,
            },
            other => Self {
                damaged: false,
                what: other.to_string(),
            },
        }
    }
}

impl Stored {
    /// What is known against it without reading its parts; `None` for a backup that looks whole.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        let manifest = match self.manifest.as_ref()? {
            Ok(manifest) => manifest,
            Err(unreadable) => return unreadable.damaged.then(|| unreadable.what.clone()),
        };
        let sizes = self.part_sizes(&manifest.attempt);
        for (number, part) in (1..).zip(&manifest.parts) {
            match sizes.get(&number) {
                None => return Some(format!("part {number} of {} is gone", manifest.parts.len())),
                Some(size) if *size != part.stored => {
                    return Some(format!(
                        "part {number} has {size} bytes and had {} when it was saved",
                        part.stored
                    ));
                }
                Some(_) => {}
            }
        }
        self.verification.as_ref()?.failure.clone()
    }

    /// Whether it was restored in its newest verification.
    #[must_use]
    pub fn verified(&self) -> bool {
        let newest = self.verification.as_ref();
        newest.is_some_and(|it| it.failure.is_none())
    }

    /// Its manifest, for whoever needs one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what was written, [`Error::Unclear`] if there is none or it says nothing.
    pub(super) fn expect_manifest(&self) -> Result<&Manifest, Error> {
        match &self.manifest {
            Some(Ok(manifest)) => Ok(manifest),
            Some(Err(unreadable)) if unreadable.damaged => {
                Err(Error::damaged(&self.id, unreadable.what.clone()))
            }
            Some(Err(unreadable)) => Err(Error::Unclear {
                id: self.id.clone(),
                what: unreadable.what.clone(),
            }),
            None => Err(Error::Unclear {
                id: self.id.clone(),
                what: "it has no manifest: `save` has not ended, or did not end".to_owned(),
            }),
        }
    }

    /// When its manifest was written, by the store's clock.
    pub(super) fn written(&self) -> Option<Timestamp> {
        let mut objects = self.objects.iter();
        let manifest = objects.find(|object| object.kind == Kind::Manifest);
        manifest.map(|object| object.modified)
    }

    /// Its manifest, if it can be read.
    pub(super) fn known(&self) -> Option<&Manifest> {
        self.manifest.as_ref()?.as_ref().ok()
    }

    /// The lengths of the objects of an attempt, by the numbers of their parts.
    pub(super) fn part_sizes(&self, of: &str) -> BTreeMap<u32, u64> {
        let objects = self.objects.iter();
        let parts = objects.filter_map(|object| match &object.kind {
            Kind::Part { attempt, number } if attempt == of => Some((*number, object.size)),
            _ => None,
        });
        parts.collect()
    }
}
