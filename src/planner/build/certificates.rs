//! TLS of a cluster: the Secrets with certificates, the names in certificates, and the mounts and flags of a member's
//! pod. Keys and certificates come from the caller.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    KeyToPath, PodCertificateProjection, PodSpec, ProjectedVolumeSource, Secret, SecretProjection,
    SecretVolumeSource, Volume, VolumeMount, VolumeProjection,
};
use serde_json::{Value, json};

use crate::crd::{
    ANNOTATION_REQUEST_PORT, ClientAuth, LABEL_MEMBER, MEMBER_SIGNER, Plaintext, TlsPort,
    ValidatedCluster, authority_secret_name, client_certificate_name, client_service_name,
    member_certificate_name, peers_service_name, pod_name, slot_service_name,
};

use super::common::{hash, labels, metadata};
use super::server::container_arguments;

/// Value of `app.kubernetes.io/component` of every Secret with a certificate.
pub const CERTIFICATE_COMPONENT: &str = "certificate";
/// Keys of the Secrets' data: the trusted CAs, a CA's key, a certificate and its key. Also the names of the files in
/// pods.
pub const CA_CERTIFICATES: &str = "ca.crt";
/// A CA's key.
pub const CA_KEY: &str = "ca.key";
/// The certificate, or in a CA's Secret the signing CA.
pub const CERTIFICATE: &str = "tls.crt";
/// The next signing CA.
pub const NEXT_CERTIFICATE: &str = "next.crt";
/// Its key.
pub const NEXT_KEY: &str = "next.key";
/// On a CA's Secret: the value of the resource's annotation at its last rotation.
pub const ANNOTATION_ROTATED: &str = "quorate.dev/rotated-for";
/// The certificate's key.
pub const CERTIFICATE_KEY: &str = "tls.key";
/// Accepts both kinds of connections on the peer port while TLS is being enabled.
pub const TRANSITION: &str = "--peer-tls-transition";
/// Type of the Secrets of [`pod_key_secret`].
pub const POD_KEY: &str = "quorate.dev/pod-key";
/// How long a certificate for the key of a kubelet holds at most, in seconds: 30 days. The kubelet asks for the next one after
/// two thirds of that, so that CAs are rotated within three weeks although nobody can make it ask.
pub const POD_CERTIFICATE_SECONDS: i32 = 30 * 86_400;
/// Of the files in pods: for the server's user and group alone.
const FILE_MODE: i32 = 0o440;
/// Slots that a cluster can have at most: a certificate names them all, so that growing changes none.
const MOST_SLOTS: u32 = 9;

/// The scheme of a port's URLs.
pub(super) fn scheme(cluster: &ValidatedCluster) -> &'static str {
    if cluster.spec.tls.is_some() {
        "https"
    } else {
        "http"
    }
}

/// The hash of the inputs of certificates, by port; absent for ports whose certificates the operator does not issue.
pub fn wanted_certificates(cluster: &ValidatedCluster) -> BTreeMap<TlsPort, String> {
    let Some(tls) = &cluster.spec.tls else {
        return BTreeMap::new();
    };
    let inputs = |port: TlsPort| {
        let asked = tls.port(port);
        let hash = hash(&json!({"extraSANs": asked.extra_sans}));
        (asked.source.is_signed_by_operator()).then_some((port, hash))
    };
    TlsPort::ALL.into_iter().filter_map(inputs).collect()
}

/// The ports for which kubelets make the members' keys.
pub fn ports_with_pod_keys(cluster: &ValidatedCluster) -> BTreeSet<TlsPort> {
    let Some(tls) = &cluster.spec.tls else {
        return BTreeSet::new();
    };
    let all = TlsPort::ALL.into_iter();
    all.filter(|port| tls.has_pod_keys(*port)).collect()
}

/// What a member's pod depends on, apart from its Secrets' contents.
pub(super) fn pod_inputs(cluster: &ValidatedCluster) -> Option<Value> {
    let tls = cluster.spec.tls.as_ref()?;
    let mut inputs = json!({"clientAuth": tls.client_auth, "plaintext": tls.plaintext});
    for port in TlsPort::ALL {
        // Left out otherwise: the inputs of existing members stay what they were.
        if let Some((certificate, trusted)) = tls.user_secrets(&cluster.name, port) {
            inputs[port.as_str()] = json!({"certificate": certificate, "trusted": trusted});
        }
        if tls.has_pod_keys(port) {
            inputs[port.as_str()] = json!({"signer": MEMBER_SIGNER});
        }
    }
    Some(inputs)
}

/// Host names and addresses in a member's certificate for a port.
pub fn certificate_names(cluster: &ValidatedCluster, member: &str, port: TlsPort) -> Vec<String> {
    let peers = peers_service_name(&cluster.name);
    names(cluster, &format!("{}.{peers}", pod_name(member)), port)
}

/// Host names and addresses in a certificate of all members, also future ones.
pub(super) fn names_of_all(cluster: &ValidatedCluster, port: TlsPort) -> Vec<String> {
    let peers = peers_service_name(&cluster.name);
    let mut names = names(cluster, &format!("*.{peers}"), port);
    // A wildcard directly under a single label is refused by many CAs and clients.
    names.retain(|name| !name.starts_with("*.") || name.matches('.').count() > 1);
    names
}

fn names(cluster: &ValidatedCluster, member: &str, port: TlsPort) -> Vec<String> {
    let namespace = &cluster.namespace;
    // As names are written inside a Kubernetes cluster, from short to long.
    let forms = |name: &str| {
        [
            name.to_owned(),
            format!("{name}.{namespace}"),
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    };
    let peers = peers_service_name(&cluster.name);
    let mut names = BTreeSet::from(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.extend(forms(member));
    match port {
        // A joining member dials them all by one name.
        TlsPort::Peer => names.extend(forms(&peers)),
        TlsPort::Client => {
            names.extend(forms(&client_service_name(&cluster.name)));
            for slot in 0..MOST_SLOTS {
                names.extend(forms(&slot_service_name(&cluster.name, slot)));
            }
        }
    }
    if let Some(tls) = &cluster.spec.tls {
        names.extend(tls.port(port).extra_sans.iter().cloned());
    }
    names.into_iter().collect()
}

/// The content of a CA's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityContent {
    /// The one that signs, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
    /// All that are trusted, PEM.
    pub trusted: String,
    /// The one that signs next, and its key.
    pub next: Option<(String, String)>,
    /// The value of the annotation at its last rotation.
    pub rotated_for: Option<String>,
}

/// The Secret of a port's CA.
pub fn authority_secret(
    cluster: &ValidatedCluster,
    port: TlsPort,
    content: &AuthorityContent,
) -> Secret {
    let name = authority_secret_name(&cluster.name, port);
    let mut data = vec![
        (CA_CERTIFICATES, content.trusted.as_str()),
        (CA_KEY, &content.key),
        (CERTIFICATE, &content.certificate),
    ];
    if let Some((certificate, key)) = &content.next {
        data.push((NEXT_CERTIFICATE, certificate));
        data.push((NEXT_KEY, key));
    }
    let mut secret = secret(cluster, name, None, "", "quorate.dev/authority", &data);
    if let (Some(value), Some(annotations)) =
        (&content.rotated_for, secret.metadata.annotations.as_mut())
    {
        annotations.insert(ANNOTATION_ROTATED.to_owned(), value.clone());
    }
    secret
}

/// The Secret with a member's certificate for a port; without a member, with that of clients.
pub fn certificate_secret(
    cluster: &ValidatedCluster,
    port: TlsPort,
    member: Option<&str>,
    certificate: &str,
    key: &str,
    trusted: &str,
) -> Secret {
    let name = match member {
        Some(member) => member_certificate_name(member, port),
        None => client_certificate_name(&cluster.name),
    };
    let inputs = wanted_certificates(cluster).remove(&port);
    let inputs = inputs.filter(|_| member.is_some()).unwrap_or_default();
    let data = [
        (CA_CERTIFICATES, trusted),
        (CERTIFICATE, certificate),
        (CERTIFICATE_KEY, key),
    ];
    secret(cluster, name, member, &inputs, "kubernetes.io/tls", &data)
}

/// The Secret of a member whose key for a port a kubelet makes: the trusted CAs, which its pod mounts, and the last certificate
/// that was signed for it, if there was one, which is kept as a record alone.
pub fn pod_key_secret(
    cluster: &ValidatedCluster,
    port: TlsPort,
    member: &str,
    certificate: Option<&str>,
    trusted: &str,
) -> Secret {
    let name = member_certificate_name(member, port);
    let inputs = wanted_certificates(cluster).remove(&port);
    let inputs = inputs.filter(|_| certificate.is_some()).unwrap_or_default();
    let mut data = vec![(CA_CERTIFICATES, trusted)];
    data.extend(certificate.map(|certificate| (CERTIFICATE, certificate)));
    secret(cluster, name, Some(member), &inputs, POD_KEY, &data)
}

fn secret(
    cluster: &ValidatedCluster,
    name: String,
    member: Option<&str>,
    inputs: &str,
    type_: &str,
    data: &[(&str, &str)],
) -> Secret {
    let mut metadata = metadata(cluster, name, inputs);
    let mut own = labels(cluster, CERTIFICATE_COMPONENT);
    if let Some(member) = member {
        own.insert(LABEL_MEMBER.to_owned(), member.to_owned());
    }
    metadata.labels = Some(own);
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata,
        type_: Some(type_.to_owned()),
        data: Some(
            data.iter()
                .map(|(key, text)| ((*key).to_owned(), bytes(text)))
                .collect(),
        ),
        ..Secret::default()
    }
}

/// Whether a pod's server was started with TLS on its peer port.
pub fn speaks_tls(pod: Option<&PodSpec>) -> bool {
    has_argument(pod, "--listen-peer-urls=https://")
}

/// Whether a pod's server accepts connections without TLS on its peer port, for as long as some member is dialled so.
pub fn takes_plain_peers(pod: Option<&PodSpec>) -> bool {
    !speaks_tls(pod) || has_argument(pod, TRANSITION)
}

fn has_argument(pod: Option<&PodSpec>, prefix: &str) -> bool {
    container_arguments(pod).any(|argument| argument.starts_with(prefix))
}

/// A text of a Secret's data.
pub fn secret_text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// Where a port's files are in pods. Mounted as a folder, which the kubelet exchanges as a whole:
/// never file by file, which would stay what it was.
fn folder(port: TlsPort) -> String {
    format!("/etc/quorate/{}", port.as_str())
}

/// The volumes of a member's pod.
pub(super) fn volumes(cluster: &ValidatedCluster, member: &str) -> Vec<Volume> {
    let Some(tls) = &cluster.spec.tls else {
        return Vec::new();
    };
    let made = |port: TlsPort| Volume {
        name: volume_name(port),
        secret: Some(SecretVolumeSource {
            secret_name: Some(member_certificate_name(member, port)),
            default_mode: Some(FILE_MODE),
            items: Some(vec![
                item(CA_CERTIFICATES),
                item(CERTIFICATE),
                item(CERTIFICATE_KEY),
            ]),
            optional: None,
        }),
        ..Volume::default()
    };
    let volume = |port: TlsPort| match tls.user_secrets(&cluster.name, port) {
        None if tls.has_pod_keys(port) => pod_key_volume(port, member),
        None => made(port),
        Some((certificate, trusted)) => user_certificate_volume(port, &certificate, &trusted),
    };
    TlsPort::ALL.into_iter().map(volume).collect()
}

fn item(key: &str) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        mode: None,
    }
}

fn volume_name(port: TlsPort) -> String {
    format!("{}-tls", port.as_str())
}

/// Files of up to two Secrets in one folder: first the certificate's, then the trusted CAs'.
fn user_certificate_volume(port: TlsPort, certificate: &str, trusted: &str) -> Volume {
    let sources = vec![
        of_secret(certificate, &[CERTIFICATE, CERTIFICATE_KEY]),
        of_secret(trusted, &[CA_CERTIFICATES]),
    ];
    projected(port, sources)
}

/// A key that the kubelet makes, the certificate that it requests for it, and the trusted CAs from the member's Secret. All in one
/// folder, which is exchanged as a whole: a key is never seen with the certificate of another one.
fn pod_key_volume(port: TlsPort, member: &str) -> Volume {
    let requested = PodCertificateProjection {
        signer_name: MEMBER_SIGNER.to_owned(),
        key_type: "ECDSAP256".to_owned(),
        max_expiration_seconds: Some(POD_CERTIFICATE_SECONDS),
        certificate_chain_path: Some(CERTIFICATE.to_owned()),
        key_path: Some(CERTIFICATE_KEY.to_owned()),
        user_annotations: Some(BTreeMap::from([(
            ANNOTATION_REQUEST_PORT.to_owned(),
            port.as_str().to_owned(),
        )])),
        ..PodCertificateProjection::default()
    };
    let sources = vec![
        VolumeProjection {
            pod_certificate: Some(requested),
            ..VolumeProjection::default()
        },
        of_secret(&member_certificate_name(member, port), &[CA_CERTIFICATES]),
    ];
    projected(port, sources)
}

fn of_secret(name: &str, keys: &[&str]) -> VolumeProjection {
    VolumeProjection {
        secret: Some(SecretProjection {
            name: name.to_owned(),
            items: Some(keys.iter().map(|key| item(key)).collect()),
            optional: None,
        }),
        ..VolumeProjection::default()
    }
}

fn projected(port: TlsPort, sources: Vec<VolumeProjection>) -> Volume {
    Volume {
        name: volume_name(port),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(FILE_MODE),
            sources: Some(sources),
        }),
        ..Volume::default()
    }
}

/// The user's Secrets that a pod has for a port: the certificate's, and the trusted CAs'.
pub fn mounted_user_secrets(pod: Option<&PodSpec>, port: TlsPort) -> Option<(String, String)> {
    let name = volume_name(port);
    let mut volumes = pod?.volumes.iter().flatten();
    let projected = volumes.find(|volume| volume.name == name)?;
    let sources = projected.projected.as_ref()?.sources.as_ref()?;
    let mut names = sources.iter().filter_map(|source| {
        let secret = source.secret.as_ref()?;
        Some(secret.name.clone())
    });
    Some((names.next()?, names.next()?))
}

/// Where a member's container has them.
pub(super) fn mounts(cluster: &ValidatedCluster) -> Vec<VolumeMount> {
    if cluster.spec.tls.is_none() {
        return Vec::new();
    }
    let mount = |port: TlsPort| VolumeMount {
        name: format!("{}-tls", port.as_str()),
        mount_path: folder(port),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    TlsPort::ALL.into_iter().map(mount).collect()
}

/// A member's flags for them.
pub(super) fn arguments(cluster: &ValidatedCluster) -> Vec<String> {
    let Some(tls) = &cluster.spec.tls else {
        return Vec::new();
    };
    let file = |port: TlsPort, name: &str| format!("{}/{name}", folder(port));
    let (client, peer) = (TlsPort::Client, TlsPort::Peer);
    let mut arguments = vec![
        format!("--cert-file={}", file(client, CERTIFICATE)),
        format!("--key-file={}", file(client, CERTIFICATE_KEY)),
        format!("--peer-cert-file={}", file(peer, CERTIFICATE)),
        format!("--peer-key-file={}", file(peer, CERTIFICATE_KEY)),
        format!("--peer-trusted-ca-file={}", file(peer, CA_CERTIFICATES)),
        "--peer-client-cert-auth".to_owned(),
    ];
    if tls.client_auth == ClientAuth::Required {
        let trusted = file(client, CA_CERTIFICATES);
        arguments.push(format!("--trusted-ca-file={trusted}"));
        arguments.push("--client-cert-auth".to_owned());
    }
    if tls.plaintext == Plaintext::Accepted {
        arguments.push("--client-plaintext".to_owned());
    }
    arguments
}
