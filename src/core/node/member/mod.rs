//! The consensus half of a member: the core, the queues in front of it, the checks of a leader, the
//! account of checkpoints and log, and the deadlines of leases.

mod cold_start;
mod contact;
mod leading;
mod messages;
mod proposals;
mod proposing;
mod read_rounds;
mod reading;
mod retention;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mutants::mutant;
use crate::raft::{self, Index, MemberId, Message, Raft, Ready, Role, RoleChange, Status, Term};

use super::api::{
    Awaited, CheckpointInfo, Effect, Input, ProposalError, Report, RequestRefusal, StopReason,
};
use super::lessor::Lessor;
use super::membership::Membership;
use super::peer::{LeaseCall, PeerBody, PeerMessage};
use super::removal::PeerReports;

use cold_start::ColdStart;
pub use contact::PeerStatus;
use contact::{Contacts, Spans};
use proposals::Proposals;
use read_rounds::{Asked, ReadRounds};
pub use retention::CheckpointPolicy;
use retention::Retention;
use transfer::Transfers;

/// The largest distance from this member's term to the term of a message from a server outside the
/// membership. No correct member is that far ahead, and accepting such a term would use up the
/// terms of later elections.
const TERM_LEAP: Term = 1 << 32;
/// The largest term accepted from a member, however far behind this one is: servers outside the
/// membership can advance one member's term in many steps, and members that then rejected each
/// other's terms would never communicate again.
const TERM_OF_MEMBERS: Term = 1 << 62;

/// The settings of a member. They may differ between members of one cluster: none of them affects
/// what is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfig {
    /// The settings of the consensus core, with this member's ID and boot nonce.
    pub raft: raft::Config,
    /// Milliseconds between two [`Input::Tick`]s.
    pub tick_ms: u64,
    /// This server's disk; empty only in tests without one.
    pub disk_uuid: String,
    /// `--max-learners`, checked when proposing.
    pub max_learners: usize,
    /// `--strict-reconfig-check`.
    pub strict_reconfig: bool,
    /// Milliseconds of uninterrupted contact after which a member counts as connected in etcd's
    /// checks of changes (etcd: 5000). A younger leader requires contact since it leads, over a
    /// connection that is as old.
    pub health_ms: u64,
    /// When to take checkpoints, and how much log to keep for others.
    pub checkpoints: CheckpointPolicy,
    /// The most bytes of proposals that wait here or whose outcome is not known yet.
    pub max_waiting_bytes: u64,
    /// The most reads and lease requests that wait here.
    pub max_waiting_reads: usize,
    /// Milliseconds between two checkpoints of the remaining TTL of a long lease (etcd: 300,000
    /// with its gate `LeaseCheckpoint`); 0: none.
    pub lease_note_ms: u64,
    /// Proposals are refused while this many committed entries wait to be applied (etcd: 5000).
    pub max_apply_gap: u64,
    /// Whether it may vote and campaign from the start. False in a server on an empty disk that
    /// cannot know whether its ID has voted from another disk: until [`Input::AllowVotes`].
    pub voting: bool,
    /// Whether an election begins as soon as every voter is connected and none has told of a leader since this member
    /// started, instead of after the election timeout. Without effect where the core has no pre-vote.
    pub elects_when_complete: bool,
}

impl MemberConfig {
    /// The defaults: etcd's where etcd has them.
    pub fn new(raft: raft::Config) -> Self {
        Self {
            raft,
            tick_ms: 100,
            disk_uuid: String::new(),
            max_learners: 1,
            strict_reconfig: true,
            health_ms: 5000,
            checkpoints: CheckpointPolicy::default(),
            max_waiting_bytes: 64 << 20,
            max_waiting_reads: 100_000,
            lease_note_ms: 0,
            max_apply_gap: 5000,
            voting: true,
            elects_when_complete: false,
        }
    }
}

/// The state from which a member starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberRestored {
    /// The log and the newest checkpoint, in the form that the core needs. `applied` is the
    /// machine's index. All default for a joiner that waits for its first checkpoint.
    pub raft: raft::Restored,
    /// The durable checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// [`StateMachine::take_report`](super::StateMachine::take_report) of the restored machine.
    pub machine: Report,
}

/// The status of a member, for logs, metrics and `quorate.v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The core's view.
    pub raft: Status,
    /// Whether it has been removed from the cluster.
    pub removed: bool,
    /// Whether it may vote; see [`MemberConfig::voting`].
    pub voting: bool,
    /// It leads and heard from a quorum of voters within one election timeout.
    pub leader_with_quorum: bool,
    /// It leads, or heard within one election timeout from a leader that is in its membership.
    pub led: bool,
    /// At a leader: the other members, as of the last tick.
    pub peers: BTreeMap<MemberId, PeerStatus>,
    /// At a leader: [`PeerStatus::unsynced_ms`] of its own disk.
    pub unsynced_ms: u64,
    /// The newest durable checkpoint.
    pub checkpoint: CheckpointInfo,
    /// Proposals that wait or whose outcome is not known here yet.
    pub proposals_waiting: usize,
    /// Reads that wait.
    pub reads_waiting: usize,
}

/// The consensus half of a member. The head of the room lists the duties of its owner.
pub struct Member {
    config: MemberConfig,
    raft: Raft,
    now: u64,
    role: RoleChange,
    membership: Arc<Membership>,
    /// Disks on which peers run, where they agree with the bound or pinned one.
    disks: BTreeMap<MemberId, String>,
    /// The first disk seen in a hello of each member: the accepted one until one is bound. With a
    /// number that is larger for members met later.
    pins: BTreeMap<MemberId, (u64, String)>,
    meetings: u64,
    contacts: Contacts,
    cold_start: ColdStart,
    /// Members that, if they lead, take what is forwarded for their term. A few, looked at with every message.
    takers: Vec<MemberId>,
    proposals: Proposals,
    /// A follower that answered that it does not lead, until the next tick or change of role.
    distrusted: Option<MemberId>,
    reads: ReadRounds,
    asked: Asked,
    /// Lease requests of this member's clients, with when they were sent, if they were.
    lease_calls: BTreeMap<u64, (LeaseCall, Option<u64>)>,
    lessor: Lessor,
    /// Renewals that wait until the checkpoints of their leases are cleared, with the member that
    /// asked.
    renewals: Vec<(MemberId, LeaseCall)>,
    retention: Retention,
    /// Proposals are not moved on for now.
    holds_proposals: bool,
    received: Option<CheckpointInfo>,
    /// The core requested a checkpoint for a member, and the newest one on disk is too old for it.
    send_later: Option<raft::SnapshotSend>,
    transfers: Transfers,
    /// The configuration index that this leader has proposed to settle in its term.
    settling: Index,
    /// Members whose disk this leader has proposed to bind in its term.
    binding: BTreeSet<MemberId>,
    /// Removed members that were notified since the last tick.
    notified_removed: BTreeSet<MemberId>,
    /// The members that report that this one was removed.
    removal_reports: PeerReports,
    /// When it last heard from a leader that is in its membership.
    led: Option<u64>,
    voting: bool,
    removed: bool,
    /// When this member learned of its removal, while [`Effect::Removed`] is not yet given.
    parting: Option<u64>,
    stopped: bool,
}

impl Member {
    /// A member from its restored state. Needs [`Input::Tick`]s from here on.
    ///
    /// # Errors
    /// Settings that cannot work, and restored state that is inconsistent: the server must not
    /// start.
    pub fn new(config: MemberConfig, restored: MemberRestored) -> Result<Self, StopReason> {
        let keeps_from = restored.raft.log.as_ref();
        let keeps_from = keeps_from.map_or(restored.raft.snapshot.index, raft::LogShape::floor) + 1;
        let retention = Retention::new(config.checkpoints, &restored.checkpoints, keeps_from);
        let raft = Raft::new(config.raft.clone(), restored.raft)?;
        let id = config.raft.id;
        let mut member = Self {
            role: RoleChange {
                role: Role::Follower,
                term: raft.term(),
                leader: None,
            },
            cold_start: ColdStart::new(
                config.elects_when_complete && config.raft.pre_vote,
                raft.term(),
            ),
            raft,
            now: 0,
            membership: Arc::default(),
            disks: BTreeMap::new(),
            pins: BTreeMap::new(),
            meetings: 0,
            contacts: Contacts::default(),
            takers: Vec::new(),
            proposals: Proposals::new(id, config.max_waiting_bytes),
            distrusted: None,
            reads: ReadRounds::default(),
            asked: Asked::default(),
            lease_calls: BTreeMap::new(),
            lessor: Lessor::new(config.lease_note_ms),
            renewals: Vec::new(),
            retention,
            holds_proposals: false,
            received: None,
            send_later: None,
            transfers: Transfers::default(),
            settling: 0,
            binding: BTreeSet::new(),
            notified_removed: BTreeSet::new(),
            removal_reports: PeerReports::default(),
            led: None,
            voting: config.voting,
            removed: false,
            parting: None,
            stopped: false,
            config,
        };
        member.learn(&restored.machine);
        member.removed = member.membership.is_removed(id);
        Ok(member)
    }

    /// This member's ID.
    pub fn id(&self) -> MemberId {
        self.config.raft.id
    }

    /// The membership as applied.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Its commit index and its term, as in its status.
    pub fn commit(&self) -> (Index, Term) {
        (self.raft.commit(), self.raft.term())
    }

    /// How many proposals it has sent to a leader again, or appended itself, because an entry of a
    /// later term was applied without them.
    pub fn repeated(&self) -> u64 {
        self.proposals.repeated()
    }

    /// Servers of which it remembers anything.
    #[cfg(test)]
    pub(in crate::node) fn remembered(&self) -> BTreeSet<MemberId> {
        let mut all = self.contacts.connected();
        all.extend(&self.takers);
        all.extend(self.pins.keys().chain(self.disks.keys()));
        all
    }

    /// The status of this member. Cheap enough for each tick.
    pub fn status(&self) -> MemberStatus {
        let status = self.raft.status();
        MemberStatus {
            removed: self.removed,
            voting: self.voting,
            leader_with_quorum: self.leads() && self.hears_quorum(&status),
            led: self.is_led(),
            peers: self.contacts.peers().clone(),
            unsynced_ms: self.contacts.own_unsynced_ms(),
            checkpoint: self.retention.newest(),
            proposals_waiting: self.proposals.len(),
            reads_waiting: self.reads.len() + self.lease_calls.len(),
            raft: status,
        }
    }

    /// Handles one input, at a time of the owner's monotonic clock, and returns the effects. They
    /// are to be carried out in order where they concern the same thing.
    pub fn handle(&mut self, now_ms: u64, input: Input, effects: &mut Vec<Effect>) {
        if self.stopped {
            return;
        }
        self.now = self.now.max(now_ms);
        let outcome = self.take(input, effects).and_then(|()| self.pump(effects));
        self.stop_on(outcome, effects);
    }

    /// Whether proposals are kept back for now, so that more of them are moved on together; what was kept back is moved
    /// on at once when they are not any more. For as short a time as a client can wait without noticing.
    pub fn hold_proposals(&mut self, held: bool, effects: &mut Vec<Effect>) {
        let released = std::mem::replace(&mut self.holds_proposals, held) && !held;
        if !released || self.stopped {
            return;
        }
        let outcome = self.pump(effects);
        self.stop_on(outcome, effects);
    }

    /// Ends the member for good if it has a reason to.
    fn stop_on(&mut self, outcome: Result<(), StopReason>, effects: &mut Vec<Effect>) {
        if let Err(reason) = outcome {
            self.stopped = true;
            effects.push(Effect::Stop(reason));
        }
    }

    /// Proposals that wait to be appended or forwarded.
    pub fn held_proposals(&self) -> usize {
        self.proposals.waiting()
    }

    /// Whether a round of reads is under way: further reads wait for the next one.
    pub fn reads(&self) -> bool {
        self.reads.is_under_way()
    }

    /// When a round of reads will have waited too long for those that it asked, by the owner's clock: it should say
    /// then that [time passed](Self::pass). A tick does as well.
    pub fn reads_late_at(&self) -> Option<u64> {
        self.asked.late_at()
    }

    /// Time passed, and nothing else happened.
    pub fn pass(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.stopped {
            return;
        }
        self.now = self.now.max(now_ms);
        let outcome = self.pump(effects);
        self.stop_on(outcome, effects);
    }

    /// Whether something waits for entries to be applied: reads, the leases of a new leader, or further entries, for
    /// room.
    pub fn awaits_applied(&self) -> bool {
        let leases_wait = self.leads() && !self.lessor.leads();
        self.reads.await_applied() || leases_wait || self.raft.has_more_to_apply()
    }

    fn take(&mut self, input: Input, effects: &mut Vec<Effect>) -> Result<(), StopReason> {
        match input {
            Input::Tick => self.tick(effects),
            Input::Peer { from, message } => self.hear(from, message, effects),
            Input::PeerDisk { id, disk_uuid } => {
                self.meet(id, disk_uuid, effects);
                Ok(())
            }
            Input::Propose(proposals) => {
                self.propose(proposals, effects);
                Ok(())
            }
            Input::ChangeMembership { request, command } => {
                self.propose_change(request, command, effects);
                Ok(())
            }
            Input::Read(ids) => {
                self.read(ids, effects);
                Ok(())
            }
            Input::Lease(calls) => {
                self.lease(calls, effects);
                Ok(())
            }
            Input::Cancel(awaited) => {
                self.cancel(awaited, effects);
                Ok(())
            }
            Input::Transfer { id, to } => {
                self.transfer(id, to, effects);
                Ok(())
            }
            Input::Persisted(mark) => self.tolerate(effects, |raft| raft.persisted(mark)),
            Input::Applied(report) => self.applied(&report, effects),
            Input::LogRead { ticket, entries } => {
                let entries = entries.map_err(StopReason::Log)?;
                self.tolerate(effects, |raft| raft.log_read(ticket, entries))
            }
            Input::CheckpointDone(info) => {
                self.checkpoint_done(info, effects);
                Ok(())
            }
            Input::WantCheckpoint => {
                let newer = self.applied_index() > self.retention.newest().index;
                if newer && self.retention.take(self.now) {
                    effects.push(Effect::TakeCheckpoint);
                }
                Ok(())
            }
            Input::RenewCheckpoint => {
                let (applied, newest) = (self.applied_index(), self.retention.newest().index);
                let renews = mutant!(RenewsNewer => applied > newest, else applied > 0);
                if renews && self.retention.take(self.now) {
                    effects.push(Effect::TakeCheckpoint);
                }
                Ok(())
            }
            Input::SnapshotReceived {
                from,
                term,
                checkpoint,
                meta,
            } => {
                self.received = Some(checkpoint);
                let message = Message::install_snapshot(from, self.id(), term, meta);
                self.step(message, effects)
            }
            Input::Installed(report) => self.installed(&report, effects),
            Input::SnapshotSent { to, ok } => {
                let index = self.retention.sent().filter(|_| ok);
                self.retention.sending(None);
                self.raft.report_snapshot(to, index);
                Ok(())
            }
            Input::Unreachable(id) => {
                self.raft.report_unreachable(id);
                Ok(())
            }
            Input::Unsent { to, message } => {
                self.unsent(to, &message, effects);
                Ok(())
            }
            Input::Forget(id) => {
                self.forget_stranger(id);
                Ok(())
            }
            Input::Unlinked(id) => {
                self.contacts.lose(id);
                Ok(())
            }
            Input::Gone(id) => match self.voting {
                true => self.tolerate(effects, |raft| raft.report_gone(id).map(|_| ())),
                false => Ok(()),
            },
            Input::AllowVotes => {
                self.voting = true;
                Ok(())
            }
        }
    }

    fn cancel(&mut self, awaited: Vec<Awaited>, effects: &mut Vec<Effect>) {
        let mut reads = BTreeSet::new();
        for one in awaited {
            match one {
                Awaited::Request(request) => self.withdraw(request, effects),
                Awaited::Read(id) => {
                    reads.insert(id);
                }
                Awaited::Lease(id) => {
                    self.lease_calls.remove(&id);
                }
            }
        }
        self.reads.cancel(&reads);
    }

    /// Repeats until the core has no more output.
    fn pump(&mut self, effects: &mut Vec<Effect>) -> Result<(), StopReason> {
        loop {
            if !self.holds_proposals {
                self.move_proposals(effects);
            }
            if let Some(round) = self.reads.begin(self.now) {
                self.raft.read_index(round);
            }
            self.raft.hold_applying(!self.retention.may_apply());
            if self.raft.has_ready() {
                let ready = self.raft.take_ready();
                self.process_ready(ready, effects);
                continue;
            }
            // May propose in its turn.
            self.answer_reads(effects);
            if self.asked.is_late(self.raft.unanswered_reads(), self.now) {
                self.raft.ask_all_for_reads();
            }
            if !self.raft.has_ready() {
                return Ok(());
            }
        }
    }

    fn process_ready(&mut self, ready: Ready, effects: &mut Vec<Effect>) {
        if let Some(change) = ready.role_change {
            self.role_changed(change, effects);
        }
        if let Some(batch) = ready.batch {
            effects.push(Effect::Write(batch));
        }
        for message in ready.messages {
            self.send(message.to, PeerBody::Raft(message), effects);
        }
        if !ready.committed.is_empty() {
            let places = ready.committed.iter().map(raft::Entry::position);
            self.proposals.committed(self.now, places);
            self.retention.note(&ready.committed);
            effects.push(Effect::Apply(ready.committed));
        }
        for state in ready.read_states {
            self.reads.confirm(state.request, state.index);
        }
        for failure in ready.read_failures {
            self.reads.fail(failure.request);
        }
        effects.extend(ready.log_reads.into_iter().map(Effect::ReadLog));
        for send in ready.snapshot_sends {
            self.send_checkpoint(send, effects);
        }
        if let Some(meta) = ready.install {
            effects.push(Effect::InstallCheckpoint(meta));
        }
    }

    /// Runs a call of the core whose harmless errors only need a notice.
    fn tolerate(
        &mut self,
        effects: &mut Vec<Effect>,
        call: impl FnOnce(&mut Raft) -> Result<(), raft::Error>,
    ) -> Result<(), StopReason> {
        match call(&mut self.raft) {
            Err(error) if error.is_fatal() => Err(error.into()),
            Err(error) => {
                effects.push(Effect::Notice(error.to_string()));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn step(&mut self, message: Message, effects: &mut Vec<Effect>) -> Result<(), StopReason> {
        let own = self.raft.term();
        let base = match self.is_stranger(message.from) {
            true => own,
            false => own.max(TERM_OF_MEMBERS),
        };
        if message.term > base.saturating_add(TERM_LEAP) {
            effects.push(Effect::Notice(format!(
                "member {:x} speaks of term {}, which no election has led to: this member is in {}",
                message.from,
                message.term,
                self.raft.term()
            )));
            return Ok(());
        }
        self.tolerate(effects, |raft| raft.step(message).map(|_| ()))
    }

    fn role_changed(&mut self, change: RoleChange, effects: &mut Vec<Effect>) {
        let led = self.leads();
        let elsewhere = (change.term, change.leader) != (self.role.term, self.role.leader);
        self.role = change;
        self.distrusted = None;
        if change.leader.is_some() {
            self.cold_start.end();
        }
        if self.leads() && (!led || elsewhere) {
            self.contacts.lead(self.now);
            self.lessor.follow();
            if mutant!(LeasesOfLag) {
                self.lessor.lead(self.now, self.spans().election);
            }
            self.binding.clear();
            self.settling = 0;
        } else if led && !self.leads() {
            self.contacts.follow();
            self.lessor.follow();
            // Their members ask the new leader again.
            self.renewals.clear();
            self.send_later = None;
        }
        if elsewhere && mutant!(RepeatUnapplied) {
            self.proposals.applied_through(self.now, change.term);
        }
        if elsewhere {
            self.reads.leader_changed();
            for (_, sent) in self.lease_calls.values_mut() {
                *sent = None;
            }
            self.move_lease_calls(effects);
        }
        self.transfers.leader_is(self.id(), change, effects);
        effects.push(Effect::Role(change));
        self.check_removed(effects);
    }

    fn leads(&self) -> bool {
        self.role.role == Role::Leader
    }

    /// The leader to send to: known, another member, and on a disk that its hello named.
    fn leader_elsewhere(&self) -> Option<MemberId> {
        let leader = self.role.leader.filter(|leader| *leader != self.id())?;
        (self.disks.contains_key(&leader) && self.distrusted != Some(leader)).then_some(leader)
    }

    fn spans(&self) -> Spans {
        let tick = self.config.tick_ms;
        Spans {
            tick,
            heartbeat: tick * u64::from(self.config.raft.heartbeat_ticks),
            election: tick * u64::from(self.config.raft.election_ticks),
            health: self.config.health_ms,
        }
    }

    fn hears_quorum(&self, status: &Status) -> bool {
        let within = self.spans().election;
        let peers = self.contacts.peers();
        let heard = status.configuration.voters.iter().filter(|id| {
            let age = peers.get(id).and_then(|peer| peer.last_ack_age_ms);
            **id == status.id || age.is_some_and(|age| age <= within)
        });
        heard.count() >= status.configuration.quorum()
    }

    fn send(&self, to: MemberId, body: PeerBody, effects: &mut Vec<Effect>) -> bool {
        // Nothing is sent to a member whose disk is not known: it could run on the wrong one.
        let known = self.disks.contains_key(&to);
        if known {
            let message = PeerMessage::from(body);
            effects.push(Effect::Send { to, message });
        }
        known
    }

    fn applied(&mut self, report: &Report, effects: &mut Vec<Effect>) -> Result<(), StopReason> {
        // The core requires a configuration entry to be the last of those reported at once.
        for (index, change) in report.configurations.iter().copied() {
            if let Some(change) = change {
                self.tolerate(effects, |raft| {
                    raft.apply_configuration(index, change).map(|_| ())
                })?;
            }
            self.tolerate(effects, |raft| raft.applied(index))?;
        }
        self.learn(report);
        // An entry of its own term is behind all that earlier leaders have made.
        let caught_up = self.leads() && report.term == self.role.term;
        if caught_up && !self.lessor.leads() {
            self.lessor.lead(self.now, self.spans().election);
        }
        self.proposals.applied_through(self.now, report.term);
        self.tolerate(effects, |raft| raft.applied(report.index))?;
        if !self.renewals.is_empty() && !report.leases.is_empty() {
            let waited = std::mem::take(&mut self.renewals);
            self.answer_leases(waited, effects);
        }
        self.settle();
        if self.retention.due(self.now, report.index) {
            effects.push(Effect::TakeCheckpoint);
        }
        self.check_removed(effects);
        Ok(())
    }

    /// Takes over the machine's report.
    fn learn(&mut self, report: &Report) {
        for counter in &report.requests {
            self.proposals
                .applied(self.config.raft.boot_nonce, *counter);
        }
        for event in &report.leases {
            self.lessor.note(self.now, event);
        }
        if let Some(membership) = &report.membership {
            self.membership = Arc::clone(membership);
            let membership = &self.membership;
            self.disks.retain(|id, disk| {
                membership
                    .expected_disk(*id)
                    .is_none_or(|bound| bound == disk)
            });
            let known = &membership.members;
            self.contacts
                .keep(|id| known.is_empty() || known.contains_key(&id));
        }
    }

    /// A leader that removed itself leads until the others know of it for good.
    fn check_removed(&mut self, effects: &mut Vec<Effect>) {
        if !self.removed && !self.leads() && self.membership.is_removed(self.id()) {
            self.become_removed(effects);
        }
        self.part(effects);
    }

    /// From here on it only answers messages, so that the others can settle without it.
    fn become_removed(&mut self, effects: &mut Vec<Effect>) {
        if self.removed {
            return;
        }
        self.removed = true;
        let error = ProposalError::NotAMember;
        for request in self.proposals.give_up() {
            let error = error.clone();
            effects.push(Effect::ProposalFailed { request, error });
        }
        self.refuse_reads(RequestRefusal::NotAMember, effects);
        self.parting = Some(self.now);
        self.part(effects);
    }

    /// Reports that it was removed, after which its disk may be deleted. If it led until the others
    /// knew of the removal for good, it reports at once. If not, they may need its vote, or learn
    /// from it that the removal is committed, so it helps them for one election timeout first.
    fn part(&mut self, effects: &mut Vec<Effect>) {
        let Some(since) = self.parting else { return };
        let settled = self.raft.left_in_order() || mutant!(PartsAtOnce);
        if settled || self.now >= since + self.spans().election {
            self.parting = None;
            effects.push(Effect::Removed { settled });
        }
    }

    fn installed(&mut self, report: &Report, effects: &mut Vec<Effect>) -> Result<(), StopReason> {
        self.learn(report);
        let place = raft::Position {
            index: report.index,
            term: report.term,
        };
        self.proposals.jumped(self.now, place);
        let info = self
            .received
            .take()
            .filter(|info| info.index == report.index);
        self.retention.installed(info.unwrap_or(CheckpointInfo {
            index: report.index,
            term: report.term,
            bytes: 0,
        }));
        let meta = raft::SnapshotMeta {
            index: report.index,
            term: report.term,
            configuration: self.membership.configuration(),
        };
        self.tolerate(effects, |raft| raft.snapshot_installed(&meta))?;
        self.check_removed(effects);
        Ok(())
    }

    fn checkpoint_done(&mut self, info: Option<CheckpointInfo>, effects: &mut Vec<Effect>) {
        let retry = self.spans().election;
        self.retention.done(self.now, retry, info);
        if let Some(send) = self.send_later.take() {
            self.send_checkpoint(send, effects);
        }
        self.drop_log(effects);
    }

    fn send_checkpoint(&mut self, send: raft::SnapshotSend, effects: &mut Vec<Effect>) {
        let newest = self.retention.newest().index;
        if newest < send.at_least || newest == 0 {
            self.send_later = Some(send);
            if self.retention.take(self.now) {
                effects.push(Effect::TakeCheckpoint);
            }
            return;
        }
        if !self.disks.contains_key(&send.to) {
            self.raft.report_snapshot(send.to, None);
            return;
        }
        self.retention.sending(Some(newest));
        effects.push(Effect::SendCheckpoint {
            to: send.to,
            term: send.term,
            index: newest,
        });
    }

    /// Requests to drop the part of the log that no member needs any more.
    fn drop_log(&mut self, effects: &mut Vec<Effect>) {
        let active = self.contacts.peers().values();
        let election = self.spans().election;
        let active = active.filter(|p| p.last_ack_age_ms.is_some_and(|age| age <= election));
        let needed = active.map(|peer| peer.matched + 1).min();
        if let Some(before) = self.retention.droppable(needed) {
            match self.raft.compact(before - 1) {
                Ok(()) => effects.push(Effect::DropLog { before }),
                Err(error) => effects.push(Effect::Notice(error.to_string())),
            }
        }
    }

    /// The current term, for messages that this member sends outside the core.
    fn term(&self) -> Term {
        self.role.term
    }

    fn applied_index(&self) -> Index {
        self.raft.applied_index()
    }
}
