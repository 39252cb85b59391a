//! The common part of every call: whether this member may answer, the time limits, the metrics, and
//! the conversion of errors to etcd's.

use std::cell::Cell;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use super::caller::Caller;
use super::concurrency::Behalf;
use super::convert;
use super::ended::Ended;
use crate::mutants::mutant;
use crate::node::MembershipError;
use crate::raft::Index;
use crate::server::auth::Issuer;
use crate::server::auth::password::{self, Passwords};
use crate::server::core::handle::{
    self, Health, Latest, MemberHandle, Phase, QUOTA_IS_USED_UP, RequestError, Role, VERDICT,
};
use crate::server::flags::config::{ClientPort, Config, Formation, Limits};
use crate::server::flags::feature_gates::Gates;
use crate::server::listen::bodies::Bodies;
use crate::server::listen::serving::From;
use crate::server::metrics::Text;
use crate::server::metrics::client::{ClientMetrics, Method};
use crate::server::process::host_facts;
use crate::server::scheduling::aside::Aside;
use crate::server::scheduling::failing::Failing;
use crate::server::scheduling::hosts::Host;
use crate::server::scheduling::within::within;
use crate::server::traces::about::About;
use crate::server::traces::marks::{self, Marks};
use crate::server::traces::tracer::Tracer;
use crate::store;
use crate::wire::error::EtcdError;
use crate::wire::etcd::ResponseHeader;

/// The etcd version that this server implements: `Status.version` and `/version`.
pub(crate) const VERSION: &str = "3.7.3";

/// How long clients wait for a starting member whose URLs are not in the cluster yet (etcd's
/// interval).
const SETTLE: Duration = Duration::from_secs(5);

/// Calls that may wait at once until this server serves clients. Each holds its request; further
/// ones are refused at once.
const ARRIVING: usize = 512;

/// Snapshots that may be sent at once: each holds a file on the member's disk.
const SNAPSHOTS: usize = 4;

/// Requests that wait for a large sort.
const SCANS_WAITING: usize = 256;
/// Requests that wait for a hash.
const HASHES_WAITING: usize = 16;
/// How long a hash may take, its turn included: every value is read for it, and there may be more of them than memory holds.
const HASHING: Duration = Duration::from_secs(600);
/// How much of that it may wait for its turn.
const HASH_PATIENCE: Duration = Duration::from_secs(300);
/// Requests that wait to gather a list of more than a page.
const LISTS_WAITING: usize = 4096;
/// Leases that may be in the log pipeline at once.
const GRANTS: usize = 32;
/// Requests that wait to be granted a lease.
const GRANTS_WAITING: usize = 4096;

/// All services of the client port; cheap to clone.
#[derive(Clone)]
pub(crate) struct Services {
    pub(super) shared: Arc<CallContext>,
}

/// The state of the services.
pub(super) struct CallContext {
    pub(super) member: MemberHandle,
    pub(super) metrics: Arc<ClientMetrics>,
    pub(super) port: ClientPort,
    pub(super) limits: Limits,
    pub(super) store_limits: store::Limits,
    /// Timeout of one step of a unary request.
    pub(super) timeout: Duration,
    /// Minimum TTL of a lease, in seconds.
    pub(super) least_ttl: i64,
    /// A stream that requires a leader ends after this long without one.
    pub(super) leaderless: Duration,
    /// The directory in which snapshots are spooled.
    pub(super) data_dir: PathBuf,
    /// Limits the concurrent snapshots.
    pub(super) snapshots: Arc<Semaphore>,
    /// Issues tokens and checks signed ones.
    pub(super) issuer: Issuer,
    pub(super) passwords: Passwords,
    /// The queue of requests for a large sort.
    pub(super) scans: Arc<Aside>,
    /// The queue of requests for a hash: one at a time, and nothing else waits for it.
    pub(super) hashes: Arc<Aside>,
    /// The queue of requests for a long list.
    pub(super) lists: Arc<Aside>,
    /// The queue of requests for a lease.
    pub(super) grants: Arc<Aside>,
    /// Decides of which requests spans are told; `None`: of none.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// The limits on request bodies.
    bodies: Arc<Bodies>,
    /// Delays the refusals of clients without permission.
    failing: Failing,
    /// A certificate's name is a user.
    pub(super) certificate_names: bool,
    /// Without data it waits until an operator bootstraps it or adds it.
    stands_by: bool,
    /// The client URLs that the cluster should know before clients are served.
    advertised: Vec<String>,
    /// The cluster knows them, or [`SETTLE`] is over.
    settled: AtomicBool,
    started: Instant,
    /// Limits the calls that wait until clients are served.
    arriving: Semaphore,
    /// Set when streams have to end: the client then connects to another member.
    pub(super) stopping: watch::Receiver<bool>,
}

impl Services {
    /// The services of this member.
    #[must_use]
    pub(crate) fn new(
        member: MemberHandle,
        config: &Config,
        metrics: Arc<ClientMetrics>,
        issuer: Issuer,
        tracer: Option<Arc<Tracer>>,
        bodies: Arc<Bodies>,
        stopping: watch::Receiver<bool>,
    ) -> Services {
        let election = u64::try_from(config.election.as_millis()).unwrap_or(u64::MAX);
        let least_ttl = i64::try_from((3 * election).div_ceil(2000)).unwrap_or(i64::MAX);
        let store_limits = store::Limits {
            max_txn_ops: usize::try_from(config.limits.max_txn_ops).unwrap_or(usize::MAX),
            quota_bytes: config.limits.quota_bytes.unwrap_or(0),
        };
        let timeout = config.request_timeout();
        Services {
            shared: Arc::new(CallContext {
                member,
                metrics,
                port: config.client.clone(),
                limits: config.limits,
                store_limits,
                timeout,
                least_ttl,
                leaderless: 3 * config.election,
                data_dir: config.data_dir.clone(),
                snapshots: Arc::new(Semaphore::new(SNAPSHOTS)),
                issuer,
                passwords: Passwords::new(
                    config.auth.bcrypt_cost,
                    host_facts::cores(),
                    password::PATIENCE,
                ),
                scans: Aside::new("scans", host_facts::cores() / 2, SCANS_WAITING, timeout),
                hashes: Aside::new("hashes", 1, HASHES_WAITING, HASH_PATIENCE),
                lists: Aside::new("lists", 2 * host_facts::cores(), LISTS_WAITING, timeout),
                grants: Aside::new("leases", GRANTS, GRANTS_WAITING, timeout / 2),
                tracer,
                bodies,
                failing: Failing::default(),
                certificate_names: config.auth.certificate_names,
                stands_by: matches!(config.formation, Formation::AwaitMembership { .. }),
                advertised: config.advertise_client_urls.clone(),
                settled: AtomicBool::new(false),
                started: Instant::now(),
                arriving: Semaphore::new(ARRIVING),
                stopping,
            }),
        }
    }

    /// The member behind the services.
    #[must_use]
    pub(crate) fn member(&self) -> &MemberHandle {
        &self.shared.member
    }

    /// The port's counters.
    #[must_use]
    pub(crate) fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.shared.metrics
    }

    /// The feature gates of this start.
    #[must_use]
    pub(in crate::server) fn gates(&self) -> &Gates {
        &self.shared.port.gates
    }

    /// Writes the metrics of the client port's limits.
    pub(in crate::server) fn write_bounds(&self, text: &mut Text) {
        let shared = &self.shared;
        if let Some(seats) = shared.member.ports().seats.get() {
            seats.write(text);
        }
        if let Some(tracer) = &shared.tracer {
            tracer.write(text);
        }
        let lines = [
            &shared.passwords.aside,
            &shared.scans,
            &shared.hashes,
            &shared.lists,
            &shared.grants,
        ];
        let name = "quorate_server_waiting";
        text.head(
            name,
            "gauge",
            "Requests that wait for their turn, by the kind of work.",
        );
        for line in lines {
            text.sample(name, &format!("work=\"{}\"", line.name), line.waiting());
        }
        let name = "quorate_server_turned_away_total";
        text.head(
            name,
            "counter",
            "Requests refused because too many waited, by the kind of work.",
        );
        for line in lines {
            let refused = line.refused.load(Relaxed);
            text.sample(name, &format!("work=\"{}\"", line.name), refused);
        }
        for (name, kind, help, value) in [
            (
                "quorate_server_incomplete_request_bytes",
                "gauge",
                "Bytes of requests that are not whole yet.",
                shared.bodies.held() as u64,
            ),
            (
                "quorate_server_late_requests_total",
                "counter",
                "Requests that were not whole in time.",
                shared.bodies.late.load(Relaxed),
            ),
            (
                "quorate_server_incomplete_requests_refused_total",
                "counter",
                "Requests refused because too many bytes were incomplete.",
                shared.bodies.refused.load(Relaxed),
            ),
        ] {
            text.single(name, kind, help, value);
        }
    }

    /// Largest size of the store in bytes; `None`: unlimited.
    #[must_use]
    pub(crate) fn quota_bytes(&self) -> Option<u64> {
        self.shared.limits.quota_bytes
    }

    /// Largest request in bytes.
    #[must_use]
    pub(crate) fn max_request_bytes(&self) -> usize {
        usize::try_from(self.shared.limits.max_request_bytes).unwrap_or(usize::MAX)
    }

    /// Carries out one unary call: refuses it if this member may not answer, bounds its time,
    /// counts it, logs it if slow, and tells of it if it is sampled.
    pub(super) async fn unary<Q, A, F>(
        &self,
        method: Method,
        learner: Learner,
        request: Request<Q>,
        work: impl FnOnce(Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        Q: prost::Message + 'static,
        F: Future<Output = Result<A, Status>>,
    {
        let shared = &self.shared;
        shared.metrics.started(method);
        let began = Instant::now();
        let (metadata, extensions, message) = request.into_parts();
        let tracer = shared.tracer.as_ref();
        let span = tracer.and_then(|tracer| tracer.begin(&metadata));
        let from = extensions.get::<From>().map(|from| from.0);
        let about = About::of(&message);
        let mut marks = Marks::new(began);
        let admitted = match method {
            // A probe is answered with the present health, also before clients are served.
            Method::HealthCheck => self.admit_now(learner, &metadata),
            _ => self.admit(learner, &metadata).await,
        };
        let result = match admitted {
            Err(refused) => Err(refused),
            Ok(()) => {
                // Each step of a call has its own timeout with a more specific error; this one is
                // for calls of several steps.
                let most = shared.timeout + 2 * VERDICT + patience(method);
                let (limit, late) = match client_timeout(&metadata) {
                    Some(limit) if limit < most => (limit, EtcdError::DeadlineExceeded),
                    _ => (most, EtcdError::Timeout),
                };
                let caller = Caller::of(&metadata, &extensions);
                let call = async {
                    self.authorize(method, &caller).await?;
                    caller.scope(async { work(message).await }).await
                };
                let mut call = pin!(marks::scope(began, call));
                let result = within(limit, call.as_mut()).await;
                if let Some(noted) = call.as_mut().take_value() {
                    marks = noted.into_inner();
                }
                result.unwrap_or_else(|_| Err(late.into()))
            }
        };
        let ended = Ended {
            method,
            code: result.as_ref().map_or_else(Status::code, |_| Code::Ok),
            took: began.elapsed(),
            from,
            about,
            marks,
        };
        self.tell(&ended, span, &metadata);
        if let (Err(refused), Some(from)) = (&result, from)
            && is_strangers(refused)
        {
            let late_by = shared.failing.late_by(Host::of(from), Instant::now());
            if !late_by.is_zero() {
                tokio::time::sleep(late_by).await;
            }
        }
        result.map(Response::new)
    }

    /// Carries out one call that consists of others: refused if this member may not answer, and
    /// bounded only by the client's own deadline, since it may wait for other clients.
    pub(super) async fn wrapped<Q, A, F>(
        &self,
        method: Method,
        request: Request<Q>,
        work: impl FnOnce(Behalf, Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<A, Status>>,
    {
        let call = self.stream(method);
        let limit = client_timeout(request.metadata());
        let work = async {
            self.admit(Learner::Refused, request.metadata()).await?;
            let (caller, message) = Behalf::of(self, request);
            // etcd's recipes lose the codes of the calls that they make.
            work(caller, message)
                .await
                .map_err(|error| Status::unknown(error.message()))
        };
        let result = match limit {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(result) => result,
                Err(_) => Err(EtcdError::DeadlineExceeded.into()),
            },
        };
        match result {
            Ok(answer) => {
                call.finish();
                Ok(Response::new(answer))
            }
            Err(error) => Err(call.refuse(error)),
        }
    }

    /// Waits until clients are served, as etcd lets a connection wait, then refuses what this
    /// member may not answer.
    pub(super) async fn admit(
        &self,
        learner: Learner,
        metadata: &MetadataMap,
    ) -> Result<(), Status> {
        let member = &self.shared.member;
        {
            let (status, state) = (member.status(), member.latest());
            if self.serves(&status, &state) {
                return may_answer(&status, &state, learner, metadata);
            }
        }
        self.arrive(client_timeout(metadata)).await;
        // Its data are still being compared with the others' and may be wrong.
        if member.held() {
            return Err(not_a_member());
        }
        self.admit_now(learner, metadata)
    }

    /// Refuses what this member may not answer now.
    pub(super) fn admit_now(&self, learner: Learner, metadata: &MetadataMap) -> Result<(), Status> {
        let member = &self.shared.member;
        may_answer(&member.status(), &member.latest(), learner, metadata)
    }

    /// Whether the cluster knows this member's URLs, or has had time to learn them. As in etcd,
    /// clients are served from then on: a member list then contains the URLs of the member that
    /// sends it.
    pub(crate) fn is_settled(&self) -> bool {
        let shared = &self.shared;
        if shared.settled.load(Relaxed) {
            return true;
        }
        if shared.member.held() {
            return false;
        }
        let status = shared.member.status();
        let state = shared.member.latest();
        let known = state
            .membership
            .member(status.member_id)
            .is_some_and(|own| own.started && own.client_urls == shared.advertised);
        let settled = known || shared.started.elapsed() > SETTLE;
        shared.settled.fetch_or(settled, Relaxed);
        settled
    }

    /// Whether this server is a member that serves clients.
    fn serves(&self, status: &handle::Status, state: &Latest) -> bool {
        status.phase == Phase::Member && state.membership.cluster_id != 0 && self.is_settled()
    }

    /// Waits until that is the case, at most for the request timeout, even if the client would wait
    /// longer. Does not wait if this server was removed for good, is a standby that waits for an
    /// operator, has too many waiting calls already, or stops.
    async fn arrive(&self, patience: Option<Duration>) {
        let shared = &self.shared;
        if shared.stands_by && shared.member.status().phase == Phase::Standby {
            return;
        }
        let Ok(_place) = shared.arriving.try_acquire() else {
            return;
        };
        let limit = patience.map_or(shared.timeout, |patience| patience.min(shared.timeout));
        let mut stopping = shared.stopping.clone();
        // On a timeout the refusal follows from the state afterwards.
        tokio::select! {
            _ = self.served() => {}
            () = tokio::time::sleep(limit) => {}
            _ = stopping.wait_for(|stops| *stops) => {}
        }
    }

    /// Waits until this server is a member and clients are served; false if that will not happen:
    /// it stops first, or was removed.
    pub(crate) async fn served(&self) -> bool {
        let mut latest = self.shared.member.subscribe();
        loop {
            let status = self.shared.member.status();
            if self.serves(&status, &self.shared.member.latest()) {
                return true;
            }
            let gone = status.phase == Phase::Removed
                || latest.borrow().membership.is_removed(status.member_id);
            if gone {
                return false;
            }
            // It may also become true by the passing of time.
            if let Ok(Err(_gone)) = tokio::time::timeout(SETTLE / 50, latest.changed()).await {
                return false;
            }
        }
    }

    /// Waits until this member is ready: for a voter, until its first read was answered. Not for
    /// longer than etcd waits before it serves without a quorum; false then.
    pub(crate) async fn proven(&self) -> bool {
        let member = &self.shared.member;
        let proof = async {
            while member.status().role != Role::Learner && member.ready() != Health::Ok {
                if member.linearizable().await.is_err() {
                    tokio::time::sleep(SETTLE / 50).await;
                }
            }
        };
        tokio::time::timeout(SETTLE, proof).await.is_ok()
    }

    /// The header of a response at this revision.
    pub(super) fn header(&self, revision: i64) -> Option<ResponseHeader> {
        let (who, raft_term) = self.shared.member.who();
        Some(ResponseHeader {
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            revision,
            raft_term,
        })
    }

    /// Proposes a command for the caller of the present unary call, whose permissions are checked
    /// again when it is applied.
    pub(super) async fn propose(
        &self,
        operation: store::Operation,
    ) -> Result<store::Response, Status> {
        let (response, _) = self.propose_for(&Caller::current(), operation).await?;
        Ok(response)
    }

    /// Proposes a command for a caller, and also returns the index of its entry.
    pub(super) async fn propose_for(
        &self,
        caller: &Caller,
        operation: store::Operation,
    ) -> Result<(store::Response, Index), Status> {
        let mut command = store::Command::from(operation);
        self.check(&command).await?;
        command.actor = self.actor_of(caller).await?;
        if prost::Message::encoded_len(&command) > self.max_request_bytes() {
            return Err(EtcdError::RequestTooLarge.into());
        }
        self.shared.member.propose(command).await.map_err(failed)
    }

    async fn check(&self, command: &store::Command) -> Result<(), Status> {
        let latest = self.shared.member.latest();
        match store::check(command, &self.shared.store_limits, &latest.overview) {
            Ok(()) => Ok(()),
            Err(error) => {
                if error == store::Error::NoSpace {
                    self.shared.member.raise_no_space(QUOTA_IS_USED_UP).await;
                }
                Err(refused(&error))
            }
        }
    }
}

impl Services {
    /// Begins a stream: counted, and refused if this member may not answer.
    pub(super) async fn begin(
        &self,
        method: Method,
        metadata: &MetadataMap,
    ) -> Result<StreamCall, Status> {
        let call = self.stream(method);
        let admitted = self.admit(Learner::Refused, metadata).await;
        admitted.map_err(|error| call.refuse(error))?;
        Ok(call)
    }

    /// Counts a stream that begins.
    pub(super) fn stream(&self, method: Method) -> StreamCall {
        self.shared.metrics.started(method);
        let metrics = self.shared.metrics.clone();
        // Dropped without a result: the client went away.
        StreamCall {
            metrics,
            method,
            began: Instant::now(),
            code: Cell::new(Code::Cancelled),
        }
    }
}

/// A stream that is being served; counted as handled when it is dropped.
pub(super) struct StreamCall {
    metrics: Arc<ClientMetrics>,
    method: Method,
    began: Instant,
    code: Cell<Code>,
}

impl StreamCall {
    /// It ends with this error.
    pub(super) fn refuse(&self, error: Status) -> Status {
        self.code.set(error.code());
        error
    }

    /// A message of it was sent.
    pub(super) fn sent(&self) {
        self.metrics.sent(self.method);
    }

    /// It ends well.
    pub(super) fn finish(&self) {
        self.code.set(Code::Ok);
    }
}

impl Drop for StreamCall {
    fn drop(&mut self) {
        self.metrics
            .handled(self.method, self.code.get(), self.began.elapsed());
    }
}

/// Whether a learner serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learner {
    /// It does.
    Answers,
    /// It refuses, with etcd's text.
    Refused,
}

/// Refuses what a member in this state may not answer.
fn may_answer(
    status: &handle::Status,
    state: &Latest,
    learner: Learner,
    metadata: &MetadataMap,
) -> Result<(), Status> {
    // A member that has just started has an empty store until its checkpoint is read, which must
    // not pass for the cluster's. A removed member has an outdated one.
    let membership = &state.membership;
    let outside = membership.cluster_id == 0 || membership.is_removed(status.member_id);
    if status.phase != Phase::Member || outside {
        return Err(not_a_member());
    }
    if status.role == Role::Learner && learner == Learner::Refused {
        return Err(EtcdError::NotSupportedForLearner.into());
    }
    if wants_leader(metadata) && status.leader == 0 {
        return Err(EtcdError::NoLeader.into());
    }
    Ok(())
}

/// The caller requires that the member knows a leader.
pub(super) fn wants_leader(metadata: &MetadataMap) -> bool {
    metadata
        .get("hasleader")
        .is_some_and(|value| value.as_bytes() == b"true")
}

/// How long a call may be queued before it begins, or take, in addition to the usual limit. A client's own limit holds as well.
fn patience(method: Method) -> Duration {
    match method {
        Method::Authenticate | Method::UserAdd | Method::UserChangePassword => password::PATIENCE,
        Method::Hash | Method::HashKv if !mutant!(HashInAHurry) => HASHING,
        _ => Duration::ZERO,
    }
}

/// gRPC's own deadline: up to eight digits and a unit.
fn client_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The error of a standby, a joining or a removed server.
pub(super) fn not_a_member() -> Status {
    Status::unavailable("etcdserver: this server is starting, or no member of a cluster")
}

/// The store's error as a gRPC status.
pub(super) fn refused(error: &store::Error) -> Status {
    if let store::Error::Value(_) = error {
        // Another member has it: clients try that one.
        return Status::unavailable(error.to_string());
    }
    convert::store_error(error).map_or_else(|| Status::internal(error.to_string()), Status::from)
}

/// A failed request as a gRPC status.
pub(super) fn failed(error: RequestError) -> Status {
    match error {
        RequestError::NoLeader => EtcdError::NoLeader.into(),
        RequestError::LeaderChanged => EtcdError::LeaderChanged.into(),
        RequestError::NotLeader => EtcdError::NotLeader.into(),
        RequestError::TooManyRequests => EtcdError::TooManyRequests.into(),
        RequestError::Timeout => EtcdError::Timeout.into(),
        RequestError::Stopped => EtcdError::Stopped.into(),
        RequestError::TooLarge => EtcdError::RequestTooLarge.into(),
        RequestError::BadTransferee => EtcdError::BadLeaderTransferee.into(),
        RequestError::NotAMember => not_a_member(),
        RequestError::Store(error) => refused(&error),
        RequestError::Membership(error) => membership(&error),
    }
}

/// Whether an error is one that clients without permission can cause, or clients that ask for too
/// much.
fn is_strangers(refusal: &Status) -> bool {
    match refusal.code() {
        Code::Unauthenticated | Code::PermissionDenied => true,
        Code::ResourceExhausted => refusal.message() == EtcdError::TooManyRequests.text(),
        Code::InvalidArgument => refusal.message() == EtcdError::AuthFailed.text(),
        _ => false,
    }
}

fn membership(error: &MembershipError) -> Status {
    let known = match error {
        MembershipError::IdExists => EtcdError::MemberExists,
        MembershipError::Removed | MembershipError::NotFound => EtcdError::MemberNotFound,
        MembershipError::PeerUrlExists => EtcdError::PeerUrlExists,
        MembershipError::NoPeerUrls => EtcdError::BadMemberUrls,
        MembershipError::NotLearner => EtcdError::MemberNotLearner,
        MembershipError::LearnerNotReady { .. } => EtcdError::LearnerNotReady,
        MembershipError::TooManyLearners => EtcdError::TooManyLearners,
        MembershipError::NotEnoughStarted => EtcdError::NotEnoughStarted,
        MembershipError::Unhealthy => EtcdError::Unhealthy,
        MembershipError::NameExists
        | MembershipError::ConfigurationChanged { .. }
        | MembershipError::StaleEpoch { .. }
        | MembershipError::OtherDisk { .. }
        | MembershipError::DiskInUse { .. }
        | MembershipError::Unknown => {
            return Status::failed_precondition(format!("etcdserver: {error}"));
        }
    };
    known.into()
}

#[cfg(test)]
mod tests {
    use super::{HASHING, client_timeout, failed, patience, wants_leader};
    use crate::server::core::handle::RequestError;
    use crate::server::metrics::client::Method;
    use std::time::Duration;
    use tonic::metadata::MetadataMap;

    /// A member with 8 GiB of values could not be hashed at all: the call ended after nine seconds as unavailable, and the next one found
    /// the only place for such work taken by what went on.
    #[test]
    fn a_hash_may_take_longer_than_a_request() {
        assert_eq!(patience(Method::HashKv), HASHING);
        assert_eq!(patience(Method::Hash), HASHING);
        assert_eq!(patience(Method::Range), Duration::ZERO);
    }

    fn metadata(name: &'static str, value: &'static str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(name, value.parse().expect("ascii"));
        metadata
    }

    #[test]
    fn grpc_timeouts_are_parsed() {
        for (text, want) in [
            ("1S", Some(Duration::from_secs(1))),
            ("4999896u", Some(Duration::from_micros(4_999_896))),
            ("2H", Some(Duration::from_secs(7200))),
            ("5", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(
                client_timeout(&metadata("grpc-timeout", text)),
                want,
                "{text}"
            );
        }
        assert_eq!(client_timeout(&MetadataMap::new()), None);
    }

    /// The table of final errors in the documentation must agree with the code.
    #[test]
    fn documented_refusals_match_the_code() {
        let table = include_str!("../../../docs/failure-modes.md");
        for error in [
            RequestError::NoLeader,
            RequestError::LeaderChanged,
            RequestError::NotLeader,
            RequestError::TooManyRequests,
            RequestError::Timeout,
            RequestError::Stopped,
            RequestError::NotAMember,
            RequestError::TooLarge,
            RequestError::BadTransferee,
        ] {
            let is_final = error.is_final();
            let text = format!("| `{}` |", failed(error).message());
            let row = table.lines().find(|line| line.starts_with(&text));
            let documented = row.and_then(|row| row.trim_end_matches(" |").rsplit(" | ").next());
            let wanted = if is_final { "refused for good" } else { "open" };
            assert_eq!(documented, Some(wanted), "{text}");
        }
    }

    #[test]
    fn only_hasleader_true_requires_a_leader() {
        assert!(wants_leader(&metadata("hasleader", "true")));
        assert!(!wants_leader(&metadata("hasleader", "yes")));
        assert!(!wants_leader(&MetadataMap::new()));
    }
}
