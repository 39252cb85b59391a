//! The identity file: the owner of this disk. Replaced as a whole, atomically; a checksum and a
//! format number guard it. Never changes a disk UUID once it is written.

use std::sync::Arc;

use prost::Message;

use super::device::Disk;
use super::error::{Error, Result};
use super::frame;

/// Newest format of the identity file that this release reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// Name of the file in the data directory.
pub(crate) const NAME: &str = "identity";
const TEMPORARY: &str = "identity.tmp";
const MAGIC: [u8; 8] = *b"QUORIDEN";

/// How far this disk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Phase {
    /// An empty disk that waits to be bootstrapped or added to a cluster.
    Standby = 0,
    /// Bound to a member ID; waits for the first snapshot.
    Joining = 1,
    /// Holds a log: has acknowledged or may acknowledge.
    Member = 2,
    /// Was removed from its cluster for good.
    Removed = 3,
}

/// Whose disk a data directory is. Unset numbers are 0, unset texts and bytes are empty.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Identity {
    /// Random UUID of this disk, 16 bytes, made when the directory is first used.
    #[prost(bytes = "vec", tag = "1")]
    pub disk_uuid: Vec<u8>,
    /// The member's name (`--name`).
    #[prost(string, tag = "2")]
    pub name: String,
    /// How far this disk has come.
    #[prost(enumeration = "Phase", tag = "3")]
    pub phase: i32,
    /// The cluster's ID.
    #[prost(fixed64, tag = "4")]
    pub cluster_id: u64,
    /// This member's ID.
    #[prost(fixed64, tag = "5")]
    pub member_id: u64,
    /// UID of the resource that the cluster belongs to; empty by hand.
    #[prost(string, tag = "6")]
    pub cluster_uid: String,
    /// Which life of that resource; raised only by an explicit recovery.
    #[prost(uint64, tag = "7")]
    pub incarnation: u64,
    /// Nonce of the bootstrap call that made this the seed.
    #[prost(string, tag = "8")]
    pub bootstrap_nonce: String,
    /// UID of the seed's volume claim.
    #[prost(string, tag = "9")]
    pub claim_uid: String,
    /// Disk UUIDs of peers, by member ID, pinned before Raft has bound them.
    #[prost(btree_map = "fixed64, bytes", tag = "10")]
    pub peer_pins: std::collections::BTreeMap<u64, Vec<u8>>,
}

impl Identity {
    /// The identity of a fresh disk.
    pub fn standby(disk_uuid: [u8; 16], name: &str) -> Self {
        Self {
            disk_uuid: disk_uuid.to_vec(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The disk's UUID as an array; zero only in a value that was never stored or loaded.
    pub fn uuid(&self) -> [u8; 16] {
        self.disk_uuid.as_slice().try_into().unwrap_or_default()
    }

    /// Reads the identity file; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the checksum does not match, [`Error::TooNew`] for a later format.
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>> {
        let Some(body) = frame::load_small(disk, NAME, MAGIC, FORMAT)? else {
            return Ok(None);
        };
        let corrupt = |what: String| frame::corrupt_small(disk, NAME, what);
        let identity = Self::decode(body.as_slice())
            .map_err(|error| corrupt(format!("unreadable: {error}")))?;
        if identity.disk_uuid.len() != 16 {
            return Err(corrupt("the disk UUID is not 16 bytes".to_owned()));
        }
        if Phase::try_from(identity.phase).is_err() {
            return Err(corrupt(format!("unknown phase {}", identity.phase)));
        }
        Ok(Some(identity))
    }

    /// Whether the identity file is there, readable or not.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn is_there(disk: &dyn Disk) -> Result<bool> {
        match disk.open(NAME) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("open", disk.describe(NAME), error)),
        }
    }

    /// Rewrites the identity file: temporary file, sync, rename, sync of the directory.
    ///
    /// # Errors
    /// [`Error::Misuse`] if another disk UUID, or another member ID of a disk that has been a
    /// member, is already stored.
    pub fn store(&self, disk: &Arc<dyn Disk>) -> Result<()> {
        if self.disk_uuid.len() != 16 {
            return Err(Error::Misuse("a disk UUID has 16 bytes".to_owned()));
        }
        if let Some(old) = Self::load(&**disk)? {
            if old.disk_uuid != self.disk_uuid {
                return Err(Error::Misuse("a disk keeps its UUID for life".to_owned()));
            }
            if old.phase() >= Phase::Member && self.phase() < old.phase() {
                return Err(Error::Misuse("a disk's phase never goes back".to_owned()));
            }
            if old.phase() >= Phase::Member
                && (old.member_id, old.cluster_id) != (self.member_id, self.cluster_id)
            {
                return Err(Error::Misuse(
                    "a disk that has been a member keeps its member and cluster ID".to_owned(),
                ));
            }
        }
        frame::store_small(
            &**disk,
            NAME,
            TEMPORARY,
            MAGIC,
            FORMAT,
            &self.encode_to_vec(),
        )
    }
}
