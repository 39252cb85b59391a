//! Members with different timings, as during a rollout of new ones: no healthy leader is considered dead if every
//! election timeout is at least twice every heartbeat interval. The operator requires no more
//! (`crd::Timings::go_with`).

use super::harness::Cluster;
use crate::raft::*;

const ALL: [MemberId; 3] = [1, 2, 3];
/// The core's election timeout is ten ticks, and a heartbeat comes with each.
const FAST: u64 = 100;
const SLOW: u64 = 500;

struct Rolled {
    cluster: Cluster,
    /// The tick of each member, in milliseconds.
    ticks: [u64; 3],
    now: u64,
    /// Looks at which a running member knew no leader.
    leaderless: u64,
}

impl Rolled {
    fn new(tick: u64) -> Self {
        let mut cluster = Cluster::new(&ALL, &[]);
        cluster.elect(1);
        Self {
            cluster,
            ticks: [tick; 3],
            now: 0,
            leaderless: 0,
        }
    }

    /// Lets so much time go by. Ticks of members do not fall on the same moments.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 10;
            for (id, tick) in ALL.into_iter().zip(self.ticks) {
                let down = self.cluster.node(id).crashed;
                if !down && (self.now + 30 * id).is_multiple_of(tick) {
                    self.cluster.raft(id).tick().expect("a tick");
                }
            }
            self.cluster.stabilize(&[]).expect("no fatal error");
            self.cluster.trace.clear();
            for id in ALL {
                let node = self.cluster.node(id);
                let lost = !node.crashed && node.raft.status().leader.is_none();
                self.leaderless += u64::from(lost);
            }
        }
    }

    /// A member is restarted, with another tick.
    fn restart(&mut self, id: MemberId, tick: u64) {
        self.cluster.crash(id);
        self.pass(2_000);
        self.cluster.restart(id).expect("it starts");
        for (one, known) in ALL.into_iter().zip(&mut self.ticks) {
            if one == id {
                *known = tick;
            }
        }
        // It has no leader until the next heartbeat.
        let before = self.leaderless;
        self.pass(self.slowest() + 100);
        self.leaderless = before;
        self.pass(30_000);
    }

    fn slowest(&self) -> u64 {
        self.ticks.into_iter().max().unwrap_or(0)
    }

    fn term(&mut self) -> Term {
        ALL.map(|id| self.cluster.raft(id).status().term)
            .into_iter()
            .max()
            .unwrap_or(0)
    }
}

#[test]
fn timings_roll_without_an_election() {
    for (old, new) in [(FAST, SLOW), (SLOW, FAST)] {
        let mut rolled = Rolled::new(old);
        rolled.pass(10_000);
        let term = rolled.term();
        rolled.restart(3, new);
        rolled.restart(2, new);
        assert_eq!(rolled.term(), term, "{old} to {new}: the followers' turn");
        let handed = rolled.cluster.raft(1).transfer_leadership(2);
        handed.expect("the leader hands over");
        // It retires for a while, as one of the old timings below a leader of the new ones.
        rolled.pass(7_000);
        rolled.restart(1, new);
        assert_eq!(rolled.term(), term + 1, "{old} to {new}: one hand-over");
        assert_eq!(rolled.leaderless, 0, "{old} to {new}");
        let leader = rolled.cluster.raft(2).status().role;
        assert_eq!(leader, Role::Leader);
    }
}

/// The reason for the rule: with a leader whose heartbeat interval equals its shortest election timeout, a member loses
/// contact again and again.
#[test]
fn short_election_timeout_loses_the_leader() {
    let mut rolled = Rolled::new(2_000);
    rolled.restart(3, FAST);
    assert!(rolled.leaderless > 0);
}
