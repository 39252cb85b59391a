//! One test for each rule of reading and writing.

use super::helpers::*;
use crate::store::*;

#[test]
fn first_write_makes_revision_2() {
    let mut store = Store::new();
    assert_eq!(store.revision(), 1);
    assert_eq!(do_put(&mut store, "a", ""), 2);
}

#[test]
fn same_value_makes_a_revision() {
    let mut store = filled(&["a"]);
    assert_eq!(do_put(&mut store, "a", "v"), 3);
    let kv = &get(&store, &read("a", "")).expect("a read").kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));
}

#[test]
fn deleted_key_restarts_at_version_1() {
    let mut store = filled(&["a", "a"]);
    do_delete(&mut store, "a");
    do_put(&mut store, "a", "w");
    let kv = &get(&store, &read("a", "")).expect("a read").kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
}

#[test]
fn empty_writes_make_no_revision() {
    let mut store = filled(&["a"]);
    let response = run(&mut store, Operation::DeleteRange(delete("x", "z"))).expect("a delete");
    let nothing = DeleteRangeResponse {
        revision: 2,
        deleted: 0,
        prev_kvs: Vec::new(),
    };
    assert_eq!(response, Response::DeleteRange(nothing));
    let txn = Txn {
        success: ops([Op::Range(read("a", ""))]),
        ..Default::default()
    };
    assert_eq!(
        run(&mut store, Operation::Txn(txn))
            .expect("a read")
            .revision(),
        2
    );
}

#[test]
fn txn_is_one_revision() {
    let mut store = filled(&["b"]);
    let success = ops([
        Op::Range(read("a", "c")),
        Op::Put(put("a", "1")),
        Op::DeleteRange(delete("b", "")),
        Op::Range(read("a", "c")),
    ]);
    let txn = Txn {
        success,
        ..Default::default()
    };
    let Ok(Response::Txn(response)) = run(&mut store, Operation::Txn(txn)) else {
        panic!("not carried out");
    };
    assert_eq!((response.revision, response.succeeded), (3, true));
    let ResponseOp::Range(before) = &response.responses[0] else {
        panic!("not a range")
    };
    assert_eq!((before.revision, keys(before)), (2, vec!["b"]));
    let ResponseOp::Range(after) = &response.responses[3] else {
        panic!("not a range")
    };
    assert_eq!((after.revision, keys(after)), (3, vec!["a"]));
    let events = store
        .publish()
        .events(3, 3, b"a", &[0], false)
        .expect("history");
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::Put, EventKind::Delete],
        "in the order of the operations"
    );
}

#[test]
fn nested_compares_see_the_state_before_the_txn() {
    let mut store = filled(&["a"]);
    let nested = Txn {
        compare: vec![compare("b", CompareTarget::Version, 0)],
        success: ops([Op::Put(put("c", "missing before"))]),
        failure: ops([Op::Put(put("c", "there before"))]),
    };
    let txn = Txn {
        success: ops([Op::Put(put("b", "1")), Op::Txn(nested)]),
        ..Default::default()
    };
    run(&mut store, Operation::Txn(txn)).expect("a transaction");
    let kv = &get(&store, &read("c", "")).expect("a read").kvs[0];
    assert_eq!(
        (&kv.value[..], kv.mod_revision),
        (&b"missing before"[..], 3)
    );
}

#[test]
fn missing_key_compares_as_zero() {
    let mut store = Store::new();
    let mut succeeds = |compare: Compare| {
        let txn = Txn {
            compare: vec![compare],
            ..Default::default()
        };
        let response = run(&mut store, Operation::Txn(txn)).expect("a transaction");
        matches!(
            response,
            Response::Txn(TxnResponse {
                succeeded: true,
                ..
            })
        )
    };
    for target in [
        CompareTarget::Version,
        CompareTarget::Create,
        CompareTarget::Mod,
    ] {
        assert!(succeeds(compare("a", target, 0)), "{target:?}");
        assert!(!succeeds(compare("a", target, 1)), "{target:?}");
    }
    assert!(succeeds(compare("a", CompareTarget::Lease, 0)));
    assert!(!succeeds(compare("a", CompareTarget::Value, 0)));
    let mut other = compare("a", CompareTarget::Value, 0);
    other.result = CompareResult::NotEqual as i32;
    assert!(!succeeds(other), "not even as different");
}

#[test]
fn refused_txn_changes_nothing() {
    let mut store = filled(&["a", "a", "a"]);
    compact(&mut store, 3).expect("a compaction");
    let mut at = |revision| {
        let range = Range {
            revision,
            ..read("a", "")
        };
        let txn = Txn {
            success: ops([Op::Put(put("b", "1")), Op::Range(range)]),
            ..Default::default()
        };
        run(&mut store, Operation::Txn(txn))
    };
    assert_eq!(
        at(5),
        Err(Error::FutureRevision { current: 4 }),
        "its own revision is future"
    );
    assert_eq!(at(2), Err(Error::Compacted { compacted: 3 }));
    assert!(at(3).is_ok());
    assert_eq!(store.revision(), 5);
}

#[test]
fn compacted_revision_itself_is_readable() {
    let mut store = filled(&["a", "b", "a", "c"]);
    do_delete(&mut store, "c");
    compact(&mut store, 4).expect("a compaction");
    let at = |revision| {
        get(
            &store,
            &Range {
                revision,
                ..read("a", "z")
            },
        )
    };
    assert_eq!(at(3), Err(Error::Compacted { compacted: 4 }));
    assert_eq!(keys(&at(4).expect("readable")), ["a", "b"]);
    assert_eq!(keys(&at(5).expect("readable")), ["a", "b", "c"]);
    assert_eq!(at(7), Err(Error::FutureRevision { current: 6 }));
}

#[test]
fn compaction_is_monotonic_up_to_the_revision() {
    let mut store = filled(&["a", "b", "c"]);
    assert_eq!(
        compact(&mut store, 5),
        Err(Error::FutureRevision { current: 4 })
    );
    let done = Response::Compact(CompactResponse { revision: 4 });
    assert_eq!(compact(&mut store, 3), Ok(done.clone()));
    assert_eq!(
        compact(&mut store, 3),
        Err(Error::Compacted { compacted: 3 })
    );
    assert_eq!(compact(&mut store, 4), Ok(done));
}

#[test]
fn count_ignores_limit_and_filters() {
    let store = filled(&["a", "b", "c", "d"]);
    let response = get(
        &store,
        &Range {
            limit: 2,
            ..read("a", "z")
        },
    )
    .expect("a read");
    assert_eq!(
        (keys(&response), response.count, response.more),
        (vec!["a", "b"], 4, true)
    );
    let filtered = Range {
        limit: 2,
        min_mod_revision: 4,
        ..read("a", "z")
    };
    let response = get(&store, &filtered).expect("a read");
    assert_eq!(
        (keys(&response), response.count, response.more),
        (vec!["c", "d"], 4, false)
    );
}

#[test]
fn limit_and_sort_order_as_etcd() {
    // Versions: a 3, b 2, c 1.
    let store = filled(&["a", "a", "a", "b", "b", "c"]);
    let sort_target = SortTarget::Version as i32;
    let unordered = Range {
        limit: 1,
        sort_target,
        ..read("a", "z")
    };
    assert_eq!(
        keys(&get(&store, &unordered).expect("a read")),
        ["b"],
        "of a and b alone"
    );
    let ordered = Range {
        sort_order: SortOrder::Ascend as i32,
        ..unordered
    };
    assert_eq!(keys(&get(&store, &ordered).expect("a read")), ["c"]);
}

#[test]
fn keys_only_omits_the_lease() {
    let mut store = Store::new();
    run(
        &mut store,
        Operation::LeaseGrant(LeaseGrant { id: 7, ttl: 10 }),
    )
    .expect("a lease");
    run(
        &mut store,
        Operation::Put(Put {
            lease: 7,
            ..put("a", "v")
        }),
    )
    .expect("a put");
    let range = Range {
        keys_only: true,
        ..read("a", "")
    };
    let kv = get(&store, &range).expect("a read").kvs.remove(0);
    assert_eq!((kv.lease, kv.value.len()), (0, 0));
    let sorted = Range {
        sort_target: SortTarget::Value as i32,
        ..range
    };
    let kv = get(&store, &sorted).expect("a read").kvs.remove(0);
    assert_eq!((kv.lease, kv.value.len()), (7, 0));
}

#[test]
fn lease_end_deletes_keys_in_one_revision() {
    let mut store = Store::new();
    run(
        &mut store,
        Operation::LeaseGrant(LeaseGrant { id: 7, ttl: 10 }),
    )
    .expect("a lease");
    for key in ["c", "a", "b", "d"] {
        run(
            &mut store,
            Operation::Put(Put {
                lease: 7,
                ..put(key, "v")
            }),
        )
        .expect("a put");
    }
    // Moved away, so it stays.
    do_put(&mut store, "d", "v");
    let revoke = Operation::LeaseRevoke(LeaseRevoke { id: 7 });
    assert_eq!(
        run(&mut store, revoke.clone()).map(|response| response.revision()),
        Ok(7)
    );
    let events = store
        .publish()
        .events(7, 7, b"a", &[0], false)
        .expect("history");
    let deleted: Vec<&[u8]> = events.iter().map(|event| &event.kv.key[..]).collect();
    assert_eq!(deleted, [b"a", b"b", b"c"]);
    assert_eq!(keys(&get(&store, &read("a", "z")).expect("a read")), ["d"]);
    assert_eq!(run(&mut store, revoke), Err(Error::LeaseNotFound));
}

#[test]
fn expiry_of_another_term_is_ignored() {
    let mut store = Store::new();
    for id in [1, 2] {
        run(
            &mut store,
            Operation::LeaseGrant(LeaseGrant { id, ttl: 10 }),
        )
        .expect("a lease");
        run(
            &mut store,
            Operation::Put(Put {
                lease: id,
                ..put("k", "v")
            }),
        )
        .expect("a put");
    }
    let mut expire = |term| {
        let expire = LeaseExpire {
            ids: vec![1, 9, 2],
            term,
        };
        run(&mut store, Operation::LeaseExpire(expire))
    };
    let answer = |revision, expired: &[LeaseId]| {
        let expired = expired.to_vec();
        Ok(Response::LeaseExpire(LeaseExpireResponse {
            revision,
            expired,
        }))
    };
    assert_eq!(expire(2), answer(3, &[]));
    assert_eq!(
        expire(3),
        answer(4, &[1, 2]),
        "an unknown one is passed over"
    );
}

#[test]
fn leases_are_refused_by_identity_and_length() {
    let mut store = Store::new();
    let mut grant = |id, ttl| run(&mut store, Operation::LeaseGrant(LeaseGrant { id, ttl }));
    assert_eq!(grant(0, 5), Err(Error::LeaseNotFound));
    assert_eq!(grant(5, MAX_LEASE_TTL + 1), Err(Error::LeaseTtlTooLarge));
    assert!(grant(5, MAX_LEASE_TTL).is_ok());
    assert_eq!(grant(5, 5), Err(Error::LeaseExists));
    let unknown = Put {
        lease: 6,
        ..put("a", "v")
    };
    assert_eq!(
        run(&mut store, Operation::Put(unknown)),
        Err(Error::LeaseNotFound)
    );
}

#[test]
fn keeping_value_or_lease_needs_the_key() {
    let mut store = Store::new();
    run(
        &mut store,
        Operation::LeaseGrant(LeaseGrant { id: 7, ttl: 10 }),
    )
    .expect("a lease");
    let keep_value = Put {
        ignore_value: true,
        lease: 7,
        ..put("a", "")
    };
    let refused = run(&mut store, Operation::Put(keep_value.clone()));
    assert_eq!(refused, Err(Error::KeyNotFound));
    do_put(&mut store, "a", "v");
    run(&mut store, Operation::Put(keep_value)).expect("a put");
    let keep_lease = Put {
        ignore_lease: true,
        prev_kv: true,
        ..put("a", "w")
    };
    let Ok(Response::Put(response)) = run(&mut store, Operation::Put(keep_lease)) else {
        panic!("not carried out");
    };
    let before = response.prev_kv.expect("asked for");
    assert_eq!((&before.value[..], before.lease), (&b"v"[..], 7));
    let kv = get(&store, &read("a", "")).expect("a read").kvs.remove(0);
    assert_eq!((&kv.value[..], kv.lease), (&b"w"[..], 7));
}

/// A count at an older revision, and a range that begins among deleted keys, went through all keys on a
/// thread that serves clients, whatever the limit. How long that takes is known without doing it.
#[test]
fn range_cost_is_known_in_advance() {
    let mut store = Store::new();
    for number in 0..2000 {
        do_put(&mut store, &format!("k{number:04}"), "");
    }
    let old = store.revision();
    let extra_examined = |store: &Store, from: &str, end: &str, revision: i64| {
        let range = Range {
            revision,
            limit: 1,
            ..read(from, end)
        };
        store.publish().extra_examined(&range, Counted::Yes, 500)
    };
    // Two edges of a span at most.
    assert!(extra_examined(&store, "k", "l", 0) <= 64);
    assert!(extra_examined(&store, "k", "l", old) <= 64);
    do_put(&mut store, "k1000", "again");
    assert!(
        extra_examined(&store, "k", "l", 0) <= 64,
        "of now, counts are kept"
    );
    assert!(
        extra_examined(&store, "k", "l", old) <= 128,
        "one leaf has changed"
    );
    for number in 0..2000 {
        do_put(&mut store, &format!("k{number:04}"), "again");
    }
    assert!(extra_examined(&store, "k", "l", 0) <= 64);
    let far = extra_examined(&store, "k", "l", old);
    assert!((501..600).contains(&far), "{far}: and it stops counting");
    assert_eq!(
        extra_examined(&store, "k0007", "", old),
        0,
        "one key is found"
    );
    assert!(extra_examined(&store, "k0000", "k0020", old) <= 64);
    for number in 100..1900 {
        do_delete(&mut store, &format!("k{number:04}"));
    }
    // Of those, a read looks at no more than its limit has it pass, and a count at none: both were
    // taken for long ones wherever many keys had been deleted.
    assert!(
        extra_examined(&store, "k", "l", 0) <= 64,
        "others are first"
    );
    assert!(
        extra_examined(&store, "k01", "l", 0) > 500,
        "deleted ones are first"
    );
    assert!(
        extra_examined(&store, "k0098", "l", 0) <= 128,
        "two are before them"
    );
    assert!(
        extra_examined(&store, "k0099", "l", 0) > 500,
        "one is not enough"
    );
    assert!(extra_examined(&store, "k19", "l", 0) <= 128);
    let view = store.publish();
    let far = |range: &Range, counted| view.extra_examined(range, counted, 500) > 500;
    let count = Range {
        count_only: true,
        ..read("k", "l")
    };
    assert_eq!(view.extra_examined(&count, Counted::Yes, 500), 0);
    assert!(far(&read("k", "l"), Counted::Yes), "without a limit");
    let sorted = Range {
        limit: 1,
        sort_order: SortOrder::Descend.into(),
        ..read("k", "l")
    };
    assert!(far(&sorted, Counted::Yes), "all are fetched to be sorted");
    // A piece of a range of an older revision looks at its own keys, whatever is behind them.
    let piece = Range {
        revision: old,
        limit: 10,
        ..read("k", "l")
    };
    assert!(far(&piece, Counted::Yes) && !far(&piece, Counted::No));
    let (whole, part) = (view.range(&piece), view.range_uncounted(&piece));
    let (whole, part) = (whole.expect("a range"), part.expect("a range"));
    assert_eq!((whole.count, part.count), (2000, 0));
    assert_eq!((whole.kvs, whole.more), (part.kvs, part.more));
    assert_eq!(
        extra_examined(&store, "k", "l", store.revision() + 1),
        0,
        "refused"
    );
}

/// Each piece of a streamed range of an older revision counted all that was left of it: twice the keys
/// were four times the work.
#[test]
fn chunks_of_an_old_range_scan_keys_few_times() {
    const KEYS: u64 = 4000;
    const PIECE: u64 = 50;
    let mut store = Store::new();
    for number in 0..KEYS {
        do_put(&mut store, &format!("k{number:04}"), "");
    }
    let old = store.revision();
    for number in 0..KEYS {
        do_put(&mut store, &format!("k{number:04}"), "again");
    }
    let view = store.publish();
    let all = |counted: Counted| -> u64 {
        let pieces = (0..KEYS).step_by(PIECE as usize).map(|number| Range {
            revision: old,
            limit: PIECE.cast_signed(),
            ..read(&format!("k{number:04}"), "l")
        });
        pieces
            .map(|piece| view.extra_examined(&piece, counted, u64::MAX))
            .sum()
    };
    // One leaf more at each end of a piece.
    let uncounted = all(Counted::No);
    assert!(uncounted <= 4 * KEYS, "{uncounted}");
    let counted = all(Counted::Yes);
    assert!(counted > KEYS * KEYS / PIECE / 3, "{counted}");
    let first = Range {
        revision: old,
        limit: PIECE.cast_signed(),
        ..read("k", "l")
    };
    assert!(view.extra_examined(&first, Counted::Yes, u64::MAX) <= 2 * KEYS);
}
