//! Where the fields of pages, elements and metas lie. Never allocates, never follows a pointer.

use super::{Error, Result};

/// Size of the pages that are written, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Bytes at the start of a file that the writer can fill in only at the end: both metas.
pub const HEAD_BYTES: usize = 2 * PAGE_BYTES;

/// Length of a page's header.
pub(super) const PAGE_HEADER: usize = 16;
/// Length of an element of a leaf or branch page.
pub(super) const ELEMENT: usize = 16;
/// Length of what a bucket's value starts with: its root and its sequence.
pub(super) const BUCKET_HEADER: usize = 16;
/// A bucket whose only leaf is no longer than this lies inside its value.
pub(super) const INLINE_BYTES: usize = PAGE_BYTES / 4;

/// Kinds of pages.
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;
/// Marks an element of a leaf whose value is a bucket.
pub(super) const IS_BUCKET: u32 = 0x01;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Length of a meta record, its checksum included.
const META_BYTES: usize = 64;

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) id: u64,
    pub(super) flags: u16,
    pub(super) count: u16,
    pub(super) overflow: u32,
}

impl PageHeader {
    pub(super) fn bytes(self) -> [u8; PAGE_HEADER] {
        let mut bytes = [0; PAGE_HEADER];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.flags.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..].copy_from_slice(&self.overflow.to_le_bytes());
        bytes
    }

    /// `None` if there are too few bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(PageHeader {
            id: u64_at(bytes, 0)?,
            flags: u16::from_le_bytes(array_at(bytes, 8)?),
            count: u16::from_le_bytes(array_at(bytes, 10)?),
            overflow: u32_at(bytes, 12)?,
        })
    }
}

/// The content of a meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_size: u32,
    /// Page of the root bucket's tree.
    pub(super) root: u64,
    pub(super) freelist: u64,
    /// The first page that is not part of the file.
    pub(super) end: u64,
    pub(super) transaction: u64,
}

impl Meta {
    /// The record, as it follows the header of its page.
    pub(super) fn bytes(self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        let mut at = 0;
        let mut write = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        write(&MAGIC.to_le_bytes());
        write(&VERSION.to_le_bytes());
        write(&self.page_size.to_le_bytes());
        write(&0_u32.to_le_bytes());
        write(&self.root.to_le_bytes());
        write(&0_u64.to_le_bytes());
        write(&self.freelist.to_le_bytes());
        write(&self.end.to_le_bytes());
        write(&self.transaction.to_le_bytes());
        let sum = fnv1a(&bytes[..META_BYTES - 8]);
        bytes[META_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a meta page from its first bytes.
    pub(super) fn read(page: &[u8]) -> Result<Self> {
        let foreign = |text: &str| Error::Foreign(text.to_owned());
        let header = PageHeader::read(page).ok_or_else(|| foreign("it is too short"))?;
        let bytes = page
            .get(PAGE_HEADER..PAGE_HEADER + META_BYTES)
            .ok_or_else(|| foreign("it is too short"))?;
        if header.flags & META == 0 || u32_at(bytes, 0) != Some(MAGIC) {
            return Err(foreign("its first page is not a meta page"));
        }
        match u32_at(bytes, 4) {
            Some(VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                return Err(foreign(&format!("its format is {version}, not {VERSION}")));
            }
        }
        let sum = fnv1a(&bytes[..META_BYTES - 8]);
        if u64_at(bytes, META_BYTES - 8) != Some(sum) {
            return Err(Error::Damaged {
                page: header.id,
                what: "the checksum of the meta page is wrong",
            });
        }
        let number = |at| u64_at(bytes, at).unwrap_or_default();
        Ok(Meta {
            page_size: u32_at(bytes, 8).unwrap_or_default(),
            root: number(16),
            freelist: number(32),
            end: number(40),
            transaction: number(48),
        })
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}
