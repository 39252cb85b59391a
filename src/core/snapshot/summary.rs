//! What a database holds, in numbers that a member restored from it can be compared with. Reads the file twice, with
//! memory for a digest and a place a key; never builds a store.

use std::collections::BTreeMap;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::Error;
use super::import::Buckets;
use crate::bolt::Source;
use crate::store::{KeyValue, Rebuild, Revision, Row};

/// A database in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Level of etcd that wrote it; empty before 3.6.
    pub version: String,
    /// The revision of the store.
    pub revision: Revision,
    /// The revision of the last compaction, -1 without one.
    pub compact_revision: Revision,
    /// etcd's `HashKV` at the revision of the store.
    pub hash: u32,
    /// The last applied index of the log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Keys at that revision.
    pub keys: u64,
    /// Leases.
    pub leases: u64,
    /// Users.
    pub users: u64,
    /// Roles.
    pub roles: u64,
}

/// Reads a database through.
///
/// # Errors
/// Whatever keeps any part of it from being read.
pub fn summarize<S: Source>(source: S) -> Result<Summary, Error> {
    let buckets = Buckets::open(source)?;
    let meta = buckets.meta()?;
    let auth = buckets.auth()?;
    // Whatever a restore refuses is refused here.
    buckets.alarms(&mut Rebuild::new(meta.compacted))?;
    let (newest, last) = newest(&buckets, Revision::MAX)?;
    let keys = newest.values().filter(|place| !place.tombstone).count();
    // A quirk of etcd's: if no key lives, all that the compaction kept counts.
    let kept = match keys {
        0 => self::newest(&buckets, meta.compacted)?.0,
        _ => newest,
    };
    Ok(Summary {
        revision: last.max(meta.compacted).max(1),
        compact_revision: meta.compacted,
        hash: hash(&buckets, meta.compacted, &kept)?,
        index: meta.index,
        term: meta.term,
        keys: keys as u64,
        leases: buckets.leases()?.len() as u64,
        users: auth.users().count() as u64,
        roles: auth.roles().count() as u64,
        version: meta.version,
    })
}

/// A key, in the memory of a small one.
type KeyDigest = [u8; 16];

/// Where a key was last written.
#[derive(Clone, Copy)]
struct Place {
    main: Revision,
    sub: u32,
    tombstone: bool,
}

/// The last row of each key up to a revision, and the revision of the last row of all.
fn newest<S: Source>(
    buckets: &Buckets<S>,
    until: Revision,
) -> Result<(BTreeMap<KeyDigest, Place>, Revision), Error> {
    let (mut places, mut last) = (BTreeMap::new(), (0, 0));
    buckets.rows(|row| {
        row.check(last)?;
        last = (row.main, row.sub);
        if row.main <= until && !row.kv.key.is_empty() {
            let place = Place {
                main: row.main,
                sub: row.sub,
                tombstone: row.tombstone,
            };
            places.insert(digest(&row.kv.key), place);
        }
        Ok(())
    })?;
    Ok((places, last.0))
}

/// The hash that `store` computes of the same rows. A row up to the compaction counts if it is still current.
fn hash<S: Source>(
    buckets: &Buckets<S>,
    compacted: Revision,
    kept: &BTreeMap<KeyDigest, Place>,
) -> Result<u32, Error> {
    let mut hash = crc32c::crc32c(b"key");
    let mut value = Vec::new();
    buckets.rows(|row| {
        if !row.kv.key.is_empty() && (row.main > compacted || is_current(row, kept)) {
            value.clear();
            // A vector grows, so encoding into it cannot fail.
            let _ = match row.tombstone {
                false => row.kv.encode(&mut value),
                true => KeyValue {
                    key: row.kv.key.clone(),
                    ..KeyValue::default()
                }
                .encode(&mut value),
            };
            hash = crc32c::crc32c_append(hash, &row.name());
            hash = crc32c::crc32c_append(hash, &value);
        }
        Ok(())
    })?;
    Ok(hash)
}

fn is_current(row: &Row, kept: &BTreeMap<KeyDigest, Place>) -> bool {
    let place = kept.get(&digest(&row.kv.key));
    place.is_some_and(|place| (place.main, place.sub) == (row.main, row.sub) && !place.tombstone)
}

fn digest(key: &[u8]) -> KeyDigest {
    let digest = Sha256::digest(key);
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}
