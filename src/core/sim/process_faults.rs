//! What a server suffers without being killed: it is paused, its disk is slow, its disk is full.

use rand::RngExt as _;

use crate::disk::double::Faults;

use super::clock::{MILLISECOND, Micros, SECOND};
use super::network::HostId;
use super::world::World;

impl World {
    /// Whether a process is stopped at the moment.
    pub(super) fn is_paused(&self, host: HostId) -> bool {
        self.agenda.now() < self.hosts[host].paused_until
    }

    /// A process stops, as if it got no processor or SIGSTOP, and goes on later; what came
    /// meanwhile waits for it, and its clock has gone on.
    pub(super) fn pause(&mut self) {
        let Some(host) = self.any_running() else {
            return;
        };
        let span = match self.random.random_bool(0.5) {
            true => self
                .random
                .random_range(20 * MILLISECOND..400 * MILLISECOND),
            false => self.random.random_range(400 * MILLISECOND..4 * SECOND),
        };
        let now = self.agenda.now();
        self.hosts[host].paused_until = now + span;
        self.counters.pauses += 1;
        self.trace
            .note(now, format_args!("host {host} is paused for {span} us"));
    }

    /// Each write takes many times as long for a while, or none ends before the while does.
    pub(super) fn slow_disk(&mut self) {
        let Some(host) = self.any_running() else {
            return;
        };
        let span = self.random.random_range(SECOND / 2..5 * SECOND);
        let now = self.agenda.now();
        let hangs = self.random.random_bool(0.3);
        self.hosts[host].slow_until = now + span;
        self.hosts[host].hangs = hangs;
        match hangs {
            true => self.counters.hung_disks += 1,
            false => self.counters.slow_disks += 1,
        }
        let how = if hangs { "hangs" } else { "is slow" };
        self.trace.note(
            now,
            format_args!("the disk of host {host} {how} for {span} us"),
        );
    }

    /// How long an operation of a server's disk takes, up to so long on a good day.
    pub(super) fn disk_takes(&mut self, host: HostId, longest: Micros) -> Micros {
        let usual = self.random.random_range(50..longest);
        let left = self.hosts[host]
            .slow_until
            .saturating_sub(self.agenda.now());
        match left > 0 {
            true if self.hosts[host].hangs => usual + left,
            true => usual * self.random.random_range(20..200),
            false => usual,
        }
    }

    /// The disk has room for little more, for a while.
    pub(super) fn fill_disk(&mut self) {
        let Some(host) = self.any_running() else {
            return;
        };
        let span = self.random.random_range(SECOND / 2..4 * SECOND);
        let now = self.agenda.now();
        self.hosts[host].full_until = now + span;
        self.trace.note(
            now,
            format_args!("the disk of host {host} is full for {span} us"),
        );
        self.set_faults(host, Faults::default());
    }

    /// Sets what goes wrong with a disk beside what always does, and how full it is.
    pub(super) fn set_faults(&mut self, host: HostId, faults: Faults) {
        let full = self.agenda.now() < self.hosts[host].full_until;
        let left = self.random.random_range(0..20_000);
        let disk = &self.hosts[host].disk;
        disk.set_faults(Faults {
            lying_syncs: self.options.lying_disks,
            capacity: full.then(|| disk.bytes() + left),
            ..faults
        });
    }
}
