//! Elections: timeouts, pre-votes, votes and the resulting roles (paper §5.2, §5.4.1,
//! thesis §6.2 and §9.6).

use std::ops::Bound;

use crate::mutants::mutant;
use rand_xoshiro::rand_core::Rng;

use super::core::{Raft, Stepped};
use super::error::Error;
use super::message::{Body, VoteReply, VoteRequest};
use super::progress::Progress;
use super::quorum::{self, VoteResult};
use super::ready::{ReadFailureReason, Role};
use super::replication::Uncommitted;
use super::status::ProgressState;
use super::types::{Entry, MemberId, Term};

/// What a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Campaign {
    /// Ask first; raises no term.
    Pre,
    /// For real.
    Real,
    /// A real election at the leader's request (TimeoutNow): the lease on votes does not apply.
    Transfer,
}

/// A leader whose process was reported as gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    leader: MemberId,
    reports: usize,
}

impl Raft {
    /// Campaigns at once, with a pre-vote first where that is on. Does nothing at a leader or
    /// at a member that may not campaign.
    pub fn campaign(&mut self) -> Result<Stepped, Error> {
        let kind = if self.config.pre_vote && !mutant!(NoPreVote) {
            Campaign::Pre
        } else {
            Campaign::Real
        };
        self.start_campaign(kind)
    }

    /// The caller's word that the process of another member ended: that end of an established connection was closed,
    /// and its host refuses new ones. It counts about the leader alone, and until the next message of a leader.
    ///
    /// From the first report on this member may vote although it heard the leader within the election timeout. A later
    /// one makes it campaign, unless it does already, has voted for another one since, or heard its leader within a
    /// heartbeat interval: the second one at the voter with the lowest ID, the third one at the next, and so on, since
    /// all of them get theirs in the same moments, and campaigns at once would split the votes. A turn is over before that where the next
    /// voter sees that the log of the one before is behind. The caller leaves a
    /// random time between reports that doubles, in which the other members get their first one and a leader that is well
    /// sends a heartbeat. A member with false reports does no harm: without those of a quorum there is no pre-vote, so
    /// without pre-vote no report is taken.
    pub fn report_gone(&mut self, id: MemberId) -> Result<Stepped, Error> {
        if !self.config.pre_vote {
            return Ok(Stepped::Ignored("no election without a pre-vote"));
        }
        let Some(gone) = self.gone.filter(|gone| gone.leader == id) else {
            return Ok(self.begin_reports(id));
        };
        // It may take longer than the pauses between reports: it ends by the election timeout.
        if self.role == Role::Candidate {
            return Ok(Stepped::Ignored("a campaign is under way"));
        }
        // The next heartbeat was not due yet.
        if self.leader == Some(id) && self.election_elapsed < self.config.heartbeat_ticks {
            return Ok(Stepped::Ignored("a leader was heard a moment ago"));
        }
        let reports = gone.reports + 1;
        self.gone = Some(Gone { reports, ..gone });
        if reports < 2 + self.voters_between(None, id) {
            return Ok(Stepped::Ignored("another voter campaigns first"));
        }
        self.start_campaign(Campaign::Pre)
    }

    fn begin_reports(&mut self, id: MemberId) -> Stepped {
        if self.leader != Some(id) {
            return Stepped::Ignored("not the leader");
        }
        self.gone = Some(Gone {
            leader: id,
            reports: 1,
        });
        Stepped::Taken
    }

    /// How many voters have their turn before this member, and after another one, by their IDs; the leader that is gone has none.
    fn voters_between(&self, after: Option<MemberId>, gone: MemberId) -> usize {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let turns = (after, Bound::Excluded(self.config.id));
        let voters = self.configuration.voters.range(turns);
        voters.filter(|id| **id != gone).count()
    }

    /// Whether another voter's turn after the end of the leader is over, and this member has the next one: the other one asked for a
    /// pre-vote, and does not get it because its log is behind.
    fn takes_the_turn_of(&self, from: MemberId, request: VoteRequest) -> bool {
        let behind = !self
            .log
            .is_up_to_date(request.last_term, request.last_index);
        let next =
            |gone: Gone| from < self.config.id && self.voters_between(Some(from), gone.leader) == 0;
        behind && self.role == Role::Follower && self.gone.is_some_and(next)
    }

    pub(super) fn tick_election(&mut self) -> Result<(), Error> {
        self.election_elapsed = self.election_elapsed.saturating_add(1);
        if self.election_elapsed >= self.election_timeout && self.may_campaign() {
            self.election_elapsed = 0;
            self.campaign()?;
        }
        Ok(())
    }

    pub(super) fn tick_leader(&mut self) -> Result<(), Error> {
        self.heartbeat_elapsed += 1;
        self.election_elapsed += 1;
        self.tick_transfer();
        if self.election_elapsed >= self.config.election_ticks {
            self.election_elapsed = 0;
            let checks = self.config.check_quorum && !mutant!(NoCheckQuorum);
            if checks && !self.quorum_is_active() {
                self.become_follower(self.term, None);
                return Ok(());
            }
        }
        if self.heartbeat_elapsed >= self.config.heartbeat_ticks {
            self.heartbeat_elapsed = 0;
            self.broadcast_heartbeat();
        }
        Ok(())
    }

    /// Whether a quorum responded since the last call. Resets the count.
    fn quorum_is_active(&mut self) -> bool {
        let own = self.config.id;
        let active = self
            .configuration
            .voters
            .iter()
            .filter(|id| **id == own || self.progress.get(id).is_some_and(|it| it.recent_active))
            .count();
        for (id, progress) in &mut self.progress {
            progress.recent_active = *id == own;
        }
        active >= self.configuration.quorum()
    }

    /// Only a voter whose log and state are complete campaigns; learners and removed members never do.
    fn may_campaign(&self) -> bool {
        let voter = self.configuration.voters.contains(&self.config.id);
        (voter || mutant!(LearnerCampaigns)) && self.install.is_none()
    }

    pub(super) fn start_campaign(&mut self, kind: Campaign) -> Result<Stepped, Error> {
        if self.role == Role::Leader {
            return Ok(Stepped::Ignored("leads already"));
        }
        if !self.may_campaign() {
            return Ok(Stepped::Ignored("not a voter"));
        }
        // The configuration determines the voters, so a committed change comes first.
        let change = self.log.unapplied_configuration();
        if change.is_some_and(|index| index <= self.log.commit()) {
            self.campaign_when_applied |= kind == Campaign::Transfer;
            return Ok(Stepped::Ignored(
                "a committed change of membership is not applied yet",
            ));
        }
        self.run_campaign(kind)?;
        Ok(Stepped::Taken)
    }

    fn run_campaign(&mut self, kind: Campaign) -> Result<(), Error> {
        let id = self.config.id;
        let request = VoteRequest {
            last_index: self.log.last(),
            last_term: self.log.last_term(),
            transfer: kind == Campaign::Transfer,
        };
        let others: Vec<MemberId> = self
            .configuration
            .members()
            .into_iter()
            .filter(|member| *member != id)
            .filter(|member| {
                self.configuration.voters.contains(member) || mutant!(CountLearnersVote)
            })
            .collect();
        if kind == Campaign::Pre {
            self.become_pre_candidate();
            for to in others {
                self.send_in_term(to, self.term + 1, Body::PreVote(request));
            }
            return self.count_vote(id, true);
        }
        self.become_candidate();
        for to in others {
            // Held until term and own vote are durable. Otherwise a crash could lead to a
            // second campaign in the same term, and both might win.
            self.send_when_durable(to, Body::Vote(request));
        }
        // The own vote counts from `persisted` on.
        self.outbox.poke();
        Ok(())
    }

    /// Counts a vote for this candidate and acts on the outcome.
    pub(super) fn count_vote(&mut self, from: MemberId, granted: bool) -> Result<(), Error> {
        self.votes.entry(from).or_insert(granted);
        match quorum::vote_result(&self.configuration.voters, &self.votes) {
            VoteResult::Pending => Ok(()),
            VoteResult::Lost => {
                self.become_follower(self.term, None);
                Ok(())
            }
            VoteResult::Won if self.role == Role::PreCandidate => self.run_campaign(Campaign::Real),
            VoteResult::Won => self.become_leader(),
        }
    }

    pub(super) fn on_vote_reply(
        &mut self,
        from: MemberId,
        reply: VoteReply,
        pre: bool,
    ) -> Result<Stepped, Error> {
        self.learn_commit(reply)?;
        let asking = if pre {
            Role::PreCandidate
        } else {
            Role::Candidate
        };
        if self.role != asking {
            return Ok(Stepped::Ignored("no such campaign"));
        }
        self.count_vote(from, reply.granted)?;
        Ok(Stepped::Taken)
    }

    /// A granted pre-vote response carries the requested term, which is ours plus one; any other belongs to another
    /// campaign.
    pub(super) fn on_granted_pre_vote(
        &mut self,
        from: MemberId,
        term: Term,
    ) -> Result<Stepped, Error> {
        if self.role != Role::PreCandidate || term != self.term + 1 {
            return Ok(Stepped::Ignored("no such campaign"));
        }
        self.count_vote(from, true)?;
        Ok(Stepped::Taken)
    }

    /// A request for a vote in `term`, which is ours or newer. Learners answer too: the
    /// candidate may know of a promotion that has not been applied here yet.
    ///
    /// So do removed members: the candidate may not have learned that their removal is committed, and may not be able
    /// to win without them. They must not vote for a log that ends before theirs, because a configuration is in force
    /// once applied, and the entries after the removal may have been committed with their help. But the refusal carries
    /// that the removal is committed, and then the candidate no longer needs the vote.
    pub(super) fn on_vote_request(
        &mut self,
        from: MemberId,
        term: Term,
        request: VoteRequest,
        pre: bool,
    ) -> Result<Stepped, Error> {
        let free = self.vote == Some(from)
            || (self.vote.is_none() && self.leader.is_none())
            || (pre && term > self.term)
            || mutant!(VoteTwice);
        let granted = free
            && self
                .log
                .is_up_to_date(request.last_term, request.last_index);
        let reply = self.vote_reply(granted, request);
        match (pre, granted) {
            (true, true) => {
                self.send_in_term(from, term, Body::PreVoteReply(reply));
            }
            (true, false) => {
                self.send(from, Body::PreVoteReply(reply));
                if self.takes_the_turn_of(from, request) {
                    self.start_campaign(Campaign::Pre)?;
                }
            }
            (false, _) => {
                if granted {
                    self.vote = Some(from);
                    self.election_elapsed = 0;
                    // Who has the vote is waited for as after any other.
                    self.gone = None;
                }
                // Held until the vote is durable (paper figure 2).
                if mutant!(VoteBeforeFsync) {
                    self.send(from, Body::VoteReply(reply));
                } else {
                    self.send_when_durable(from, Body::VoteReply(reply));
                }
            }
        }
        Ok(Stepped::Taken)
    }

    /// The response to a vote request; a refusal carries the known commit index.
    pub(super) fn vote_reply(&self, granted: bool, request: VoteRequest) -> VoteReply {
        let commit = self.log.commit().min(request.last_index);
        match self.log.term(commit) {
            Some(commit_term) if !granted => VoteReply {
                granted,
                commit,
                commit_term,
            },
            _ => VoteReply {
                granted,
                ..VoteReply::default()
            },
        }
    }

    /// An entry known as committed by one member is committed for all that have the same entry.
    fn learn_commit(&mut self, reply: VoteReply) -> Result<(), Error> {
        let known = self.log.term(reply.commit) == Some(reply.commit_term);
        if self.role != Role::Leader && reply.commit > self.log.commit() && known {
            self.log.commit_to(reply.commit)?;
            self.outbox.poke();
        }
        Ok(())
    }

    fn reset(&mut self, term: Term) {
        if self.term != term {
            self.term = term;
            self.vote = None;
        }
        self.leader = None;
        self.election_elapsed = 0;
        self.heartbeat_elapsed = 0;
        self.draw_election_timeout();
        self.votes.clear();
        self.progress.clear();
        self.transfer = None;
        self.leaving = None;
        self.campaign_when_applied = false;
        self.snapshot_to = None;
        self.uncommitted = Uncommitted::default();
        self.outbox.forget_peer_reads();
        self.fail_reads(ReadFailureReason::LeaderChanged);
    }

    pub(super) fn become_follower(&mut self, term: Term, leader: Option<MemberId>) {
        self.reset(term);
        self.role = Role::Follower;
        self.leader = leader;
    }

    /// Neither term nor vote change: a pre-vote must leave no trace.
    fn become_pre_candidate(&mut self) {
        self.reset(self.term);
        self.role = Role::PreCandidate;
    }

    fn become_candidate(&mut self) {
        self.reset(self.term + 1);
        self.role = Role::Candidate;
        self.vote = Some(self.config.id);
    }

    fn become_leader(&mut self) -> Result<(), Error> {
        self.reset(self.term);
        self.role = Role::Leader;
        self.leader = Some(self.config.id);
        self.gone = None;
        let next = self.log.last() + 1;
        for id in self.configuration.members() {
            let learner = self.configuration.learners.contains(&id);
            let mut progress = Progress::new(&self.config, next, learner);
            if id == self.config.id {
                progress.state = ProgressState::Replicate;
                progress.matched = self.log.durable();
                progress.recent_active = true;
            }
            self.progress.insert(id, progress);
        }
        // An entry of its own term lets the leader commit what came before (paper §5.4.2).
        self.append_own(vec![Entry::normal(self.term, next, Vec::new())])
    }

    pub(super) fn draw_election_timeout(&mut self) {
        let spread = u64::from(self.config.election_ticks);
        let extra = self.rng.next_u64() % spread;
        // Below `election_ticks`, so it fits.
        self.election_timeout = self.config.election_ticks + extra as u32;
    }
}
