//! TLS of a cluster's two ports, as specified by the user, and the names of its Secrets. Only implemented sources are
//! in the schema.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::labels::{ANNOTATION_ROTATE_CLIENT, ANNOTATION_ROTATE_PEER, GROUP};
use super::schema;

/// TLS of both ports: the client port, and the peer port for the other members and the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("!has(self.peer.issuerRef) || !has(oldSelf.peer.issuerRef) || self.peer.issuerRef == oldSelf.peer.issuerRef || has(self.peer.caSecretRef) && has(oldSelf.peer.caSecretRef)", "peer.issuerRef cannot be changed directly: cert-manager would replace certificate and CA at once, and members would refuse each other. First set peer.caSecretRef to a Secret with both CAs in its ca.crt, then change peer.issuerRef"),
    ("self.publishCAs != 'ClusterTrustBundle' || self.client.source in ['Operator', 'PodCertificate']", "publishCAs: ClusterTrustBundle is for client.source Operator and PodCertificate, where the operator makes the CA: take the field out. Whoever has the CA of another source publishes it once for all that it signs, cert-manager's by trust-manager"),
])))]
pub struct Tls {
    /// Certificates of the client port.
    pub client: PortTls,
    /// Certificates of the peer port.
    pub peer: PortTls,
    /// Whether clients must present a certificate of the client CA.
    pub client_auth: ClientAuth,
    /// Whether the client port also accepts connections without TLS.
    pub plaintext: Plaintext,
    /// Where clients find the CAs of the client port: in the Secret that `status.endpoints.caSecretRef` names, or also
    /// in a ClusterTrustBundle.
    #[serde(rename = "publishCAs")]
    pub publish_cas: PublishCas,
}

/// Where the certificates of a port come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("self.source != 'Secret' || has(self.certificateSecretRef)", "source Secret needs certificateSecretRef: name the Secret with tls.crt and tls.key"),
    ("self.source == 'Secret' || !has(self.certificateSecretRef)", "certificateSecretRef is of source Secret alone: take it out, or set source: Secret"),
    ("!(self.source in ['Operator', 'PodCertificate']) || !has(self.caSecretRef)", "caSecretRef is not for source Operator or PodCertificate, where the operator makes an authority of its own: take it out, or set source: Secret or CertManager"),
    ("(self.source == 'CertManager') == has(self.issuerRef)", "source CertManager needs issuerRef, and no other source takes it: name the Issuer or ClusterIssuer that signs, or take the field out"),
    ("self.source != 'Secret' || !has(self.extraSANs)", "extraSANs are not for source Secret, where the names are those of your certificate: take the field out"),
    ("self.source == oldSelf.source", "the source of a port's certificates cannot change for a cluster that exists: set it back, or make a new cluster and copy the data (`etcdctl make-mirror`, or a snapshot)"),
])))]
pub struct PortTls {
    /// Who issues them. Cannot be changed for an existing cluster.
    pub source: CertificateSource,
    /// With source Secret: the Secret with the certificate of all members (`tls.crt`) and its key (`tls.key`), in the
    /// namespace of the resource. New content is loaded without a restart, another name is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_secret_ref: Option<UserSecretRef>,
    /// With source CertManager: the issuer. After a change the next certificate comes from the new one; for the peer
    /// port the members have to trust both first, by `caSecretRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// With source Secret or CertManager: the Secret whose `ca.crt` holds the trusted CAs; by default that of the
    /// certificate.
    #[serde(rename = "caSecretRef", skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<UserSecretRef>,
    /// Further host names and IP addresses in the members' certificates, in addition to those of members and Services.
    /// Changes take effect without a restart.
    #[serde(rename = "extraSANs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::alternative_names")]
    pub extra_sans: Vec<String>,
}

/// Who issues the certificates of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CertificateSource {
    /// The operator, with a CA for this cluster and port only, which is stored in a Secret. It renews certificates
    /// before they expire.
    #[default]
    Operator,
    /// The user, who stores them in Secrets and renews them there. The operator checks and watches them, and never
    /// writes them.
    Secret,
    /// cert-manager: the operator requests one certificate for all members by a `Certificate`, and checks and watches
    /// the resulting Secret like one of the user's.
    CertManager,
    /// The operator, with a CA as for Operator, for keys that the kubelet of a member's node makes and keeps in memory: no
    /// Secret holds the key of a member. Needs Kubernetes 1.37, and the rights that the chart's `podCertificates` gives the
    /// operator. A pod starts only once the operator has signed its request.
    PodCertificate,
}

impl CertificateSource {
    /// Whether the operator signs the certificates of members, with a CA of its own.
    pub fn is_signed_by_operator(self) -> bool {
        matches!(self, Self::Operator | Self::PodCertificate)
    }
}

/// The issuer for cert-manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Name of the issuer.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Kind of the issuer: an Issuer in the resource's namespace, a ClusterIssuer, or a kind of another group.
    #[serde(default = "issuer")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// API group of the issuer's kind.
    #[serde(default = "cert_manager")]
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
}

fn issuer() -> String {
    "Issuer".to_owned()
}

fn cert_manager() -> String {
    "cert-manager.io".to_owned()
}

/// A Secret of the user's, in the namespace of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserSecretRef {
    /// Name of the Secret.
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "the name of a Secret holds only a-z, 0-9, '-' and '.'")])))]
    pub name: String,
}

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientAuth {
    /// A certificate signed by the client CA: its holder has full access, unless authentication (users and roles) is
    /// enabled.
    #[default]
    Required,
    /// No client certificate is requested.
    None,
}

/// Whether the client port accepts connections without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Plaintext {
    /// They are refused.
    #[default]
    Refused,
    /// They are accepted, without a client certificate: for the transition of clients of a cluster that ran without
    /// TLS.
    Accepted,
}

/// Where clients find the CAs that verify the client port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PublishCas {
    /// In the Secret, in the namespace of the resource.
    #[default]
    Secret,
    /// In the Secret, and in the ClusterTrustBundle `quorate.dev:NAMESPACE.NAME:client`, which pods of any namespace mount
    /// without a copy of their own. Kubernetes must serve the kind, and the operator must have the rights that the chart's
    /// `clusterTrustBundles` gives it.
    ClusterTrustBundle,
}

/// One of a member's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsPort {
    /// For clients.
    Client,
    /// For the other members and the operator.
    Peer,
}

impl TlsPort {
    /// Both, in order.
    pub const ALL: [TlsPort; 2] = [TlsPort::Client, TlsPort::Peer];

    /// The annotation that requests a rotation of this port's CA.
    pub fn rotation(self) -> &'static str {
        match self {
            TlsPort::Client => ANNOTATION_ROTATE_CLIENT,
            TlsPort::Peer => ANNOTATION_ROTATE_PEER,
        }
    }

    /// Its name in object names and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsPort::Client => "client",
            TlsPort::Peer => "peer",
        }
    }
}

impl Tls {
    /// Whether the CAs of the client port go into a ClusterTrustBundle.
    pub fn publishes_bundle(&self) -> bool {
        self.publish_cas == PublishCas::ClusterTrustBundle
            && self.client.source.is_signed_by_operator()
    }

    /// The names that the user adds, for both ports.
    pub(super) fn extra_sans(&self) -> impl Iterator<Item = &String> {
        self.client.extra_sans.iter().chain(&self.peer.extra_sans)
    }

    /// Whether kubelets make the members' keys for this port.
    pub fn has_pod_keys(&self, port: TlsPort) -> bool {
        self.port(port).source == CertificateSource::PodCertificate
    }

    /// The settings of this port.
    pub fn port(&self, port: TlsPort) -> &PortTls {
        match port {
            TlsPort::Client => &self.client,
            TlsPort::Peer => &self.peer,
        }
    }

    /// Names of the Secrets that the operator does not write: with the certificate, and with the trusted CAs. `None`
    /// for a port whose certificates the operator issues.
    pub fn user_secrets(&self, cluster: &str, port: TlsPort) -> Option<(String, String)> {
        let asked = self.port(port);
        let certificate = match asked.source {
            CertificateSource::Operator | CertificateSource::PodCertificate => return None,
            CertificateSource::Secret => asked.certificate_secret_ref.as_ref()?.name.clone(),
            CertificateSource::CertManager => cert_manager_certificate_name(cluster, port),
        };
        let trusted = asked.ca_secret_ref.as_ref();
        let trusted = trusted.map_or(&certificate, |one| &one.name).clone();
        Some((certificate, trusted))
    }
}

/// Whether one of a certificate's names matches this host: exactly, or by a wildcard for the first label.
pub fn is_named(names: &BTreeSet<String>, host: &str) -> bool {
    let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    names.iter().any(|name| {
        name.eq_ignore_ascii_case(host)
            || (wildcard.as_ref()).is_some_and(|wildcard| name.eq_ignore_ascii_case(wildcard))
    })
}

/// Name of the Secret with a cluster's CA for a port.
pub fn authority_secret_name(cluster: &str, port: TlsPort) -> String {
    format!("{cluster}-{}-ca", port.as_str())
}

/// Name of the Secret with a member's certificate for a port.
pub fn member_certificate_name(member: &str, port: TlsPort) -> String {
    format!("{member}-{}-tls", port.as_str())
}

/// Name of the `Certificate` that is requested from cert-manager, and of the resulting Secret.
pub fn cert_manager_certificate_name(cluster: &str, port: TlsPort) -> String {
    format!("{cluster}-{}-certificate", port.as_str())
}

/// The signer that stands for a cluster's CAs, as Kubernetes suggests it for resources of a namespace.
pub fn signer_name(namespace: &str, cluster: &str) -> String {
    format!("{GROUP}/{namespace}.{cluster}")
}

/// The signer of the certificates that kubelets request for members' keys.
pub const MEMBER_SIGNER: &str = "quorate.dev/member";
/// Annotation of such a request: the port, as [`TlsPort::as_str`] has it.
pub const ANNOTATION_REQUEST_PORT: &str = "quorate.dev/port";

/// Name of the ClusterTrustBundle with the CAs of a cluster's client port: it has to begin with that of its signer.
pub fn trust_bundle_name(namespace: &str, cluster: &str) -> String {
    let signer = signer_name(namespace, cluster).replace('/', ":");
    format!("{signer}:{}", TlsPort::Client.as_str())
}

/// Name of the Secret with the certificate for clients.
pub fn client_certificate_name(cluster: &str) -> String {
    format!("{cluster}-client")
}
