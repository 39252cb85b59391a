//! Certificates that kubelets request for pods: a key for each such volume, a PodCertificateRequest for it, the next one when
//! the answer says so. Keys are real ones and are dropped, since no handshake is simulated; what was signed is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::api::{ApiServer, Kind};

/// A request that is not there is given up after this time, in milliseconds.
const ABANDON_MS: u64 = 600_000;
/// Requests of any state are deleted after this time, in milliseconds.
const KEPT_MS: u64 = 900_000;

/// What a kubelet has for a volume of a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Credential {
    /// What was signed; empty where nothing was yet.
    chain: String,
    /// When the next one is requested, in milliseconds since 1970.
    refresh_ms: u64,
    /// The request under way, and since when.
    asked: Option<(String, u64)>,
    /// It was denied: nothing is requested any more.
    denied: bool,
    /// The CAs that are mounted beside it.
    trusted: String,
    /// The kubelet has forgotten the key: the volume stays as it is, the CAs too, until the next one is signed.
    frozen: bool,
}

/// By UID of the pod and name of the volume.
pub(super) type Credentials = BTreeMap<(String, String), Credential>;

/// How a container names what is signed for this volume of its pod, if it has a key of the kubelet's.
pub(super) fn mount_of(pod: &Value, volume: &str) -> Option<String> {
    let signed = volumes(pod).into_iter().any(|(name, _)| name == volume);
    signed.then(|| mount_name(object::uid(pod), volume))
}

/// How a container names what was signed for a volume of its pod, among its Secrets.
fn mount_name(pod_uid: &str, volume: &str) -> String {
    format!("pod-certificate:{pod_uid}:{volume}")
}

/// The volumes of a pod that have a key of the kubelet's, with what they say of it.
fn volumes(pod: &Value) -> Vec<(&str, &Value)> {
    let all = object::items(pod, &["spec", "volumes"]).iter();
    all.filter_map(key_of).collect()
}

fn key_of(volume: &Value) -> Option<(&str, &Value)> {
    let mut sources = object::items(volume, &["projected", "sources"]).iter();
    let source = sources.find(|source| source["podCertificate"].is_object())?;
    Some((object::text(volume, &["name"]), &source["podCertificate"]))
}

/// What is mounted, by the names that containers have for it: a certificate, and the CAs.
pub(super) fn mounted(all: &Credentials) -> impl Iterator<Item = (String, (&str, &str))> {
    let signed = all.iter().filter(|(_, one)| !one.chain.is_empty());
    signed.map(|((uid, volume), one)| {
        let texts = (one.chain.as_str(), one.trusted.as_str());
        (mount_name(uid, volume), texts)
    })
}

/// Whether a kubelet has something to request by now.
pub(super) fn is_due(all: &Credentials, now_ms: u64) -> bool {
    all.values()
        .any(|one| one.asked.is_none() && one.refresh_ms <= now_ms && !one.denied)
}

/// Forgets which keys were requested for, as a kubelet that is restarted does: it requests them anew, and what was signed
/// stays where it is.
pub(super) fn forget(all: &mut Credentials, pods: &[String]) {
    for ((uid, _), one) in all.iter_mut() {
        if pods.contains(uid) {
            (one.asked, one.refresh_ms, one.frozen) = (None, 0, true);
        }
    }
}

/// A round for one pod. Tells whether all that its volumes need was signed.
pub(super) fn attend(all: &mut Credentials, api: &mut ApiServer, pod: &Value) -> bool {
    let uid = object::uid(pod);
    let mut complete = true;
    for (volume, wanted) in volumes(pod) {
        let key = (uid.to_owned(), volume.to_owned());
        let one = all.entry(key).or_default();
        advance(one, api, (pod, wanted));
        if !one.frozen {
            one.trusted = authorities(api, pod, volume);
        }
        complete &= !one.chain.is_empty();
    }
    complete
}

/// The CAs of the Secret that a volume has beside the key.
fn authorities(api: &ApiServer, pod: &Value, volume: &str) -> String {
    let mut all = object::items(pod, &["spec", "volumes"]).iter();
    let found = all.find(|one| object::text(one, &["name"]) == volume);
    let sources = found.map(|one| object::items(one, &["projected", "sources"]));
    let mut names = sources
        .into_iter()
        .flatten()
        .map(|source| object::text(source, &["secret", "name"]));
    let name = names.find(|name| !name.is_empty()).unwrap_or_default();
    let secret = api.get(Kind::Secret, object::namespace(pod), name);
    secret.map_or(String::new(), |secret| {
        crate::opsim::harness::containers::text(&secret, "ca.crt")
    })
}

fn advance(one: &mut Credential, api: &mut ApiServer, (pod, wanted): (&Value, &Value)) {
    let (now_ms, namespace) = (api.now_ms(), object::namespace(pod));
    if let Some((name, since_ms)) = one.asked.clone() {
        match api.get(Kind::PodCertificateRequest, namespace, &name) {
            None if now_ms >= since_ms + ABANDON_MS => one.asked = None,
            None => {}
            Some(request) if object::holds(&request, "Issued") => {
                one.chain = object::text(&request, &["status", "certificateChain"]).to_owned();
                let refresh = object::time_ms(&request, &["status", "beginRefreshAt"]);
                (one.refresh_ms, one.asked) = (refresh.unwrap_or(u64::MAX), None);
                one.frozen = false;
            }
            Some(request)
                if ["Denied", "Failed"]
                    .iter()
                    .any(|it| object::holds(&request, it)) =>
            {
                (one.denied, one.asked) = (true, None);
            }
            Some(_) => {}
        }
    }
    if one.asked.is_none() && one.refresh_ms <= now_ms && !one.denied {
        let made = api.create("kubelet", Kind::PodCertificateRequest, request(pod, wanted));
        one.asked = made
            .ok()
            .map(|made| (object::name(&made).to_owned(), now_ms));
    }
}

/// What a kubelet creates.
fn request(pod: &Value, wanted: &Value) -> Value {
    let account = object::text(pod, &["spec", "serviceAccountName"]);
    let account = if account.is_empty() {
        "default"
    } else {
        account
    };
    let (name, uid) = (object::name(pod), object::uid(pod));
    let mut request = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {
            "generateName": "req-",
            "namespace": object::namespace(pod),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}],
        },
        "spec": {
            "signerName": wanted["signerName"],
            "podName": name,
            "podUID": uid,
            "serviceAccountName": account,
            "serviceAccountUID": format!("uid-of-{account}"),
            "nodeName": pod["spec"]["nodeName"],
            "nodeUID": format!("uid-of-{}", object::text(pod, &["spec", "nodeName"])),
            "maxExpirationSeconds": wanted["maxExpirationSeconds"],
            "stubPKCS10Request": stub(),
        },
    });
    if wanted["userAnnotations"].is_object() {
        request["spec"]["unverifiedUserAnnotations"] = wanted["userAnnotations"].clone();
    }
    request
}

/// An empty certificate signing request of a new key, in base64.
fn stub() -> String {
    let key = KeyPair::generate().ok();
    let params = CertificateParams::default();
    let request = key.and_then(|key| params.serialize_request(&key).ok());
    let der = request.map(|request| request.der().to_vec());
    base64::engine::general_purpose::STANDARD.encode(der.unwrap_or_default())
}

/// What the controller manager does: it deletes old requests.
pub(super) fn clean(api: &mut ApiServer) {
    let now_ms = api.now_ms();
    let old = |request: &&Arc<Value>| {
        let since = object::time_ms(request, &["metadata", "creationTimestamp"]);
        since.is_none_or(|since| now_ms >= since + KEPT_MS)
    };
    let of = |request: &Arc<Value>| {
        let id = (object::namespace(request), object::name(request));
        (
            id.0.to_owned(),
            id.1.to_owned(),
            object::uid(request).to_owned(),
        )
    };
    let all: Vec<_> = api
        .all(Kind::PodCertificateRequest)
        .filter(old)
        .map(of)
        .collect();
    for (namespace, name, uid) in all {
        let how = crate::opsim::api::Delete::only(&uid);
        let _ = api.delete(
            "cleaner",
            Kind::PodCertificateRequest,
            (&namespace, &name),
            &how,
        );
    }
}
