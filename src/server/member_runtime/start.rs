//! Start and end of the member: disk, peer port, core threads, and the supervisor that takes the
//! server from one phase to the next.

use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::join::{identity_stop, public_phase};
use super::no_sync::NoSync;
use super::staging::Staging;
use super::{Happening, MemberRuntime, Transport, lock, service};
use crate::disk::{
    self, DataDirectory, Disk, FileDisk, Identity, LogOptions, Reserve, Starts, open_member,
};
use crate::server::core::handle::{Fence, Health, MemberHandle, MembershipRequest, Phase, Role};
use crate::server::core::raft_thread::RaftThread;
use crate::server::core::state::{RuntimeState, Who};
use crate::server::core::{Core, disk_stop, open};
use crate::server::flags::config::{Config, Formation};
use crate::server::flags::url::Endpoint;
use crate::server::link::accept::{self, Host as _, Port, Threads};
use crate::server::link::dial::{Dialler, Security};
use crate::server::link::door::Door;
use crate::server::link::frame::FRAME_LIMIT;
use crate::server::operator_api::auth::{Key, Recipient, Verifier};
use crate::server::process::exit::{self, Stop};
use crate::server::process::host_facts;
use crate::server::process::log_pipe::hears_last_words;
use crate::server::tls::ports::{PortSecurity, SecurityReader};

/// Time for a leadership transfer before a stop.
const HAND_OVER: Duration = Duration::from_secs(5);
/// Size of a consensus frame beyond its one entry, in bytes, at most.
const UNKNOWN_PEER_EXTRA: usize = 4 << 20;
/// How often a ready member makes a linearizable read when no client does.
const PROOF: Duration = Duration::from_secs(1);

/// The member's threads, for start-up and shutdown.
pub(crate) struct RunningServer {
    local: Arc<MemberRuntime>,
    stopped: mpsc::UnboundedReceiver<Stop>,
    raft: RaftThread,
    runtimes: Vec<Runtime>,
}

/// Starts the member: locks and reads the disk, listens for peers. Returns before the member has
/// joined or replayed its log; [`MemberHandle::status`] shows its progress.
///
/// # Errors
/// Why the server cannot start, with its exit code: the data directory, the peer port, the
/// certificates, the operator's secret.
///
/// `strangers_at_once` is the number of concurrent unauthenticated connections to the peer port.
pub(crate) fn start(
    config: &Config,
    client: SecurityReader,
    strangers_at_once: usize,
) -> Result<(MemberHandle, RunningServer), Stop> {
    report_panics(config);
    let listeners = config
        .listen_peer_urls
        .iter()
        .map(|url| Ok((url.tls, listen(url)?)))
        .collect::<Result<Vec<_>, Stop>>()?;
    let security = Security::new(config).map_err(Stop::listen)?;
    let key = match &config.operated.secret_file {
        Some(path) => Some(Key::read(path).map_err(Stop::usage)?),
        None => None,
    };
    host_facts::small_pages();
    let directory = open_directory(config)?;
    let (shared, stopped) = RuntimeState::new(config);
    let uuid = directory.identity().map(Identity::uuid).unwrap_or_default();
    // Stored before any peer sees this start.
    let starts = Starts::begin(directory.disk(), uuid, shared.boot_nonce)
        .map_err(|error| disk_stop(&error))?;
    let staging = staged(config, directory.identity())?;
    let raft = RaftThread::start().map_err(thread_stop)?;
    // One thread: its tasks have little to do but to wait. What blocks or computes for long runs beside it, which needs this kind of runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("peer")
        .enable_all()
        .build()
        .map_err(thread_stop)?;
    let strangers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("peer-door")
        .enable_all()
        .build()
        .map_err(thread_stop)?;
    let handle = MemberHandle::new(Arc::clone(&shared));
    let (happenings, happened) = mpsc::unbounded_channel();
    let disk_uuid = uuid::Uuid::from_bytes(uuid);
    let local = Arc::new(MemberRuntime {
        config: config.clone(),
        shared,
        // A volume that cannot be measured is treated as a large one.
        log_options: LogOptions::for_volume(directory.disk().total_bytes().unwrap_or(u64::MAX)),
        stored: ArcSwap::from_pointee(directory.identity().cloned().unwrap_or_default()),
        directory: Mutex::new(directory),
        starts: ArcSwap::from_pointee(starts),
        staged: staging.shown(),
        staging: Arc::new(tokio::sync::Mutex::new(staging)),
        founding: AtomicBool::new(false),
        standing: Mutex::default(),
        disk_uuid: disk_uuid.to_string(),
        dialler: Arc::new(Dialler::new(security)),
        door: Arc::new(Door::of(strangers_at_once)),
        links: RwLock::default(),
        unknown_peers: Mutex::default(),
        early: Mutex::new(Some(BTreeMap::new())),
        reported_unknown_peers: AtomicBool::new(false),
        removal_reports: Mutex::default(),
        copied: Mutex::default(),
        doubts: Mutex::default(),
        happenings,
        running: AtomicBool::new(false),
        core: Mutex::new(None),
        saver: OnceLock::new(),
        log: OnceLock::new(),
        runtime: runtime.handle().clone(),
        raft: raft.handle().clone(),
        sending: Semaphore::new(1),
        receiving: Arc::new(Semaphore::new(1)),
        asked: Semaphore::new(4),
        handle: handle.clone(),
    });
    let identity = local.identity();
    local
        .shared
        .become_phase(public_phase(identity.phase()), who(&identity));
    let _context = runtime.enter();
    let own = Recipient {
        disk_uuid: local.disk_uuid.clone(),
        boot: format!("{:x}", local.shared.boot_nonce),
    };
    let router = service::router(
        Arc::clone(&local),
        Verifier::new(key, config.operated.secret_file.clone(), &own),
    );
    let weak = Arc::downgrade(&local);
    let _ = local.shared.ports.peer.set(Box::new(move || {
        let Some(local) = weak.upgrade() else {
            return PortSecurity::default();
        };
        let shown = local.dialler.security().shown();
        let urls = &local.config.listen_peer_urls;
        let shown = shown.filter(|_| urls.iter().any(|url| url.tls));
        let plaintext = local.takes_plaintext() || urls.iter().any(|url| !url.tls);
        PortSecurity::new(shown.as_ref(), plaintext)
    }));
    let _ = local.shared.ports.client.set(client);
    let threads = Threads {
        raft: raft.handle().clone(),
        members: runtime.handle().clone(),
        strangers: strangers.handle().clone(),
    };
    for (tls, (url, listener)) in listeners {
        let listener = TcpListener::from_std(listener).map_err(Stop::listen)?;
        tracing::info!(%url, disk = %local.disk_uuid, "serving peers");
        let port = Port {
            tls,
            dialler: Arc::clone(&local.dialler),
            host: Arc::clone(&local) as Arc<dyn accept::Host>,
            grpc: router.clone(),
            unknown_peer_frame: usize::try_from(config.limits.max_request_bytes)
                .unwrap_or(FRAME_LIMIT)
                .saturating_add(UNKNOWN_PEER_EXTRA),
            door: Arc::clone(&local.door),
            threads: threads.clone(),
        };
        runtime.spawn(accept::serve(listener, port));
    }
    let supervised = Arc::clone(&local);
    runtime.spawn(async move {
        if let Err(stop) = Box::pin(supervise(&supervised, happened)).await {
            supervised.shared.stop(stop);
        }
    });
    let guard = RunningServer {
        local,
        stopped,
        raft,
        runtimes: vec![strangers, runtime],
    };
    Ok((handle, guard))
}

impl RunningServer {
    /// Returns why the member has to stop, once it has to.
    pub(crate) async fn stopped(&mut self) -> Stop {
        match self.stopped.recv().await {
            Some(stop) => stop,
            // The sender is in the member runtime, which this guard holds.
            None => std::future::pending().await,
        }
    }

    /// Makes the member unready and moves its leadership away, as far as that is possible.
    pub(crate) async fn retire(&mut self) {
        retire(&self.local).await;
    }

    /// Ends every thread; every acknowledged write is on disk. For the end of the process: what the store holds is left to
    /// the system, which frees it at once, where each record by itself would take a second for some millions of them.
    pub(crate) fn shutdown(mut self) {
        std::mem::forget(Arc::clone(&self.local.shared));
        self.end();
    }

    /// The member runtime.
    #[cfg(test)]
    pub(super) fn local(&self) -> Arc<MemberRuntime> {
        Arc::clone(&self.local)
    }

    fn end(&mut self) {
        self.local.shared.begin_to_retire();
        self.local.running.store(false, Ordering::Relaxed);
        let core = lock(&self.local.core).take();
        if let Some(core) = core {
            core.shutdown();
        }
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
        self.raft.end();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the member unready and transfers its leadership. Returns the leader afterwards.
pub(super) async fn retire(local: &MemberRuntime) -> u64 {
    local.shared.begin_to_retire();
    let status = local.shared.status();
    if status.role != Role::Leader {
        return status.leader;
    }
    let latest = local.handle.latest();
    if latest.membership.voters().count() < 2 {
        return status.leader;
    }
    let moved = timeout(HAND_OVER, async {
        loop {
            match local.handle.move_leader(0).await {
                Ok(leader) => return leader,
                Err(error) => tracing::info!("leadership stays for the moment: {error}"),
            }
            if local.shared.status().role != Role::Leader {
                return local.shared.status().leader;
            }
            sleep(local.config.heartbeat).await;
        }
    });
    match moved.await {
        Ok(leader) => {
            tracing::info!(leader = %format!("{leader:x}"), "leadership handed over");
            leader
        }
        Err(_) => {
            tracing::warn!("leadership could not be handed over in time");
            local.shared.status().leader
        }
    }
}

/// In a release build a panic aborts the process: its message is written to the termination message
/// file first, then to standard error, unless that is a pipe that is not read, which would keep the
/// process from ending.
fn report_panics(config: &Config) {
    let path = config.termination_message_file.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some(path) = &path {
            let stop = Stop {
                code: exit::OTHER,
                class: "panic",
                message: info.to_string(),
            };
            // A failure cannot be handled during a panic.
            let _ = std::fs::write(path, stop.line());
        }
        if hears_last_words(&std::io::stderr()) {
            before(info);
        }
    }));
}

fn listen(url: &Endpoint) -> Result<(String, StdListener), Stop> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Stop::listen(format!(
            "--listen-peer-urls: {url} is in use by another process; stop it or give another port"
        )),
        _ => Stop::listen(format!(
            "--listen-peer-urls: cannot listen on {url}: {error}"
        )),
    };
    let listener = crate::server::listen::listen(url).map_err(failed)?;
    Ok((url.to_string(), listener))
}

/// Locks the data directory and makes sure that it has an identity.
fn open_directory(config: &Config) -> Result<DataDirectory, Stop> {
    let path = config.data_dir.display().to_string();
    let files = FileDisk::new(&config.data_dir).map_err(|error| Stop {
        code: disk::Class::Io.exit_code(),
        class: disk::Class::Io.name(),
        message: format!("cannot create the data directory {path}: {error}"),
    })?;
    let disk: Arc<dyn Disk> = match config.unsafe_no_fsync {
        true => Arc::new(NoSync(files)),
        false => Arc::new(files),
    };
    let fail = |error| disk_stop(&error);
    let mut directory = DataDirectory::open(disk).map_err(fail)?;
    match directory.identity() {
        None => {
            let uuid = *uuid::Uuid::new_v4().as_bytes();
            directory
                .store_identity(Identity::standby(uuid, &config.name))
                .map_err(fail)?;
        }
        Some(identity) => check_identity(identity, config, &path)?,
    }
    Ok(directory)
}

/// The snapshot that a standby has received. A member needs none: what a crash between its becoming one and the end of
/// the snapshot has left is deleted.
fn staged(config: &Config, identity: Option<&Identity>) -> Result<Staging, Stop> {
    if identity.is_some_and(|identity| identity.phase() != disk::Phase::Standby) {
        let mut staging = Staging::empty(&config.data_dir);
        if let Err(error) = staging.discard() {
            tracing::warn!("a snapshot that is needed no more takes space: {error}");
        }
        return Ok(staging);
    }
    Staging::load(&config.data_dir).map_err(|error| Stop {
        code: disk::Class::Io.exit_code(),
        class: disk::Class::Io.name(),
        message: error.to_string(),
    })
}

/// Checks that the identity of an existing disk agrees with the flags.
fn check_identity(identity: &Identity, config: &Config, path: &str) -> Result<(), Stop> {
    if let Some(uid) = &config.operated.cluster_uid
        && !identity.cluster_uid.is_empty()
        && identity.cluster_uid != *uid
    {
        return Err(identity_stop(format!(
            "the data directory {path} belongs to the cluster with UID {}, and --cluster-uid is \
             {uid}; start it with its own cluster's flags, or give an empty directory",
            identity.cluster_uid
        )));
    }
    let by_flags = matches!(config.formation, Formation::InitialCluster { .. });
    if by_flags && identity.phase() == disk::Phase::Removed {
        return Err(identity_stop(format!(
            "member {:x} was removed from cluster {:x} for good; to bring the server back, empty \
             {path} and add it as a new member",
            identity.member_id, identity.cluster_id
        )));
    }
    Ok(())
}

fn who(identity: &Identity) -> Who {
    Who {
        cluster_id: identity.cluster_id,
        member_id: identity.member_id,
    }
}

fn thread_stop(error: std::io::Error) -> Stop {
    Stop {
        code: exit::OTHER,
        class: "io",
        message: format!("cannot start threads: {error}"),
    }
}

/// Takes the server from phase to phase.
async fn supervise(
    local: &Arc<MemberRuntime>,
    mut happened: mpsc::UnboundedReceiver<Happening>,
) -> Result<(), Stop> {
    let identity = local.identity();
    let files = match identity.phase() {
        disk::Phase::Removed => {
            local
                .shared
                .doing("removed from its cluster for good: idle");
            return idle(&mut happened).await;
        }
        disk::Phase::Standby => {
            let became = Box::pin(local.become_member(&mut happened)).await?;
            Some(became.files)
        }
        disk::Phase::Joining | disk::Phase::Member => {
            if matches!(local.config.formation, Formation::InitialCluster { .. }) {
                tracing::info!(
                    "the data directory holds a member already: --initial-cluster and its kin are \
                     not looked at"
                );
            }
            None
        }
    };
    let returns = files.is_none();
    run_core(local, files).await?;
    let keeper = Arc::clone(local);
    tokio::spawn(async move { prove_ready(&keeper).await });
    let publisher = Arc::clone(local);
    tokio::spawn(async move { publish_self(&publisher).await });
    super::maintenance::start(local, returns);
    follow(local, &mut happened).await
}

/// Opens the files if that was not done yet, and starts the core threads.
async fn run_core(
    local: &Arc<MemberRuntime>,
    files: Option<disk::MemberFiles>,
) -> Result<(), Stop> {
    local
        .shared
        .doing("opening the log and the newest checkpoint");
    let opened = Arc::clone(local);
    let parts = tokio::task::spawn_blocking(move || {
        let local = opened;
        let files = match files {
            Some(files) => files,
            None => open_member(&local.files(), local.log_options())
                .map_err(|error| disk_stop(&error))?,
        };
        // Before anything else uses the room that the start has left: the next start needs it.
        let reserve = Reserve::new(Arc::clone(local.files().disk()));
        if let Err(error) = reserve.keep(local.log_options().reserve_bytes(), 0) {
            tracing::warn!("cannot keep room in reserve: {error}");
        }
        let member_id = local.who().member_id;
        open::open(
            files,
            &local.config,
            (local.disk_uuid.clone(), local.log_options()),
            member_id,
            &local.shared,
        )
    })
    .await
    .map_err(|error| identity_stop(format!("a thread ended early: {error}")))??;
    // Set once: a server becomes a member once in its life.
    let _ = local.saver.set(Arc::clone(&parts.saver));
    let _ = local.log.set(parts.log.reader());
    let core = Core::start(parts, &local.shared, Transport::new(local), &local.raft)?;
    *lock(&local.core) = Some(core);
    local.runs();
    local.shared.doing("running");
    Ok(())
}

/// Follows the membership: links to all its members, and the end of this member's own part.
async fn follow(
    local: &Arc<MemberRuntime>,
    happened: &mut mpsc::UnboundedReceiver<Happening>,
) -> Result<(), Stop> {
    let mut memberships = local.shared.membership.subscribe();
    let mut seen = None;
    loop {
        let membership = Arc::clone(&memberships.borrow_and_update());
        let new = seen
            .as_ref()
            .is_none_or(|seen| !Arc::ptr_eq(seen, &membership));
        if new && membership.cluster_id != 0 {
            joined(local)?;
            local.forget_strangers();
            local.link_members();
        }
        seen = Some(membership);
        tokio::select! {
            biased;
            happening = happened.recv() => match happening {
                Some(Happening::Removed(reason)) => return removed(local, &reason, happened).await,
                Some(Happening::Copied(reason)) => return Err(local.condemn(reason)),
                Some(Happening::Met) => {
                    local.reported_unknown_peers.store(false, Ordering::Release);
                    local.link_members();
                }
                // The service answers it: this server is a member already.
                Some(Happening::Bootstrap(..)) => {}
                None => std::future::pending().await,
            },
            changed = memberships.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }
}

/// A joiner has received the cluster's state.
fn joined(local: &MemberRuntime) -> Result<(), Stop> {
    if local.phase() != Phase::Joining {
        return Ok(());
    }
    let stored = local.change_identity(|identity| identity.phase = disk::Phase::Member.into());
    stored.map_err(|error| disk_stop(&error))?;
    local.shared.become_phase(Phase::Member, local.who());
    tracing::info!("joined: the cluster's state is here");
    Ok(())
}

async fn removed(
    local: &Arc<MemberRuntime>,
    reason: &str,
    happened: &mut mpsc::UnboundedReceiver<Happening>,
) -> Result<(), Stop> {
    let stored = local.change_identity(|identity| identity.phase = disk::Phase::Removed.into());
    stored.map_err(|error| disk_stop(&error))?;
    local.shared.become_phase(Phase::Removed, local.who());
    local.shared.hang_up();
    // The last answers, to the others and to the caller that requested the removal, are on their
    // way.
    sleep(local.config.election).await;
    if matches!(local.config.formation, Formation::InitialCluster { .. }) {
        return Err(Stop {
            code: 0,
            class: "removed",
            message: format!(
                "{reason}; to bring the server back, empty its data directory and add it as a new \
                 member"
            ),
        });
    }
    local.running.store(false, Ordering::Relaxed);
    local.link(Vec::new());
    let core = lock(&local.core).take();
    if let Some(core) = core {
        let ended = tokio::task::spawn_blocking(move || core.shutdown()).await;
        if let Err(error) = ended {
            tracing::error!("ending the core threads: {error}");
        }
    }
    local.shared.consensus.store(Arc::new(None));
    local
        .shared
        .doing("removed from its cluster for good: idle");
    idle(happened).await
}

/// Waits: nothing more happens to this server.
async fn idle(happened: &mut mpsc::UnboundedReceiver<Happening>) -> Result<(), Stop> {
    while happened.recv().await.is_some() {}
    Ok(())
}

/// Makes a linearizable read once a second when no client does, so that readiness is known.
async fn prove_ready(local: &MemberRuntime) {
    loop {
        sleep(PROOF).await;
        let status = local.shared.status();
        let voter = status.phase == Phase::Member && status.role != Role::Learner;
        let fresh = local.shared.read_age().is_some_and(|age| age < PROOF);
        if voter && (!fresh || local.shared.ready() != Health::Ok) {
            // A failure shows in readiness.
            let _ = local.handle.linearizable().await;
        }
    }
}

/// Publishes this member's name, disk and client URLs to the cluster, until they are applied.
async fn publish_self(local: &MemberRuntime) {
    loop {
        let who = local.who();
        let latest = local.handle.latest();
        let member = latest.membership.member(who.member_id);
        if let Some(member) = member {
            let published = member.started
                && member.name == local.config.name
                && member.disk_uuid == local.disk_uuid
                && member.client_urls == local.config.advertise_client_urls;
            if published {
                return;
            }
            let join = MembershipRequest::Join {
                id: who.member_id,
                disk_uuid: local.disk_uuid.clone(),
                name: local.config.name.clone(),
                client_urls: local.config.advertise_client_urls.clone(),
            };
            match local.handle.change_membership(join, Fence::default()).await {
                Ok(_) => tracing::info!("the cluster knows this member's name and URLs"),
                Err(error) => tracing::debug!("cannot publish this member's URLs yet: {error}"),
            }
        }
        sleep(local.config.heartbeat * 2).await;
    }
}
