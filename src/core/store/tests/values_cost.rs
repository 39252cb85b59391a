//! What a key costs once its value is in a file: memory, reads of the value, a restart, a checkpoint of what changed, a
//! hash. These are the measurements of docs/decisions/061-values-on-disk.md: `cargo test --release -p quorate-core --lib
//! values_cost -- --ignored --nocapture`. Not part of other runs, since it needs a quiet machine, release speed and a
//! gigabyte of a real disk (below `TMPDIR`).

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};

use super::generator::Generator;
use super::tree_cost::{KEYS, key, measured, record};
use crate::disk::{Disk as _, DiskFile, FileDisk};
use crate::store::Revision;
use crate::store::record::KeyEntry;
use crate::store::span::{End, Span};
use crate::store::tree::{Builder, Item, Tree};

const VALUE: usize = 256;
/// Bytes of the index behind one checksum.
const BLOCK: usize = 64 << 10;
/// Bytes of a write.
const PIECE: usize = 1 << 20;
const READS: u64 = 200_000;
const COLD_READS: usize = 2_000;
/// Keys of a list.
const LISTED: u64 = 500;
/// Keys that change between two checkpoints.
const CHANGED: u64 = 100_000;

/// Where a value is, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    offset: u64,
    length: usize,
    sum: u32,
}

/// A key whose value is in a file: revision, other numbers, checksum and key in one allocation.
#[derive(Clone, Debug)]
struct Placed {
    newest: Arc<[u8]>,
    /// What a key with a history needs, as an entry of today has it.
    older: Option<Arc<Vec<Arc<[u8]>>>>,
}

impl Placed {
    fn packed(key: &[u8], main: u64, place: Place) -> Vec<u8> {
        let mut packed = main.to_be_bytes().to_vec();
        packed.push(0);
        // Revisions since its creation, version, lease, place within the revision, file.
        for number in [0, 1, 0, 0, 1, place.offset, place.length as u64] {
            encode_varint(number, &mut packed);
        }
        packed[8] = u8::try_from(packed.len() - 9).expect("a few numbers");
        packed.extend_from_slice(&place.sum.to_le_bytes());
        packed.extend_from_slice(key);
        packed
    }

    fn new(packed: &[u8]) -> Self {
        Placed {
            newest: Arc::from(packed),
            older: None,
        }
    }

    fn numbers(&self) -> (&[u8], &[u8]) {
        self.newest[9..].split_at(usize::from(self.newest[8]))
    }

    fn place(&self) -> Place {
        let (mut numbers, rest) = self.numbers();
        let mut next = || decode_varint(&mut numbers).expect("as it was packed");
        let [_, _, _, _, _, offset, length] = std::array::from_fn(|_| next());
        Place {
            offset,
            length: length as usize,
            sum: u32::from_le_bytes(*rest.first_chunk().expect("as it was packed")),
        }
    }
}

impl Item for Placed {
    fn key(&self) -> &[u8] {
        &self.numbers().1[4..]
    }

    fn live(&self) -> bool {
        true
    }

    fn modified(&self) -> Revision {
        i64::from_be_bytes(*self.newest.first_chunk().expect("as it was packed"))
    }

    fn load(&self) {
        std::hint::black_box((Arc::strong_count(&self.newest), self.older.is_some()));
    }
}

/// The value with which a key was written at a number.
fn value(number: u64) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    for (at, eight) in value.chunks_exact_mut(8).enumerate() {
        let mixed = (number + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        eight.copy_from_slice(&mixed.to_le_bytes());
    }
    value
}

/// Writes values one behind the other and syncs them; gives their places.
fn write_values(file: &dyn DiskFile, numbers: impl Iterator<Item = u64>) -> Vec<Place> {
    let (mut places, mut piece, mut written) = (Vec::new(), Vec::new(), 0);
    for number in numbers {
        let value = value(number);
        places.push(Place {
            offset: written + piece.len() as u64,
            length: VALUE,
            sum: crc32c::crc32c(&value),
        });
        piece.extend_from_slice(&value);
        if piece.len() >= PIECE {
            file.write_at(written, &piece).expect("a disk");
            written += piece.len() as u64;
            piece.clear();
        }
    }
    file.write_at(written, &piece).expect("a disk");
    file.sync().expect("a disk");
    places
}

/// Writes packed keys in blocks with a length and a checksum before each, and syncs them; gives the bytes.
fn write_index(file: &dyn DiskFile, packed: impl Iterator<Item = Vec<u8>>) -> u64 {
    let (mut block, mut at) = (Vec::with_capacity(BLOCK), 0);
    let mut end = |block: &mut Vec<u8>| {
        let mut bytes = (block.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
        bytes.append(block);
        file.write_at(at, &bytes).expect("a disk");
        at += bytes.len() as u64;
        at
    };
    for one in packed {
        block.extend_from_slice(&(one.len() as u16).to_le_bytes());
        block.extend_from_slice(&one);
        if block.len() > BLOCK - 1024 {
            end(&mut block);
        }
    }
    let bytes = end(&mut block);
    file.sync().expect("a disk");
    bytes
}

/// Reads such a file, checks it, and builds the tree.
fn read_index(file: &dyn DiskFile) -> Tree<Placed> {
    let mut builder = Builder::default();
    let (mut at, length) = (0, file.length().expect("a disk"));
    let mut block = vec![0; BLOCK];
    while at < length {
        let mut head = [0; 8];
        read(file, at, &mut head);
        let (size, sum) = head.split_at(4);
        let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
        let sum = u32::from_le_bytes(sum.try_into().expect("four bytes"));
        read(file, at + 8, &mut block[..size]);
        assert_eq!(crc32c::crc32c(&block[..size]), sum);
        let mut rest = &block[..size];
        while let Some((length, more)) = rest.split_first_chunk() {
            let (packed, more) = more.split_at(usize::from(u16::from_le_bytes(*length)));
            builder.push(Placed::new(packed));
            rest = more;
        }
        at += 8 + size as u64;
    }
    builder.finish()
}

fn read(file: &dyn DiskFile, at: u64, buffer: &mut [u8]) {
    assert_eq!(file.read_at(at, buffer).expect("a disk"), buffer.len());
}

fn read_value(file: &dyn DiskFile, place: Place, buffer: &mut [u8; VALUE]) {
    read(file, place.offset, buffer);
    assert_eq!(crc32c::crc32c(buffer), place.sum);
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096_u64
}

/// Makes something and prints what it takes of memory, a key, and of time.
fn weighed<T>(what: &str, make: impl FnOnce() -> T) -> (T, u64) {
    let (before, begun) = (resident(), Instant::now());
    let made = make();
    let took = begun.elapsed();
    let each = resident().saturating_sub(before) / KEYS;
    println!("{what}: {each} bytes a key in memory, {took:?}");
    (made, each)
}

/// Has the system forget what it has cached of a file; false where `dd` cannot ask for that.
fn forgotten(path: &Path) -> bool {
    let mut dd = Command::new("dd");
    let dd = dd.arg(format!("if={}", path.display()));
    let dd = dd.args(["iflag=nocache", "count=0"]).stderr(Stdio::null());
    dd.status().is_ok_and(|status| status.success())
}

fn cold_reads(tree: &Tree<Placed>, file: &dyn DiskFile, path: &Path, generator: &mut Generator) {
    if !forgotten(path) {
        println!("cold reads: not measured, the system does not forget a file here");
        return;
    }
    let mut buffer = [0; VALUE];
    let mut times: Vec<_> = (0..COLD_READS)
        .map(|_| {
            let key = key(generator.below(KEYS));
            let place = tree.get(&key).expect("every key was inserted").place();
            let begun = Instant::now();
            read_value(file, place, &mut buffer);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (half, most) = (times[COLD_READS / 2], times[COLD_READS * 99 / 100]);
    println!("cold read of a value: median {half:?}, p99 {most:?}");
}

/// Lists of neighbouring keys with their values, from memory and from the file.
fn lists(
    memory: &Tree<KeyEntry>,
    placed: &Tree<Placed>,
    file: &dyn DiskFile,
    generator: &mut Generator,
) {
    let rounds = READS / LISTED;
    let mut buffer = [0; VALUE];
    let mut from = || key(generator.below(KEYS));
    let full = |listed: &mut u64| {
        *listed += 1;
        match *listed {
            LISTED => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    measured("list of 500 from memory", rounds, |_| {
        let (from, end, mut listed) = (from(), End::Open, 0);
        memory.visit(Span { from: &from, end }, &mut |entry| {
            buffer.copy_from_slice(&entry.newest().value);
            full(&mut listed)
        });
    });
    measured("list of 500 from the file's cache", rounds, |_| {
        let (from, end, mut listed) = (from(), End::Open, 0);
        placed.visit(Span { from: &from, end }, &mut |entry| {
            read_value(file, entry.place(), &mut buffer);
            full(&mut listed)
        });
    });
}

/// The hash over all keys and values, from the checksums of the values alone.
fn hash(tree: &Tree<Placed>, file: &dyn DiskFile) {
    let (mut combined, mut read_all, mut checked) = (0, 0, 0);
    let begun = Instant::now();
    tree.visit(Span::ALL, &mut |entry| {
        let place = entry.place();
        let with_key = crc32c::crc32c_append(combined, entry.key());
        combined = crc32c::crc32c_combine(with_key, place.sum, place.length);
        ControlFlow::Continue(())
    });
    println!("hash from checksums: {:?}", begun.elapsed());
    let mut buffer = [0; VALUE];
    let begun = Instant::now();
    tree.visit(Span::ALL, &mut |entry| {
        read_value(file, entry.place(), &mut buffer);
        read_all = crc32c::crc32c_append(crc32c::crc32c_append(read_all, entry.key()), &buffer);
        checked += 1;
        ControlFlow::Continue(())
    });
    println!("hash from values, in key order: {:?}", begun.elapsed());
    assert_eq!((combined, checked), (read_all, KEYS));
}

/// What a checkpoint writes of changed keys: their values and their part of an index.
fn checkpoint_of_changes(disk: &FileDisk, generator: &mut Generator) {
    let changed: Vec<u64> = (0..CHANGED).map(|_| generator.below(KEYS)).collect();
    let begun = Instant::now();
    let file = disk.create("values-2").expect("a disk");
    let places = write_values(&*file, changed.iter().map(|number| KEYS + number));
    let mut packed: Vec<(Bytes, Place)> = changed.iter().copied().map(key).zip(places).collect();
    packed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let index = disk.create("index-2").expect("a disk");
    let packed = packed.iter();
    let bytes = write_index(
        &*index,
        packed.map(|(key, place)| Placed::packed(key, KEYS, *place)),
    );
    let all = bytes + file.length().expect("a disk");
    println!(
        "checkpoint of {CHANGED} changes: {all} bytes, {:?}",
        begun.elapsed()
    );
}

#[test]
#[ignore = "needs a quiet machine, release speed and a gigabyte of disk"]
fn values_cost() {
    let mut generator = Generator::new(1);
    let directory = tempfile::tempdir().expect("a directory");
    let disk = FileDisk::new(directory.path()).expect("a disk");
    let mut sorted: Vec<u32> = (0..KEYS as u32).collect();
    sorted.sort_by_cached_key(|number| key(u64::from(*number)));

    let (memory, whole) = weighed("keys with their values", || {
        let mut builder = Builder::default();
        for number in &sorted {
            let key = Bytes::copy_from_slice(&key(u64::from(*number)));
            builder.push(KeyEntry::new(record(key, u64::from(*number))));
        }
        builder.finish()
    });
    let begun = Instant::now();
    let file = disk.create("values-1").expect("a disk");
    let places = write_values(&*file, 0..KEYS);
    println!("all values written and synced: {:?}", begun.elapsed());
    let begun = Instant::now();
    let index = disk.create("index-1").expect("a disk");
    let packed = |number: u64| Placed::packed(&key(number), number, places[number as usize]);
    let bytes = write_index(
        &*index,
        sorted.iter().map(|number| packed(u64::from(*number))),
    );
    println!(
        "all keys written and synced: {bytes} bytes, {:?}",
        begun.elapsed()
    );
    let (tree, each) = weighed("keys of a restart", || read_index(&*index));
    assert_eq!(tree.len(), KEYS);
    assert!(each < 160 && 2 * each < whole, "{each} bytes a key");

    let mut view = tree.clone();
    let (scattered, _) = weighed("keys written in any order", || {
        let mut scattered: Tree<Placed> = Tree::default();
        for number in 0..KEYS {
            scattered.insert(Placed::new(&packed(number)));
        }
        scattered
    });
    let mut changing = scattered.clone();
    measured("change of a place", READS, |number| {
        let of = generator.below(KEYS);
        let packed = packed(of);
        changing.modify(&key(of), |entry| *entry = Placed::new(&packed));
        if number.is_multiple_of(30) {
            view = changing.clone();
        }
    });
    assert_eq!(view.len(), KEYS);

    let mut buffer = [0; VALUE];
    let fast = measured("get from memory", READS, |_| {
        let entry = memory.get(&key(generator.below(KEYS)));
        buffer.copy_from_slice(&entry.expect("every key was inserted").newest().value);
    });
    let stored = measured("get from the file's cache", READS, |_| {
        let entry = tree.get(&key(generator.below(KEYS)));
        let place = entry.expect("every key was inserted").place();
        read_value(&*file, place, &mut buffer);
    });
    println!("which is {:.1} times", stored / fast);
    lists(&memory, &tree, &*file, &mut generator);
    hash(&tree, &*file);
    cold_reads(
        &tree,
        &*file,
        &directory.path().join("values-1"),
        &mut generator,
    );
    checkpoint_of_changes(&disk, &mut generator);
}
