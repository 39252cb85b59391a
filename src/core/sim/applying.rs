//! What ends at a member and is reported back to it: a write is durable, a batch is applied, a
//! checkpoint is written or installed. What concerns the machine waits in one queue, as it does
//! before the server's applier. What the first application of an entry shows is where the
//! oracles learn the order of all writes.

use rand::RngExt as _;

use crate::disk::Class;
use crate::disk::double::Faults;
use crate::node::{
    Applied, CheckpointInfo, Input, LogPayload, Membership, Outcome, PayloadBody, Report,
};
use crate::persist;
use crate::raft::{Configuration, Entry, Index, LogRead, Role, SnapshotMeta};
use crate::store::{DamagedValue, Response};

use super::clock::MILLISECOND;
use super::host::ApplyJob;
use super::network::HostId;
use super::oracles::Violation;
use super::world::{Event, Step, World, broken};

/// States are compared at every index that this divides, and wherever a checkpoint is taken.
const COMPARED_EVERY: Index = 64;

impl World {
    pub(super) fn written(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let written = process.write();
        let Some(Some(batch)) = self.unless_disk_failed(host, "writing the log", written)? else {
            return Ok(());
        };
        self.logs.wrote(host, &batch.entries)?;
        if let Some(state) = &batch.hard_state {
            let member = self.hosts[host].member.unwrap_or_default();
            self.votes.wrote(host, member, state)?;
        }
        self.feed(host, Input::Persisted(batch.number))
    }

    /// Leaves something to the applier, behind what it was left before. When each is done is
    /// chance, what is done next is not: the checkpoint that a member installs was once restored
    /// before entries that had been handed out earlier, which then did not fit.
    pub(super) fn ask_applier(&mut self, host: HostId, job: ApplyJob) {
        if let Some(process) = &mut self.hosts[host].process {
            process.applying.push_back(job);
            self.wake_applier(host);
        }
    }

    /// The applier does one thing after the other. Some take long: a large batch, or a processor
    /// that others have.
    fn wake_applier(&mut self, host: HostId) {
        let now = self.agenda.now();
        let long = self.stormy && self.random.random_bool(0.003);
        let longest = if long { 300 } else { 2 } * MILLISECOND;
        let takes = self.random.random_range(10..longest);
        let Some(process) = &mut self.hosts[host].process else {
            return;
        };
        process.applies_until = process.applies_until.max(now) + takes;
        let after = process.applies_until - now;
        let boot = self.hosts[host].boot;
        self.agenda.after(after, Event::Apply(host, boot));
    }

    /// The applier does the next thing.
    pub(super) fn apply(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        match process.applying.pop_front() {
            None => Ok(()),
            Some(ApplyJob::Entries(entries)) => self.apply_all(host, &entries),
            Some(ApplyJob::Checkpoint) => self.freeze(host),
            Some(ApplyJob::Install(meta)) => self.install(host, &meta),
            Some(ApplyJob::Part) => {
                // Who asked is the churn, which looks at the membership alone.
                process.machine.part();
                Ok(())
            }
        }
    }

    fn apply_all(&mut self, host: HostId, entries: &[Entry]) -> Step {
        for entry in entries {
            self.apply_one(host, entry)?;
        }
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        // As the server's applier does in its own time: readers must not notice.
        process.machine.reclaim(self.random.random_range(0..20));
        let report: Report = process.machine.take_report();
        self.show(host)?;
        self.feed(host, Input::Applied(report))?;
        self.check_role(host)
    }

    /// One that was removed for good does not lead.
    fn check_role(&self, host: HostId) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let (id, membership) = (process.member.id(), process.machine.membership());
        if membership.is_removed(id) && membership.is_settled() {
            let role = process.member.status().raft.role;
            self.roles.removed(id, role == Role::Leader)?;
        }
        Ok(())
    }

    fn apply_one(&mut self, host: HostId, entry: &Entry) -> Step {
        let home = &self.home;
        let in_force: Vec<&Configuration> = self
            .configurations
            .iter()
            .rev()
            .filter(|(index, _)| *index < entry.index)
            .map(|(_, configuration)| configuration)
            .take(2)
            .collect();
        let host_of = |member| home.get(&member).copied();
        let first = entry.index > self.commits.last();
        self.commits
            .applied(host, entry, &self.logs, &in_force, host_of)?;
        let Some(applied) = self.apply_healed(host, entry) else {
            return Ok(());
        };
        let Some(applied) = self.unless_damaged(host, "apply", applied)? else {
            return Ok(());
        };
        if first {
            self.learn(host, entry, &applied)?;
        }
        if entry.index.is_multiple_of(COMPARED_EVERY) {
            if !self.stands(host)? {
                return Ok(());
            }
            self.compare_hashes(host)?;
        }
        self.answer_write(host, &applied)
    }

    /// Compares a member's state with the others' at its index; false if it could not be read.
    pub(super) fn stands(&mut self, host: HostId) -> Result<bool, Violation> {
        let hash = self.read_state(host, "the hash of the state", |process| {
            let hash = process.machine.hash()?;
            Ok::<_, DamagedValue>((process.machine.index(), hash))
        });
        match hash? {
            Some((index, hash)) => self.states.stands(host, index, hash).map(|()| true),
            None => Ok(false),
        }
    }

    /// Asks a member for the hash of its keys, as of now and as of some revision before.
    fn compare_hashes(&mut self, host: HostId) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        let back = self.random.random_range(0..20);
        let earlier = (view.revision() - back).max(view.compacted()).max(1);
        for revision in [0, earlier] {
            let hash = self.read_state(host, "the hash of the keys", |_| view.hash_kv(revision));
            match hash? {
                Some(hash) => self.states.reports(host, hash)?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The first application of an entry shows the order of all writes.
    fn learn(&mut self, host: HostId, entry: &Entry, applied: &Applied) -> Step {
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        let payload = LogPayload::of(entry).map_err(|error| broken("an entry", error))?;
        if let Some(request) = payload.as_ref().and_then(|payload| payload.request) {
            self.refusals.applied(request)?;
        }
        let (from, to) = (self.history.revision() + 1, view.revision());
        if from <= to {
            let events = self.read_state(host, "reading the history", |_| {
                view.events(from, to, b"\0", b"\0", false)
            });
            let Some(events) = events? else {
                return Ok(());
            };
            for event in events {
                self.history.changed(&event)?;
                let latest = self.history.from(self.history.until(to) - 1).next();
                if let Some((_, change)) = latest {
                    self.linear.changed(change)?;
                }
            }
        }
        if to != self.history.revision() {
            return Err(broken("the history", format!("it has no change at {to}")));
        }
        self.learn_command(payload, applied)?;
        self.learn_leases(applied)?;
        if matches!(
            &applied.outcome,
            Outcome::Store(Ok(Response::LeaseExpire(_) | Response::LeaseRevoke(_)))
        ) {
            self.keys_have_their_leases(host)?;
        }
        if let Outcome::Membership(Ok(membership)) = &applied.outcome {
            let before = self
                .configurations
                .last()
                .map(|(_, configuration)| configuration.clone());
            let now = membership.configuration();
            if before.as_ref() != Some(&now) {
                self.counters.configuration_changes += 1;
                let before = before.map_or_else(Default::default, |before| before.learners);
                for voter in now.voters.intersection(&before) {
                    self.counters.promotions += 1;
                    let last = self.home.get(voter).map_or(0, |at| self.logs.last(*at));
                    self.roles.promoted(*voter, entry.index, last)?;
                }
                self.roles.configured(&now);
                self.configurations.push((entry.index, now));
            }
            self.membership = Membership::clone(membership);
        }
        Ok(())
    }

    /// What became of a command of the log.
    fn learn_command(&mut self, payload: Option<LogPayload>, applied: &Applied) -> Step {
        let Outcome::Store(outcome) = &applied.outcome else {
            return Ok(());
        };
        let Some(PayloadBody::Command(command)) = payload.and_then(|payload| payload.body) else {
            return Ok(());
        };
        match &outcome {
            Ok(Response::Auth(_)) => self.counters.auth_changes += 1,
            Ok(Response::SetAlarm(_)) => self.counters.alarms += 1,
            Ok(Response::Compact(_)) => self.counters.compactions += 1,
            _ => {}
        }
        self.rights.applied(&command, outcome)
    }

    /// Entries are read back from the log for a member that lags behind.
    pub(super) fn read_log(&mut self, host: HostId, read: LogRead) -> Step {
        let entries = self.hosts[host].process.as_ref().map(|p| p.read_log(read));
        let Some(entries) = entries else {
            return Ok(());
        };
        let ticket = read.ticket;
        self.feed(host, Input::LogRead { ticket, entries })
    }

    /// What the machine holds now is written in the background.
    fn freeze(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        process.checkpointing = Some(process.machine.checkpoint());
        if !self.stands(host)? {
            return Ok(());
        }
        let after = self.disk_takes(host, 50 * MILLISECOND);
        let boot = self.hosts[host].boot;
        self.agenda.after(after, Event::Checkpointed(host, boot));
        Ok(())
    }

    pub(super) fn checkpointed(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let written = process.write_checkpoint();
        if let Err(persist::Error::Value(_)) = &written
            && self.heal(host)
        {
            return self.checkpointed(host);
        }
        if let Err(error) = &written
            && error.class() == Class::DiskFull
        {
            return self.no_room_for_checkpoint(host);
        }
        let info: Option<CheckpointInfo> =
            match self.unless_disk_failed(host, "checkpoint", written)? {
                Some(info) => info,
                None => return Ok(()),
            };
        self.counters.checkpoints += 1;
        // What was in memory is in this one.
        self.hosts[host].mended = false;
        self.feed(host, Input::CheckpointDone(info))
    }

    /// A checkpoint found no room: what can be given up for it is, and it is tried again.
    fn no_room_for_checkpoint(&mut self, host: HostId) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let least = process.machine.view().least_bytes();
        let made = process.checkpoints.make_room(least);
        if self
            .unless_disk_failed(host, "making room", made)?
            .is_none()
        {
            return Ok(());
        }
        if self.hosts[host].disk.stopped() {
            // So did the unfinished file's removal, whose error is not looked at.
            self.end_by_disk(host);
            return Ok(());
        }
        self.counters.full_checkpoints += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {host}: no room for a checkpoint"));
        self.set_faults(host, Faults::default());
        self.feed(host, Input::CheckpointDone(None))
    }

    /// The log begins anew after a received checkpoint. The machine may lag: it has not applied
    /// yet what was handed out before, and restores the checkpoint behind that.
    pub(super) fn reset_log(&mut self, host: HostId, meta: &SnapshotMeta) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        let waits = |job: &ApplyJob| matches!(job, ApplyJob::Entries(_));
        let behind = process.applying.iter().any(waits);
        let reset = process.reset_log(meta);
        if self
            .unless_disk_failed(host, "beginning the log anew", reset)?
            .is_none()
        {
            return Ok(());
        }
        self.counters.installs_behind += u64::from(behind);
        self.logs.reset(host, (meta.index, meta.term));
        self.wake_applier(host);
        Ok(())
    }

    fn install(&mut self, host: HostId, meta: &SnapshotMeta) -> Step {
        let Some(process) = &mut self.hosts[host].process else {
            return Ok(());
        };
        if meta.index < process.machine.index() {
            return Err(Violation::new(
                "snapshots",
                format!(
                    "host {host} stands at {} and installs {}",
                    process.machine.index(),
                    meta.index
                ),
            ));
        }
        let installed = process.install(meta);
        let installed = self.unless_disk_failed(host, "installing a checkpoint", installed)?;
        let (Some(()), Some(process)) = (installed, &mut self.hosts[host].process) else {
            return Ok(());
        };
        let report = process.machine.take_report();
        if !self.stands(host)? {
            return Ok(());
        }
        self.counters.installs += 1;
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("host {host} installs the checkpoint at {}", meta.index),
        );
        self.show(host)?;
        self.feed(host, Input::Installed(report))
    }
}
