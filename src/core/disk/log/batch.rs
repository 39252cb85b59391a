//! One batch of records as bytes. Never touches a file.
//!
//! A batch occupies whole sectors. Each sector begins with a stamp byte that is never zero, so a
//! sector that is all zeros was never written: that is what makes a torn tail provable, whatever
//! the clients' values are. Behind the stamps lie the batch's head and its records:
//!
//! ```text
//! head    mark u32, checksum u32, number u64, before index u64, before term u64,
//!         body bytes u32, records u32
//! record  checksum u32, payload bytes u32, kind u8, payload
//! ```
//!
//! All numbers are little-endian. Checksums are CRC32C, begun with the segment's seed (made of
//! the disk UUID and the segment's sequence) and, for records, the batch's number: bytes of
//! another disk, segment or batch never pass.

use bytes::Bytes;

use crate::disk::SECTOR;
use crate::disk::frame::Cursor;
use crate::mutants::mutant;
use crate::raft::{Entry, HardState, Position};

/// Bytes of a batch in one sector.
const STRIDE: usize = SECTOR - 1;
const MARK: u32 = 0x4854_4151;
const HEAD: usize = 4 + 4 + 8 + 8 + 8 + 4 + 4;
const RECORD_HEAD: usize = 4 + 4 + 1;
const KIND_HARD_STATE: u8 = 1;
const KIND_ENTRY: u8 = 2;

/// A decoded batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    /// The entry before the first one of this batch; the end of the log if it has none.
    pub(crate) before: Position,
    pub(crate) hard_state: Option<HardState>,
    pub(crate) entries: Vec<Entry>,
}

/// What lies at a sector boundary.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// A whole batch and its length in bytes, sectors included.
    Whole(Batch, usize),
    /// Nothing was ever written from here to the end.
    End,
    /// A batch that was being written when the machine stopped: a sector of it is all zeros and
    /// nothing was written after it.
    Torn,
    /// Anything else: the distance in bytes to the damage, and what it is.
    Damaged(usize, String),
}

/// The stamp of a batch's sectors; never zero.
fn stamp(number: u64) -> u8 {
    0x80 | (number & 0x7f) as u8
}

/// Bytes on disk of a batch with these contents.
pub(crate) fn encode(seed: u32, batch: &Batch) -> Vec<u8> {
    let mut body = Vec::with_capacity(size(batch));
    body.resize(HEAD, 0);
    let record_seed = record_seed(seed, batch.number);
    let mut records = 0u32;
    if let Some(state) = &batch.hard_state {
        let mut payload = Vec::with_capacity(24);
        for value in [state.term, state.vote, state.commit] {
            payload.extend_from_slice(&value.to_le_bytes());
        }
        push_record(&mut body, record_seed, KIND_HARD_STATE, &[&payload]);
        records += 1;
    }
    for entry in &batch.entries {
        let mut fixed = Vec::with_capacity(20);
        fixed.extend_from_slice(&entry.index.to_le_bytes());
        fixed.extend_from_slice(&entry.term.to_le_bytes());
        fixed.extend_from_slice(&entry.kind.to_le_bytes());
        push_record(&mut body, record_seed, KIND_ENTRY, &[&fixed, &entry.data]);
        records += 1;
    }
    write_head(&mut body, seed, batch, records);
    let mut bytes = Vec::with_capacity(body.len().div_ceil(STRIDE) * SECTOR);
    for part in body.chunks(STRIDE) {
        bytes.push(stamp(batch.number));
        bytes.extend_from_slice(part);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes
}

/// Bytes on disk of a batch with these contents at most; of many small entries it is up to twice as much.
pub(crate) fn size(batch: &Batch) -> usize {
    let entries = batch.entries.iter();
    let body = entries.map(|entry| entry.data.len() + 64).sum::<usize>() + HEAD + 64;
    body.div_ceil(STRIDE) * SECTOR
}

fn push_record(body: &mut Vec<u8>, seed: u32, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut sum = crc32c::crc32c_append(seed, &(length as u32).to_le_bytes());
    sum = crc32c::crc32c_append(sum, &[kind]);
    for part in parts {
        sum = crc32c::crc32c_append(sum, part);
    }
    body.extend_from_slice(&sum.to_le_bytes());
    body.extend_from_slice(&(length as u32).to_le_bytes());
    body.push(kind);
    for part in parts {
        body.extend_from_slice(part);
    }
}

fn write_head(body: &mut [u8], seed: u32, batch: &Batch, records: u32) {
    let length = (body.len() - HEAD) as u32;
    let mut fields = Vec::with_capacity(HEAD);
    fields.extend_from_slice(&batch.number.to_le_bytes());
    fields.extend_from_slice(&batch.before.index.to_le_bytes());
    fields.extend_from_slice(&batch.before.term.to_le_bytes());
    fields.extend_from_slice(&length.to_le_bytes());
    fields.extend_from_slice(&records.to_le_bytes());
    body[..4].copy_from_slice(&MARK.to_le_bytes());
    body[4..8].copy_from_slice(&crc32c::crc32c_append(seed, &fields).to_le_bytes());
    body[8..HEAD].copy_from_slice(&fields);
}

fn record_seed(seed: u32, number: u64) -> u32 {
    crc32c::crc32c_append(seed, &number.to_le_bytes())
}

struct Head {
    number: u64,
    before: Position,
    body: usize,
    records: u32,
}

fn read_head(seed: u32, body: &[u8]) -> Option<Head> {
    let mut cursor = Cursor(body.get(..HEAD)?);
    let mark = cursor.u32()?;
    let sum = cursor.u32()?;
    if mark != MARK || crc32c::crc32c_append(seed, cursor.0) != sum {
        return None;
    }
    Some(Head {
        number: cursor.u64()?,
        before: Position {
            index: cursor.u64()?,
            term: cursor.u64()?,
        },
        body: cursor.u32()? as usize,
        records: cursor.u32()?,
    })
}

/// Looks at `bytes`, the rest of a segment from a sector boundary on, for batch `number`.
pub(crate) fn find(seed: u32, number: u64, bytes: &[u8]) -> Found {
    let Some(first) = bytes.first_chunk::<SECTOR>() else {
        return Found::End;
    };
    if is_zero(first) {
        // Either nothing, or a batch whose first sector was lost.
        return match tear(number, bytes) {
            Ok(true) => Found::Torn,
            Ok(false) => Found::End,
            Err((at, what)) => Found::Damaged(at, what),
        };
    }
    let head = match read_head(seed, &first[1..]) {
        Some(head) if head.number == number => head,
        Some(head) => {
            let what = format!("batch {} where batch {number} belongs", head.number);
            return Found::Damaged(0, what);
        }
        None => {
            return Found::Damaged(
                0,
                "the head of a batch does not match its checksum".to_owned(),
            );
        }
    };
    let sectors = (HEAD + head.body).div_ceil(STRIDE);
    let length = sectors * SECTOR;
    let Some(whole) = bytes.get(..length) else {
        return Found::Damaged(0, format!("a batch of {length} bytes ends beyond the file"));
    };
    if let Some(hole) = whole.chunks(SECTOR).position(is_zero) {
        // Torn only if nothing was written after it.
        return match (
            tear(number, &whole[SECTOR..]),
            first_nonzero(&bytes[length..]),
        ) {
            (Ok(_), None) => Found::Torn,
            (Ok(_), Some(_)) => Found::Damaged(
                hole * SECTOR,
                "a sector is all zeros, but later batches were written".to_owned(),
            ),
            (Err((at, what)), _) => Found::Damaged(SECTOR + at, what),
        };
    }
    match decode_whole(seed, &head, whole) {
        Ok(batch) => Found::Whole(batch, length),
        Err((at, what)) => Found::Damaged(at, what),
    }
}

/// Reads a batch whose bytes are known to be complete.
pub(crate) fn decode(seed: u32, number: u64, bytes: &[u8]) -> Result<Batch, (usize, String)> {
    match find(seed, number, bytes) {
        Found::Whole(batch, _) => Ok(batch),
        Found::Damaged(at, what) => Err((at, what)),
        Found::End | Found::Torn => Err((0, "a synced batch has turned into zeros".to_owned())),
    }
}

/// Whether any sector of `bytes` was written, and each written one by batch `number`.
fn tear(number: u64, bytes: &[u8]) -> Result<bool, (usize, String)> {
    let mut any = false;
    for (at, sector) in bytes.chunks(SECTOR).enumerate() {
        if is_zero(sector) {
            continue;
        }
        if sector[0] != stamp(number) {
            let what = format!("bytes that no write of batch {number} left");
            return Err((at * SECTOR, what));
        }
        any = true;
    }
    Ok(any)
}

fn decode_whole(seed: u32, head: &Head, whole: &[u8]) -> Result<Batch, (usize, String)> {
    let mut body = Vec::with_capacity(whole.len());
    for (at, sector) in whole.chunks(SECTOR).enumerate() {
        if sector[0] != stamp(head.number) {
            return Err((
                at * SECTOR,
                "a sector does not carry its batch's stamp".to_owned(),
            ));
        }
        body.extend_from_slice(&sector[1..]);
    }
    let padding = &body[HEAD + head.body..];
    if let Some(at) = first_nonzero(padding) {
        let at = HEAD + head.body + at;
        return Err((
            at / STRIDE * SECTOR,
            "the padding of a batch is not zero".to_owned(),
        ));
    }
    body.truncate(HEAD + head.body);
    let body = Bytes::from(body);
    let mut batch = Batch {
        number: head.number,
        before: head.before,
        ..Batch::default()
    };
    let mut at = HEAD;
    for _ in 0..head.records {
        let offset = at / STRIDE * SECTOR;
        at = decode_record(seed, &body, at, &mut batch).map_err(|what| (offset, what))?;
    }
    if at != body.len() {
        return Err((
            at / STRIDE * SECTOR,
            "bytes follow the last record of a batch".to_owned(),
        ));
    }
    Ok(batch)
}

/// Reads the record at `at`; returns where the next one begins.
fn decode_record(seed: u32, body: &Bytes, at: usize, batch: &mut Batch) -> Result<usize, String> {
    let short = || "a record is shorter than the length in its header".to_owned();
    let mut cursor = Cursor(&body[at..]);
    let (Some(sum), Some(length), Some(kind)) = (cursor.u32(), cursor.u32(), cursor.u8()) else {
        return Err(short());
    };
    let start = at + RECORD_HEAD;
    let end = start + length as usize;
    let payload = cursor.take(length as usize).ok_or_else(short)?;
    let mut found = crc32c::crc32c_append(record_seed(seed, batch.number), &length.to_le_bytes());
    found = crc32c::crc32c_append(found, &[kind]);
    if crc32c::crc32c_append(found, payload) != sum && !mutant!(BadChecksum) {
        return Err("a record does not match its checksum".to_owned());
    }
    let mut fields = Cursor(payload);
    match kind {
        KIND_HARD_STATE => {
            let (Some(term), Some(vote), Some(commit)) = (fields.u64(), fields.u64(), fields.u64())
            else {
                return Err(short());
            };
            batch.hard_state = Some(HardState { term, vote, commit });
        }
        KIND_ENTRY => {
            let (Some(index), Some(term), Some(kind)) = (fields.u64(), fields.u64(), fields.u32())
            else {
                return Err(short());
            };
            let data = body.slice(start + 20..end);
            batch.entries.push(Entry {
                term,
                index,
                kind: kind as i32,
                data,
            });
        }
        other => return Err(format!("a record of unknown kind {other}")),
    }
    Ok(end)
}

fn is_zero(bytes: &[u8]) -> bool {
    first_nonzero(bytes).is_none()
}

/// Most of what is looked at was never written: many bytes at once, until there is one.
fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const AT_ONCE: usize = 64;
    let any = |part: &[u8]| part.iter().fold(0, |all, byte| all | byte) != 0;
    let at = AT_ONCE * bytes.chunks(AT_ONCE).position(any)?;
    let within = bytes[at..].iter().position(|byte| *byte != 0)?;
    Some(at + within)
}
