//! A cluster of cores for tests: durable images, a network in the open, and a trace of all that
//! happens. Everything is decided by the test; nothing happens by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;

use crate::raft::*;

/// What one member's disk holds for sure.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) hard_state: HardState,
    pub(super) snapshot: SnapshotMeta,
    /// The applied entries that the snapshot stands for.
    pub(super) state: Vec<Entry>,
    pub(super) floor: (Index, Term),
    pub(super) entries: Vec<Entry>,
}

impl Image {
    fn write(&mut self, batch: &Persist) {
        if let Some(first) = batch.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend(batch.entries.iter().cloned());
        }
        if let Some(state) = batch.hard_state {
            self.hard_state = state;
        }
    }

    fn read(&self, read: &LogRead) -> Vec<Entry> {
        let mut bytes = 0;
        self.entries
            .iter()
            .filter(|entry| (read.from..read.to).contains(&entry.index))
            .enumerate()
            .take_while(|(at, entry)| {
                bytes += entry.cost();
                *at == 0 || bytes <= read.max_bytes
            })
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    pub(super) fn restored(&self) -> Restored {
        self.restored_with(2)
    }

    /// With so many of the newest entries in memory.
    fn restored_with(&self, cached: usize) -> Restored {
        let mut log = LogShape::new(self.floor.0, self.floor.1);
        for entry in &self.entries {
            log.append(entry).expect("the image is a log");
        }
        let uncached = self.entries.len().saturating_sub(cached);
        let tail = self.entries[uncached..].to_vec();
        Restored {
            hard_state: self.hard_state,
            snapshot: self.snapshot.clone(),
            log: Some(log),
            entries: tail,
            applied: 0,
        }
    }
}

/// One member.
pub(super) struct Node {
    pub(super) raft: Raft,
    pub(super) config: Config,
    pub(super) image: Image,
    /// All entries applied, from the first one on.
    pub(super) state: Vec<Entry>,
    /// A batch handed out and not yet durable.
    pub(super) writing: Option<Persist>,
    /// Entries handed out and not yet applied.
    pub(super) to_apply: Vec<Entry>,
    /// Log reads handed out and not answered.
    pub(super) reads: Vec<LogRead>,
    /// Received snapshots, by index.
    received: BTreeMap<Index, (SnapshotMeta, Vec<Entry>)>,
    /// Answers to reads: (request, index or reason).
    pub(super) answers: Vec<(u64, Result<Index, ReadFailureReason>)>,
    pub(super) crashed: bool,
    /// What the disk and the applier do by themselves.
    pub(super) lazy_disk: bool,
    pub(super) lazy_apply: bool,
}

impl Node {
    /// The last index that is in the state.
    pub(super) fn state_index(&self) -> Index {
        self.state.last().map_or(1, |entry| entry.index)
    }
}

/// What is on its way.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    Message(Message),
    Snapshot {
        from: MemberId,
        to: MemberId,
        term: Term,
        meta: SnapshotMeta,
        state: Vec<Entry>,
    },
}

impl Parcel {
    pub(super) fn from(&self) -> MemberId {
        match self {
            Self::Message(message) => message.from,
            Self::Snapshot { from, .. } => *from,
        }
    }

    pub(super) fn to(&self) -> MemberId {
        match self {
            Self::Message(message) => message.to,
            Self::Snapshot { to, .. } => *to,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Message(message) => describe_message(message),
            Self::Snapshot {
                from,
                to,
                term,
                meta,
                ..
            } => {
                format!(
                    "{from:x}->{to:x} snapshot stream term={term} {}",
                    describe_meta(meta)
                )
            }
        }
    }
}

/// The cluster.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<MemberId, Node>,
    pub(super) network: Vec<Parcel>,
    pub(super) trace: String,
    /// A member that starts again has its whole log in memory, not just the end of it.
    pub(super) cache_all: bool,
    boots: u64,
}

impl Cluster {
    /// A cluster whose members all start from a snapshot at index 1 of term 1.
    pub(super) fn new(voters: &[MemberId], learners: &[MemberId]) -> Self {
        let mut cluster = Self::default();
        let conf = Configuration::new(voters.iter().copied(), learners.iter().copied());
        for id in voters.iter().chain(learners) {
            cluster.add(*id, conf.clone(), |_| {});
        }
        cluster
    }

    pub(super) fn add(&mut self, id: MemberId, conf: Configuration, set: impl Fn(&mut Config)) {
        let mut image = Image::default();
        if !conf.voters.is_empty() {
            image.snapshot = SnapshotMeta {
                index: 1,
                term: 1,
                configuration: conf,
            };
            image.floor = (1, 1);
        }
        let mut config = Config::new(id, 7, 1000 + id);
        set(&mut config);
        let raft = Raft::new(config.clone(), image.restored()).expect("a fresh member starts");
        let node = Node {
            raft,
            config,
            image,
            state: Vec::new(),
            writing: None,
            to_apply: Vec::new(),
            reads: Vec::new(),
            received: BTreeMap::new(),
            answers: Vec::new(),
            crashed: false,
            lazy_disk: false,
            lazy_apply: false,
        };
        self.nodes.insert(id, node);
    }

    pub(super) fn node(&mut self, id: MemberId) -> &mut Node {
        self.nodes
            .get_mut(&id)
            .expect("the test names a member of the cluster")
    }

    pub(super) fn raft(&mut self, id: MemberId) -> &mut Raft {
        &mut self.node(id).raft
    }

    pub(super) fn record(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.trace, "{}", line.as_ref());
    }

    /// Takes one ready of a member and carries it out, as far as the member is not lazy.
    /// Fatal errors are the caller's to judge.
    pub(super) fn ready(&mut self, id: MemberId) -> Result<bool, Error> {
        let node = self.node(id);
        if node.crashed || !node.raft.has_ready() {
            return Ok(false);
        }
        let ready = node.raft.take_ready();
        if ready.is_empty() {
            return Ok(false);
        }
        let mut lines = vec![format!("{id:x} ready")];
        describe_ready(&ready, &mut lines);
        for line in lines {
            self.record(line);
        }
        self.network
            .extend(ready.messages.into_iter().map(Parcel::Message));
        let node = self.node(id);
        for read in ready.read_states {
            node.answers.push((read.request, Ok(read.index)));
        }
        for failure in ready.read_failures {
            node.answers.push((failure.request, Err(failure.reason)));
        }
        if let Some(meta) = ready.install {
            assert!(node.writing.is_none(), "install while a batch is written");
            self.install(id, &meta)?;
        }
        if let Some(batch) = ready.batch {
            let node = self.node(id);
            assert!(node.writing.is_none(), "one batch at a time");
            node.writing = Some(batch);
        }
        let node = self.node(id);
        node.to_apply.extend(ready.committed);
        node.reads.extend(ready.log_reads);
        for send in ready.snapshot_sends {
            self.send_snapshot(id, send);
        }
        if !self.node(id).lazy_disk {
            self.persist(id)?;
            self.answer_reads(id)?;
        }
        if !self.node(id).lazy_apply {
            self.apply(id, usize::MAX)?;
        }
        Ok(true)
    }

    /// Makes the batch under way durable.
    pub(super) fn persist(&mut self, id: MemberId) -> Result<bool, Error> {
        let node = self.node(id);
        let Some(batch) = node.writing.take() else {
            return Ok(false);
        };
        node.image.write(&batch);
        node.raft.persisted(batch.number)?;
        Ok(true)
    }

    pub(super) fn answer_reads(&mut self, id: MemberId) -> Result<(), Error> {
        let node = self.node(id);
        for read in std::mem::take(&mut node.reads) {
            let entries = node.image.read(&read);
            let contiguous = entries.first().is_none_or(|entry| entry.index == read.from);
            node.raft
                .log_read(read.ticket, if contiguous { entries } else { Vec::new() })?;
        }
        Ok(())
    }

    /// Applies up to `count` entries that were handed out.
    pub(super) fn apply(&mut self, id: MemberId, count: usize) -> Result<(), Error> {
        let node = self.node(id);
        let count = count.min(node.to_apply.len());
        let mut lines = Vec::new();
        for entry in node.to_apply.drain(..count).collect::<Vec<_>>() {
            assert!(entry.index <= node.image.floor.0 + node.image.entries.len() as u64);
            if entry.checked_kind()? == EntryKind::Configuration {
                let (change, _) = entry.decode_configuration()?;
                match node.raft.apply_configuration(entry.index, change) {
                    Ok(conf) => lines.push(format!("{id:x} configuration {conf}")),
                    Err(Error::Change(refusal)) => lines.push(format!("{id:x} refused: {refusal}")),
                    Err(error) => return Err(error),
                }
            }
            let index = entry.index;
            node.state.push(entry);
            node.raft.applied(index)?;
        }
        for line in lines {
            self.record(line);
        }
        Ok(())
    }

    fn send_snapshot(&mut self, id: MemberId, send: SnapshotSend) {
        let node = self.node(id);
        if node.image.snapshot.index < send.at_least {
            node.raft.report_snapshot(send.to, None);
            return self.record(format!("{id:x} has no snapshot to send"));
        }
        let parcel = Parcel::Snapshot {
            from: id,
            to: send.to,
            term: send.term,
            meta: node.image.snapshot.clone(),
            state: node.image.state.clone(),
        };
        self.network.push(parcel);
    }

    fn install(&mut self, id: MemberId, meta: &SnapshotMeta) -> Result<(), Error> {
        let node = self.node(id);
        let (meta, state) = node.received.remove(&meta.index).expect("it was received");
        node.image.floor = (meta.index, meta.term);
        node.image.entries.clear();
        node.image.snapshot = meta.clone();
        node.image.state.clone_from(&state);
        node.state = state;
        node.to_apply.clear();
        node.reads.clear();
        node.raft.snapshot_installed(&meta)
    }

    /// Takes a snapshot of what is applied, and drops the log up to `keep_from`.
    pub(super) fn compact(&mut self, id: MemberId, through: Index) -> Result<(), Error> {
        let node = self.node(id);
        let status = node.raft.status();
        let term = node
            .raft
            .term_at(status.applied)
            .expect("the applied index has a term");
        node.image.snapshot = SnapshotMeta {
            index: status.applied,
            term,
            configuration: status.configuration,
        };
        node.image.state.clone_from(&node.state);
        let floor_term = node.raft.term_at(through).expect("the log has the index");
        node.image.floor = (through, floor_term);
        node.image.entries.retain(|entry| entry.index > through);
        node.raft.compact(through)
    }

    /// The sender's end of a snapshot stream that breaks.
    pub(super) fn stream_failed(&mut self, parcel: &Parcel) {
        if let Parcel::Snapshot { from, to, .. } = parcel
            && let Some(sender) = self.nodes.get_mut(from).filter(|node| !node.crashed)
        {
            sender.raft.report_snapshot(*to, None);
        }
    }

    /// Delivers a parcel to its receiver. A trace line shows the result.
    pub(super) fn receive(&mut self, parcel: Parcel) -> Result<(), Error> {
        let (line, to) = (parcel.describe(), parcel.to());
        if self.nodes.get(&to).is_none_or(|node| node.crashed) {
            self.record(format!("lost     {line}"));
            self.stream_failed(&parcel);
            return Ok(());
        }
        let message = match parcel {
            Parcel::Message(message) => message,
            Parcel::Snapshot {
                from,
                term,
                meta,
                state,
                ..
            } => {
                let index = meta.index;
                self.node(to).received.insert(index, (meta.clone(), state));
                if let Some(sender) = self.nodes.get_mut(&from).filter(|node| !node.crashed) {
                    sender.raft.report_snapshot(to, Some(index));
                }
                Message::install_snapshot(from, to, term, meta)
            }
        };
        let outcome = self.node(to).raft.step(message);
        match outcome {
            Ok(Stepped::Taken) => self.record(format!("receive  {line}")),
            Ok(Stepped::Ignored(reason)) => {
                self.record(format!("receive  {line} ignored: {reason}"))
            }
            Err(error) => {
                self.record(format!("receive  {line} error: {error}"));
                if error.is_fatal() {
                    self.node(to).crashed = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Stops a member; what is not durable is gone.
    pub(super) fn crash(&mut self, id: MemberId) {
        let node = self.node(id);
        node.crashed = true;
        node.writing = None;
        node.to_apply.clear();
        node.reads.clear();
        node.received.clear();
    }

    /// Starts a member from its durable image.
    pub(super) fn restart(&mut self, id: MemberId) -> Result<(), Error> {
        self.boots += 1;
        let cached = if self.cache_all { usize::MAX } else { 2 };
        let nonce = 1_000_000 + self.boots;
        let node = self.node(id);
        node.config.boot_nonce = nonce;
        let restored = node.image.restored_with(cached);
        node.raft = Raft::new(node.config.clone(), restored)?;
        node.state.clone_from(&node.image.state);
        node.crashed = false;
        Ok(())
    }

    /// Lets everything run until nothing moves. Messages between pairs in `cut` are lost.
    pub(super) fn stabilize(&mut self, cut: &[MemberId]) -> Result<(), Error> {
        for _ in 0..10_000 {
            let mut moved = false;
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                while self.ready(id)? {
                    moved = true;
                }
            }
            for parcel in std::mem::take(&mut self.network) {
                moved = true;
                if cut.contains(&parcel.from()) != cut.contains(&parcel.to()) {
                    self.record(format!("lost     {}", parcel.describe()));
                    self.stream_failed(&parcel);
                } else {
                    self.receive(parcel)?;
                }
            }
            if !moved {
                return Ok(());
            }
        }
        panic!("the cluster never comes to rest");
    }

    /// Makes `id` the leader of a quiet cluster.
    pub(super) fn elect(&mut self, id: MemberId) {
        self.raft(id).campaign().expect("a campaign");
        self.stabilize(&[]).expect("an election");
        assert_eq!(self.raft(id).role(), Role::Leader);
    }

    /// Proposes at a member and gives the position.
    pub(super) fn propose(&mut self, id: MemberId, data: &str) -> Position {
        let data = Bytes::copy_from_slice(data.as_bytes());
        self.raft(id)
            .propose(vec![data])
            .expect("the leader takes it")
    }

    /// The data of a member's applied normal entries.
    pub(super) fn applied(&self, id: MemberId) -> Vec<String> {
        self.nodes[&id]
            .state
            .iter()
            .filter(|entry| entry.kind == 0 && !entry.data.is_empty())
            .map(|entry| String::from_utf8_lossy(&entry.data).into_owned())
            .collect()
    }
}

pub(super) fn describe_entry(entry: &Entry) -> String {
    let at = format!("{}/{}", entry.term, entry.index);
    match entry.decode_configuration() {
        Ok((change, _)) => format!("{at} {change}"),
        Err(_) if entry.data.len() > 40 => format!("{at} <{} bytes>", entry.data.len()),
        Err(_) => format!("{at} {:?}", String::from_utf8_lossy(&entry.data)),
    }
}

fn describe_entries(entries: &[Entry]) -> String {
    let all: Vec<String> = entries.iter().map(describe_entry).collect();
    format!("[{}]", all.join(", "))
}

fn describe_meta(meta: &SnapshotMeta) -> String {
    format!("at {}/{} {}", meta.term, meta.index, meta.configuration)
}

fn describe_read(read: Option<ReadId>) -> String {
    read.map_or(String::new(), |id| {
        format!(" read={}.{}", id.nonce, id.counter)
    })
}

pub(super) fn describe_message(message: &Message) -> String {
    let Message {
        from,
        to,
        term,
        body,
    } = message;
    let head = |name: &str| format!("{from:x}->{to:x} {name} term={term}");
    let Some(body) = body else { return head("?") };
    let name = head(body.name());
    match body {
        Body::PreVote(vote) | Body::Vote(vote) => {
            let transfer = if vote.transfer { " transfer" } else { "" };
            format!(
                "{name} last={}/{}{transfer}",
                vote.last_term, vote.last_index
            )
        }
        Body::PreVoteReply(reply) | Body::VoteReply(reply) => {
            format!(
                "{name} {}",
                if reply.granted { "granted" } else { "refused" }
            )
        }
        Body::Append(append) => {
            let mut text = format!(
                "{name} prev={}/{} commit={}",
                append.prev_term, append.prev_index, append.commit
            );
            if !append.entries.is_empty() {
                let _ = write!(text, " entries={}", describe_entries(&append.entries));
            }
            text
        }
        Body::AppendReply(reply) if reply.reject => format!(
            "{name} rejects {} hint={}/{}",
            reply.index, reply.hint_term, reply.hint_index
        ),
        Body::AppendReply(reply) => format!("{name} index={}", reply.index),
        Body::Heartbeat(beat) => {
            format!("{name} commit={}{}", beat.commit, describe_read(beat.read))
        }
        Body::HeartbeatReply(reply) => {
            format!(
                "{name} applied={}{}",
                reply.applied,
                describe_read(reply.read)
            )
        }
        Body::InstallSnapshot(meta) => format!("{name} {}", describe_meta(meta)),
        Body::TimeoutNow(_) => name,
        Body::ReadIndex(read) => format!("{name}{}", describe_read(Some(read.id))),
        Body::ReadIndexReply(reply) => {
            format!(
                "{name} index={}{}",
                reply.index,
                describe_read(Some(reply.id))
            )
        }
    }
}

fn describe_ready(ready: &Ready, lines: &mut Vec<String>) {
    if let Some(RoleChange { role, term, leader }) = ready.role_change {
        let leader = leader.map_or("none".to_owned(), |id| format!("{id:x}"));
        lines.push(format!("  role     {role:?} term={term} leader={leader}"));
    }
    for message in &ready.messages {
        lines.push(format!("  send     {}", describe_message(message)));
    }
    if let Some(meta) = &ready.install {
        lines.push(format!("  install  {}", describe_meta(meta)));
    }
    if let Some(batch) = &ready.batch {
        let mut line = format!("  write    #{}", batch.number);
        if let Some(HardState { term, vote, commit }) = batch.hard_state {
            let _ = write!(line, " term={term} vote={vote:x} commit={commit}");
        }
        if !batch.entries.is_empty() {
            let _ = write!(line, " entries={}", describe_entries(&batch.entries));
        }
        lines.push(line);
    }
    for read in &ready.log_reads {
        lines.push(format!(
            "  fetch    #{} {}..{}",
            read.ticket, read.from, read.to
        ));
    }
    for send in &ready.snapshot_sends {
        lines.push(format!(
            "  snapshot to={:x} at_least={}",
            send.to, send.at_least
        ));
    }
    if !ready.committed.is_empty() {
        lines.push(format!("  apply    {}", describe_entries(&ready.committed)));
    }
    for read in &ready.read_states {
        lines.push(format!("  read     {} at {}", read.request, read.index));
    }
    for failure in &ready.read_failures {
        lines.push(format!(
            "  read     {} failed: {}",
            failure.request, failure.reason
        ));
    }
}
