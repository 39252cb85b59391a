//! The state of a member as a database of etcd 3.7, and a state made from such a database: what
//! `etcdctl snapshot save` saves from either server, either can start from.
//!
//! Never touches a file, and never decides the membership of a restored cluster. Bytes are laid out by `bolt`; this
//! room handles etcd's buckets, keys and values.

mod export;
mod import;
pub mod replay;
mod schema;
mod summary;

#[cfg(test)]
mod tests;

pub use export::{Contents, estimate, export};
pub use import::{Changes, Imported, import, import_changed, import_placed, users};
pub use summary::{Summary, summarize};

/// The level of etcd whose schema is written, and the newest that is read.
pub const STORAGE_VERSION: &str = "3.7.0";

/// Why a database cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file's structure.
    #[error(transparent)]
    Bolt(#[from] crate::bolt::Error),
    /// The data do not fit together.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// Something in a bucket cannot be read.
    #[error("the database is damaged: bucket {bucket}, key {key:?}: {what}")]
    Damaged {
        /// The bucket.
        bucket: &'static str,
        /// The key, escaped.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// It is not a database that etcd has written, or of another level.
    #[error("{0}")]
    Unknown(String),
    /// What was made could not be stored.
    #[error("cannot store the database")]
    Write(#[from] std::io::Error),
}
