//! Changes of membership, one at a time and in effect once applied, and snapshots, which bring
//! a whole configuration (thesis §4.1, paper §7).

use crate::mutants::mutant;
use bytes::Bytes;

use super::core::{Raft, Stepped};
use super::election::Campaign;
use super::error::{Error, ProposeError};
use super::message::{Body, TimeoutNow};
use super::progress::Progress;
use super::ready::Role;
use super::status::ProgressState;
use super::types::{
    Configuration, ConfigurationChange, Entry, Index, MemberId, Position, SnapshotMeta,
};

/// A snapshot that replaces log and state.
#[derive(Debug)]
pub(super) struct Install {
    pub(super) meta: SnapshotMeta,
    /// The caller was asked to install it.
    pub(super) asked: bool,
}

impl Raft {
    /// Appends a membership change, at a leader, and returns its position. At most one
    /// may be in the log and not applied: with that, any two configurations that are in use at
    /// the same time share a member in all their majorities.
    pub fn propose_configuration(
        &mut self,
        change: ConfigurationChange,
        data: Bytes,
    ) -> Result<Position, ProposeError> {
        let index = self.log.last() + 1;
        let entries = vec![Entry::configuration_change(self.term, index, change, data)];
        self.check_proposal(&entries)?;
        let pending = self.log.unapplied_configuration().is_some() && !mutant!(TwoChanges);
        if !self.committed_in_term() || pending {
            return Err(ProposeError::ChangePending);
        }
        self.configuration.after(change)?;
        self.append_proposal(entries)
    }

    /// The change in the configuration entry at `index` takes effect. To be called when that
    /// entry is applied and before it is reported as applied; not for a change that the state
    /// machine refused. Returns the configuration in force.
    pub fn apply_configuration(
        &mut self,
        index: Index,
        change: ConfigurationChange,
    ) -> Result<Configuration, Error> {
        if index <= self.configuration_index {
            // It came with a snapshot already.
            return Ok(self.configuration.clone());
        }
        if index > self.log.commit()
            || index <= self.log.applied()
            || !self.log.is_configuration(index)
        {
            return Err(Error::Misuse(format!(
                "entry {index} is not a committed change of membership that waits to be applied"
            )));
        }
        let mut next = self.configuration.after(change)?;
        mutant!(RemovedCounts => next.voters.extend(&self.configuration.voters));
        self.configuration = next.clone();
        self.configuration_index = index;
        self.outbox.poke();
        if self.role == Role::Leader {
            self.lead_configuration(change)?;
        } else if self.role != Role::Follower && !next.voters.contains(&self.config.id) {
            self.become_follower(self.term, None);
        }
        Ok(next)
    }

    /// What a change means for the leader.
    fn lead_configuration(&mut self, change: ConfigurationChange) -> Result<(), Error> {
        let id = change.member();
        match change {
            ConfigurationChange::Remove(_) => {
                self.confirm_removal(id)?;
                self.progress.remove(&id);
                if self.snapshot_to == Some(id) {
                    self.snapshot_to = None;
                }
                if self
                    .transfer
                    .as_ref()
                    .is_some_and(|transfer| transfer.to == id)
                {
                    self.transfer = None;
                }
            }
            ConfigurationChange::Promote(_) => {
                if let Some(progress) = self.progress.get_mut(&id) {
                    progress.learner = false;
                }
            }
            ConfigurationChange::AddVoter(_) | ConfigurationChange::AddLearner(_) => {
                let learner = self.configuration.learners.contains(&id);
                let mut progress = Progress::new(&self.config, self.log.last() + 1, learner);
                // It has had no time to answer: the next check of the quorum must not count
                // that against the leader.
                progress.recent_active = true;
                progress.poke = true;
                self.progress.insert(id, progress);
            }
        }
        // A smaller quorum may have been reached already.
        self.advance_commit()?;
        self.release_reads();
        Ok(())
    }

    /// Appends an empty entry after a removal that has just taken effect. A member that stores it also stores a commit
    /// index that includes the removal; so once it is committed, a majority of the remaining members will count without
    /// the removed member after any restart. Otherwise they might wait for the vote of a member that is permanently
    /// gone. A leader that has removed itself leads until then, and accepts no more proposals.
    fn confirm_removal(&mut self, id: MemberId) -> Result<(), Error> {
        let index = self.log.last() + 1;
        if id != self.config.id && mutant!(RemovalUnconfirmed) {
            return Ok(());
        }
        self.append_own(vec![Entry::normal(self.term, index, Vec::new())])?;
        if id == self.config.id && !mutant!(RemovedLeads) {
            self.transfer = None;
            self.leaving = Some(index);
        }
        Ok(())
    }

    /// The leader is no longer a voter, and a majority of the others has recorded that. The most up-to-date one is
    /// asked to take over, so that no election timeout passes.
    pub(super) fn leave_leadership(&mut self) {
        let heir = self
            .progress
            .iter()
            .filter(|(_, progress)| !progress.learner && progress.recent_active)
            .max_by_key(|(_, progress)| progress.matched)
            .map(|(id, _)| *id);
        if let Some(to) = heir {
            self.send(to, Body::TimeoutNow(TimeoutNow {}));
        }
        self.become_follower(self.term, None);
        self.left_in_order = true;
    }

    /// Whether this member was removed while it led, and led until a majority of the remaining members had the commit
    /// index of the removal on their disks: its vote is never needed again.
    pub fn left_in_order(&self) -> bool {
        self.left_in_order
    }

    /// A snapshot lies complete on this member's disk.
    pub(super) fn on_snapshot(&mut self, from: MemberId, meta: SnapshotMeta) -> Stepped {
        if self.role == Role::Leader {
            return Stepped::Ignored("a leader holds all that is committed");
        }
        let newer = mutant!(SnapshotOverNewer);
        if meta.index <= self.log.commit() && !newer {
            self.acknowledge(from, self.log.commit());
            return Stepped::Ignored("all of the snapshot is committed here");
        }
        if self.log.term(meta.index) == Some(meta.term) && !newer {
            // The log contains the snapshot's entries: only the commit index was behind, and it cannot be beyond the
            // log.
            let _ = self.log.commit_to(meta.index);
            self.acknowledge(from, meta.index);
            return Stepped::Taken;
        }
        let installs = self.install.as_ref().is_some_and(|install| install.asked);
        if installs && !mutant!(TwoSnapshots) {
            return Stepped::Ignored("another snapshot is being installed");
        }
        if self.role != Role::Follower {
            self.become_follower(self.term, None);
        }
        self.log.replace(&meta);
        self.configuration = meta.configuration.clone();
        self.configuration_index = meta.index;
        self.outbox.forget_apply_read();
        self.acknowledge(from, meta.index);
        self.install = Some(Install { meta, asked: false });
        Stepped::Taken
    }

    /// The snapshot of [`super::Ready::install`] has replaced state and log durably. Only then do
    /// batches and acknowledgements flow again.
    pub fn snapshot_installed(&mut self, meta: &SnapshotMeta) -> Result<(), Error> {
        match &self.install {
            Some(install) if install.asked && install.meta == *meta => {
                self.install = None;
                self.log.applied_to(meta.index)?;
                // The log on disk was replaced: it must contain term and vote.
                self.outbox.force_hard_state();
                self.outbox.poke();
                Ok(())
            }
            _ => Err(Error::Misuse(format!(
                "no snapshot at {} is being installed",
                meta.index
            ))),
        }
    }

    /// What became of a snapshot that was to be sent: the index of the one that `id` now holds
    /// whole, or `None` if it failed. Owed once for each [`super::SnapshotSend`].
    pub fn report_snapshot(&mut self, id: MemberId, sent: Option<Index>) {
        if self.snapshot_to == Some(id) {
            self.snapshot_to = None;
        }
        self.outbox.poke();
        let Some(progress) = self.progress.get_mut(&id) else {
            return;
        };
        if progress.state == ProgressState::Snapshot {
            progress.pending_snapshot = sent.unwrap_or(0);
            progress.become_probe();
            // Its response to the snapshot, or the next heartbeat, determines how to continue.
            progress.paused = true;
        }
    }

    /// The state machine has applied everything up to `index`, in order.
    pub fn applied(&mut self, index: Index) -> Result<(), Error> {
        self.log.applied_to(index)?;
        self.outbox.poke();
        if self.campaign_when_applied {
            let waits = self.log.unapplied_configuration();
            if waits.is_none_or(|index| index > self.log.commit()) {
                self.campaign_when_applied = false;
                self.start_campaign(Campaign::Transfer)?;
            }
        }
        Ok(())
    }

    /// The log on disk has been dropped up to and including `index`, which a snapshot covers.
    pub fn compact(&mut self, index: Index) -> Result<(), Error> {
        self.log.drop_through(index)?;
        self.outbox.poke();
        Ok(())
    }
}
