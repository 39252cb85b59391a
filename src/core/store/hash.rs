//! The hash of the key space, equal to etcd's `HashKV` (3.7) for the same history. Never
//! depends on what has been reclaimed yet.
//!
//! It is a CRC32C over the string `key` and then, for each stored revision in order, its key in
//! etcd's backend (8 bytes main, `_`, 8 bytes sub, `t` for a tombstone) and the marshalled
//! `mvccpb.KeyValue`.

use std::ops::ControlFlow;

use bytes::Bytes;
use prost::Message;

use super::pace::Pace;
use super::record::Record;
use super::rows::put_row_key;
use super::span::Span;
use super::state::State;
use super::{DamagedValue, Error, KeyValue, Revision};

/// A hash of the key space. Two members may be compared only where both revisions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    /// CRC32C.
    pub hash: u32,
    /// The revision of the last compaction, -1 if there was none.
    pub compact_revision: Revision,
    /// The revision that was hashed.
    pub hash_revision: Revision,
    /// The current revision.
    pub revision: Revision,
}

pub(super) fn hash_kv(
    state: &State,
    revision: Revision,
    pace: &Pace<'_>,
) -> Result<KeyHash, Error> {
    let (current, compacted) = (state.revision, state.compacted);
    if revision > 0 && revision < compacted {
        return Err(Error::Compacted { compacted });
    }
    if revision > current {
        return Err(Error::FutureRevision { current });
    }
    // Below 0 there is nothing, and etcd hashes that.
    let revision = if revision == 0 { current } else { revision };
    Ok(hash_between(state, compacted, revision, pace)?)
}

/// The hash at a revision of a store that was compacted at `compacted` and has reclaimed nothing
/// above that.
pub(super) fn hash_between(
    state: &State,
    compacted: Revision,
    revision: Revision,
    pace: &Pace<'_>,
) -> Result<KeyHash, DamagedValue> {
    let mut hasher = Hasher {
        hash: crc32c::crc32c(b"key"),
        buffer: Vec::new(),
    };
    for record in compacted_records(state, compacted, revision, pace) {
        pace.step();
        hasher.write(&record)?;
    }
    let log = state
        .log
        .iter_from(state.log.position(compacted.saturating_add(1)));
    for entry in log.take_while(|entry| entry.record.main <= revision) {
        pace.step();
        hasher.write(&entry.record)?;
    }
    Ok(KeyHash {
        hash: hasher.hash,
        compact_revision: compacted,
        hash_revision: revision,
        revision: state.revision,
    })
}

/// What a compaction kept and etcd hashes, in order of revision: records that are still current
/// at `revision`; if no key lives then, all that it kept (a quirk of etcd's). Its tombstones are
/// never part of it.
fn compacted_records(
    state: &State,
    compacted: Revision,
    revision: Revision,
    pace: &Pace<'_>,
) -> Vec<Record> {
    let mut records = Vec::new();
    if compacted < 0 || revision < 0 {
        return records;
    }
    let none_live = state.count_paced(Span::ALL, revision, pace) == 0;
    let at = if none_live { compacted } else { revision };
    state.visit_paced(Span::ALL, at, pace, &mut |record| {
        if record.main <= compacted {
            records.push(record.clone());
        }
        ControlFlow::Continue(())
    });
    records.sort_unstable_by(|a, b| {
        pace.step();
        a.place().cmp(&b.place())
    });
    records
}

struct Hasher {
    hash: u32,
    buffer: Vec<u8>,
}

impl Hasher {
    fn write(&mut self, record: &Record) -> Result<(), DamagedValue> {
        self.buffer.clear();
        put_row_key(record.main, record.sub, record.tombstone, &mut self.buffer);
        let kv = if record.tombstone {
            KeyValue {
                key: Bytes::copy_from_slice(record.key()),
                ..KeyValue::default()
            }
        } else {
            record.to_kv()?
        };
        // A vector grows, so encoding into it cannot fail.
        let _ = kv.encode(&mut self.buffer);
        self.hash = crc32c::crc32c_append(self.hash, &self.buffer);
        Ok(())
    }
}
