//! The rules of the Raft paper and thesis, one test each, named after the section.

use bytes::Bytes;

use super::harness::{Cluster, Image, Parcel};
use crate::raft::*;

fn vote(from: MemberId, to: MemberId, term: Term, last: (Term, Index)) -> Message {
    let (last_term, last_index) = last;
    let request = VoteRequest {
        last_index,
        last_term,
        transfer: false,
    };
    Message::new(from, to, term, Body::Vote(request))
}

fn append(from: MemberId, term: Term, prev: (Term, Index), entries: Vec<Entry>) -> Message {
    let (prev_term, prev_index) = prev;
    let append = Append {
        prev_index,
        prev_term,
        commit: 0,
        entries,
    };
    Message::new(from, 1, term, Body::Append(append))
}

/// A core of member 1 of three, whose log has entries of the given terms from index 2 on.
fn core(terms: &[Term], hard_state: HardState) -> Raft {
    let snapshot = SnapshotMeta {
        index: 1,
        term: 1,
        configuration: Configuration::new([1, 2, 3], []),
    };
    let entries: Vec<Entry> = terms
        .iter()
        .zip(2..)
        .map(|(term, index)| Entry::normal(*term, index, Bytes::from_static(b"x")))
        .collect();
    let image = Image {
        hard_state,
        snapshot,
        state: Vec::new(),
        floor: (1, 1),
        entries,
    };
    let mut config = Config::new(1, 7, 1);
    (config.pre_vote, config.check_quorum) = (false, false);
    Raft::new(config, image.restored()).expect("a valid log")
}

fn term(term: Term) -> HardState {
    HardState {
        term,
        vote: 0,
        commit: 1,
    }
}

/// Drives a core alone; what it sends once all is durable.
fn replies(raft: &mut Raft) -> Vec<Body> {
    let mut sent = Vec::new();
    while raft.has_ready() {
        let ready = raft.take_ready();
        sent.extend(
            ready
                .messages
                .into_iter()
                .filter_map(|message| message.body),
        );
        if let Some(batch) = ready.batch {
            raft.persisted(batch.number).expect("the batch under way");
        }
        if let Some(last) = ready.committed.last() {
            raft.applied(last.index).expect("it was handed out");
        }
    }
    sent
}

fn granted(raft: &mut Raft) -> bool {
    replies(raft)
        .iter()
        .any(|body| matches!(body, Body::VoteReply(reply) if reply.granted))
}

#[test]
fn section_5_1_newer_term_wins() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[]);
    cluster.elect(1);
    let now = cluster.raft(1).term();
    let old = Message::new(2, 1, now - 1, Body::AppendReply(AppendReply::default()));
    assert!(matches!(cluster.raft(1).step(old), Ok(Stepped::Ignored(_))));
    assert_eq!(cluster.raft(1).role(), Role::Leader);
    let newer = Message::new(
        2,
        1,
        now + 1,
        Body::HeartbeatReply(HeartbeatReply::default()),
    );
    cluster.raft(1).step(newer).expect("a valid message");
    assert_eq!(
        (cluster.raft(1).role(), cluster.raft(1).term()),
        (Role::Follower, now + 1)
    );
}

#[test]
fn section_5_2_one_vote_a_term() {
    let mut raft = core(&[], term(1));
    raft.step(vote(2, 1, 5, (1, 1))).expect("a valid message");
    assert!(granted(&mut raft));
    raft.step(vote(3, 1, 5, (1, 9))).expect("a valid message");
    assert!(!granted(&mut raft), "the vote of this term is given");
    // What a restart finds is what was written with the grant, not what the first life knew.
    let mut first = core(&[], term(1));
    first.step(vote(2, 1, 5, (1, 1))).expect("a valid message");
    let written = first.take_ready().batch.and_then(|batch| batch.hard_state);
    let mut raft = core(&[], written.expect("a vote to write"));
    raft.step(vote(3, 1, 5, (1, 9))).expect("a valid message");
    assert!(!granted(&mut raft), "a restart does not give it back");
    raft.step(vote(2, 1, 5, (1, 1))).expect("a valid message");
    assert!(granted(&mut raft), "the same candidate may ask again");
}

#[test]
fn figure_2_durable_before_sent() {
    let mut raft = core(&[], term(1));
    raft.step(vote(2, 1, 2, (1, 1))).expect("a valid message");
    let ready = raft.take_ready();
    assert!(ready.messages.is_empty());
    let batch = ready.batch.expect("term and vote to write");
    assert_eq!(
        batch.hard_state.map(|state| (state.term, state.vote)),
        Some((2, 2))
    );
    // An append arrives while the vote is written: it waits for a batch of its own.
    let entries = vec![Entry::normal(2, 2, Bytes::new())];
    raft.step(append(2, 2, (1, 1), entries))
        .expect("a valid message");
    let ready = raft.take_ready();
    assert!(ready.messages.is_empty() && ready.batch.is_none());
    raft.persisted(batch.number).expect("the batch under way");
    let ready = raft.take_ready();
    assert!(matches!(
        ready.messages.as_slice(),
        [Message {
            body: Some(Body::VoteReply(VoteReply { granted: true, .. })),
            ..
        }]
    ));
    let batch = ready.batch.expect("the entry to write");
    assert!(raft.persisted(batch.number + 1).is_err(), "no such batch");
    raft.persisted(batch.number).expect("the batch under way");
    let sent = replies(&mut raft);
    assert!(matches!(sent.as_slice(), [Body::AppendReply(reply)] if reply.index == 2));
}

#[test]
fn section_5_4_1_votes_need_an_up_to_date_log() {
    // Ours ends in term 3 at index 4.
    for (last, expected) in [
        ((2, 9), false),
        ((3, 3), false),
        ((3, 4), true),
        ((3, 5), true),
        ((4, 2), true),
    ] {
        let mut raft = core(&[2, 3, 3], term(4));
        raft.step(vote(2, 1, 5, last)).expect("a valid message");
        assert_eq!(
            granted(&mut raft),
            expected,
            "candidate's log ends at {last:?}"
        );
    }
}

#[test]
fn section_5_3_append_needs_a_matching_entry() {
    let mut raft = core(&[2, 2, 2], term(3));
    raft.step(append(2, 3, (2, 7), vec![]))
        .expect("a valid message");
    let sent = replies(&mut raft);
    assert!(matches!(sent.as_slice(), [Body::AppendReply(reply)] if reply.reject));
    // A late append that ends early takes nothing away.
    let entry = Entry::normal(2, 2, Bytes::from_static(b"x"));
    raft.step(append(2, 3, (1, 1), vec![entry]))
        .expect("a valid message");
    assert_eq!(raft.last_index(), 4);
    // A conflict takes everything behind it away.
    let entry = Entry::normal(3, 3, Bytes::from_static(b"y"));
    raft.step(append(2, 3, (2, 2), vec![entry]))
        .expect("a valid message");
    assert_eq!((raft.last_index(), raft.term_at(3)), (3, Some(3)));
}

#[test]
fn section_5_3_committed_entries_stay() {
    let state = HardState {
        term: 3,
        vote: 0,
        commit: 3,
    };
    let mut raft = core(&[2, 2, 2], state);
    let entries = vec![
        Entry::normal(3, 2, Bytes::new()),
        Entry::normal(3, 3, Bytes::new()),
    ];
    // An append that starts below the commit index is answered by the commit index.
    raft.step(append(2, 3, (1, 1), entries))
        .expect("a valid message");
    assert_eq!((raft.last_index(), raft.term_at(2)), (4, Some(2)));
    let sent = replies(&mut raft);
    assert!(matches!(sent.as_slice(), [Body::AppendReply(reply)] if reply.index == 3));
}

/// Figure 8: an entry of an older term on a majority is not committed by that alone.
#[test]
fn section_5_4_2_commits_only_its_own_term() {
    let mut raft = core(&[2], term(3));
    raft.campaign().expect("a campaign");
    replies(&mut raft);
    let vote = Message::new(
        2,
        1,
        4,
        Body::VoteReply(VoteReply {
            granted: true,
            ..VoteReply::default()
        }),
    );
    raft.step(vote).expect("a valid message");
    replies(&mut raft);
    assert_eq!((raft.role(), raft.last_index()), (Role::Leader, 3));
    let ack = |index| {
        let reply = AppendReply {
            index,
            ..AppendReply::default()
        };
        Message::new(2, 1, 4, Body::AppendReply(reply))
    };
    raft.step(ack(2)).expect("a valid message");
    assert_eq!(raft.commit(), 1, "index 2 is of term 2 and on a majority");
    raft.step(ack(3)).expect("a valid message");
    assert_eq!(
        raft.commit(),
        3,
        "index 3 is of this term and brings it along"
    );
}

#[test]
fn section_5_4_3_leader_completeness() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[]);
    cluster.elect(1);
    cluster.propose(1, "kept");
    cluster.stabilize(&[3]).expect("1 and 2 commit");
    cluster.crash(1);
    for id in [2, 3] {
        for _ in 0..10 {
            cluster.raft(id).tick().expect("a tick");
        }
    }
    cluster.raft(3).campaign().expect("a campaign");
    cluster.stabilize(&[]).expect("an election");
    assert_ne!(cluster.raft(3).role(), Role::Leader);
    cluster.elect(2);
    cluster.propose(2, "next");
    cluster.stabilize(&[]).expect("2 and 3 commit");
    assert_eq!(cluster.applied(3), ["kept", "next"]);
}

#[test]
fn thesis_4_1_one_change_at_a_time() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[]);
    cluster.raft(1).campaign().expect("a campaign");
    while cluster.raft(1).role() != Role::Leader {
        for id in [1, 2, 3] {
            while cluster.ready(id).expect("a ready") {}
        }
        for parcel in std::mem::take(&mut cluster.network) {
            cluster.receive(parcel).expect("a valid message");
        }
    }
    let propose =
        |cluster: &mut Cluster, change| cluster.raft(1).propose_configuration(change, Bytes::new());
    let pending = Err(ProposeError::ChangePending);
    let remove = ConfigurationChange::Remove(3);
    assert_eq!(
        propose(&mut cluster, remove),
        pending,
        "nothing is committed in this term"
    );
    cluster.stabilize(&[]).expect("the first commit");
    assert!(propose(&mut cluster, remove).is_ok());
    let add = ConfigurationChange::AddLearner(4);
    assert_eq!(
        propose(&mut cluster, add),
        pending,
        "the removal is not applied"
    );
    cluster.stabilize(&[]).expect("the removal is applied");
    assert!(propose(&mut cluster, add).is_ok());
}

#[test]
fn thesis_4_2_1_learners_do_not_vote() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[4, 5]);
    cluster.elect(1);
    cluster.propose(1, "x");
    cluster
        .stabilize(&[2, 3])
        .expect("only learners hear of it");
    let status = cluster.raft(1).status();
    assert!(
        status.commit < status.last_index,
        "one voter and two learners are no majority"
    );
    assert!(matches!(
        cluster.raft(4).campaign(),
        Ok(Stepped::Ignored(_))
    ));
    for _ in 0..100 {
        cluster.raft(4).tick().expect("a tick");
    }
    assert_eq!(cluster.raft(4).role(), Role::Follower);
    // They keep no leader alive either.
    for _ in 0..21 {
        cluster.raft(1).tick().expect("a tick");
        cluster.stabilize(&[2, 3]).expect("heartbeats");
    }
    assert_eq!(cluster.raft(1).role(), Role::Follower);
}

/// A member that was removed as a follower cannot know for what its leader counted it, so it compares whole logs: the
/// entries after its removal may have been committed by the previous majority, including itself. (A removed member that
/// compared up to its removal elected a leader without a committed entry in a random run.)
#[test]
fn section_5_4_1_removed_follower_compares_logs() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[]);
    cluster.elect(1);
    let removal = cluster
        .raft(1)
        .propose_configuration(ConfigurationChange::Remove(3), Bytes::new())
        .expect("the leader takes it")
        .index;
    // 2 learns of the removal and of nothing after it; 3 of everything, and is counted for all.
    cluster.ready(1).expect("a ready");
    let to_two: Vec<Parcel> = std::mem::take(&mut cluster.network);
    for parcel in to_two {
        cluster.receive(parcel).expect("a valid message");
    }
    // The leader applies late: until then the majority of before counts.
    cluster.node(1).lazy_apply = true;
    let behind = cluster.propose(1, "behind").index;
    cluster.stabilize(&[2]).expect("1 and 3 commit");
    let conf = cluster.raft(3).configuration().clone();
    assert!(!conf.contains(3) && cluster.raft(3).commit() >= behind);
    let candidate = (cluster.raft(1).term(), removal);
    for _ in 0..10 {
        cluster.raft(3).tick().expect("a tick");
    }
    let newer = cluster.raft(3).term() + 1;
    cluster
        .raft(3)
        .step(vote(2, 3, newer, candidate))
        .expect("a valid message");
    assert!(
        !granted(cluster.raft(3)),
        "the candidate lacks a committed entry"
    );
}

#[test]
fn commit_index_beyond_the_log_is_fatal() {
    let mut raft = core(&[2], term(2));
    let beat = Heartbeat {
        commit: 9,
        read: None,
    };
    let lost = raft.step(Message::new(2, 1, 2, Body::Heartbeat(beat)));
    assert_eq!(lost, Err(Error::LogLost { commit: 9, last: 2 }));
    assert!(lost.is_err_and(|error| error.is_fatal()));
    let restored = Restored {
        hard_state: HardState {
            term: 2,
            vote: 0,
            commit: 5,
        },
        ..Restored::default()
    };
    let lost = Raft::new(Config::new(1, 0, 0), restored).map(|raft| raft.status());
    assert_eq!(lost, Err(Error::LogLost { commit: 5, last: 0 }));
}

/// A second change in a log proves that the first is committed (see
/// `tests/raft/uncommitted_change.txt`), also when no commit index was stored.
#[test]
fn a_second_change_in_the_log_commits_the_first() {
    let snapshot = SnapshotMeta {
        index: 1,
        term: 1,
        configuration: Configuration::new([1, 2, 3], []),
    };
    let change = |index, id| {
        Entry::configuration_change(1, index, ConfigurationChange::AddVoter(id), Bytes::new())
    };
    let restored = Restored {
        hard_state: term(1),
        snapshot,
        entries: vec![change(2, 4), change(3, 5)],
        ..Restored::default()
    };
    let mut raft = Raft::new(Config::new(1, 0, 0), restored).expect("a valid log");
    assert_eq!(raft.commit(), 2);
    assert!(matches!(raft.campaign(), Ok(Stepped::Ignored(_))));
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let mut raft = core(&[2, 2], term(3));
    let before = raft.status();
    let gap = vec![Entry::normal(3, 9, Bytes::new())];
    let future = vec![Entry::normal(9, 4, Bytes::new())];
    let unsorted = vec![Entry::normal(1, 4, Bytes::new())];
    let beat = Body::Heartbeat(Heartbeat::default());
    for message in [
        append(2, 3, (2, 3), gap),
        append(2, 3, (2, 3), future),
        append(2, 3, (2, 3), unsorted),
        append(2, 3, (9, 3), vec![]),
        append(2, 3, (2, u64::MAX), vec![]),
        Message::new(2, 7, 3, beat.clone()),
        Message::new(1, 1, 3, beat.clone()),
        Message::new(0, 1, 3, beat.clone()),
        Message::new(2, 1, 0, beat.clone()),
        Message::new(2, 1, u64::MAX, beat),
        Message {
            from: 2,
            to: 1,
            term: 3,
            body: None,
        },
        Message::install_snapshot(2, 1, 3, SnapshotMeta::default()),
    ] {
        let refused = raft.step(message.clone());
        assert!(
            matches!(refused, Err(Error::BadMessage { .. })),
            "{message:?} gives {refused:?}"
        );
    }
    assert_eq!(raft.status(), before);
    assert!(raft.snapshot_installed(&SnapshotMeta::default()).is_err());
    assert!(raft.applied(3).is_err(), "nothing of it was handed out");
    assert!(raft.compact(3).is_err(), "it is not applied");
    assert!(
        raft.log_read(77, Vec::new()).is_ok(),
        "an old ticket is no error"
    );
}

/// Thesis §6.4: a follower asks the leader for a read index. The answer is work to take: a quiet
/// follower's caller must not have to wait for the next heartbeat.
#[test]
fn a_read_at_a_quiet_follower_needs_no_tick() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[]);
    cluster.elect(1);
    cluster.raft(2).read_index(7);
    cluster.stabilize(&[]).expect("it comes to rest");
    let answers = &cluster.node(2).answers;
    assert!(
        matches!(answers[..], [(7, Ok(_))]),
        "answered without a tick: {answers:?}"
    );
}

/// etcd's server once fell over two snapshots in quick succession (its issue 18055).
#[test]
fn section_7_one_snapshot_at_a_time() {
    let mut raft = core(&[], term(1));
    let meta = |index| SnapshotMeta {
        index,
        term: 2,
        configuration: Configuration::new([1, 2, 3], []),
    };
    let arrives = |raft: &mut Raft, index| {
        let message = Message::install_snapshot(2, 1, 2, meta(index));
        raft.step(message).expect("a valid message")
    };
    assert_eq!(arrives(&mut raft, 10), Stepped::Taken);
    let mut asked = raft.take_ready();
    while asked.install.is_none() {
        let batch = asked.batch.expect("an installation, or what it waits for");
        raft.persisted(batch.number).expect("the batch under way");
        asked = raft.take_ready();
    }
    let second = arrives(&mut raft, 20);
    assert!(matches!(second, Stepped::Ignored(_)), "{second:?}");
    raft.snapshot_installed(&meta(10)).expect("the first one");
    assert_eq!(raft.applied_index(), 10);
    assert_eq!(arrives(&mut raft, 20), Stepped::Taken);
}
