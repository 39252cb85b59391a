//! The world of a run, and its loop: takes what is due and delivers it. What
//! comes out of members, faults, churn and clients are in files of their own.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::disk::LogOptions;
use crate::disk::double::MemoryDisk;
use crate::node::{CheckpointPolicy, Input, MemberConfig, Membership, PeerMessage, RequestId};
use crate::raft::{self, Configuration, Index, LogRead, MemberId, SnapshotMeta, Term};
use crate::store::{DamagedValue, Limits, Operation, Range};

use super::churn::Churn;
use super::client::Client;
use super::clock::{Agenda, LocalClock, MILLISECOND, Micros, TRUE_RATE};
use super::counters::Counters;
use super::host::Host;
use super::leases::Holder;
use super::network::{HostId, Network, NetworkFaults};
use super::options::Options;
use super::oracles::{
    Commits, Elections, History, Leases, Linear, Logs, Refusals, Rights, Roles, States, Violation,
    Votes,
};
use super::streams::Arrival;
use super::trace::Trace;
use super::watchers::{Watching, wishes};

/// A tick of every member. The election timeout is ten of them.
pub(super) const TICK: Micros = 20 * MILLISECOND;
/// Seconds in a million that a clock may be off, in a run with skewed clocks.
const SKEW: u64 = 50_000;

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
    /// A checkpoint arrives after its sender gave it up.
    StreamedLate(Box<Arrival>),
    /// The sender learns how a stream ended.
    Sent {
        host: HostId,
        boot: u64,
        to: MemberId,
        ok: bool,
    },
    /// A received checkpoint replaces the state.
    ResetLog(HostId, u64, SnapshotMeta),
    /// A process dials another one whose connection was closed.
    Dial {
        from: (HostId, u64),
        to: (HostId, u64),
        pause: Micros,
    },
    /// Something from outside reaches a server.
    Ask(HostId, u64, Box<Input>),
    /// A client acts.
    Client(usize),
    /// Watchers take seats and catch up.
    Watch,
    /// The holder of leases acts.
    Lease,
    /// Users and alarms are looked after.
    Warden,
    /// Something goes wrong, or right again.
    Fault,
    /// A process is killed.
    Kill(HostId, u64),
    /// A server comes back.
    Restart(HostId),
    /// Somebody looks after the membership.
    Churn,
}

impl Event {
    /// The server whose process has to run for this to happen.
    fn needs(&self) -> Option<HostId> {
        match self {
            Self::Tick(host, _)
            | Self::Written(host, _)
            | Self::Apply(host, _)
            | Self::LogRead(host, _, _)
            | Self::Checkpointed(host, _)
            | Self::ResetLog(host, _, _)
            | Self::Ask(host, _, _)
            | Self::Arrival { to: host, .. }
            | Self::Sent { host, .. }
            | Self::Dial {
                from: (host, _), ..
            }
            | Self::Streamed { to: (host, _), .. } => Some(*host),
            Self::StreamedLate(arrival) => Some(arrival.to.0),
            Self::Client(_)
            | Self::Watch
            | Self::Lease
            | Self::Warden
            | Self::Fault
            | Self::Kill(_, _)
            | Self::Restart(_)
            | Self::Churn => None,
        }
    }
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
    /// Which processes count on a connection to which others, in the form of `met`.
    pub(super) linked: BTreeSet<(HostId, u64, HostId, u64)>,
    /// Which processes have met: speaker, its boot, listener, its boot.
    pub(super) met: BTreeSet<(HostId, u64, HostId, u64)>,
    pub(super) elections: Elections,
    pub(super) votes: Votes,
    pub(super) logs: Logs,
    pub(super) commits: Commits,
    pub(super) roles: Roles,
    pub(super) states: States,
    pub(super) history: History,
    pub(super) linear: Linear,
    pub(super) refusals: Refusals,
    pub(super) rights: Rights,
    /// Writes that their clients gave up.
    pub(super) given_up: BTreeMap<RequestId, Operation>,
    /// Seconds in a million that a clock may be off.
    skew: u64,
    /// Logical bytes from which writes are refused; 0 for no bound.
    quota: u64,
    pub(super) leases: Leases,
    pub(super) watching: Vec<Watching>,
    pub(super) holder: Holder,
    /// The configurations in the order in which they were applied.
    pub(super) configurations: Vec<(Index, Configuration)>,
    pub(super) membership: Membership,
    pub(super) stormy: bool,
    /// Servers are upgraded from version 0.1.0, and taken back to it: any start may be of either.
    upgrading: bool,
}

pub(super) type Step = Result<(), Violation>;

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Result<Self, Violation> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let network_faults = NetworkFaults::draw(&mut random);
        let size = random.random_range(3..=7);
        let segment_bytes = [4, 16, 64][random.random_range(0..3)] << 10;
        let skew = [0, 0, SKEW][random.random_range(0..3)];
        let quota = [0, 0, 150_000][random.random_range(0..3)];
        let mut world = Self {
            options,
            agenda: Agenda::new(),
            network: Network::new(network_faults),
            hosts: Vec::new(),
            home: BTreeMap::new(),
            clients: Vec::new(),
            churn: Churn::new(size),
            counters: Counters::default(),
            trace: Trace::new(options.trace),
            numbers: 0,
            log_options: LogOptions { segment_bytes },
            linked: BTreeSet::new(),
            met: BTreeSet::new(),
            elections: Elections::default(),
            votes: Votes::default(),
            logs: Logs::default(),
            roles: Roles::default(),
            commits: Commits::found(crate::node::FOUNDING_INDEX, crate::node::FOUNDING_INDEX),
            states: States::default(),
            history: History::default(),
            linear: Linear::default(),
            refusals: Refusals::default(),
            rights: Rights::default(),
            given_up: BTreeMap::new(),
            skew,
            quota,
            leases: Leases::new(TRUE_RATE + skew),
            watching: Vec::new(),
            holder: Holder::default(),
            configurations: Vec::new(),
            membership: Membership::default(),
            stormy: true,
            upgrading: seed % 4 == 3,
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
        self.roles.configured(&founded.configuration());
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
        for client in 0..self.random.random_range(4..=8) {
            self.clients.push(Client::default());
            self.agenda.after(300 * MILLISECOND, Event::Client(client));
        }
        let wishes = wishes(&mut self.random);
        self.watching = wishes.into_iter().map(Watching::new).collect();
        self.agenda.after(300 * MILLISECOND, Event::Watch);
        self.agenda.after(400 * MILLISECOND, Event::Lease);
        self.agenda.after(450 * MILLISECOND, Event::Warden);
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
        let clock = LocalClock::draw(&mut self.random, self.skew);
        let limits = Limits {
            max_txn_ops: [2, 3, 128][self.random.random_range(0..3)],
            quota_bytes: self.quota,
        };
        self.hosts
            .push(Host::new(id, disk, disk_uuid, clock, limits));
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
        raft.matched_cache_bytes = cache_bytes / 500;
        let mut config = MemberConfig::new(raft);
        config.tick_ms = TICK / MILLISECOND;
        config.health_ms = 200;
        config.max_learners = random.random_range(1..=3);
        config.strict_reconfig = random.random_bool(0.5);
        let log_bytes = [500, 5_000, 50_000][random.random_range(0..3)];
        let entries = random.random_range(1..60);
        config.elects_when_complete = entries % 4 < 2;
        config.checkpoints = CheckpointPolicy {
            log_bytes,
            entries,
            most_log_bytes: 8 * log_bytes,
            old_ms: [5_000, u64::MAX][usize::from(entries % 3 > 0)],
            old_log_bytes: 200,
            behind_bytes: [log_bytes, u64::MAX][(entries % 2) as usize],
            hold_bytes: [0, 2_000, 100_000][random.random_range(0..3)],
        };
        config.lease_note_ms = [0, 400][random.random_range(0..2)];
        config.max_waiting_bytes = [6_000, 64 << 20][random.random_range(0..2)];
        config.max_waiting_reads = [3, 100_000][random.random_range(0..2)];
        config.max_apply_gap = [20, 5_000][random.random_range(0..2)];
        (config, cache_bytes)
    }

    /// Each start is of either version, of 0.1.0 only where that can read the disk.
    fn draw_version(&mut self, host: HostId) {
        let drawn = self.random.random_bool(0.5);
        let server = &mut self.hosts[host];
        let (before, old) = (server.old, drawn && server.is_readable_by_old());
        server.old = old;
        server.was_new |= !old;
        let again = server.boot > 0;
        self.counters.upgrades += u64::from(again && before && !old);
        self.counters.ways_back += u64::from(again && !before && old);
    }

    /// Starts a process on a host, and checks that its disk kept what it had promised.
    pub(super) fn start(&mut self, host: HostId) -> Step {
        let Some(member) = self.hosts[host].member else {
            return Ok(());
        };
        let (mut config, cache_bytes) = self.draw_config(member);
        config.disk_uuid = self.hosts[host].disk_name();
        if self.upgrading {
            self.draw_version(host);
        }
        let started = self.hosts[host].start(config, self.log_options, cache_bytes);
        if let Err(error) = started {
            return self.did_not_start(host, &error);
        }
        let boot = self.hosts[host].boot;
        let mended = std::mem::take(&mut self.hosts[host].mended);
        let spoilt = std::mem::take(&mut self.hosts[host].spoilt) || mended;
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        self.counters.torn_tails += u64::from(process.log.was_torn());
        let entries = process.all_entries();
        let entries = entries.map_err(|error| broken("reading the whole log", error))?;
        self.logs.recovered(host, &process.log.shape(), &entries)?;
        self.votes
            .recovered(host, member, &process.log.hard_state())?;
        let index = process.machine.index();
        self.hosts[host].spoilt = spoilt;
        let stands = index == 0 || self.stands(host)?;
        self.hosts[host].spoilt = false;
        if !stands {
            return Ok(());
        }
        let harmless = spoilt && !self.hosts[host].mended;
        self.counters.harmless_damage += u64::from(harmless);
        let now = self.agenda.now();
        let version = if self.hosts[host].old {
            ", of 0.1.0"
        } else {
            ""
        };
        self.trace.note(
            now,
            format_args!("host {host} starts, boot {boot}, at index {index}{version}"),
        );
        let jitter = self.random.random_range(0..TICK);
        self.agenda.after(jitter, Event::Tick(host, boot));
        Ok(())
    }

    /// Compares the states of all running members where they stand.
    pub(super) fn compare_states(&mut self) -> Step {
        for host in self.members() {
            let hash = self.read_healed(host, |process| {
                let hash = process.machine.hash()?;
                Ok::<_, DamagedValue>((process.machine.index(), hash))
            });
            if let Some(hash) = hash {
                let hash = hash.map_err(|error| broken("the hash of the state", error))?;
                self.states.stands(host, hash.0, hash.1)?;
            }
            let hash = self.read_healed(host, |process| process.machine.view().hash_kv(0));
            if let Some(hash) = hash {
                let hash = hash.map_err(|error| broken("the hash of the keys", error))?;
                self.states.reports(host, hash)?;
            }
        }
        Ok(())
    }

    /// The servers that run and were not removed.
    fn members(&self) -> Vec<HostId> {
        let runs = |host: &&Host| host.process.is_some() && !host.retired;
        self.hosts.iter().filter(runs).map(|host| host.id).collect()
    }

    /// What every member has at the end agrees with the history: nothing acknowledged is lost,
    /// and nothing else is there.
    pub(super) fn read_everything(&mut self) -> Step {
        let all = Range {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            ..Range::default()
        };
        for host in self.members() {
            let found = self.read_healed(host, |process| process.machine.view().range(&all));
            if let Some(found) = found {
                let found = found.map_err(|error| broken("a read", error))?;
                self.linear.read(&self.history, &all, &found, None)?;
            }
            self.keys_have_their_leases(host)?;
        }
        let (now, revision) = (self.agenda.now(), self.history.revision());
        let hash = self.states.newest();
        self.trace.note(
            now,
            format_args!("all is well at revision {revision}, hash {hash:x}"),
        );
        Ok(())
    }

    /// Takes what is due next. `false` once nothing is due any more.
    pub(super) fn step(&mut self) -> Result<bool, Violation> {
        let Some(event) = self.agenda.take() else {
            return Ok(false);
        };
        let paused = event.needs().filter(|host| self.is_paused(*host));
        if let Some(host) = paused {
            // It waits, behind what waits already.
            let later = self.hosts[host].paused_until - self.agenda.now();
            self.agenda.after(later, event);
            return Ok(true);
        }
        match event {
            Event::Tick(host, boot) if self.runs(host, boot) => {
                let tick = self.hosts[host].clock.takes(TICK);
                self.agenda.after(tick, Event::Tick(host, boot));
                self.connect(host)?;
                self.feed(host, Input::Tick)?;
            }
            Event::Arrival { from, to, message } => self.arrive(from, to, message)?,
            Event::Written(host, boot) if self.runs(host, boot) => self.written(host)?,
            Event::Apply(host, boot) if self.runs(host, boot) => self.apply(host)?,
            Event::LogRead(host, boot, read) if self.runs(host, boot) => {
                self.read_log(host, read)?;
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
            Event::StreamedLate(arrival) => self.streamed_late(&arrival)?,
            Event::Sent { host, boot, to, ok } if self.runs(host, boot) => {
                self.feed(host, Input::SnapshotSent { to, ok })?;
            }
            Event::ResetLog(host, boot, meta) if self.runs(host, boot) => {
                self.reset_log(host, &meta)?
            }
            Event::Ask(host, boot, input) if self.runs(host, boot) => self.feed(host, *input)?,
            Event::Dial { from, to, pause } => self.dial(from, to, pause)?,
            Event::Client(client) => self.client_acts(client)?,
            Event::Watch => self.watchers_act()?,
            Event::Lease => self.holder_acts()?,
            Event::Warden => self.auth_workload_acts()?,
            Event::Kill(host, boot) if self.runs(host, boot) => self.crash(host)?,
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
}

/// Something that must not happen in a run whose disks are sound.
pub(super) fn broken(what: &str, error: impl std::fmt::Display) -> Violation {
    Violation::new("nothing fails by itself", format!("{what}: {error}"))
}
