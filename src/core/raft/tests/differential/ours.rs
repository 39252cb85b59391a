//! The cluster of our cores as the comparison needs it: an event, then peace. Judges nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bytes::Bytes;

use super::event::Event;
use crate::raft::tests::harness::{Cluster, Parcel};
use crate::raft::*;

/// Ticks of an election timeout. A power of two, for the driver's source of randomness.
pub(super) const ELECTION: u32 = 4;

/// How the cores of a schedule are set, both kinds alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) voters: u64,
    pub(super) learners: u64,
    pub(super) pre_vote: bool,
    pub(super) check_quorum: bool,
    /// One entry a message, and two of them under way.
    pub(super) narrow: bool,
}

impl Settings {
    /// The command that starts the other cluster.
    pub(super) fn command(&self) -> String {
        let Self {
            voters,
            learners,
            pre_vote,
            check_quorum,
            narrow,
        } = self;
        let limits = if *narrow { "0 2" } else { "1048576 512" };
        format!("start {voters} {learners} {ELECTION} {pre_vote} {check_quorum} {limits}")
    }
}

/// The cluster, and which ways are cut.
pub(super) struct Ours {
    pub(super) cluster: Cluster,
    settings: Settings,
    cuts: BTreeSet<(MemberId, MemberId)>,
    /// Members that replaced their log by a snapshot during the event.
    pub(super) installed: BTreeSet<MemberId>,
    /// What the schedules have brought about, for the proof that they are worth something.
    pub(super) counts: EventCounts,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventCounts {
    pub(super) events: usize,
    pub(super) elections: usize,
    pub(super) changes: usize,
    pub(super) removals: usize,
    pub(super) transfers: usize,
    pub(super) snapshots: usize,
    pub(super) restarts: usize,
    pub(super) overwritten: usize,
    /// Schedules that ended early: their leader removed itself, or a log starts elsewhere.
    pub(super) left: usize,
    pub(super) other_starts: usize,
}

impl EventCounts {
    pub(super) fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.elections += more.elections;
        self.changes += more.changes;
        self.removals += more.removals;
        self.transfers += more.transfers;
        self.snapshots += more.snapshots;
        self.restarts += more.restarts;
        self.overwritten += more.overwritten;
        self.left += more.left;
        self.other_starts += more.other_starts;
    }
}

impl Ours {
    pub(super) fn new(settings: Settings) -> Self {
        let all = settings.voters + settings.learners;
        let conf = Configuration::new(1..=settings.voters, settings.voters + 1..=all);
        let mut ours = Self {
            cluster: Cluster::default(),
            settings,
            cuts: BTreeSet::new(),
            installed: BTreeSet::new(),
            counts: EventCounts::default(),
        };
        ours.cluster.cache_all = true;
        for id in 1..=all {
            ours.add(id, conf.clone());
        }
        ours
    }

    fn add(&mut self, id: MemberId, conf: Configuration) {
        let settings = self.settings;
        self.cluster.add(id, conf, |config| {
            config.election_ticks = ELECTION;
            config.pre_vote = settings.pre_vote;
            config.check_quorum = settings.check_quorum;
            if settings.narrow {
                config.max_message_bytes = 1;
                config.max_inflight_messages = 2;
            }
        });
    }

    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.cluster.nodes.keys().copied().collect()
    }

    pub(super) fn up(&self, id: MemberId) -> bool {
        !self.cluster.nodes[&id].crashed
    }

    pub(super) fn raft(&self, id: MemberId) -> &Raft {
        &self.cluster.nodes[&id].raft
    }

    /// Members that lead, each in a term of its own.
    pub(super) fn leaders(&self) -> Vec<MemberId> {
        let leads = |id: &MemberId| self.up(*id) && self.raft(*id).role() == Role::Leader;
        self.ids().into_iter().filter(leads).collect()
    }

    /// Whether a member's log holds a change of membership that it has not applied.
    pub(super) fn change_pending(&self, id: MemberId) -> bool {
        self.raft(id).log.unapplied_configuration().is_some()
    }

    /// The newest configuration that any member has applied.
    pub(super) fn newest(&self) -> &Configuration {
        let nodes = self.cluster.nodes.values();
        let newest = nodes.max_by_key(|node| node.raft.applied_index());
        newest.expect("a cluster has members").raft.configuration()
    }

    /// Whether a member has removed itself while it led.
    pub(super) fn leader_left(&self) -> bool {
        let left =
            |id: &MemberId| self.raft(*id).leaving.is_some() || self.raft(*id).left_in_order();
        self.ids().iter().any(left)
    }

    /// Carries out an event and lets the cluster come to rest. Whether the core took it; one that
    /// was refused has done nothing.
    pub(super) fn act(&mut self, event: &Event) -> Result<bool, Error> {
        self.cluster.trace.clear();
        self.installed.clear();
        self.counts.events += 1;
        let leaders = self.leaders();
        let taken = self.begin(event)?;
        self.settle()?;
        let now = self.leaders();
        let fresh = now.iter().filter(|id| !leaders.contains(id)).count();
        self.counts.elections += fresh;
        if let Event::Transfer(_, to) = event
            && now.contains(to)
        {
            self.counts.transfers += 1;
        }
        Ok(taken)
    }

    fn begin(&mut self, event: &Event) -> Result<bool, Error> {
        match event {
            Event::New(id) => self.add(*id, Configuration::default()),
            Event::Tick(id) => self.tick(*id)?,
            Event::Campaign(id) => {
                let raft = self.cluster.raft(*id);
                let elapsed = raft.election_elapsed;
                raft.campaign()?;
                if raft.role() == Role::PreCandidate {
                    raft.election_elapsed = elapsed;
                }
            }
            Event::Propose(id, items) => {
                let items = items.iter().cloned().map(Bytes::from).collect();
                return Ok(self.cluster.raft(*id).propose(items).is_ok());
            }
            Event::Change(id, change) => {
                let raft = self.cluster.raft(*id);
                return Ok(raft.propose_configuration(*change, Bytes::new()).is_ok());
            }
            Event::Transfer(id, to) => {
                return Ok(self.cluster.raft(*id).transfer_leadership(*to).is_ok());
            }
            Event::Cut(from, to) => {
                self.cuts.insert((*from, *to));
            }
            Event::Heal => self.cuts.clear(),
            Event::Compact(id, through) => self.cluster.compact(*id, *through)?,
            Event::Crash(id) => self.cluster.crash(*id),
            Event::Restart(id, commit) => {
                self.counts.restarts += 1;
                self.cluster.node(*id).image.hard_state.commit = *commit;
                self.cluster.restart(*id)?;
            }
        }
        Ok(true)
    }

    /// A tick, with the longest election timeout that may be drawn.
    fn tick(&mut self, id: MemberId) -> Result<(), Error> {
        let raft = self.cluster.raft(id);
        raft.election_timeout = 2 * ELECTION - 1;
        raft.tick()
    }

    fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..10_000 {
            let mut moved = false;
            for id in self.ids() {
                while self.ready(id)? {
                    moved = true;
                }
            }
            let mut parcels = std::mem::take(&mut self.cluster.network);
            parcels.sort_by_key(|parcel| (parcel.from(), parcel.to()));
            for parcel in parcels {
                moved = true;
                let to = parcel.to();
                self.deliver(parcel)?;
                while self.ready(to)? {}
            }
            if !moved {
                return Ok(());
            }
        }
        panic!("the cluster never comes to rest");
    }

    /// One ready. A snapshot that is sent is one of all that the sender has applied.
    fn ready(&mut self, id: MemberId) -> Result<bool, Error> {
        let before = self.cluster.network.len();
        let node = self.cluster.node(id);
        if node.crashed || !node.raft.has_ready() {
            return Ok(false);
        }
        let kept = (node.image.snapshot.clone(), node.image.state.clone());
        let (changes, last) = (node.raft.configuration().clone(), node.raft.applied_index());
        if node.raft.role() == Role::Leader {
            let term = node.raft.term_at(last);
            node.image.snapshot = SnapshotMeta {
                index: last,
                term: term.expect("the applied index has a term"),
                configuration: changes.clone(),
            };
            node.image.state.clone_from(&node.state);
        }
        let length = node.image.entries.last().map_or(0, |entry| entry.index);
        let moved = self.cluster.ready(id)?;
        let sent = |parcel: &Parcel| matches!(parcel, Parcel::Snapshot { .. });
        let sends = self.cluster.network[before..].iter().any(sent);
        let node = self.cluster.node(id);
        for (new, progress) in &mut node.raft.progress {
            if !changes.contains(*new) && progress.matched == 0 {
                progress.next = (progress.next - 1).max(1);
            }
        }
        if node.raft.configuration() != &changes {
            self.counts.changes += 1;
            let members = |conf: &Configuration| conf.members().len();
            self.counts.removals +=
                usize::from(members(node.raft.configuration()) < members(&changes));
        }
        if node.image.entries.last().map_or(0, |entry| entry.index) < length {
            self.counts.overwritten += 1;
        }
        let installed = node.image.snapshot.index > kept.0.index && node.image.floor.0 > last;
        if installed {
            self.installed.insert(id);
            self.counts.snapshots += 1;
        }
        let node = self.cluster.node(id);
        if !sends && !installed {
            (node.image.snapshot, node.image.state) = kept;
        }
        Ok(moved)
    }

    fn deliver(&mut self, mut parcel: Parcel) -> Result<(), Error> {
        let cut = self.cuts.contains(&(parcel.from(), parcel.to()));
        let stale = match &mut parcel {
            Parcel::Message(message) => {
                forget_commit_of_refusals(message);
                false
            }
            Parcel::Snapshot { term, to, .. } => self.up(*to) && *term < self.raft(*to).term(),
        };
        if cut || stale {
            self.cluster.stream_failed(&parcel);
            return Ok(());
        }
        self.cluster.receive(parcel)
    }

    /// A line a member, as the driver writes it.
    pub(super) fn show(&self) -> Vec<String> {
        self.ids().into_iter().map(|id| self.line(id)).collect()
    }

    fn line(&self, id: MemberId) -> String {
        if !self.up(id) {
            return format!("{id} down");
        }
        let node = &self.cluster.nodes[&id];
        let raft = &node.raft;
        let list = |set: &BTreeSet<MemberId>| {
            let ids: Vec<String> = set.iter().map(u64::to_string).collect();
            format!("({})", ids.join(" "))
        };
        let (floor, floor_term) = node.image.floor;
        let conf = raft.configuration();
        let mut line = format!(
            "{id} term={} vote={} role={:?} lead={} commit={} applied={} last={} voters={} \
             learners={} log=({floor_term}/{floor})",
            raft.term(),
            raft.vote.unwrap_or(0),
            raft.role(),
            raft.leader().unwrap_or(0),
            raft.commit(),
            raft.applied_index(),
            raft.last_index(),
            list(&conf.voters),
            list(&conf.learners),
        );
        for entry in &node.image.entries {
            let _ = write!(line, " {}/{}:", entry.term, entry.index);
            match entry.decode_configuration() {
                Ok((change, _)) => {
                    let _ = write!(line, "{}-{}", super::event::kind(change), change.member());
                }
                Err(_) => line.push_str(&String::from_utf8_lossy(&entry.data)),
            }
        }
        line
    }
}

/// The commit index in a refused vote is our extension: without it the message is equal to the other core's.
fn forget_commit_of_refusals(message: &mut Message) {
    if let Some(Body::VoteReply(reply) | Body::PreVoteReply(reply)) = &mut message.body {
        (reply.commit, reply.commit_term) = (0, 0);
    }
}
