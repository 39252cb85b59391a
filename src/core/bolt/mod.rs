//! The file format of bbolt, both ways: a writer that makes a valid file from sorted keys with
//! memory for a page a level, and a reader that trusts nothing it finds.
//!
//! Never touches a file: the writer returns bytes to append, the reader reads from a [`Source`]. Does not interpret
//! keys; `snapshot` does.
//!
//! A file is a row of pages. Pages 0 and 1 each hold a meta record that names the root of a
//! B+tree of buckets; a bucket is a B+tree of its own, or, if small, a leaf inside the value that
//! names it. All numbers are little-endian; a page longer than one unit contains the number of further units.

mod layout;
mod read;
mod write;

#[cfg(test)]
mod tests;

use std::io;

pub use layout::{HEAD_BYTES, PAGE_BYTES};
pub use read::{Bucket, Cursor, Reader, Source};
pub use write::{Finished, Writer};

/// Largest key that the format allows, in bytes.
pub const MAX_KEY_BYTES: usize = 32_768;
/// Largest value that the format allows, in bytes.
pub const MAX_VALUE_BYTES: usize = (1 << 31) - 2;

/// Why a file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Keys were given out of order.
    #[error("the key {key} of bucket {bucket:?} does not lie after the one before")]
    Order {
        /// The bucket's name.
        bucket: String,
        /// The key, escaped.
        key: String,
    },
    /// A key or a value that the format cannot hold.
    #[error("a key of {key} bytes with a value of {value} bytes cannot be stored")]
    Size {
        /// Length of the key in bytes.
        key: usize,
        /// Length of the value in bytes.
        value: usize,
    },
    /// A bucket was written twice, or something outside of any.
    #[error("the buckets are not written one after another")]
    Bucket,
    /// The file is none of bbolt's.
    #[error("this is no database file of etcd: {0}")]
    Foreign(String),
    /// The file is damaged.
    #[error("the database is damaged at page {page}: {what}")]
    Damaged {
        /// Number of the page.
        page: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The file could not be read.
    #[error("cannot read the database")]
    Read(#[from] io::Error),
}

/// The result of what this room does.
pub type Result<T> = std::result::Result<T, Error>;
