//! How a standby founds a cluster on the operator's call, empty or from the snapshot that it has received, and how a
//! member's files come into being.
//!
//! A cluster that is founded empty is recorded in the identity file first, and founded again after a crash. One that is
//! founded from a snapshot is recorded there once its files are whole, in the write that makes this server a member:
//! until then it is a standby that holds its snapshot. No standby that holds one ever founds an empty cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedMutexGuard, oneshot};
use tonic::Status;

use super::join::{identity_stop, public_phase};
use super::restore::{busy, status};
use super::staging::{Staged, Staging};
use super::{MemberRuntime, lock};
use crate::disk::{self, Class, Identity, MemberFiles};
use crate::node::{MemberRecord, Membership, StateMachine, cluster_id, member_id};
use crate::persist::{self, Saver};
use crate::server::core::state::Who;
use crate::server::core::{disk_stop, open, persist_stop};
use crate::server::process::exit::Stop;
use crate::wire::member::BootstrapSnapshot;

/// A call that founds a cluster on this standby.
#[derive(Clone, Debug)]
pub(crate) struct Founding {
    /// UID of the cluster's resource.
    pub cluster_uid: String,
    /// The incarnation of the cluster.
    pub incarnation: u64,
    /// The identity Secret's nonce.
    pub nonce: String,
    /// The UID of the seed's PersistentVolumeClaim.
    pub claim_uid: String,
    /// The staged snapshot that its data come from, if any.
    pub snapshot: Option<BootstrapSnapshot>,
}

/// The member that this server has become.
pub(super) struct Became {
    pub(super) files: MemberFiles,
    pub(super) phase: disk::Phase,
}

/// Why no cluster was founded.
enum NotFounded {
    /// The standby stays one.
    Refused(Status),
    /// The server has to stop.
    Stopped(Stop),
}

impl From<Status> for NotFounded {
    fn from(status: Status) -> Self {
        NotFounded::Refused(status)
    }
}

impl From<Stop> for NotFounded {
    fn from(stop: Stop) -> Self {
        NotFounded::Stopped(stop)
    }
}

/// True while it exists.
struct Raised<'a>(&'a AtomicBool);

impl Raised<'_> {
    fn new(flag: &AtomicBool) -> Raised<'_> {
        flag.store(true, Ordering::Release);
        Raised(flag)
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Founding {
    /// The one member of the new cluster.
    fn who(&self, peer_urls: &[String]) -> Who {
        let token = format!("{}/{}", self.cluster_uid, self.incarnation);
        let id = member_id(peer_urls, &token, None);
        Who {
            cluster_id: cluster_id([id]),
            member_id: id,
        }
    }

    fn record(self, who: &Who, identity: &mut Identity) {
        identity.cluster_uid = self.cluster_uid;
        identity.incarnation = self.incarnation;
        identity.bootstrap_nonce = self.nonce;
        identity.claim_uid = self.claim_uid;
        identity.member_id = who.member_id;
        identity.cluster_id = who.cluster_id;
    }
}

impl MemberRuntime {
    /// Carries out a call to found a cluster, and answers it. `None`: it was refused, and this is a standby as before.
    pub(super) async fn bootstrap(
        self: &Arc<Self>,
        founding: Founding,
        answer: oneshot::Sender<Result<Who, Status>>,
    ) -> Result<Option<Became>, Stop> {
        // The caller may be gone; the call is idempotent.
        match Box::pin(self.found(founding)).await {
            Ok(became) => {
                let _ = answer.send(Ok(self.who()));
                Ok(Some(became))
            }
            Err(NotFounded::Refused(status)) => {
                tracing::warn!("no cluster is founded: {}", status.message());
                let _ = answer.send(Err(status));
                Ok(None)
            }
            Err(NotFounded::Stopped(stop)) => {
                let _ = answer.send(Err(Status::internal(stop.message.clone())));
                Err(stop)
            }
        }
    }

    async fn found(self: &Arc<Self>, founding: Founding) -> Result<Became, NotFounded> {
        // Held until this is a member: nothing is received for one.
        let staging = Arc::clone(&self.staging).try_lock_owned();
        let staging = staging.map_err(|_| busy())?;
        let _founding = Raised::new(&self.founding);
        match founding.snapshot.clone() {
            Some(snapshot) => self.found_from(staging, snapshot, founding).await,
            None => {
                if let Some(staged) = staging.staged() {
                    check_usable(&staged)?;
                    return Err(Status::failed_precondition(format!(
                        "the call names no snapshot, and this standby holds one: {}, {} bytes of {}; name it, or empty the data directory to found an empty cluster",
                        staged.sha256(),
                        staged.received(),
                        staged.length()
                    ))
                    .into());
                }
                let who = founding.who(&self.config.advertise_peer_urls);
                self.change_identity(|identity| founding.record(&who, identity))
                    .map_err(|error| disk_stop(&error))?;
                Ok(self.found_empty(&self.identity()).await?)
            }
        }
    }

    /// Founds the empty cluster that the identity file records, after a crash.
    pub(super) async fn found_again(self: &Arc<Self>, identity: &Identity) -> Result<Became, Stop> {
        if let Some(staged) = lock(&self.staged).staged.clone() {
            return Err(identity_stop(format!(
                "this standby was told to found an empty cluster by a version that knows no snapshots, and holds the snapshot {}: empty the data directory, and it is received again",
                staged.sha256()
            )));
        }
        self.found_empty(identity).await
    }

    /// Founds the cluster recorded in the identity file, with the same bytes each time.
    async fn found_empty(self: &Arc<Self>, identity: &Identity) -> Result<Became, Stop> {
        let who = Who {
            cluster_id: identity.cluster_id,
            member_id: identity.member_id,
        };
        let (uid, incarnation) = (&identity.cluster_uid, identity.incarnation);
        let membership = self.alone(&who, uid, incarnation)?;
        self.shared
            .doing("founding the cluster as its first member");
        let machine = StateMachine::founded(membership);
        self.create_founded(machine, who).await
    }

    /// Founds a cluster from the staged snapshot. Everything before the identity file is written leaves a standby.
    async fn found_from(
        self: &Arc<Self>,
        mut staging: OwnedMutexGuard<Staging>,
        snapshot: BootstrapSnapshot,
        founding: Founding,
    ) -> Result<Became, NotFounded> {
        check_staged(&staging, &snapshot)?;
        let follows = check_source(&staging, &snapshot)?;
        let bound = self.identity().cluster_id;
        if bound != 0 {
            return Err(Status::failed_precondition(format!(
                "this disk was bound to cluster {bound:x} before: give another one"
            ))
            .into());
        }
        let who = founding.who(&self.config.advertise_peer_urls);
        let membership = self.alone(&who, &founding.cluster_uid, founding.incarnation)?;
        self.shared
            .doing("founding the cluster from the snapshot that was received");
        let saver = self.new_saver();
        let read = tokio::task::spawn_blocking(move || {
            let mut store = staging.import(snapshot.bump_revision, &saver);
            if let (Ok(store), Some(source)) = (&mut store, follows) {
                store.follow(source);
            }
            (store, staging, saver)
        });
        let read = read.await;
        let (store, mut staging, saver) = read.map_err(|error| ended(&error))?;
        // The caller may not wait for so long: whoever describes this server is told as well.
        let store = store.map_err(|error| {
            staging.note(format!("no cluster could be founded from it: {error}"));
            status(&error)
        })?;
        let machine = StateMachine::restored(membership, store);
        let recorded = who.clone();
        let record = move |identity: &mut Identity| founding.record(&recorded, identity);
        let created = self.create(Some(machine), disk::Phase::Member, (who, saver), record);
        let became = created
            .await
            .map_err(|stop| without_space(stop, &staging))?;
        drop_staged(&mut staging);
        Ok(became)
    }

    /// The membership of a cluster with this server as its one member.
    fn alone(&self, who: &Who, uid: &str, incarnation: u64) -> Result<Membership, Stop> {
        let own = MemberRecord {
            id: who.member_id,
            name: self.config.name.clone(),
            peer_urls: self.config.advertise_peer_urls.clone(),
            client_urls: self.config.advertise_client_urls.clone(),
            learner: false,
            disk_uuid: self.disk_uuid.clone(),
            started: true,
        };
        let membership = Membership::found(who.cluster_id, uid, incarnation, vec![own]);
        membership.map_err(|error| Stop::usage(format!("cannot found the cluster: {error}")))
    }

    /// Who writes the first checkpoint of this server, which is no member yet.
    pub(super) fn new_saver(&self) -> Saver {
        open::new_saver(&self.files(), &self.config)
    }

    /// Creates the files of an initial member of a cluster that begins empty.
    pub(super) async fn create_founded(
        self: &Arc<Self>,
        machine: StateMachine,
        who: Who,
    ) -> Result<Became, Stop> {
        let saver = self.new_saver();
        self.create(Some(machine), disk::Phase::Member, (who, saver), |_| {})
            .await
    }

    /// Creates the member's files, then records that in the identity file, with what `record` adds. Values of the machine
    /// that are in files are in files of this saver.
    pub(super) async fn create(
        self: &Arc<Self>,
        machine: Option<StateMachine>,
        phase: disk::Phase,
        (who, saver): (Who, Saver),
        record: impl FnOnce(&mut Identity) + Send + 'static,
    ) -> Result<Became, Stop> {
        let local = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || {
            let options = local.log_options();
            let files = open::create(&local.files(), machine.as_ref(), &saver, options)?;
            // Before the member reads its data: they need not be in memory twice.
            drop(machine);
            local.change_identity(|identity| {
                record(identity);
                identity.phase = phase.into();
            })?;
            Ok(Became { files, phase })
        })
        .await;
        let became = made
            .map_err(|error| ended(&error))?
            .map_err(|error: persist::Error| persist_stop(&error))?;
        self.shared.become_phase(public_phase(became.phase), who);
        Ok(became)
    }
}

/// What cannot be used founds nothing: it may be all that is left of the data that the cluster was to have.
fn check_usable(staged: &Staged) -> Result<(), Status> {
    match staged.is_damaged() {
        true => Err(Status::failed_precondition(
            "this standby holds a snapshot that cannot be used, and founds no cluster: send it again, or empty the data directory to found an empty cluster",
        )),
        false => Ok(()),
    }
}

/// Whether the staged snapshot is the one that the call names, and whole.
fn check_staged(staging: &Staging, named: &BootstrapSnapshot) -> Result<(), Status> {
    let refused = |text: String| Err(Status::failed_precondition(text));
    let Some(staged) = staging.staged() else {
        return refused(format!(
            "the call names the snapshot {}, and this standby holds none: send it first",
            named.sha256
        ));
    };
    check_usable(&staged)?;
    if staged.sha256() != named.sha256 {
        return refused(format!(
            "the call names the snapshot {}, and this standby holds {}",
            named.sha256,
            staged.sha256()
        ));
    }
    match staged.checked() {
        Some(_) => Ok(()),
        None => refused(format!(
            "the snapshot {} is not complete: {} bytes of {} are here, and it was not checked",
            named.sha256,
            staged.received(),
            staged.length()
        )),
    }
}

/// The cluster that is followed behind the snapshot, if one is: the call and the snapshot have to agree on that, or the
/// cluster would take writes of its own, or none at all.
fn check_source(staging: &Staging, named: &BootstrapSnapshot) -> Result<Option<u64>, Status> {
    let source = staging.staged().map_or(0, |staged| staged.source());
    match (named.follow, source) {
        (false, 0) => Ok(None),
        (true, source) if source != 0 && named.bump_revision == 0 => Ok(Some(source)),
        (true, 0) => Err(Status::failed_precondition(
            "the call founds a cluster that follows another one, and the snapshot is of none: send one of the cluster that is to be followed",
        )),
        (true, _) => Err(Status::invalid_argument(
            "a cluster that follows another one has its revisions: none can be raised",
        )),
        (false, source) => Err(Status::failed_precondition(format!(
            "the snapshot was taken to follow cluster {source:x}, and the call does not say so: it would lack what that cluster has written since"
        ))),
    }
}

/// Deletes the staged snapshot of a server that is a standby no more. A start deletes what stays.
pub(super) fn drop_staged(staging: &mut Staging) {
    if let Err(error) = staging.discard() {
        tracing::warn!("a snapshot that is needed no more takes space: {error}");
    }
}

/// A full volume leaves a standby, which founds the cluster once there is space.
fn without_space(stop: Stop, staging: &Staging) -> NotFounded {
    if stop.class != Class::DiskFull.name() {
        return NotFounded::Stopped(stop);
    }
    let text = "the volume of the data directory has no room for the files of the new member: enlarge it, and repeat the call; the snapshot is kept";
    staging.note(text.to_owned());
    NotFounded::Refused(Status::resource_exhausted(text))
}

fn ended(error: &tokio::task::JoinError) -> Stop {
    identity_stop(format!("a thread ended early: {error}"))
}

#[cfg(test)]
#[path = "found_test.rs"]
mod tests;
