//! The starts of this disk, and the newest start of each other member that this one has seen: they distinguish a disk
//! that was rolled back to an older state, or copied, from the one that its member uses. Both have the same UUID, and a
//! vote from one is not recorded on the other.
//!
//! Each start writes a number and a nonce before the server sends anything. A disk that continues contains the last
//! start that others saw; a copy made before that start does not. Pure except for the file; does not decide which
//! members are asked or trusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::device::Disk;
use super::error::{Error, Result};
use super::frame;
use super::reserve::or_without_reserve;
use crate::mutants::mutant;

/// Newest format of the file that this release reads and writes. A release that does not know the
/// file leaves it alone; a start of such a release is not in it.
pub(crate) const FORMAT: u32 = 1;
/// Name of the file in the data directory.
pub(crate) const NAME: &str = "starts";
const TEMPORARY: &str = "starts.tmp";
const MAGIC: [u8; 8] = *b"QUORSTRT";
/// Starts that are kept, of 8 bytes each.
const KEPT: usize = 1024;

/// One start of a server on a disk.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Start {
    /// Its number; the first is 1.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Drawn at random for it.
    #[prost(fixed64, tag = "2")]
    pub nonce: u64,
}

/// The last starts on a disk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Lineage {
    /// Number of the newest.
    #[prost(uint64, tag = "1")]
    newest: u64,
    /// Nonces, the oldest first; the numbers are consecutive.
    #[prost(fixed64, repeated, tag = "2")]
    nonces: Vec<u64>,
}

impl Lineage {
    /// The newest start. `None` for what no server writes: none at all, or more than are kept or
    /// numbered.
    pub fn newest(&self) -> Option<Start> {
        let nonce = self.nonces.last().copied()?;
        let count = self.nonces.len();
        let numbered = usize::try_from(self.newest).unwrap_or(usize::MAX) >= count;
        (count <= KEPT && numbered).then_some(Start {
            number: self.newest,
            nonce,
        })
    }

    fn push(&mut self, nonce: u64) {
        self.newest = self.newest.saturating_add(1);
        self.nonces.push(nonce);
        let surplus = self.nonces.len().saturating_sub(KEPT);
        self.nonces.drain(..surplus);
    }

    /// Whether a disk that shows these starts goes on from `seen`.
    fn descends(&self, seen: Start) -> Descent {
        mutant!(OlderStartAdmitted => return Descent::Continues);
        let Some(back) = self.newest.checked_sub(seen.number) else {
            return Descent::Copy(seen);
        };
        let back = usize::try_from(back).unwrap_or(usize::MAX);
        match self.nonces.iter().rev().nth(back) {
            Some(nonce) if *nonce == seen.nonce => Descent::Continues,
            Some(_) => Descent::Copy(seen),
            None => Descent::TooOld,
        }
    }
}

/// The result of comparing a disk's starts with the one that was seen of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// Nothing was seen of it before, or its release keeps no starts.
    Unknown,
    /// The start that was seen is among them.
    Continues,
    /// More starts were made since than are kept.
    TooOld,
    /// The start that was seen, which this disk does not hold, was another copy's.
    Copy(Start),
}

/// What was seen last of a member.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct LastSeen {
    /// The disk that it spoke from, as text.
    #[prost(string, tag = "1")]
    disk_uuid: String,
    #[prost(message, required, tag = "2")]
    start: Start,
}

/// The file. Replaced as a whole, atomically.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Starts {
    /// The disk that this file belongs to, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    disk_uuid: Vec<u8>,
    /// Its own starts.
    #[prost(message, required, tag = "2")]
    own: Lineage,
    /// Members by ID.
    #[prost(btree_map = "fixed64, message", tag = "3")]
    seen: BTreeMap<u64, LastSeen>,
    /// Why this disk is one that no server starts on again; empty while it is not.
    #[prost(string, tag = "4")]
    copy: String,
}

impl Starts {
    /// Begins a start on the disk with this UUID; durable when it returns.
    ///
    /// # Errors
    /// [`Error::Copied`] for a disk that was found to be a copy. [`Error::Identity`] if the file is
    /// another disk's, [`Error::Corrupt`], [`Error::TooNew`] and those of any write.
    pub fn begin(disk: &Arc<dyn Disk>, uuid: [u8; 16], nonce: u64) -> Result<Self> {
        let mut starts = Self::load(&**disk, uuid)?;
        if !starts.copy.is_empty() {
            return Err(Error::Copied {
                directory: disk.describe(""),
                why: starts.copy,
            });
        }
        starts.own.push(nonce);
        // A full volume is started on: what it holds is compacted by a server that runs.
        or_without_reserve(disk, || starts.store(disk))?;
        Ok(starts)
    }

    /// The starts of this disk, to be shown to others.
    pub fn own(&self) -> &Lineage {
        &self.own
    }

    /// The start of a member that was seen last on this disk.
    pub fn seen(&self, id: u64, disk_uuid: &str) -> Option<Start> {
        let seen = self.seen.get(&id)?;
        (seen.disk_uuid == disk_uuid).then_some(seen.start)
    }

    /// Whether a disk that shows these starts is the one that was seen as this member before.
    pub fn judge(&self, id: u64, disk_uuid: &str, shown: Option<&Lineage>) -> Descent {
        match (self.seen(id, disk_uuid), shown) {
            (Some(seen), Some(shown)) => shown.descends(seen),
            _ => Descent::Unknown,
        }
    }

    /// Records the newest start of a member, unless it is a copy's. Drops members that are not `expected`.
    pub fn note(
        &mut self,
        id: u64,
        disk_uuid: &str,
        shown: &Lineage,
        expected: impl Fn(u64) -> bool,
    ) -> Descent {
        let descent = self.judge(id, disk_uuid, Some(shown));
        let (Some(start), false) = (shown.newest(), matches!(descent, Descent::Copy(_))) else {
            return descent;
        };
        let disk_uuid = disk_uuid.to_owned();
        self.seen.insert(id, LastSeen { disk_uuid, start });
        self.seen.retain(|id, _| expected(*id));
        descent
    }

    /// From now on no server starts on this disk.
    pub fn condemn(&mut self, why: &str) {
        why.clone_into(&mut self.copy);
    }

    fn load(disk: &dyn Disk, uuid: [u8; 16]) -> Result<Self> {
        let Some(body) = frame::load_small(disk, NAME, MAGIC, FORMAT)? else {
            // A fresh disk, or one of a release before.
            return Ok(Self {
                disk_uuid: uuid.to_vec(),
                ..Self::default()
            });
        };
        let corrupt = |what: String| frame::corrupt_small(disk, NAME, what);
        let starts = Self::decode(body.as_slice())
            .map_err(|error| corrupt(format!("unreadable: {error}")))?;
        if starts.own.newest().is_none() {
            return Err(corrupt("the starts in it are not consecutive".to_owned()));
        }
        if starts.disk_uuid != uuid {
            return Err(Error::Identity {
                file: disk.describe(NAME),
                what: "it is of another disk than the identity file".to_owned(),
                remedy: "a data directory is moved or copied as a whole and while the server is stopped: give back the file that belongs here",
            });
        }
        Ok(starts)
    }

    /// Replaces the file durably while this start is the newest in it: where a second server took the
    /// directory over, its start has been shown to others, and has to stay.
    ///
    /// # Errors
    /// [`Error::Identity`] where another start was made since; those of [`Starts::begin`] and of any
    /// write.
    pub fn replace(&self, disk: &Arc<dyn Disk>) -> Result<()> {
        let uuid = self.disk_uuid.as_slice().try_into().unwrap_or_default();
        let there = Self::load(&**disk, uuid)?.own;
        if there.newest().is_some() && there != self.own {
            return Err(Error::Identity {
                file: disk.describe(NAME),
                what: "another server was started on this disk while this one ran".to_owned(),
                remedy: "one server alone may use a data directory: find the other one, and why the lock on the directory did not keep it out",
            });
        }
        self.store(disk)
    }

    /// Replaces the file durably; not with the room that is kept for the next start.
    ///
    /// # Errors
    /// Those of any write.
    pub fn store(&self, disk: &Arc<dyn Disk>) -> Result<()> {
        let body = self.encode_to_vec();
        frame::store_small(&**disk, NAME, TEMPORARY, MAGIC, FORMAT, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::double::{Keep, MemoryDisk};

    const UUID: [u8; 16] = [7; 16];

    fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
        Arc::new(disk.clone())
    }

    fn starts(disk: &MemoryDisk, nonce: u64) -> Starts {
        Starts::begin(&shared(disk), UUID, nonce).expect("it starts")
    }

    fn after(disk: &MemoryDisk, nonces: std::ops::Range<u64>) -> Starts {
        nonces.fold(Starts::default(), |_, nonce| starts(disk, nonce))
    }

    /// A volume was rolled back to an older state, or copied: UUID, member and log were those of the member, and it was
    /// accepted as the member, although another process had voted since.
    #[test]
    fn rolled_back_disk_lacks_the_seen_start() {
        let (mut peer, disk) = (Starts::default(), MemoryDisk::new());
        let all = |_| true;
        let first = after(&disk, 1..4);
        assert_eq!(peer.note(2, "d", first.own(), all), Descent::Unknown);
        let copy = disk.fork();
        // Two starts that no member saw do no harm.
        let on = after(&disk, 4..7);
        assert_eq!(peer.note(2, "d", on.own(), all), Descent::Continues);
        let seen = on.own().newest().expect("one");
        assert_eq!((seen.number, seen.nonce), (6, 6));
        assert_eq!(peer.seen(2, "d"), Some(seen));
        // Set back: with fewer starts, with as many, and with more.
        for nonces in [10..11, 11..13, 13..20] {
            let older = after(&copy, nonces);
            assert_eq!(peer.note(2, "d", older.own(), all), Descent::Copy(seen));
            assert_eq!(peer.seen(2, "d"), Some(seen), "it is not taken note of");
        }
        assert_eq!(peer.judge(2, "d", Some(on.own())), Descent::Continues);
        // Another disk, and another member, are other questions.
        assert_eq!(peer.judge(2, "e", Some(first.own())), Descent::Unknown);
        assert_eq!(peer.judge(3, "d", Some(first.own())), Descent::Unknown);
        assert_eq!(
            peer.judge(2, "d", None),
            Descent::Unknown,
            "an older release"
        );
    }

    #[test]
    fn remembered_starts_are_bounded() {
        let (mut peer, mut own) = (Starts::default(), Lineage::default());
        own.push(1);
        peer.note(2, "d", &own, |_| true);
        for nonce in 2..=KEPT as u64 {
            own.push(nonce);
        }
        assert_eq!(peer.judge(2, "d", Some(&own)), Descent::Continues);
        own.push(0);
        assert_eq!(own.nonces.len(), KEPT);
        assert_eq!(peer.judge(2, "d", Some(&own)), Descent::TooOld);
        assert!(own.encoded_len() < 8 * KEPT + 16);
        own.push(0);
        own.nonces.insert(0, 0);
        assert_eq!(own.newest(), None, "no server writes that");
    }

    #[test]
    fn start_is_durable_before_it_is_sent() {
        let disk = MemoryDisk::new();
        starts(&disk, 1);
        let mut own = starts(&disk, 2);
        assert_eq!(own.own().newest().map(|start| start.number), Some(2));
        disk.crash(Keep::Nothing);
        let next = starts(&disk, 3);
        assert_eq!(next.own().nonces, [1, 2, 3]);
        own = next;
        own.condemn("start 9 was seen");
        own.store(&shared(&disk)).expect("stored");
        let refused = Starts::begin(&shared(&disk), UUID, 4).expect_err("a copy");
        assert_eq!(
            (refused.class().exit_code(), refused.class().name()),
            (30, "copied_disk")
        );
        assert!(
            refused.to_string().contains("start 9 was seen"),
            "{refused}"
        );
        let other = Starts::begin(&shared(&disk), [8; 16], 4).expect_err("another's file");
        assert_eq!(other.class().name(), "identity");
    }

    /// A server whose directory a second one had used meanwhile wrote back its own state of the file: the start that
    /// the others had seen was lost on the disk, and they treated the disk as a copy.
    #[test]
    fn loser_of_the_disk_writes_no_start() {
        let disk = MemoryDisk::new();
        let mut first = starts(&disk, 1);
        first.note(2, "d", &first.own.clone(), |_| true);
        first.replace(&shared(&disk)).expect("no other process");
        starts(&disk, 2);
        first.note(3, "e", &first.own.clone(), |_| true);
        let error = first.replace(&shared(&disk)).expect_err("taken over");
        assert_eq!(error.class().name(), "identity", "{error}");
        assert_eq!(starts(&disk, 3).own().nonces, [1, 2, 3]);
    }

    /// What strangers, or members of long ago, were is not kept.
    #[test]
    fn starts_of_non_members_are_forgotten() {
        let (mut peer, disk) = (Starts::default(), MemoryDisk::new());
        let own = starts(&disk, 1);
        for id in 0..10_000 {
            peer.note(id, "d", own.own(), |expected| {
                expected < 3 || expected == id
            });
        }
        peer.note(2, "d", own.own(), |expected| expected < 3);
        assert_eq!(peer.seen.keys().copied().collect::<Vec<u64>>(), [0, 1, 2]);
    }
}
