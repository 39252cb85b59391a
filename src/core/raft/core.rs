//! The core's state and its front door: start, tick, step. What a message or a tick leads to
//! is in the files named after the parts of the protocol.

use std::collections::BTreeMap;

use crate::mutants::mutant;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::config::{Config, Restored};
use super::election::Gone;
use super::error::Error;
use super::log::Log;
use super::membership::Install;
use super::message::{AppendReply, Body, Message};
use super::output::Outbox;
use super::progress::Progress;
use super::read_only::ReadOnly;
use super::ready::{Role, RoleChange};
use super::replication::Uncommitted;
use super::status::Status;
use super::transfer::Transfer;
use super::types::{Configuration, EntryKind, HardState, Index, MemberId, Term};

/// One member's consensus. See the head of [`crate::raft`] for the caller's duties.
#[derive(Debug)]
pub struct Raft {
    pub(super) config: Config,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) ticks: u64,
    pub(super) term: Term,
    pub(super) vote: Option<MemberId>,
    pub(super) role: Role,
    pub(super) leader: Option<MemberId>,
    /// The last leader, where its process was reported as gone and no leader has been heard since.
    pub(super) gone: Option<Gone>,
    pub(super) log: Log,
    pub(super) configuration: Configuration,
    /// The index up to which the configuration is known to be right: the last change applied,
    /// or the snapshot that it came with.
    pub(super) configuration_index: Index,
    /// A received snapshot that is not installed yet.
    pub(super) install: Option<Install>,
    /// At a leader only: every member, itself included.
    pub(super) progress: BTreeMap<MemberId, Progress>,
    pub(super) votes: BTreeMap<MemberId, bool>,
    /// Ticks since this member last received a message of its leader, granted a vote or campaigned; at a leader since
    /// its last quorum check.
    pub(super) election_elapsed: u32,
    pub(super) heartbeat_elapsed: u32,
    pub(super) election_timeout: u32,
    pub(super) transfer: Option<Transfer>,
    /// At a leader that has been removed: the entry whose commit ends its leadership.
    pub(super) leaving: Option<Index>,
    /// It removed itself, led until a majority of the others knew for good, and then left.
    pub(super) left_in_order: bool,
    /// The leader asked for a campaign that waits for a change of membership to be applied.
    pub(super) campaign_when_applied: bool,
    /// The member that a snapshot is being sent to; one at a time.
    pub(super) snapshot_to: Option<MemberId>,
    pub(super) uncommitted: Uncommitted,
    pub(super) reads: ReadOnly,
    pub(super) outbox: Outbox,
}

/// What became of a message that was not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// It was acted on.
    Taken,
    /// It was dropped, as required by the protocol, for the given reason.
    Ignored(&'static str),
}

impl Raft {
    /// A core that starts from what its disk gave back.
    pub fn new(config: Config, restored: Restored) -> Result<Self, Error> {
        config.check()?;
        let HardState { term, vote, .. } = restored.hard_state;
        let snapshot = restored.snapshot.clone();
        let log = Log::restore(restored, config.cache_bytes)?;
        // A snapshot may come to the disk before the term that came with it.
        let raised = term < snapshot.term && log.last() == snapshot.index;
        let (term, vote) = if raised {
            (snapshot.term, 0)
        } else {
            (term, vote)
        };
        if log.last_term() > term {
            return Err(Error::Restored(format!(
                "the log ends in term {}, the hard state is of term {term}",
                log.last_term()
            )));
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(
            config.seed ^ config.id.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        let mut raft = Self {
            rng,
            ticks: 0,
            term,
            vote: (vote != 0).then_some(vote),
            role: Role::Follower,
            leader: None,
            gone: None,
            configuration: snapshot.configuration,
            configuration_index: snapshot.index,
            install: None,
            progress: BTreeMap::new(),
            votes: BTreeMap::new(),
            election_elapsed: 0,
            heartbeat_elapsed: 0,
            election_timeout: 0,
            transfer: None,
            leaving: None,
            left_in_order: false,
            campaign_when_applied: false,
            snapshot_to: None,
            uncommitted: Uncommitted::default(),
            reads: ReadOnly::new(config.boot_nonce, config.max_pending_reads),
            outbox: Outbox::default(),
            config,
            log,
        };
        let state = raft.hard_state();
        raft.outbox.restored(state, raft.role_change());
        if raised {
            raft.outbox.force_hard_state();
        }
        raft.draw_election_timeout();
        // What is committed and not applied comes out at once.
        raft.outbox.poke();
        Ok(raft)
    }

    /// One tick of the caller's clock has passed.
    pub fn tick(&mut self) -> Result<(), Error> {
        self.ticks += 1;
        self.expire_reads();
        if self.ticks.is_multiple_of(self.config.election_ticks.into()) {
            self.log.mark_applied();
        }
        self.log
            .forget_matched(self.matched_by_all(), self.config.matched_cache_bytes);
        if self.role == Role::Leader {
            self.tick_leader()
        } else {
            self.tick_election()
        }
    }

    /// A message from another member, or of this member to itself about an installed
    /// snapshot. An error that is not fatal means that it was dropped.
    pub fn step(&mut self, message: Message) -> Result<Stepped, Error> {
        let Checked { from, term, body } = self.checked(message)?;
        if term < self.term {
            return Ok(self.step_old(from, body));
        }
        if term > self.term && body.is_answer() && !self.configuration.contains(from) {
            // The request was sent while it was a member. A leader that followed its term would step down for a server
            // that is no longer needed.
            return Ok(Stepped::Ignored(
                "the answer of one that is no member any more",
            ));
        }
        if term > self.term
            && let Some(reason) = self.meet_newer_term(from, term, &body)
        {
            return Ok(Stepped::Ignored(reason));
        }
        match body {
            Body::PreVote(request) => self.on_vote_request(from, term, request, true),
            Body::Vote(request) => self.on_vote_request(from, term, request, false),
            Body::PreVoteReply(reply) if reply.granted => self.on_granted_pre_vote(from, term),
            Body::PreVoteReply(reply) => self.on_vote_reply(from, reply, true),
            Body::VoteReply(reply) => self.on_vote_reply(from, reply, false),
            Body::Append(append) => {
                self.hear_leader(from)?;
                self.on_append(from, append)
            }
            Body::Heartbeat(heartbeat) => {
                self.hear_leader(from)?;
                self.on_heartbeat(from, heartbeat)
            }
            Body::InstallSnapshot(meta) => {
                self.hear_leader(from)?;
                Ok(self.on_snapshot(from, meta))
            }
            Body::AppendReply(reply) => self.on_append_reply(from, reply),
            Body::HeartbeatReply(reply) => self.on_heartbeat_reply(from, reply),
            Body::TimeoutNow(_) => self.on_timeout_now(from),
            Body::ReadIndex(question) => Ok(self.on_read_question(from, question.id)),
            Body::ReadIndexReply(answer) => Ok(self.on_read_answer(from, answer)),
        }
    }

    /// Refuses what no correct member sends, before any of it counts.
    fn checked(&self, message: Message) -> Result<Checked, Error> {
        let Message {
            from,
            to,
            term,
            body,
        } = message;
        let bad = |reason| Err(Error::BadMessage { from, reason });
        if to != self.config.id {
            return bad("it is addressed to another member");
        }
        if from == 0 || from == self.config.id {
            return bad("its sender is not another member");
        }
        if term == 0 || term == Term::MAX {
            return bad("its term is out of range");
        }
        let Some(body) = body else {
            return bad("it is of an unknown kind");
        };
        match &body {
            Body::Append(append) => {
                if append.prev_term > term || append.prev_index > Index::MAX / 2 {
                    return bad("its previous entry is out of range");
                }
                let mut before = append.prev_term;
                for (entry, index) in append.entries.iter().zip(append.prev_index + 1..) {
                    if entry.index != index {
                        return bad("its entries have gaps");
                    }
                    if entry.term < before || entry.term > term {
                        return bad("its entries' terms are out of order");
                    }
                    if EntryKind::try_from(entry.kind).is_err() {
                        let (index, kind) = (entry.index, entry.kind);
                        return Err(Error::UnknownEntryKind { index, kind });
                    }
                    before = entry.term;
                }
            }
            Body::InstallSnapshot(meta) => {
                if meta.index == 0 || meta.term == 0 || meta.term > term {
                    return bad("its snapshot's position is out of range");
                }
                if meta.configuration.voters.is_empty() {
                    return bad("its snapshot has no voters");
                }
            }
            _ => {}
        }
        Ok(Checked { from, term, body })
    }

    /// A message of an older term. Most are dropped; some senders must be informed, or they would stay in their term
    /// forever.
    fn step_old(&mut self, from: MemberId, body: Body) -> Stepped {
        match body {
            Body::Append(_) | Body::Heartbeat(_)
                if self.config.check_quorum || self.config.pre_vote =>
            {
                // A leader that was cut off from the quorum: our higher term deposes it. With
                // the lease on votes and pre-vote, no vote request would ever do so.
                self.send(from, Body::AppendReply(AppendReply::default()));
                Stepped::Ignored("old term, answered")
            }
            Body::PreVote(request) => {
                let reply = self.vote_reply(false, request);
                self.send(from, Body::PreVoteReply(reply));
                Stepped::Ignored("old term, answered")
            }
            // The content of a snapshot is committed, whoever leads now.
            Body::InstallSnapshot(meta) => self.on_snapshot(from, meta),
            _ => Stepped::Ignored("old term"),
        }
    }

    /// A message of a newer term: follow it (paper §5.1), unless it is a mere question or a
    /// campaign against a leader that is well. Gives the reason to drop it, if any.
    fn meet_newer_term(&mut self, from: MemberId, term: Term, body: &Body) -> Option<&'static str> {
        match body {
            Body::PreVote(request) | Body::Vote(request)
                if !request.transfer
                    && self.config.check_quorum
                    && self.leader.is_some()
                    && self.gone.is_none()
                    && !mutant!(VoteAgainstLeader)
                    && self.election_elapsed < self.config.election_ticks =>
            {
                return Some("a leader was heard within the election timeout");
            }
            Body::PreVote(_) => {}
            Body::PreVoteReply(reply) if reply.granted => {}
            Body::Append(_) | Body::Heartbeat(_) | Body::InstallSnapshot(_) => {
                self.become_follower(term, Some(from));
            }
            _ => self.become_follower(term, None),
        }
        None
    }

    /// A message of the current term that only its leader sends.
    fn hear_leader(&mut self, from: MemberId) -> Result<(), Error> {
        let two = self.role == Role::Leader || self.leader.is_some_and(|leader| leader != from);
        if two {
            return Err(Error::BadMessage {
                from,
                reason: "this term has another leader",
            });
        }
        if self.role != Role::Follower {
            self.become_follower(self.term, Some(from));
        }
        self.leader = Some(from);
        if !mutant!(GoneForEver) {
            self.gone = None;
        }
        self.election_elapsed = 0;
        Ok(())
    }

    pub(super) fn hard_state(&self) -> HardState {
        HardState {
            term: self.term,
            vote: self.vote.unwrap_or(0),
            commit: self.log.commit(),
        }
    }

    pub(super) fn role_change(&self) -> RoleChange {
        RoleChange {
            role: self.role,
            term: self.term,
            leader: self.leader,
        }
    }

    /// The status of this member. Copies the progress of all members.
    pub fn status(&self) -> Status {
        Status {
            id: self.config.id,
            role: self.role,
            term: self.term,
            vote: self.vote,
            leader: self.leader,
            transferring: self.transfer.as_ref().map(|transfer| transfer.to),
            commit: self.log.commit(),
            applied: self.log.applied(),
            last_index: self.log.last(),
            last_term: self.log.last_term(),
            durable_index: self.log.durable(),
            floor_index: self.log.floor(),
            configuration: self.configuration.clone(),
            ticks: self.ticks,
            reads_ready: self.role == Role::Leader && self.committed_in_term(),
            progress: self
                .progress
                .iter()
                .map(|(id, it)| (*id, it.status()))
                .collect(),
        }
    }

    /// This member.
    pub fn id(&self) -> MemberId {
        self.config.id
    }

    /// The latest term seen.
    pub fn term(&self) -> Term {
        self.term
    }

    /// What this member is in its term.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The leader of the term, where known.
    pub fn leader(&self) -> Option<MemberId> {
        self.leader
    }

    /// The commit index.
    pub fn commit(&self) -> Index {
        self.log.commit()
    }

    /// Whether committed entries wait for room among those that are being applied.
    pub fn has_more_to_apply(&self) -> bool {
        let (from, to) = self.log.applicable();
        from < to
    }

    /// The last index reported as applied.
    pub fn applied_index(&self) -> Index {
        self.log.applied()
    }

    /// The last index of the log.
    pub fn last_index(&self) -> Index {
        self.log.last()
    }

    /// The term of the entry at `index`, if the log or its floor still has it.
    pub fn term_at(&self, index: Index) -> Option<Term> {
        self.log.term(index)
    }

    /// The applied configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }
}

/// A validated message.
struct Checked {
    from: MemberId,
    term: Term,
    body: Body,
}
