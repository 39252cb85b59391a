//! Alarms and checkpoints of leases: what they refuse, and that they survive a checkpoint.

use super::helpers::*;
use crate::store::*;

fn set(store: &mut Store, kind: AlarmKind, member: u64, on: bool) -> Option<Alarm> {
    let kind = kind.into();
    match run(store, Operation::SetAlarm(SetAlarm { kind, member, on })) {
        Ok(Response::SetAlarm(answer)) => answer.alarm,
        other => panic!("{other:?}"),
    }
}

fn grant(store: &mut Store, id: LeaseId) -> Result<Response, Error> {
    run(store, Operation::LeaseGrant(LeaseGrant { id, ttl: 600 }))
}

#[test]
fn alarms_are_per_kind_and_member() {
    let mut store = Store::new();
    let no_space = |member| Alarm {
        kind: AlarmKind::NoSpace,
        member,
    };
    assert_eq!(
        set(&mut store, AlarmKind::NoSpace, 7, false),
        None,
        "there was none to switch off"
    );
    assert_eq!(
        set(&mut store, AlarmKind::None, 7, true),
        None,
        "nothing is wrong"
    );
    for _ in 0..2 {
        let raised = set(&mut store, AlarmKind::NoSpace, 7, true);
        assert_eq!(raised, Some(no_space(7)), "also when it is on already");
    }
    set(&mut store, AlarmKind::NoSpace, 3, true);
    let view = store.publish();
    assert_eq!(view.alarms(), [no_space(3), no_space(7)]);
    assert!(view.alarmed(AlarmKind::NoSpace) && !view.alarmed(AlarmKind::Corrupt));
    assert_eq!(
        set(&mut store, AlarmKind::NoSpace, 7, false),
        Some(no_space(7))
    );
    assert_eq!(store.publish().alarms(), [no_space(3)]);
    assert_eq!(store.revision(), 1, "an alarm is no revision");
}

#[test]
fn unknown_alarm_kind_stops_the_member() {
    let change = SetAlarm {
        kind: 9,
        member: 1,
        on: true,
    };
    let outcome = run(&mut Store::new(), Operation::SetAlarm(change));
    assert_eq!(outcome, Err(Error::UnknownCommand));
}

#[test]
fn nospace_refuses_only_growing_requests() {
    let mut store = filled(&["a", "b"]);
    grant(&mut store, 1).expect("a lease");
    set(&mut store, AlarmKind::NoSpace, 1, true);
    let refused = Err(Error::NoSpace);
    assert_eq!(run(&mut store, Operation::Put(put("c", "v"))), refused);
    assert_eq!(grant(&mut store, 2), refused);
    let writes = Txn {
        failure: ops([Op::Put(put("c", "v"))]),
        ..Default::default()
    };
    assert_eq!(
        run(&mut store, Operation::Txn(writes)),
        refused,
        "a put on either path counts"
    );
    let deletes = Txn {
        success: ops([Op::DeleteRange(delete("a", "")), Op::Range(read("b", ""))]),
        ..Default::default()
    };
    run(&mut store, Operation::Txn(deletes)).expect("a transaction without puts");
    do_delete(&mut store, "b");
    run(&mut store, Operation::LeaseRevoke(LeaseRevoke { id: 1 })).expect("a revoke");
    let revision = store.revision();
    compact(&mut store, revision).expect("a compaction");
    set(&mut store, AlarmKind::NoSpace, 1, false);
    do_put(&mut store, "c", "v");
}

#[test]
fn corrupt_alarm_refuses_all_changes() {
    let mut store = filled(&["a"]);
    grant(&mut store, 1).expect("a lease");
    set(&mut store, AlarmKind::Corrupt, 1, true);
    set(&mut store, AlarmKind::NoSpace, 1, true);
    let refused = Err(Error::Corrupt);
    let read_only = Txn {
        success: ops([Op::Range(read("a", ""))]),
        ..Default::default()
    };
    for operation in [
        Operation::Put(put("c", "v")),
        Operation::DeleteRange(delete("a", "")),
        Operation::Txn(read_only.clone()),
        Operation::Compact(Compact { revision: 2 }),
        Operation::LeaseRevoke(LeaseRevoke { id: 1 }),
    ] {
        assert_eq!(run(&mut store, operation), refused);
    }
    assert_eq!(grant(&mut store, 2), refused);
    let expire = LeaseExpire {
        ids: vec![1],
        term: 3,
    };
    let expired = run(&mut store, Operation::LeaseExpire(expire)).expect("an answer");
    assert_eq!(
        expired,
        Response::LeaseExpire(LeaseExpireResponse {
            revision: 2,
            expired: Vec::new()
        }),
        "leases wait"
    );
    let view = store.publish();
    assert_eq!(view.range(&read("a", "")).expect("a read").count, 1);
    view.txn(&read_only)
        .expect("a view answers what only reads");
    set(&mut store, AlarmKind::Corrupt, 1, false);
    assert_eq!(
        run(&mut store, Operation::Put(put("c", "v"))),
        Err(Error::NoSpace),
        "the other alarm is still on"
    );
}

#[test]
fn lease_checkpoints_hold_in_their_term() {
    let mut store = Store::new();
    grant(&mut store, 1).expect("a lease");
    let mut note = |id, remaining, term| {
        let leases = vec![LeaseRemains { id, remaining }];
        let note = LeaseCheckpoint { leases, term };
        run(&mut store, Operation::LeaseCheckpoint(note)).expect("an answer");
        store.publish().lease(1).expect("the lease").remaining
    };
    assert_eq!(note(1, 300, 2), 0, "another term's");
    assert_eq!(note(2, 300, 3), 0, "no such lease");
    assert_eq!(note(1, 300, 3), 300);
    assert_eq!(note(1, 9000, 3), 600, "never above what was granted");
    assert_eq!(note(1, -1, 3), 0);
}

/// A lease granted for less than nothing, which servers never propose, made the note of what
/// remains of it panic: on every member, and again at each start.
#[test]
fn lease_without_time_has_no_ttl() {
    let mut store = filled(&["a"]);
    let grant = LeaseGrant { id: 4, ttl: -5 };
    run(&mut store, Operation::LeaseGrant(grant)).expect("a lease");
    let leases = vec![LeaseRemains {
        id: 4,
        remaining: 7,
    }];
    let note = LeaseCheckpoint { leases, term: 3 };
    run(&mut store, Operation::LeaseCheckpoint(note)).expect("an answer");
    assert_eq!(store.publish().lease(4).expect("the lease").remaining, 0);
}

#[test]
fn checkpoints_hold_alarms_and_lease_ttls() {
    let mut store = filled(&["a"]);
    grant(&mut store, 4).expect("a lease");
    let leases = vec![LeaseRemains {
        id: 4,
        remaining: 77,
    }];
    let note = LeaseCheckpoint { leases, term: 3 };
    run(&mut store, Operation::LeaseCheckpoint(note)).expect("an answer");
    set(&mut store, AlarmKind::NoSpace, 1, true);
    set(&mut store, AlarmKind::Corrupt, u64::MAX, true);
    let view = store.publish();
    let again = Store::import(view.export()).expect("a store").publish();
    assert_eq!(again.alarms(), view.alarms());
    assert_eq!(again.leases(), view.leases());
    assert_eq!(again.lease(4).expect("the lease").remaining, 77);
    let bytes = |view: &std::sync::Arc<View>| view.export().collect::<Vec<_>>();
    assert_eq!(bytes(&again), bytes(&view));
}

/// Found by random requests compared with etcd: a lease with a too large TTL was refused for that while an alarm was
/// raised, which etcd reports first.
#[test]
fn alarm_precedes_timeout_warnings() {
    let refused = |kind: Option<AlarmKind>| {
        let mut store = Store::new();
        if let Some(kind) = kind {
            set(&mut store, kind, 7, true);
        }
        let ttl = MAX_LEASE_TTL + 1;
        let grant = Operation::LeaseGrant(LeaseGrant { id: 5, ttl });
        let command = grant.clone().into();
        assert_eq!(
            check(&command, &Limits::default(), &store.overview()),
            Ok(())
        );
        run(&mut store, grant).expect_err("it is refused")
    };
    assert_eq!(refused(None), Error::LeaseTtlTooLarge);
    assert_eq!(refused(Some(AlarmKind::Corrupt)), Error::Corrupt);
    assert_eq!(refused(Some(AlarmKind::NoSpace)), Error::NoSpace);
}
