//! How full the members of this world are, and the alarms that they raise.

use super::World;
use crate::plan::{Description, Space};

const MIB: u64 = 1 << 20;

/// The description of a member that has space.
pub(in crate::plan::tests) fn roomy() -> Space {
    Space {
        used: 10 * MIB,
        quota: 128 * MIB,
        free: 900 * MIB,
        needed: 44 * MIB,
        in_memory: 0,
        in_memory_most: 0,
    }
}

impl World {
    /// The alarm of this kind that names this member is raised.
    pub(in crate::plan::tests) fn alarm(&mut self, kind: &str, member: &str) {
        let view = self.raft.members.iter().find(|view| view.name == member);
        let id = view.expect("a member").id;
        self.health.alarms.push(format!("{kind} {id:x}"));
    }

    /// The leader's description.
    pub(in crate::plan::tests) fn leading(&self) -> Description {
        let leader = self.raft.leader.clone().expect("a leader");
        self.observe().descriptions[&leader].clone()
    }
}
