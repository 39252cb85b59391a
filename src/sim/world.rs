//! The run loop: takes what is due, feeds it to the member it concerns, carries out what comes
//! out, and tells the oracles. Faults, churn and clients are in files of their own.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::disk::LogOptions;
use crate::disk::double::MemoryDisk;
use crate::node::{
    Applied, CheckpointInfo, CheckpointPolicy, Effect, Input, MemberConfig, Membership, Outcome,
    PeerBody, PeerMessage, Report,
};
use crate::raft::{self, Configuration, Entry, Index, LogRead, MemberId, Role, SnapshotMeta, Term};

use super::churn::Churn;
use super::client::Client;
use super::clock::{Agenda, MILLISECOND, Micros};
use super::counters::Counters;
use super::host::Host;
use super::leases::Holder;
use super::network::{HostId, Network, Weather};
use super::options::Options;
use super::oracles::{Commits, Elections, Leases, Linear, Logs, States, Violation, Watched};
use super::trace::Trace;
use super::watchers::Watching;

/// A tick of every member. The election timeout is ten of them.
pub(super) const TICK: Micros = 20 * MILLISECOND;
/// States are compared at every index that this divides, and wherever a checkpoint is taken.
const COMPARED_EVERY: Index = 64;

/// What is due at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// A member's clock ticks.
    Tick(HostId, u64),
    /// A message arrives.
    Arrival {
        from: (HostId, u64),
        to: HostId,
        message: PeerMessage,
    },
    /// The write under way ends.
    Written(HostId, u64),
    /// The next batch is applied.
    Apply(HostId, u64),
    /// The log was read.
    LogRead(HostId, u64, LogRead),
    /// The frozen checkpoint is written.
    Checkpointed(HostId, u64),
    /// A checkpoint has been streamed to its receiver.
    Streamed {
        from: (HostId, u64),
        to: (HostId, u64),
        member: MemberId,
        term: Term,
        index: Index,
    },
    /// The sender learns how a stream ended.
    Sent {
        host: HostId,
        boot: u64,
        to: MemberId,
        ok: bool,
    },
    /// A received checkpoint replaces the state.
    Install(HostId, u64, SnapshotMeta),
    /// A client acts.
    Client(usize),
    /// Watchers take seats and catch up.
    Watch,
    /// The holder of leases acts.
    Lease,
    /// Something goes wrong, or right again.
    Fault,
    /// A server comes back.
    Restart(HostId),
    /// Somebody looks after the membership.
    Churn,
}

/// The whole simulated world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) options: Options,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) agenda: Agenda<Event>,
    pub(super) network: Network,
    pub(super) hosts: Vec<Host>,
    pub(super) home: BTreeMap<MemberId, HostId>,
    pub(super) clients: Vec<Client>,
    pub(super) churn: Churn,
    pub(super) counters: Counters,
    pub(super) trace: Trace,
    pub(super) numbers: u64,
    pub(super) log_options: LogOptions,
    met: BTreeSet<(HostId, u64, HostId, u64)>,
    elections: Elections,
    logs: Logs,
    commits: Commits,
    states: States,
    pub(super) linear: Linear,
    pub(super) watched: Watched,
    pub(super) leases: Leases,
    pub(super) watching: Vec<Watching>,
    pub(super) holder: Holder,
    /// The configurations in the order in which they were applied.
    configurations: Vec<(Index, Configuration)>,
    pub(super) membership: Membership,
    pub(super) stormy: bool,
}

pub(super) type Step = Result<(), Violation>;

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Result<Self, Violation> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let weather = Weather::draw(&mut random);
        let size = random.random_range(3..=7);
        let segment_bytes = [4, 16, 64][random.random_range(0..3)] << 10;
        let mut world = Self {
            options,
            agenda: Agenda::new(),
            network: Network::new(weather),
            hosts: Vec::new(),
            home: BTreeMap::new(),
            clients: Vec::new(),
            churn: Churn::new(size),
            counters: Counters::default(),
            trace: Trace::new(options.trace),
            numbers: 0,
            log_options: LogOptions { segment_bytes },
            met: BTreeSet::new(),
            elections: Elections::default(),
            logs: Logs::default(),
            commits: Commits::found(crate::node::FOUNDING_INDEX, crate::node::FOUNDING_INDEX),
            states: States::default(),
            linear: Linear::default(),
            watched: Watched::default(),
            leases: Leases::default(),
            watching: Vec::new(),
            holder: Holder::default(),
            configurations: Vec::new(),
            membership: Membership::default(),
            stormy: true,
            random,
        };
        world.found(size)?;
        Ok(world)
    }

    /// The founding members, their clocks, the clients and the troublemakers.
    fn found(&mut self, size: usize) -> Step {
        // Some clusters know all disks from the start, others bind them once they have a leader.
        let known = self.random.random_bool(0.5);
        let mut initial = Vec::new();
        for _ in 0..size {
            let host = self.new_host();
            let disk_uuid = if known {
                self.hosts[host].disk_name()
            } else {
                String::new()
            };
            initial.push(crate::node::InitialMember {
                name: format!("host-{host}"),
                peer_urls: vec![format!("http://host-{host}:2380")],
                client_urls: Vec::new(),
                disk_uuid,
            });
        }
        let founded = Membership::bootstrap("", 0, "simulation", &initial);
        let founded = founded.map_err(|error| broken("founding", error))?;
        self.configurations
            .push((crate::node::FOUNDING_INDEX, founded.configuration()));
        self.membership = founded.clone();
        for host in 0..size {
            let urls = [format!("http://host-{host}:2380")];
            let member = crate::node::member_id(&urls, "simulation", None);
            let adopted = self.hosts[host].adopt(member, Some(&founded), self.log_options);
            adopted.map_err(|error| broken("founding", error))?;
            self.home.insert(member, host);
            self.start(host)?;
        }
        for client in 0..self.random.random_range(2..=5) {
            self.clients.push(Client::default());
            self.agenda.after(300 * MILLISECOND, Event::Client(client));
        }
        let one = super::client::any_key(&mut self.random);
        self.watching = vec![Watching::new(None), Watching::new(Some(one))];
        self.agenda.after(300 * MILLISECOND, Event::Watch);
        self.agenda.after(400 * MILLISECOND, Event::Lease);
        self.agenda.after(500 * MILLISECOND, Event::Fault);
        self.agenda.after(700 * MILLISECOND, Event::Churn);
        Ok(())
    }

    pub(super) fn new_host(&mut self) -> HostId {
        let id = self.hosts.len();
        let disk = MemoryDisk::new();
        if self.options.lying_disks {
            disk.set_faults(crate::disk::double::Faults {
                lying_syncs: true,
                ..crate::disk::double::Faults::default()
            });
        }
        let disk_uuid = self.random.random::<u128>().to_le_bytes();
        self.hosts.push(Host::new(id, disk, disk_uuid));
        id
    }

    /// Settings differ between members, and between starts of one: none of them may reach what is
    /// applied.
    fn draw_config(&mut self, member: MemberId) -> (MemberConfig, u64) {
        let random = &mut self.random;
        let mut raft = raft::Config::new(member, random.random(), random.random());
        raft.max_message_bytes = [200, 2_000, 1 << 20][random.random_range(0..3)];
        raft.max_inflight_messages = [1, 4, 256][random.random_range(0..3)];
        raft.max_inflight_bytes = raft.max_message_bytes * 4;
        raft.cache_bytes = [0, 2_000, 1 << 20][random.random_range(0..3)];
        let cache_bytes = raft.cache_bytes;
        let mut config = MemberConfig::new(raft);
        config.tick_ms = TICK / MILLISECOND;
        config.health_ms = 200;
        config.max_learners = random.random_range(1..=3);
        config.strict_reconfig = random.random_bool(0.5);
        config.checkpoints = CheckpointPolicy {
            log_bytes: [500, 5_000, 50_000][random.random_range(0..3)],
            entries: random.random_range(1..60),
            hold_bytes: [0, 2_000, 100_000][random.random_range(0..3)],
        };
        (config, cache_bytes)
    }

    /// Starts a process on a host, and checks that its disk kept what it had promised.
    pub(super) fn start(&mut self, host: HostId) -> Step {
        let Some(member) = self.hosts[host].member else {
            return Ok(());
        };
        let (mut config, cache_bytes) = self.draw_config(member);
        config.disk_uuid = self.hosts[host].disk_name();
        let started = self.hosts[host].start(config, self.log_options, cache_bytes);
        started.map_err(|error| broken(&format!("start of host {host}"), error))?;
        let boot = self.hosts[host].boot;
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        self.counters.torn_tails += u64::from(process.log.was_torn());
        self.logs.recovered(host, &process.log.shape())?;
        let index = process.machine.index();
        if index > 0 {
            self.states.stands(host, index, process.machine.hash())?;
        }
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("host {host} starts, boot {boot}, at index {index}"),
        );
        let jitter = self.random.random_range(0..TICK);
        self.agenda.after(jitter, Event::Tick(host, boot));
        Ok(())
    }

    /// Compares the states of all running members where they stand.
    pub(super) fn compare_states(&mut self) -> Step {
        for host in &self.hosts {
            if let Some(process) = host.process.as_ref().filter(|_| !host.retired) {
                let index = process.machine.index();
                self.states.stands(host.id, index, process.machine.hash())?;
            }
        }
        Ok(())
    }

    /// Takes what is due next. `false` once nothing is due any more.
    pub(super) fn step(&mut self) -> Result<bool, Violation> {
        let Some(event) = self.agenda.take() else {
            return Ok(false);
        };
        match event {
            Event::Tick(host, boot) if self.runs(host, boot) => {
                self.agenda.after(TICK, Event::Tick(host, boot));
                self.connect(host)?;
                self.feed(host, Input::Tick)?;
            }
            Event::Arrival { from, to, message } => self.arrive(from, to, message)?,
            Event::Written(host, boot) if self.runs(host, boot) => self.written(host)?,
            Event::Apply(host, boot) if self.runs(host, boot) => self.apply(host)?,
            Event::LogRead(host, boot, read) if self.runs(host, boot) => {
                let entries = self.hosts[host].process.as_ref().map(|p| p.read_log(read));
                if let Some(entries) = entries {
                    let ticket = read.ticket;
                    self.feed(host, Input::LogRead { ticket, entries })?;
                }
            }
            Event::Checkpointed(host, boot) if self.runs(host, boot) => self.checkpointed(host)?,
            Event::Streamed {
                from,
                to,
                member,
                term,
                index,
            } => {
                self.streamed(from, to, member, term, index)?;
            }
            Event::Sent { host, boot, to, ok } if self.runs(host, boot) => {
                self.feed(host, Input::SnapshotSent { to, ok })?;
            }
            Event::Install(host, boot, meta) if self.runs(host, boot) => {
                self.install(host, &meta)?
            }
            Event::Client(client) => self.client_acts(client)?,
            Event::Watch => self.watchers_act()?,
            Event::Lease => self.holder_acts()?,
            Event::Fault if self.stormy => self.fault()?,
            Event::Restart(host) => self.restart(host)?,
            Event::Churn => self.look_after_membership()?,
            _ => {}
        }
        Ok(true)
    }

    pub(super) fn runs(&self, host: HostId, boot: u64) -> bool {
        self.hosts[host].boot == boot && self.hosts[host].process.is_some()
    }

    /// Gives a member an input and carries out what it answers.
    pub(super) fn feed(&mut self, host: HostId, input: Input) -> Step {
        let now_ms = self.agenda.now() / MILLISECOND;
        let mut effects = Vec::new();
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        process.member.handle(now_ms, input, &mut effects);
        for effect in effects {
            if self.hosts[host].process.is_none() {
                break; // its disk failed meanwhile
            }
            self.carry_out(host, effect)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, host: HostId, effect: Effect) -> Step {
        let boot = self.hosts[host].boot;
        let now = self.agenda.now();
        match effect {
            Effect::Write(batch) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.writing = Some(batch);
                }
                let after = self.random.random_range(50..5 * MILLISECOND);
                self.agenda.after(after, Event::Written(host, boot));
            }
            Effect::Send { to, message } => self.send(host, to, message),
            Effect::Apply(entries) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.applying.push_back(entries);
                }
                let after = self.random.random_range(10..2 * MILLISECOND);
                self.agenda.after(after, Event::Apply(host, boot));
            }
            Effect::InstallCheckpoint(meta) => {
                let after = self.random.random_range(100..10 * MILLISECOND);
                self.agenda.after(after, Event::Install(host, boot, meta));
            }
            Effect::ReadLog(read) => {
                let after = self.random.random_range(50..5 * MILLISECOND);
                self.agenda.after(after, Event::LogRead(host, boot, read));
            }
            Effect::SendCheckpoint { to, term, index } => self.stream(host, to, term, index),
            Effect::TakeCheckpoint => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.checkpointing = Some(process.machine.checkpoint());
                }
                let after = self.random.random_range(MILLISECOND..50 * MILLISECOND);
                self.agenda.after(after, Event::Checkpointed(host, boot));
            }
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
                self.refuse(request);
            }
            Effect::TransferEnded { result, .. } => {
                self.counters.transfers += u64::from(result.is_ok());
            }
            Effect::Role(change) => {
                self.trace.note(
                    now,
                    format_args!("host {host} is {:?} in term {}", change.role, change.term),
                );
                if change.role == Role::Leader {
                    self.counters.leader_changes += 1;
                    let member = self.hosts[host].member.unwrap_or_default();
                    self.elections.leads(change.term, member)?;
                    self.commits.leader(host, change.term, &self.logs)?;
                }
            }
            Effect::Removed { settled } => {
                self.trace.note(
                    now,
                    format_args!("host {host} was removed, settled: {settled}"),
                );
                self.hosts[host].retired = true;
                if let Some(process) = &mut self.hosts[host].process {
                    // Who asked is the churn, which looks at the membership alone.
                    process.machine.part();
                }
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
            Effect::Stop(reason) => {
                return Err(broken(&format!("host {host} stopped"), reason));
            }
        }
        Ok(())
    }

    fn send(&mut self, from: HostId, to: MemberId, message: PeerMessage) {
        let Some(receiver) = self.home.get(&to).copied() else {
            return;
        };
        let fate = self.network.send(from, receiver, &mut self.random);
        let boot = self.hosts[from].boot;
        // Links deliver at most once; only the core's own messages must bear being doubled.
        let once = !matches!(message.body, Some(PeerBody::Raft(_)));
        match fate.arrivals.len() {
            0 => self.counters.dropped += 1,
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

    /// Links to whoever runs and can be reached: a hello in both directions tells the disks.
    fn connect(&mut self, host: HostId) -> Step {
        for other in 0..self.hosts.len() {
            let boots = (self.hosts[host].boot, self.hosts[other].boot);
            let reachable = self.hosts[other].process.is_some()
                && self.network.passes(host, other)
                && self.network.passes(other, host);
            if other == host || !reachable || self.met.contains(&(host, boots.0, other, boots.1)) {
                continue;
            }
            for (speaker, listener, link) in [
                (host, other, (host, boots.0, other, boots.1)),
                (other, host, (other, boots.1, host, boots.0)),
            ] {
                self.met.insert(link);
                let id = self.hosts[speaker].member.unwrap_or_default();
                let disk_uuid = self.hosts[speaker].disk_name();
                self.feed(listener, Input::PeerDisk { id, disk_uuid })?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, from: (HostId, u64), to: HostId, message: PeerMessage) -> Step {
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
        let name = message.name();
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("{} -> {to}: {name}", from.0));
        self.feed(
            to,
            Input::Peer {
                from: sender,
                message,
            },
        )
    }

    fn written(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let written = process.write();
        let Some(Some(batch)) = self.unless_disk_failed(host, "writing the log", written)? else {
            return Ok(());
        };
        self.logs.wrote(host, &batch.entries)?;
        self.feed(host, Input::Persisted(batch.number))
    }

    fn apply(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let Some(entries) = process.applying.pop_front() else {
            return Ok(());
        };
        for entry in &entries {
            self.apply_one(host, entry)?;
        }
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let report: Report = process.machine.take_report();
        self.show(host)?;
        self.feed(host, Input::Applied(report))
    }

    fn apply_one(&mut self, host: HostId, entry: &Entry) -> Step {
        let home = &self.home;
        let in_force: Vec<&Configuration> = self
            .configurations
            .iter()
            .rev()
            .filter(|(index, _)| *index < entry.index)
            .map(|(_, configuration)| configuration)
            .take(2)
            .collect();
        let host_of = |member| home.get(&member).copied();
        let first = entry.index > self.commits.last();
        self.commits
            .applied(host, entry, &self.logs, &in_force, host_of)?;
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let applied = process
            .machine
            .apply(entry)
            .map_err(|error| broken("apply", error))?;
        if entry.index.is_multiple_of(COMPARED_EVERY) {
            self.states
                .stands(host, entry.index, process.machine.hash())?;
        }
        if first {
            self.learn(host, entry, &applied)?;
        }
        self.answer_write(&applied)
    }

    /// The first application of an entry tells what the order of all writes is.
    fn learn(&mut self, host: HostId, entry: &Entry, applied: &Applied) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        let (from, to) = (self.linear.applied() + 1, view.revision());
        if from <= to {
            let events = view.events(from, to, b"\0", b"\0", false);
            for event in events.map_err(|error| broken("reading the history", error))? {
                let deleted = event.kind == crate::store::EventKind::Delete;
                let value = (!deleted).then(|| event.kv.value.clone());
                let (revision, key) = (event.kv.mod_revision, event.kv.key);
                self.watched.changed(revision, key.clone(), value.clone());
                self.linear.changed(revision, key, value);
            }
        }
        self.learn_leases(applied)?;
        if let Outcome::Membership(Ok(membership)) = &applied.outcome {
            let before = self
                .configurations
                .last()
                .map(|(_, configuration)| configuration.clone());
            let now = membership.configuration();
            if before.as_ref() != Some(&now) {
                self.counters.configuration_changes += 1;
                let promoted = before.is_some_and(|before| {
                    now.voters
                        .iter()
                        .any(|voter| before.learners.contains(voter))
                });
                self.counters.promotions += u64::from(promoted);
                self.configurations.push((entry.index, now));
            }
            self.membership = Membership::clone(membership);
        }
        Ok(())
    }

    fn checkpointed(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let written = process.write_checkpoint();
        let info: Option<CheckpointInfo> =
            match self.unless_disk_failed(host, "checkpoint", written)? {
                Some(info) => info,
                None => return Ok(()),
            };
        self.counters.checkpoints += 1;
        self.feed(host, Input::CheckpointDone(info))
    }

    fn install(&mut self, host: HostId, meta: &SnapshotMeta) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let installed = process.install(meta);
        let installed = self.unless_disk_failed(host, "installing a checkpoint", installed)?;
        let (Some(()), Some(process)) = (installed, &mut self.hosts[host].process) else {
            return Ok(());
        };
        self.logs.reset(host, (meta.index, meta.term));
        self.states
            .stands(host, meta.index, process.machine.hash())?;
        let report = process.machine.take_report();
        self.counters.installs += 1;
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("host {host} installs the checkpoint at {}", meta.index),
        );
        self.show(host)?;
        self.feed(host, Input::Installed(report))
    }
}

/// Something that must not happen in a run whose disks are sound.
pub(super) fn broken(what: &str, error: impl std::fmt::Display) -> Violation {
    Violation::new("nothing fails by itself", format!("{what}: {error}"))
}
