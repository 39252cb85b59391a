//! The server among its peers: its disk's identity, its links, and what it knows of who may
//! speak for whom. Gives the core threads their way out and the peer port its judgement.
//!
//! Never decides consensus: it pins disks, refuses strangers and moves bytes.

mod alarmed;
mod checkpoint;
mod join;
mod maintenance;
mod no_sync;
mod port;
mod service;
mod start;
mod starts;
mod transport;
mod unknown_peers;

#[cfg(feature = "simulators")]
pub(crate) use service::refusal;
pub(crate) use start::{RunningServer, start};
pub(crate) use transport::Transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc};

use crate::disk::{self, Checkpoints, DataDirectory, Identity, LogOptions, Start, Starts};
use crate::node::{
    ForwardedOutcome, ForwardedOutcomeKind, ForwardedOutcomes, Input, PeerBody, PeerMessage,
    PeerReports, RequestId, TryAgain,
};
use crate::server::core::Core;
use crate::server::core::handle::{MemberHandle, Phase};
use crate::server::core::state::{RuntimeState, Who};
use crate::server::flags::config::{ClusterState, Config, Formation};
use crate::server::flags::url::Endpoint;
use crate::server::link::accept::Seen;
use crate::server::link::dial::{Dialler, Target};
use crate::server::link::door::Door;
use crate::server::link::hello::{FORMAT, Hello, Known, Purpose, Refusal, Reply, Verdict};
use crate::server::link::outbound::{self, Listener, Outbound, Peer};
use crate::server::process::exit::Stop;
use unknown_peers::UnknownPeers;

/// What happens to the server as a whole.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Removed from the cluster for good, and how it learned of it.
    Removed(String),
    /// Enough of the others say that this disk is a copy of the member's.
    Copied(String),
    /// A member that the applied membership does not hold yet said hello.
    Met,
    /// The operator asks to found a cluster.
    Bootstrap(Box<join::Founding>),
}

/// What to do about a member that was removed and cannot know it for certain.
const IF_SO: &str = "if a member list of the cluster does not show it, stop this server, and empty \
                     its data directory before it is added again";

/// The peers' addresses as the links use them.
type Links = BTreeMap<u64, (Peer, Outbound<PeerMessage>)>;

/// The server among its peers.
pub(crate) struct MemberRuntime {
    pub(crate) config: Config,
    pub(crate) shared: Arc<RuntimeState>,
    /// The data directory, locked for as long as the server lives.
    directory: Mutex<DataDirectory>,
    log_options: LogOptions,
    /// What the identity file says, for whoever must not wait for the disk.
    stored: ArcSwap<Identity>,
    /// What its file of starts says.
    starts: ArcSwap<Starts>,
    /// Which start each peer is in that a link stands to, and when it was heard over that last.
    standing: Mutex<BTreeMap<u64, (Start, Instant)>>,
    /// This disk, as text.
    pub(crate) disk_uuid: String,
    dialler: Arc<Dialler>,
    /// Who may keep a connection to the peer port.
    door: Arc<Door>,
    links: RwLock<Links>,
    /// Members that the applied membership does not hold yet, by their own hellos.
    unknown_peers: Mutex<UnknownPeers>,
    /// Whom this server has met before its core threads run; nothing from then on.
    early: Mutex<Option<BTreeMap<u64, String>>>,
    /// That unknown peers came was told, and is not taken note of yet.
    told_of_unknown_peers: AtomicBool,
    /// Who says that this server was removed.
    removal_reports: Mutex<PeerReports>,
    /// Who says that this disk is a copy.
    copied: Mutex<PeerReports>,
    /// What was heard where a peer is dialled that speaks against this server's being a member.
    doubts: Mutex<BTreeMap<u64, String>>,
    happenings: mpsc::UnboundedSender<Happening>,
    /// Whether messages have someone to step them.
    running: AtomicBool,
    core: Mutex<Option<Core>>,
    checkpoints: OnceLock<Checkpoints>,
    runtime: tokio::runtime::Handle,
    sending: Semaphore,
    receiving: Semaphore,
    /// Questions whose answer costs something, at once.
    asked: Semaphore,
    /// Initial members that this one has met, while a cluster forms.
    pub(crate) handle: MemberHandle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets other tasks of the peer runtime have this thread's place while it waits for the disk.
fn blocking<T>(act: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(act),
        _ => act(),
    }
}

impl MemberRuntime {
    /// What the identity file says.
    pub(crate) fn identity(&self) -> Identity {
        Identity::clone(&self.stored.load())
    }

    /// Sizes of the log on this volume.
    fn log_options(&self) -> LogOptions {
        self.log_options
    }

    /// The data directory, for whoever opens or makes the files of a member: without holding it, so
    /// that a description is answered meanwhile.
    fn files(&self) -> DataDirectory {
        lock(&self.directory).share()
    }

    /// Changes the identity file durably.
    fn change_identity(&self, change: impl FnOnce(&mut Identity)) -> disk::Result<()> {
        // It waits for a sync, which may take long: others go on with the runtime's thread.
        blocking(|| {
            let mut directory = lock(&self.directory);
            let before = directory.identity().cloned().unwrap_or_default();
            let mut after = before.clone();
            change(&mut after);
            if after == before {
                return Ok(());
            }
            directory.store_identity(after.clone())?;
            self.stored.store(Arc::new(after));
            Ok(())
        })
    }

    fn who(&self) -> Who {
        self.shared.phase.load().1.clone()
    }

    fn phase(&self) -> Phase {
        self.shared.phase.load().0
    }

    /// The members that this server knows of its own: those of the membership that it applied;
    /// before it has one, those of its flags or of the list by which it joined.
    fn expected(&self) -> BTreeSet<u64> {
        let published = self.shared.published.borrow().clone();
        if published.membership.cluster_id != 0 {
            return published.membership.members.keys().copied().collect();
        }
        let new = matches!(
            self.config.formation,
            Formation::InitialCluster {
                state: ClusterState::New,
                ..
            }
        );
        let initial = join::initial(&self.config).filter(|_| new);
        let initial = initial.filter(|initial| initial.cluster_id == self.who().cluster_id);
        match initial {
            Some(membership) => membership.members.into_keys().collect(),
            None => self.identity().peer_pins.into_keys().collect(),
        }
    }

    /// Forgets the disks of those that are not members. Version 0.1.0 remembered the disk of
    /// whoever said hello, until the identity file was full and the server stopped at each start.
    fn forget_strangers(&self) {
        let expected = self.expected();
        let kept = self.change_identity(|identity| {
            identity.peer_pins.retain(|id, _| expected.contains(id));
        });
        if let Err(error) = kept {
            tracing::warn!("the disks of strangers stay in the identity file for now: {error}");
        }
    }

    /// Remembers which disk a member speaks from, unless that is known; durable when it returns.
    /// Whoever is not expected leaves no trace. Others may speak as the same member while this waits
    /// for the disk: the first one written stays, and the caller has to judge again.
    fn pin(&self, id: u64, disk_uuid: &str) -> Result<(), Stop> {
        let expected = self.expected();
        if !expected.contains(&id) || self.known_members().disks.contains_key(&id) {
            return Ok(());
        }
        let Ok(uuid) = uuid::Uuid::parse_str(disk_uuid) else {
            return Ok(());
        };
        let bytes = uuid.as_bytes().to_vec();
        self.change_identity(|identity| {
            identity.peer_pins.retain(|id, _| expected.contains(id));
            identity.peer_pins.entry(id).or_insert(bytes);
        })
        .map_err(|error| crate::server::core::disk_stop(&error))
    }

    /// A hello succeeded in either direction, unless another disk came first as this member.
    fn met(&self, id: u64, name: &str, disk_uuid: &str) -> Verdict {
        if let Err(stop) = self.pin(id, disk_uuid) {
            self.shared.stop(stop);
            let text = "this server cannot remember the disk, and ends".to_owned();
            return Err((Refusal::NotYet, text));
        }
        self.known_members().judge_disk(id, name, disk_uuid)?;
        // Nobody reads the inbox before the core threads run: a server that waits to become a member
        // meets the others again and again.
        if let Some(early) = lock(&self.early).as_mut() {
            early.insert(id, disk_uuid.to_owned());
            return Ok(());
        }
        self.shared.report(Input::PeerDisk {
            id,
            disk_uuid: disk_uuid.to_owned(),
        });
        Ok(())
    }

    /// The core threads run: they are told whom this server has met before.
    fn runs(&self) {
        self.running.store(true, Ordering::Relaxed);
        let mut early = lock(&self.early);
        for (id, disk_uuid) in early.take().unwrap_or_default() {
            self.shared.report(Input::PeerDisk { id, disk_uuid });
        }
    }

    /// Who may speak for whom, unknown peers left out: what one of those says of itself binds nobody.
    fn known_members(&self) -> Known {
        let who = self.who();
        let published = self.shared.published.borrow().clone();
        let membership = &published.membership;
        let mut disks = BTreeMap::new();
        for (id, pin) in self.identity().peer_pins {
            if let Ok(uuid) = uuid::Uuid::from_slice(&pin) {
                disks.insert(id, uuid.to_string());
            }
        }
        for (id, member) in &membership.members {
            if !member.disk_uuid.is_empty() {
                disks.insert(*id, member.disk_uuid.clone());
            }
        }
        Known {
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            disks,
            tombstones: membership.tombstones.iter().map(|stone| stone.id).collect(),
            starts: self.starts.load_full(),
            standing: self.standing(),
        }
    }

    /// Makes the links those to `peers`: new ones are dialled, others dropped.
    fn link(self: &Arc<Self>, peers: Vec<Peer>) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, (peer, _)| peers.contains(peer));
        let mut doubts = lock(&self.doubts);
        let before = doubts.len();
        doubts.retain(|id, _| links.contains_key(id));
        if doubts.len() < before {
            self.tell_doubts(&doubts);
        }
        drop(doubts);
        for peer in peers {
            if links.contains_key(&peer.id) {
                continue;
            }
            let listener = Arc::clone(self) as Arc<dyn Listener>;
            let dialler = Arc::clone(&self.dialler);
            let sender = Arc::downgrade(self);
            let unsent = Arc::new(move |to: u64, message: PeerMessage| {
                if let Some(local) = sender.upgrade() {
                    local.unsent(to, message);
                }
            });
            let outbound = outbound::start(peer.clone(), dialler, listener, unsent);
            links.insert(peer.id, (peer, outbound));
        }
    }

    /// A message of which no byte went out. What was on its way to a leader is certain to have
    /// left no trace there, so it may be tried again instead of waiting in vain.
    fn unsent(&self, to: u64, message: PeerMessage) {
        let requests: Vec<RequestId> = match message.body {
            Some(PeerBody::Forward(forward)) => {
                let proposals = forward.proposals.into_iter();
                proposals.map(|proposal| proposal.request).collect()
            }
            Some(PeerBody::Change(change)) => vec![change.request],
            _ => return,
        };
        let fates = requests.into_iter().map(|request| ForwardedOutcome {
            request,
            kind: Some(ForwardedOutcomeKind::TryAgain(TryAgain {})),
        });
        let fates = ForwardedOutcomes {
            fates: fates.collect(),
        };
        self.shared.report(Input::Peer {
            from: to,
            message: PeerBody::ForwardedOutcomes(fates).into(),
        });
    }

    /// Where a peer is.
    fn endpoints(&self, id: u64) -> Vec<Target> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links
            .get(&id)
            .map(|(peer, _)| peer.urls.clone())
            .unwrap_or_default()
    }

    /// Lets a member in that is not known here. One that was down while the others were replaced
    /// knows none of today's members, and its answers need a link to whoever speaks to it.
    fn take_in(&self, hello: &Hello, seen: Seen) -> Result<(), (Refusal, String)> {
        let consensus = self.shared.consensus.load();
        let running = consensus.as_ref().as_ref();
        // Before its log is read a member knows nobody; those that it knows tell who else there is.
        if running.is_none_or(|consensus| consensus.led) {
            return unknown_peers::refuse_unexpected(hello);
        }
        self.link_back(hello, seen)?;
        self.shared.report(Input::PeerDisk {
            id: hello.member_id,
            disk_uuid: hello.disk_uuid.clone(),
        });
        Ok(())
    }

    /// A joiner that was restarted before it had the cluster's state knows the disks of the members
    /// and not where they are: without a link to its leader no answer reaches it, and it would never
    /// be sent that state.
    fn answer_where_it_listens(&self, hello: &Hello, seen: Seen) {
        let id = hello.member_id;
        if self.phase() != Phase::Joining {
            return;
        }
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let linked = links.get(&id).is_some_and(|(peer, _)| !peer.unknown);
        drop(links);
        if linked {
            return;
        }
        if let Err((_, reason)) = self.link_back(hello, seen) {
            tracing::debug!(peer = %format!("{id:x}"), "no link back: {reason}");
        }
    }

    /// Has whoever said this hello dialled, as an unknown peer.
    fn link_back(&self, hello: &Hello, seen: Seen) -> Result<(), (Refusal, String)> {
        let leader = self.shared.status().leader;
        let came = lock(&self.unknown_peers).admit(hello, seen, leader, Instant::now())?;
        if let Some(gone) = came.gone.filter(|_| self.running.load(Ordering::Relaxed)) {
            self.shared.report(Input::Forget(gone));
        }
        if came.links_change {
            self.tell_of_unknown_peers();
        }
        Ok(())
    }

    /// Has the links made anew, soon. Told once until it is done: before the server is a member nobody
    /// listens.
    fn tell_of_unknown_peers(&self) {
        if !self.told_of_unknown_peers.swap(true, Ordering::AcqRel) {
            // The supervisor is gone when the server ends already.
            let _ = self.happenings.send(Happening::Met);
        }
    }

    /// The voters besides this server, as it knew them last.
    fn others(&self) -> BTreeSet<u64> {
        let own = self.who().member_id;
        let published = self.shared.published.borrow().clone();
        let mut others = match published.membership.cluster_id {
            0 => self.expected(),
            _ => {
                let voters = published.membership.voters();
                voters.map(|voter| voter.id).collect()
            }
        };
        others.remove(&own);
        others
    }

    /// Something that was heard where this peer is dialled makes it doubtful that this server is
    /// still a member. Silence does not, and a member that leads or follows says nothing of it.
    fn doubt(&self, peer: u64, why: String) {
        let mut doubts = lock(&self.doubts);
        if doubts.get(&peer) != Some(&why) {
            tracing::warn!("in doubt whether this server is still a member: {why}; {IF_SO}");
            doubts.insert(peer, why);
            self.tell_doubts(&doubts);
        }
    }

    /// This peer takes this server for a member.
    fn trust(&self, peer: u64) {
        let mut doubts = lock(&self.doubts);
        if doubts.remove(&peer).is_some() {
            self.tell_doubts(&doubts);
        }
    }

    fn tell_doubts(&self, doubts: &BTreeMap<u64, String>) {
        let all: Vec<&str> = doubts.values().map(String::as_str).collect();
        self.shared.doubts(match all.is_empty() {
            true => String::new(),
            false => format!(
                "in doubt whether it is still a member: {}; {IF_SO}",
                all.join("; ")
            ),
        });
    }

    /// This server knows by itself that it was removed, or enough of the others have said so.
    fn gone(&self, reason: &str) {
        // The supervisor is gone when the server ends already.
        let _ = self.happenings.send(Happening::Removed(reason.to_owned()));
    }

    /// Links to every other member of the membership that was applied last. One that does not know
    /// this member yet is older than its joining: the leader of today may not be in it, and without
    /// a link no answer reaches that leader, so nothing is dropped until the log has caught up.
    fn link_members(self: &Arc<Self>) {
        let published = self.shared.published.borrow().clone();
        let own = self.who().member_id;
        let members = published.membership.members.values();
        let peers = members
            .filter(|member| member.id != own)
            .map(|member| peer(member.id, &member.peer_urls));
        let mut peers: Vec<Peer> = peers.collect();
        if !published.membership.members.contains_key(&own) {
            let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
            let told = links.values().map(|(peer, _)| peer.clone());
            let unknown = |told: &Peer| !peers.iter().any(|peer| peer.id == told.id);
            let told: Vec<Peer> = told.filter(unknown).collect();
            peers.extend(told);
        }
        let mut unknown_peers = lock(&self.unknown_peers);
        let membership = &published.membership;
        unknown_peers.retain(|id| {
            !membership.members.contains_key(&id) && !membership.is_removed(id) && id != own
        });
        for unknown in unknown_peers.peers() {
            peers.retain(|told| told.id != unknown.id);
            peers.push(unknown);
        }
        drop(unknown_peers);
        self.link(peers);
        self.keep_room();
    }

    /// Those that come from where members were reached are turned away last of all.
    fn keep_room(&self) {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let members = links.values().filter(|(peer, _)| !peer.unknown);
        let targets = members.flat_map(|(peer, _)| &peer.urls);
        self.door
            .reserve(targets.filter_map(|target| self.dialler.address(target)));
    }
}

/// A peer with those of its URLs that can be dialled.
fn peer(id: u64, urls: &[String]) -> Peer {
    let parsed = urls.iter().filter_map(|url| match Endpoint::parse(url) {
        Ok(endpoint) => Some(endpoint.into()),
        Err(error) => {
            tracing::warn!(peer = %format!("{id:x}"), "peer URL: {error}");
            None
        }
    });
    Peer {
        id,
        urls: parsed.collect(),
        unknown: false,
    }
}

impl Listener for MemberRuntime {
    fn hello(&self, to: u64, purpose: Purpose) -> Hello {
        let who = self.who();
        let published = self.shared.published.borrow().clone();
        // The cluster may have changed where it is dialled since its flags were written.
        let own = published.membership.member(who.member_id);
        let peer_urls = own.map_or(&self.config.advertise_peer_urls, |own| &own.peer_urls);
        Hello {
            format: FORMAT,
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            disk_uuid: self.disk_uuid.clone(),
            name: self.shared.name.clone(),
            to,
            purpose: purpose.into(),
            peer_urls: peer_urls.clone(),
            // Anyone may be asked who the members are.
            starts: (purpose != Purpose::Questions).then(|| self.starts.load().own().clone()),
        }
    }

    fn known(&self) -> Known {
        let mut known = self.known_members();
        for (id, disk) in lock(&self.unknown_peers).disks() {
            known.disks.entry(id).or_insert_with(|| disk.clone());
        }
        known
    }

    fn linked(&self, peer: u64, reply: &Reply) -> Verdict {
        self.met(peer, &reply.name, &reply.disk_uuid)?;
        self.note_start(peer, reply)?;
        self.stands(peer, reply);
        lock(&self.removal_reports).withdraw(peer);
        self.is_taken_for_the_member(peer);
        // Its address may be another one than before.
        self.keep_room();
        Ok(())
    }

    fn parted(&self, peer: u64) {
        lock(&self.standing).remove(&peer);
    }

    fn sent(&self, peer: u64, bytes: usize) {
        self.shared.metrics.peer_sent(peer, bytes);
    }

    fn round_trip(&self, peer: u64, took: Duration) {
        self.still_stands(peer);
        self.shared.metrics.peer_round_trip(peer, took);
    }

    fn unreachable(&self, peer: u64) {
        self.shared.metrics.peer_failed(peer);
        if self.running.load(Ordering::Relaxed) {
            self.shared.report(Input::Unreachable(peer));
            self.shared.report(Input::Unlinked(peer));
        }
    }

    fn removed(&self, peer: u64, reason: &str) {
        let others = self.others();
        let mut reports = lock(&self.removal_reports);
        // Reports of peers that do not count are not kept: there may be any number of them.
        if others.contains(&peer) {
            reports.add(peer);
        }
        let ((said, needed), believed) = (reports.count(&others), reports.is_majority(&others));
        drop(reports);
        if believed {
            self.gone(reason);
        } else {
            self.doubt(
                peer,
                format!(
                    "{peer:x} says that {reason}; {said} of the {needed} members that have to agree do"
                ),
            );
        }
    }

    fn copied(&self, peer: u64, reason: &str) {
        self.hears_of_a_copy(peer, reason);
    }

    fn replaced(&self, peer: u64, reason: &str) {
        self.doubt(
            peer,
            format!("another member answers in the place of {peer:x}, and says: {reason}"),
        );
    }
}

#[cfg(test)]
#[path = "runtime_test.rs"]
mod tests;
