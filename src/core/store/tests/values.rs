//! Values in files: a double of the files, and what a damaged one does to whoever needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::helpers::{bytes, compact, do_put, filled, put, read, run};
use crate::store::*;

/// Files of values in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    all: BTreeMap<u64, Arc<ValueFile>>,
    worn: BTreeSet<u64>,
    newest: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    damaged: AtomicBool,
    reads: AtomicU64,
    ahead: AtomicU64,
}

/// One of them. A value begins with a byte that is not its own, as the disk's have a head.
#[derive(Debug)]
struct Double {
    content: Arc<Mutex<Vec<u8>>>,
    shared: Arc<Shared>,
}

impl ValueBytes for Double {
    fn read(&self, offset: u64, length: u32) -> Result<Bytes, ReadFailure> {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        if self.shared.damaged.load(Ordering::Relaxed) {
            return Err(ReadFailure::Damaged("the double is damaged".to_owned()));
        }
        let content = self.content.lock().expect("nobody panics with it");
        let from = offset as usize + 1;
        let value = content.get(from..from + length as usize);
        value
            .map(Bytes::copy_from_slice)
            .ok_or_else(|| ReadFailure::Damaged("it ends early".to_owned()))
    }

    fn read_many(
        &self,
        places: &[(u64, u32)],
        each: &mut dyn FnMut(usize, Bytes),
    ) -> Result<(), (u64, ReadFailure)> {
        assert!(places.is_sorted(), "{places:?}");
        for (number, (offset, length)) in places.iter().enumerate() {
            let value = self.read(*offset, *length);
            each(number, value.map_err(|failure| (*offset, failure))?);
        }
        Ok(())
    }

    fn read_ahead(&self, _: u64, _: u32) {
        self.shared.ahead.fetch_add(1, Ordering::Relaxed);
    }

    fn length(&self) -> u64 {
        self.content.lock().expect("nobody panics with it").len() as u64
    }
}

impl Files {
    /// Moves values of at least `from` bytes, as a checkpoint does.
    pub(super) fn take(&mut self, view: &View, from: usize) -> Result<UsedFiles, DamagedValue> {
        let mut content = vec![0; 7];
        let put = |value: &[u8]| Ok::<u64, DamagedValue>(put_to(&mut content, value));
        let moved = view.move_values(from, (&self.worn, 20), put)?;
        let used = self.settle(moved, content);
        self.keep(&used);
        Ok(used)
    }

    /// A checkpoint, with values of at least `from` bytes in files, that is made of the last one, as a member makes it. `None` if it cannot be.
    pub(super) fn merge(
        &mut self,
        view: &Arc<View>,
        from: usize,
        (last, chunks): &(Written, Vec<Bytes>),
    ) -> Option<Result<(Written, Vec<Bytes>), Error>> {
        let moment = view.moment();
        let changes = view.changes_since(&last.moment)?;
        let before = || Ok::<_, Error>(chunks.clone().into_iter().map(Ok::<Bytes, Error>));
        let worn = self.worn.clone();
        let mut content = vec![0; 7];
        let moved = view.move_changes((&changes, from), before, (&worn, 20), |value| {
            Ok::<u64, Error>(put_to(&mut content, value))
        });
        let merged = moved.and_then(|moved| {
            let needed = moved.needed(&last.files);
            let files = self.settle(moved, content).and(&needed);
            self.keep(&files);
            let changed = (changes, worn);
            let mut merge = Merge::new(Arc::clone(view), changed, before()?, files)?;
            let mut chunks = Vec::new();
            while let Some(chunk) = merge.next_chunk()? {
                chunks.push(chunk);
            }
            let written = merge.written(moment, None);
            self.worn = written.files.worn(3);
            Ok((written, chunks))
        });
        Some(merged)
    }

    fn keep(&mut self, used: &UsedFiles) {
        let used: BTreeSet<u64> = used.numbers().collect();
        self.all.retain(|number, _| used.contains(number));
    }

    /// What was written is in a file from here on. Returns the files in which there are values of those that were looked at.
    fn settle(&mut self, moved: Moved, content: Vec<u8>) -> UsedFiles {
        let mut used = moved.others().clone();
        let numbers: BTreeSet<u64> = used.numbers().collect();
        assert!(numbers.iter().all(|number| self.all.contains_key(number)));
        self.worn = used.worn(3);
        assert!(self.worn.is_subset(&numbers));
        if !moved.is_empty() {
            self.newest += 1;
            let bytes = content.len() as u64;
            let double = Double {
                content: Arc::new(Mutex::new(content)),
                shared: Arc::clone(&self.shared),
            };
            let file = ValueFile::new(self.newest, double);
            moved.settle(&file);
            used.add(&file, bytes);
            self.all.insert(self.newest, file);
        }
        used
    }

    pub(super) fn all(&self) -> Vec<Arc<ValueFile>> {
        self.all.values().cloned().collect()
    }

    /// What others receive of a stream with places.
    pub(super) fn inline(&self, placed: &[Bytes]) -> Vec<u8> {
        let mut inline = Inline::new(self.all());
        let mut out = Vec::new();
        for chunk in placed {
            inline.push(chunk);
            while let Some(chunk) = inline.next_chunk().expect("every value is readable") {
                out.extend_from_slice(&chunk);
            }
        }
        out.extend(inline.finish().expect("it is whole").into_iter().flatten());
        out
    }

    /// How many files there were, and how often one was read.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.newest, self.shared.reads.load(Ordering::Relaxed))
    }

    pub(super) fn damage(&self, damaged: bool) {
        self.shared.damaged.store(damaged, Ordering::Relaxed);
    }
}

fn put_to(content: &mut Vec<u8>, value: &[u8]) -> u64 {
    let offset = content.len() as u64;
    content.push(0xff);
    content.extend_from_slice(value);
    offset
}

/// The stream with every value in it.
pub(super) fn whole(view: &Arc<View>) -> Vec<u8> {
    view.export().flatten().collect()
}

fn moved(store: &Store) -> Files {
    let mut files = Files::default();
    let view = store.publish();
    files.take(&view, 1).expect("all is in memory");
    files
}

/// The applier waited for the disk where a value was not in the page cache.
#[test]
fn values_that_a_command_reads_are_fetched_ahead() {
    let store = filled(&["a", "b", "c"]);
    let files = moved(&store);
    let view = store.publish();
    let fetched = |operation: Operation| {
        ReadAhead::new(Arc::clone(&view)).command(&operation);
        files.shared.ahead.swap(0, Ordering::Relaxed)
    };
    let delete = |prev_kv| DeleteRange {
        key: bytes("a"),
        range_end: bytes("c"),
        prev_kv,
    };
    let op = |op| RequestOp { op: Some(op) };
    assert_eq!(fetched(Operation::Put(put("a", "x"))), 0);
    let shown = Put {
        prev_kv: true,
        ..put("a", "x")
    };
    assert_eq!(fetched(Operation::Put(shown)), 1);
    assert_eq!(fetched(Operation::DeleteRange(delete(false))), 0);
    assert_eq!(fetched(Operation::DeleteRange(delete(true))), 2);
    let limited = Range {
        limit: 2,
        ..read("a", "z")
    };
    let nested = Txn {
        success: vec![op(Op::Range(limited))],
        ..Txn::default()
    };
    let txn = Txn {
        compare: vec![Compare {
            target: CompareTarget::Value as i32,
            key: bytes("b"),
            ..Compare::default()
        }],
        success: vec![op(Op::Txn(nested)), op(Op::Put(put("b", "x")))],
        failure: vec![op(Op::Range(read("c", "")))],
    };
    assert_eq!(fetched(Operation::Txn(txn)), 1 + 2 + 1);
    let (_, reads) = files.counts();
    assert_eq!(reads, 0, "it reads none");
}

/// A transaction with ranges over a million deleted keys held up the log.
#[test]
fn read_ahead_looks_at_a_bounded_number_of_keys() {
    let names: Vec<String> = (0..3000).map(|number| format!("key {number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut store = filled(&names);
    let delete = DeleteRange {
        key: bytes("key 0"),
        range_end: bytes("key 1"),
        ..DeleteRange::default()
    };
    run(&mut store, Operation::DeleteRange(delete)).expect("deleted");
    let files = moved(&store);
    let ahead = |key: &str| {
        let all = Range {
            limit: 600,
            ..read(key, "z")
        };
        let op = RequestOp {
            op: Some(Op::Range(all)),
        };
        let txn = Operation::Txn(Txn {
            success: vec![op],
            ..Txn::default()
        });
        let mut ahead = ReadAhead::new(store.publish());
        ahead.command(&txn);
        ahead.command(&txn);
        files.shared.ahead.swap(0, Ordering::Relaxed)
    };
    assert_eq!(ahead("key 0"), 0, "1,000 of them are deleted");
    assert_eq!(ahead("key 1"), 1000, "one budget for the batch");
}

#[test]
fn bytes_of_values_are_those_that_go_to_files() {
    let mut store = filled(&["a", "b"]);
    let pace = Pace::default();
    let of = |store: &Store| store.publish().bytes_of_values(5, &pace);
    assert_eq!(of(&store), 0, "they are shorter");
    do_put(&mut store, "a", "in memory");
    assert_eq!(of(&store), 9);
    let _files = moved(&store);
    assert_eq!(of(&store), 9);
    do_put(&mut store, "a", "instead");
    assert_eq!(of(&store), 16);
    let revision = store.revision();
    let compact = Operation::Compact(Compact { revision });
    run(&mut store, compact).expect("compacted");
    assert_eq!(of(&store), 7);
}

/// Whoever needs a value that cannot be read gets an error that names it, never another value, and whoever needs none
/// is served.
#[test]
fn damaged_value_is_an_error_for_whoever_needs_it() {
    let mut store = filled(&["a", "b"]);
    let files = moved(&store);
    files.damage(true);
    let view = store.publish();
    let unreadable = |error: Error| match error {
        Error::Value(damaged) => assert_eq!(damaged.to_string(), "the double is damaged"),
        other => panic!("{other}"),
    };
    unreadable(
        view.range(&read("a", ""))
            .expect_err("its value is damaged"),
    );
    unreadable(view.hash_kv(0).expect_err("it has every value in it"));
    unreadable(
        view.events(2, 3, b"a", b"", false)
            .expect_err("the event has the value"),
    );
    assert!(view.rows().any(|row| row.is_err()));
    let keys_only = Range {
        keys_only: true,
        ..read("a", "c")
    };
    assert_eq!(view.range(&keys_only).expect("keys").kvs.len(), 2);
    let count_only = Range {
        count_only: true,
        ..read("a", "c")
    };
    assert_eq!(view.range(&count_only).expect("a count").count, 2);
    do_put(&mut store, "a", "new");
    assert_eq!(
        store
            .publish()
            .range(&read("a", ""))
            .expect("in memory")
            .kvs[0]
            .value,
        bytes("new")
    );
}

/// What another member has is the same value if it was written at the same revision, and no other one is.
#[test]
fn value_is_healed_by_its_own_revision_alone() {
    let mut store = filled(&["a", "b"]);
    do_put(&mut store, "a", "w");
    let healthy = store.publish();
    let chunks: Vec<Bytes> = healthy.export().collect();
    let peer = Store::import(&chunks).expect("the same state").publish();
    let files = moved(&store);
    files.damage(true);
    let view = store.publish();
    let places: BTreeSet<(u64, u64)> = (0..20).map(|offset| (1, offset)).collect();
    let lost = view.lost_values(&places);
    assert_eq!(lost.len(), 3);
    assert!(view.lost_values(&BTreeSet::from([(2, 7)])).is_empty());
    let row = |key: &[u8], at| peer.row_at(key, at).expect("it is in memory");
    let rows = [row(b"a", (2, 0)), row(b"b", (3, 0)), row(b"a", (4, 0))];
    let rows = rows.map(|row| row.expect("it is there"));
    assert_eq!(row(b"a", (3, 0)), None);
    assert_eq!(row(b"c", (2, 0)), None);
    assert!(view.row_at(b"a", (2, 0)).is_err(), "it is damaged here");
    for lost in &lost {
        let of = |row: &&Row| (row.main, row.sub) == lost.revision();
        let own = rows.iter().find(of).expect("one is its own");
        for other in rows.iter().filter(|row| *row != own) {
            assert_eq!(
                view.heal(lost, other),
                Healed::Refused,
                "{lost:?}: {other:?}"
            );
        }
        let mut leased = own.clone();
        leased.kv.lease = 7;
        assert_eq!(view.heal(lost, &leased), Healed::Refused);
        assert_eq!(view.heal(lost, own), Healed::Taken, "{lost:?}");
        assert_eq!(
            view.heal(lost, own),
            Healed::Elsewhere,
            "it is in memory now"
        );
    }
    for view in [&view, &store.publish()] {
        assert_eq!(view.hash_kv(0), peer.hash_kv(0), "each view reads it");
    }
    assert!(view.lost_values(&places).is_empty());
}

/// A member whose data differs from the others', which nobody knows yet, has another value at the same revision. To take it
/// would make two of one that is wrong.
#[test]
fn value_is_healed_by_the_bytes_that_were_written_alone() {
    let mut store = filled(&["a"]);
    let peer = store.publish();
    let row = peer.row_at(b"a", (2, 0)).expect("it is in memory");
    let row = row.expect("it is there");
    let files = moved(&store);
    // Its checksum is in the checkpoint, and in the next one.
    for _ in 0..2 {
        let placed: Vec<Bytes> = store.publish().export().placed().collect();
        store = Store::import_with(files.all(), &placed).expect("a store");
    }
    files.damage(true);
    let view = store.publish();
    let lost = view.lost_values(&BTreeSet::from([(1, 7)]));
    let lost = lost.first().expect("it is lost");
    assert_eq!(lost.length(), row.kv.value.len());
    for wrong in ["longer", "x"] {
        let mut other = row.clone();
        other.kv.value = bytes(wrong);
        assert_eq!(view.heal(lost, &other), Healed::Refused, "{wrong}");
    }
    assert_eq!(view.heal(lost, &row), Healed::Taken);
}

/// A command that needs a damaged value is no refusal: the state is what it was, and the member stops.
#[test]
fn command_that_needs_a_damaged_value_changes_nothing() {
    let mut store = filled(&["a"]);
    let files = moved(&store);
    files.damage(true);
    let before = store.publish();
    let needs = [
        Operation::Put(Put {
            ignore_value: true,
            value: Bytes::new(),
            ..put("a", "")
        }),
        Operation::Put(Put {
            prev_kv: true,
            ..put("a", "x")
        }),
        Operation::DeleteRange(DeleteRange {
            key: bytes("a"),
            prev_kv: true,
            ..DeleteRange::default()
        }),
        Operation::Txn(Txn {
            compare: vec![Compare {
                target: CompareTarget::Value as i32,
                key: bytes("a"),
                value: bytes("v"),
                ..Compare::default()
            }],
            ..Txn::default()
        }),
        Operation::Txn(Txn {
            success: vec![
                Op::Put(put("b", "new")).into(),
                Op::Range(read("a", "")).into(),
            ],
            ..Txn::default()
        }),
    ];
    for operation in needs {
        let answer = run(&mut store, operation.clone());
        assert!(
            matches!(answer, Err(Error::Value(_))),
            "{operation:?}: {answer:?}"
        );
        let now = store.publish();
        assert_eq!(
            (now.revision(), now.db_size()),
            (before.revision(), before.db_size()),
            "{operation:?}"
        );
    }
    files.damage(false);
    assert_eq!(store.publish().hash_kv(0), before.hash_kv(0));
}

/// An export that meets a damaged value ends, says why, and is no state for whoever got a part of it.
#[test]
fn export_with_a_damaged_value_is_no_state() {
    let store = filled(&["a", "b"]);
    let files = moved(&store);
    files.damage(true);
    let mut export = store.publish().export();
    let chunks: Vec<Bytes> = export.by_ref().collect();
    assert!(export.failure().is_some());
    assert!(matches!(Store::import(&chunks), Err(Error::Checkpoint(_))));
    let mut placed = store.publish().export().placed();
    let chunks: Vec<Bytes> = placed.by_ref().collect();
    assert!(placed.failure().is_none(), "places need no values");
    assert!(Store::import_with(files.all(), &chunks).is_ok());
    let missing = Store::import(&chunks).expect_err("its file is not there");
    assert!(missing.to_string().contains("is not there"), "{missing}");
}

/// A watcher that is to be shown a value that cannot be read learns why; one that is in step is not shown
/// another one either.
#[test]
fn watcher_learns_why_it_is_not_shown_a_value() {
    let mut store = filled(&["a"]);
    let mut watchers = Watchers::new(&store.publish());
    let spec = |start_revision| WatchSpec {
        key: bytes("a"),
        start_revision,
        ..WatchSpec::default()
    };
    watchers.create(1, spec(0)).expect("a watcher");
    watchers.create(2, spec(1)).expect("a watcher");
    do_put(&mut store, "a", "later");
    let files = moved(&store);
    files.damage(true);
    let view = store.publish();
    watchers.advance(&view, &mut |_, _| panic!("no value is readable"));
    for id in [1, 2] {
        let outcome = watchers.catch_up(id, &view, Slice::default());
        assert!(
            matches!(outcome, CatchUp::Unreadable(_)),
            "{id}: {outcome:?}"
        );
    }
    assert!(watchers.is_empty());
}

/// A file is emptied when most of what is in it is needed no more, and the smallest are joined.
#[test]
fn worn_and_small_files_are_emptied() {
    let mut store = filled(&["a", "b", "c", "d"]);
    let mut files = moved(&store);
    for key in ["a", "b", "c"] {
        do_put(&mut store, key, "another one");
    }
    let revision = store.publish().revision();
    compact(&mut store, revision).expect("a compaction");
    store.reclaim(100);
    let view = store.publish();
    files.take(&view, 1).expect("readable");
    assert_eq!(files.worn, BTreeSet::from([1]), "one of four is needed");
    files.take(&view, 1).expect("readable");
    assert!(!files.all.contains_key(&1));
    assert_eq!(
        store
            .publish()
            .range(&read("d", ""))
            .expect("moved twice")
            .kvs
            .len(),
        1
    );
    for number in 0..6 {
        do_put(&mut store, &format!("k{number}"), "one value a file");
        files.take(&store.publish(), 1).expect("readable");
    }
    assert!(files.all.len() <= 5, "{}", files.all.len());
}
