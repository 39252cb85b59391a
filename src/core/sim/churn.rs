//! Membership churn, as an operator would do it: a lost disk's member is removed first, then
//! replaced; newcomers join as learners with an empty disk and are promoted; the size changes.

use std::sync::Arc;

use rand::RngExt as _;

use crate::disk::double::Keep;
use crate::node::{Add, ChangeBody, Input, Membership, MembershipCommand, Target};
use crate::raft::MemberId;

use super::clock::{MILLISECOND, Micros, SECOND};
use super::disk_corruption::Damage;
use super::host::Host;
use super::network::HostId;
use super::world::{Event, Step, World, broken};

/// What the churn wants.
#[derive(Debug)]
pub(super) struct Churn {
    /// How many voters there should be.
    pub(super) target: usize,
    /// The host that was made for the next newcomer and was not seen as a member yet.
    pub(super) newcomer: Option<(MemberId, HostId)>,
    added: u64,
    /// When it was last asked to remove a member whose disk is sound.
    shrunk: Micros,
}

impl Churn {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            newcomer: None,
            added: 0,
            shrunk: 0,
        }
    }
}

impl World {
    /// One look at the membership as last applied anywhere, and at most one act.
    pub(super) fn look_after_membership(&mut self) -> Step {
        let pause = self
            .random
            .random_range(100 * MILLISECOND..600 * MILLISECOND);
        self.agenda.after(pause, Event::Churn);
        if self.stormy && self.random.random_bool(0.08) {
            self.churn.target = self.random.random_range(1..=7);
        }
        self.start_newcomer()?;
        self.clear_away();
        let voters: Vec<MemberId> = self.membership.voters().map(|member| member.id).collect();
        let learner = self.membership.learners().map(|member| member.id).next();
        if let Some(dead) = voters.iter().copied().find(|id| self.is_lost(*id)) {
            return self.change(ChangeBody::Remove(Target { id: dead }));
        }
        if let Some(id) = learner {
            let abandoned = self.is_lost(id) || (self.stormy && self.random.random_bool(0.03));
            let target = Target { id };
            return self.change(if abandoned {
                ChangeBody::Remove(target)
            } else {
                ChangeBody::Promote(target)
            });
        }
        if voters.len() < self.churn.target {
            return self.add();
        }
        // A member whose disk may be damaged is not counted on: no other one is removed meanwhile.
        let doubtful = self.stormy && self.hosts.iter().any(Host::is_doubtful);
        if voters.len() > self.churn.target && !doubtful {
            let id = voters[self.random.random_range(0..voters.len())];
            self.churn.shrunk = self.agenda.now();
            return self.change(ChangeBody::Remove(Target { id }));
        }
        if self.stormy && voters.len() >= 3 && self.random.random_bool(0.3) {
            let unlucky = voters[self.random.random_range(0..voters.len())];
            let host = self.home.get(&unlucky).copied();
            let Some(host) = host.filter(|_| self.may_lose_a_disk()) else {
                return Ok(());
            };
            match self.random.random_range(0..3) {
                0 => self.lose_disk(host)?,
                1 => self.spoil(host, Damage::Rot)?,
                _ => self.spoil(host, Damage::Misdirected)?,
            }
        }
        Ok(())
    }

    fn is_lost(&self, member: MemberId) -> bool {
        self.home
            .get(&member)
            .is_none_or(|host| self.hosts[*host].lost)
    }

    /// Whether a disk may be lost, or be spoilt so that its server may refuse to start. One at a
    /// time: a quorum of the voters keeps theirs. It may be that the configuration is just about
    /// to change, so that a smaller quorum counts: then the loss must wait.
    fn may_lose_a_disk(&self) -> bool {
        let known = self.membership.configuration_index;
        let settled = self.hosts.iter().all(|host| match &host.process {
            // A change may lie in the log of a server that is down.
            None => host.lost || host.retired || host.member.is_none(),
            Some(process) => {
                let applied = process.machine.membership().configuration_index;
                let ahead = process.log.shape();
                host.retired
                    || (applied == known && ahead.configurations_after(known).next().is_none())
            }
        });
        let doubtful = self.hosts.iter().any(Host::is_doubtful);
        settled && !doubtful && self.agenda.now() > self.churn.shrunk + 2 * SECOND
    }

    fn lose_disk(&mut self, host: HostId) -> Step {
        self.counters.lost_disks += 1;
        self.dispose_of(host);
        // What its log held stays known to the oracles: it was durable when it was counted.
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {host} loses its disk for good"));
        match self.hosts[host].older.take() {
            Some(older) => self.comes_back_older(host, &older),
            None => Ok(()),
        }
    }

    /// Nothing of a server is left.
    pub(super) fn dispose_of(&mut self, host: HostId) {
        self.hosts[host].process = None;
        self.hosts[host].lost = true;
        self.hosts[host].spoilt = false;
        self.hosts[host].disk.crash(Keep::Nothing);
    }

    /// The server of a removed member is deleted with its disk, so no other member may count on its vote
    /// any more: as soon as some server knows that the removal is settled. A leader that removed
    /// itself may be deleted as soon as it reports that it has left.
    fn clear_away(&mut self) {
        if !self.random.random_bool(0.3) {
            return;
        }
        let settled: Vec<&Arc<Membership>> = self
            .hosts
            .iter()
            .filter_map(|host| host.process.as_ref())
            .map(|process| process.machine.membership())
            .filter(|membership| membership.is_settled())
            .collect();
        let gone = self.hosts.iter().find(|host| {
            let removed = |id| settled.iter().any(|membership| membership.is_removed(id));
            host.member.is_some_and(removed) && !host.lost
        });
        if let Some(host) = gone.map(|host| host.id) {
            self.delete(host);
        }
    }

    /// A removed server is deleted with its disk.
    pub(super) fn delete(&mut self, host: HostId) {
        self.dispose_of(host);
        self.counters.cleared += 1;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {host} was removed and is deleted"));
    }

    /// Asks for another learner, on a new host with an empty disk.
    fn add(&mut self) -> Step {
        let (id, host) = match self.churn.newcomer {
            Some((id, host)) if !self.membership.is_removed(id) => (id, host),
            _ => {
                self.churn.added += 1;
                let host = self.new_host();
                let id = self.random.random_range(1..u64::MAX);
                self.churn.newcomer = Some((id, host));
                (id, host)
            }
        };
        let disk_uuid = self.hosts[host].disk_name();
        let names_disk = self.churn.added.is_multiple_of(2);
        self.change(ChangeBody::Add(Add {
            id,
            name: format!("host-{host}"),
            peer_urls: vec![format!("http://host-{host}:2380")],
            client_urls: Vec::new(),
            learner: true,
            disk_uuid: if names_disk { disk_uuid } else { String::new() },
        }))
    }

    /// A newcomer that was added starts, on its empty disk.
    fn start_newcomer(&mut self) -> Step {
        let Some((id, host)) = self.churn.newcomer else {
            return Ok(());
        };
        if self.membership.member(id).is_none() {
            return Ok(());
        }
        self.churn.newcomer = None;
        let adopted = self.hosts[host].adopt(id, None, self.log_options);
        adopted.map_err(|error| broken("joining", error))?;
        self.home.insert(id, host);
        self.start(host)
    }

    /// Proposes a change at some server; what became of it is seen in the membership.
    fn change(&mut self, body: ChangeBody) -> Step {
        let Some(host) = self.any_running() else {
            return Ok(());
        };
        let counter = self.number();
        let request = self.request(host, counter);
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("at host {host}: {body:?}"));
        let command = MembershipCommand::from(body);
        self.ask(host, Input::ChangeMembership { request, command });
        self.lose_patience(host, request);
        Ok(())
    }
}
