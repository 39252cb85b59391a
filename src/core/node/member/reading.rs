//! Reads and lease requests: how the member processes its queues of them.

use crate::mutants::mutant;
use crate::node::api::{Effect, RequestRefusal};
use crate::node::lessor::Renewal;
use crate::node::peer::{LeaseAnswerRecord, LeaseAnswers, LeaseCall, LeaseCalls, PeerBody};
use crate::raft::MemberId;

use super::Member;

impl Member {
    pub(super) fn read(&mut self, ids: Vec<u64>, out: &mut Vec<Effect>) {
        let room = self.reads.len() + ids.len() <= self.config.max_waiting_reads;
        let reason = if self.removed {
            RequestRefusal::NotAMember
        } else if room {
            self.reads.read(ids);
            return;
        } else {
            RequestRefusal::Overloaded
        };
        out.push(Effect::ReadFailed { ids, reason });
    }

    pub(super) fn lease(&mut self, calls: Vec<LeaseCall>, out: &mut Vec<Effect>) {
        for call in calls {
            let id = call.id;
            let refusal = if self.removed {
                RequestRefusal::NotAMember
            } else if self.lease_calls.len() < self.config.max_waiting_reads {
                self.lease_calls.insert(id, (call, None));
                continue;
            } else {
                RequestRefusal::Overloaded
            };
            let answer = Err(refusal);
            out.push(Effect::LeaseAnswer { id, answer });
        }
        self.move_lease_calls(out);
    }

    /// Forwards what was not yet sent to the present leader.
    pub(super) fn move_lease_calls(&mut self, out: &mut Vec<Effect>) {
        let (own, leads, leader) = (self.id(), self.leads(), self.leader_elsewhere());
        if !leads && leader.is_none() {
            return;
        }
        let mut calls = Vec::new();
        for (call, sent) in self.lease_calls.values_mut() {
            if sent.is_none() {
                *sent = Some(self.now);
                calls.push(*call);
            }
        }
        if calls.is_empty() {
            return;
        }
        match leader {
            Some(leader) if !leads => {
                self.send(leader, PeerBody::LeaseCalls(LeaseCalls { calls }), out);
            }
            _ if mutant!(KeepaliveDeposed) => {
                let calls = calls.into_iter().map(|call| (own, call));
                self.answer_leases(calls.collect(), out);
            }
            _ => {
                for call in calls {
                    self.reads.lease(own, call);
                }
            }
        }
    }

    /// Sends again what got no answer for half an election timeout.
    pub(super) fn retry_lease_calls(&mut self, out: &mut Vec<Effect>) {
        let stale = self.now.saturating_sub(self.spans().election / 2);
        for (_, sent) in self.lease_calls.values_mut() {
            if sent.is_some_and(|at| at <= stale) {
                *sent = None;
            }
        }
        self.move_lease_calls(out);
    }

    /// Requests of another member. A follower ignores them: they are repeated.
    pub(super) fn lease_calls_of(&mut self, from: MemberId, calls: Vec<LeaseCall>) {
        if !self.leads() {
            return;
        }
        for call in calls {
            if self.reads.len() < self.config.max_waiting_reads {
                self.reads.lease(from, call);
            }
        }
    }

    /// Answers requests of confirmed rounds whose read index is applied.
    pub(super) fn answer_reads(&mut self, out: &mut Vec<Effect>) {
        for (index, batch) in self.reads.ready(self.applied_index()) {
            if !batch.reads.is_empty() {
                let ids = batch.reads;
                out.push(Effect::ReadReady { ids, index });
            }
            self.answer_leases(batch.leases, out);
        }
    }

    pub(super) fn answer_leases(
        &mut self,
        calls: Vec<(MemberId, LeaseCall)>,
        out: &mut Vec<Effect>,
    ) {
        if !self.leads() || !self.lessor.leads() {
            // A member that no longer leads, or has no deadlines yet, does not answer; the requests are repeated.
            return;
        }
        let mut answers: Vec<(MemberId, LeaseAnswerRecord)> = Vec::new();
        for (origin, call) in calls {
            let times = if call.renew {
                match self.lessor.renew(self.now, call.lease) {
                    Renewal::Renewed(times) => Some(times),
                    Renewal::Gone => None,
                    Renewal::Wait => {
                        if self.renewals.len() < self.config.max_waiting_reads {
                            self.renewals.push((origin, call));
                        }
                        continue;
                    }
                }
            } else {
                self.lessor.times(self.now, call.lease)
            };
            answers.push((origin, LeaseAnswerRecord { id: call.id, times }));
        }
        self.clear_notes();
        answers.sort_by_key(|(origin, _)| *origin);
        for of_one in answers.chunk_by(|(one, _), (other, _)| one == other) {
            let answers: Vec<LeaseAnswerRecord> =
                of_one.iter().map(|(_, answer)| *answer).collect();
            let Some((origin, _)) = of_one.first() else {
                continue;
            };
            if *origin == self.id() {
                self.lease_answers(answers, out);
            } else {
                self.send(
                    *origin,
                    PeerBody::LeaseAnswers(LeaseAnswers { answers }),
                    out,
                );
            }
        }
    }

    /// The leader's answers to this member's calls.
    pub(super) fn lease_answers(&mut self, answers: Vec<LeaseAnswerRecord>, out: &mut Vec<Effect>) {
        for LeaseAnswerRecord { id, times } in answers {
            if self.lease_calls.remove(&id).is_some() {
                let answer = Ok(times);
                out.push(Effect::LeaseAnswer { id, answer });
            }
        }
    }

    /// Refuses all waiting requests.
    pub(super) fn refuse_reads(&mut self, reason: RequestRefusal, out: &mut Vec<Effect>) {
        let ids = self.reads.take_all().reads;
        if !ids.is_empty() {
            out.push(Effect::ReadFailed { ids, reason });
        }
        for id in std::mem::take(&mut self.lease_calls).into_keys() {
            let answer = Err(reason);
            out.push(Effect::LeaseAnswer { id, answer });
        }
    }
}
