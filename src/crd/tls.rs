//! TLS of a cluster's two ports, as the user asks for it, and the names of the Secrets that it is
//! kept in. Only sources that are built are in the schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::labels::{ANNOTATION_ROTATE_CLIENT, ANNOTATION_ROTATE_PEER};
use super::schema;

/// TLS of both ports: that for clients, and that for the other members and the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// Certificates of the port for clients.
    pub client: PortTls,
    /// Certificates of the port for the other members.
    pub peer: PortTls,
    /// Whether clients must show a certificate of the client authority.
    pub client_auth: ClientAuth,
    /// Whether the port for clients takes connections without TLS as well.
    pub plaintext: Plaintext,
}

/// Where the certificates of a port come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PortTls {
    /// Who makes them.
    pub source: CertificateSource,
    /// Further host names and IP addresses in the members' certificates, beside those that members
    /// and Services have. New ones are taken over without a restart.
    #[serde(rename = "extraSANs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::alternative_names")]
    pub extra_sans: Vec<String>,
}

/// Who makes the certificates of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CertificateSource {
    /// The operator, with an authority for this cluster and port alone, which is kept in a Secret.
    /// It renews certificates before they end.
    #[default]
    Operator,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientAuth {
    /// One that the client authority signed: whoever has one may do everything, unless users and
    /// roles are switched on.
    #[default]
    Required,
    /// None is asked for.
    None,
}

/// Whether the port for clients takes connections without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Plaintext {
    /// They are refused.
    #[default]
    Refused,
    /// They are taken, and ask for no certificate: for the time in which clients of a cluster that
    /// lived without TLS change over.
    Accepted,
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

    /// The annotation that asks for another authority of this port.
    pub fn rotation(self) -> &'static str {
        match self {
            TlsPort::Client => ANNOTATION_ROTATE_CLIENT,
            TlsPort::Peer => ANNOTATION_ROTATE_PEER,
        }
    }

    /// The word for it in names and texts.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsPort::Client => "client",
            TlsPort::Peer => "peer",
        }
    }
}

impl Tls {
    /// The names that the user adds, of both ports.
    pub(super) fn extra_sans(&self) -> impl Iterator<Item = &String> {
        self.client.extra_sans.iter().chain(&self.peer.extra_sans)
    }

    /// What is asked for on this port.
    pub fn port(&self, port: TlsPort) -> &PortTls {
        match port {
            TlsPort::Client => &self.client,
            TlsPort::Peer => &self.peer,
        }
    }
}

/// Name of the Secret with a cluster's authority for a port.
pub fn authority_secret_name(cluster: &str, port: TlsPort) -> String {
    format!("{cluster}-{}-ca", port.as_str())
}

/// Name of the Secret with a member's certificate for a port.
pub fn member_certificate_name(member: &str, port: TlsPort) -> String {
    format!("{member}-{}-tls", port.as_str())
}

/// Name of the Secret with a certificate for whoever uses the cluster.
pub fn user_certificate_name(cluster: &str) -> String {
    format!("{cluster}-client")
}
