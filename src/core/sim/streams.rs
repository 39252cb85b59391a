//! Checkpoints on their way from a leader to a member that lags behind.

use bytes::Bytes;
use rand::RngExt as _;

use crate::disk::Position;
use crate::node::Input;
use crate::raft::{Index, MemberId, Term};

use super::clock::{MILLISECOND, SECOND};
use super::network::HostId;
use super::world::{Event, Step, World};

/// A checkpoint that arrives late, whole.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) to: (HostId, u64),
    sender: HostId,
    term: Term,
    position: Position,
    meta: Bytes,
    chunks: Vec<Bytes>,
}

impl World {
    pub(super) fn stream(&mut self, host: HostId, to: MemberId, term: Term, index: Index) {
        let from = (host, self.hosts[host].boot);
        let after = self.random.random_range(5 * MILLISECOND..200 * MILLISECOND);
        let event = match self.home.get(&to) {
            None => Event::Sent {
                host,
                boot: from.1,
                to,
                ok: false,
            },
            Some(receiver) => {
                let to_host = (*receiver, self.hosts[*receiver].boot);
                Event::Streamed {
                    from,
                    to: to_host,
                    member: to,
                    term,
                    index,
                }
            }
        };
        self.agenda.after(after, event);
    }

    /// A stream ends well only if both ends lived through it and the link is whole.
    pub(super) fn streamed(
        &mut self,
        from: (HostId, u64),
        to: (HostId, u64),
        member: MemberId,
        term: Term,
        index: Index,
    ) -> Step {
        if !self.runs(from.0, from.1) {
            return Ok(());
        }
        let whole = self.runs(to.0, to.1)
            && self.network.passes(from.0, to.0)
            && self.network.passes(to.0, from.0);
        let after = self.random.random_range(50..5 * MILLISECOND);
        let sent = |ok| Event::Sent {
            host: from.0,
            boot: from.1,
            to: member,
            ok,
        };
        if !whole {
            self.agenda.after(after, sent(false));
            return Ok(());
        }
        let read = self.hosts[from.0]
            .process
            .as_ref()
            .map(|p| p.read_checkpoint(index));
        let Some(Ok((position, meta, chunks))) = read else {
            // It may name a value that is damaged, and has to be written again.
            self.heal(from.0);
            self.agenda.after(after, sent(false));
            return Ok(());
        };
        if self.stormy && self.random.random_bool(0.15) {
            // The sender gives up, and it all arrives nevertheless, when much may have changed.
            self.agenda.after(after, sent(false));
            let late = self.random.random_range(0..3 * SECOND);
            let arrival = Box::new(Arrival {
                to,
                sender: from.0,
                term,
                position,
                meta,
                chunks,
            });
            self.agenda.after(late, Event::StreamedLate(arrival));
            return Ok(());
        }
        self.receive(to.0, from.0, term, position, &meta, &chunks)?;
        self.agenda.after(after, sent(true));
        Ok(())
    }

    /// A checkpoint arrives whose sender had given it up.
    pub(super) fn streamed_late(&mut self, arrival: &Arrival) -> Step {
        let Arrival {
            to,
            sender,
            term,
            position,
            meta,
            chunks,
        } = arrival;
        if !self.runs(to.0, to.1) {
            return Ok(());
        }
        self.receive(to.0, *sender, *term, *position, meta, chunks)
    }

    fn receive(
        &mut self,
        host: HostId,
        sender: HostId,
        term: Term,
        position: Position,
        meta: &[u8],
        chunks: &[Bytes],
    ) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let received = process.receive_checkpoint(position, meta, chunks);
        let received = self.unless_disk_failed(host, "receiving a checkpoint", received)?;
        let Some((checkpoint, meta)) = received else {
            return Ok(());
        };
        let from = self.hosts[sender].member.unwrap_or_default();
        let input = Input::SnapshotReceived {
            from,
            term,
            checkpoint,
            meta,
        };
        self.feed(host, input)
    }
}
