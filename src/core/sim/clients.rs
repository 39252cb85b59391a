//! What clients do in the world: begin an operation at some server, give up after a while.

use rand::RngExt as _;

use crate::node::{Awaited, Input, LogPayload, Proposal, RequestId};
use crate::store::{self, Actor, Command, Range};

use super::client::{Kind, Operation, any_range};
use super::clock::{MILLISECOND, SECOND};
use super::network::HostId;
use super::oracles::Violation;
use super::world::{Event, Step, World};

impl World {
    /// A client's turn: give up what took too long, or begin something.
    pub(super) fn client_acts(&mut self, number: usize) -> Step {
        let now = self.agenda.now();
        let pause = self.random.random_range(5 * MILLISECOND..60 * MILLISECOND);
        self.agenda.after(pause, Event::Client(number));
        if let Some(operation) = &self.clients[number].under_way {
            let gone = !self.runs(operation.host, operation.boot);
            if now >= operation.deadline || gone {
                self.give_up(number);
            }
            return Ok(());
        }
        match self.any_running() {
            Some(host) => self.begin(number, host),
            None => Ok(()),
        }
    }

    /// The client gave up waiting: whether the write happened stays unknown.
    fn give_up(&mut self, number: usize) {
        let Some(operation) = self.clients[number].under_way.take() else {
            return;
        };
        let awaited = match operation.kind {
            Kind::Write { request, wish } => {
                self.counters.unknown += 1;
                self.given_up.insert(request, wish);
                Awaited::Request(request)
            }
            Kind::Read { id, .. } => Awaited::Read(id),
        };
        if self.runs(operation.host, operation.boot) {
            self.ask(operation.host, Input::Cancel(vec![awaited]));
        }
    }

    fn begin(&mut self, number: usize, host: HostId) -> Step {
        let id = self.number();
        let (kind, input) = match self.random.random_range(0..20) {
            0..=10 => match self.write(number, host, id)? {
                Some(begun) => begun,
                None => return Ok(()),
            },
            11..=13 => return self.read_at_once(host),
            _ => {
                let range = any_range(&mut self.random);
                (Kind::Read { id, range }, Input::Read(vec![id]))
            }
        };
        self.clients[number].under_way = Some(Operation {
            host,
            boot: self.hosts[host].boot,
            kind,
            began: self.history.revision(),
            deadline: self.agenda.now() + self.random.random_range(SECOND..4 * SECOND),
        });
        self.ask(host, input);
        Ok(())
    }

    /// A write for somebody, as the server lets it pass: form, limits and quota are checked there
    /// before anything is proposed.
    fn write(
        &mut self,
        number: usize,
        host: HostId,
        id: u64,
    ) -> Result<Option<(Kind, Input)>, Violation> {
        let request = self.request(host, id);
        let wish = self.clients[number].next_write(number, &mut self.random);
        let mut command = Command::from(wish.clone());
        let Some(process) = &self.hosts[host].process else {
            return Ok(None);
        };
        let overview = process.machine.overview();
        if let Err(error) = store::check(&command, &self.hosts[host].limits, &overview) {
            self.counters.refused += 1;
            self.linear.refused(&wish)?;
            if error == store::Error::NoSpace {
                self.raise_no_space(host);
            }
            return Ok(None);
        }
        command.actor = self.somebody(host);
        let data = LogPayload::command(Some(request), command);
        let input = Input::Propose(vec![Proposal { request, data }]);
        Ok(Some((Kind::Write { request, wish }, input)))
    }

    /// A serializable read: of whatever a member has, now or at an earlier revision.
    fn read_at_once(&mut self, host: HostId) -> Step {
        let earlier = self.random.random_range(0..60);
        let range = any_range(&mut self.random);
        let paused = self.is_paused(host);
        let Some(process) = self.hosts[host].process.as_ref().filter(|_| !paused) else {
            return Ok(());
        };
        let view = process.machine.view();
        let range = Range {
            revision: match earlier {
                0..30 => 0,
                back => (view.revision() - (back - 30)).max(0),
            },
            ..range
        };
        match self.read_healed(host, |_| view.range(&range)) {
            None => Ok(()),
            Some(Ok(response)) => {
                self.counters.old_reads += 1;
                self.linear.read(&self.history, &range, &response, None)
            }
            Some(Err(store::Error::Compacted { compacted })) if range.revision < compacted => {
                Ok(())
            }
            Some(Err(error)) => {
                let read = Err::<(), _>(error);
                self.unless_damaged(host, "a read at a revision", read)
                    .map(drop)
            }
        }
    }

    /// Whoever may ask for something, as far as a server knows: root mostly, where somebody is
    /// needed.
    fn somebody(&mut self, host: HostId) -> Option<Actor> {
        let who = self.random.random_range(0..20);
        let user = match who {
            0 => return None,
            1..=5 => format!("user {}", self.random.random_range(0..3)),
            _ => store::ROOT_USER.to_owned(),
        };
        self.actor(host, user)
    }

    /// A user as a server knows it; none where authentication is off.
    pub(super) fn actor(&self, host: HostId, user: String) -> Option<Actor> {
        let process = self.hosts[host].process.as_ref()?;
        let view = process.machine.view();
        let auth = view.auth();
        auth.is_enabled().then(|| Actor {
            user,
            revision: auth.revision(),
        })
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

    /// Proposes something at a server in the name of root, if anybody must be named. What became
    /// of it is seen when it is applied.
    pub(super) fn propose(&mut self, host: HostId, operation: store::Operation) {
        let number = self.number();
        let request = self.request(host, number);
        let mut command = Command::from(operation);
        command.actor = self.actor(host, store::ROOT_USER.to_owned());
        let data = LogPayload::command(Some(request), command);
        self.ask(host, Input::Propose(vec![Proposal { request, data }]));
        self.lose_patience(host, request);
    }

    /// After a while a client gives up waiting for a server, if it still runs.
    pub(super) fn lose_patience(&mut self, host: HostId, request: RequestId) {
        let boot = self.hosts[host].boot;
        let after = self.random.random_range(SECOND..4 * SECOND);
        let cancel = Input::Cancel(vec![Awaited::Request(request)]);
        self.agenda
            .after(after, Event::Ask(host, boot, Box::new(cancel)));
    }

    /// Something reaches a server from outside, after a moment.
    pub(super) fn ask(&mut self, host: HostId, input: Input) {
        let boot = self.hosts[host].boot;
        let after = self.random.random_range(0..MILLISECOND);
        self.agenda
            .after(after, Event::Ask(host, boot, Box::new(input)));
    }

    /// A server whose process runs, or is paused, and whose member was not removed.
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
