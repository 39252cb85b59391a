//! Packed revisions: a store whose old revisions are packed is as one whose are not, at every revision, through compactions,
//! moves, healing and starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::generator::Generator;
use super::helpers::{bytes, compact, do_put, put, read, run};
use super::values::{Files, whole};
use crate::store::checkpoint::{kept, kept_at};
use crate::store::span::Span;
use crate::store::*;

/// Keys of many lengths, and some that others begin with.
fn key(number: u64) -> Bytes {
    match number % 7 {
        0 => Bytes::from(format!("{number}")),
        1 => Bytes::from(vec![b'k'; number as usize * 40]),
        2 => Bytes::from(vec![b'k'; number as usize * 40 + 1]),
        3 => Bytes::from(format!("/registry/pods/default/{number}")),
        4 => Bytes::from(format!("/registry/pods/{number}")),
        5 => Bytes::from_static(b"hot"),
        _ => Bytes::from(vec![number as u8; 3]),
    }
}

fn value(generator: &mut Generator) -> Bytes {
    let length = [0, 1, 63, 64, 65, 300][generator.below(6) as usize];
    Bytes::from(vec![generator.below(256) as u8; length])
}

/// What a checkpoint leaves in each file if it moves nothing.
fn stays(view: &View) -> BTreeMap<u64, u64> {
    let nothing = |_: &[u8]| unreachable!("a value moved");
    let moved = view.move_values::<DamagedValue>(usize::MAX, (&BTreeSet::new(), 0), nothing);
    used(moved.expect("nothing is written").others())
}

fn used(files: &UsedFiles) -> BTreeMap<u64, u64> {
    let used = files.0.iter();
    used.map(|(number, used)| (*number, used.bytes)).collect()
}

/// The same, by asking each key.
fn in_files(view: &View) -> BTreeMap<u64, u64> {
    let mut used = BTreeMap::new();
    view.state.keys.visit(Span::ALL, &mut |entry| {
        for found in entry.records() {
            let (compacted, place) = (view.state.compacted, found.place());
            let all = kept(entry, compacted).find(|it| it.place() == place);
            let one = kept_at(entry, compacted, place);
            assert_eq!(one.map(|it| it.place()), all.map(|it| it.place()));
        }
        for found in kept(entry, view.state.compacted) {
            if let Some(place) = view.state.seen(entry, found).value.place() {
                *used.entry(place.file.number()).or_default() += u64::from(place.length);
            }
        }
        ControlFlow::Continue(())
    });
    used
}

/// A store that packs, with its files, and one that does neither.
struct Twins {
    generator: Generator,
    packed: Store,
    plain: Store,
    files: Files,
    /// The last checkpoint, and from how many bytes on values are in files there.
    last: Option<(usize, (Written, Vec<Bytes>))>,
    /// How many were made of the one before.
    merged: u64,
}

impl Twins {
    fn new(seed: u64) -> Self {
        let mut twins = Twins {
            generator: Generator::new(seed),
            packed: Store::new(),
            plain: Store::new(),
            files: Files::default(),
            last: None,
            merged: 0,
        };
        for id in [1, i64::MAX] {
            twins.run(Operation::LeaseGrant(LeaseGrant { id, ttl: 60 }));
        }
        twins
    }

    fn run(&mut self, operation: Operation) {
        let answer = run(&mut self.packed, operation.clone());
        assert_eq!(answer, run(&mut self.plain, operation));
    }

    fn put(&mut self) -> Put {
        let number = self.generator.below(40);
        Put {
            key: key(number),
            value: value(&mut self.generator),
            lease: [0, 0, 1, i64::MAX][self.generator.below(4) as usize],
            prev_kv: self.generator.one_in(4),
            ..Put::default()
        }
    }

    fn delete(&mut self) -> DeleteRange {
        let first = self.generator.below(40);
        let range_end = match self.generator.below(4) {
            0 => Bytes::from_static(b"/registry/pods0"),
            _ => Bytes::new(),
        };
        DeleteRange {
            key: key(first),
            range_end,
            prev_kv: self.generator.one_in(4),
        }
    }

    fn write(&mut self) {
        let operation = match self.generator.below(12) {
            0 => Operation::DeleteRange(self.delete()),
            1 => {
                // Several at one revision.
                let keys: BTreeSet<Bytes> = (0..5).map(|_| key(self.generator.below(40))).collect();
                let puts = keys.into_iter().map(|key| {
                    Op::Put(Put {
                        key,
                        value: Bytes::from_static(b"together"),
                        ..Put::default()
                    })
                });
                Operation::Txn(Txn {
                    success: puts.map(RequestOp::from).collect(),
                    ..Txn::default()
                })
            }
            _ => Operation::Put(self.put()),
        };
        self.run(operation);
    }

    /// A checkpoint, of the one before if that is possible: it has the same bytes as one of the state alone.
    fn checkpoint(&mut self) {
        let view = self.packed.publish();
        let last = self.last.take();
        let merged = last.and_then(|(from, last)| {
            let merged = self.files.merge(&view, from, &last)?;
            Some((from, merged.expect("the one before is whole")))
        });
        let next = match merged {
            Some((from, (written, chunks))) => {
                self.merged += 1;
                let alone: Vec<u8> = view.export().placed().flatten().collect();
                assert!(chunks.concat() == alone, "they differ");
                assert_eq!(used(&written.files), in_files(&view));
                (from, (written, chunks))
            }
            None => self.checkpoint_alone(&view),
        };
        view.state.log.pack(self.generator.between(1, 20) as usize);
        // Sometimes one fails behind that.
        self.last = (!self.generator.one_in(6)).then_some(next);
    }

    fn checkpoint_alone(&mut self, view: &Arc<View>) -> (usize, (Written, Vec<Bytes>)) {
        let moment = view.moment();
        let from = [1, 64, 65][self.generator.below(3) as usize];
        let files = self.files.take(view, from);
        let files = files.expect("every value is readable");
        let chunks = view.export().placed().collect();
        let new = None;
        (from, (Written { moment, files, new }, chunks))
    }

    /// The packed one starts again.
    fn start(&mut self) {
        let view = self.packed.publish();
        let placed: Vec<Bytes> = view.export().placed().collect();
        self.packed = Store::import_with(self.files.all(), &placed).expect("a checkpoint");
        assert_eq!(whole(&self.packed.publish()), whole(&view));
    }

    fn compact(&mut self) {
        let view = self.plain.publish();
        let (low, high) = (view.compacted().max(1), view.revision());
        let revision = self.generator.between(low, high);
        if revision > view.compacted() {
            self.run(Operation::Compact(Compact { revision }));
        }
        for store in [&mut self.packed, &mut self.plain] {
            match self.generator.below(2000) as usize {
                budget if budget < 500 => store.reclaim_all(4 * budget),
                budget => store.reclaim(budget),
            };
        }
    }

    fn check(&mut self) {
        let (packed, plain) = (self.packed.publish(), self.plain.publish());
        assert_eq!(stays(&packed), in_files(&packed));
        same(&packed, &plain, &mut self.generator);
        assert_eq!(whole(&packed), whole(&plain));
    }
}

fn same(packed: &Arc<View>, plain: &Arc<View>, generator: &mut Generator) {
    let (low, high) = (plain.compacted().max(1), plain.revision());
    assert_eq!(packed.db_size(), plain.db_size());
    assert_eq!(packed.key_count(), plain.key_count());
    let pace = Pace::default();
    assert_eq!(
        packed.bytes_of_values(64, &pace),
        plain.bytes_of_values(64, &pace)
    );
    for revision in [
        low,
        high,
        generator.between(low, high),
        generator.between(low, high),
    ] {
        assert_eq!(packed.hash_kv(revision), plain.hash_kv(revision));
        let single = key(generator.below(40));
        for (from, end) in [
            (&single[..], &b""[..]),
            (&b""[..], &b"\0"[..]),
            (b"/", b"0"),
        ] {
            let range = Range {
                key: Bytes::copy_from_slice(from),
                range_end: Bytes::copy_from_slice(end),
                revision,
                ..Range::default()
            };
            assert_eq!(packed.range(&range), plain.range(&range), "{range:?}");
            let events = |view: &View| view.events(revision, high, from, end, true);
            assert_eq!(events(packed), events(plain));
        }
    }
    let rows = |view: &View| view.rows().collect::<Result<Vec<_>, _>>();
    let (packed_rows, plain_rows) = (rows(packed), rows(plain));
    assert_eq!(packed_rows, plain_rows);
    for row in plain_rows.expect("all in memory").iter().step_by(17) {
        let at = (row.main, row.sub);
        assert_eq!(
            packed.row_at(&row.kv.key, at),
            plain.row_at(&row.kv.key, at)
        );
    }
}

/// Packed revisions are in full chunks of the log alone, so it takes some thousand of them, and few compactions.
#[test]
fn packed_store_is_as_one_that_is_not() {
    for seed in 0..4 {
        let mut twins = Twins::new(seed);
        let (mut frozen, mut most) = (Vec::new(), 0);
        for step in 1..=4000_u64 {
            twins.write();
            if step.is_multiple_of(170) {
                twins.checkpoint();
            }
            match step % 1000 {
                300 => frozen.push((twins.packed.publish(), twins.plain.publish())),
                600 if step > 2000 => twins.compact(),
                800 => twins.start(),
                _ => {}
            }
            if step.is_multiple_of(500) {
                most = most.max(twins.packed.state.log.packed());
                twins.check();
            }
        }
        for (packed, plain) in frozen {
            same(&packed, &plain, &mut twins.generator);
        }
        assert!(most > 1000, "seed {seed}: {most} were packed at most");
        let merged = twins.merged;
        assert!(
            merged >= 8,
            "seed {seed}: {merged} of 23 checkpoints were made of the one before"
        );
    }
}

/// Views share what is packed, so that a healed value is there for each of them, and the next checkpoint moves it.
#[test]
fn packed_value_is_healed_and_moved() {
    let mut store = Store::new();
    let mut files = Files::default();
    for number in 0..300 {
        do_put(&mut store, "a", &format!("value {number}"));
    }
    let healthy: Vec<Bytes> = store.publish().export().collect();
    let peer = Store::import(&healthy).expect("the same state").publish();
    let view = store.publish();
    files.take(&view, 1).expect("all is in memory");
    view.pack();
    assert_eq!(store.state.log.packed(), 256, "full chunks");
    files.damage(true);
    let old = |view: &View| {
        view.range(&Range {
            revision: 7,
            ..read("a", "")
        })
    };
    let place = match old(&view) {
        Err(Error::Value(damaged)) => (damaged.file, damaged.offset),
        other => panic!("{other:?}"),
    };
    let lost = view.lost_values(&BTreeSet::from([place]));
    let [lost] = &lost[..] else {
        panic!("{lost:?}")
    };
    let row = |at| {
        peer.row_at(b"a", at)
            .expect("it is in memory")
            .expect("it is there")
    };
    assert_eq!(view.heal(lost, &row((8, 0))), Healed::Refused);
    assert_eq!(view.heal(lost, &row((7, 0))), Healed::Taken);
    assert_eq!(store.state.log.packed(), 255);
    assert_eq!(view.heal(lost, &row((7, 0))), Healed::Elsewhere);
    for view in [&view, &store.publish()] {
        assert_eq!(old(view), old(&peer));
    }
    files.damage(false);
    files.take(&store.publish(), 1).expect("one is in memory");
    view.state.log.pack(1);
    assert_eq!(store.state.log.packed(), 256);
    assert_eq!(whole(&store.publish()), whole(&peer));
    let (made, _) = files.counts();
    assert_eq!(made, 2, "the healed one is in a file of its own");
}

/// A store of so many revisions of "a", all of them in a damaged file, and its peer that has them in memory.
fn damaged(count: usize) -> (Store, Files, Arc<View>) {
    let mut store = Store::new();
    let mut files = Files::default();
    for number in 0..count {
        do_put(&mut store, "a", &format!("value {number}"));
    }
    let healthy: Vec<Bytes> = store.publish().export().collect();
    let peer = Store::import(&healthy).expect("the same state").publish();
    files
        .take(&store.publish(), 1)
        .expect("all of it is in memory");
    files.damage(true);
    (store, files, peer)
}

fn at(revision: Revision) -> Range {
    Range {
        revision,
        ..read("a", "")
    }
}

/// What is lost of "a" at a revision.
fn lost_at(view: &View, revision: Revision) -> LostValue {
    let place = match view.range(&at(revision)) {
        Err(Error::Value(damaged)) => (damaged.file, damaged.offset),
        other => panic!("{other:?}"),
    };
    let lost = view.lost_values(&BTreeSet::from([place]));
    lost.into_iter().next().expect("the state has it")
}

fn row_of(peer: &View, revision: Revision) -> Row {
    let row = peer.row_at(b"a", (revision, 0));
    row.expect("it is in memory").expect("it is there")
}

/// What was asked for while its revision was a record, and answered once it was packed, was healed in a record that
/// nobody had any more: it was asked for again, and the applier, which waited for it, met the damage once more. Carried
/// out here as there: a transaction that reads the revision is applied again after the answer.
#[test]
fn value_is_healed_that_was_packed_since_it_was_asked_for() {
    let (mut store, mut files, peer) = damaged(100);
    let before = store.publish();
    // One that is in the log's last chunk, which is not full yet, and the newest one, which is in the tree besides.
    let lost = [7, 101].map(|revision| (revision, lost_at(&before, revision)));
    files.damage(false);
    for number in 0..100 {
        do_put(&mut store, "a", &format!("later {number}"));
    }
    let view = store.publish();
    files.take(&view, 1).expect("every value is readable");
    view.pack();
    assert_eq!(store.state.log.packed(), 128);
    files.damage(true);
    for (revision, lost) in &lost {
        let reads = Txn {
            success: vec![Op::Range(at(*revision)).into()],
            ..Txn::default()
        };
        let failed = run(&mut store, Operation::Txn(reads.clone()));
        assert!(matches!(failed, Err(Error::Value(_))), "{failed:?}");
        let row = row_of(&peer, *revision);
        let now = store.publish();
        assert_eq!(now.heal(lost, &row), Healed::Taken);
        assert_eq!(now.heal(lost, &row), Healed::Elsewhere);
        run(&mut store, Operation::Txn(reads)).expect("it is healed");
        let value = Ok(peer.range(&at(*revision)).expect("in memory").kvs);
        for view in [&before, &view, &store.publish()] {
            assert_eq!(view.range(&at(*revision)).map(|found| found.kvs), value);
        }
    }
    assert_eq!(store.state.log.packed(), 126);
}

/// The same of a revision that was packed when it was asked for, and that has left the log since, as a compaction kept it.
#[test]
fn value_is_healed_that_was_kept_since_it_was_asked_for() {
    let (mut store, mut files, peer) = damaged(100);
    files.damage(false);
    let compacted = do_put(&mut store, "b", "another key");
    for number in 0..100 {
        do_put(&mut store, "a", &format!("later {number}"));
    }
    let before = store.publish();
    files.take(&before, 1).expect("every value is readable");
    before.pack();
    files.damage(true);
    let lost = lost_at(&before, 101);
    compact(&mut store, compacted).expect("compacted");
    while store.reclaim(500) > 0 {}
    let now = store.publish();
    assert_eq!(now.heal(&lost, &row_of(&peer, 101)), Healed::Taken);
    let value = peer.range(&at(101)).expect("in memory").kvs;
    for view in [&before, &now] {
        let found = view.range(&at(compacted)).map(|found| found.kvs);
        assert_eq!(found, Ok(value.clone()));
    }
}

/// A change that was taken back leaves the record that it replaced as one that may be packed. Then the newest revision of a key
/// is in the log's block and in the tree: whoever reads, heals or replaces it finds both.
#[test]
fn revision_whose_replacement_was_taken_back_is_packed_and_stays_the_newest() {
    let (mut store, mut files, peer) = damaged(128);
    let fails = Txn {
        success: vec![Op::Put(put("a", "x")).into(), Op::Range(at(7)).into()],
        ..Txn::default()
    };
    let failed = run(&mut store, Operation::Txn(fails));
    assert!(matches!(failed, Err(Error::Value(_))), "{failed:?}");
    let view = store.publish();
    assert_eq!(view.revision(), 129, "it was taken back");
    view.pack();
    assert_eq!(store.state.log.packed(), 128, "the newest one as well");
    let lost = lost_at(&view, 129);
    assert_eq!(view.heal(&lost, &row_of(&peer, 129)), Healed::Taken);
    let events = |view: &View| view.events(129, 129, b"a", b"", false);
    assert_eq!(view.range(&at(129)), peer.range(&at(129)));
    assert_eq!(events(&view), events(&peer), "they are read from the log");
    files.damage(false);
    assert_eq!(whole(&view), whole(&peer));
    do_put(&mut store, "a", "later");
    files
        .take(&store.publish(), 1)
        .expect("every value is readable");
    store.publish().pack();
    for view in [&view, &store.publish()] {
        assert_eq!(
            view.range(&at(129)).map(|found| found.kvs),
            peer.range(&at(129)).map(|found| found.kvs)
        );
        assert_eq!(events(view), events(&peer));
    }
}

/// A put, a read at an old revision and a compaction of a key with a long history must not take time in proportion to it.
#[test]
fn hot_key_stays_fast() {
    let mut store = Store::new();
    let mut files = Files::default();
    let begun = std::time::Instant::now();
    for number in 0..50_000_u32 {
        let operation = Operation::Put(put("hot", "a value"));
        run(&mut store, operation).expect("a put");
        if number.is_multiple_of(15_000) {
            let view = store.publish();
            files.take(&view, 1).expect("all is readable");
            view.pack();
        }
    }
    let view = store.publish();
    for revision in (2..50_000).step_by(97) {
        let old = Range {
            revision,
            ..read("hot", "")
        };
        let kvs = view.range(&old).expect("it is not compacted").kvs;
        assert_eq!(
            (kvs[0].mod_revision, &kvs[0].value),
            (revision, &bytes("a value"))
        );
    }
    run(&mut store, Operation::Compact(Compact { revision: 49_000 })).expect("compacted");
    while store.reclaim(500) > 0 {
        drop(store.publish());
    }
    assert!(store.state.log.len() <= 1100);
    println!("{:?}", begun.elapsed());
    assert!(
        begun.elapsed().as_secs() < 60,
        "a debug build takes one or two"
    );
}
