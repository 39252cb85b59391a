//! What the others notice of a process that ends: their connections to it are closed and new ones are refused, and a
//! firewall that does the same to a server that runs. What follows from that is the members' choice.

use rand::RngExt as _;

use crate::node::Input;

use super::clock::{MILLISECOND, Micros};
use super::network::HostId;
use super::world::{Event, Step, World};

/// The first pause before a new connection; each is twice as long as the one before, up to the last.
const FIRST_PAUSE: Micros = 10 * MILLISECOND;
const LAST_PAUSE: Micros = 200 * MILLISECOND;

impl World {
    /// A process ended: whoever had a connection to it and can reach its host dials again.
    pub(super) fn close_links_to(&mut self, ended: HostId) {
        let to = (ended, self.hosts[ended].boot);
        for host in 0..self.hosts.len() {
            let from = (host, self.hosts[host].boot);
            let linked = self.linked.contains(&(from.0, from.1, to.0, to.1));
            if linked && self.hosts[host].process.is_some() && self.reach_each_other(host, ended) {
                self.dial_after(FIRST_PAUSE, from, to);
            }
        }
    }

    fn dial_after(&mut self, pause: Micros, from: (HostId, u64), to: (HostId, u64)) {
        let after = self.random.random_range(pause / 2..pause);
        self.agenda.after(after, Event::Dial { from, to, pause });
    }

    /// Refused for as long as no process listens. A dial that is lost proves nothing, and ends the matter.
    pub(super) fn dial(&mut self, from: (HostId, u64), to: (HostId, u64), pause: Micros) -> Step {
        let down = self.hosts[to.0].boot == to.1 && self.hosts[to.0].process.is_none();
        let Some(id) = self.hosts[to.0].member else {
            return Ok(());
        };
        if !down || !self.runs(from.0, from.1) || !self.reach_each_other(from.0, to.0) {
            return Ok(());
        }
        self.counters.gone += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {} refuses host {}", to.0, from.0));
        self.dial_after((2 * pause).min(LAST_PAUSE), from, to);
        self.feed(from.0, Input::Gone(id))
    }

    /// A firewall resets connections to a server that runs, and refuses new ones for a moment: some of the others get
    /// reports that are false.
    pub(super) fn reset_connections(&mut self) {
        let Some(victim) = self.any_running() else {
            return;
        };
        let Some(id) = self.hosts[victim].member else {
            return;
        };
        for host in 0..self.hosts.len() {
            let reports = self.random.random_range(0..4);
            if host != victim && self.hosts[host].process.is_some() {
                for _ in 0..reports {
                    self.ask(host, Input::Gone(id));
                }
            }
        }
        self.counters.false_reports += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("connections to host {victim} are reset"));
    }

    fn reach_each_other(&self, one: HostId, other: HostId) -> bool {
        self.network.passes(one, other) && self.network.passes(other, one)
    }
}
