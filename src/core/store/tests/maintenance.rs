//! Hashes, reclaim and checkpoints, a test for each rule.

use bytes::Bytes;
use prost::Message as _;

use super::helpers::*;
use crate::store::pieces::{Head, Kind, Piece, Row as PlacedRow, Tail};
use crate::store::*;

#[test]
fn hash_of_known_histories_equals_etcds() {
    // Worked out by hand from etcd's definition.
    let hash = |store: &Store| store.publish().hash_kv(0).expect("a hash");
    let empty = hash(&Store::new());
    assert_eq!(
        (empty.hash, empty.compact_revision),
        (crc32c::crc32c(b"key"), -1)
    );
    let mut store = filled(&["a"]);
    do_delete(&mut store, "a");
    let mut stored = b"key".to_vec();
    stored.extend(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0");
    stored.extend(b"\x0a\x01a\x10\x02\x18\x02\x20\x01\x2a\x01v");
    stored.extend(b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\0t");
    stored.extend(b"\x0a\x01a");
    assert_eq!(hash(&store).hash, crc32c::crc32c(&stored));
    assert_eq!(
        store.publish().hash_kv(4),
        Err(Error::FutureRevision { current: 3 })
    );
    compact(&mut store, 2).expect("a compaction");
    let below = store.publish().hash_kv(-1).expect("the hash of nothing");
    assert_eq!(
        (below.hash, below.hash_revision),
        (crc32c::crc32c(b"key"), -1)
    );
    compact(&mut store, 3).expect("a compaction");
    assert_eq!(
        hash(&store).hash,
        crc32c::crc32c(b"key"),
        "no tombstone of the compaction"
    );
    assert_eq!(
        store.publish().hash_kv(2),
        Err(Error::Compacted { compacted: 3 })
    );
}

#[test]
fn reclaim_works_in_slices() {
    let mut store = Store::new();
    for round in 0..5000 {
        let key = format!("{}", round % 50);
        do_put(&mut store, &key, "v");
        if round % 3 == 0 {
            do_delete(&mut store, &key);
        }
    }
    let revision = store.revision();
    compact(&mut store, revision).expect("a compaction");
    let before = store.publish();
    let mut slices = 0;
    loop {
        let logged = store.state.log.len();
        let left = store.reclaim(100);
        assert!(logged - store.state.log.len() <= 100, "a slice is bounded");
        slices += 1;
        if left == 0 {
            break;
        }
    }
    assert!(slices > 50);
    let records: usize = {
        let mut count = 0;
        store
            .state
            .keys
            .visit(crate::store::span::Span::ALL, &mut |entry| {
                count += entry.records().count();
                std::ops::ControlFlow::Continue(())
            });
        count
    };
    assert!(records < 50 + 16, "only recent records stay: {records}");
    let after = store.publish();
    assert_eq!(after.hash_kv(0), before.hash_kv(0));
    assert_eq!(after.db_size(), before.db_size());
    let all = read("\0", "\0");
    assert_eq!(after.range(&all), before.range(&all));
}

#[test]
fn export_chunks_are_bounded_and_checked() {
    let mut store = Store::new();
    let large = "x".repeat(700_000);
    for key in ["a", "b", "b", "b", "c"] {
        do_put(&mut store, key, &large);
    }
    run(
        &mut store,
        Operation::LeaseGrant(LeaseGrant { id: 7, ttl: 10 }),
    )
    .expect("a lease");
    let view = store.publish();
    let chunks: Vec<Bytes> = view.export().collect();
    assert!(chunks.len() >= 4 && chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES));
    let same = Store::import(&chunks).expect("an import").publish();
    assert_eq!(same.hash_kv(0), view.hash_kv(0));
    let refused = |chunks: Vec<Bytes>| matches!(Store::import(chunks), Err(Error::Checkpoint(_)));
    assert!(refused(Vec::new()));
    assert!(refused(chunks[..chunks.len() - 1].to_vec()), "cut short");
    assert!(refused(chunks[1..].to_vec()), "without its beginning");
    assert!(refused(
        [chunks.clone(), vec![Bytes::from_static(b"\x02\x0a\0")]].concat()
    ));
    let mut swapped = chunks.clone();
    swapped.swap(1, 2);
    assert!(refused(swapped));
}

/// Entries of the log are found by their places alone, so of two at one place one was taken for the other.
#[test]
fn checkpoint_with_two_rows_at_one_place_is_refused() {
    let row = |key: &'static str, sub| {
        Kind::Row(PlacedRow {
            key: bytes(key),
            create: 2,
            main: 2,
            version: 1,
            sub,
            ..PlacedRow::default()
        })
    };
    let state = |sub| {
        let head = Head {
            format: 1,
            revision: 2,
            compacted: -1,
        };
        let tail = Tail {
            records: 2,
            leases: 0,
            db_size: 2 * (1 + 128),
            alarms: 0,
        };
        let all = [
            Kind::Head(head),
            row("a", 0),
            row("b", sub),
            Kind::Tail(tail),
        ];
        let pieces = all.map(|kind| Piece { kind: Some(kind) });
        Store::import(pieces.map(|piece| piece.encode_length_delimited_to_vec()))
    };
    assert_eq!(state(1).expect("a state").revision(), 2);
    let refused = state(0).expect_err("they are at one place").to_string();
    assert!(refused.contains("place"), "{refused}");
    // The next place at its revision would be the first: a search for what lies below that panicked or found nothing.
    let refused = state(u32::MAX)
        .expect_err("it has no next place")
        .to_string();
    assert!(refused.contains("too large"), "{refused}");
}

/// Found by damaging an entry: the write of an empty key, which servers refuse before they propose
/// it, was carried out, and every checkpoint from then on was refused as out of order.
#[test]
fn empty_key_is_refused() {
    let mut store = filled(&["a"]);
    let put = Put {
        key: Bytes::new(),
        value: "v".into(),
        ..Put::default()
    };
    let alone = run(&mut store, Operation::Put(put.clone()));
    assert_eq!(alone.err(), Some(Error::EmptyKey));
    let success = vec![RequestOp {
        op: Some(Op::Put(put)),
    }];
    let txn = Txn {
        success,
        ..Txn::default()
    };
    let inside = run(&mut store, Operation::Txn(txn));
    assert_eq!(inside.err(), Some(Error::EmptyKey));
    Store::import(store.publish().export()).expect("a checkpoint");
}

/// A state whose revision was the largest number was taken, and the next write overflowed.
#[test]
fn exhausted_revisions_are_refused() {
    // A head: its length, its tag and length, format 1, a revision, a compacted one; then the end.
    let state = |revision: i64, compacted: i64| {
        let mut head = vec![0x08, 1, 0x10];
        prost::encoding::encode_varint(revision.cast_unsigned(), &mut head);
        head.push(0x18);
        prost::encoding::encode_varint(compacted.cast_unsigned(), &mut head);
        let length = u8::try_from(head.len()).expect("a short head");
        let bytes = [&[length + 2, 0x0a, length], &head[..], &[2, 0x22, 0]].concat();
        Store::import([bytes])
    };
    assert_eq!(state(7, 3).expect("a state").revision(), 7);
    for (revision, compacted) in [(i64::MAX, -1), (0, -1), (-4, -5), (3, 4), (3, -2)] {
        assert!(
            state(revision, compacted).is_err(),
            "{revision} {compacted}"
        );
    }
}

#[test]
fn compaction_at_a_delete_frees_it() {
    let mut store = Store::new();
    do_put(&mut store, "a", &"v".repeat(10_000));
    do_delete(&mut store, "a");
    let revision = store.revision();
    compact(&mut store, revision).expect("a compaction");
    let view = store.publish();
    assert_eq!(view.db_size(), 1 + 128, "the tombstone alone");
    let again = Store::import(view.export()).expect("a store");
    assert_eq!(again.publish().db_size(), view.db_size());
    do_put(&mut store, "b", "v");
    let revision = store.revision();
    compact(&mut store, revision).expect("a compaction");
    assert_eq!(store.publish().db_size(), 2 + 128);
}
