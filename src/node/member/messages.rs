//! What other members say: whom to hear at all, and whose business it is.

use crate::node::api::{Effect, StopReason};
use crate::node::peer::{FateKind, PeerBody, PeerMessage, RemovedNotice};
use crate::raft::{Body, MemberId};

use super::Member;
use super::proposals::Payload;

impl Member {
    /// A hello said which disk a member speaks from.
    pub(super) fn meet(&mut self, id: MemberId, disk_uuid: String, out: &mut Vec<Effect>) {
        let bound = self.membership.expected_disk(id);
        match bound.or(self.pins.get(&id).map(String::as_str)) {
            Some(known) if known != disk_uuid => {
                let text = format!("member {id:x} speaks from disk {disk_uuid}, not {known}");
                out.push(Effect::Notice(text));
                self.disks.remove(&id);
            }
            _ => {
                self.pins.insert(id, disk_uuid.clone());
                self.disks.insert(id, disk_uuid);
            }
        }
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
        if self.membership.is_removed(from) {
            return self.hear_removed(from, message, out);
        }
        match message.body {
            None => Ok(()),
            Some(PeerBody::Raft(message)) => self.hear_raft(from, message, out),
            Some(PeerBody::Forward(forward)) => {
                for proposal in forward.proposals {
                    let payload = Payload::Data(proposal.data);
                    self.propose_for(proposal.request, payload, out);
                }
                Ok(())
            }
            Some(PeerBody::Change(change)) => {
                let payload = Payload::Change(change.command);
                self.propose_for(change.request, payload, out);
                Ok(())
            }
            Some(PeerBody::Fates(fates)) => {
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
                self.become_removed(out);
                Ok(())
            }
        }
    }

    /// A removed member may not know it yet. Its votes and acknowledgements count for nothing,
    /// but it is told, and a leader that removed itself is heard to the end.
    fn hear_removed(
        &mut self,
        from: MemberId,
        message: PeerMessage,
        out: &mut Vec<Effect>,
    ) -> Result<(), StopReason> {
        if self.told_removed.insert(from) && !self.removed {
            let notice = RemovedNotice {
                configuration_index: self.membership.configuration_index,
            };
            self.send(from, PeerBody::Removed(notice), out);
        }
        match message.body {
            Some(PeerBody::Raft(message)) => self.hear_raft(from, message, out),
            Some(PeerBody::Fates(fates)) => {
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
            // Made by this member itself, once the checkpoint is on its disk.
            Some(Body::InstallSnapshot(_)) => true,
            Some(Body::PreVote(_) | Body::Vote(_) | Body::TimeoutNow(_)) => !self.voting,
            _ => false,
        };
        if refused {
            return Ok(());
        }
        self.step(message, out)
    }

    fn fate(&mut self, from: MemberId, fate: crate::node::peer::Fate, out: &mut Vec<Effect>) {
        match fate.kind {
            None => {}
            Some(FateKind::Appended(place)) => self.proposals.placed(self.now, fate.request, place),
            Some(FateKind::TryAgain(_)) => {
                if self.role.leader == Some(from) {
                    self.distrusted = Some(from);
                }
                self.proposals.try_again(self.now, fate.request);
            }
            Some(FateKind::Refused(refusal)) if self.proposals.forget(fate.request) => {
                let (request, error) = (fate.request, refusal.into());
                out.push(Effect::ProposalFailed { request, error });
            }
            Some(FateKind::Refused(_)) => {}
        }
    }
}
