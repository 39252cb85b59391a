//! The path of proposals through a member: into the queue, from there into the log of this leader
//! or to another one, with an answer to the caller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::mutants::mutant;
use crate::node::admission::Facts;
use crate::node::api::{Effect, ProposalError};
use crate::node::change::{ChangeBody, MembershipCommand, MembershipError};
use crate::node::membership::Membership;
use crate::node::payload::{LogPayload, RequestId};
use crate::node::peer::{
    ForwardChange, ForwardedOutcome, ForwardedOutcomeKind, ForwardedOutcomes, PeerBody,
    PeerMessage, Proposal, TryAgain,
};
use crate::raft::{ChangeRefusal, MemberId, Position, ProposeError, Term};

use super::Member;
use super::proposals::{Payload, Waiting};

/// Bytes of proposals forwarded in one message or appended at once; a larger one is sent alone.
const FORWARD_BYTES: usize = 1 << 20;
/// Proposals appended at a time.
const APPEND_AT_ONCE: usize = 256;

/// Outcomes by the members that wait for them.
type Outcomes = BTreeMap<MemberId, Vec<ForwardedOutcome>>;

/// The result of moving one proposal on.
enum Moved {
    /// Into this leader's log.
    Appended(Position),
    /// Never.
    Refused(ProposalError),
    /// Not now.
    Stays,
}

impl Member {
    /// Clients' proposals.
    pub(super) fn propose(&mut self, proposals: Vec<Proposal>, out: &mut Vec<Effect>) {
        for Proposal { request, data } in proposals {
            self.take_in(request, Payload::Data(data), out);
        }
    }

    /// A membership change that a client of this member requests.
    pub(super) fn propose_change(
        &mut self,
        request: RequestId,
        command: MembershipCommand,
        out: &mut Vec<Effect>,
    ) {
        // Without a leader, the errors of etcd's strict check are returned at once, as in etcd,
        // instead of after a wait for a leader.
        let strict = self.config.strict_reconfig && self.role.leader.is_none();
        let adds_or_removes = matches!(
            command.body,
            Some(ChangeBody::Add(_) | ChangeBody::Remove(_))
        );
        if strict
            && adds_or_removes
            && let Err(error) = self.admit_leaderless(&command)
        {
            let error = ProposalError::Membership(error);
            out.push(Effect::ProposalFailed { request, error });
            return;
        }
        self.take_in(request, Payload::Change(command), out);
    }

    /// The checks of a change by a member that knows no leader. As in etcd it counts the members
    /// that it is connected to, so that an election in a healthy cluster causes no refusal.
    fn admit_leaderless(&self, command: &MembershipCommand) -> Result<(), MembershipError> {
        let in_contact = self.contacts.connected();
        let steady = self.contacts.long_connected(self.now, self.spans());
        match self.judge(command, in_contact, steady, &BTreeMap::new()) {
            // Other errors may come from a membership older than the leader's: the leader decides
            // those.
            Err(error @ (MembershipError::NotEnoughStarted | MembershipError::Unhealthy)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The caller no longer waits. What had not left this member is taken out of the queue, so that
    /// it can be refused for good.
    pub(super) fn withdraw(&mut self, request: RequestId, out: &mut Vec<Effect>) {
        let leaderless = self.role.leader.is_none();
        out.push(match self.proposals.withdraw(request) {
            true => Effect::ProposalFailed {
                request,
                error: ProposalError::Withdrawn { leaderless },
            },
            false => Effect::FateUnknown { request },
        });
    }

    fn take_in(&mut self, request: RequestId, payload: Payload, out: &mut Vec<Effect>) {
        let gap = match self.retention.may_apply() {
            true => self.raft.commit().saturating_sub(self.applied_index()),
            // It waits for the disk on purpose; what may wait meanwhile is bounded in bytes.
            false => 0,
        };
        let error = if self.removed {
            ProposalError::NotAMember
        } else if let Err(error) = self.check_size(&payload) {
            error
        } else if gap <= self.config.max_apply_gap
            && self.proposals.take_in(self.waiting(request, payload, None))
        {
            return;
        } else {
            ProposalError::Overloaded
        };
        out.push(Effect::ProposalFailed { request, error });
    }

    fn waiting(&self, request: RequestId, payload: Payload, term: Option<Term>) -> Waiting {
        Waiting {
            request,
            payload,
            since: self.now,
            term,
        }
    }

    /// Checked here, since the core refuses a whole batch if one entry is too large.
    fn check_size(&self, payload: &Payload) -> Result<(), ProposalError> {
        let limit = self.config.raft.max_entry_bytes;
        let size = payload.entry_bytes();
        if size > limit {
            return Err(ProposalError::TooLarge { size, limit });
        }
        Ok(())
    }

    /// Another member asks this one, as the leader, to append; if a term is given, as the leader of
    /// that term.
    pub(super) fn propose_for(
        &mut self,
        request: RequestId,
        payload: Payload,
        term: Option<Term>,
        out: &mut Vec<Effect>,
    ) {
        if request.member == self.id() {
            // An earlier leader returns what it had parked for this member.
            if term.is_none() && self.proposals.expects(request, self.id(), 0) {
                self.proposals.again(self.now, request);
            }
            return;
        }
        let kind = if self.removed || !self.leads() || !self.is_in(term) {
            ForwardedOutcomeKind::TryAgain(TryAgain {})
        } else if let Err(error) = self.check_size(&payload) {
            ForwardedOutcomeKind::Refused((&error).into())
        } else if self.proposals.take_in(self.waiting(request, payload, term)) {
            return;
        } else {
            ForwardedOutcomeKind::Refused((&ProposalError::Overloaded).into())
        };
        let outcome = ForwardedOutcome::new(request, term, kind);
        self.send_outcomes(BTreeMap::from([(request.member, vec![outcome])]), out);
    }

    /// Whether what another member sent for this term may be appended, if this member leads.
    fn is_in(&self, term: Option<Term>) -> bool {
        let own = self.raft.term();
        term.is_none_or(|term| term == own || mutant!(ForwardInAnyTerm))
    }

    /// Sends the outcomes of proposals to their origins.
    fn send_outcomes(&self, outcomes: Outcomes, out: &mut Vec<Effect>) {
        for (origin, fates) in outcomes {
            let outcomes = ForwardedOutcomes { fates };
            self.send(origin, PeerBody::ForwardedOutcomes(outcomes), out);
        }
    }

    /// Appends or forwards what waits, as far as possible.
    pub(super) fn move_proposals(&mut self, out: &mut Vec<Effect>) {
        if self.removed || !self.proposals.any_waiting() {
            return;
        }
        if self.leads() {
            self.append_waiting(out);
        } else if let Some(leader) = self.leader_elsewhere() {
            self.forward_waiting(leader, out);
        }
    }

    fn forward_waiting(&mut self, leader: MemberId, out: &mut Vec<Effect>) {
        let term = self.takers.contains(&leader).then_some(self.role.term);
        let waiting = self.proposals.take_waiting();
        let (own, parked): (Vec<Waiting>, Vec<Waiting>) = waiting
            .into_iter()
            .partition(|waiting| waiting.request.member == self.id());
        self.forward(leader, term, own, out);
        // What others sent for a term in which this member led is not for this leader.
        let (late, parked): (Vec<Waiting>, Vec<Waiting>) = parked
            .into_iter()
            .partition(|waiting| waiting.term.is_some());
        self.return_to_origins(&late, out);
        self.forward(leader, None, parked, out);
    }

    fn forward(
        &mut self,
        leader: MemberId,
        term: Option<Term>,
        waiting: Vec<Waiting>,
        out: &mut Vec<Effect>,
    ) {
        let mut proposals = Vec::new();
        let mut bytes = 0;
        for waiting in waiting {
            self.proposals.sent(&waiting, leader, term);
            let request = waiting.request;
            match waiting.payload {
                Payload::Data(data) => {
                    if bytes + data.len() > FORWARD_BYTES && !proposals.is_empty() {
                        let proposals = std::mem::take(&mut proposals);
                        self.send(leader, PeerBody::forward(term, proposals), out);
                        bytes = 0;
                    }
                    bytes += data.len();
                    proposals.push(Proposal { request, data });
                }
                Payload::Change(command) => {
                    let change = ForwardChange { request, command };
                    self.send(leader, PeerBody::forward_change(term, change), out);
                }
            }
        }
        if !proposals.is_empty() {
            self.send(leader, PeerBody::forward(term, proposals), out);
        }
    }

    fn append_waiting(&mut self, out: &mut Vec<Effect>) {
        let mut rest = self.proposals.take_waiting();
        let mut back = Vec::new();
        let mut outcomes = Outcomes::new();
        while !rest.is_empty() {
            let mut chunk = next_chunk(&mut rest);
            let late = chunk.extract_if(.., |waiting| !self.is_in(waiting.term));
            let late: Vec<Waiting> = late.collect();
            self.return_to_origins(&late, out);
            let Some(first) = chunk.first() else { continue };
            // A change waits for the one before it; proposals do not wait for a change.
            let blocks = matches!(first.payload, Payload::Data(_));
            let moved = self.append(&chunk);
            if let Moved::Stays = moved {
                back.extend(chunk);
                if blocks {
                    break;
                }
                continue;
            }
            for (offset, waiting) in (0_u64..).zip(chunk) {
                let (origin, request) = (waiting.request.member, waiting.request);
                let kind = self.conclude(&waiting, &moved, offset, out);
                if let Some(kind) = kind.filter(|_| origin != self.id()) {
                    let outcome = ForwardedOutcome::new(request, waiting.term, kind);
                    outcomes.entry(origin).or_default().push(outcome);
                }
            }
        }
        while let Some(waiting) = back.pop() {
            rest.push_front(waiting);
        }
        self.proposals.put_back(rest);
        self.send_outcomes(outcomes, out);
    }

    /// Records the outcome of one proposal of a chunk.
    fn conclude(
        &mut self,
        waiting: &Waiting,
        moved: &Moved,
        offset: u64,
        out: &mut Vec<Effect>,
    ) -> Option<ForwardedOutcomeKind> {
        match moved {
            Moved::Stays => None,
            Moved::Appended(first) => {
                let place = Position {
                    index: first.index + offset,
                    term: first.term,
                };
                self.proposals.appended(self.now, waiting, place);
                Some(ForwardedOutcomeKind::Appended(place))
            }
            Moved::Refused(error) => {
                if self.proposals.refused(waiting) {
                    out.push(Effect::ProposalFailed {
                        request: waiting.request,
                        error: error.clone(),
                    });
                }
                Some(ForwardedOutcomeKind::Refused(error.into()))
            }
        }
    }

    fn append(&mut self, chunk: &[Waiting]) -> Moved {
        let outcome = match chunk.first().map(|first| (first.request, &first.payload)) {
            None => return Moved::Stays,
            Some((request, Payload::Change(command))) => {
                return self.append_change(request, command.clone());
            }
            Some((_, Payload::Data(_))) => {
                let data = chunk.iter().filter_map(|waiting| match &waiting.payload {
                    Payload::Data(data) => Some(data.clone()),
                    Payload::Change(_) => None,
                });
                self.raft.propose(data.collect())
            }
        };
        match outcome {
            Ok(position) => Moved::Appended(position),
            Err(error) => not_appended(error),
        }
    }

    fn append_change(&mut self, request: RequestId, command: MembershipCommand) -> Moved {
        use MembershipError::{NotEnoughStarted, Unhealthy};
        match self.admit(&command) {
            Ok(()) => {}
            // Members that count as missing may not have had the time to answer this leader: the
            // change is checked again, at each tick, until they have had it.
            Err(Unhealthy | NotEnoughStarted)
                if self.contacts.is_unanswered(self.now, self.spans()) =>
            {
                return Moved::Stays;
            }
            Err(error) => return Moved::Refused(error.into()),
        }
        let change = Membership::configuration_change(&command);
        let settled = self.membership.is_settled() || mutant!(UnsettledChange);
        if change.is_some() && !settled {
            return Moved::Stays;
        }
        let data = LogPayload::membership(Some(request), command);
        let outcome = match change {
            Some(change) => self.raft.propose_configuration(change, data),
            None => self.raft.propose(vec![data]),
        };
        match outcome {
            Ok(position) => Moved::Appended(position),
            Err(error) => not_appended(error),
        }
    }

    /// The leader's checks of a membership change.
    fn admit(&self, command: &MembershipCommand) -> Result<(), MembershipError> {
        let mut in_contact = self.contacts.in_contact();
        // A member that is down may always be removed. One that has had no time to answer is not
        // known to be down, so it counts as in contact.
        if self.contacts.is_unanswered(self.now, self.spans())
            && let Some(ChangeBody::Remove(target)) = &command.body
        {
            in_contact.insert(target.id);
        }
        let steady = self.contacts.steady(self.now, self.spans());
        self.judge(command, in_contact, steady, &self.contacts.behind())
    }

    /// The checks of a change, with this member and the given ones counted as present.
    fn judge(
        &self,
        command: &MembershipCommand,
        mut in_contact: BTreeSet<MemberId>,
        mut steady: BTreeSet<MemberId>,
        behind: &BTreeMap<MemberId, Option<String>>,
    ) -> Result<(), MembershipError> {
        let own = self.id();
        in_contact.insert(own);
        steady.insert(own);
        let facts = Facts {
            own,
            membership: &self.membership,
            max_learners: self.config.max_learners,
            strict: self.config.strict_reconfig,
            in_contact: &in_contact,
            steady: &steady,
            behind,
        };
        facts.admit(command)
    }

    /// Returns what was parked here for others for longer than an election timeout while no leader
    /// was known.
    pub(super) fn return_forwarded(&mut self, out: &mut Vec<Effect>) {
        if self.leads() && !self.removed {
            return;
        }
        let since = self.now.saturating_sub(self.spans().election);
        let overdue = self.proposals.overdue_forwarded(since);
        self.tell_to_try_again(overdue.iter().map(sent_as), out);
    }

    /// A message was not sent, so nobody has appended what it proposes, or will. What another
    /// member had proposed was parked here, and is here no longer: its origin is told.
    pub(super) fn unsent(&mut self, to: MemberId, message: &PeerMessage, out: &mut Vec<Effect>) {
        let own = self.id();
        let (term, requests) = message.proposed();
        let (own, parked): (Vec<RequestId>, Vec<RequestId>) = requests
            .into_iter()
            .partition(|request| request.member == own);
        for request in own {
            self.fate(to, ForwardedOutcome::try_again(request, term), out);
        }
        mutant!(ParkedUntold => return);
        let parked = parked.into_iter().map(|request| (request, term));
        self.tell_to_try_again(parked, out);
    }

    /// Returns what other members sent for a term in which this member leads no more. It has left
    /// the queue.
    fn return_to_origins(&mut self, late: &[Waiting], out: &mut Vec<Effect>) {
        for waiting in late {
            self.proposals.refused(waiting);
        }
        self.tell_to_try_again(late.iter().map(sent_as), out);
    }

    /// Tells the origins of these, each of which was sent for this term or for any.
    fn tell_to_try_again(
        &self,
        returned: impl Iterator<Item = (RequestId, Option<Term>)>,
        out: &mut Vec<Effect>,
    ) {
        let mut outcomes = Outcomes::new();
        for (request, term) in returned {
            let outcome = ForwardedOutcome::try_again(request, term);
            outcomes.entry(request.member).or_default().push(outcome);
        }
        self.send_outcomes(outcomes, out);
    }
}

/// A forwarded proposal, and the term for which it was sent.
fn sent_as(waiting: &Waiting) -> (RequestId, Option<Term>) {
    (waiting.request, waiting.term)
}

/// The next proposals to append together: one change, or proposals up to a bound.
fn next_chunk(rest: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    if let Some(Payload::Change(_)) = rest.front().map(|first| &first.payload) {
        return rest.drain(..1).collect();
    }
    let mut bytes = 0;
    let together = |waiting: &&Waiting| {
        let fits = bytes < FORWARD_BYTES as u64;
        bytes += waiting.payload.entry_bytes();
        fits && matches!(waiting.payload, Payload::Data(_))
    };
    let count = rest.iter().take_while(together).count().min(APPEND_AT_ONCE);
    rest.drain(..count).collect()
}

/// The result for the proposal of an error of the core.
fn not_appended(error: ProposeError) -> Moved {
    match error {
        ProposeError::NotLeader { .. }
        | ProposeError::Transferring { .. }
        | ProposeError::Overloaded { .. }
        | ProposeError::ChangePending => Moved::Stays,
        ProposeError::TooLarge { size, limit } => {
            Moved::Refused(ProposalError::TooLarge { size, limit })
        }
        ProposeError::Change(refusal) => Moved::Refused(ProposalError::Membership(match refusal {
            ChangeRefusal::AlreadyMember(_) | ChangeRefusal::ZeroMember => {
                MembershipError::IdExists
            }
            ChangeRefusal::NotLearner(_) => MembershipError::NotLearner,
            ChangeRefusal::NotMember(_) => MembershipError::NotFound,
            ChangeRefusal::LastVoter(_) => MembershipError::NotEnoughStarted,
        })),
        ProposeError::Empty => Moved::Refused(ProposalError::Overloaded),
    }
}
