//! What clients do in the world: begin an operation at some server, give up after a while.

use rand::RngExt as _;

use crate::node::{Input, LogPayload, Proposal, RequestId};

use super::client::{Kind, Operation, any_key};
use super::clock::{MILLISECOND, SECOND};
use super::network::HostId;
use super::world::{Event, Step, World};

impl World {
    /// A client's turn: give up what took too long, or begin something.
    pub(super) fn client_acts(&mut self, number: usize) -> Step {
        let now = self.agenda.now();
        let pause = self.random.random_range(5 * MILLISECOND..60 * MILLISECOND);
        self.agenda.after(pause, Event::Client(number));
        let overdue = match &self.clients[number].under_way {
            Some(operation) => {
                let gone = !self.runs(operation.host, operation.boot);
                if now < operation.deadline && !gone {
                    return Ok(());
                }
                true
            }
            None => false,
        };
        if overdue {
            return self.give_up(number);
        }
        match self.any_running() {
            Some(host) => self.begin(number, host),
            None => Ok(()),
        }
    }

    /// Nobody waits any more: a write's fate stays unknown.
    fn give_up(&mut self, number: usize) -> Step {
        let Some(operation) = self.clients[number].under_way.take() else {
            return Ok(());
        };
        let (requests, reads) = match operation.kind {
            Kind::Write { request, .. } => {
                self.counters.unknown += 1;
                (vec![request], Vec::new())
            }
            Kind::Read { id, .. } => (Vec::new(), vec![id]),
        };
        if !self.runs(operation.host, operation.boot) {
            return Ok(());
        }
        let leases = Vec::new();
        self.feed(
            operation.host,
            Input::Cancel {
                requests,
                reads,
                leases,
            },
        )
    }

    fn begin(&mut self, number: usize, host: HostId) -> Step {
        let seen = self.linear.began();
        let deadline = self.agenda.now() + self.random.random_range(SECOND..4 * SECOND);
        let boot = self.hosts[host].boot;
        let write = self.random.random_bool(0.6);
        let id = self.number();
        let (kind, input) = if write {
            let request = self.request(host, id);
            let (key, value, command) = self.clients[number].next_write(number, &mut self.random);
            let data = LogPayload::command(Some(request), command);
            let kind = Kind::Write {
                request,
                key,
                value,
            };
            (kind, Input::Propose(vec![Proposal { request, data }]))
        } else {
            let key = any_key(&mut self.random);
            (Kind::Read { id, key }, Input::Read(vec![id]))
        };
        self.clients[number].under_way = Some(Operation {
            host,
            boot,
            kind,
            seen,
            deadline,
        });
        self.feed(host, input)
    }

    /// A number that was never used before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn request(&self, host: HostId, counter: u64) -> RequestId {
        let nonce = self.hosts[host]
            .process
            .as_ref()
            .map(|process| process.boot_nonce);
        RequestId {
            member: self.hosts[host].member.unwrap_or_default(),
            boot_nonce: nonce.unwrap_or_default(),
            counter,
        }
    }

    /// A server whose process runs and whose member was not removed.
    pub(super) fn any_running(&mut self) -> Option<HostId> {
        let running = self
            .hosts
            .iter()
            .filter(|host| host.process.is_some() && !host.retired);
        let running: Vec<HostId> = running.map(|host| host.id).collect();
        if running.is_empty() {
            return None;
        }
        Some(running[self.random.random_range(0..running.len())])
    }
}
