//! One revision of one key. Never knows others of its key.
//!
//! With a million keys a word of a record is eight megabytes, and a piece of memory more of each at least sixteen: the key lies
//! in the record's own piece, and what most records have in common takes none.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use bytes::Bytes;
use triomphe::ThinArc;

use super::value::{Place, Value};
use super::{DamagedValue, Event, EventKind, KeyValue, LeaseId, Revision};

/// Assumed overhead of a record in bytes, in addition to its key and value: a constant of the format, because the
/// logical size of the store is part of its replicated state.
pub(super) const RECORD_OVERHEAD: u64 = 128;

/// The most bytes that the details of a record take.
const MOST_DETAILS: usize = 24;

/// A key and its details of up to so many bytes are put together without memory of their own.
const SHORT: usize = 256;

/// One revision of one key: one piece of memory with a counter, which clones share. The key lies behind the other fields, and
/// the details behind the key.
#[derive(Clone, Debug)]
pub(super) struct Record(ThinArc<Head, u8>);

/// The fields that each record has.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) value: Value,
    pub(super) main: Revision,
    pub(super) sub: u32,
    pub(super) tombstone: bool,
    /// Whether any state that shares it has a newer one of its key, or had: a change that is taken back leaves it, and a
    /// store that goes on apart sets it. So it says what may be packed, and not what is the newest.
    superseded: AtomicBool,
    /// How many bytes its details take.
    details: u8,
}

/// What takes no memory in the record of a new key without a lease, and a few bytes in most others. A tombstone has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) create: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
}

impl Deref for Record {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        &self.0.header.header
    }
}

impl Record {
    /// A put of a key.
    pub(super) fn new(
        key: &[u8],
        value: Value,
        details: Details,
        (main, sub): (Revision, u32),
    ) -> Self {
        let mut room = [0; MOST_DETAILS];
        let details = details.pack(main, &mut room);
        let head = Head {
            value,
            main,
            sub,
            tombstone: false,
            superseded: AtomicBool::new(false),
            // At most MOST_DETAILS.
            details: details.len() as u8,
        };
        if details.is_empty() {
            return Record(ThinArc::from_header_and_slice(head, key));
        }
        let mut short: ArrayVec<u8, SHORT> = ArrayVec::new();
        let fits = short.try_extend_from_slice(key);
        Record(
            match fits.and_then(|()| short.try_extend_from_slice(details)) {
                Ok(()) => ThinArc::from_header_and_slice(head, &short),
                Err(_) => ThinArc::from_header_and_slice(head, &[key, details].concat()),
            },
        )
    }

    /// A delete of a key.
    pub(super) fn tombstone(key: &[u8], (main, sub): (Revision, u32)) -> Self {
        let head = Head {
            value: Value::new(Bytes::new()),
            main,
            sub,
            tombstone: true,
            superseded: AtomicBool::new(false),
            details: 0,
        };
        Record(ThinArc::from_header_and_slice(head, key))
    }

    /// The key, and its packed details.
    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        let bytes = &self.0.slice;
        bytes.split_at(bytes.len() - usize::from(self.details))
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.parts().0
    }

    /// Creation, version and lease.
    #[inline]
    pub(super) fn details(&self) -> Details {
        match (self.details, self.tombstone) {
            (0, false) => Details::first(self.main),
            (0, true) => Details::default(),
            _ => Details::unpack(self.parts().1, self.main),
        }
    }

    /// A later revision of its key is there.
    pub(super) fn supersede(&self) {
        self.superseded.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    /// Loads its counter, to which a clone writes.
    pub(super) fn load(&self) {
        std::hint::black_box(ThinArc::strong_count(&self.0));
    }

    /// The same of some records, and the ends of their keys, which are read next: each is at another place in memory, and the processor
    /// fetches them together.
    pub(super) fn load_all<'a>(records: impl Iterator<Item = &'a Record> + Clone) {
        records.clone().for_each(Record::load);
        records.for_each(|record| {
            std::hint::black_box(record.0.slice.last());
        });
    }

    /// Its position in the history of the store.
    pub(super) fn place(&self) -> (Revision, u32) {
        (self.main, self.sub)
    }

    /// Its share of the logical size of the store.
    pub(super) fn size(&self) -> u64 {
        self.key().len() as u64 + self.value.len() as u64 + RECORD_OVERHEAD
    }

    /// # Errors
    /// If the value cannot be read.
    #[inline]
    pub(super) fn to_kv(&self) -> Result<KeyValue, DamagedValue> {
        let value = self.value.load()?;
        Ok(self.with(Bytes::copy_from_slice(self.key()), value))
    }

    /// The same with a copy of its key, if the value is in memory, else the key without it and where it is.
    #[inline]
    pub(super) fn to_kv_here(&self, key: Bytes) -> (KeyValue, Option<Place>) {
        match self.value.here() {
            Ok(value) => (self.with(key, value), None),
            Err(place) => (self.without_value(key), Some(place)),
        }
    }

    /// The same, the value left out.
    pub(super) fn without_value(&self, key: Bytes) -> KeyValue {
        self.with(key, Bytes::new())
    }

    #[inline]
    fn with(&self, key: Bytes, value: Bytes) -> KeyValue {
        let Details {
            create,
            version,
            lease,
        } = self.details();
        KeyValue {
            key,
            create_revision: create,
            mod_revision: self.main,
            version,
            value,
            lease,
        }
    }

    /// # Errors
    /// If the value cannot be read.
    pub(super) fn to_event(&self) -> Result<Event, DamagedValue> {
        if self.tombstone {
            let kv = KeyValue {
                key: Bytes::copy_from_slice(self.key()),
                mod_revision: self.main,
                ..KeyValue::default()
            };
            return Ok(Event {
                kind: EventKind::Delete,
                kv,
                prev_kv: None,
            });
        }
        Ok(Event {
            kind: EventKind::Put,
            kv: self.to_kv()?,
            prev_kv: None,
        })
    }
}

impl Details {
    /// Those of a key that was created by the record at `main`, without a lease.
    fn first(main: Revision) -> Self {
        Details {
            create: main,
            version: 1,
            lease: 0,
        }
    }

    /// Nothing for the first ones; version and revisions since the creation in 4 bytes each, with a lease in 8 more; or, if
    /// one of the two is larger, all three in 8 bytes each.
    fn pack(self, main: Revision, room: &mut [u8; MOST_DETAILS]) -> &[u8] {
        if self == Self::first(main) {
            return &[];
        }
        let age = main.wrapping_sub(self.create);
        let length = match (u32::try_from(self.version), u32::try_from(age)) {
            (Ok(version), Ok(age)) => {
                room[..4].copy_from_slice(&version.to_le_bytes());
                room[4..8].copy_from_slice(&age.to_le_bytes());
                room[8..16].copy_from_slice(&self.lease.to_le_bytes());
                if self.lease == 0 { 8 } else { 16 }
            }
            _ => {
                room[..8].copy_from_slice(&self.version.to_le_bytes());
                room[8..16].copy_from_slice(&age.to_le_bytes());
                room[16..].copy_from_slice(&self.lease.to_le_bytes());
                MOST_DETAILS
            }
        };
        &room[..length]
    }

    fn unpack(packed: &[u8], main: Revision) -> Self {
        let short = |at| i64::from(u32::from_le_bytes(part(packed, at)));
        let long = |at| i64::from_le_bytes(part(packed, at));
        let (version, age, lease) = match packed.len() {
            0 => return Self::first(main),
            8 => (short(0), short(4), 0),
            16 => (short(0), short(4), long(8)),
            _ => (long(0), long(8), long(16)),
        };
        let create = main.wrapping_sub(age);
        Details {
            create,
            version,
            lease,
        }
    }
}

/// So many bytes of what was packed.
#[inline]
fn part<const N: usize>(packed: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&packed[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(main: Revision, sub: u32) -> Record {
        let value = Value::new(Bytes::new());
        Record::new(b"k", value, Details::first(main), (main, sub))
    }

    /// A piece of memory of its own for each key, and room for details that most keys do not have, were the larger part.
    #[test]
    fn new_key_takes_no_more_than_its_bytes_and_nine_words() {
        assert_eq!(size_of::<Record>(), 8);
        // The allocation has its counter and its length besides.
        assert_eq!(size_of::<Head>(), 56);
        assert!(record(7, 3).parts().1.is_empty());
    }

    #[test]
    fn details_are_what_they_were() {
        let versions: [i64; 6] = [1, 2, 1 << 31, u32::MAX.into(), 1 << 32, i64::MAX];
        let places: [(i64, i64); 4] = [(7, 1), (7, 7), (1 << 40, 1), (1 << 40, 1 << 39)];
        let leases = [0, 1, -1, i64::MIN, i64::MAX, 0x1234_5678_9abc_def0];
        let keys = [&b""[..], b"k", &[7; SHORT - 3], &[7; SHORT], &[7; 5000]];
        for key in keys {
            for version in versions {
                for ((main, create), lease) in
                    places.iter().flat_map(|it| leases.map(|to| (*it, to)))
                {
                    let details = Details {
                        create,
                        version,
                        lease,
                    };
                    let value = Value::new(Bytes::from_static(b"value"));
                    let record = Record::new(key, value, details, (main, 2));
                    assert_eq!(record.key(), key);
                    assert_eq!(record.details(), details);
                    assert_eq!((record.place(), record.tombstone), ((main, 2), false));
                    assert_eq!(record.size(), key.len() as u64 + 5 + RECORD_OVERHEAD);
                    let kv = record.to_kv().expect("it is in memory");
                    assert_eq!(
                        (&kv.key[..], kv.create_revision, kv.version, kv.lease),
                        (key, create, version, lease)
                    );
                }
            }
        }
        let tombstone = Record::tombstone(b"k", (7, 2));
        assert_eq!((tombstone.key(), tombstone.tombstone), (&b"k"[..], true));
        assert_eq!(tombstone.details(), Details::default());
    }
}
