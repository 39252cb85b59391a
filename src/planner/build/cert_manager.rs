//! The requests to cert-manager (source `CertManager`): one `Certificate` per port, for all members, and its status. No
//! other objects of cert-manager are created or changed.

use core::net::IpAddr;

use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::crd::{
    CertificateSource, IssuerRef, Tls, TlsPort, ValidatedCluster, cert_manager_certificate_name,
};
use crate::plan::{ObjectKey, ObjectKind};

use super::certificates::names_of_all;
use super::common::{hash, inputs_of, metadata};

/// The part of `cert-manager.io/v1` `Certificate` that is requested.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cert-manager.io",
    version = "v1",
    kind = "Certificate",
    status = "CertificateStatus",
    schema = "disabled",
    crates(kube_core = "::kube_core"),
    namespaced
)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSpec {
    /// The Secret that it goes into.
    pub secret_name: String,
    /// The issuer.
    pub issuer_ref: IssuerRef,
    /// Host names.
    #[serde(default)]
    pub dns_names: Vec<String>,
    /// Addresses.
    #[serde(default)]
    pub ip_addresses: Vec<String>,
    /// What it may be used for.
    #[serde(default)]
    pub usages: Vec<String>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub private_key: Value,
}

/// The part of its status that is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The status that cert-manager writes.
    #[serde(default)]
    pub conditions: Vec<CertificateCondition>,
}

/// One condition of cert-manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateCondition {
    /// Of what, such as `Ready` or `Issuing`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    #[serde(default)]
    pub reason: String,
    /// In a sentence.
    #[serde(default)]
    pub message: String,
}

/// The `Certificate`s that a cluster needs, with the hash of the inputs of each.
pub(super) fn wanted(cluster: &ValidatedCluster) -> Vec<(ObjectKey, String)> {
    let ports = issued_ports(cluster).into_iter();
    let one = |(tls, port): (&Tls, TlsPort)| {
        let asked = tls.port(port);
        let inputs = json!({"issuerRef": asked.issuer_ref, "extraSANs": asked.extra_sans});
        let key = ObjectKey {
            kind: ObjectKind::Certificate,
            name: cert_manager_certificate_name(&cluster.name, port),
        };
        (key, hash(&inputs))
    };
    ports.map(one).collect()
}

/// The ports whose certificates come from cert-manager.
fn issued_ports(cluster: &ValidatedCluster) -> Vec<(&Tls, TlsPort)> {
    let tls = cluster.spec.tls.iter();
    let ports = tls.flat_map(|tls| TlsPort::ALL.map(|port| (tls, port)));
    ports
        .filter(|(tls, port)| tls.port(*port).source == CertificateSource::CertManager)
        .collect()
}

/// The names of a cluster's `Certificate`s.
pub fn cert_manager_names(cluster: &ValidatedCluster) -> Vec<String> {
    let ports = issued_ports(cluster).into_iter();
    ports
        .map(|(_, port)| cert_manager_certificate_name(&cluster.name, port))
        .collect()
}

/// The `Certificate` of this name; `None` when the cluster needs none of this name.
pub fn cert_manager_certificate(cluster: &ValidatedCluster, name: &str) -> Option<Certificate> {
    let (tls, port) = issued_ports(cluster)
        .into_iter()
        .find(|(_, port)| cert_manager_certificate_name(&cluster.name, *port) == name)?;
    let (addresses, hosts): (Vec<String>, Vec<String>) = names_of_all(cluster, port)
        .into_iter()
        .partition(|name| name.parse::<IpAddr>().is_ok());
    let mut usages = vec!["digital signature", "key encipherment", "server auth"];
    if port == TlsPort::Peer {
        // Joining members, and the operator, use the same certificate when they dial.
        usages.push("client auth");
    }
    let inputs = inputs_of(cluster, ObjectKind::Certificate, name);
    let spec = CertificateSpec {
        secret_name: name.to_owned(),
        issuer_ref: tls.port(port).issuer_ref.clone()?,
        dns_names: hosts,
        ip_addresses: addresses,
        usages: usages.into_iter().map(str::to_owned).collect(),
        private_key: json!({"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}),
    };
    Some(Certificate {
        metadata: metadata(cluster, name.to_owned(), &inputs),
        spec,
        status: None,
    })
}

/// cert-manager's status for a `Certificate` that is not issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Issue {
    /// Nothing.
    Unseen,
    /// Issuance is in progress, with cert-manager's message.
    Waits(String),
    /// The last try failed, and why.
    Failed(String),
}

/// cert-manager's status for a `Certificate` that is not issued.
pub fn issue_of(certificate: &Certificate) -> Issue {
    let conditions = certificate.status.iter().flat_map(|all| &all.conditions);
    let of = |type_: &str| conditions.clone().find(|one| one.type_ == type_);
    let words = |one: &CertificateCondition| format!("{}: {}", one.reason, one.message);
    // A try that failed leaves its mark there until the next one begins.
    if let Some(issuing) = of("Issuing").filter(|one| one.reason == "Failed") {
        return Issue::Failed(words(issuing));
    }
    let condition = of("Issuing")
        .filter(|one| one.status == "True")
        .or(of("Ready"));
    condition.map_or(Issue::Unseen, |one| Issue::Waits(words(one)))
}
