//! The data directory as a whole: its lock, its subdirectories, and the refusal to use a
//! directory that holds something else.

use std::io;
use std::sync::Arc;

use super::device::{Disk, DiskLock};
use super::error::{Error, Result};
use super::frame;
use super::identity::{self, Identity, Phase};
use super::reserve::{self, or_without_reserve};
use super::starts;

pub(crate) const LOG: &str = "log";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const VALUES: &str = "values";
pub(crate) const LOCK: &str = "lock";
/// Names that a fresh volume may carry and that mean nothing.
const HARMLESS: [&str; 4] = ["lost+found", LOCK, "fixtures", reserve::NAME];

/// A locked data directory. The lock is released when the value is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    disk: Arc<dyn Disk>,
    identity: Option<Identity>,
    lock: Arc<dyn DiskLock>,
}

impl DataDirectory {
    /// Locks the directory, removes unfinished temporary files and reads the identity file.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it; [`Error::Foreign`] if it holds files of
    /// another program; [`Error::Identity`] if it holds a member's files but no identity.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self> {
        let root = || disk.describe("");
        let lock = disk.lock(LOCK).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::InUse { directory: root() },
            _ => Error::io("lock", disk.describe(LOCK), error),
        })?;
        let names = disk.list("").map_err(|e| Error::io("list", root(), e))?;
        let identity = Identity::load(&*disk)?;
        if identity.is_none() {
            refuse_unless_empty(&*disk, &names)?;
        }
        frame::remove_temporaries(&*disk, "")?;
        // Before anything is written: the volume may be full.
        for directory in [LOG, CHECKPOINTS] {
            disk.create_directory(directory)
                .map_err(|e| Error::io("create", disk.describe(directory), e))?;
            frame::remove_temporaries(&*disk, directory)?;
        }
        if let Some(identity) = &identity {
            // An earlier process may have stopped at a failed sync: what is read here need not be
            // on the disk. What is relied on from here on must be.
            or_without_reserve(&disk, || identity.store(&disk))?;
        }
        Ok(Self {
            disk,
            identity,
            lock: Arc::from(lock),
        })
    }

    /// The current directory, under the same lock, for reading or creating its files. That takes long if they are
    /// large, and a query for the disk's identity must not wait for it.
    pub fn share(&self) -> Self {
        Self {
            disk: Arc::clone(&self.disk),
            identity: self.identity.clone(),
            lock: Arc::clone(&self.lock),
        }
    }

    /// The disk below.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The identity stored here; `None` for a directory that was never used.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Replaces the identity file durably. Where it was deleted since it was stored, as by `kubeadm reset`, a removed
    /// member leaves the directory as it is: it would not be empty for the next one.
    ///
    /// # Errors
    /// As [`Identity::store`]; [`Error::Identity`] if it was deleted and this is no removed member.
    pub fn store_identity(&mut self, identity: Identity) -> Result<()> {
        if self.identity.is_some() && !Identity::is_there(&*self.disk)? {
            if identity.phase() < Phase::Removed {
                return Err(Error::Identity {
                    file: self.disk.describe(identity::NAME),
                    what: "it was deleted while the server ran".to_owned(),
                    remedy: "remove this member from the cluster and add it again with an empty data directory",
                });
            }
            self.identity = Some(identity);
            return Ok(());
        }
        or_without_reserve(&self.disk, || identity.store(&self.disk))?;
        self.identity = Some(identity);
        Ok(())
    }
}

/// Without an identity file only an empty directory may be used.
fn refuse_unless_empty(disk: &dyn Disk, names: &[String]) -> Result<()> {
    if names.iter().any(|name| name == "member") {
        return Err(Error::Foreign {
            file: disk.describe("member"),
            what: "this looks like a data directory of etcd, which this server cannot open"
                .to_owned(),
            remedy: "give an empty --data-dir and join the cluster as a new member, or restore a snapshot",
        });
    }
    let lost = |what: &str| Error::Identity {
        file: disk.describe(identity::NAME),
        what: format!("it is missing, but {what}"),
        remedy: "a member whose identity is lost must not start: remove it from the cluster and add it again with an empty data directory",
    };
    if names.iter().any(|name| name == starts::NAME) {
        return Err(lost("the file `starts` of a member is there"));
    }
    for directory in [LOG, CHECKPOINTS, VALUES] {
        if !names.iter().any(|name| name == directory) {
            continue;
        }
        let inside = disk
            .list(directory)
            .map_err(|e| Error::io("list", disk.describe(directory), e))?;
        if inside.iter().any(|name| !name.ends_with(".tmp")) {
            return Err(lost(&format!("{directory}/ holds files of a member")));
        }
    }
    let known = |name: &str| {
        HARMLESS.contains(&name)
            || [LOG, CHECKPOINTS, VALUES].contains(&name)
            || (name.starts_with(identity::NAME) && name.ends_with(".tmp"))
    };
    match names.iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(Error::Foreign {
            file: disk.describe(""),
            what: format!("it holds {name:?}, which is not this server's"),
            remedy: "give --data-dir a directory of its own, empty at first",
        }),
    }
}
