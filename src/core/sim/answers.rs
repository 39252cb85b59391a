//! What clients get back: a write once the server that they asked has applied it, a read once it
//! may be served; and what the oracles learn from it.

use crate::node::{Applied, Outcome, RequestId};
use crate::store;

use super::client::{Client, Kind, Operation, is_write};
use super::network::HostId;
use super::world::{Step, World, broken};

impl World {
    /// Whoever waits for this entry at this server has its answer.
    pub(super) fn answer_write(&mut self, host: HostId, applied: &Applied) -> Step {
        let Some(request) = applied.request else {
            return Ok(());
        };
        let Some(operation) = self.take_write(Some(host), request) else {
            return Ok(()); // no caller, or none any more
        };
        let Kind::Write { wish, .. } = &operation.kind else {
            return Ok(());
        };
        match &applied.outcome {
            Outcome::Store(Ok(response)) if is_write(response) => {
                self.counters.acknowledged += 1;
                self.linear
                    .wrote(&self.history, wish, response, operation.began)
            }
            Outcome::Store(Err(error)) => {
                match error {
                    store::Error::Auth(_) => self.counters.denied += 1,
                    store::Error::NoSpace => self.counters.no_space += 1,
                    _ => self.counters.refused += 1,
                }
                self.linear.refused(wish)
            }
            outcome => Err(broken("a write", format!("it was answered {outcome:?}"))),
        }
    }

    fn take_write(&mut self, host: Option<HostId>, request: RequestId) -> Option<Operation> {
        let asks = |client: &&mut Client| {
            client.under_way.as_ref().is_some_and(|operation| {
                matches!(operation.kind, Kind::Write { request: r, .. } if r == request)
                    && host.is_none_or(|host| operation.host == host)
            })
        };
        let client = self.clients.iter_mut().find(asks)?;
        client.under_way.take()
    }

    pub(super) fn answer_reads(&mut self, host: HostId, ids: &[u64]) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        for at in 0..self.clients.len() {
            let Some(operation) = &self.clients[at].under_way else {
                continue;
            };
            let Kind::Read { id, range } = &operation.kind else {
                continue;
            };
            if operation.host != host || !ids.contains(id) {
                continue;
            }
            let (range, began) = (range.clone(), operation.began);
            let found = self.read_state(host, "a read", |_| view.range(&range));
            let Some(found) = found? else {
                return Ok(());
            };
            self.counters.reads += 1;
            self.linear
                .read(&self.history, &range, &found, Some(began))?;
            self.clients[at].under_way = None;
        }
        Ok(())
    }

    pub(super) fn give_up_reads(&mut self, ids: &[u64]) {
        for client in &mut self.clients {
            let gone = matches!(&client.under_way, Some(operation)
                if matches!(&operation.kind, Kind::Read { id, .. } if ids.contains(id)));
            if gone {
                client.under_way = None;
            }
        }
    }

    /// A proposal was not appended and never will be.
    pub(super) fn refuse(&mut self, request: RequestId) -> Step {
        let wish = match self
            .take_write(None, request)
            .map(|operation| operation.kind)
        {
            Some(Kind::Write { wish, .. }) => Some(wish),
            _ => self.given_up.remove(&request),
        };
        let Some(wish) = wish else {
            return Ok(()); // no client's
        };
        self.counters.refused += 1;
        self.linear.refused(&wish)
    }
}
