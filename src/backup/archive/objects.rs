//! The objects of an archive in a store: lists, reads, writes and deletes them. Never decides which.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, PutMode, PutPayload};

use super::chain::newest_run;
use super::names::{Range, cluster, folder};
use super::segment::{Head, MOST_HEAD, Segment, head};
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::manifest::ARCHIVE;
use crate::backup::repository::{Repository, is_absent};
use crate::mutants::mutant;

/// Longest object: entries that do not compress, with their head.
const MOST_OBJECT: u64 = 80 << 20;

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// ID of the cluster.
    pub cluster_id: u64,
    /// Its entries.
    pub range: Range,
    /// Bytes of the object.
    pub size: u64,
    /// When it was written, by the store's clock.
    pub modified: Timestamp,
}

/// The archive of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// ID of the cluster.
    pub cluster_id: u64,
    /// The newest entries without a hole.
    pub run: Range,
    /// Objects of all of it.
    pub objects: usize,
    /// Their bytes.
    pub stored: u64,
    /// Everything that was committed at this time is stored; absent if that is not known, or the head is not read.
    pub as_of: Option<Timestamp>,
}

/// An object below the archive, whatever it is.
pub(super) struct Listed {
    pub(super) cluster_id: u64,
    pub(super) name: String,
    size: u64,
    pub(super) modified: Timestamp,
}

impl Repository {
    /// Every object with entries, or those of one cluster.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn archived(&self, of: Option<u64>) -> Result<Vec<Archived>, Error> {
        let listed = self.below_archive(of).await?.into_iter();
        let entries = listed.filter_map(|it| {
            Some(Archived {
                cluster_id: it.cluster_id,
                range: Range::parse(&it.name)?,
                size: it.size,
                modified: it.modified,
            })
        });
        let mut found: Vec<Archived> = entries.collect();
        found.sort_by_key(|it| (it.cluster_id, it.range));
        Ok(found)
    }

    /// Every object in the folders of clusters, or in that of one.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn below_archive(&self, of: Option<u64>) -> Result<Vec<Listed>, Error> {
        let mut below = self.prefix.clone().join(ARCHIVE);
        if let Some(cluster_id) = of {
            below = below.join(folder(cluster_id));
        }
        let root = self.prefix.clone().join(ARCHIVE);
        let mut listing = self.store.list(Some(&below));
        let mut found = Vec::new();
        while let Some(meta) = listing.next().await {
            let meta = match meta {
                Ok(meta) => meta,
                // Deleted meanwhile.
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(self.failed("listing the archive")(error)),
            };
            let Some(names) = meta.location.prefix_match(&root) else {
                continue;
            };
            let names: Vec<_> = names.collect();
            let [cluster_of, name] = &names[..] else {
                continue;
            };
            let Some(cluster_id) = cluster(cluster_of.as_ref()) else {
                continue;
            };
            let modified = Timestamp::from_second(meta.last_modified.timestamp());
            found.push(Listed {
                cluster_id,
                name: name.as_ref().to_owned(),
                size: meta.size,
                modified: modified.unwrap_or_default(),
            });
        }
        Ok(found)
    }

    /// What there is of each cluster.
    ///
    /// # Errors
    /// Those of the store. A head that cannot be read says nothing of the time.
    pub async fn archives(&self, keys: &[Key]) -> Result<Vec<Overview>, Error> {
        let archived = self.archived(None).await?;
        let mut overviews = Vec::new();
        for of_one in archived.chunk_by(|a, b| a.cluster_id == b.cluster_id) {
            let Some(run) = newest_run(of_one.iter().map(|it| it.range)) else {
                continue;
            };
            let cluster_id = of_one[0].cluster_id;
            let last = of_one.iter().find(|it| it.range.last == run.last);
            let head = match last {
                Some(last) => self.archived_head(cluster_id, last.range, keys).await,
                None => Ok(None),
            };
            let marks = match head {
                Ok(head) => head.map(|head| head.marks).unwrap_or_default(),
                Err(Error::Store { doing, url, error }) => {
                    return Err(Error::Store { doing, url, error });
                }
                Err(_) => Vec::new(),
            };
            // What says nothing is as good as none.
            let idle = self.idle_mark(cluster_id, keys).await.ok().flatten();
            let marks = marks.into_iter();
            let marks = marks.chain(idle.filter(|mark| mark.index == run.last));
            let as_of = marks.filter_map(|mark| mark.as_of_ms).max();
            overviews.push(Overview {
                cluster_id,
                run,
                objects: of_one.len(),
                stored: of_one.iter().map(|it| it.size).sum(),
                as_of: as_of.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
            });
        }
        Ok(overviews)
    }

    /// Stores an object, unless there is one of its name with the same entries; false if there is, and what this one knows
    /// of the time is not stored.
    ///
    /// # Errors
    /// [`Error::Archive`] and [`Error::Key`] if there is one of its name that does not hold them; those of the store.
    pub(super) async fn create_archived(
        &self,
        cluster_id: u64,
        range: Range,
        object: Vec<u8>,
        keys: &[Key],
    ) -> Result<bool, Error> {
        let path = self.archive_path(cluster_id, range);
        let object = bytes::Bytes::from(object);
        let payload = PutPayload::from(object.clone());
        let put = self
            .store
            .put_opts(&path, payload, PutMode::Create.into())
            .await;
        match put {
            Ok(_) => Ok(true),
            // Stored by another archiver, or by an attempt whose answer was lost.
            Err(object_store::Error::AlreadyExists { .. }) => {
                let same = self.same_entries(cluster_id, range, &object, keys);
                same.await.map(|()| false)
            }
            Err(error) => Err(self.failed(&format!("archiving {range}"))(error)),
        }
    }

    /// Whether the object that is there holds the entries of this one: each archiver has marks and random bytes of its own.
    async fn same_entries(
        &self,
        cluster_id: u64,
        range: Range,
        object: &[u8],
        keys: &[Key],
    ) -> Result<(), Error> {
        mutant!(ArchiveExistingBelieved => return Ok(()));
        let there = match self.archived_segment(cluster_id, range, keys).await {
            // Merged or pruned by another process, or a store that contradicts itself.
            Ok(None) => {
                return Err(Error::Unclear {
                    id: "archive".to_owned(),
                    what: format!("{range} were there and are gone: repeat"),
                });
            }
            Ok(Some(there)) => Ok(there),
            Err(Error::Archive(what) | Error::Key(what)) => Err(what),
            Err(error) => return Err(error),
        };
        let ours = Segment::decode((cluster_id, range), object, keys)?;
        let why = match there {
            Ok(there) if there.holds_the_same(&ours) => return Ok(()),
            Ok(_) => "other entries are in it".to_owned(),
            Err(what) => what,
        };
        Err(Error::Archive(format!(
            "{range} cannot be archived: there is an object of their name that does not hold them ({why}). If nobody needs it, delete {}/{}, and they are stored",
            self.archive_url(cluster_id),
            range.name()
        )))
    }

    /// The entries in an object; `None` if it is gone.
    pub(super) async fn archived_segment(
        &self,
        cluster_id: u64,
        range: Range,
        keys: &[Key],
    ) -> Result<Option<Segment>, Error> {
        let path = self.archive_path(cluster_id, range);
        let doing = format!("reading {range} of the archive");
        match self.get(&path, MOST_OBJECT, &doing).await? {
            None => Ok(None),
            Some(object) => Segment::decode((cluster_id, range), &object, keys).map(Some),
        }
    }

    /// The head of an object; `None` if it is gone.
    pub(super) async fn archived_head(
        &self,
        cluster_id: u64,
        range: Range,
        keys: &[Key],
    ) -> Result<Option<Head>, Error> {
        let path = self.archive_path(cluster_id, range);
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..MOST_HEAD as u64)),
            ..GetOptions::default()
        };
        let read = async { self.store.get_opts(&path, options).await?.bytes().await };
        match read.await {
            Ok(bytes) => head((cluster_id, range), &bytes, keys).map(Some),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(&format!("reading {range} of the archive"))(
                error,
            )),
        }
    }

    /// Deletes an object; one that is gone already is no error.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_archived(&self, cluster_id: u64, range: Range) -> Result<(), Error> {
        self.delete(&self.archive_path(cluster_id, range)).await
    }

    /// The store has not answered for so long.
    pub(super) fn silent(&self, patience: Duration) -> Error {
        let text = format!("no answer in {} s", patience.as_secs());
        self.failed("archiving")(object_store::Error::Generic {
            store: "archive",
            source: text.into(),
        })
    }

    /// The folder of a cluster, as a URL.
    pub(super) fn archive_url(&self, cluster_id: u64) -> String {
        let url = self.url().trim_end_matches('/');
        format!("{url}/{ARCHIVE}/{}", folder(cluster_id))
    }

    fn archive_path(&self, cluster_id: u64, range: Range) -> Path {
        let folder = folder(cluster_id);
        let path = self.prefix.clone().join(ARCHIVE).join(folder);
        path.join(range.name())
    }
}
