//! What a key takes of memory, with its value there and in a file, counted as the server's allocator hands memory out.
//! `cargo test -p quorate-core --lib memory_cost -- --ignored --nocapture` prints it for a million keys; with fewer it is a
//! test like any other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::tree_cost::{KEYS, key};
use crate::store::*;

const VALUE: usize = 256;
/// Puts between two published views.
const BATCH: u64 = 30;

/// Counts for each thread, so that other tests do not disturb the one that asks.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What mimalloc takes for so many bytes: multiples of 16 up to 128, and then a quarter of a power of two more each time.
fn handed_out(size: usize) -> isize {
    let step = match size {
        0..=128 => 16,
        _ => 1 << ((size - 1).ilog2() - 2),
    };
    size.next_multiple_of(step).cast_signed()
}

fn count(bytes: isize) {
    let now = NOW.get() + bytes;
    NOW.set(now);
    MOST.set(MOST.get().max(now));
}

#[expect(
    unsafe_code,
    reason = "nothing else sees every allocation; each is the system's own"
)]
// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(handed_out(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-handed_out(layout.size()));
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // As if it were moved: both are there for a moment.
        count(handed_out(size));
        count(-handed_out(layout.size()));
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes a key of what is made, and at most while it is.
fn measured<T>(what: &str, keys: u64, make: impl FnOnce() -> T) -> (T, isize) {
    let before = NOW.get();
    MOST.set(before);
    let made = make();
    let each = |bytes: isize| (bytes - before) / keys.cast_signed() as isize;
    let (now, most) = (each(NOW.get()), each(MOST.get()));
    println!("{what}: {now} bytes a key, {most} at most");
    (made, now)
}

/// A file of which only the places matter.
#[derive(Debug)]
struct Unread;

impl ValueBytes for Unread {
    fn read(&self, _: u64, _: u32) -> Result<Bytes, ReadFailure> {
        Err(ReadFailure::Io("nobody reads it".to_owned()))
    }

    fn read_many(
        &self,
        places: &[(u64, u32)],
        _: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), (u64, ReadFailure)> {
        match places.first() {
            Some((offset, _)) => Err((*offset, ReadFailure::Io("nobody reads it".to_owned()))),
            None => Ok(()),
        }
    }

    fn read_ahead(&self, _: u64, _: u32) {}

    fn length(&self) -> u64 {
        u64::MAX
    }
}

fn written(keys: u64) -> Store {
    let mut store = Store::new();
    write(&mut store, 0..keys);
    store
}

fn write(store: &mut Store, numbers: impl Iterator<Item = u64>) {
    let mut view = store.publish();
    for number in numbers {
        let put = Put {
            key: key(number),
            value: Bytes::from(vec![7; VALUE]),
            ..Put::default()
        };
        let position = Position {
            index: number + 1,
            term: 1,
        };
        let command = Command::from(Operation::Put(put));
        store.apply(&command, position).expect("a put");
        if number.is_multiple_of(BATCH) {
            view = store.publish();
        }
    }
    drop(view);
}

/// Writes each key so many times more, in another order each time, with a checkpoint after each third of them if there is a file.
fn write_again(store: &mut Store, keys: u64, times: u64, file: Option<&Arc<ValueFile>>) {
    let part = keys.div_ceil(3);
    for time in 0..times {
        for begin in (0..keys).step_by(part as usize) {
            let order = |at: u64| (at * 7_919 + time * 31) % keys;
            write(store, (begin..keys.min(begin + part)).map(order));
            if let Some(file) = file {
                moved(store, file);
            }
        }
    }
    store.publish().export().for_each(drop);
}

/// Moves every value, as a checkpoint does.
fn moved(store: &Store, file: &Arc<ValueFile>) {
    let view = store.publish();
    let mut offset = 0;
    let put = |value: &[u8]| {
        offset += value.len() as u64;
        Ok::<u64, DamagedValue>(offset)
    };
    let worn = std::collections::BTreeSet::new();
    let moved = view.move_values(1, (&worn, 0), put);
    moved.expect("all is in memory").settle(file);
    view.pack();
}

/// Bytes a key: written in any order and read once, the same with the values in a file, loaded with places, loaded with values.
fn figures(keys: u64) -> [isize; 4] {
    let file = ValueFile::new(1, Unread);
    let (store, in_memory) = measured("written, values in memory", keys, || written(keys));
    // A checkpoint once made counters of keys and values that stayed.
    let before = NOW.get();
    store.publish().export().for_each(drop);
    let read = (NOW.get() - before) / keys.cast_signed() as isize;
    println!("after a checkpoint of it: {read} bytes a key more");
    let whole: Vec<Bytes> = store.publish().export().collect();
    let before = NOW.get();
    moved(&store, &file);
    let freed = (NOW.get() - before) / keys.cast_signed() as isize;
    let in_file = in_memory + read + freed;
    println!("written, values in a file: {in_file} bytes a key");
    let placed: Vec<Bytes> = store.publish().export().placed().collect();
    drop(store);
    let load = || Store::import_with([Arc::clone(&file)], &placed).expect("a store");
    let (_, loaded) = measured("loaded, values in a file", keys, load);
    let load = || Store::import(&whole).expect("a store");
    let (_, loaded_whole) = measured("loaded, values in memory", keys, load);
    [in_memory + read, in_file, loaded, loaded_whole]
}

/// Bytes an older revision of keys that were written so many times more: values in memory; in a file; the same after a start.
fn history(keys: u64, times: u64) -> [isize; 3] {
    let file = ValueFile::new(1, Unread);
    let older = (keys * times).cast_signed() as isize;
    let again = |file: Option<&Arc<ValueFile>>| {
        let mut store = written(keys);
        file.into_iter().for_each(|file| moved(&store, file));
        let before = NOW.get();
        write_again(&mut store, keys, times, file);
        (store, (NOW.get() - before) / older)
    };
    let (store, in_memory) = again(None);
    drop(store);
    println!("{times} older revisions of a key, values in memory: {in_memory} bytes each");
    let (store, in_file) = again(Some(&file));
    println!("{times} older revisions of a key, values in a file: {in_file} bytes each");
    let placed = |store: &Store| store.publish().export().placed().collect::<Vec<Bytes>>();
    let load = |chunks: &[Bytes]| {
        let before = NOW.get();
        let loaded = Store::import_with([Arc::clone(&file)], chunks).expect("a store");
        (NOW.get() - before, loaded).0
    };
    let with = placed(&store);
    drop(store);
    let once = written(keys);
    moved(&once, &file);
    let loaded = (load(&with) - load(&placed(&once))) / older;
    println!("{times} older revisions of a key, after a start: {loaded} bytes each");
    [in_memory, in_file, loaded]
}

/// A word more of each record, or a piece of memory more of each key, is beyond this.
#[test]
fn key_takes_little_memory() {
    let found = figures(20_000);
    let most = [495, 207, 171, 427];
    let within = found.iter().zip(most).all(|(found, most)| *found <= most);
    assert!(within, "{found:?}, at most {most:?}");
}

/// An old revision took 170 bytes and more, of which its key was the least.
#[test]
fn older_revision_takes_little_memory() {
    let found = history(4_000, 3);
    let most = [450, 75, 75];
    let within = found.iter().zip(most).all(|(found, most)| *found <= most);
    assert!(within, "{found:?}, at most {most:?}");
}

#[test]
#[ignore = "takes a minute and a gigabyte"]
fn memory_cost() {
    figures(KEYS / 5);
    for times in [1, 3, 10] {
        history(KEYS / 10, times);
    }
}
