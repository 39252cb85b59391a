//! The server and its peers: the identity of its disk, its links, and which disks may act for which
//! members. Gives the core threads their transport and the peer port its checks.
//!
//! Never decides consensus: it pins disks, refuses unknown hosts and moves bytes.

mod access;
mod alarmed;
mod backup;
mod backup_entries;
mod backup_file;
mod backup_tail;
mod checkpoint;
mod epochs;
mod follow;
mod found;
mod healing;
mod held;
mod join;
mod key_memory;
mod maintenance;
mod no_sync;
mod port;
mod restore;
mod service;
mod staging;
mod start;
mod starts;
mod transport;
mod unknown_peers;
mod values;

#[cfg(feature = "simulators")]
pub(crate) use service::refusal;
pub(crate) use start::{RunningServer, start};
pub(crate) use transport::Transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::disk::{self, DataDirectory, Identity, LogOptions, LogReader, Start, Starts};
use crate::node::{Input, PeerMessage, PeerReports};
use crate::persist::Saver;
use crate::server::core::Core;
use crate::server::core::handle::{MemberHandle, Phase};
use crate::server::core::state::{RuntimeState, Who};
use crate::server::flags::config::{ClusterState, Config, Formation};
use crate::server::flags::url::Endpoint;
use crate::server::link::accept::ObservedPeer;
use crate::server::link::dial::{Dialler, Target};
use crate::server::link::door::Door;
use crate::server::link::hello::{FORMAT, Hello, Known, Purpose, Refusal, Reply, Verdict};
use crate::server::link::outbound::{self, Listener, Outbound, Peer};
use crate::server::process::exit::Stop;
use staging::Staging;
use unknown_peers::UnknownPeers;

/// Events that concern the server as a whole.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Removed from the cluster for good, and how it learned of it.
    Removed(String),
    /// Enough of the others report that this disk is a copy of the member's.
    Copied(String),
    /// A member that is not in the applied membership yet has sent a hello.
    Met,
    /// The operator asks to found a cluster.
    Bootstrap(
        Box<found::Founding>,
        oneshot::Sender<Result<Who, tonic::Status>>,
    ),
}

/// The remedy for a member that was removed but cannot know it for certain.
const IF_SO: &str = "if a member list of the cluster does not show it, stop this server, and empty \
                     its data directory before it is added again";

/// The links to peers, by ID.
type Links = BTreeMap<u64, (Peer, Outbound<PeerMessage>)>;

/// The server and its peers.
pub(crate) struct MemberRuntime {
    pub(crate) config: Config,
    pub(crate) shared: Arc<RuntimeState>,
    /// The data directory, locked for as long as the server lives.
    directory: Mutex<DataDirectory>,
    log_options: LogOptions,
    /// The content of the identity file, for reading without the disk.
    stored: ArcSwap<Identity>,
    /// The content of the file of starts.
    starts: ArcSwap<Starts>,
    /// The snapshot that this standby receives. Whoever makes it a member holds the lock until it is one.
    staging: Arc<tokio::sync::Mutex<Staging>>,
    /// What is known of that snapshot, for descriptions.
    staged: staging::Shown,
    /// A cluster is being founded here on a call.
    founding: AtomicBool,
    /// The start of each peer with an established link, and when it was last heard on that link.
    standing: Mutex<BTreeMap<u64, (Start, Instant)>>,
    /// The UUID of this disk.
    pub(crate) disk_uuid: String,
    dialler: Arc<Dialler>,
    /// Limits the connections to the peer port.
    door: Arc<Door>,
    links: RwLock<Links>,
    /// Members that are not in the applied membership yet, by their own hellos.
    unknown_peers: Mutex<UnknownPeers>,
    /// The members met before the core threads run; `None` from then on.
    early: Mutex<Option<BTreeMap<u64, String>>>,
    /// The arrival of unknown peers was reported, and the supervisor has not handled it yet.
    reported_unknown_peers: AtomicBool,
    /// The members that report that this server was removed.
    removal_reports: Mutex<PeerReports>,
    /// The members that report that this disk is a copy.
    copied: Mutex<PeerReports>,
    /// Reasons, by peer, to doubt that this server is still a member.
    doubts: Mutex<BTreeMap<u64, String>>,
    happenings: mpsc::UnboundedSender<Happening>,
    /// Whether there are core threads to which messages can be passed.
    running: AtomicBool,
    core: Mutex<Option<Core>>,
    saver: OnceLock<Arc<Saver>>,
    /// The log on the disk, from the moment at which it is read.
    log: OnceLock<LogReader>,
    runtime: tokio::runtime::Handle,
    /// The thread of consensus and of the links that carry it.
    raft: tokio::runtime::Handle,
    sending: Semaphore,
    receiving: Arc<Semaphore>,
    /// Limits the concurrent requests that are expensive to answer.
    asked: Semaphore,
    /// The interface of client services to this member.
    pub(crate) handle: MemberHandle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets other tasks of the peer runtime use this thread while it waits for the disk.
fn blocking<T>(act: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(act),
        _ => act(),
    }
}

impl MemberRuntime {
    /// The content of the identity file.
    pub(crate) fn identity(&self) -> Identity {
        Identity::clone(&self.stored.load())
    }

    /// Sizes of the log on this volume.
    fn log_options(&self) -> LogOptions {
        self.log_options
    }

    /// The data directory, for opening or creating a member's files without holding the lock, so
    /// that a description can be answered meanwhile.
    fn files(&self) -> DataDirectory {
        // Whoever has the lock may wait for a sync.
        blocking(|| lock(&self.directory).share())
    }

    /// Changes the identity file durably.
    fn change_identity(&self, change: impl FnOnce(&mut Identity)) -> disk::Result<()> {
        // This waits for a sync, which may take long; other tasks may use the runtime's thread.
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

    /// Whether a cluster is being founded here on a call.
    fn is_founding(&self) -> bool {
        self.founding.load(Ordering::Acquire)
    }

    fn who(&self) -> Who {
        self.shared.phase.load().1.clone()
    }

    fn phase(&self) -> Phase {
        self.shared.phase.load().0
    }

    /// The members that this server knows by itself: those of the applied membership; before it has
    /// one, those of its flags or of the list by which it joined.
    fn expected(&self) -> BTreeSet<u64> {
        let latest = self.shared.latest.borrow().clone();
        if latest.membership.cluster_id != 0 {
            return latest.membership.members.keys().copied().collect();
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

    /// Forgets the disks of servers that are not members. Version 0.1.0 remembered the disk of
    /// every hello, until the identity file was full and the server stopped at each start.
    fn forget_strangers(&self) {
        let expected = self.expected();
        let kept = self.change_identity(|identity| {
            identity.peer_pins.retain(|id, _| expected.contains(id));
        });
        if let Err(error) = kept {
            tracing::warn!("the disks of strangers stay in the identity file for now: {error}");
        }
    }

    /// Pins the disk of a member, unless one is known; durable when it returns. Disks of unexpected
    /// servers are not stored. Other servers may send hellos as the same member while this waits
    /// for the disk: the first one stored stays, and the caller has to check again.
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

    /// A hello succeeded in either direction, unless another disk was accepted as this member
    /// first.
    fn met(&self, id: u64, name: &str, disk_uuid: &str) -> Verdict {
        if let Err(stop) = self.pin(id, disk_uuid) {
            self.shared.stop(stop);
            let text = "this server cannot remember the disk, and ends".to_owned();
            return Err((Refusal::NotYet, text));
        }
        self.known_members().judge_disk(id, name, disk_uuid)?;
        // The inbox is not read before the core threads run, and a server that waits to become a
        // member meets the others again and again.
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

    /// The core threads run: they are given the members that this server has met before.
    fn runs(&self) {
        self.running.store(true, Ordering::Relaxed);
        let mut early = lock(&self.early);
        for (id, disk_uuid) in early.take().unwrap_or_default() {
            self.shared.report(Input::PeerDisk { id, disk_uuid });
        }
    }

    /// Which disk may act for which member, without unknown peers: their own claims bind no other
    /// member.
    fn known_members(&self) -> Known {
        let who = self.who();
        let latest = self.shared.latest.borrow().clone();
        let membership = &latest.membership;
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

    /// Changes the links to those to `peers`: new ones are dialled, others dropped.
    fn link(self: &Arc<Self>, peers: Vec<Peer>) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, (peer, _)| peers.contains(peer));
        let mut doubts = lock(&self.doubts);
        let before = doubts.len();
        doubts.retain(|id, _| links.contains_key(id));
        if doubts.len() < before {
            self.publish_doubts(&doubts);
        }
        drop(doubts);
        // Before they are dialled: the first link counts.
        let ids = peers.iter().map(|peer| peer.id);
        self.shared.metrics.peers.keep(ids);
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
            let outbound =
                outbound::start(peer.clone(), dialler, listener, unsent, self.raft.clone());
            let waiting = outbound.waiting();
            self.shared.metrics.peers.waits(peer.id, waiting);
            links.insert(peer.id, (peer, outbound));
        }
    }

    /// A message of which no byte was sent. Of others than forwards the member need not know.
    fn unsent(&self, to: u64, message: PeerMessage) {
        if message.forwards() {
            self.shared.report(Input::Unsent { to, message });
        }
    }

    /// The URLs of a peer.
    fn endpoints(&self, id: u64) -> Vec<Target> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links
            .get(&id)
            .map(|(peer, _)| peer.urls.clone())
            .unwrap_or_default()
    }

    /// Accepts a member that is not known here. A member that was down while the others were
    /// replaced knows none of the present members, and to answer them it needs a link back.
    fn take_in(&self, hello: &Hello, observed: ObservedPeer) -> Result<(), (Refusal, String)> {
        let consensus = self.shared.consensus.load();
        let running = consensus.as_ref().as_ref();
        // Before its log is read a member knows no other; once it has a leader, it learns of new
        // members from the log.
        if running.is_none_or(|consensus| consensus.led) {
            return unknown_peers::refuse_unexpected(hello);
        }
        self.link_back(hello, observed)?;
        self.shared.report(Input::PeerDisk {
            id: hello.member_id,
            disk_uuid: hello.disk_uuid.clone(),
        });
        Ok(())
    }

    /// A joiner that was restarted before it had the cluster's state knows the disks of the members
    /// but not their URLs: without a link to its leader no answer reaches the leader, and it would
    /// never receive that state.
    fn answer_where_it_listens(&self, hello: &Hello, observed: ObservedPeer) {
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
        if let Err((_, reason)) = self.link_back(hello, observed) {
            tracing::debug!(peer = %format!("{id:x}"), "no link back: {reason}");
        }
    }

    /// Dials the sender of this hello, as an unknown peer.
    fn link_back(&self, hello: &Hello, observed: ObservedPeer) -> Result<(), (Refusal, String)> {
        let leader = self.shared.status().leader;
        let came = lock(&self.unknown_peers).admit(hello, observed, leader, Instant::now())?;
        if let Some(gone) = came.gone.filter(|_| self.running.load(Ordering::Relaxed)) {
            self.shared.report(Input::Forget(gone));
        }
        if came.links_change {
            self.report_unknown_peers();
        }
        Ok(())
    }

    /// Has the links updated soon. Reported once until that is done: before the server is a member,
    /// no task handles it.
    fn report_unknown_peers(&self) {
        if !self.reported_unknown_peers.swap(true, Ordering::AcqRel) {
            // The supervisor is gone when the server is ending already.
            let _ = self.happenings.send(Happening::Met);
        }
    }

    /// The voters besides this server, as it last knew them.
    fn others(&self) -> BTreeSet<u64> {
        let own = self.who().member_id;
        let latest = self.shared.latest.borrow().clone();
        let mut others = match latest.membership.cluster_id {
            0 => self.expected(),
            _ => {
                let voters = latest.membership.voters();
                voters.map(|voter| voter.id).collect()
            }
        };
        others.remove(&own);
        others
    }

    /// The answer at this peer's address makes it doubtful that this server is still a member. A
    /// missing answer does not, and a member that leads or follows does not report the doubt.
    fn doubt(&self, peer: u64, why: String) {
        let mut doubts = lock(&self.doubts);
        if doubts.get(&peer) != Some(&why) {
            tracing::warn!("in doubt whether this server is still a member: {why}; {IF_SO}");
            doubts.insert(peer, why);
            self.publish_doubts(&doubts);
        }
    }

    /// This peer treats this server as a member.
    fn trust(&self, peer: u64) {
        let mut doubts = lock(&self.doubts);
        if doubts.remove(&peer).is_some() {
            self.publish_doubts(&doubts);
        }
    }

    fn publish_doubts(&self, doubts: &BTreeMap<u64, String>) {
        let all: Vec<&str> = doubts.values().map(String::as_str).collect();
        self.shared.doubts(match all.is_empty() {
            true => String::new(),
            false => format!(
                "in doubt whether it is still a member: {}; {IF_SO}",
                all.join("; ")
            ),
        });
    }

    /// This server applied its own removal, or enough of the others report it.
    fn gone(&self, reason: &str) {
        // The supervisor is gone when the server is ending already.
        let _ = self.happenings.send(Happening::Removed(reason.to_owned()));
    }

    /// Links to every other member of the applied membership. A membership without this member is
    /// older than its addition: the present leader may not be in it, and without a link no answer
    /// reaches that leader, so no link is dropped until the log has caught up.
    fn link_members(self: &Arc<Self>) {
        let latest = self.shared.latest.borrow().clone();
        let own = self.who().member_id;
        let members = latest.membership.members.values();
        let peers = members
            .filter(|member| member.id != own)
            .map(|member| peer(member.id, &member.peer_urls));
        let mut peers: Vec<Peer> = peers.collect();
        if !latest.membership.members.contains_key(&own) {
            let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
            let present = links.values().map(|(peer, _)| peer.clone());
            let unknown = |present: &Peer| !peers.iter().any(|peer| peer.id == present.id);
            let present: Vec<Peer> = present.filter(unknown).collect();
            peers.extend(present);
        }
        let mut unknown_peers = lock(&self.unknown_peers);
        let membership = &latest.membership;
        unknown_peers.retain(|id| {
            !membership.members.contains_key(&id) && !membership.is_removed(id) && id != own
        });
        for unknown in unknown_peers.peers() {
            peers.retain(|peer| peer.id != unknown.id);
            peers.push(unknown);
        }
        drop(unknown_peers);
        self.link(peers);
        self.keep_room();
    }

    /// Connections from the members' addresses are closed only after all others.
    fn keep_room(&self) {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let members = links.values().filter(|(peer, _)| !peer.unknown);
        let targets = members.flat_map(|(peer, _)| &peer.urls);
        self.door
            .reserve(targets.flat_map(|target| self.dialler.known_addresses(target)));
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
        let latest = self.shared.latest.borrow().clone();
        // The cluster may have changed this member's peer URLs since its flags were written.
        let own = latest.membership.member(who.member_id);
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
            // Any server may be asked for the members, so the starts are not sent with a request.
            starts: (purpose != Purpose::Requests).then(|| self.starts.load().own().clone()),
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
        self.shared.metrics.peers.linked(peer);
        // It may have been dialled at a new address.
        self.keep_room();
        Ok(())
    }

    fn parted(&self, peer: u64) {
        lock(&self.standing).remove(&peer);
        self.shared.metrics.peers.parted(peer);
    }

    fn sent(&self, peer: u64, bytes: usize) {
        self.shared.metrics.peers.sent(peer, bytes);
    }

    fn round_trip(&self, peer: u64, took: Duration) {
        self.still_stands(peer);
        self.shared.metrics.peers.round_trip(peer, took);
    }

    fn gone(&self, peer: u64) {
        if self.running.load(Ordering::Relaxed) {
            self.shared.report(Input::Gone(peer));
        }
    }

    fn unreachable(&self, peer: u64) {
        self.shared.metrics.peers.failed(peer);
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
        let ((reports_so_far, needed), believed) =
            (reports.count(&others), reports.is_majority(&others));
        drop(reports);
        if believed {
            self.gone(reason);
        } else {
            self.doubt(
                peer,
                format!(
                    "{peer:x} reports that {reason}; {reports_so_far} of the {needed} members that have to agree do"
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
            format!("another member answers in the place of {peer:x}, and reports: {reason}"),
        );
    }
}

#[cfg(test)]
#[path = "runtime_test.rs"]
mod tests;
