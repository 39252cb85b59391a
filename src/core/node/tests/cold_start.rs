//! A cluster whose members all start together elects without waiting for the election timeout, and nothing else does.
//!
//! Measured before: of the 1.9 s that three members with 100,000 keys took from their start to their first linearizable
//! answer, 1.2 s were the wait for the election timeout, while all of them were connected.

use super::*;

fn hurried(ids: &[MemberId]) -> Cluster {
    Cluster::tweaked(ids, |_, config| config.elects_when_complete = true)
}

/// All start again, with what is durable, and have been connected for a heartbeat interval.
fn restart_all(cluster: &mut Cluster) {
    let ids: Vec<MemberId> = cluster.servers.keys().copied().collect();
    for id in ids {
        cluster.restart_quietly(id);
    }
    cluster.ticks(2);
}

fn leader_known_to(cluster: &mut Cluster, id: MemberId) -> Option<MemberId> {
    cluster.server(id).member.status().raft.leader
}

#[test]
fn connected_voters_elect_at_once() {
    let mut cluster = hurried(&[1, 2, 3]);
    cluster.ticks(2);
    for id in [1, 2, 3] {
        assert_eq!(leader_known_to(&mut cluster, id), Some(1), "at {id}");
    }
    cluster.put(2, "key", "value");
    restart_all(&mut cluster);
    assert_eq!(leader_known_to(&mut cluster, 3), Some(1));
    assert_eq!(cluster.get(3, "key").as_deref(), Some("value"));
}

#[test]
fn a_voter_that_is_away_is_waited_for() {
    let mut cluster = hurried(&[1, 2, 3]);
    cluster.stop(3);
    restart_all(&mut cluster);
    // Below the shortest election timeout, which is ten ticks.
    cluster.ticks(7);
    assert_eq!(leader_known_to(&mut cluster, 1), None);
    assert_ne!(cluster.leader(), 3, "by the timeout");
}

#[test]
fn a_log_that_ends_early_is_passed_over() {
    let mut cluster = hurried(&[1, 2, 3]);
    cluster.cut(1, 2);
    cluster.cut(1, 3);
    cluster.ticks(30);
    let leader = cluster.leader();
    assert_ne!(leader, 1);
    cluster.put(leader, "key", "value");
    cluster.heal();
    restart_all(&mut cluster);
    assert_eq!(leader_known_to(&mut cluster, 2), None, "1 was refused");
    cluster.ticks(2);
    assert_eq!(leader_known_to(&mut cluster, 1), Some(2));
    assert_eq!(cluster.get(1, "key").as_deref(), Some("value"));
}

#[test]
fn a_leader_that_is_well_is_not_disturbed() {
    let mut cluster = hurried(&[1, 2, 3]);
    cluster.cut(1, 2);
    cluster.cut(1, 3);
    cluster.ticks(30);
    let leader = cluster.leader();
    let term = cluster.server(leader).member.status().raft.term;
    cluster.heal();
    // The lowest ID, which asks first.
    cluster.restart(1);
    cluster.ticks(30);
    assert_eq!(cluster.leader(), leader);
    assert_eq!(leader_known_to(&mut cluster, 1), Some(leader));
    assert_eq!(cluster.server(leader).member.status().raft.term, term);
}

#[test]
fn a_cluster_without_prevotes_waits() {
    let mut cluster = Cluster::tweaked(&[1, 2, 3], |_, config| {
        config.elects_when_complete = true;
        config.raft.pre_vote = false;
    });
    cluster.ticks(9);
    assert_eq!(leader_known_to(&mut cluster, 1), None);
}

/// Members whose disks need more than the pause between two attempts for a vote would otherwise depose each other's
/// candidates for ever.
#[test]
fn slow_disks_see_one_attempt_each() {
    let mut cluster = hurried(&[1, 2, 3]);
    let terms = |cluster: &mut Cluster| -> Vec<u64> {
        let of = |id| cluster.server(id).member.status().raft.term;
        [1, 2, 3].map(of).to_vec()
    };
    for id in [1, 2, 3] {
        cluster.server(id).disk_waits = true;
    }
    cluster.ticks(8);
    assert_eq!(terms(&mut cluster), [2, 2, 2], "one campaign");
    for id in [1, 2, 3] {
        cluster.server(id).disk_waits = false;
    }
    cluster.settle();
    assert_eq!(leader_known_to(&mut cluster, 3), Some(1));
}
