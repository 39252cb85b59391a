//! What is refused before it is proposed, a test for each rule.

use super::helpers::*;
use crate::store::*;

#[test]
fn requests_are_validated_before_proposal() {
    let overview = Store::new().overview();
    let checked =
        |operation: Operation| check(&Command::from(operation), &Limits::default(), &overview);
    assert_eq!(checked(Operation::Put(put("", "v"))), Err(Error::EmptyKey));
    let value = Put {
        ignore_value: true,
        ..put("a", "v")
    };
    assert_eq!(checked(Operation::Put(value)), Err(Error::ValueProvided));
    let lease = Put {
        ignore_lease: true,
        lease: 1,
        ..put("a", "v")
    };
    assert_eq!(checked(Operation::Put(lease)), Err(Error::LeaseProvided));
    assert_eq!(
        checked(Operation::DeleteRange(delete("", "b"))),
        Err(Error::EmptyKey)
    );
    let sorted = Range {
        sort_order: 3,
        ..read("a", "")
    };
    assert_eq!(check_range(&sorted), Err(Error::InvalidSortOption));
    let txn = |success| {
        Operation::Txn(Txn {
            success,
            ..Default::default()
        })
    };
    assert_eq!(
        checked(txn(vec![RequestOp { op: None }])),
        Err(Error::KeyNotFound)
    );
    assert_eq!(check(&Command::default(), &Limits::default(), &overview), {
        Err(Error::UnknownCommand)
    });
}

#[test]
fn txn_refuses_duplicate_keys() {
    let nested = |success, failure| {
        Op::Txn(Txn {
            success,
            failure,
            ..Default::default()
        })
    };
    let put = |key: &str| Op::Put(put(key, "v"));
    let delete = |key: &str, end: &str| Op::DeleteRange(delete(key, end));
    let refused: Vec<Vec<Op>> = vec![
        vec![put("a"), put("a")],
        vec![put("b"), delete("a", "c")],
        vec![delete("a", "c"), put("b")],
        vec![delete("a", "\0"), put("b")],
        vec![put("a"), nested(ops([put("a")]), vec![])],
        vec![
            nested(ops([put("a")]), vec![]),
            nested(vec![], ops([put("a")])),
        ],
        vec![nested(ops([delete("a", "")]), vec![]), put("a")],
    ];
    let allowed: Vec<Vec<Op>> = vec![
        vec![put("a"), put("b"), delete("c", "d")],
        vec![delete("a", "c"), delete("a", "c")],
        vec![nested(ops([put("a")]), ops([put("a")]))],
        vec![delete("c", "a"), put("b")],
    ];
    for (lists, expected) in [(refused, Err(Error::DuplicateKey)), (allowed, Ok(()))] {
        for list in lists {
            let txn = Txn {
                failure: ops(list.clone()),
                ..Default::default()
            };
            assert_eq!(check_txn(&txn, &Limits::default()), expected, "{list:?}");
        }
    }
}

#[test]
fn nested_operations_count_against_the_limit() {
    let limits = Limits {
        max_txn_ops: 3,
        quota_bytes: 0,
    };
    let reads = |count: usize| vec![RequestOp::from(Op::Range(read("a", ""))); count];
    let nested = |count| {
        let inner = Txn {
            success: reads(count),
            ..Default::default()
        };
        let mut success = reads(1);
        success.push(Op::Txn(inner).into());
        check_txn(
            &Txn {
                success,
                ..Default::default()
            },
            &limits,
        )
    };
    assert_eq!(nested(1), Ok(()));
    assert_eq!(nested(2), Err(Error::TooManyOps));
    let compares = Txn {
        compare: vec![compare("a", CompareTarget::Mod, 0); 4],
        ..Default::default()
    };
    assert_eq!(check_txn(&compares, &limits), Err(Error::TooManyOps));
}

#[test]
fn quota_admits_only_what_frees() {
    let mut store = filled(&["a"]);
    let overview = store.overview();
    let limits = |quota_bytes| Limits {
        max_txn_ops: 128,
        quota_bytes,
    };
    let needed = overview.db_size() + 256 + 2;
    let adding = Command::from(Operation::Put(put("b", "v")));
    assert_eq!(check(&adding, &limits(needed + 1), &overview), Ok(()));
    assert_eq!(
        check(&adding, &limits(needed), &overview),
        Err(Error::NoSpace)
    );
    assert_eq!(
        check(&adding, &limits(0), &overview),
        Ok(()),
        "0 is no bound"
    );
    for freeing in [
        Operation::DeleteRange(delete("a", "")),
        Operation::Compact(Compact { revision: 2 }),
        Operation::LeaseRevoke(LeaseRevoke { id: 1 }),
        Operation::Txn(Txn {
            success: ops([Op::Range(read("a", ""))]),
            ..Default::default()
        }),
    ] {
        assert_eq!(
            check(&Command::from(freeing), &limits(1), &overview),
            Ok(())
        );
    }
    do_delete(&mut store, "a");
    do_put(&mut store, "b", "v");
    compact(&mut store, 4).expect("a compaction");
    assert_eq!(
        store.publish().db_size(),
        2 + 128,
        "freed at once, before any reclaim"
    );
}
