//! A stopped member's data with the end of its log, in a file as `etcdctl snapshot save` writes it: the database, and its
//! SHA-256 behind it. Never changes the member's directory, and never replaces a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Content, Failed, Member, machine, member, unusable};
use crate::bolt::HEAD_BYTES;
use crate::disk::{Phase, Stopped, open_stopped};
use crate::node::StateMachine;
use crate::server::snapshot_file::{hex, raw_sha256};
use crate::snapshot::{self, Contents};

/// What was saved.
#[derive(Debug)]
pub struct Saved {
    /// Whose data they are.
    pub member: Member,
    /// Bytes of the file.
    pub size: u64,
    /// SHA-256 of the database, in hexadecimal, as the file ends with it.
    pub sha256: String,
}

/// Why nothing was saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// A server runs in the directory.
    #[error("a server runs in {}: stop it, and repeat", .0.display())]
    Running(PathBuf),
    /// The directory has no data to give.
    #[error("{} {what}: `quorate recover plan` says which directory holds the longest log", directory.display())]
    NoData {
        /// The directory.
        directory: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The file.
    #[error("{}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The data cannot be written in etcd's format.
    #[error("cannot make the snapshot {}", file.display())]
    Snapshot {
        /// The file.
        file: PathBuf,
        /// Why.
        source: snapshot::Error,
    },
}

/// Saves the data of a directory into a new file.
///
/// # Errors
/// [`SaveError`]; no file is left behind then.
pub fn save(directory: &Path, file: &Path) -> Result<Saved, SaveError> {
    let no_data = |what: &str| SaveError::NoData {
        directory: directory.to_owned(),
        what: what.to_owned(),
    };
    let refused = |error: Failed| match unusable(&error) {
        Content::Running => SaveError::Running(directory.to_owned()),
        Content::Unusable { state, why } => no_data(&format!("is {state}: {why}")),
        _ => no_data(&error.to_string()),
    };
    let stopped = open_stopped(directory).map_err(|error| refused(error.into()))?;
    let Stopped::Member(stopped) = stopped else {
        return Err(no_data("holds no data of a member"));
    };
    let machine = machine(&stopped).map_err(refused)?;
    let own = stopped.identity.member_id;
    if stopped.identity.phase() == Phase::Removed || machine.membership().is_removed(own) {
        return Err(no_data(
            "is that of a member that was removed from its cluster",
        ));
    }
    let member = member(&stopped, &machine);
    let (size, sha256) = write(&machine, file)?;
    Ok(Saved {
        member,
        size,
        sha256,
    })
}

fn write(machine: &StateMachine, path: &Path) -> Result<(u64, String), SaveError> {
    let failed = |source| SaveError::File {
        file: path.to_owned(),
        source,
    };
    let mut options = File::options();
    // It holds everybody's data.
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path).map_err(failed)?;
    let written = fill(machine, &file);
    let written = written.and_then(|written| {
        sync_parent(path)?;
        Ok(written)
    });
    written.map_err(|source| {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
        match source {
            snapshot::Error::Write(source) => failed(source),
            source => SaveError::Snapshot {
                file: path.to_owned(),
                source,
            },
        }
    })
}

fn fill(machine: &StateMachine, file: &File) -> Result<(u64, String), snapshot::Error> {
    let contents = Contents {
        view: machine.view(),
        membership: Arc::clone(machine.membership()),
        index: machine.index(),
        term: machine.term(),
    };
    let mut offset = HEAD_BYTES as u64;
    let (head, length) = snapshot::export(&contents, |bytes| {
        file.write_all_at(bytes, offset)?;
        offset += bytes.len() as u64;
        Ok(())
    })?;
    file.write_all_at(&head, 0)?;
    let digest = raw_sha256(file, length)?;
    file.write_all_at(&digest, length)?;
    file.sync_all()?;
    Ok((length + digest.len() as u64, hex(&digest)))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
