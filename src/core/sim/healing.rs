//! Values that a server finds damaged are healed from the others, as the server's own task does it: with the same values,
//! and at once where that takes moments. A server that nobody can help is one whose disk is damaged.

use std::collections::BTreeSet;

use rand::RngExt as _;

use crate::node::{Applied, ApplyError, Input};
use crate::raft::Entry;
use crate::store::{Healed, LostValue, View};

use super::host::Process;
use super::network::HostId;
use super::oracles::Violation;
use super::world::World;

impl World {
    /// What a server reads of its state: where a value is damaged it is healed if it can be, and read again. `None` if the
    /// server does not run.
    pub(super) fn read_healed<T, E>(
        &mut self,
        host: HostId,
        read: impl Fn(&Process) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        loop {
            let found = read(self.hosts[host].process.as_ref()?);
            // Each time there is one less that is damaged.
            if found.is_ok() || !self.heal(host) {
                return Some(found);
            }
        }
    }

    /// The same; a server that cannot be helped ends, if bytes of its disk were spoilt.
    pub(super) fn read_state<T, E: std::fmt::Display>(
        &mut self,
        host: HostId,
        what: &str,
        read: impl Fn(&Process) -> Result<T, E>,
    ) -> Result<Option<T>, Violation> {
        match self.read_healed(host, read) {
            Some(found) => self.unless_damaged(host, what, found),
            None => Ok(None),
        }
    }

    /// Applies an entry, if need be once more. One that is half done is not applied again.
    pub(super) fn apply_healed(
        &mut self,
        host: HostId,
        entry: &Entry,
    ) -> Option<Result<Applied, ApplyError>> {
        loop {
            let process = self.hosts[host].process.as_mut()?;
            let applied = process.machine.apply(entry);
            let whole = matches!(
                &applied,
                Err(ApplyError::Value {
                    half_done: false,
                    ..
                })
            );
            if !whole || !self.heal(host) {
                return Some(applied);
            }
        }
    }

    /// Heals what a server has found damaged; false if nothing was.
    pub(super) fn heal(&mut self, host: HostId) -> bool {
        let Some(process) = &self.hosts[host].process else {
            return false;
        };
        let values = process.checkpoints.values().clone();
        let damaged: BTreeSet<(u64, u64)> = values.damaged().into_keys().collect();
        if damaged.is_empty() {
            return false;
        }
        let view = process.machine.view();
        let mut healed = 0;
        let lost = view.lost_values(&damaged);
        let needless = damaged.len() > lost.len();
        let needed: BTreeSet<(u64, u64)> = lost.iter().map(LostValue::place).collect();
        for place in damaged.difference(&needed) {
            values.forget(*place);
        }
        for lost in lost {
            if let Some(giver) = self.giver(host, &view, &lost) {
                values.forget(lost.place());
                healed += 1;
                let (now, place) = (self.agenda.now(), lost.place());
                self.trace.note(
                    now,
                    format_args!("host {host}: host {giver} heals the value at {place:?}"),
                );
            }
        }
        self.counters.healed_values += healed;
        if (healed > 0 || needless) && self.random.random_bool(0.5) {
            self.ask(host, Input::RenewCheckpoint);
        }
        // The file has it still, for whoever starts before the next checkpoint is there.
        self.hosts[host].mended |= healed > 0;
        healed > 0
    }

    /// Whoever has healed a value: a server that can be reached and has the revision. One of version 0.1.0 knows no such
    /// request.
    fn giver(&self, host: HostId, own: &View, lost: &LostValue) -> Option<HostId> {
        let others =
            (0..self.hosts.len()).filter(|other| *other != host && !self.hosts[*other].old);
        let mut reached = others.filter(|other| {
            let passes = self.network.passes(host, *other) && self.network.passes(*other, host);
            passes && !self.is_paused(*other)
        });
        reached.find(|other| {
            let process = self.hosts[*other].process.as_ref();
            let view = process.map(|process| process.machine.view());
            let row = view.map(|view| view.row_at(&lost.key_value().key, lost.revision()));
            matches!(row, Some(Ok(Some(row))) if own.heal(lost, &row) == Healed::Taken)
        })
    }
}
