//! `restore`: a backup of ours, or any snapshot of etcd's, from a store, or the data of the one member that is left, to
//! the standby that founds a cluster from it.
//! What is sent was checked before, and what arrived is compared with it. Never founds a cluster.

mod download;
mod recovery;
mod target;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::Error;
use super::archive::{At, Moment, Reached, Source, file};
use super::cipher::Key;
use super::manifest::check_id;
use super::repository::Repository;
pub(super) use download::{nameless, ready};
pub use recovery::Recovery;
pub use target::Target;

/// What to restore, and where to.
#[derive(Debug)]
pub struct Restore {
    /// Where it is. With a moment it may be the folder of the backups.
    pub path: ObjectPath,
    /// The moment, by the archive behind the backup; `None`: that of the backup.
    pub at: Option<Moment>,
    /// The user's keys, for a backup that is encrypted.
    pub keys: Vec<Key>,
    /// A directory for the snapshot, which needs as many bytes as it has.
    pub scratch: PathBuf,
    /// Who gets it.
    pub target: Target,
}

/// What a standby holds afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// SHA-256 of the snapshot, in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub size: u64,
    /// Revision of the data.
    pub revision: i64,
    /// Keys.
    pub keys: u64,
    /// The moment that was reached, if one was asked for.
    pub moment: Option<Reached>,
}

/// A snapshot that is here.
pub(super) struct Snapshot {
    /// It has no name any more.
    file: Arc<File>,
    length: u64,
    sha256: String,
    contents: Contents,
    /// ID of the living cluster that it was taken from to be followed; 0: of none.
    pub(super) source: u64,
    /// A manifest says what it holds; else it was found here.
    saved: bool,
}

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    revision: i64,
    keys: u64,
    /// etcd's HashKV at that revision.
    hash: u32,
}

impl Restore {
    /// Restores.
    ///
    /// # Errors
    /// [`Error::NothingThere`], [`Error::Damaged`] if it is not what was saved or not what arrived, [`Error::Target`] if
    /// the standby takes no snapshot, [`Error::TargetFull`] if it has no room for it; those of the store, the key and the file.
    pub async fn run(&self, repository: &Repository) -> Result<Sent, Error> {
        if let Some(moment) = self.at {
            return self.to(moment, repository).await;
        }
        let located = self.locate(repository).await?;
        // Nothing is downloaded for a standby that takes nothing, or that has it.
        let there = self.target.wait().await?;
        if let Some(sent) = there.and_then(|staged| located.is_there(&staged)) {
            return Ok(sent);
        }
        let snapshot = self.download(located).await?;
        deliver(&self.target, snapshot, &self.path.text).await
    }

    /// The same of a moment: of the backup of this path, or of the best one of this folder.
    async fn to(&self, moment: Moment, repository: &Repository) -> Result<Sent, Error> {
        // Nothing is read for a standby that takes nothing.
        self.target.wait().await?;
        let (folders, name) = self.path.split();
        let parent = repository.below(&folders);
        let is_backup = check_id(name).is_ok() && parent.manifest_bytes(name).await?.is_some();
        let folder = parent.below(&[name]);
        let at = At {
            moment,
            keys: &self.keys,
            scratch: &self.scratch,
        };
        let source = match is_backup {
            true => Source {
                folder: &parent,
                id: Some(name),
            },
            false => Source {
                folder: &folder,
                id: None,
            },
        };
        let (file, reached) = file(source, &at).await?;
        let name = &self.path.text;
        let snapshot = ready(name, &self.scratch, file, None).await?;
        let sent = deliver(&self.target, snapshot, name).await?;
        Ok(Sent {
            moment: Some(reached),
            ..sent
        })
    }
}

/// Sends a snapshot, which errors name by `name`, and compares what arrived with it.
pub(super) async fn deliver(
    target: &Target,
    snapshot: Snapshot,
    name: &str,
) -> Result<Sent, Error> {
    let found = target.send(&snapshot).await?;
    if found != snapshot.contents {
        return Err(Error::damaged(
            name,
            format!(
                "revision {}, {} keys and hash {} were saved, and the standby found revision {}, {} keys and hash {}",
                snapshot.contents.revision,
                snapshot.contents.keys,
                snapshot.contents.hash,
                found.revision,
                found.keys,
                found.hash
            ),
        ));
    }
    Ok(Sent {
        sha256: snapshot.sha256,
        size: snapshot.length,
        revision: found.revision,
        keys: found.keys,
        moment: None,
    })
}

/// Where something is in a store, below its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    text: String,
}

impl ObjectPath {
    /// Parses names with slashes between them.
    ///
    /// # Errors
    /// [`Error::Usage`] with the rule.
    pub fn parse(text: &str) -> Result<ObjectPath, Error> {
        let fits = |name: &str| {
            !["", ".", ".."].contains(&name) && !name.contains(|c: char| c.is_control())
        };
        match text.split('/').all(fits) && object_store::path::Path::parse(text).is_ok() {
            true => Ok(ObjectPath {
                text: text.to_owned(),
            }),
            false => Err(Error::Usage(format!(
                "{text:?} is no path in a store: give names with '/' between them, none of which is empty, '.' or '..'"
            ))),
        }
    }

    /// The folders, and the last name.
    fn split(&self) -> (Vec<&str>, &str) {
        let mut names: Vec<&str> = self.text.split('/').collect();
        // There is one, as `parse` has seen.
        let last = names.pop().unwrap_or_default();
        (names, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_with_slashes_between_them() {
        for (text, folders, last) in [
            ("one", &[][..], "one"),
            (
                "a/b.c/20260101T000000Z-1",
                &["a", "b.c"],
                "20260101T000000Z-1",
            ),
        ] {
            let path = ObjectPath::parse(text).expect("a path");
            assert_eq!(path.split(), (folders.to_vec(), last));
        }
        for text in [
            "", "/", "/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a\nb",
        ] {
            let refused = ObjectPath::parse(text);
            assert!(matches!(refused, Err(Error::Usage(_))), "{text:?}");
        }
    }
}
