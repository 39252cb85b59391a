//! Certificates for keys that kubelets make (`tls.source: PodCertificate`): what kubelets request for the pods of a cluster, as
//! facts, and the answers. The requests are in none of our caches, because older API servers do not serve the kind: they are
//! read live, of clusters that need them.
//!
//! Never sees a key, and never denies a request: a kubelet drops the certificate that a pod has when its next one is denied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::certificates::{Signer, held, live, signer, trusted};
use super::objects::{Owned, apply, failure};
use super::platform::OneCluster;
use super::pod_certificate_requests::PodCertificateRequest;
use crate::build;
use crate::crd::{
    ANNOTATION_REQUEST_PORT, MANAGER, MEMBER_SIGNER, TlsPort, ValidatedCluster,
    member_certificate_name,
};
use crate::operator::clock::{Clock, Moment};
use crate::operator::platform::Failure;
use crate::plan::{POD_CERTIFICATE_SKEW_MS, RequestFacts};
use crate::server::tls::certificates::Certificate;
use crate::server::tls::issue::{Purpose, Validity};

/// Interval between reads while every pod of the cluster runs: a kubelet that requests its next certificate has ten days for it.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The same while a pod starts, which waits for its certificates.
const READ_EVERY_START: Duration = Duration::from_secs(1);
/// How long a pod on a node counts as one that starts, in seconds.
const STARTS_S: i64 = 300;
/// The API server has refused to show requests so often: one of several may be older than the others for a moment.
const REFUSALS: u32 = 2;
/// What a request is answered with, in its conditions.
const ANSWERS: [&str; 3] = ["Issued", "Denied", "Failed"];

/// What was read of the requests for a cluster's pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    read: Option<Moment>,
    /// `None`: they were not read yet, or the API server does not show them.
    found: Option<BTreeMap<(String, TlsPort), RequestFacts>>,
    /// How often it has refused to, one after the other.
    refusals: u32,
}

impl Known {
    /// Reads them if the cluster has keys that kubelets make, and it is time.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        cluster: &ValidatedCluster,
        pods: &BTreeMap<String, Arc<Pod>>,
        clock: &Clock,
    ) {
        if build::ports_with_pod_keys(cluster).is_empty() {
            *self = Known::default();
            return;
        }
        let now_s = i64::try_from(clock.unix_ms() / 1000).unwrap_or(i64::MAX);
        let every = match pods.values().any(|pod| is_starting(pod, now_s)) {
            true => READ_EVERY_START,
            false => READ_EVERY,
        };
        if (self.read.as_ref()).is_some_and(|read| read.elapsed() < every) {
            return;
        }
        let api: Api<PodCertificateRequest> = Api::namespaced(client.clone(), &cluster.namespace);
        let of_signer = ListParams::default().fields(&format!("spec.signerName={MEMBER_SIGNER}"));
        match api.list(&of_signer).await {
            Ok(all) => (self.found, self.refusals) = (Some(requests(&all.items, pods)), 0),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                self.refusals = self.refusals.saturating_add(1);
            }
            // Errors of the API server do not remove earlier observations.
            Err(error) => {
                tracing::warn!(cluster = %cluster.name, %error, "cannot read PodCertificateRequests");
            }
        }
        if self.is_refused() {
            self.found = None;
        }
        // Until it is believed, a refusal is asked about again at once.
        let settled = self.found.is_some() && self.refusals == 0 || self.is_refused();
        self.read = settled.then(|| clock.now());
    }

    pub(super) fn facts(&self) -> Option<BTreeMap<(String, TlsPort), RequestFacts>> {
        self.found.clone()
    }

    /// Whether the API server does not show them.
    pub(super) fn is_refused(&self) -> bool {
        self.refusals >= REFUSALS
    }

    /// This one was answered, or may have been: they are read again, and until then it is as if it were.
    pub(super) fn look_again(&mut self, member: &str, port: TlsPort) {
        self.read = None;
        if let Some(found) = &mut self.found {
            found.remove(&(member.to_owned(), port));
        }
    }
}

/// Whether a pod that has a node has had no server since not long ago: it may wait for its volumes, also where its node has restarted.
fn is_starting(pod: &Pod, now_s: i64) -> bool {
    let placed = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let mut containers = containers.into_iter().flatten();
    let server = containers.find(|one| one.name == build::CONTAINER);
    let state = server.and_then(|one| one.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    let runs = state.is_some_and(|state| state.running.is_some());
    // That one has its certificate.
    if !placed || runs || waiting == Some("CrashLoopBackOff") {
        return false;
    }
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let scheduled = conditions.find(|one| one.type_ == "PodScheduled");
    let ended = [state, server.and_then(|one| one.last_state.as_ref())];
    let ended = ended.into_iter().flatten();
    let times = ended
        .filter_map(|state| state.terminated.as_ref()?.finished_at.as_ref())
        .chain(scheduled.and_then(|one| one.last_transition_time.as_ref()))
        .map(|at| at.0.as_second());
    let created = pod.creation_timestamp().map(|at| at.0.as_second());
    let since = times.chain(created).max();
    since.is_some_and(|at| now_s - at < STARTS_S)
}

/// What nobody has answered, by member and port. Of each the newest request alone counts, answered or not: a kubelet that was
/// restarted has forgotten the keys of all earlier ones.
fn requests(
    all: &[PodCertificateRequest],
    pods: &BTreeMap<String, Arc<Pod>>,
) -> BTreeMap<(String, TlsPort), RequestFacts> {
    let mut all: Vec<&PodCertificateRequest> = all.iter().collect();
    // Of those of one second an open one comes last: the others have had their answer.
    all.sort_by_key(|one| {
        let created = one.creation_timestamp().map(|at| at.0);
        (created, !is_answered(one), one.name_any())
    });
    let of_pods = all.into_iter().filter_map(|one| {
        let (member, pod) = pods.iter().find(|(_, pod)| is_for(one, pod))?;
        Some(((member.clone(), port_of(one)?), (one, pod)))
    });
    let newest: BTreeMap<_, _> = of_pods.collect();
    let facts = newest.into_iter().filter_map(|(key, (one, pod))| {
        let facts = RequestFacts {
            name: one.name_any(),
            uid: one.uid()?,
            pod_uid: pod.uid()?,
        };
        (!is_answered(one)).then_some((key, facts))
    });
    facts.collect()
}

fn is_answered(request: &PodCertificateRequest) -> bool {
    let mut conditions = request.status.conditions.iter();
    conditions.any(|one| ANSWERS.contains(&one.type_.as_str()))
}

/// Whether a request is for this pod, which one of our StatefulSets has made: by its UID, and by where and as whom it runs.
fn is_for(request: &PodCertificateRequest, pod: &Pod) -> bool {
    let asked = &request.spec;
    let runs = pod.spec.as_ref();
    let node = runs.and_then(|runs| runs.node_name.as_deref());
    let account = runs.and_then(|runs| runs.service_account_name.as_deref());
    let same = pod.metadata.uid.as_ref() == Some(&asked.pod_uid);
    same && asked.signer_name == MEMBER_SIGNER
        && node == Some(&asked.node_name)
        && account.unwrap_or("default") == asked.service_account_name
}

fn port_of(request: &PodCertificateRequest) -> Option<TlsPort> {
    let annotations = &request.spec.unverified_user_annotations;
    let named = annotations.get(ANNOTATION_REQUEST_PORT)?;
    TlsPort::ALL.into_iter().find(|port| port.as_str() == named)
}

/// The Secret of a member with the trusted CAs, which its pod mounts.
pub(super) async fn make_trust(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
    member: &str,
) -> Result<(), Failure> {
    let trusted = trusted(one, cluster, port).await?;
    let found = live(one, &member_certificate_name(member, port)).await?;
    // What it has recorded stays: a server may have it.
    let recorded = found.and_then(|found| build::secret_text(&found, build::CERTIFICATE));
    let secret = build::pod_key_secret(cluster, port, member, recorded.as_deref(), &trusted);
    let ours = Owned::Controller(&cluster.uid);
    let client = &one.shared.client;
    apply(client, &one.key.0, &secret, ours).await.map(|_| ())
}

/// What is signed for whom.
pub(super) struct Request<'a> {
    pub(super) port: TlsPort,
    pub(super) member: &'a str,
    /// Name and UID of the PodCertificateRequest.
    pub(super) request: (&'a str, &'a str),
    /// The Secret with the record.
    pub(super) secret: &'a str,
    /// Fingerprint of the CA.
    pub(super) authority: &'a str,
    /// Fingerprint of the recorded certificate.
    pub(super) replaces: Option<&'a str>,
}

/// Signs, records the certificate, and answers with it. In this order: the plan knows each certificate that a server can have, and
/// what was recorded and not answered is signed again. Not before the API server has said that it would take the answer: what it
/// refuses is recorded nowhere.
pub(super) async fn sign(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    wanted: &Request<'_>,
) -> Result<(), Failure> {
    let (name, uid) = wanted.request;
    let api: Api<PodCertificateRequest> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let found = api.get_opt(name).await;
    let found = found.map_err(|error| failure("read", name, &error))?;
    let found = found.filter(|found| {
        let same = found.uid().as_deref() == Some(uid);
        same && !is_answered(found) && port_of(found) == Some(wanted.port)
    });
    let found = found.ok_or_else(|| {
        Failure::Changed(format!(
            "PodCertificateRequest {name} was answered, or is gone"
        ))
    })?;
    let record = record(one, wanted).await?;
    let signer = signer(one, cluster, wanted.port, wanted.authority).await?;
    let certificate = certificate(one, cluster, wanted, (&found, &signer))?;
    let answer = answer(&found, &certificate, one.shared.outside.clock.unix_ms())?;
    let mut parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        dry_run: true,
        ..PatchParams::default()
    };
    let answered = async |parameters: &PatchParams| {
        let answered = api
            .patch_status(name, parameters, &Patch::Merge(&answer))
            .await;
        let answered = answered.map(drop);
        answered.map_err(|error| failure("answer", name, &error))
    };
    answered(&parameters).await?;
    let mut secret = build::pod_key_secret(
        cluster,
        wanted.port,
        wanted.member,
        Some(&certificate),
        &signer.trusted,
    );
    // What others wrote in the meantime is not undone.
    secret.metadata.resource_version = record.resource_version();
    let ours = Owned::Controller(&cluster.uid);
    apply(&one.shared.client, &one.key.0, &secret, ours).await?;
    parameters.dry_run = false;
    answered(&parameters).await
}

/// The Secret with the record, which is as it was seen.
async fn record(one: &OneCluster, wanted: &Request<'_>) -> Result<Secret, Failure> {
    let changed = || Failure::Changed(format!("{} holds another one by now", wanted.secret));
    let record = live(one, wanted.secret).await?.ok_or_else(changed)?;
    let now = held(&record, &[]).map(|now| now.fingerprint);
    match now.as_deref() == wanted.replaces {
        true => Ok(record),
        false => Err(changed()),
    }
}

/// The certificate, with the member's names, for as long as the kubelet asks for and the CA holds.
fn certificate(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    wanted: &Request<'_>,
    (request, signer): (&PodCertificateRequest, &Signer),
) -> Result<String, Failure> {
    let beyond = || Failure::Refused("the clock is beyond the calendar".into());
    let second = |at: i64| jiff::Timestamp::from_second(at).map_err(|_| beyond());
    let begin = one
        .shared
        .outside
        .clock
        .unix_ms()
        .saturating_sub(POD_CERTIFICATE_SKEW_MS);
    let begin = i64::try_from(begin / 1000).map_err(|_| beyond())?;
    let seconds = request.spec.max_expiration_seconds;
    let seconds = seconds.unwrap_or(build::POD_CERTIFICATE_SECONDS);
    let end = (begin + i64::from(seconds)).min(signer.certificate.not_after_ms / 1000);
    let validity = Validity {
        not_before: second(begin)?,
        not_after: second(end)?,
    };
    let names = build::certificate_names(cluster, wanted.member, wanted.port);
    let key = &request.spec.request.0;
    let authority = &signer.authority;
    let issued = authority.issue_for(wanted.member, &names, Purpose::Member, validity, key);
    issued.map_err(|error| Failure::Refused(error.to_string()))
}

/// What a kubelet reads, and what the API server compares with the certificate.
fn answer(
    request: &PodCertificateRequest,
    certificate: &str,
    now_ms: u64,
) -> Result<Value, Failure> {
    let unreadable = |_| Failure::Refused("a certificate that was signed cannot be read".into());
    let signed = Certificate::first(certificate).map_err(unreadable)?;
    let (begin_ms, end_ms) = (signed.not_before_ms, signed.not_after_ms);
    let refresh_ms = begin_ms + (end_ms - begin_ms) / 3 * 2;
    let time = |ms: i64| {
        let second = jiff::Timestamp::from_second(ms / 1000).ok();
        second.map(|at| at.to_string())
    };
    Ok(json!({
        "metadata": {"resourceVersion": request.resource_version()},
        "status": {
            "certificateChain": certificate,
            "notBefore": time(begin_ms),
            "notAfter": time(end_ms),
            "beginRefreshAt": time(refresh_ms),
            "conditions": [{
                "type": "Issued",
                "status": "True",
                "reason": "Signed",
                "message": "signed with the CA of the cluster",
                "lastTransitionTime": time(i64::try_from(now_ms).unwrap_or(begin_ms)),
            }],
        },
    }))
}

#[cfg(test)]
#[path = "pod_certificates_test.rs"]
mod tests;
