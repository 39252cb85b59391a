//! Backups as objects in a store (S3, Google Cloud Storage, Azure, a directory): save, list, fetch, verify, prune, and
//! restore into a new cluster.
//!
//! A backup is a snapshot in etcd's format, cut into parts that are compressed, encrypted if the user gives a key, and
//! named in a manifest:
//!
//! ```text
//! PREFIX/ID/ATTEMPT/00000001   a part
//! PREFIX/ID/manifest           what the backup holds and its parts; written last, and only if there is none
//! PREFIX/ID/verified/TIME      the result of a verification
//! PREFIX/archive/CLUSTER/RANGE entries of the log behind the backups
//! ```
//!
//! What no manifest names is left of a `save` that did not end, and `prune` removes it. Never deletes the newest good
//! backup, never reads anything of a cluster but the snapshot itself, and knows nothing of Kubernetes.

pub mod archive;
pub mod cipher;
pub mod fetch;
pub mod follow;
pub mod location;
pub mod manifest;
mod part;
pub mod prune;
pub mod repository;
pub mod restore;
pub mod retention;
pub mod save;
pub mod source;
pub mod verify;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

/// Why something about a backup could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the user gave cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The store refused, or could not be reached.
    #[error("{doing} failed in the store {url}{}: {}", advice(error), line(error))]
    Store {
        /// What was tried.
        doing: String,
        /// The store.
        url: String,
        /// Why; its text has the texts of its causes in it.
        error: object_store::Error,
    },
    /// There is no such backup.
    #[error("there is no backup {id} in {url}: `quorate backup list --to {url}` lists them")]
    NotFound {
        /// The backup.
        id: String,
        /// The store.
        url: String,
    },
    /// There is neither a backup nor a snapshot.
    #[error(
        "{path} is neither a backup (there is no {path}/manifest) nor a snapshot (there is no object {path}) in {url}: `quorate backup list` lists the backups of a folder"
    )]
    NothingThere {
        /// Where it was looked for, below the URL.
        path: String,
        /// The store.
        url: String,
    },
    /// What is stored is not what was saved: evidence against this backup, whatever the circumstances.
    #[error("the backup {id} cannot be restored: {what}")]
    Damaged {
        /// The backup.
        id: String,
        /// What is wrong.
        what: String,
    },
    /// The key does not fit.
    #[error("{0}")]
    Key(String),
    /// An object of an archive is not what was stored.
    #[error("{0}")]
    Archive(String),
    /// No backup and archive lead to the moment that is asked for.
    #[error("{0}")]
    Moment(String),
    /// No member gave a snapshot.
    #[error("no snapshot: {0}")]
    Source(String),
    /// The member that is to found a cluster took no snapshot.
    #[error("{0}")]
    Target(String),
    /// Its volume has no room for one.
    #[error("{0}")]
    TargetFull(String),
    /// What a member gave cannot be restored.
    #[error("the snapshot that {endpoint} sent is not a whole database: {what}")]
    Snapshot {
        /// The member.
        endpoint: String,
        /// What is wrong.
        what: String,
    },
    /// A cluster that follows another one cannot go on.
    #[error("{0}")]
    Follow(String),
    /// A file on this machine.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A signal, or the end of the time that it may take.
    #[error("{0}")]
    Interrupted(String),
    /// What is stored says neither that the backup is whole nor that it is damaged.
    #[error("the backup {id} cannot be used now: {what}")]
    Unclear {
        /// The backup.
        id: String,
        /// Why not.
        what: String,
    },
    /// The throw-away member of a verification did not start or answer: says nothing about the backup.
    #[error("the member that was to be compared did not start: {0}")]
    Member(String),
}

/// What to do about an error of a store, behind the text.
fn advice(error: &object_store::Error) -> &'static str {
    if is_elsewhere(error) {
        return " (it is in another region: set AWS_REGION, or `region` of the EtcdBackupStore)";
    }
    match is_refused(error) {
        false => "",
        true if is_unknown(error)
            || matches!(error, object_store::Error::Unauthenticated { .. }) =>
        {
            " (its credentials are wrong or have expired: renew them and repeat)"
        }
        true => {
            " (its credentials do not permit this: they need to list, read, write and delete objects below the prefix)"
        }
    }
}

/// Whether a store of S3's API is in another region than the request was signed for: its servers say so, or where to
/// go instead.
fn is_elsewhere(error: &object_store::Error) -> bool {
    let text = error.to_string();
    let codes = ["AuthorizationHeaderMalformed", "PermanentRedirect"];
    codes.iter().any(|code| text.contains(code)) && text.contains("egion")
}

/// Whether a store refuses whoever asks. The errors of lists are generic ones, with the status in their text.
fn is_refused(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => true,
        object_store::Error::Generic { .. } => {
            let text = error.to_string();
            text.contains("403 Forbidden") || text.contains("401 Unauthorized")
        }
        _ => false,
    }
}

/// Whether a store says, with the status of a right that is missing, that it does not know the credentials.
fn is_unknown(error: &object_store::Error) -> bool {
    let text = error.to_string();
    let codes = [
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "ExpiredToken",
        "InvalidToken",
        "AuthenticationFailed",
        "AuthorizationFailure",
    ];
    codes.iter().any(|code| text.contains(code))
}

/// Characters of a store's answer that are shown.
const ANSWER: usize = 500;

/// The text of a store, whose answers have several lines and echo the request, on one line, as far as it says why.
fn line(error: &object_store::Error) -> String {
    let text = error.to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(ANSWER) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Error {
    /// Whether a store refuses the credentials, or what they permit is not enough.
    pub fn refuses_credentials(&self) -> bool {
        matches!(self, Error::Store { error, .. } if is_refused(error))
    }

    fn file(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }

    fn damaged(id: &str, what: impl Into<String>) -> Error {
        Error::Damaged {
            id: id.to_owned(),
            what: what.into(),
        }
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        None => error.to_string(),
        Some(cause) => format!("{error}: {}", chain(cause)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    hex(&Sha256::digest(bytes))
}
