//! A few members in memory, with a disk, an applier and a network that are as fast or as slow as
//! the test needs. The simulator does the same with the real log and with disk faults.

mod chaos;
mod cold_start;
mod forwarding;
mod life;
mod rules;
mod strangers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use super::*;
use crate::raft::{self, Entry, HardState, Index, LogShape, MemberId, Role, SnapshotMeta};
use crate::store::{Command, Operation, Put, Range, View};

pub(super) const TICK: u64 = 100;

pub(super) fn peer_urls(id: MemberId) -> Vec<String> {
    vec![format!("http://member-{id}:2380")]
}

pub(super) fn disk_of(id: MemberId) -> String {
    format!("disk-{id}")
}

pub(super) fn put(key: &str, value: &str) -> Command {
    put_leased(key, value, 0)
}

pub(super) fn put_leased(key: &str, value: &str, lease: i64) -> Command {
    Operation::Put(Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
        ..Put::default()
    })
    .into()
}

pub(super) fn add(id: MemberId, learner: bool) -> MembershipCommand {
    ChangeBody::Add(Add {
        id,
        name: format!("member-{id}"),
        peer_urls: peer_urls(id),
        client_urls: Vec::new(),
        learner,
        disk_uuid: String::new(),
    })
    .into()
}

pub(super) fn promote(id: MemberId) -> MembershipCommand {
    ChangeBody::Promote(Target { id }).into()
}

pub(super) fn remove(id: MemberId) -> MembershipCommand {
    ChangeBody::Remove(Target { id }).into()
}

pub(super) fn value(view: &View, key: &str) -> Option<String> {
    let range = Range {
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..Range::default()
    };
    let found = view.range(&range).unwrap().kvs.into_iter().next()?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

/// A checkpoint on a disk: its metadata and chunks as bytes.
#[derive(Clone)]
struct Stored {
    meta: Vec<u8>,
    chunks: Vec<Bytes>,
}

impl Stored {
    fn of(checkpoint: Checkpoint) -> (CheckpointInfo, Self) {
        let stored = Self {
            meta: checkpoint.meta.encode_to_vec(),
            chunks: checkpoint.chunks.collect(),
        };
        (checkpoint.meta.info(stored.bytes()), stored)
    }

    fn bytes(&self) -> u64 {
        (self.meta.len() + self.chunks.iter().map(Bytes::len).sum::<usize>()) as u64
    }
}

/// What is durable.
#[derive(Clone, Default)]
struct Disk {
    log: Vec<Entry>,
    floor: (Index, u64),
    hard_state: HardState,
    checkpoints: BTreeMap<Index, Stored>,
}

impl Disk {
    fn write(&mut self, batch: raft::Persist) {
        if let Some(first) = batch.entries.first() {
            self.log.retain(|entry| entry.index < first.index);
        }
        self.log.extend(batch.entries);
        if let Some(hard_state) = batch.hard_state {
            self.hard_state = hard_state;
        }
    }

    fn shape(&self) -> LogShape {
        let mut shape = LogShape::new(self.floor.0, self.floor.1);
        for entry in &self.log {
            shape.append(entry).unwrap();
        }
        shape
    }

    fn read(&self, from: Index, to: Index) -> Vec<Entry> {
        if from <= self.floor.0 {
            return Vec::new();
        }
        let wanted = self.log.iter().filter(|e| (from..to).contains(&e.index));
        wanted.cloned().collect()
    }

    fn drop_before(&mut self, before: Index) {
        for entry in self.log.iter().filter(|entry| entry.index < before) {
            self.floor = (entry.index, entry.term);
        }
        self.log.retain(|entry| entry.index >= before);
        while self.checkpoints.len() > 2 {
            self.checkpoints.pop_first();
        }
    }
}

/// Work of the log's thread.
enum DiskJob {
    Write(raft::Persist),
    Read(raft::LogRead),
    Reset(SnapshotMeta),
    Drop(Index),
}

/// Work of the applier.
enum ApplyJob {
    Apply(Vec<Entry>),
    Freeze,
    Restore(SnapshotMeta),
    Part,
}

pub(super) struct Server {
    pub(super) member: Member,
    pub(super) machine: StateMachine,
    disk: Disk,
    inputs: VecDeque<Input>,
    disk_jobs: VecDeque<DiskJob>,
    apply_jobs: VecDeque<ApplyJob>,
    /// Checkpoints being written in the background.
    frozen: VecDeque<(CheckpointInfo, Stored)>,
    /// Every entry applied since the start of the process.
    applied: Vec<(Index, Applied)>,
    counter: u64,
    boot_nonce: u64,
    pub(super) answers: BTreeMap<u64, Outcome>,
    pub(super) failures: BTreeMap<u64, ProposalError>,
    /// The view when a read became ready.
    pub(super) reads: BTreeMap<u64, Arc<View>>,
    pub(super) leases: BTreeMap<u64, Result<Option<LeaseTimes>, RequestRefusal>>,
    pub(super) transfers: BTreeMap<u64, Result<MemberId, TransferFailure>>,
    pub(super) removed: bool,
    pub(super) installs: usize,
    /// The log's thread is paused.
    pub(super) disk_waits: bool,
    /// The applier is paused.
    pub(super) applier_waits: bool,
    /// Checkpoints are not finished.
    pub(super) checkpoint_waits: bool,
}

pub(super) struct Cluster {
    pub(super) servers: BTreeMap<MemberId, Server>,
    /// In order from one to another.
    wire: BTreeMap<(MemberId, MemberId), VecDeque<Vec<u8>>>,
    /// Directed: messages from the first to the second are lost.
    cuts: BTreeSet<(MemberId, MemberId)>,
    /// Directed: nothing is sent from the first to the second, and the first knows it.
    pub(super) broken: BTreeSet<(MemberId, MemberId)>,
    /// Members that run the version before: they neither send nor understand terms of forwards.
    pub(super) old: BTreeSet<MemberId>,
    pub(super) now: u64,
    tweak: fn(MemberId, &mut MemberConfig),
    boots: u64,
}

impl Cluster {
    pub(super) fn new(ids: &[MemberId]) -> Self {
        Self::tweaked(ids, |_, _| {})
    }

    pub(super) fn tweaked(ids: &[MemberId], tweak: fn(MemberId, &mut MemberConfig)) -> Self {
        let mut cluster = Self {
            servers: BTreeMap::new(),
            wire: BTreeMap::new(),
            cuts: BTreeSet::new(),
            broken: BTreeSet::new(),
            old: BTreeSet::new(),
            now: 0,
            tweak,
            boots: 0,
        };
        let record = |id: &MemberId| MemberRecord {
            id: *id,
            name: format!("member-{id}"),
            peer_urls: peer_urls(*id),
            started: true,
            ..MemberRecord::default()
        };
        let members: Vec<MemberRecord> = ids.iter().map(record).collect();
        for id in ids {
            let machine = StateMachine::found(7, "", 0, members.clone()).unwrap();
            let (info, stored) = Stored::of(machine.checkpoint());
            let disk = Disk {
                floor: (info.index, info.term),
                checkpoints: BTreeMap::from([(info.index, stored)]),
                ..Disk::default()
            };
            cluster.boot(*id, disk);
        }
        cluster.greet();
        cluster
    }

    /// A server with an empty disk that waits for a checkpoint.
    pub(super) fn join(&mut self, id: MemberId) {
        self.boot(id, Disk::default());
        self.introduce();
    }

    pub(super) fn restart(&mut self, id: MemberId) {
        self.restart_quietly(id);
        self.settle();
    }

    /// Restarts from what is durable; nothing else happens meanwhile.
    pub(super) fn restart_quietly(&mut self, id: MemberId) {
        let disk = self.servers.remove(&id).unwrap().disk;
        self.wire.retain(|(from, to), _| *from != id && *to != id);
        self.boot(id, disk);
        self.introduce();
    }

    /// The process ends, and with it its connections.
    pub(super) fn stop(&mut self, id: MemberId) {
        self.servers.remove(&id);
        self.wire.retain(|(from, to), _| *from != id && *to != id);
        for server in self.servers.values_mut() {
            server.inputs.push_back(Input::Unlinked(id));
        }
    }

    fn boot(&mut self, id: MemberId, mut disk: Disk) {
        self.boots += 1;
        let boot_nonce = self.boots;
        let mut config = MemberConfig::new(raft::Config::new(id, 42 + self.boots, boot_nonce));
        config.tick_ms = TICK;
        config.disk_uuid = disk_of(id);
        // Tests have no five seconds of contact behind them when they begin.
        config.health_ms = TICK;
        (self.tweak)(id, &mut config);
        let mut machine = StateMachine::new(id, boot_nonce);
        let mut snapshot = SnapshotMeta::default();
        let mut checkpoints = Vec::new();
        for stored in disk.checkpoints.values() {
            let meta = CheckpointMeta::read(&stored.meta).unwrap();
            checkpoints.push(meta.info(stored.bytes()));
            snapshot = meta.snapshot();
            machine = StateMachine::restore(id, boot_nonce, meta, &stored.chunks).unwrap();
        }
        let mut log = disk.shape();
        if log.term(snapshot.index) != Some(snapshot.term) {
            // It stopped between receiving a checkpoint and resetting the log.
            disk.log.clear();
            disk.floor = (snapshot.index, snapshot.term);
            log = disk.shape();
        }
        let restored = MemberRestored {
            raft: raft::Restored {
                hard_state: disk.hard_state,
                snapshot,
                log: Some(log),
                entries: Vec::new(),
                applied: machine.index(),
            },
            checkpoints,
            machine: machine.take_report(),
        };
        let server = Server {
            member: Member::new(config, restored).unwrap(),
            machine,
            disk,
            inputs: VecDeque::new(),
            disk_jobs: VecDeque::new(),
            apply_jobs: VecDeque::new(),
            frozen: VecDeque::new(),
            applied: Vec::new(),
            counter: 0,
            boot_nonce,
            answers: BTreeMap::new(),
            failures: BTreeMap::new(),
            reads: BTreeMap::new(),
            leases: BTreeMap::new(),
            transfers: BTreeMap::new(),
            removed: false,
            installs: 0,
            disk_waits: false,
            applier_waits: false,
            checkpoint_waits: false,
        };
        self.servers.insert(id, server);
    }

    fn greet(&mut self) {
        self.introduce();
        self.settle();
    }

    fn introduce(&mut self) {
        let ids: Vec<MemberId> = self.servers.keys().copied().collect();
        for (id, server) in &mut self.servers {
            for other in ids.iter().filter(|other| *other != id) {
                server.inputs.push_back(Input::PeerDisk {
                    id: *other,
                    disk_uuid: disk_of(*other),
                });
            }
        }
    }

    pub(super) fn cut(&mut self, one: MemberId, other: MemberId) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    pub(super) fn heal(&mut self) {
        self.cuts.clear();
    }

    pub(super) fn give(&mut self, id: MemberId, input: Input) {
        self.servers.get_mut(&id).unwrap().inputs.push_back(input);
    }

    /// Runs until nothing is left to do.
    pub(super) fn settle(&mut self) {
        loop {
            let ids: Vec<MemberId> = self.servers.keys().copied().collect();
            for id in ids {
                while self.think(id) || self.server(id).write() || self.server(id).work() {}
                self.server(id).finish_checkpoint();
            }
            let links: Vec<(MemberId, MemberId)> = self.wire.keys().copied().collect();
            let waiting = |server: &Server| !server.inputs.is_empty();
            let moved = links
                .into_iter()
                .filter(|(from, to)| self.deliver(*from, *to))
                .count();
            if moved == 0 && !self.servers.values().any(waiting) {
                break;
            }
        }
    }

    /// Handles one input of a member; false if there is none.
    fn think(&mut self, id: MemberId) -> bool {
        let input = self.server(id).inputs.pop_front();
        let there = input.is_some();
        if let Some(input) = input {
            self.handle(id, input);
        }
        there
    }

    /// Delivers one message; false if there is none.
    fn deliver(&mut self, from: MemberId, to: MemberId) -> bool {
        let Some(bytes) = self.wire.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        if !self.cuts.contains(&(from, to))
            && let Some(server) = self.servers.get_mut(&to)
        {
            let mut message = PeerMessage::decode(&bytes[..]).unwrap();
            if self.old.contains(&from) || self.old.contains(&to) {
                message.takes_terms = false;
            }
            if self.old.contains(&to) && matches!(message.body, Some(PeerBody::InTerm(_))) {
                message.body = None;
            }
            server.inputs.push_back(Input::Peer { from, message });
        }
        true
    }

    /// Time passes for all.
    pub(super) fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.now += TICK;
            for server in self.servers.values_mut() {
                server.inputs.push_back(Input::Tick);
            }
            self.settle();
        }
    }

    fn handle(&mut self, id: MemberId, input: Input) {
        let now = self.now;
        let mut effects = Vec::new();
        self.server(id).member.handle(now, input, &mut effects);
        for effect in effects {
            self.apply_effect(id, effect);
        }
    }

    /// Time passes for a member, and it is told so if it waits for that.
    pub(super) fn pass(&mut self, id: MemberId, ms: u64) {
        self.now += ms;
        let now = self.now;
        let mut effects = Vec::new();
        let member = &mut self.server(id).member;
        if member.reads_late_at().is_some_and(|at| at <= now) {
            member.pass(now, &mut effects);
        }
        for effect in effects {
            self.apply_effect(id, effect);
        }
        self.settle();
    }

    /// The member keeps proposals back from now on, or no more.
    pub(super) fn hold_proposals(&mut self, id: MemberId, held: bool) {
        let mut effects = Vec::new();
        let member = &mut self.server(id).member;
        member.hold_proposals(held, &mut effects);
        for effect in effects {
            self.apply_effect(id, effect);
        }
    }

    fn apply_effect(&mut self, id: MemberId, effect: Effect) {
        let server = self.servers.get_mut(&id).unwrap();
        match effect {
            Effect::Write(batch) => server.disk_jobs.push_back(DiskJob::Write(batch)),
            Effect::Send { to, message } if self.broken.contains(&(id, to)) => {
                if message.forwards() {
                    server.inputs.push_back(Input::Unsent { to, message });
                }
            }
            Effect::Send { to, message } => {
                let link = self.wire.entry((id, to)).or_default();
                link.push_back(message.encode_to_vec());
            }
            Effect::Apply(entries) => server.apply_jobs.push_back(ApplyJob::Apply(entries)),
            Effect::InstallCheckpoint(meta) => server.disk_jobs.push_back(DiskJob::Reset(meta)),
            Effect::ReadLog(read) => server.disk_jobs.push_back(DiskJob::Read(read)),
            Effect::SendCheckpoint { to, term, index } => self.stream(id, to, term, index),
            Effect::TakeCheckpoint => server.apply_jobs.push_back(ApplyJob::Freeze),
            Effect::DropLog { before } => server.disk_jobs.push_back(DiskJob::Drop(before)),
            Effect::ReadReady { ids, index } => {
                assert!(server.machine.index() >= index);
                let view = server.machine.view();
                server
                    .reads
                    .extend(ids.into_iter().map(|id| (id, Arc::clone(&view))));
            }
            Effect::ReadFailed { ids, reason } => panic!("reads {ids:?} of {id} failed: {reason}"),
            Effect::ProposalFailed { request, error } => {
                assert_eq!(request.member, id);
                server.failures.insert(request.counter, error);
            }
            Effect::LeaseAnswer { id: call, answer } => {
                server.leases.insert(call, answer);
            }
            Effect::TransferEnded { id: call, result } => {
                server.transfers.insert(call, result);
            }
            Effect::Role(_) | Effect::Notice(_) | Effect::FateUnknown { .. } => {}
            Effect::Removed { .. } => {
                server.removed = true;
                server.apply_jobs.push_back(ApplyJob::Part);
            }
            Effect::Stop(reason) => panic!("{id} stops: {reason}"),
        }
    }

    fn stream(&mut self, from: MemberId, to: MemberId, term: u64, index: Index) {
        let stored = self.server(from).disk.checkpoints[&index].clone();
        let meta = CheckpointMeta::read(&stored.meta).unwrap();
        let cut = self.cuts.contains(&(from, to));
        let ok = match self.servers.get_mut(&to).filter(|_| !cut) {
            None => false,
            Some(receiver) => {
                receiver.inputs.push_back(Input::SnapshotReceived {
                    from,
                    term,
                    checkpoint: meta.info(stored.bytes()),
                    meta: meta.snapshot(),
                });
                receiver.disk.checkpoints.insert(index, stored);
                true
            }
        };
        self.give(from, Input::SnapshotSent { to, ok });
    }

    pub(super) fn server(&mut self, id: MemberId) -> &mut Server {
        self.servers.get_mut(&id).unwrap()
    }

    /// The one leader that a quorum follows, after as many ticks as that takes.
    pub(super) fn leader(&mut self) -> MemberId {
        for _ in 0..200 {
            let leaders: Vec<MemberId> = self
                .servers
                .iter()
                .filter(|(_, s)| {
                    let status = s.member.status();
                    status.raft.role == Role::Leader && status.leader_with_quorum && !s.removed
                })
                .map(|(id, _)| *id)
                .collect();
            if let [leader] = leaders[..] {
                return leader;
            }
            self.ticks(1);
        }
        for (id, server) in &self.servers {
            let raft = server.member.status().raft;
            println!("{id} removed={} {raft:?}", server.removed);
        }
        panic!("no leader within 200 ticks");
    }

    pub(super) fn followers(&mut self) -> Vec<MemberId> {
        let leader = self.leader();
        self.servers
            .keys()
            .copied()
            .filter(|id| *id != leader)
            .collect()
    }

    /// Proposes a command at a member; returns the number of its answer.
    pub(super) fn propose(&mut self, id: MemberId, command: Command) -> u64 {
        let request = self.server(id).request();
        let data = LogPayload::command(Some(request), command);
        let proposals = vec![Proposal { request, data }];
        self.give(id, Input::Propose(proposals));
        request.counter
    }

    pub(super) fn put(&mut self, id: MemberId, key: &str, value: &str) {
        let number = self.propose(id, put(key, value));
        for _ in 0..50 {
            self.settle();
            if let Some(outcome) = self.server(id).answers.get(&number) {
                assert!(matches!(outcome, Outcome::Store(Ok(_))), "{outcome:?}");
                return;
            }
            self.ticks(1);
        }
        panic!("put of {key} at {id} was not answered");
    }

    /// Asks a member for a change and waits for its outcome.
    pub(super) fn change(
        &mut self,
        id: MemberId,
        command: MembershipCommand,
    ) -> Result<Arc<Membership>, MembershipError> {
        let request = self.server(id).request();
        self.give(id, Input::ChangeMembership { request, command });
        for _ in 0..50 {
            self.settle();
            let server = self.server(id);
            match server.answers.get(&request.counter) {
                Some(Outcome::Membership(outcome)) => return outcome.clone(),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match server.failures.get(&request.counter) {
                Some(ProposalError::Membership(error)) => return Err(error.clone()),
                Some(other) => panic!("{other}"),
                None => {}
            }
            self.ticks(1);
        }
        panic!("the change at {id} was not answered");
    }

    /// A linearizable read of one key.
    pub(super) fn get(&mut self, id: MemberId, key: &str) -> Option<String> {
        let number = self.server(id).request().counter;
        self.give(id, Input::Read(vec![number]));
        for _ in 0..50 {
            self.settle();
            if let Some(view) = self.server(id).reads.get(&number) {
                return value(view, key);
            }
            self.ticks(1);
        }
        panic!("read at {id} was not answered");
    }

    pub(super) fn assert_equal(&self) {
        let last = self.servers.values().map(|s| s.machine.index()).max();
        let hashes: BTreeSet<u64> = self
            .servers
            .values()
            .filter(|s| !s.removed)
            .map(|s| {
                assert_eq!(Some(s.machine.index()), last);
                s.machine.hash().expect("every value is in memory")
            })
            .collect();
        assert_eq!(hashes.len(), 1);
    }
}

impl Server {
    pub(super) fn request(&mut self) -> RequestId {
        self.counter += 1;
        RequestId {
            member: self.member.id(),
            boot_nonce: self.boot_nonce,
            counter: self.counter,
        }
    }

    /// Does one job of the log thread; false if there is none.
    fn write(&mut self) -> bool {
        if self.disk_waits {
            return false;
        }
        match self.disk_jobs.pop_front() {
            None => return false,
            Some(DiskJob::Write(batch)) => {
                self.inputs.push_back(Input::Persisted(batch.number));
                self.disk.write(batch);
            }
            Some(DiskJob::Read(read)) => {
                let entries = Ok(self.disk.read(read.from, read.to));
                let ticket = read.ticket;
                self.inputs.push_back(Input::LogRead { ticket, entries });
            }
            Some(DiskJob::Reset(meta)) => {
                self.disk.log.clear();
                self.disk.floor = (meta.index, meta.term);
                self.apply_jobs.push_back(ApplyJob::Restore(meta));
            }
            Some(DiskJob::Drop(before)) => self.disk.drop_before(before),
        }
        true
    }

    /// Does one job of the applier; false if there is none.
    fn work(&mut self) -> bool {
        if self.applier_waits {
            return false;
        }
        match self.apply_jobs.pop_front() {
            None => return false,
            Some(ApplyJob::Apply(entries)) => self.apply(&entries),
            Some(ApplyJob::Freeze) => {
                self.frozen.push_back(Stored::of(self.machine.checkpoint()));
            }
            Some(ApplyJob::Restore(meta)) => self.install(&meta),
            Some(ApplyJob::Part) => {
                if let Some(applied) = self.machine.part() {
                    self.answer(applied);
                }
            }
        }
        true
    }

    /// Finishes writing a checkpoint; false if there is none.
    fn finish_checkpoint(&mut self) -> bool {
        if self.checkpoint_waits {
            return false;
        }
        let Some((info, stored)) = self.frozen.pop_front() else {
            return false;
        };
        let durable = self
            .disk
            .log
            .last()
            .map_or(self.disk.floor.0, |entry| entry.index);
        assert!(info.index <= durable, "a checkpoint ran ahead of the log");
        self.disk.checkpoints.insert(info.index, stored);
        self.inputs.push_back(Input::CheckpointDone(Some(info)));
        true
    }

    fn apply(&mut self, entries: &[Entry]) {
        for entry in entries {
            let durable = self.disk.log.iter().any(|e| e == entry);
            assert!(
                durable || entry.index <= self.disk.floor.0,
                "applied before it is durable"
            );
            let applied = self.machine.apply(entry).unwrap();
            self.applied.push((entry.index, applied.clone()));
            self.answer(applied);
        }
        let report = self.machine.take_report();
        self.inputs.push_back(Input::Applied(report));
    }

    fn answer(&mut self, applied: Applied) {
        let own = applied.request.filter(|request| {
            (request.member, request.boot_nonce) == (self.member.id(), self.boot_nonce)
        });
        if let Some(request) = own {
            let before = self.answers.insert(request.counter, applied.outcome);
            assert_eq!(before, None, "applied twice");
            assert!(
                !self.failures.contains_key(&request.counter),
                "failed and applied"
            );
        }
    }

    fn install(&mut self, meta: &SnapshotMeta) {
        self.installs += 1;
        let stored = &self.disk.checkpoints[&meta.index];
        let read = CheckpointMeta::read(&stored.meta).unwrap();
        let id = self.member.id();
        self.machine = StateMachine::restore(id, self.boot_nonce, read, &stored.chunks).unwrap();
        let report = self.machine.take_report();
        self.inputs.push_back(Input::Installed(report));
    }
}
