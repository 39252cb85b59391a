//! Members whose keys kubelets make: their Secrets hold the trusted CAs, and a record of the last certificate. A certificate is
//! signed when the kubelet of the member's node requests it, for the pod that the member has now.
//!
//! The first one of a pod is signed at once, because its server does not start before. Of further ones, those of running servers, one
//! is signed after another, as they are renewed where the operator makes the keys. Never denies a request: the kubelet would
//! drop the certificate that the pod has, for good. One that is not signed is deleted by Kubernetes, and requested again.

use crate::crd::{TlsPort, member_certificate_name};
use crate::plan::Rule;
use crate::plan::action::{Action, CertificateAction};
use crate::plan::certificates::{Certificate, RequestFacts};
use crate::plan::draft::Draft;
use crate::plan::observed::{Owner, PodFacts};
use crate::plan::report::{count, timestamp};
use crate::plan::situation::Situation;

use super::certificates::{all_lagging, gone, is_any_waited_for, is_waited_for, members};

/// The Secrets of members that have none yet, with the CAs alone: not before a kubelet's request could be answered, so that no
/// pod is made that would never start.
pub(super) fn make_trust(s: &Situation<'_>, draft: &mut Draft, port: TlsPort) {
    if s.o.tls.requests_refused {
        let text = "tls.source PodCertificate needs PodCertificateRequests of certificates.k8s.io/v1, which the API server does not show: it has to be Kubernetes 1.37 or newer, and the operator needs the rights that the chart's podCertificates: true gives it";
        draft.stall("PodCertificatesUnavailable", text);
    }
    if s.o.tls.is_unanswerable() {
        return;
    }
    for member in members(s) {
        let secret = member_certificate_name(member, port);
        let there = s.o.tls.is_there(member, port);
        if gone(draft, &secret, s.o.tls.secrets.get(&secret)) || there {
            continue;
        }
        let action = Action::Certificate(CertificateAction::MakeTrust {
            port,
            member: member.to_owned(),
            secret,
        });
        draft.step(Rule::Objects, action, "it is missing");
    }
}

/// Says until when members may have certificates of a CA that signs no more: nobody can make a kubelet request another one.
pub(super) fn tell_of_earlier(
    s: &Situation<'_>,
    draft: &mut Draft,
    (port, signer): (TlsPort, &Certificate),
) {
    let of_earlier = |member: &&str| {
        let secret = member_certificate_name(member, port);
        let facts = s.o.tls.secrets.get(&secret)?;
        let certificate = facts.certificate.as_ref()?;
        let earlier = certificate.issuer.as_ref() != Some(&signer.fingerprint);
        (earlier && !s.binds_nobody(port, facts)).then(|| certificate.due_ms())
    };
    let all: Vec<u64> = members(s).iter().filter_map(of_earlier).collect();
    if let Some(last) = all.iter().max() {
        let text = format!(
            "{} of the {} port are of an earlier CA, which stays trusted until kubelets request others, about {} at the latest; a restart of the members, by a change of spec.podTemplate, is sooner",
            count(all.len(), "certificate"),
            port.as_str(),
            timestamp(*last)
        );
        draft.note("RotatingAuthority", text);
    }
}

/// Answers to what kubelets request for a port, but for those that are in the plan already.
pub(super) fn sign(
    s: &Situation<'_>,
    draft: &mut Draft,
    (port, signer): (TlsPort, &Certificate),
    doubters: &[&str],
) {
    // One who has to load a certificate and requests another one has lost the key of the first: it is waited for no more.
    let mut lagging = all_lagging(s, port);
    let busy = lagging.any(|(member, _)| s.o.tls.request(member, port).is_none());
    let asks = |member: &&str| {
        let request = s.o.tls.request(member, port);
        request.is_some() || !is_waited_for(s, port, member)
    };
    let mut turn = Turn {
        waits: is_any_waited_for(s, port, doubters),
        busy,
        doubters,
        frozen: doubters.iter().all(asks),
    };
    for (member, pod, request) in requests(s, port) {
        let secret = member_certificate_name(member, port);
        let Some(facts) = s.o.tls.secrets.get(&secret).filter(|it| !it.terminating) else {
            continue;
        };
        if facts.owner != Owner::Ours {
            let text = format!(
                "Secret {secret} belongs to another owner: use another name for this cluster or for that Secret"
            );
            draft.stall("NameConflict", text);
            continue;
        }
        let old = facts.certificate.as_ref();
        let runs = pod.started_ms.is_some();
        let late = old.is_some_and(|old| old.is_late(s.o.now_ms));
        let why = match runs {
            false if !turn.waits => "its pod starts with it",
            true if turn.is_of(member, late) => "its kubelet requests the next one",
            _ => continue,
        };
        let action = Action::Certificate(CertificateAction::SignRequest {
            port,
            member: member.to_owned(),
            secret,
            request: request.name.clone(),
            uid: request.uid.clone(),
            pod_uid: request.pod_uid.clone(),
            authority: signer.fingerprint.clone(),
            replaces: old.map(|old| old.fingerprint.clone()),
        });
        if !draft.steps.iter().any(|step| step.action == action) {
            draft.step(Rule::Objects, action, why);
        }
    }
}

/// What is requested for the pods that members have, and for the pod of the one whose data a recovery reads.
fn requests<'s>(
    s: &'s Situation<'_>,
    port: TlsPort,
) -> Vec<(&'s str, &'s PodFacts, &'s RequestFacts)> {
    let survivor = s.survivor().map(|survivor| survivor.member.as_str());
    let all = members(s).into_iter().chain(survivor);
    let of_pod = |member: &'s str| {
        let pod = s.o.pods.get(member).or(s.o.earlier.pods.get(member))?;
        let request = s.o.tls.request(member, port)?;
        let fits = request.pod_uid == pod.uid && !pod.terminating;
        fits.then_some((member, pod, request))
    };
    all.filter_map(of_pod).collect()
}

/// Which of the running members may get another certificate now.
struct Turn<'a> {
    /// First certificates wait for members that do not trust the CA yet.
    waits: bool,
    /// Another member has to load one.
    busy: bool,
    /// Who does not trust the CA yet.
    doubters: &'a [&'a str],
    /// All of these may learn it with their own certificate alone, since their kubelets wait for an answer, or are not waited for.
    frozen: bool,
}

impl Turn<'_> {
    fn is_of(&mut self, member: &str, late: bool) -> bool {
        let accepted = self.doubters.is_empty() || self.frozen && self.doubters.contains(&member);
        let is = accepted && (!self.busy || late);
        self.busy |= is;
        is
    }
}
