//! Leases as replicated state: which exist, their TTLs, and the attached keys. Does not track expiry: that is a command
//! of the leader.

use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};

use super::span::Span;
use super::tree::{Item, Tree};
use super::{LeaseId, LeaseRemains, Revision};

/// Assumed size of a lease in bytes in the logical size of the store.
const LEASE_SIZE: u64 = 64;

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Its ID.
    pub id: LeaseId,
    /// Seconds granted.
    pub ttl: i64,
    /// Seconds that were left when the leader last noted it; 0: not noted since the last renewal.
    pub remaining: i64,
}

#[derive(Clone, Debug)]
struct Granted {
    key: Bytes,
    info: LeaseInfo,
}

/// An attachment, found under the lease's ID followed by the key.
#[derive(Clone, Debug)]
struct Attached(Bytes);

impl Item for Granted {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn live(&self) -> bool {
        true
    }

    fn modified(&self) -> Revision {
        0
    }
}

impl Item for Attached {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn live(&self) -> bool {
        true
    }

    fn modified(&self) -> Revision {
        0
    }
}

/// All leases. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    granted: Tree<Granted>,
    attached: Tree<Attached>,
}

/// The bytes that sort leases by ID.
fn id_bytes(id: LeaseId) -> [u8; 8] {
    id.cast_unsigned().to_be_bytes()
}

fn attachment(id: LeaseId, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(8 + key.len());
    bytes.put_slice(&id_bytes(id));
    bytes.put_slice(key);
    bytes.freeze()
}

/// The attachments of a lease, between its own bytes and those of the next one.
fn of_lease<'a>(id: LeaseId, from: &'a [u8], before: &'a [u8]) -> Span<'a> {
    match id {
        // The largest unsigned ID has no successor.
        -1 => Span {
            from,
            end: super::span::End::Open,
        },
        _ => Span::between(from, before),
    }
}

impl Leases {
    pub(super) fn get(&self, id: LeaseId) -> Option<LeaseInfo> {
        self.granted.get(&id_bytes(id)).map(|granted| granted.info)
    }

    pub(super) fn grant(&mut self, info: LeaseInfo) {
        self.granted.insert(Granted {
            key: Bytes::copy_from_slice(&id_bytes(info.id)),
            info,
        });
    }

    /// Records the remaining TTL of a lease; false if the lease does not exist.
    pub(super) fn note(&mut self, remains: &LeaseRemains) -> bool {
        let Some(mut info) = self.get(remains.id) else {
            return false;
        };
        // A time to live below 0 is nothing that a member proposes, but nothing may fall over it.
        info.remaining = remains.remaining.clamp(0, info.ttl.max(0));
        self.grant(info);
        true
    }

    /// Drops a lease whose keys have been detached.
    pub(super) fn forget(&mut self, id: LeaseId) {
        self.granted.remove(&id_bytes(id));
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: &[u8]) {
        self.attached.insert(Attached(attachment(id, key)));
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &[u8]) {
        self.attached.remove(&attachment(id, key));
    }

    /// The keys of a lease, in key order.
    pub(super) fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let (from, before) = (id_bytes(id), id_bytes(id.wrapping_add(1)));
        self.attached
            .visit(of_lease(id, &from, &before), &mut |attached| {
                keys.push(attached.0.slice(8..));
                ControlFlow::Continue(())
            });
        keys
    }

    /// How many those are.
    pub(super) fn key_count(&self, id: LeaseId) -> u64 {
        let (from, before) = (id_bytes(id), id_bytes(id.wrapping_add(1)));
        let span = of_lease(id, &from, &before);
        self.attached.count(span, 0, &|_, _| true)
    }

    /// How many leases there are.
    pub(super) fn count(&self) -> u64 {
        self.granted.len()
    }

    /// Every key that is attached to a lease, by lease and key.
    pub(super) fn attached(&self) -> Vec<Bytes> {
        let mut keys = Vec::with_capacity(self.attached.len() as usize);
        self.attached.visit(Span::ALL, &mut |attached| {
            keys.push(attached.0.slice(8..));
            ControlFlow::Continue(())
        });
        keys
    }

    /// Those that keys are attached to and that do not exist, by ID.
    pub(super) fn missing(&self) -> Vec<LeaseId> {
        let mut missing = Vec::new();
        self.attached.visit(Span::ALL, &mut |attached| {
            if let Some(id) = attached.0.first_chunk::<8>() {
                let id = u64::from_be_bytes(*id).cast_signed();
                if missing.last() != Some(&id) && self.get(id).is_none() {
                    missing.push(id);
                }
            }
            ControlFlow::Continue(())
        });
        missing
    }

    /// All leases, by ID.
    pub(super) fn all(&self) -> Vec<LeaseInfo> {
        let mut all = Vec::with_capacity(self.granted.len() as usize);
        self.granted.visit(Span::ALL, &mut |granted| {
            all.push(granted.info);
            ControlFlow::Continue(())
        });
        all
    }

    /// Share of the logical size of the store.
    pub(super) fn size(&self) -> u64 {
        self.granted.len() * LEASE_SIZE
    }
}
