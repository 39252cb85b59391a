//! Messages of other members: which are accepted at all, and which part of the member handles them.

use std::collections::BTreeSet;

use crate::mutants::mutant;
use crate::node::api::{Effect, StopReason};
use crate::node::peer::{
    ForwardChange, ForwardInTerm, ForwardedOutcome, ForwardedOutcomeKind, PeerBody, PeerMessage,
    Proposal, RemovedNotice,
};
use crate::raft::{Body, MemberId};

use super::Member;
use super::proposals::Payload;

/// Servers outside the membership whose disks are remembered, at most.
const STRANGERS: usize = 64;

impl Member {
    /// A hello succeeded and named the disk on which a member runs.
    pub(super) fn meet(&mut self, id: MemberId, disk_uuid: String, out: &mut Vec<Effect>) {
        let bound = self.membership.expected_disk(id);
        let pinned = self.pins.get(&id).map(|(_, disk)| disk.as_str());
        match bound.or(pinned) {
            Some(known) if known != disk_uuid => {
                let text = format!("member {id:x} runs on disk {disk_uuid}, not on {known}");
                out.push(Effect::Notice(text));
                self.disks.remove(&id);
            }
            _ => {
                let known = &self.membership.members;
                if known.is_empty() || known.contains_key(&id) {
                    self.contacts.meet(id, self.now);
                }
                self.meetings += 1;
                let pin = (self.meetings, disk_uuid.clone());
                self.pins.insert(id, pin);
                self.disks.insert(id, disk_uuid);
                self.forget_strangers(id);
            }
        }
    }

    /// Bounds what is remembered of servers outside the membership: the one met longest ago is
    /// forgotten.
    fn forget_strangers(&mut self, newest: MemberId) {
        let (membership, leader) = (&self.membership, self.role.leader);
        let strangers = self.pins.iter();
        let strangers = strangers.filter(|(id, _)| membership.member(**id).is_none());
        if strangers.clone().count() <= STRANGERS {
            return;
        }
        let may_go = strangers.filter(|(id, _)| **id != newest && Some(**id) != leader);
        let oldest = may_go.min_by_key(|(_, (order, _))| *order);
        if let Some(gone) = oldest.map(|(id, _)| *id) {
            self.forget_stranger(gone);
        }
    }

    /// Forgets a server that is not in the membership, as when it loses its connection slot to
    /// another.
    pub(super) fn forget_stranger(&mut self, id: MemberId) {
        if self.membership.member(id).is_none() {
            self.pins.remove(&id);
            self.disks.remove(&id);
            self.takers.retain(|taker| *taker != id);
            self.contacts.lose(id);
        }
    }

    /// Whether the applied membership does not contain it: it was added later, or never.
    pub(super) fn is_stranger(&self, id: MemberId) -> bool {
        let known = &self.membership.members;
        !known.is_empty() && !known.contains_key(&id) && !mutant!(StrangersPropose)
    }

    /// Whether it leads, or a leader that is in its membership is in contact.
    pub(super) fn is_led(&self) -> bool {
        let election = self.spans().election;
        self.leads() || self.led.is_some_and(|heard| self.now <= heard + election)
    }

    /// The other voters, as far as this member knows.
    fn others(&self) -> BTreeSet<MemberId> {
        let voters = self.membership.voters().map(|member| member.id);
        voters.filter(|id| *id != self.id()).collect()
    }

    pub(super) fn hear(
        &mut self,
        from: MemberId,
        message: PeerMessage,
        out: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if from == self.id() || !self.disks.contains_key(&from) {
            return Ok(());
        }
        self.note_taker(from, &message);
        if self.membership.is_removed(from) {
            return self.hear_removed(from, message, out);
        }
        if self.is_stranger(from) {
            return self.hear_stranger(from, message, out);
        }
        match message.body {
            None => Ok(()),
            Some(PeerBody::Raft(message)) => self.hear_raft(from, message, out),
            Some(PeerBody::Forward(forward)) => {
                for proposal in forward.proposals {
                    let payload = Payload::Data(proposal.data);
                    self.propose_for(proposal.request, payload, None, out);
                }
                Ok(())
            }
            Some(PeerBody::Change(change)) => {
                let payload = Payload::Change(change.command);
                self.propose_for(change.request, payload, None, out);
                Ok(())
            }
            Some(PeerBody::InTerm(forward)) => {
                self.propose_in_term(forward, out);
                Ok(())
            }
            Some(PeerBody::ForwardedOutcomes(fates)) => {
                for fate in fates.fates {
                    self.fate(from, fate, out);
                }
                Ok(())
            }
            Some(PeerBody::LeaseCalls(calls)) => {
                self.lease_calls_of(from, calls.calls);
                Ok(())
            }
            Some(PeerBody::LeaseAnswers(answers)) => {
                self.lease_answers(answers.answers, out);
                Ok(())
            }
            Some(PeerBody::Removed(_)) => {
                self.removal_reports.add(from);
                if self.removal_reports.is_majority(&self.others()) {
                    self.become_removed(out);
                }
                Ok(())
            }
        }
    }

    /// Notes whether a member, if it leads, takes what is forwarded for its term. By messages of
    /// consensus alone: it is from one of these that a leader is known, and so of its process.
    fn note_taker(&mut self, from: MemberId, message: &PeerMessage) {
        if !matches!(message.body, Some(PeerBody::Raft(_))) {
            return;
        }
        match (message.takes_terms, self.takers.contains(&from)) {
            (true, false) => self.takers.push(from),
            (false, true) => self.takers.retain(|id| *id != from),
            _ => {}
        }
    }

    fn propose_in_term(&mut self, forward: ForwardInTerm, out: &mut Vec<Effect>) {
        let term = Some(forward.term);
        for Proposal { request, data } in forward.proposals {
            self.propose_for(request, Payload::Data(data), term, out);
        }
        for ForwardChange { request, command } in forward.changes {
            self.propose_for(request, Payload::Change(command), term, out);
        }
    }

    /// A member that was away while others joined may be led by one of them, or be asked for its
    /// vote. Nothing else is accepted from a server outside the membership, and nothing at all
    /// while a known leader is in contact: the log of that leader adds whichever members join. A
    /// vote that overrides the leader, and a request to campaign, are accepted from members alone.
    fn hear_stranger(
        &mut self,
        from: MemberId,
        message: PeerMessage,
        out: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if self.is_led() {
            return Ok(());
        }
        let leader = self.role.leader;
        match message.body {
            Some(PeerBody::Raft(message)) => match &message.body {
                Some(Body::TimeoutNow(_)) => Ok(()),
                Some(Body::PreVote(vote) | Body::Vote(vote)) if vote.transfer => Ok(()),
                _ => self.hear_raft(from, message, out),
            },
            Some(PeerBody::ForwardedOutcomes(fates)) if leader == Some(from) => {
                for fate in fates.fates {
                    self.fate(from, fate, out);
                }
                Ok(())
            }
            Some(PeerBody::LeaseAnswers(answers)) if leader == Some(from) => {
                self.lease_answers(answers.answers, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A removed member may not know of its removal yet. Its votes and acknowledgements do not
    /// count, but it is notified, and messages of a leader that removed itself are accepted until
    /// it stops.
    fn hear_removed(
        &mut self,
        from: MemberId,
        message: PeerMessage,
        out: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if self.notified_removed.insert(from) && !self.removed {
            let notice = RemovedNotice {
                configuration_index: self.membership.configuration_index,
            };
            self.send(from, PeerBody::Removed(notice), out);
        }
        match message.body {
            Some(PeerBody::Raft(message)) => self.hear_raft(from, message, out),
            Some(PeerBody::ForwardedOutcomes(fates)) => {
                for fate in fates.fates {
                    self.fate(from, fate, out);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hear_raft(
        &mut self,
        from: MemberId,
        message: crate::raft::Message,
        out: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if message.from != from || message.to != self.id() {
            out.push(Effect::Notice(format!(
                "member {from:x} sent a message from {:x} to {:x}",
                message.from, message.to
            )));
            return Ok(());
        }
        let refused = match &message.body {
            // This member creates it itself, once the checkpoint is on its disk.
            Some(Body::InstallSnapshot(_)) => true,
            Some(Body::PreVote(_) | Body::Vote(_) | Body::TimeoutNow(_)) => !self.voting,
            // A leader that still replicates to this member does not treat it as removed.
            Some(Body::Append(_) | Body::Heartbeat(_)) => {
                self.removal_reports.withdraw(from);
                if message.term >= self.raft.term() && self.membership.member(from).is_some() {
                    self.led = Some(self.now);
                }
                false
            }
            _ => false,
        };
        if refused {
            return Ok(());
        }
        self.step(message, out)
    }

    pub(super) fn fate(&mut self, from: MemberId, fate: ForwardedOutcome, out: &mut Vec<Effect>) {
        let ForwardedOutcome {
            request,
            term,
            kind,
        } = fate;
        let of_this_term = term == 0 || term == self.role.term;
        let tries_again = matches!(kind, Some(ForwardedOutcomeKind::TryAgain(_)));
        if tries_again && of_this_term && self.role.leader == Some(from) {
            self.distrusted = Some(from);
        }
        if !self.proposals.expects(request, from, term) {
            return;
        }
        match kind {
            None => {}
            Some(ForwardedOutcomeKind::Appended(place)) => {
                self.proposals.placed(self.now, request, place);
            }
            Some(ForwardedOutcomeKind::TryAgain(_)) => self.proposals.again(self.now, request),
            Some(ForwardedOutcomeKind::Refused(refusal)) => {
                self.proposals.forget(request);
                let error = refusal.into();
                out.push(Effect::ProposalFailed { request, error });
            }
        }
    }
}
