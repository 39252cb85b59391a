//! What goes wrong: crashes in the middle of a write, disks that stop or fail a sync, cuts, bad
//! network_faults, hand-overs at bad times. Pauses and spoilt, slow and full disks have files of their own.

use rand::RngExt as _;

use crate::disk::double::{Faults, Keep};
use crate::node::Input;
use crate::raft::Role;
use crate::store::{Compact, Operation};

use super::clock::{MILLISECOND, SECOND};
use super::host::Host;
use super::network::{HostId, NetworkFaults};
use super::oracles::Violation;
use super::world::{Event, Step, World, broken};

impl World {
    /// Something goes wrong, or right again.
    pub(super) fn fault(&mut self) -> Step {
        let now = self.agenda.now();
        // Now and then all is well for a while: what needs a healthy cluster must happen, too.
        let lull = self.random.random_bool(0.08);
        let pause = match lull {
            true => self.random.random_range(2 * SECOND..5 * SECOND),
            false => self.random.random_range(50 * MILLISECOND..SECOND),
        };
        self.agenda.after(pause, Event::Fault);
        if lull {
            self.network.restore_all();
            return Ok(());
        }
        match self.random.random_range(0..25) {
            0..=2 => match self.any_running() {
                Some(host) => self.crash(host)?,
                None => self
                    .trace
                    .note(now, format_args!("no host is left to crash")),
            },
            3 => self.cut_link(false),
            4 => self.cut_link(true),
            5 => self.isolate(),
            6 => self.split(),
            7 | 8 => self.network.restore_all(),
            9 => self.network.restore_one(&mut self.random),
            10 => self.network.network_faults = NetworkFaults::draw(&mut self.random),
            11 | 12 => self.hand_over(),
            13..=15 => self.compact(),
            16 | 17 => self.pause(),
            18 => self.slow_disk(),
            19 => self.fill_disk(),
            20 => self.reset_connections(),
            _ => self.arm_disk(),
        }
        Ok(())
    }

    /// Kills a process; what it had not synced is lost in whole, in part, or not at all.
    pub(super) fn crash(&mut self, host: HostId) -> Step {
        let keep = self.draw_keep();
        let fate = self.random.random_range(0..3);
        if let Some(process) = &mut self.hosts[host].process
            && process.writing.is_some()
        {
            match fate {
                // The write never began.
                0 => {}
                // It ended without notice.
                1 => {
                    let written = process.write();
                    if !self.hosts[host].disk.tripped() {
                        written.map_err(|error| broken("writing the log", error))?;
                    }
                }
                // It was cut short.
                _ => {
                    let cut = Faults {
                        stop_at_sync: Some(1),
                        lying_syncs: self.options.lying_disks,
                        ..Faults::default()
                    };
                    self.hosts[host].disk.set_faults(cut);
                    if let Some(process) = &mut self.hosts[host].process {
                        let _ = process.write(); // it must fail: the disk stops in the middle
                    }
                    self.counters.torn_writes += 1;
                }
            }
        }
        self.hosts[host].process = None;
        self.close_links_to(host);
        self.hosts[host].paused_until = 0;
        self.hosts[host].disk.crash(keep);
        self.counters.crashes += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {host} crashes, keeping {keep:?}"));
        let back = self.random.random_range(20 * MILLISECOND..4 * SECOND);
        self.agenda.after(back, Event::Restart(host));
        Ok(())
    }

    /// A disk will stop, or fail a sync, at some operation to come: in the middle of a batch, of a
    /// checkpoint, of a change of segments or of an installation.
    fn arm_disk(&mut self) {
        let Some(host) = self.any_running() else {
            return;
        };
        let at = Some(self.random.random_range(1..12));
        let mut faults = Faults::default();
        match self.random.random_range(0..3) {
            0 => faults.stop_at_sync = at,
            1 => faults.stop_at_write = at,
            _ => faults.fail_sync = at,
        }
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("the disk of host {host}: {faults:?}"));
        self.set_faults(host, faults);
    }

    /// What came of an operation on the disk. If it failed because the disk was made to fail,
    /// the process ends, and `None` is what the caller gets.
    pub(super) fn unless_disk_failed<T>(
        &mut self,
        host: HostId,
        what: &str,
        result: Result<T, impl std::fmt::Display>,
    ) -> Result<Option<T>, Violation> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.hosts[host].disk.tripped() => {
                let now = self.agenda.now();
                self.trace
                    .note(now, format_args!("host {host}: {what}: {error}"));
                self.end_by_disk(host);
                Ok(None)
            }
            Err(error) if self.hosts[host].spoilt => {
                self.found_at_a_read(host, &format!("{what}: {error}"))?;
                Ok(None)
            }
            Err(error) => Err(broken(what, error)),
        }
    }

    /// A process ends because of its disk. After a failed sync the machine stays up, so the next
    /// process reads what may never have reached the disk.
    pub(super) fn end_by_disk(&mut self, host: HostId) {
        self.hosts[host].process = None;
        self.close_links_to(host);
        if self.hosts[host].disk.stopped() {
            let keep = self.draw_keep();
            self.hosts[host].disk.crash(keep);
            self.counters.stopped_disks += 1;
        } else {
            match self.hosts[host].disk.filled() {
                true => self.counters.full_disks += 1,
                false => self.counters.failed_syncs += 1,
            }
            self.hosts[host].disk.crash_process();
        }
        let back = self.random.random_range(20 * MILLISECOND..2 * SECOND);
        self.agenda.after(back, Event::Restart(host));
    }

    /// The disk fails no more.
    pub(super) fn mend_disk(&mut self, host: HostId) {
        self.hosts[host].full_until = 0;
        self.hosts[host].slow_until = 0;
        if !self.hosts[host].disk.tripped() {
            self.set_faults(host, Faults::default());
        }
    }

    fn draw_keep(&mut self) -> Keep {
        match self.random.random_range(0..5) {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            _ => Keep::Seeded(self.random.random()),
        }
    }

    /// A server comes back, unless its disk is gone or it was started already.
    pub(super) fn restart(&mut self, host: HostId) -> Step {
        let wanted = &self.hosts[host];
        if wanted.lost || wanted.process.is_some() {
            return Ok(());
        }
        if self.agenda.now() < wanted.full_until {
            // As full as it was.
            self.set_faults(host, Faults::default());
        }
        self.start(host)
    }

    fn cut_link(&mut self, both_ways: bool) {
        let (from, to) = (self.any_host(), self.any_host());
        self.network.cut(from, to);
        if both_ways {
            self.network.cut(to, from);
        }
        self.counters.cuts += 1;
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("cut {from} -> {to}, both ways: {both_ways}"),
        );
    }

    /// One server is cut off: both ways, or only what it sends, or only what it receives.
    fn isolate(&mut self) {
        let alone = self.any_host();
        let ways = self.random.random_range(0..3);
        self.cut_off(alone, ways);
    }

    /// A new leader was elected: whoever led before and does not know it yet is cut off, and goes
    /// on for as long as it believes that it leads. What it answers meanwhile must not be stale.
    pub(super) fn keep_in_the_dark(&mut self, new: HostId) {
        if !self.stormy || self.random.random_bool(0.1) {
            return;
        }
        let leads = |host: &&Host| {
            let process = host.process.as_ref().filter(|_| host.id != new);
            process.is_some_and(|process| process.member.status().raft.role == Role::Leader)
        };
        let deposed = self.hosts.iter().find(leads).map(|host| host.id);
        if let Some(alone) = deposed {
            self.cut_off(alone, 0);
        }
    }

    fn cut_off(&mut self, alone: HostId, ways: u32) {
        for other in 0..self.hosts.len() {
            if ways != 1 {
                self.network.cut(alone, other);
            }
            if ways != 2 {
                self.network.cut(other, alone);
            }
        }
        self.counters.isolated += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {alone} is cut off, ways {ways}"));
    }

    /// Two groups do not hear each other; perhaps one server hears both.
    fn split(&mut self) {
        let sides: Vec<bool> = (0..self.hosts.len())
            .map(|_| self.random.random_bool(0.5))
            .collect();
        let bridge = self.random.random_bool(0.5).then(|| self.any_host());
        for (from, to) in (0..sides.len()).flat_map(|a| (0..sides.len()).map(move |b| (a, b))) {
            let bridged = bridge.is_some_and(|host| host == from || host == to);
            if sides[from] != sides[to] && !bridged {
                self.network.cut(from, to);
            }
        }
        self.counters.splits += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("split: {sides:?}, bridge {bridge:?}"));
    }

    fn hand_over(&mut self) {
        let id = self.number();
        let chosen = self.random.random_bool(0.5);
        let (Some(host), Some(target)) = (self.any_running(), self.any_running()) else {
            return;
        };
        let to = self.hosts[target].member.filter(|_| chosen);
        self.ask(host, Input::Transfer { id, to });
    }

    /// Forgets old revisions; the fate of the request is of no interest.
    fn compact(&mut self) {
        let Some(host) = self.any_running() else {
            return;
        };
        let revision = self.history.revision() - self.random.random_range(1..40);
        self.propose(host, Operation::Compact(Compact { revision }));
    }

    fn any_host(&mut self) -> HostId {
        self.random.random_range(0..self.hosts.len())
    }
}
