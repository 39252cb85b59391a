//! The task of consensus: steps the member with all inputs that have arrived since the last step,
//! then passes its effects to the threads and links that carry them out, and applies what is short itself. Never blocks, and
//! waits for its own inbox alone: the links between members run on the same thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::applying::{Applying, Committed, bytes};
use super::handle::RequestError;
use super::queue::{Queue, Unnoticed};
use super::spacing::Spacing;
use super::state::{RuntimeState, Thread, proposal_error, refusal, transfer_error};
use super::{ApplyJob, LogJob, Worker, disk_stop};
use crate::disk::{Class, LogReader};
use crate::node::{Effect, Input, Member, StopReason};
use crate::raft::{LogRead, Role, RoleChange};
use crate::server::listen::quiet::Quiet;
use crate::server::member_runtime::Transport;
use crate::server::process::exit::Stop;

/// The most ticks caught up after a pause: more would only cause elections.
const TICKS_AT_ONCE: u32 = 2;

/// The task's own state.
pub(super) struct RaftTask {
    pub(super) member: Member,
    pub(super) shared: Arc<RuntimeState>,
    pub(super) outside: Transport,
    pub(super) apply: Applying,
    pub(super) log: Queue<LogJob>,
    pub(super) log_reader: LogReader,
    pub(super) reader: Worker,
    pub(super) tick_ms: u64,
    pub(super) first_ticks: u32,
    pub(super) spacing: Spacing,
}

impl RaftTask {
    pub(super) async fn run(mut self) {
        let tick = Duration::from_millis(self.tick_ms);
        let mut next_tick = Instant::now() + tick;
        let mut effects = Vec::new();
        self.publish();
        for _ in 0..self.first_ticks {
            if self.member.status().raft.role != Role::Follower {
                break;
            }
            self.member
                .handle(self.shared.now_ms(), Input::Tick, &mut effects);
        }
        if self.first_ticks > 0 {
            // The first round carries out the effects of these ticks, without a wait.
            next_tick = Instant::now();
        }
        let mut clock = pin!(sleep_until(next_tick.into()));
        loop {
            tokio::select! {
                biased;
                () = self.shared.inbox.arrival() => {}
                () = clock.as_mut() => {}
            }
            let Some(inputs) = self.shared.inbox.take_now() else {
                return;
            };
            self.shared.beat(Thread::Raft);
            if let Some(last) = last_proposed(&inputs) {
                self.shared.moments.taken.note_more(last, Instant::now());
            }
            self.member.hold_proposals(true, &mut effects);
            for input in gather(inputs) {
                self.member
                    .handle(self.shared.now_ms(), input, &mut effects);
            }
            let ticked = self.tick(&mut next_tick, tick, &mut effects);
            self.pass(&mut effects);
            let held = self.space(&mut effects);
            let mut changed = ticked;
            let mut committed = Committed::default();
            for effect in effects.drain(..) {
                changed |= matches!(effect, Effect::Role(_));
                if let Some(reason) = run_effect(&self, effect, &mut committed) {
                    self.shared.stop(stop(&reason));
                    return;
                }
            }
            if changed {
                self.publish();
            }
            let late = self.member.reads_late_at().map(|at| self.shared.at_ms(at));
            let wake = [held, late]
                .into_iter()
                .flatten()
                .fold(next_tick, Instant::min);
            if wake != clock.deadline().into_std() || clock.is_elapsed() {
                clock.as_mut().reset(wake.into());
            }
            if !committed.is_empty() || !self.shared.inbox.is_empty() {
                // First the links send what this step gave them, and read what more has come.
                yield_now().await;
            }
            committed.apply_now(&mut self.apply);
        }
    }

    /// Tells the member the time if it waits for it.
    fn pass(&mut self, effects: &mut Vec<Effect>) {
        let now = self.shared.now_ms();
        if self.member.reads_late_at().is_some_and(|at| at <= now) {
            self.member.pass(now, effects);
        }
    }

    /// Moves the proposals on that wait, unless they are to wait for more. Says what may come meanwhile without waking
    /// this task, and returns until when.
    fn space(&mut self, effects: &mut Vec<Effect>) -> Option<Instant> {
        let now = Instant::now();
        let waiting = self.member.held_proposals();
        let held = self.spacing.holds(now, waiting);
        self.member.hold_proposals(held, effects);
        let left = self.member.held_proposals();
        self.spacing.moved(now, waiting - left.min(waiting));
        // What could not be moved, for want of a leader, waits for a tick or for news, and not for more.
        let flow = (held || left == 0).then(|| self.spacing.more(now, left));
        let flow = flow.flatten();
        let all_if = |unnoticed| if unnoticed { usize::MAX } else { 0 };
        self.shared.inbox.allow(Unnoticed {
            proposals: flow.map_or(0, |(more, _)| more),
            // The end of the round wakes this task, or a tick.
            reads: all_if(self.member.reads()),
            reports: all_if(flow.is_some() && !self.member.awaits_applied()),
        });
        flow.map(|(_, until)| until)
    }

    fn tick(&mut self, next: &mut Instant, tick: Duration, effects: &mut Vec<Effect>) -> bool {
        let mut ticks = 0;
        while Instant::now() >= *next {
            self.member
                .handle(self.shared.now_ms(), Input::Tick, effects);
            ticks += 1;
            *next += tick;
            if ticks == TICKS_AT_ONCE {
                *next = (*next).max(Instant::now() + tick / 2);
            }
        }
        ticks > 0
    }

    fn publish(&self) {
        self.shared
            .consensus
            .store(Arc::new(Some(self.member.status())));
    }
}

/// The number of the last proposal among these. Two that came at the same time may be in another order than their numbers.
fn last_proposed(inputs: &[Input]) -> Option<u64> {
    let number = |input: &Input| match input {
        Input::Propose(some) => some.last().map(|proposal| proposal.request.counter),
        Input::ChangeMembership { request, .. } => Some(request.counter),
        _ => None,
    };
    inputs.iter().filter_map(number).max()
}

/// Merges inputs: client requests are combined and handled last, the rest stays in order.
fn gather(came: Vec<Input>) -> Vec<Input> {
    let (mut proposals, mut reads, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut inputs, mut cancelled) = (Vec::new(), Vec::new());
    for input in came {
        match input {
            Input::Propose(some) => proposals.extend(some),
            Input::Read(some) => reads.extend(some),
            Input::Lease(some) => leases.extend(some),
            Input::Cancel(some) => cancelled.extend(some),
            other => inputs.push(other),
        }
    }
    if !proposals.is_empty() {
        inputs.push(Input::Propose(proposals));
    }
    if !reads.is_empty() {
        inputs.push(Input::Read(reads));
    }
    if !leases.is_empty() {
        inputs.push(Input::Lease(leases));
    }
    if !cancelled.is_empty() {
        inputs.push(Input::Cancel(cancelled));
    }
    inputs
}

/// Carries out one effect; returns the reason if the server has to stop.
fn run_effect(stepper: &RaftTask, effect: Effect, committed: &mut Committed) -> Option<StopReason> {
    let shared = &stepper.shared;
    match effect {
        Effect::Write(persist) => {
            let bytes = bytes(&persist.entries);
            let _ = stepper.log.push_always(bytes, LogJob::Write(persist));
        }
        Effect::Send { to, message } => {
            if !stepper.outside.send(to, message) {
                shared.report(Input::Unreachable(to));
            }
        }
        Effect::Apply(entries) => {
            if let Some(last) = entries.last() {
                shared.moments.committed.note(last.index, Instant::now());
            }
            committed.add(&stepper.apply, entries);
        }
        Effect::InstallCheckpoint(meta) => {
            // It comes to the applier by way of the log, and must not overtake what was committed before it.
            committed.leave(&stepper.apply);
            let _ = stepper.log.push_always(0, LogJob::Install(meta));
        }
        Effect::ReadLog(read) => read_log(stepper, read),
        Effect::SendCheckpoint { to, term, index } => {
            stepper.outside.send_checkpoint(to, term, index);
        }
        Effect::TakeCheckpoint => {
            committed.queue(&stepper.apply, 0, ApplyJob::Checkpoint);
        }
        Effect::DropLog { before } => {
            let _ = stepper.log.push_always(0, LogJob::Drop { before });
        }
        Effect::ReadReady { ids, .. } => {
            let answers = ids.into_iter().map(|id| (id, Ok(())));
            shared.reads.answer_all(answers.collect());
        }
        Effect::ReadFailed { ids, reason } => {
            let answers = ids.into_iter().map(|id| (id, Err(refusal(reason))));
            shared.reads.answer_all(answers.collect());
        }
        Effect::ProposalFailed { request, error } => {
            shared
                .proposals
                .answer(request.counter, Err(proposal_error(error)));
        }
        Effect::FateUnknown { request } => {
            let error = RequestError::Timeout;
            shared.proposals.answer(request.counter, Err(error));
        }
        Effect::LeaseAnswer { id, answer } => {
            shared.leases.answer(id, answer.map_err(refusal));
        }
        Effect::TransferEnded { id, result } => {
            let result: Result<u64, RequestError> = result.map_err(transfer_error);
            shared.transfers.answer(id, result);
        }
        Effect::Role(change) => role(shared, change),
        Effect::Removed { settled } => {
            tracing::info!(settled, "removed from the cluster");
            committed.queue(&stepper.apply, 0, ApplyJob::Part);
            let reason = "this member was removed from its cluster for good";
            stepper.outside.removed(reason);
        }
        Effect::Notice(text) => notice(&text),
        Effect::Stop(reason) => return Some(reason),
    }
    None
}

/// A notice about an invalid message of another member, logged at a limited rate: any host that
/// reaches the peer port may cause it for ever.
fn notice(text: &str) {
    static NOTICES: Quiet = Quiet::new();
    match NOTICES.line(Instant::now()) {
        None => tracing::debug!("{text}"),
        Some(0) => tracing::warn!("{text}"),
        Some(more) => tracing::warn!(more, "{text} (and more before)"),
    }
}

fn read_log(stepper: &RaftTask, read: LogRead) {
    let shared = Arc::clone(&stepper.shared);
    let log = stepper.log_reader.clone();
    stepper.reader.run(move || {
        let entries = match log.read(read.from, read.to, read.max_bytes) {
            // They were dropped meanwhile: the member then sends a checkpoint.
            Err(crate::disk::Error::NotInLog { .. }) => Ok(Vec::new()),
            Ok(entries) => Ok(entries),
            // With its own class: a failed read does not prove that the disk is damaged.
            Err(error) => return shared.stop(disk_stop(&error)),
        };
        let ticket = read.ticket;
        shared.report(Input::LogRead { ticket, entries });
    });
}

fn role(shared: &RuntimeState, change: RoleChange) {
    let leader = change.leader.map(|leader| format!("{leader:x}"));
    tracing::info!(role = ?change.role, term = change.term, leader, "role changed");
    let before = shared.consensus.load();
    let known = before
        .as_ref()
        .as_ref()
        .and_then(|status| status.raft.leader);
    if change.leader.is_some() && change.leader != known {
        shared.leader_changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The stop of the server because continuing could lose or corrupt data. An operator deletes disks
/// by the exit code, so only what the disk itself shows counts as damage.
pub(super) fn stop(reason: &StopReason) -> Stop {
    use crate::raft::Error;
    let (class, name) = match reason {
        StopReason::Consensus(Error::LogLost { .. }) => (Class::Corrupt, "log_lost"),
        StopReason::Entry(_)
        | StopReason::Consensus(
            Error::UnknownEntryKind { .. } | Error::BrokenConfiguration { .. },
        ) => (Class::TooNew, "unknown_entry"),
        StopReason::Consensus(
            Error::Config(_) | Error::BadMessage { .. } | Error::Misuse(_) | Error::Change(_),
        ) => (Class::Bug, Class::Bug.name()),
        StopReason::Consensus(
            Error::Restored(_) | Error::Diverged { .. } | Error::WrongRead { .. },
        ) => (Class::Corrupt, Class::Corrupt.name()),
        StopReason::Log(_) => (Class::Io, Class::Io.name()),
    };
    Stop {
        code: class.exit_code(),
        class: name,
        message: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::UnknownEntry;
    use crate::raft::Error;

    /// An entry that this version does not know ended the server as `corrupt` (20), which an
    /// operator treats as a dead disk: after an image was rolled back, healthy disks were deleted.
    #[test]
    fn only_disk_evidence_exits_as_damaged() {
        let unknown = StopReason::Entry(UnknownEntry {
            index: 7,
            why: "it is of format 2, this version knows up to 1".to_owned(),
        });
        let kind = Error::UnknownEntryKind { index: 7, kind: 9 };
        let lost = Error::LogLost { commit: 9, last: 7 };
        let restored = Error::Restored("its terms go back".to_owned());
        let misuse = Error::Misuse("no such ticket".to_owned());
        for (reason, code, class) in [
            (unknown, 28, "unknown_entry"),
            (kind.into(), 28, "unknown_entry"),
            (lost.into(), 20, "log_lost"),
            (restored.into(), 20, "corrupt"),
            (misuse.into(), 27, "bug"),
            (StopReason::Log("too many open files".to_owned()), 26, "io"),
        ] {
            let stop = stop(&reason);
            assert_eq!((stop.code, stop.class), (code, class), "{reason}");
        }
    }
}
