//! Files of a data directory. The first byte selects whether checksums stay as they are, which tests that they detect
//! damage, or are recomputed, as if the damaged file had been written with valid checksums.

use std::sync::Arc;

use quorate::disk::double::MemoryDisk;
use quorate::disk::{
    Checkpoints, Disk, Identity, Log, LogOptions, MAX_CHUNK_BYTES, Position, SECTOR, Starts,
};

use super::choice;

const UUID: [u8; 16] = *b"a disk to damage";
const OPTIONS: LogOptions = LogOptions {
    segment_bytes: 4096,
};

/// A log of one segment, or two if the second byte gives the position of the cut.
pub(crate) fn log(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let disk = MemoryDisk::new();
    let (first, second) = match (mode & 2, choice(bytes)) {
        (2, Some((cut, rest))) => rest.split_at((usize::from(cut) * 64).min(rest.len())),
        _ => (bytes, &[][..]),
    };
    for (sequence, bytes) in [(1, first), (2, second)] {
        if bytes.is_empty() && sequence > 1 {
            continue;
        }
        let file = match mode & 1 {
            0 => sectors(bytes),
            _ => segment(sequence, bytes),
        };
        disk.plant(&format!("log/{sequence:016x}.log"), &file);
    }
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Ok(log) = Log::open(Arc::clone(&disk), UUID, OPTIONS) else {
        return;
    };
    let shape = log.shape();
    let read = log.tail(shape.floor(), u64::MAX).unwrap();
    let state = log.hard_state();
    // Data that was accepted is opened again: it must be accepted again with the same content.
    drop(log);
    let again = Log::open(disk, UUID, OPTIONS).unwrap();
    assert_eq!(again.hard_state(), state);
    assert_eq!(again.tail(shape.floor(), u64::MAX).unwrap(), read);
}

fn sectors(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(SECTOR), 0);
    file
}

/// A segment with valid checksums, lengths and stamps around content from `bytes`: the numbers of its header, then
/// batches, each a length and its records.
fn segment(sequence: u64, bytes: &[u8]) -> Vec<u8> {
    const NUMBERS: usize = 7 * 8;
    let mut numbers = [0; NUMBERS];
    let head = bytes.len().min(NUMBERS);
    numbers[..head].copy_from_slice(&bytes[..head]);
    let mut fields = sequence.to_le_bytes().to_vec();
    fields.extend_from_slice(&UUID);
    fields.extend_from_slice(&numbers);
    let mut file = b"QUORSEGM".to_vec();
    file.extend_from_slice(&1_u32.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&1_u32.to_le_bytes()), &fields);
    file.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(&fields);
    file.resize(SECTOR, 0);
    let seed = crc32c::crc32c_append(crc32c::crc32c(&UUID), &sequence.to_le_bytes());
    let mut number = u64::from_le_bytes(numbers[..8].try_into().unwrap());
    let mut rest = &bytes[head..];
    while rest.len() > 18 {
        let (length, after) = rest.split_at(2);
        let length = usize::from(u16::from_le_bytes(length.try_into().unwrap()));
        let (batch, after) = after.split_at((length + 16).min(after.len()));
        file.extend_from_slice(&sealed_batch(seed, number, batch));
        number = number.wrapping_add(1);
        rest = after;
    }
    file
}

fn sealed_batch(seed: u32, number: u64, bytes: &[u8]) -> Vec<u8> {
    let (before, records) = bytes.split_at(bytes.len().min(16));
    let record_seed = crc32c::crc32c_append(seed, &number.to_le_bytes());
    let mut body = Vec::new();
    let mut count = 0_u32;
    let mut rest = records;
    // A record is a length in two bytes, a kind and a payload.
    while rest.len() >= 3 {
        let length = usize::from(u16::from_le_bytes([rest[0], rest[1]])).min(rest.len() - 3);
        let (kind, payload) = (rest[2], &rest[3..3 + length]);
        let mut sum = crc32c::crc32c_append(record_seed, &(length as u32).to_le_bytes());
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &[kind]), payload);
        body.extend_from_slice(&sum.to_le_bytes());
        body.extend_from_slice(&(length as u32).to_le_bytes());
        body.push(kind);
        body.extend_from_slice(payload);
        count += 1;
        rest = &rest[3 + length..];
    }
    let mut fields = number.to_le_bytes().to_vec();
    fields.extend_from_slice(before);
    fields.resize(24, 0);
    fields.extend_from_slice(&(body.len() as u32).to_le_bytes());
    fields.extend_from_slice(&count.to_le_bytes());
    let mut batch = 0x4854_4151_u32.to_le_bytes().to_vec();
    batch.extend_from_slice(&crc32c::crc32c_append(seed, &fields).to_le_bytes());
    batch.extend_from_slice(&fields);
    batch.extend_from_slice(&body);
    let mut bytes = Vec::new();
    for part in batch.chunks(SECTOR - 1) {
        bytes.push(0x80 | (number & 0x7f) as u8);
        bytes.extend_from_slice(part);
    }
    sectors(&bytes)
}

/// A checkpoint.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let position = Position { index: 7, term: 3 };
    let disk = MemoryDisk::new();
    let file = match mode & 1 {
        0 => bytes.to_vec(),
        _ => sealed_checkpoint(position, bytes),
    };
    disk.plant(
        "checkpoints/0000000000000007-0000000000000003.checkpoint",
        &file,
    );
    let checkpoints = Checkpoints::new(Arc::new(disk));
    let Ok(mut reader) = checkpoints.open(position) else {
        return;
    };
    let meta = reader.meta().clone();
    let mut chunks = Vec::new();
    loop {
        match reader.next_chunk() {
            Ok(Some(chunk)) => chunks.push(chunk),
            Ok(None) => break,
            Err(_) => return,
        }
    }
    // A checkpoint that was accepted can be written, and is read back with the same content.
    let disk = MemoryDisk::new();
    disk.create_directory("checkpoints").unwrap();
    let other = Checkpoints::new(Arc::new(disk));
    other.write(position, &meta, &chunks).unwrap();
    let mut again = other.open(position).unwrap();
    assert_eq!(*again.meta(), meta);
    for chunk in chunks {
        assert_eq!(again.next_chunk().unwrap(), Some(chunk));
    }
    assert_eq!(again.next_chunk().unwrap(), None);
}

/// Frames of any kind and length with valid checksums, and a matching trailer.
fn sealed_checkpoint(position: Position, bytes: &[u8]) -> Vec<u8> {
    let mut fields = position.index.to_le_bytes().to_vec();
    fields.extend_from_slice(&position.term.to_le_bytes());
    let flags = bytes.first().copied().unwrap_or_default();
    fields.extend_from_slice(&u32::from(flags).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&1_u32.to_le_bytes()), &fields);
    let mut file = b"QUORCHKP".to_vec();
    file.extend_from_slice(&1_u32.to_le_bytes());
    file.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(&fields);
    let (mut number, mut chunks, mut total, mut sum) = (0_u64, 0_u64, 0_u64, 0);
    let mut frame = |kind: u8, claimed: u32, payload: &[u8]| {
        let mut seed = crc32c::crc32c(&position.index.to_le_bytes());
        seed = crc32c::crc32c_append(seed, &position.term.to_le_bytes());
        seed = crc32c::crc32c_append(seed, &number.to_le_bytes());
        seed = crc32c::crc32c_append(crc32c::crc32c_append(seed, &[kind]), &claimed.to_le_bytes());
        number += 1;
        file.push(kind);
        file.extend_from_slice(&claimed.to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c_append(seed, payload).to_le_bytes());
        file.extend_from_slice(payload);
    };
    let mut rest = bytes.get(1..).unwrap_or_default();
    while rest.len() >= 3 {
        let length = usize::from(u16::from_le_bytes([rest[0], rest[1]])).min(rest.len() - 3);
        let (kind, payload) = (rest[2], &rest[3..3 + length]);
        rest = &rest[3 + length..];
        // Kind 0xff stands for a frame whose length field is wrong.
        let claimed = match kind {
            0xff => MAX_CHUNK_BYTES as u32,
            _ => length as u32,
        };
        if kind == 2 {
            (chunks, total) = (chunks + 1, total + length as u64);
            sum = crc32c::crc32c_append(sum, payload);
        }
        frame(kind, claimed, payload);
    }
    let mut end = chunks.to_le_bytes().to_vec();
    end.extend_from_slice(&total.to_le_bytes());
    end.extend_from_slice(&sum.to_le_bytes());
    frame(3, end.len() as u32, &end);
    file
}

/// A small file as it is, or with a valid header for its content.
fn small(magic: &[u8], mode: u8, bytes: &[u8]) -> Vec<u8> {
    if mode & 1 == 0 {
        return bytes.to_vec();
    }
    let format = 1_u32.to_le_bytes();
    let mut file = magic.to_vec();
    file.extend_from_slice(&format);
    file.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&format), bytes);
    file.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(bytes);
    file
}

/// The identity file.
pub(crate) fn identity(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let disk = MemoryDisk::new();
    disk.plant("identity", &small(b"QUORIDEN", mode, bytes));
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Ok(Some(identity)) = Identity::load(&*disk) else {
        return;
    };
    identity.store(&disk).unwrap();
    assert_eq!(Identity::load(&*disk).unwrap(), Some(identity));
}

/// The file of starts.
pub(crate) fn starts(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let disk = MemoryDisk::new();
    disk.plant("starts", &small(b"QUORSTRT", mode, bytes));
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Ok(first) = Starts::begin(&disk, *b"a disk to damage", 1) else {
        return;
    };
    let number = first.own().newest().unwrap().number;
    let next = Starts::begin(&disk, *b"a disk to damage", 2).unwrap();
    let next = next.own().newest().unwrap();
    assert_eq!((next.number, next.nonce), (number.saturating_add(1), 2));
}
