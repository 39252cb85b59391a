//! Servers outside the membership: which of their messages count, and how much is remembered of
//! them.

use super::*;
use crate::node::{Forward, PeerBody, RemovedNotice};
use crate::raft::{Body, Message, Term};

const STRANGER: MemberId = 0xbad;

fn meets(id: MemberId) -> Input {
    Input::PeerDisk {
        id,
        disk_uuid: disk_of(id),
    }
}

fn message(from: MemberId, body: PeerBody) -> Input {
    Input::Peer {
        from,
        message: body.into(),
    }
}

fn removed() -> PeerBody {
    PeerBody::Removed(RemovedNotice {
        configuration_index: 1 << 40,
    })
}

fn vote(from: MemberId, to: MemberId, term: Term, transfer: bool) -> Input {
    let body = Body::Vote(raft::VoteRequest {
        last_index: 1 << 40,
        last_term: term,
        transfer,
    });
    message(
        from,
        PeerBody::Raft(Message {
            from,
            to,
            term,
            body: Some(body),
        }),
    )
}

/// Any client that reached the port without TLS could end a member for good with one frame.
#[test]
fn one_report_removes_no_member() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.leader();
    cluster.ticks(3);
    cluster.give(1, meets(STRANGER));
    cluster.give(1, message(STRANGER, removed()));
    cluster.give(1, message(2, removed()));
    cluster.settle();
    assert!(!cluster.server(1).member.status().removed);
    // An append of the leader withdraws its report; with both others, the removal is believed.
    cluster.give(1, message(2, removed()));
    cluster.give(1, message(3, removed()));
    cluster.settle();
    assert!(cluster.server(1).member.status().removed);
}

/// Proposals of a server outside the membership were carried out like a member's: unauthorized
/// writes, and membership changes. A forced vote, or one with a distant term, deposed the leader.
#[test]
fn strangers_cannot_propose_or_depose() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    let leader = cluster.leader();
    cluster.ticks(3);
    let term = cluster.server(leader).member.status().raft.term;
    let data = LogPayload::command(None, put("key", "of a stranger"));
    let request = cluster.server(leader).request();
    let forward = Forward {
        proposals: vec![Proposal { request, data }],
    };
    cluster.give(leader, meets(STRANGER));
    cluster.give(leader, message(STRANGER, PeerBody::Forward(forward)));
    for id in [1, 2, 3] {
        cluster.give(id, meets(STRANGER));
        for to_term in [term + 1, term + 5, Term::MAX - 1] {
            cluster.give(id, vote(STRANGER, id, to_term, true));
            cluster.give(id, vote(STRANGER, id, to_term, false));
        }
    }
    cluster.settle();
    cluster.ticks(3);
    assert_eq!(cluster.get(leader, "key"), None);
    let status = cluster.server(leader).member.status().raft;
    assert_eq!((status.role, status.term), (Role::Leader, term));
}

/// A follower without a leader has to accept messages, also of servers that it does not know: the
/// present members may all have joined while it was away. One frame must not use up the terms of
/// all elections.
#[test]
fn implausible_terms_are_ignored() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.leader();
    cluster.ticks(3);
    for (id, other) in [(1, 2), (2, 3), (3, 1)] {
        cluster.cut(id, other);
    }
    cluster.ticks(60);
    let before = cluster.server(1).member.status().raft.term;
    cluster.give(1, meets(STRANGER));
    for from in [STRANGER, 2] {
        cluster.give(1, vote(from, 1, Term::MAX - 1, true));
    }
    cluster.settle();
    let after = cluster.server(1).member.status().raft.term;
    assert!(after < before + 100, "{before} became {after}");
    cluster.heal();
    cluster.leader();
    cluster.put(1, "key", "value");
}

/// The limit on terms was once measured from the receiver's own term for every sender: a foreign
/// server advanced one member's term beyond the limit, twice, and from then on each side dropped
/// the other's messages.
#[test]
fn member_recovers_from_a_foreign_term() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.leader();
    cluster.ticks(3);
    cluster.cut(1, 2);
    cluster.cut(1, 3);
    cluster.ticks(60);
    let before = cluster.server(1).member.status().raft.term;
    cluster.give(1, meets(STRANGER));
    for leaps in 1..=3 {
        cluster.give(1, vote(STRANGER, 1, before + (leaps << 32), false));
    }
    cluster.settle();
    let moved = cluster.server(1).member.status().raft.term;
    assert!(moved > before + (2 << 32), "the leaps were taken: {moved}");
    cluster.heal();
    cluster.ticks(60);
    cluster.leader();
    cluster.put(1, "key", "value");
    cluster.ticks(2);
    cluster.assert_equal();
}

/// The first disk of every ID ever met was remembered for ever; then the lowest IDs were forgotten,
/// and the time at which each was met was still remembered for ever.
#[test]
fn remembered_strangers_are_bounded() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.leader();
    cluster.ticks(3);
    // Higher IDs than those of the flood.
    cluster.give(1, meets(7000));
    for id in 1000..6000 {
        cluster.give(1, meets(id));
    }
    cluster.give(1, meets(100));
    cluster.settle();
    let remembered = cluster.server(1).member.remembered();
    assert!(remembered.len() < 100, "{}", remembered.len());
    assert!(
        remembered.is_superset(&[2, 3, 100, 5999].into()),
        "the last"
    );
    assert!(!remembered.contains(&7000), "the first");
    cluster.give(1, Input::Forget(5999));
    cluster.give(1, Input::Forget(2));
    cluster.settle();
    let remembered = cluster.server(1).member.remembered();
    assert!(!remembered.contains(&5999) && remembered.contains(&2));
    cluster.put(1, "key", "value");
    cluster.ticks(2);
    cluster.assert_equal();
}

/// For a joiner without a membership no server counts as a stranger.
#[test]
fn joining_member_bounds_remembered_peers() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.change(1, add(4, true)).unwrap();
    cluster.cut(4, 1);
    cluster.cut(4, 2);
    cluster.cut(4, 3);
    cluster.join(4);
    for id in 1000..6000 {
        cluster.give(4, meets(id));
    }
    cluster.settle();
    let remembered = cluster.server(4).member.remembered();
    assert!(remembered.len() < 100, "{}", remembered.len());
    cluster.heal();
    cluster.restart(4);
    cluster.ticks(20);
    let remembered = cluster.server(4).member.remembered();
    assert_eq!(remembered, [1, 2, 3].into());
}
