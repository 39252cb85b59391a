//! A second operator that begins to act while the first still does: for a while both think that
//! they lead. The newer one carries the higher epoch, by which members refuse the older one once
//! they have received its epoch; the older one is not notified.

use super::world::World;

/// So long both act: as long as a deposed holder of the Lease may take to notice.
const BOTH_MS: u64 = 12_000;

/// The second operator of a run.
#[derive(Debug, Default)]
pub(super) struct SecondLeader {
    /// When the older ones end, and their names.
    older: Option<(u64, Vec<String>)>,
    /// It was there.
    pub(super) came: bool,
}

impl World {
    /// Has the second operator come, or the older ones go, where it is time for it.
    pub(super) fn turn_second_leader(&mut self, now_ms: u64) {
        let Some(at) = self.options.second_leader.filter(|_| !self.by_lease) else {
            return;
        };
        if !self.second_leader.came && self.writes() >= at {
            let acting = self.operators.iter().filter(|o| o.leads && !o.frozen);
            let older: Vec<String> = acting.map(|o| o.name.clone()).collect();
            if older.is_empty() {
                return;
            }
            self.second_leader.came = true;
            self.second_leader.older = Some((now_ms + BOTH_MS, older));
            self.start_operator("second-leader");
        }
        if let Some((until, older)) = &self.second_leader.older
            && *until <= now_ms
        {
            let stays = |name: &str| !older.iter().any(|old| old == name);
            self.operators.retain(|operator| stays(&operator.name));
            self.reborn.retain(|(_, name)| stays(name));
            self.second_leader.older = None;
        }
    }
}
