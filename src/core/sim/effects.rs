//! What comes out of members, carried out: writes, messages, batches to apply, checkpoints; and the
//! links on which members meet. The oracles of elections, votes and acknowledgements listen here.

use rand::RngExt as _;

use crate::node::{Effect, Input, PeerBody, PeerMessage, ProposalError};
use crate::raft::{Body, MemberId, Role, Term};

use super::clock::MILLISECOND;
use super::host::ApplyJob;
use super::network::HostId;
use super::world::{Event, Step, World, broken};

impl World {
    /// Gives a member an input and carries out what it answers.
    pub(super) fn feed(&mut self, host: HostId, input: Input) -> Step {
        let now_ms = self.hosts[host].clock.read(self.agenda.now());
        let mut effects = Vec::new();
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let repeated = process.member.repeated();
        process.member.handle(now_ms, input, &mut effects);
        self.counters.repeated += process.member.repeated() - repeated;
        let (index, term) = process.member.commit();
        self.commits.committed(index, term);
        for effect in effects {
            if self.hosts[host].process.is_none() {
                break; // its disk failed meanwhile
            }
            self.apply_effect(host, effect)?;
        }
        Ok(())
    }

    fn apply_effect(&mut self, host: HostId, effect: Effect) -> Step {
        let boot = self.hosts[host].boot;
        let now = self.agenda.now();
        match effect {
            Effect::Write(batch) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.writing = Some(batch);
                }
                let after = self.disk_takes(host, 5 * MILLISECOND);
                self.agenda.after(after, Event::Written(host, boot));
            }
            Effect::Send { to, message } => {
                self.check_sent(host, &message)?;
                self.send(host, to, message);
            }
            Effect::Apply(entries) => {
                self.ask_applier(host, ApplyJob::Entries(entries));
            }
            Effect::InstallCheckpoint(meta) => {
                let after = self.random.random_range(100..10 * MILLISECOND);
                self.agenda.after(after, Event::ResetLog(host, boot, meta));
            }
            Effect::ReadLog(read) => {
                let after = self.disk_takes(host, 5 * MILLISECOND);
                self.agenda.after(after, Event::LogRead(host, boot, read));
            }
            Effect::SendCheckpoint { to, term, index } => self.stream(host, to, term, index),
            Effect::TakeCheckpoint => self.ask_applier(host, ApplyJob::Checkpoint),
            Effect::DropLog { before } => {
                if let Some(process) = &mut self.hosts[host].process {
                    let dropped = process.log.drop_before(before);
                    self.unless_disk_failed(host, "dropping the log", dropped)?;
                }
            }
            Effect::ReadReady { ids, .. } => self.answer_reads(host, &ids)?,
            Effect::ReadFailed { ids, .. } => self.give_up_reads(&ids),
            Effect::ProposalFailed { request, error } => {
                self.trace.note(
                    now,
                    format_args!("host {host} refuses {}: {error}", request.counter),
                );
                let withdrawn = matches!(error, ProposalError::Withdrawn { .. });
                self.counters.withdrawn += u64::from(withdrawn);
                self.refusals.refused(request)?;
                self.refuse(request)?;
            }
            // Its client received no certain answer.
            Effect::FateUnknown { .. } => {}
            Effect::TransferEnded { result, .. } => {
                self.counters.transfers += u64::from(result.is_ok());
            }
            Effect::Role(change) => {
                self.trace.note(
                    now,
                    format_args!("host {host} is {:?} in term {}", change.role, change.term),
                );
                if change.role == Role::Leader {
                    self.leads(host, change.term)?;
                }
            }
            Effect::Removed { settled } => {
                self.trace.note(
                    now,
                    format_args!("host {host} was removed, settled: {settled}"),
                );
                self.hosts[host].retired = true;
                self.ask_applier(host, ApplyJob::Part);
                if settled && self.random.random_bool(0.5) {
                    self.delete(host);
                }
            }
            Effect::Notice(text) => self.trace.note(now, format_args!("host {host}: {text}")),
            Effect::LeaseAnswer { id, answer } => {
                // Where it is refused, nothing is known of the lease.
                if let Ok(times) = answer {
                    self.renewed(id, times)?;
                }
            }
            Effect::Stop(reason) => self.found_at_a_read(host, &reason.to_string())?,
        }
        Ok(())
    }

    /// A member leads: the oracles of elections.
    fn leads(&mut self, host: HostId, term: Term) -> Step {
        self.counters.leader_changes += 1;
        let member = self.hosts[host].member.unwrap_or_default();
        self.elections.leads(term, member)?;
        self.roles.leads(member)?;
        if let Some(process) = &self.hosts[host].process {
            let configuration = process.member.status().raft.configuration;
            self.votes.leads(member, term, &configuration)?;
        }
        self.keep_in_the_dark(host);
        self.commits.leader(host, term, &self.logs)
    }

    /// What a member sends must be durable where it promises that.
    fn check_sent(&mut self, host: HostId, message: &PeerMessage) -> Step {
        let Some(PeerBody::Raft(message)) = &message.body else {
            return Ok(());
        };
        match &message.body {
            Some(Body::VoteReply(reply)) if reply.granted => {
                self.votes
                    .sends(host, message.from, message.term, message.to)
            }
            Some(Body::AppendReply(reply)) if !reply.reject => {
                self.logs.acknowledges(host, reply.index)
            }
            _ => Ok(()),
        }
    }

    fn send(&mut self, from: HostId, to: MemberId, mut message: PeerMessage) {
        message.takes_terms &= !self.hosts[from].old;
        let Some(receiver) = self.home.get(&to).copied() else {
            return;
        };
        let fate = self.network.send(from, receiver, &mut self.random);
        let boot = self.hosts[from].boot;
        // Links deliver at most once; only the core's own messages must bear being doubled.
        let once = !matches!(message.body, Some(PeerBody::Raft(_)));
        match fate.arrivals.len() {
            0 => {
                self.counters.dropped += 1;
                // Some losses are noticed: a full queue, a link that broke.
                if self.random.random_bool(0.3) {
                    if message.forwards() {
                        self.counters.unsent += 1;
                        let message = message.clone();
                        self.ask(from, Input::Unsent { to, message });
                    }
                    self.ask(from, Input::Unreachable(to));
                }
            }
            2 if !once => self.counters.duplicated += 1,
            _ => {}
        }
        for after in fate.arrivals.into_iter().take(if once { 1 } else { 2 }) {
            let message = message.clone();
            let from = (from, boot);
            self.agenda.after(
                after,
                Event::Arrival {
                    from,
                    to: receiver,
                    message,
                },
            );
        }
    }

    /// Links to whoever runs and can be reached: a hello in both directions carries the disks.
    pub(super) fn connect(&mut self, host: HostId) -> Step {
        for other in 0..self.hosts.len() {
            let boots = (self.hosts[host].boot, self.hosts[other].boot);
            let reachable = self.hosts[other].process.is_some()
                && !self.is_paused(other)
                && self.network.passes(host, other)
                && self.network.passes(other, host);
            if other == host {
                continue;
            }
            let pair = (host, boots.0, other, boots.1);
            let id = self.hosts[other].member.unwrap_or_default();
            if !reachable {
                if self.linked.remove(&pair) {
                    self.feed(host, Input::Unlinked(id))?;
                }
                continue;
            }
            let anew = self.linked.insert(pair);
            if self.met.contains(&pair) {
                if anew {
                    let disk_uuid = self.hosts[other].disk_name();
                    self.feed(host, Input::PeerDisk { id, disk_uuid })?;
                }
                continue;
            }
            for (speaker, listener, link) in [
                (host, other, (host, boots.0, other, boots.1)),
                (other, host, (other, boots.1, host, boots.0)),
            ] {
                if !self.shows_its_starts(speaker, listener)? {
                    break; // a disk failed meanwhile
                }
                self.met.insert(link);
                let id = self.hosts[speaker].member.unwrap_or_default();
                let disk_uuid = self.hosts[speaker].disk_name();
                self.feed(listener, Input::PeerDisk { id, disk_uuid })?;
            }
        }
        Ok(())
    }

    pub(super) fn arrive(
        &mut self,
        from: (HostId, u64),
        to: HostId,
        mut message: PeerMessage,
    ) -> Step {
        let boot = self.hosts[to].boot;
        if self.hosts[to].process.is_none() || !self.network.passes(from.0, to) {
            return Ok(());
        }
        let Some(sender) = self.hosts[from.0].member else {
            return Ok(());
        };
        if !self.met.contains(&(from.0, from.1, to, boot)) {
            return Ok(()); // the link to this process was never made
        }
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("{} -> {to}: {}", from.0, message.name()));
        if self.hosts[to].old {
            self.read_by_old(to, &mut message)?;
        }
        self.feed(
            to,
            Input::Peer {
                from: sender,
                message,
            },
        )
    }

    /// What a process of 0.1.0 reads of a message: neither that its sender takes terms, nor a
    /// forward that has one. That is sent to it only by who has heard a newer process of its host.
    fn read_by_old(&mut self, to: HostId, message: &mut PeerMessage) -> Step {
        message.takes_terms = false;
        if matches!(message.body, Some(PeerBody::InTerm(_))) {
            if !self.hosts[to].was_new {
                let what = format!("host {to} knows no {}", message.name());
                return Err(broken("versions", what));
            }
            self.counters.ignored += 1;
            message.body = None;
        }
        Ok(())
    }
}
