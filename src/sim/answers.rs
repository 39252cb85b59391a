//! What clients get back: a write once it is applied, a read once it may be served; and what the
//! oracles learn from it.

use crate::node::{Applied, Outcome};

use super::client::{Client, Kind, Operation, effective_revision};
use super::network::HostId;
use super::oracles::{Read, Write};
use super::world::{Step, World, broken};

impl World {
    /// Whoever waits for this entry has its answer.
    pub(super) fn answer_write(&mut self, applied: &Applied) -> Step {
        let Some(request) = applied.request else {
            return Ok(());
        };
        let asks = |client: &Client| {
            matches!(&client.under_way, Some(operation)
                if matches!(operation.kind, Kind::Write { request: r, .. } if r == request))
        };
        let Some(client) = self.clients.iter_mut().find(|client| asks(client)) else {
            return Ok(()); // nobody, or nobody any more
        };
        let Some(Operation {
            kind: Kind::Write { key, value, .. },
            seen,
            ..
        }) = client.under_way.take()
        else {
            return Ok(());
        };
        let Outcome::Store(Ok(response)) = &applied.outcome else {
            self.counters.refused += 1;
            return Ok(());
        };
        self.counters.acknowledged += 1;
        match effective_revision(response) {
            None => Ok(()),
            Some(revision) => self.linear.wrote(&Write {
                key,
                value,
                revision,
                began: seen,
            }),
        }
    }

    pub(super) fn answer_reads(&mut self, host: HostId, ids: &[u64]) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        for client in &mut self.clients {
            let Some(operation) = &client.under_way else {
                continue;
            };
            let Kind::Read { id, key } = &operation.kind else {
                continue;
            };
            if operation.host != host || !ids.contains(id) {
                continue;
            }
            let range = crate::store::Range {
                key: key.clone(),
                ..crate::store::Range::default()
            };
            let found = view
                .range(&range)
                .map_err(|error| broken("a read", error))?;
            let read = Read {
                key: key.clone(),
                value: found.kvs.first().map(|kv| kv.value.clone()),
                revision: found.revision,
                began: operation.seen,
            };
            client.under_way = None;
            self.counters.reads += 1;
            self.linear.read(&read)?;
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

    pub(super) fn refuse(&mut self, request: crate::node::RequestId) {
        for client in &mut self.clients {
            let refused = matches!(&client.under_way, Some(operation)
                if matches!(operation.kind, Kind::Write { request: r, .. } if r == request));
            if refused {
                client.under_way = None;
                self.counters.refused += 1;
            }
        }
    }
}
