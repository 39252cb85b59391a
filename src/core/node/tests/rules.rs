//! The rules of membership changes in a running cluster, and what apply may depend on.

use super::*;
use crate::store::{LeaseExpire, LeaseGrant};

fn three() -> Cluster {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.leader();
    cluster.ticks(12);
    cluster
}

fn fenced(
    mut command: MembershipCommand,
    index: Option<u64>,
    epoch: Option<u64>,
) -> MembershipCommand {
    command.expected_configuration_index = index;
    command.epoch = epoch;
    command
}

#[test]
fn second_learner_is_refused() {
    let mut cluster = three();
    cluster.change(1, add(4, true)).unwrap();
    let refused = cluster.change(2, add(5, true)).unwrap_err();
    assert_eq!(refused, MembershipError::TooManyLearners);
}

#[test]
fn additions_are_refused_as_in_etcd() {
    let mut cluster = three();
    let refused = cluster.change(1, add(2, true)).unwrap_err();
    assert_eq!(refused, MembershipError::IdExists);
    let mut same_url = add(9, true);
    if let Some(ChangeBody::Add(add)) = &mut same_url.body {
        add.peer_urls = peer_urls(2);
    }
    let refused = cluster.change(3, same_url).unwrap_err();
    assert_eq!(refused, MembershipError::PeerUrlExists);
    let away = cluster.followers()[0];
    cluster.stop(away);
    cluster.ticks(20);
    let leader = cluster.leader();
    let refused = cluster.change(leader, add(4, true)).unwrap_err();
    assert_eq!(
        refused,
        MembershipError::Unhealthy,
        "a quorum of four would be missing"
    );
}

#[test]
fn removals_are_refused_as_in_etcd() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [away, stays] = cluster.followers()[..] else {
        panic!("two followers");
    };
    let refused = cluster.change(leader, remove(77)).unwrap_err();
    assert_eq!(refused, MembershipError::NotFound);
    cluster.stop(away);
    cluster.ticks(20);
    let refused = cluster.change(leader, remove(stays)).unwrap_err();
    assert_eq!(refused, MembershipError::Unhealthy);
    cluster.change(leader, remove(away)).unwrap();
    let refused = cluster.change(leader, remove(away)).unwrap_err();
    assert_eq!(refused, MembershipError::Removed);
    cluster.change(leader, remove(stays)).unwrap();
    let refused = cluster.change(leader, remove(leader)).unwrap_err();
    assert_eq!(refused, MembershipError::NotEnoughStarted);
}

#[test]
fn only_a_learner_is_promoted() {
    let mut cluster = three();
    let refused = cluster.change(1, promote(2)).unwrap_err();
    assert_eq!(refused, MembershipError::NotLearner);
    let refused = cluster.change(1, promote(8)).unwrap_err();
    assert_eq!(refused, MembershipError::NotFound);
}

#[test]
fn silent_learner_is_not_promoted() {
    let mut cluster = three();
    cluster.change(1, add(4, true)).unwrap();
    cluster.join(4);
    cluster.ticks(30);
    cluster.stop(4);
    cluster.ticks(3);
    let refused = cluster.change(1, promote(4)).unwrap_err();
    assert!(
        matches!(refused, MembershipError::LearnerNotReady { .. }),
        "{refused:?}"
    );
}

#[test]
fn stale_fence_is_refused() {
    let mut cluster = three();
    let index = cluster.server(1).machine.membership().configuration_index;
    let after = cluster
        .change(1, fenced(add(4, true), Some(index), Some(5)))
        .unwrap();
    assert_eq!(after.epoch, 5);
    let late = cluster
        .change(2, fenced(remove(4), Some(index), Some(5)))
        .unwrap_err();
    let current = after.configuration_index;
    assert_eq!(
        late,
        MembershipError::ConfigurationChanged {
            expected: index,
            current
        }
    );
    let old = cluster
        .change(3, fenced(remove(4), Some(current), Some(4)))
        .unwrap_err();
    assert_eq!(
        old,
        MembershipError::StaleEpoch {
            given: 4,
            current: 5
        }
    );
    cluster
        .change(3, fenced(remove(4), Some(current), Some(6)))
        .unwrap();
}

#[test]
fn membership_changes_run_one_at_a_time() {
    let mut cluster = three();
    let leader = cluster.leader();
    let mut asked = Vec::new();
    for command in [add(4, true), remove(4), add(5, true)] {
        let request = cluster.server(leader).request();
        cluster.give(leader, Input::ChangeMembership { request, command });
        asked.push(request.counter);
    }
    cluster.ticks(5);
    // The second one was checked before or after the first was applied; it is never lost.
    let server = cluster.server(leader);
    for number in asked {
        let answered =
            server.answers.contains_key(&number) || server.failures.contains_key(&number);
        assert!(answered, "{number}");
    }
    cluster.ticks(2);
}

/// Members that still use the configuration before the last one could elect a second leader
/// together with those that both changes removed.
#[test]
fn second_change_waits_for_the_first() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [gone, stays] = cluster.followers()[..] else {
        panic!("two followers");
    };
    for command in [remove(gone), add(4, true)] {
        let request = cluster.server(leader).request();
        cluster.give(leader, Input::ChangeMembership { request, command });
    }
    while !cluster.server(leader).machine.membership().is_removed(gone) {
        for id in [leader, stays] {
            cluster.think(id);
            cluster.server(id).write();
            cluster.server(id).work();
        }
        cluster.deliver(leader, stays);
        cluster.deliver(stays, leader);
    }
    // The leader continues by itself, as far as it can.
    while cluster.think(leader) || cluster.server(leader).write() || cluster.server(leader).work() {
    }
    let server = cluster.server(leader);
    assert!(!server.machine.membership().is_settled());
    let change = raft::EntryKind::Configuration as i32;
    let changes = server.disk.log.iter().filter(|entry| entry.kind == change);
    assert_eq!(changes.count(), 1, "the second one waits");
    cluster.ticks(2);
    let membership = cluster.server(leader).machine.membership();
    assert!(membership.member(4).is_some(), "and comes then");
}

/// A voter added to a single one was never answered: the answer waited until both had settled the
/// addition, and the second one is started only after that answer.
#[test]
fn adding_to_a_single_voter_responds_at_once() {
    let mut cluster = Cluster::new(&[1]);
    cluster.leader();
    cluster.put(1, "key", "value");
    let membership = cluster.change(1, add(2, false)).unwrap();
    assert_eq!(membership.voters().count(), 2);
    assert!(!membership.is_settled(), "that takes two");
    cluster.join(2);
    cluster.ticks(60);
    cluster.leader();
    assert!(cluster.server(2).machine.membership().is_settled());
    cluster.put(2, "key", "through the new one");
    assert_eq!(
        cluster.get(1, "key").as_deref(),
        Some("through the new one")
    );
}

/// Without a leader, etcd refuses at once what its strict check does not allow. It accepts the
/// removal of a member that is down and waits, and so does this server: the next leader may carry
/// it out.
#[test]
fn no_leader_refuses_what_needs_a_quorum() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [one, other] = cluster.followers()[..] else {
        panic!("two followers");
    };
    cluster.stop(leader);
    cluster.stop(other);
    cluster.ticks(60);
    for (command, refused) in [
        (add(4, false), true),
        (add(4, true), true),
        (remove(one), true),
        (remove(other), false),
    ] {
        let request = cluster.server(one).request();
        cluster.give(one, Input::ChangeMembership { request, command });
        cluster.ticks(1);
        let failure = cluster.server(one).failures.get(&request.counter);
        let unhealthy = ProposalError::Membership(MembershipError::Unhealthy);
        assert_eq!(failure, Some(&unhealthy).filter(|_| refused));
    }
}

/// `member add` at the moment of an election was refused with `unhealthy cluster`, although every
/// member was healthy: a member without a leader counted on itself alone, and the next leader on
/// the members that had answered it by then. It now waits until they have had time to.
#[test]
fn membership_change_waits_for_a_leader() {
    let mut cluster = three();
    let [one, other] = cluster.followers()[..] else {
        panic!("two followers");
    };
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        cluster.cut(from, to);
    }
    cluster.ticks(60);
    let ask = |cluster: &mut Cluster, command| {
        assert_eq!(cluster.server(one).member.status().raft.leader, None);
        let request = cluster.server(one).request();
        cluster.give(one, Input::ChangeMembership { request, command });
        cluster.ticks(1);
        request.counter
    };
    let asked = [add(4, true), remove(other)].map(|command| ask(&mut cluster, command));
    cluster.heal();
    cluster.leader();
    cluster.ticks(10);
    let server = cluster.server(one);
    for number in asked {
        let answer = server.answers.get(&number);
        assert!(
            matches!(answer, Some(Outcome::Membership(Ok(_)))),
            "{answer:?} {:?}",
            server.failures
        );
    }
}

/// A host that lost power keeps its connections for seconds. For an election timeout a new leader
/// counted on them, and on the dead leader with them: a fourth voter was added to two that were
/// alive, or a living one removed. It now waits for answers, and refuses when there are none.
#[test]
fn new_leader_needs_responses_not_links() {
    for of_a_living_one in [false, true] {
        let mut cluster = three();
        let dead = cluster.leader();
        let alive = cluster.followers();
        for id in &alive {
            cluster.cut(dead, *id);
        }
        let leads = |cluster: &mut Cluster, id: MemberId| {
            cluster.server(id).member.status().raft.role == Role::Leader
        };
        let next = (0..100).find_map(|_| {
            cluster.ticks(1);
            alive.iter().copied().find(|id| leads(&mut cluster, *id))
        });
        let next = next.expect("one of two is elected");
        let other = alive.into_iter().find(|id| *id != next).expect("two");
        let command = match of_a_living_one {
            true => remove(other),
            false => add(4, false),
        };
        let request = cluster.server(next).request();
        cluster.give(next, Input::ChangeMembership { request, command });
        cluster.settle();
        let server = cluster.server(next);
        assert_eq!(server.failures.get(&request.counter), None, "too early");
        cluster.ticks(15);
        let server = cluster.server(next);
        let expected = ProposalError::Membership(MembershipError::Unhealthy);
        assert_eq!(server.failures.get(&request.counter), Some(&expected));
        assert_eq!(server.machine.membership().members.len(), 3);
        // The dead one can still be removed.
        cluster.change(next, remove(dead)).unwrap();
    }
}

/// A removal is answered once the others know of it for good, so the disk may be deleted then.
#[test]
fn change_is_answered_once_settled() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [gone, stays] = cluster.followers()[..] else {
        panic!("two followers");
    };
    let request = cluster.server(stays).request();
    let command = remove(gone);
    cluster.give(stays, Input::ChangeMembership { request, command });
    while cluster.server(stays).answers.is_empty() {
        cluster.think(stays);
        cluster.server(stays).write();
        cluster.server(stays).work();
        for (from, to) in [(stays, leader), (leader, stays)] {
            cluster.think(leader);
            cluster.server(leader).write();
            cluster.server(leader).work();
            cluster.deliver(from, to);
        }
    }
    let membership = cluster.server(stays).machine.membership();
    assert!(membership.is_removed(gone) && membership.is_settled());
    // Both restart, and the removed one is deleted at once.
    cluster.stop(gone);
    cluster.restart_quietly(leader);
    cluster.restart_quietly(stays);
    cluster.leader();
}

/// A leader that removed itself used to answer as soon as it had applied its removal. A caller that
/// then deleted its disk could leave the others without a quorum: after a restart they did not know
/// that the removal was committed, and needed its vote.
#[test]
fn leader_removing_itself_answers_when_settled() {
    let mut cluster = Cluster::new(&[1, 2]);
    let leader = cluster.leader();
    cluster.ticks(2);
    let other = cluster.followers()[0];
    let request = cluster.server(leader).request();
    let command = remove(leader);
    cluster.give(leader, Input::ChangeMembership { request, command });
    for _ in 0..1000 {
        for (from, to) in [(leader, other), (other, leader)] {
            if cluster.server(leader).answers.is_empty() {
                cluster.think(from);
                cluster.server(from).write();
                cluster.server(from).work();
                cluster.deliver(from, to);
            }
        }
    }
    let failures = &cluster.server(leader).failures;
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(cluster.server(leader).answers.len(), 1);
    assert!(cluster.server(leader).removed);
    cluster.stop(leader);
    cluster.restart_quietly(other);
    assert_eq!(cluster.leader(), other);
}

/// A follower may know of its removal before any disk but the leader's does. It reports the removal
/// once the others have had time to settle it, or to ask for its vote.
#[test]
fn removed_follower_helps_for_a_timeout() {
    let mut cluster = Cluster::new(&[1, 2]);
    let leader = cluster.leader();
    cluster.ticks(2);
    let gone = cluster.followers()[0];
    let request = cluster.server(gone).request();
    let command = remove(gone);
    cluster.give(gone, Input::ChangeMembership { request, command });
    cluster.settle();
    assert!(cluster.server(gone).machine.membership().is_removed(gone));
    assert!(!cluster.server(gone).removed, "not at once");
    // The leader loses what it had not written: that the removal is committed.
    cluster.restart_quietly(leader);
    cluster.ticks(40);
    assert!(cluster.server(gone).removed);
    let answer = cluster.server(gone).answers.get(&request.counter);
    assert!(
        matches!(answer, Some(Outcome::Membership(Ok(_)))),
        "{answer:?}"
    );
    cluster.stop(gone);
    cluster.restart_quietly(leader);
    assert_eq!(cluster.leader(), leader);
}

/// It used to take etcd's five seconds of contact with the voter that had just been promoted.
#[test]
fn next_learner_follows_a_promotion() {
    let mut cluster = Cluster::tweaked(&[1], |_, config| config.health_ms = 5000);
    cluster.leader();
    cluster.ticks(100);
    cluster.change(1, add(2, true)).unwrap();
    cluster.join(2);
    cluster.ticks(20);
    cluster.change(1, promote(2)).unwrap();
    let voter = cluster.change(1, add(3, false));
    assert_eq!(voter.unwrap_err(), MembershipError::Unhealthy);
    cluster.change(1, add(3, true)).unwrap();
    // A voter that is down still counts as missing.
    let mut cluster = Cluster::new(&[1, 2]);
    let leader = cluster.leader();
    cluster.ticks(100);
    cluster.cut(1, 2);
    cluster.ticks(12);
    assert_eq!(
        cluster.server(leader).member.status().raft.role,
        Role::Leader
    );
    let request = cluster.server(leader).request();
    let command = add(3, true);
    cluster.give(leader, Input::ChangeMembership { request, command });
    cluster.settle();
    let refused = cluster.server(leader).failures.get(&request.counter);
    let expected = ProposalError::Membership(MembershipError::Unhealthy);
    assert_eq!(refused, Some(&expected));
}

#[test]
fn join_binds_the_disk_once_and_publishes() {
    let mut cluster = three();
    let join = |disk: &str, url: &str| {
        MembershipCommand::from(ChangeBody::Join(Join {
            id: 4,
            disk_uuid: disk.to_owned(),
            name: String::new(),
            client_urls: vec![url.to_owned()],
        }))
    };
    cluster.change(1, add(4, true)).unwrap();
    let index = cluster.server(1).machine.membership().configuration_index;
    let after = cluster.change(2, join("disk-4", "http://a")).unwrap();
    assert_eq!(after.expected_disk(4), Some("disk-4"));
    assert!(after.member(4).unwrap().started);
    assert_eq!(
        after.configuration_index, index,
        "joining is no news to an operator"
    );
    let again = cluster.change(3, join("disk-4", "http://b")).unwrap();
    assert_eq!(again.member(4).unwrap().client_urls, ["http://b"]);
    let other = cluster.change(3, join("disk-x", "http://c")).unwrap_err();
    let bound = "disk-4".to_owned();
    assert_eq!(other, MembershipError::OtherDisk { bound });
}

/// etcd once made a learner a voter when its peer URLs were updated (its issue 21736).
#[test]
fn learner_stays_learner_at_a_new_address() {
    let mut cluster = three();
    cluster.change(1, add(4, true)).unwrap();
    let update = MembershipCommand::from(ChangeBody::Update(Update {
        id: 4,
        peer_urls: peer_urls(44),
    }));
    let after = cluster.change(2, update).unwrap();
    let member = after.member(4).unwrap();
    assert_eq!((member.learner, &member.peer_urls), (true, &peer_urls(44)));
    assert_eq!(after.voters().count(), 3);
}

/// A log with entries of every kind, some of them refused.
fn eventful_log() -> Vec<Entry> {
    let expire = |term| Operation::LeaseExpire(LeaseExpire { ids: vec![3], term });
    let grant = Operation::LeaseGrant(LeaseGrant { id: 3, ttl: 9 });
    let mut data: Vec<(Option<MembershipCommand>, Option<Command>)> = vec![
        (None, Some(put("a", "1"))),
        (None, Some(grant.into())),
        (None, Some(put_leased("b", "2", 3))),
        (None, Some(put_leased("c", "3", 77))),
    ];
    data.extend((4..9).map(|id| (Some(add(id, true)), None)));
    data.extend([
        (Some(promote(4)), None),
        (Some(remove(4)), None),
        (Some(add(4, false)), None),
        (Some(fenced(remove(5), Some(1), None)), None),
        (None, Some(expire(1).into())),
        (None, Some(expire(2).into())),
    ]);
    let mut log = Vec::new();
    for (index, (change, command)) in (2..).zip(data) {
        let entry = match (change, command) {
            (Some(change), _) => {
                let inner = Membership::configuration_change(&change).unwrap();
                let data = LogPayload::membership(None, change);
                Entry::configuration_change(2, index, inner, data)
            }
            (None, Some(command)) => Entry::normal(2, index, LogPayload::command(None, command)),
            (None, None) => Entry::normal(2, index, Bytes::new()),
        };
        log.push(entry);
    }
    log
}

fn founded(nonce: u64) -> StateMachine {
    let machine = StateMachine::found(7, "", 0, founders()).unwrap();
    let checkpoint = machine.checkpoint();
    StateMachine::restore(nonce, nonce, checkpoint.meta, checkpoint.chunks).unwrap()
}

fn founders() -> Vec<MemberRecord> {
    let record = |id| MemberRecord {
        id,
        name: format!("member-{id}"),
        peer_urls: peer_urls(id),
        ..MemberRecord::default()
    };
    (1..=3).map(record).collect()
}

/// The machine takes no flags, so limits set by flags are not checked when applying: five learners
/// are added although the default of `--max-learners` is one.
#[test]
fn machines_fed_the_same_log_are_equal() {
    let log = eventful_log();
    let mut one = founded(1);
    let mut other = founded(2);
    for entry in &log {
        assert_eq!(one.apply(entry).unwrap(), other.apply(entry).unwrap());
        one.view();
    }
    assert_eq!(one.hash(), other.hash());
    assert_eq!(one.membership().learners().count(), 4);
    assert!(one.membership().is_removed(4));
    assert_eq!(
        value(&one.view(), "b"),
        None,
        "the lease ended under its own term only"
    );
}

#[test]
fn restored_state_machine_equals_its_source() {
    let log = eventful_log();
    for cut in 0..log.len() {
        let mut one = founded(1);
        for entry in &log[..cut] {
            one.apply(entry).unwrap();
        }
        let checkpoint = one.checkpoint();
        let bytes = checkpoint.meta.encode_to_vec();
        let meta = CheckpointMeta::read(&bytes).unwrap();
        let mut other = StateMachine::restore(9, 9, meta, checkpoint.chunks).unwrap();
        assert_eq!(one.hash(), other.hash());
        for entry in &log[cut..] {
            one.apply(entry).unwrap();
            other.apply(entry).unwrap();
        }
        assert_eq!(one.hash(), other.hash(), "cut at {cut}");
    }
}

#[test]
fn invalid_entry_stops_the_state_machine() {
    let mut machine = founded(1);
    let mut payload = LogPayload {
        format: FORMAT + 1,
        ..LogPayload::default()
    };
    let newer = Entry::normal(2, 2, payload.encode_to_vec());
    let refused = machine.apply(&newer).unwrap_err();
    assert!(refused.to_string().contains("format"), "{refused}");
    payload.format = FORMAT;
    let unknown = Entry::normal(2, 2, payload.encode_to_vec());
    assert!(machine.apply(&unknown).is_err(), "a kind that is not known");
    let gap = Entry::normal(2, 3, Bytes::new());
    assert!(machine.apply(&gap).is_err());
    let liar = Entry::configuration_change(
        2,
        2,
        crate::raft::ConfigurationChange::Remove(1),
        LogPayload::membership(None, add(9, true)),
    );
    assert!(machine.apply(&liar).is_err(), "the two halves disagree");
    let next = Entry::normal(2, 2, Bytes::new());
    assert_eq!(machine.apply(&next).unwrap().outcome, Outcome::Started);
}

#[test]
fn membership_keeps_its_last_changes() {
    let mut membership = Membership::found(7, "", 0, founders()).unwrap();
    for round in 0..100 {
        let id = 100 + round;
        membership = membership.after(10 + 2 * round, &add(id, true)).unwrap();
        membership = membership.after(11 + 2 * round, &remove(id)).unwrap();
    }
    assert_eq!(membership.changes.len(), REMEMBERED_CHANGES);
    let last = membership.changes.last().unwrap();
    assert_eq!(
        (last.kind(), last.id, last.index),
        (ChangeKind::Remove, 199, 209)
    );
    assert_eq!(last.name, "member-199");
    assert_eq!(membership.tombstones.len(), 100);
    let named = add(150, true);
    assert_eq!(membership.check(&named), Err(MembershipError::Removed));
    let mut renamed = add(999, true);
    if let Some(ChangeBody::Add(add)) = &mut renamed.body {
        add.name = "member-150".to_owned();
    }
    assert_eq!(membership.check(&renamed), Err(MembershipError::NameExists));
}

#[test]
fn membership_errors_survive_the_wire() {
    let errors = [
        MembershipError::IdExists,
        MembershipError::LearnerNotReady {
            why: "why".to_owned(),
        },
        MembershipError::ConfigurationChanged {
            expected: 3,
            current: 4,
        },
        MembershipError::StaleEpoch {
            given: 1,
            current: 2,
        },
        MembershipError::OtherDisk {
            bound: "disk".to_owned(),
        },
        MembershipError::DiskInUse { by: 8 },
        MembershipError::Unhealthy,
    ];
    for error in errors {
        let error = ProposalError::Membership(error);
        let record = RefusalRecord::from(&error);
        let read = RefusalRecord::decode(&record.encode_to_vec()[..]).unwrap();
        assert_eq!(ProposalError::from(read), error);
    }
}
