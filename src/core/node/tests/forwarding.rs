//! Proposals on their way to a leader that ends, or is replaced: which are proposed again, and which
//! never are.

use super::*;

/// Three members: the leader, a follower that a client asks, and the other one.
fn three() -> (Cluster, [MemberId; 3]) {
    let mut cluster = Cluster::tweaked(&[1, 2, 3], |_, config| {
        config.checkpoints = CheckpointPolicy {
            log_bytes: 3 << 10,
            entries: 10,
            hold_bytes: 2 << 10,
            ..CheckpointPolicy::default()
        };
    });
    let leader = cluster.leader();
    let [origin, other] = cluster.followers()[..] else {
        panic!("two followers");
    };
    cluster.ticks(12);
    (cluster, [leader, origin, other])
}

/// A put at a member, which has sent it to its leader; nothing else has happened yet.
fn sent(cluster: &mut Cluster, origin: MemberId) -> u64 {
    let number = cluster.propose(origin, put("key", "value"));
    while cluster.think(origin) {}
    number
}

/// Takes what one has sent to another off the wire.
fn on_its_way(cluster: &mut Cluster, from: MemberId, to: MemberId) -> VecDeque<Vec<u8>> {
    let messages = cluster.wire.remove(&(from, to)).unwrap_or_default();
    assert!(!messages.is_empty());
    messages
}

/// Reports that a message was not sent.
fn give_back(cluster: &mut Cluster, from: MemberId, to: MemberId, message: &[u8]) {
    let message = PeerMessage::decode(message).unwrap();
    cluster.give(from, Input::Unsent { to, message });
}

fn answered(cluster: &mut Cluster, id: MemberId, number: u64) -> bool {
    let server = cluster.server(id);
    assert_eq!(server.failures.get(&number), None);
    server.answers.contains_key(&number)
}

fn repeated(cluster: &mut Cluster, id: MemberId) -> u64 {
    cluster.server(id).member.repeated()
}

fn waiting(cluster: &mut Cluster, id: MemberId) -> usize {
    cluster.server(id).member.status().proposals_waiting
}

fn transfer(cluster: &mut Cluster, from: MemberId, to: MemberId) {
    let input = Input::Transfer {
        id: 1,
        to: Some(to),
    };
    cluster.give(from, input);
    cluster.settle();
    assert_eq!(cluster.leader(), to);
    cluster.ticks(2);
}

/// A leader that was killed took what followers had just sent to it along: their clients were told
/// after seven seconds that nothing was known of it.
#[test]
fn lost_with_its_leader_is_proposed_again() {
    let (mut cluster, [leader, origin, _]) = three();
    let number = sent(&mut cluster, origin);
    cluster.stop(leader);
    cluster.leader();
    cluster.ticks(2);
    assert!(answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 1);
    assert_eq!(cluster.get(origin, "key").as_deref(), Some("value"));
    cluster.assert_equal();
}

#[test]
fn origin_that_leads_next_appends_it_itself() {
    let (mut cluster, [leader, origin, other]) = three();
    let number = sent(&mut cluster, origin);
    cluster.stop(leader);
    cluster.ticks(2);
    // The first report allows a vote, the next one starts an election.
    for id in [other, origin, origin] {
        cluster.give(id, Input::Gone(leader));
    }
    cluster.settle();
    assert_eq!(cluster.leader(), origin);
    cluster.ticks(1);
    assert!(answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 1);
    cluster.assert_equal();
}

/// The leader appended it and sent it to the third member; the answer did not arrive.
#[test]
fn applied_before_a_later_term_is_not_repeated() {
    let (mut cluster, [leader, origin, other]) = three();
    let number = sent(&mut cluster, origin);
    cluster.deliver(origin, leader);
    while cluster.think(leader) {}
    while cluster.deliver(leader, other) {}
    while cluster.think(other) || cluster.server(other).write() {}
    cluster.stop(leader);
    assert_eq!(cluster.leader(), other, "it has the longer log");
    cluster.ticks(2);
    assert!(answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 0);
    cluster.assert_equal();
}

/// A forward that arrives late finds its receiver leading again. The origin has proposed it again
/// meanwhile, and a newer value was written since.
#[test]
fn refused_in_another_term() {
    let (mut cluster, [leader, origin, other]) = three();
    let number = sent(&mut cluster, origin);
    let late = cluster.wire.remove(&(origin, leader)).unwrap();
    assert!(!late.is_empty());
    transfer(&mut cluster, leader, other);
    assert!(answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 1);
    transfer(&mut cluster, other, leader);
    cluster.put(origin, "key", "newer");
    cluster
        .wire
        .entry((origin, leader))
        .or_default()
        .extend(late);
    cluster.settle();
    cluster.ticks(2);
    assert_eq!(cluster.get(origin, "key").as_deref(), Some("newer"));
    assert_eq!(waiting(&mut cluster, leader), 0);
    cluster.assert_equal();
}

/// What a leader holds back while it hands over is for its own term alone.
#[test]
fn parked_proposal_returns_to_its_origin() {
    let (mut cluster, [leader, origin, other]) = three();
    let input = Input::Transfer {
        id: 1,
        to: Some(other),
    };
    cluster.give(leader, input);
    while cluster.think(leader) {}
    let number = sent(&mut cluster, origin);
    cluster.deliver(origin, leader);
    while cluster.think(leader) {}
    assert_eq!(waiting(&mut cluster, leader), 1, "it hands over");
    cluster.settle();
    assert_eq!(cluster.leader(), other);
    cluster.ticks(2);
    assert!(answered(&mut cluster, origin, number));
    assert_eq!(waiting(&mut cluster, leader), 0);
    cluster.assert_equal();
}

/// A link gave up a forward before a byte of it was written.
#[test]
fn unsent_forward_is_made_again() {
    let (mut cluster, [leader, origin, _]) = three();
    let request = cluster.server(origin).request();
    let command = add(4, true);
    cluster.give(origin, Input::ChangeMembership { request, command });
    let number = sent(&mut cluster, origin);
    for late in on_its_way(&mut cluster, origin, leader) {
        give_back(&mut cluster, origin, leader, &late);
    }
    cluster.settle();
    assert!(!answered(&mut cluster, origin, number), "it waits a tick");
    cluster.ticks(4);
    for number in [number, request.counter] {
        assert!(answered(&mut cluster, origin, number), "{number}");
    }
    assert_eq!(repeated(&mut cluster, origin), 0, "in the same term");
    assert_eq!(waiting(&mut cluster, origin), 0);
    cluster.assert_equal();
}

/// A proposal whose forward to the first leader is late, and which the origin has sent to the next
/// one meanwhile: its number, and the late forward.
fn sent_again(
    cluster: &mut Cluster,
    [leader, origin, other]: [MemberId; 3],
) -> (u64, VecDeque<Vec<u8>>) {
    let number = sent(cluster, origin);
    let late = on_its_way(cluster, origin, leader);
    // It learns of the later term when the other one leads already.
    cluster.server(origin).applier_waits = true;
    transfer(cluster, leader, other);
    cluster.server(origin).applier_waits = false;
    while cluster.server(origin).work() || cluster.think(origin) {}
    assert_eq!(repeated(cluster, origin), 1);
    assert!(!answered(cluster, origin, number), "it is on its way");
    (number, late)
}

/// It is answered, and nothing of it is left to be made again.
fn answered_once(cluster: &mut Cluster, origin: MemberId, number: u64) {
    while cluster.think(origin) {}
    cluster.settle();
    cluster.ticks(2);
    assert!(answered(cluster, origin, number));
    assert_eq!(waiting(cluster, origin), 0);
    cluster.assert_equal();
}

/// The leader before refuses the late forward, which says nothing of the one to its successor. Were
/// it made once more, it would be there twice.
#[test]
fn outcome_of_an_earlier_forward_is_void() {
    let (mut cluster, [leader, origin, other]) = three();
    let (number, late) = sent_again(&mut cluster, [leader, origin, other]);
    let link = cluster.wire.entry((origin, leader)).or_default();
    link.extend(late);
    while cluster.deliver(origin, leader) {}
    while cluster.think(leader) {}
    while cluster.deliver(leader, origin) {}
    answered_once(&mut cluster, origin, number);
}

/// Links give up what is queued when they break, by when its proposal may be on another one.
#[test]
fn unsent_forward_of_an_earlier_term_is_void() {
    let (mut cluster, [leader, origin, other]) = three();
    let (number, late) = sent_again(&mut cluster, [leader, origin, other]);
    for late in late {
        give_back(&mut cluster, origin, leader, &late);
    }
    answered_once(&mut cluster, origin, number);
}

#[test]
fn checkpoint_over_it_proves_nothing() {
    let (mut cluster, [leader, origin, other]) = three();
    let number = sent(&mut cluster, origin);
    cluster.wire.remove(&(origin, leader));
    cluster.cut(origin, leader);
    cluster.cut(origin, other);
    // No log is kept for a member that has not answered for so long.
    cluster.ticks(20);
    for n in 0..60 {
        cluster.put(leader, &format!("key-{n}"), &"v".repeat(60));
    }
    transfer(&mut cluster, leader, other);
    for n in 0..60 {
        cluster.put(other, &format!("key-{n}"), &"v".repeat(60));
    }
    cluster.ticks(20);
    cluster.heal();
    cluster.ticks(40);
    assert!(cluster.server(origin).installs > 0);
    let next = cluster.leader();
    let term = cluster.server(next).member.status().raft.term;
    let to = if next == leader { other } else { leader };
    transfer(&mut cluster, next, to);
    assert!(cluster.server(origin).machine.term() > term);
    assert!(!answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 0);
    assert_eq!(waiting(&mut cluster, origin), 1, "its caller times out");
    assert_eq!(cluster.get(other, "key"), None);
}

#[test]
fn change_lost_with_its_leader_is_proposed_again() {
    let (mut cluster, [leader, origin, _]) = three();
    let request = cluster.server(origin).request();
    let command = remove(leader);
    cluster.give(origin, Input::ChangeMembership { request, command });
    while cluster.think(origin) {}
    cluster.stop(leader);
    cluster.leader();
    cluster.ticks(20);
    assert!(answered(&mut cluster, origin, request.counter));
    assert_eq!(repeated(&mut cluster, origin), 1);
    assert!(
        cluster
            .server(origin)
            .machine
            .membership()
            .is_removed(leader)
    );
}

/// A removal is answered with a later entry than its own. If that one is of a later term, the
/// removal was applied nevertheless.
#[test]
fn change_that_waits_to_be_settled_is_not_repeated() {
    let (mut cluster, [leader, origin, _]) = three();
    cluster.change(leader, add(4, true)).unwrap();
    cluster.ticks(2);
    cluster.server(leader).applier_waits = true;
    let request = cluster.server(origin).request();
    let command = remove(4);
    cluster.give(origin, Input::ChangeMembership { request, command });
    for _ in 0..8 {
        for id in [origin, leader] {
            while cluster.think(id) || cluster.server(id).write() || cluster.server(id).work() {}
        }
        while cluster.deliver(origin, leader) {}
        lose_outcomes(&mut cluster, leader, origin);
        while cluster.deliver(leader, origin) {}
        cluster.now += TICK;
        cluster.give(leader, Input::Tick);
    }
    assert!(cluster.server(origin).machine.membership().is_removed(4));
    assert!(!answered(&mut cluster, origin, request.counter));
    cluster.stop(leader);
    cluster.leader();
    cluster.ticks(20);
    assert!(answered(&mut cluster, origin, request.counter));
    assert_eq!(repeated(&mut cluster, origin), 0);
    cluster.assert_equal();
}

fn lose_outcomes(cluster: &mut Cluster, from: MemberId, to: MemberId) {
    cluster.wire.entry((from, to)).or_default().retain(|bytes| {
        let message = PeerMessage::decode(&bytes[..]).unwrap();
        !matches!(message.body, Some(PeerBody::ForwardedOutcomes(_)))
    });
}

/// It would append it in any term, and pass it on to other leaders.
#[test]
fn sent_to_a_leader_of_the_version_before_is_not_repeated() {
    let (mut cluster, [leader, origin, _]) = three();
    cluster.old.insert(leader);
    cluster.ticks(2);
    cluster.put(origin, "through", "an older leader");
    let number = sent(&mut cluster, origin);
    cluster.stop(leader);
    let next = cluster.leader();
    cluster.put(next, "other", "value");
    cluster.ticks(2);
    assert!(!answered(&mut cluster, origin, number));
    assert_eq!(repeated(&mut cluster, origin), 0);
    assert_eq!(waiting(&mut cluster, origin), 1, "its caller times out");
    let number = sent(&mut cluster, origin);
    cluster.ticks(1);
    assert!(
        answered(&mut cluster, origin, number),
        "a newer one leads now"
    );
}

/// What a follower of the version before sends is for any term, so a leader that hands over passes
/// it on. Where that was not sent, the member that had passed it on was told, which cannot repeat
/// it, and the origin was not.
#[test]
fn parked_plain_forward_that_is_not_sent_returns_to_its_origin() {
    let (mut cluster, [leader, origin, other]) = three();
    cluster.old.insert(origin);
    cluster.ticks(2);
    let input = Input::Transfer {
        id: 1,
        to: Some(other),
    };
    cluster.give(leader, input);
    while cluster.think(leader) {}
    let number = sent(&mut cluster, origin);
    cluster.deliver(origin, leader);
    while cluster.think(leader) {}
    assert_eq!(waiting(&mut cluster, leader), 1, "it hands over");
    while cluster.deliver(leader, other) {}
    cluster.broken.insert((leader, other));
    cluster.settle();
    assert_eq!(cluster.leader(), other);
    assert_eq!(waiting(&mut cluster, leader), 0, "it passed it on");
    cluster.broken.clear();
    cluster.ticks(4);
    assert!(answered(&mut cluster, origin, number));
    cluster.assert_equal();
}

/// A follower of the version before sends no term.
#[test]
fn forward_without_a_term_is_appended() {
    let (mut cluster, [leader, origin, _]) = three();
    let request = cluster.server(origin).request();
    let data = LogPayload::command(Some(request), put("key", "value"));
    let forward = PeerBody::Forward(Forward {
        proposals: vec![Proposal { request, data }],
    });
    let message = PeerMessage {
        takes_terms: false,
        ..forward.into()
    };
    let from = origin;
    cluster.give(leader, Input::Peer { from, message });
    cluster.settle();
    cluster.ticks(1);
    assert_eq!(cluster.get(origin, "key").as_deref(), Some("value"));
}
