//! What the tree costs beside a sorted map that nobody shares, and what the log costs whoever seeks one key in it: `cargo test
//! --release -p quorate-core --lib tree_cost -- --ignored --nocapture`. Not part of other runs, since it needs a quiet machine and release speed.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;

use super::generator::Generator;
use crate::store::history::KeyEntry;
use crate::store::record::{Details, Record};
use crate::store::tree::Tree;
use crate::store::value::Value;

pub(super) const KEYS: u64 = 1_000_000;
const OPERATIONS: u64 = 500_000;
/// Puts between two publications, about as many as a member with 1,000 clients applies at once.
const BATCH: u64 = 30;

/// Written in another order than they sort in.
pub(super) fn key(number: u64) -> Bytes {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000_000_000;
    Bytes::from(format!("/registry/things/{scattered:015}"))
}

pub(super) fn record(key: &[u8], main: u64) -> Record {
    let value = Value::new(Bytes::copy_from_slice(&[7; 256]));
    let details = Details {
        create: 1,
        version: 1,
        lease: 0,
    };
    Record::new(key, value, details, (main as i64, 0))
}

pub(super) fn measured(what: &str, operations: u64, mut operation: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    (0..operations).for_each(&mut operation);
    let each = begun.elapsed().as_nanos() as f64 / operations as f64;
    println!("{what}: {each:.0} ns");
    each
}

#[test]
#[ignore = "needs a quiet machine and release speed"]
fn tree_cost() {
    let mut generator = Generator::new(1);
    let mut tree: Tree<KeyEntry> = Tree::default();
    let mut view = tree.clone();
    measured("tree, insert", KEYS, |number| {
        tree.insert(KeyEntry::new(record(&key(number), number)));
        if number.is_multiple_of(BATCH) {
            view = tree.clone();
        }
    });
    let put = measured("tree, put", OPERATIONS, |number| {
        let key = key(generator.below(KEYS));
        assert!(tree.get(&key).is_some(), "every key was inserted");
        let record = record(&key, KEYS + number);
        tree.modify(&key, |entry| *entry = KeyEntry::new(record));
        if number.is_multiple_of(BATCH) {
            view = tree.clone();
        }
    });
    let get = measured("tree, get", OPERATIONS, |_| {
        assert!(view.get(&key(generator.below(KEYS))).is_some());
    });
    let mut map = BTreeMap::new();
    measured("map, insert", KEYS, |number| {
        let key = key(number);
        let record = record(&key, number);
        map.insert(key, record);
    });
    let map_put = measured("map, put", OPERATIONS, |number| {
        let key = key(generator.below(KEYS));
        let found = map.get_mut(&key).expect("every key was inserted");
        *found = record(&key, KEYS + number);
    });
    let map_get = measured("map, get", OPERATIONS, |_| {
        assert!(map.contains_key(&key(generator.below(KEYS))));
    });
    // Before nodes had heads, these were 4.5 and 3.5 times.
    assert!(put < 3.0 * map_put, "a put is {:.1} times", put / map_put);
    assert!(get < 2.0 * map_get, "a get is {:.1} times", get / map_get);
}

/// What it takes to pass an entry of the log that is of another key, with a record made of it and without.
#[test]
#[ignore = "needs a quiet machine and release speed"]
fn scan_cost() {
    use crate::store::log::{LogEntry, RevisionLog};
    use crate::store::span::Span;
    for packed in [false, true] {
        let mut log = RevisionLog::default();
        for number in 0..KEYS {
            let record = Record::new(
                &key(number % 200_000),
                Value::new(Bytes::from_static(b"short")),
                Details::default(),
                (2 + number as i64, 0),
            );
            record.supersede();
            log.push(LogEntry { record, frees: 0 });
        }
        if packed {
            log.pack(1);
        }
        let one = key(7);
        let span = Span::new(&one, b"");
        for _ in 0..3 {
            let begun = Instant::now();
            let entries = log.iter_from(0);
            let found = entries.filter(|entry| span.contains(entry.record.key()));
            let found = found.count();
            let records = begun.elapsed();
            let begun = Instant::now();
            let within = log.iter_from(0).within(span).flatten().count();
            let keys = begun.elapsed();
            assert_eq!((found, within), (5, 5));
            let each = |it: std::time::Duration| it.as_nanos() as u64 / KEYS;
            println!(
                "packed {packed}: {} ns with a record, {} without",
                each(records),
                each(keys)
            );
        }
    }
}
