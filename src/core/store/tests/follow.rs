//! A store that follows another one: it takes that one's revisions as they are, and refuses whatever does not lead on from
//! what it has. The other one is a store as well, whose events are the steps.

use super::helpers::*;
use crate::store::*;

const SOURCE: u64 = 7;

fn step() -> Follow {
    Follow {
        source: SOURCE,
        ..Follow::default()
    }
}

fn advance(store: &mut Store, step: Follow) -> Result<FollowResponse, Error> {
    match run(store, Operation::Follow(step))? {
        Response::Follow(response) => Ok(response),
        other => panic!("{other:?}"),
    }
}

/// What a watch of every key gives from a revision on.
fn events(store: &Store, from: Revision) -> Vec<FollowedRevision> {
    let view = store.publish();
    let events = view.events(from, view.revision(), b"\0", b"\0", false);
    let mut revisions: Vec<FollowedRevision> = Vec::new();
    for event in events.expect("they are there") {
        let revision = event.kv.mod_revision;
        let event = FollowedEvent {
            deleted: event.kind == EventKind::Delete,
            kv: event.kv,
        };
        match revisions.last_mut() {
            Some(last) if last.revision == revision => last.events.push(event),
            _ => revisions.push(FollowedRevision {
                revision,
                events: vec![event],
                ..FollowedRevision::default()
            }),
        }
    }
    revisions
}

/// A store with some history, and one that follows it from its beginning.
fn pair() -> (Store, Store) {
    let mut source = Store::new();
    let mut follower = Store::new();
    follower.follow(SOURCE);
    do_put(&mut source, "a", "1");
    do_put(&mut source, "b", "1");
    do_put(&mut source, "a", "2");
    do_delete(&mut source, "b");
    let txn = Txn {
        success: ops([
            Op::Put(put("z", "1")),
            Op::DeleteRange(delete("a", "")),
            Op::Put(put("b", "3")),
        ]),
        ..Txn::default()
    };
    run(&mut source, Operation::Txn(txn)).expect("a transaction");
    do_put(&mut source, "a", "4");
    (source, follower)
}

fn caught_up() -> (Store, Store) {
    let (source, mut follower) = pair();
    let revisions = events(&source, 2);
    advance(
        &mut follower,
        Follow {
            revisions,
            ..step()
        },
    )
    .expect("they follow");
    (source, follower)
}

fn same(source: &Store, follower: &Store) {
    let hash = |store: &Store| store.publish().hash_kv(0).expect("a hash");
    assert_eq!(hash(source), hash(follower));
    assert_eq!(events(source, 2), events(follower, 2));
}

#[test]
fn every_revision_is_taken_over_as_it_is() {
    let (source, mut follower) = pair();
    // In pieces, each of them twice: a step whose answer was lost is sent again.
    for revision in events(&source, 2) {
        for _ in 0..2 {
            let reached = revision.revision;
            let revisions = vec![revision.clone()];
            let answer = advance(
                &mut follower,
                Follow {
                    revisions,
                    ..step()
                },
            );
            assert_eq!(answer.expect("it follows").revision, reached);
        }
    }
    same(&source, &follower);
}

#[test]
fn nothing_is_left_out_and_nothing_is_guessed() {
    let (source, mut follower) = caught_up();
    let reached = follower.revision();
    let refused = |follower: &mut Store, revision: Revision, events: Vec<FollowedEvent>| {
        let revisions = vec![FollowedRevision {
            revision,
            events,
            ..FollowedRevision::default()
        }];
        let refused = advance(
            follower,
            Follow {
                revisions,
                ..step()
            },
        );
        assert_eq!(follower.revision(), reached, "nothing was changed");
        refused.expect_err("it does not follow")
    };
    let event = |create, version, revision| FollowedEvent {
        deleted: false,
        kv: KeyValue {
            key: bytes("a"),
            create_revision: create,
            mod_revision: revision,
            version,
            ..KeyValue::default()
        },
    };
    let next = reached + 1;
    let gap = |found| Error::FollowGap {
        current: reached,
        found,
    };
    let hole = refused(&mut follower, next + 1, vec![event(next + 1, 1, next + 1)]);
    assert_eq!(hole, gap(next + 1));
    assert_eq!(refused(&mut follower, next, Vec::new()), gap(next));
    let diverged = Error::Diverged {
        revision: next,
        key: bytes("a"),
    };
    // `a` was created again at the revision that is reached.
    for (create, version, revision) in [
        (reached, 1, next),
        (reached, 3, next),
        (next, 1, next),
        (reached, 2, reached),
    ] {
        let wrong = event(create, version, revision);
        assert_eq!(refused(&mut follower, next, vec![wrong]), diverged);
    }
    let deleted = FollowedEvent {
        deleted: true,
        kv: KeyValue {
            key: bytes("nothing"),
            ..KeyValue::default()
        },
    };
    // The first of two is right: both are refused.
    let both = vec![event(reached, 2, next), deleted];
    assert!(matches!(
        refused(&mut follower, next, both),
        Error::Diverged { .. }
    ));
    same(&source, &follower);
    let stranger = Follow {
        source: SOURCE + 1,
        ..Follow::default()
    };
    let refused = advance(&mut follower, stranger);
    assert_eq!(refused, Err(Error::NotFollowed { cluster: 8 }));
}

/// etcd takes a transaction that puts a key which an open-ended delete of it covers.
#[test]
fn a_key_may_change_twice_at_one_revision() {
    let (_, mut follower) = caught_up();
    let revision = follower.revision() + 1;
    let key = bytes("a");
    let deleted = FollowedEvent {
        deleted: true,
        kv: KeyValue {
            key: key.clone(),
            mod_revision: revision,
            ..KeyValue::default()
        },
    };
    let created = FollowedEvent {
        deleted: false,
        kv: KeyValue {
            key,
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            value: bytes("5"),
            lease: 0,
        },
    };
    let events = vec![deleted, created];
    let revisions = vec![FollowedRevision {
        revision,
        events,
        ..FollowedRevision::default()
    }];
    advance(
        &mut follower,
        Follow {
            revisions,
            ..step()
        },
    )
    .expect("it follows");
    let found = get(&follower, &read("a", "")).expect("read");
    assert_eq!(
        (found.kvs[0].version, &found.kvs[0].value[..]),
        (1, &b"5"[..])
    );
}

/// A deletion of very many keys is one revision, and larger than an entry. Whoever sends it may be killed between two
/// parts, and another one cut it elsewhere.
#[test]
fn a_large_revision_comes_in_parts() {
    let (mut source, mut follower) = caught_up();
    let next = follower.revision() + 1;
    let puts = (0..10).map(|at| Op::Put(put(&format!("many/{at}"), "1")));
    let txn = Txn {
        success: ops(puts),
        ..Txn::default()
    };
    run(&mut source, Operation::Txn(txn)).expect("a transaction");
    let all = Operation::DeleteRange(delete("many/", "many0"));
    run(&mut source, all).expect("deleted");
    let [created, deleted] = &events(&source, next)[..] else {
        panic!("two revisions");
    };
    let part = |of: &FollowedRevision, from: usize, to: usize| FollowedRevision {
        revision: of.revision,
        events: of.events[from..to].to_vec(),
        before: from as u64,
        more: to < of.events.len(),
    };
    let gap = |current, found| Err(Error::FollowGap { current, found });
    let send = |follower: &mut Store, part: FollowedRevision| {
        let revisions = vec![part];
        let sent = advance(
            follower,
            Follow {
                revisions,
                ..step()
            },
        );
        sent.map(|it| it.revision)
    };
    assert_eq!(send(&mut follower, part(created, 0, 4)), Ok(next - 1));
    // Twice, left out, and of another revision.
    for wrong in [
        part(created, 0, 4),
        part(created, 5, 10),
        part(deleted, 4, 10),
    ] {
        let again = Ok(next - 1);
        let wanted = match wrong.before {
            0 => again,
            _ => gap(next - 1, wrong.revision),
        };
        assert_eq!(send(&mut follower, wrong), wanted);
    }
    assert!(
        get(&follower, &read("many/", "many0"))
            .expect("read")
            .kvs
            .is_empty()
    );
    // A checkpoint has what is here; another one cuts elsewhere.
    let mut follower = Store::import(follower.publish().export()).expect("restored");
    assert_eq!(send(&mut follower, part(created, 4, 7)), Ok(next - 1));
    assert_eq!(send(&mut follower, part(created, 7, 10)), Ok(next));
    assert_eq!(send(&mut follower, part(deleted, 0, 6)), Ok(next));
    // Begun anew, by one that sends it whole.
    assert_eq!(send(&mut follower, deleted.clone()), Ok(next + 1));
    assert_eq!(
        send(&mut follower, part(deleted, 6, 10)),
        Ok(next + 1),
        "passed over"
    );
    same(&source, &follower);
}

#[test]
fn clients_change_nothing_meanwhile() {
    let (source, mut follower) = caught_up();
    let refused = [
        Operation::Put(put("a", "own")),
        Operation::DeleteRange(delete("a", "")),
        Operation::Txn(Txn::default()),
        Operation::Compact(Compact { revision: 3 }),
        Operation::LeaseGrant(LeaseGrant { id: 1, ttl: 60 }),
        Operation::LeaseRevoke(LeaseRevoke { id: 1 }),
        Operation::Auth(AuthOperation::Enable(AuthEnable {}).into()),
    ];
    for operation in refused {
        let overview = follower.overview();
        assert_eq!(overview.check_following(&operation), Err(Error::Following));
        assert_eq!(run(&mut follower, operation), Err(Error::Following));
    }
    let lease = FollowedLease { id: 9, ttl: 60 };
    let leases = vec![lease];
    advance(&mut follower, Follow { leases, ..step() }).expect("granted");
    // It is the other cluster that lets leases expire.
    let expire = LeaseExpire {
        ids: vec![9],
        term: 3,
    };
    run(&mut follower, Operation::LeaseExpire(expire)).expect("it does nothing");
    assert!(follower.publish().lease(9).is_some());
    same(&source, &follower);
}

#[test]
fn leases_end_once_their_keys_are_gone() {
    let (mut source, mut follower) = caught_up();
    let next = follower.revision() + 1;
    let grant = LeaseGrant { id: 9, ttl: 60 };
    run(&mut source, Operation::LeaseGrant(grant)).expect("granted");
    let mut leased = put("leased", "1");
    leased.lease = 9;
    run(&mut source, Operation::Put(leased)).expect("put");
    // The key may be here before its lease is.
    let revisions = events(&source, next);
    advance(
        &mut follower,
        Follow {
            revisions,
            ..step()
        },
    )
    .expect("it follows");
    let leases = vec![FollowedLease { id: 9, ttl: 60 }];
    let granted = advance(&mut follower, Follow { leases, ..step() }).expect("granted");
    assert_eq!(granted.granted.len(), 1);
    assert_eq!(follower.publish().lease_keys(9), [bytes("leased")]);
    let end = |follower: &mut Store| {
        let ended = vec![9, 10];
        advance(follower, Follow { ended, ..step() })
            .expect("ended")
            .ended
    };
    assert!(end(&mut follower).is_empty(), "its key is here");
    run(&mut source, Operation::LeaseRevoke(LeaseRevoke { id: 9 })).expect("revoked");
    let revisions = events(&source, next + 1);
    advance(
        &mut follower,
        Follow {
            revisions,
            ..step()
        },
    )
    .expect("it follows");
    assert_eq!(end(&mut follower), [9]);
    same(&source, &follower);
}

#[test]
fn compactions_are_those_of_the_other_cluster() {
    let (mut source, mut follower) = caught_up();
    compact(&mut source, 5).expect("compacted");
    for at in [5, 5, 3] {
        let compact = Follow {
            compact: at,
            ..step()
        };
        advance(&mut follower, compact).expect("it follows");
        assert_eq!(follower.compacted(), 5);
    }
    let hash = |store: &Store| store.publish().hash_kv(0).expect("a hash");
    assert_eq!(hash(&source), hash(&follower));
}

fn close(attempt: u64, unix_ms: i64) -> Follow {
    Follow {
        close: Some(FollowClose { attempt, unix_ms }),
        ..step()
    }
}

fn finish(attempt: u64, revision: Revision) -> Follow {
    Follow {
        finish: Some(FollowFinish {
            attempt,
            revision,
            leases: 1,
            auth_revision: 4,
        }),
        ..step()
    }
}

/// With a lease and a user.
fn complete() -> (Store, Store) {
    let (source, mut follower) = caught_up();
    let leases = vec![FollowedLease { id: 1, ttl: 60 }];
    let user = User {
        name: "ann".to_owned(),
        ..User::default()
    };
    let users =
        |revision| Some((&AuthState::new(false, revision, vec![user.clone()], Vec::new())).into());
    let all = Follow {
        leases,
        auth: users(4),
        ..step()
    };
    advance(&mut follower, all).expect("it follows");
    // What comes late changes nothing.
    let mut old = users(3);
    if let Some(it) = &mut old {
        let it: &mut Auth = it;
        it.users.clear();
    }
    advance(
        &mut follower,
        Follow {
            auth: old,
            ..step()
        },
    )
    .expect("it is passed over");
    (source, follower)
}

#[test]
fn the_end_is_at_the_last_revision_of_a_closed_cluster() {
    let (source, mut follower) = complete();
    let reached = follower.revision();
    let refused = |follower: &mut Store, step| {
        let refused = advance(follower, step).expect_err("not yet");
        assert!(follower.publish().following().is_some());
        refused
    };
    let superseded = refused(&mut follower, finish(5, reached));
    assert_eq!(superseded, Error::FollowSuperseded, "it was not closed");
    advance(&mut follower, close(5, 1000)).expect("noted");
    advance(&mut follower, step()).expect("it says nothing");
    let following = follower.publish().following().expect("it follows");
    assert_eq!((following.attempt, following.frozen_unix_ms), (5, 1000));
    for found in [reached + 1, reached - 1] {
        let gap = refused(&mut follower, finish(5, found));
        let current = reached;
        assert_eq!(gap, Error::FollowGap { current, found });
    }
    for (leases, auth_revision) in [(2, 4), (1, 5)] {
        let wrong = FollowFinish {
            attempt: 5,
            revision: reached,
            leases,
            auth_revision,
        };
        let wrong = Follow {
            finish: Some(wrong),
            ..step()
        };
        assert_eq!(refused(&mut follower, wrong), Error::FollowIncomplete);
    }
    assert!(
        advance(&mut follower, finish(5, reached))
            .expect("the end")
            .finished
    );
    let view = follower.publish();
    assert_eq!(view.following(), None);
    assert_eq!(
        (view.auth().users().count(), view.auth().revision()),
        (1, 4)
    );
    same(&source, &follower);
    // Once.
    let late = advance(&mut follower, finish(5, reached));
    assert_eq!(late, Err(Error::NotFollowed { cluster: SOURCE }));
    assert_eq!(do_put(&mut follower, "a", "own"), reached + 1);
}

/// An end that was sent before its attempt was given up would leave two clusters that take writes: the followed one was
/// opened again meanwhile.
#[test]
fn only_the_last_attempt_ends_it() {
    let (_, mut follower) = complete();
    let reached = follower.revision();
    let open = |open| Follow { open, ..step() };
    advance(&mut follower, close(5, 1000)).expect("noted");
    advance(&mut follower, open(5)).expect("noted");
    let following = follower.publish().following().expect("it follows");
    assert_eq!((following.attempt, following.frozen_unix_ms), (0, 0));
    for late in [finish(5, reached), open(5)] {
        assert_eq!(advance(&mut follower, late), Err(Error::FollowSuperseded));
    }
    advance(&mut follower, close(6, 2000)).expect("noted");
    advance(&mut follower, close(7, 3000)).expect("noted");
    for late in [finish(6, reached), open(6)] {
        assert_eq!(advance(&mut follower, late), Err(Error::FollowSuperseded));
    }
    assert!(
        advance(&mut follower, finish(7, reached))
            .expect("the end")
            .finished
    );
}

/// The followed cluster was lost between a put and the lease of its key, as in the middle of a cutover. What is here is
/// taken over, with nothing that stays for ever because its lease is not known.
#[test]
fn a_lost_cluster_is_replaced_by_no_less_than_was_reviewed() {
    let (mut source, mut follower) = complete();
    let next = follower.revision() + 1;
    for id in [-9, 9] {
        run(
            &mut source,
            Operation::LeaseGrant(LeaseGrant { id, ttl: 5 }),
        )
        .expect("granted");
        for key in ["leased", "also-leased"] {
            let mut leased = put(&format!("{key}{id}"), "1");
            leased.lease = id;
            run(&mut source, Operation::Put(leased)).expect("put");
        }
    }
    let revisions = events(&source, next);
    let more = Follow {
        revisions,
        ..step()
    };
    advance(&mut follower, more).expect("it follows");
    advance(&mut follower, close(5, 1000)).expect("noted");
    let reached = follower.revision();
    let promote = |revision, bump| Follow {
        promote: Some(FollowPromote {
            revision,
            lease_ttl: 60,
            bump,
        }),
        ..step()
    };
    let (current, found) = (reached, reached + 1);
    let refused = advance(&mut follower, promote(found, 1000));
    assert_eq!(refused, Err(Error::FollowGap { current, found }));
    assert!(follower.publish().following().is_some());
    let mut watchers = Watchers::new(&follower.publish());
    for (id, start_revision) in [(1, reached + 1), (2, reached + 5), (3, reached + 1001)] {
        let all = WatchSpec {
            range_end: bytes("\0"),
            start_revision,
            ..WatchSpec::default()
        };
        watchers.create(id, all).expect("a watcher");
    }
    let refused = advance(&mut follower, promote(reached, u64::MAX));
    assert_eq!(refused, Err(Error::FutureRevision { current }));
    assert!(follower.publish().following().is_some());
    same(&source, &follower);
    let done = advance(&mut follower, promote(reached, 1000)).expect("the end");
    assert!(done.finished && done.revision == reached + 1000);
    let granted: Vec<(LeaseId, i64)> = done.granted.iter().map(|it| (it.id, it.ttl)).collect();
    assert_eq!(granted, [(9, 60), (-9, 60)]);
    let view = follower.publish();
    assert_eq!(view.following(), None);
    assert_eq!(view.lease(1).map(|it| it.ttl), Some(60));
    assert_eq!(view.lease_keys(-9).len(), 2);
    // Where all that was compacted has left the log, which is empty then, the next compaction counts none of it again.
    let sizes = [false, true].map(|drained| {
        let mut store = Store::continued(&view);
        if drained {
            assert_eq!(store.reclaim_all(usize::MAX), 0);
        }
        do_delete(&mut store, "leased9");
        compact(&mut store, reached + 1001).expect("a compaction");
        store.publish().db_size()
    });
    assert_eq!(sizes[0], sizes[1]);
    // Whoever has seen more at the lost cluster is told so, and the keys are as they were.
    let ahead = view.events(reached + 5, view.revision(), b"\0", b"\0", false);
    assert!(matches!(ahead, Err(Error::Compacted { .. })), "{ahead:?}");
    let all = |store: &Store| get(store, &read("\0", "\0")).expect("read").kvs;
    assert_eq!(all(&source), all(&follower));
    // Once.
    let late = advance(&mut follower, promote(reached, 0));
    assert_eq!(late, Err(Error::NotFollowed { cluster: SOURCE }));
    assert_eq!(do_put(&mut follower, "a", "own"), reached + 1001);
    // So is whoever waits for it already; who has missed nothing goes on.
    let mut shown = Vec::new();
    let view = follower.publish();
    watchers.advance(&view, &mut |id, events| {
        shown.push((id, events.len(), events[0].kv.mod_revision));
        true
    });
    let next = reached + 1001;
    assert_eq!(shown, [(1, 1, next), (3, 1, next)]);
    assert_eq!(watchers.behind().collect::<Vec<_>>(), [2]);
    let gone = watchers.catch_up(2, &view, Slice::default());
    assert_eq!(gone, CatchUp::Compacted(reached + 1000));
    let restored = Store::import(follower.publish().export()).expect("restored");
    assert_eq!(all(&restored), all(&follower));
}

#[test]
fn a_checkpoint_knows_whom_it_follows() {
    let (_, mut follower) = caught_up();
    let (attempt, frozen_unix_ms) = (5, 1000);
    advance(&mut follower, close(attempt, frozen_unix_ms)).expect("noted");
    let restored = Store::import(follower.publish().export()).expect("restored");
    let following = restored.publish().following();
    assert_eq!(following, follower.publish().following());
    let source = SOURCE;
    let wanted = Following {
        source,
        frozen_unix_ms,
        attempt,
    };
    assert_eq!(following, Some(wanted));
}

/// Alarms are about members of the other cluster.
#[test]
fn alarms_of_the_other_cluster_stay_there() {
    let mut store = Store::new();
    let alarm = SetAlarm {
        kind: AlarmKind::NoSpace.into(),
        member: 3,
        on: true,
    };
    run(&mut store, Operation::SetAlarm(alarm)).expect("raised");
    store.follow(SOURCE);
    assert!(store.publish().alarms().is_empty());
}

#[test]
fn a_step_needs_space_as_its_puts_do() {
    let (mut source, follower) = caught_up();
    let next = follower.revision() + 1;
    do_put(&mut source, "large", &"x".repeat(1000));
    let revisions = events(&source, next);
    let command = Command::from(Operation::Follow(Follow {
        revisions,
        ..step()
    }));
    let overview = follower.overview();
    let limits = |quota_bytes| Limits {
        quota_bytes,
        ..Limits::default()
    };
    assert_eq!(
        check(&command, &limits(overview.db_size() + 1000), &overview),
        Err(Error::NoSpace)
    );
    assert_eq!(
        check(&command, &limits(overview.db_size() + 2000), &overview),
        Ok(())
    );
}

/// A followed cluster that is closed waits for it, whatever is wrong here.
#[test]
fn an_attempt_is_given_up_also_under_corrupt() {
    let (_, mut follower) = complete();
    let reached = follower.revision();
    advance(&mut follower, close(5, 1000)).expect("noted");
    let alarm = SetAlarm {
        kind: AlarmKind::Corrupt.into(),
        member: 3,
        on: true,
    };
    run(&mut follower, Operation::SetAlarm(alarm)).expect("raised");
    let open = Follow { open: 5, ..step() };
    let more = Follow {
        compact: 3,
        ..open.clone()
    };
    for refused in [finish(5, reached), close(6, 2000), more, step()] {
        assert_eq!(advance(&mut follower, refused), Err(Error::Corrupt));
    }
    advance(&mut follower, open).expect("noted");
    let following = follower.publish().following().expect("it follows");
    assert_eq!(following.attempt, 0);
}
