//! The store by itself: reads of a view that is published, and writes, with a view published as often as a member with
//! many clients does.

use std::hint::black_box;

use bytes::Bytes;
use quorate_core::store::{
    Command, Compare, CompareResult, CompareTarget, DeleteRange, Op, Operation, Range, Txn,
};

use super::put::{KEYS, Prepared, command, filled, key, position, put};

/// Requests that are taken in turn.
const SOME: u64 = 1000;
/// Writes between two published views.
const BATCH: u64 = 32;

pub(super) fn gets(count: u64) {
    let view = filled().0.publish();
    let ranges = Prepared::new(SOME, |number| Range {
        key: key(number),
        ..Range::default()
    });
    for number in 0..count {
        let found = view.range(black_box(ranges.of(number)));
        assert_eq!(found.expect("it can be read").kvs.len(), 1);
    }
}

pub(super) fn lists(count: u64) {
    let view = filled().0.publish();
    let ranges = Prepared::new(20, |number| Range {
        // Each from another key: numbers of ten digits begin with 00 to 42, so more than 500 keys follow.
        key: Bytes::from(format!("/registry/pods/default/{:02}", number % 20)),
        range_end: Bytes::from_static(b"/registry/pods/default0"),
        limit: 500,
        ..Range::default()
    });
    for number in 0..count {
        let found = view.range(black_box(ranges.of(number)));
        let found = found.expect("it can be read");
        assert!(found.kvs.len() == 500 && found.count > 500);
    }
}

pub(super) fn puts(count: u64) {
    apply_all(count, &Prepared::new(SOME, command));
}

pub(super) fn transactions(count: u64) {
    let make = |number| {
        let key = key(number);
        let exists = Compare {
            result: CompareResult::Greater.into(),
            target: CompareTarget::Version.into(),
            key: key.clone(),
            ..Compare::default()
        };
        let range = Range {
            key,
            ..Range::default()
        };
        Operation::Txn(Txn {
            compare: vec![exists],
            success: vec![Op::Put(put(number)).into(), Op::Range(range).into()],
            failure: Vec::new(),
        })
        .into()
    };
    apply_all(count, &Prepared::new(SOME, make));
}

/// Each of another key: twice the count must not exceed the keys.
pub(super) fn deletes(count: u64) {
    assert!(count <= KEYS);
    let make = |number| {
        Operation::DeleteRange(DeleteRange {
            key: key(number),
            ..DeleteRange::default()
        })
        .into()
    };
    apply_all(count, &Prepared::new(KEYS, make));
}

fn apply_all(count: u64, commands: &Prepared<Command>) {
    let (mut store, last) = filled();
    let mut view = store.publish();
    for number in 0..count {
        let position = position(last + 1 + number);
        let answer = store.apply(commands.of(number), position);
        assert!(black_box(answer).is_ok());
        if number % BATCH == 0 {
            view = store.publish();
        }
    }
    black_box(view);
}
