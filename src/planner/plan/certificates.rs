//! What is observed of a cluster's certificates: the Secrets that contain them, and what each server reports to have
//! loaded. Keys are never part of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::crd::{TlsPort, member_certificate_name};

use super::observed::Owner;

const FORTNIGHT_MS: u64 = 14 * 86_400_000;
/// What is signed for a kubelet's key holds from so many milliseconds before on, for clocks that are behind. The API server takes at
/// most five minutes, by its own clock.
pub const POD_CERTIFICATE_SKEW_MS: u64 = 180_000;

/// What is seen of a cluster's certificates; empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// Hash of the current inputs of a certificate, without its member, by port; absent for a port whose certificates
    /// the operator does not issue.
    pub wanted: BTreeMap<TlsPort, String>,
    /// The CA rotation requested by the resource's annotation, by port.
    pub rotate: BTreeMap<TlsPort, String>,
    /// The Secrets with certificates that carry this cluster's name, by their names.
    pub secrets: BTreeMap<String, CertificateFacts>,
    /// The ports for which kubelets make the members' keys.
    pub pod_keys: BTreeSet<TlsPort>,
    /// What kubelets request for these and nobody has answered, by member and port; `None` where that is not known.
    pub requests: Option<BTreeMap<(String, TlsPort), RequestFacts>>,
    /// It is not known because the API server does not show such requests.
    pub requests_refused: bool,
    /// The certificates that the operator does not issue, of the user or of cert-manager, by port; absent for a port with
    /// source Operator.
    pub user_certificates: BTreeMap<TlsPort, UserCertificate>,
    /// For the user's current and earlier certificates, by fingerprint: the fingerprints of the CAs that signed them,
    /// of all known CAs.
    pub signers: BTreeMap<String, BTreeSet<String>>,
    /// The ClusterTrustBundle of the client port, if it is asked for or was published.
    pub bundle: TrustBundle,
}

impl TlsFacts {
    /// Whether a member's Secret for a port exists and contains what its pod mounts: otherwise it does not start. That is a
    /// certificate, or, where a kubelet makes the key, only the CAs.
    pub(super) fn is_there(&self, member: &str, port: TlsPort) -> bool {
        let facts = self.secrets.get(&member_certificate_name(member, port));
        facts.is_some_and(|facts| match self.pod_keys.contains(&port) {
            true => !facts.trusted.is_empty(),
            false => facts.certificate.is_some(),
        })
    }

    /// Whether kubelets make keys, and what they request cannot be answered: a pod that starts now would wait for ever.
    pub(super) fn is_unanswerable(&self) -> bool {
        !self.pod_keys.is_empty() && self.requests.is_none()
    }

    /// What the kubelet of a member's node requests for a port.
    pub(super) fn request(&self, member: &str, port: TlsPort) -> Option<&RequestFacts> {
        let requests = self.requests.as_ref()?;
        requests.get(&(member.to_owned(), port))
    }

    /// The missing Secrets that a member's pod mounts. Those of the user are checked before anything is created:
    /// `rules::user_certificates`.
    pub(super) fn missing(&self, member: &str) -> Vec<String> {
        let ports = self.wanted.keys();
        ports
            .filter(|port| !self.is_there(member, **port))
            .map(|port| member_certificate_name(member, *port))
            .collect()
    }
}

/// A kubelet's request for a certificate, of the pod that a member has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// UID of the pod.
    pub pod_uid: String,
}

/// What is seen of a cluster's ClusterTrustBundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustBundle {
    /// It was not looked for: none is asked for, and none was published.
    #[default]
    Unseen,
    /// The API server does not know the kind.
    NotServed,
    /// The operator may not read it.
    Denied,
    /// There is none.
    Missing,
    /// There is one of its name.
    There(TrustBundleFacts),
}

/// A ClusterTrustBundle as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundleFacts {
    /// Its UID.
    pub uid: String,
    /// Whose it is: another owner's is left alone.
    pub owner: Owner,
    /// Fingerprints of its CAs, in order; none if it cannot be read.
    pub trusted: Vec<String>,
}

impl TrustBundle {
    /// One that was published for this resource.
    pub(super) fn ours(&self) -> Option<&TrustBundleFacts> {
        match self {
            TrustBundle::There(facts) if facts.owner == Owner::Ours => Some(facts),
            _ => None,
        }
    }
}

/// A certificate for all members on one port that the operator does not issue: the user's own, or cert-manager's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCertificate {
    /// The Secret with the certificate.
    pub secret: String,
    /// The Secret with the trusted CAs.
    pub trusted_secret: String,
    /// Why it cannot be used, whatever the time and the member.
    pub unfit: Option<Unfit>,
    /// The certificate, as far as it can be read.
    pub certificate: Option<Certificate>,
    /// Its names and addresses.
    pub names: BTreeSet<String>,
    /// Fingerprints of the trusted CAs, in order.
    pub trusted: Vec<String>,
}

/// The reason while only cert-manager has to act.
pub const NOT_ISSUED: &str = "CertificateNotIssued";

/// Why a certificate that the operator does not make cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The reason for conditions.
    pub reason: &'static str,
    /// What it is, and what to do about it.
    pub text: String,
}

/// A Secret with a certificate as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// UID of the Secret.
    pub uid: String,
    /// Its owner.
    pub owner: Owner,
    /// It is being deleted.
    pub terminating: bool,
    /// Hash of the inputs that the certificate was issued from, if recorded.
    pub inputs: Option<String>,
    /// The member that it is for, if it is for one.
    pub member: Option<String>,
    /// Its certificate; `None` where it holds none that can be read, or no key for it.
    pub certificate: Option<Certificate>,
    /// Fingerprints of the CAs in its `ca.crt`, in order.
    pub trusted: Vec<String>,
    /// In a CA's Secret: the next signing CA.
    pub next: Option<Certificate>,
    /// In a CA's Secret: the annotation's value of its last rotation.
    pub rotated_for: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// SHA-256 of its DER form, in hexadecimal.
    pub fingerprint: String,
    /// Since when it holds.
    pub not_before_ms: u64,
    /// Until when it holds.
    pub not_after_ms: u64,
    /// Fingerprint of the CA in the `ca.crt` beside it that signed it; `None` if none of them did.
    pub issuer: Option<String>,
}

/// What a server has loaded for one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSecurity {
    /// It speaks TLS.
    pub tls: bool,
    /// It currently accepts connections without TLS.
    pub plaintext: bool,
    /// Fingerprint of its certificate.
    pub fingerprint: String,
    /// Fingerprints of the CAs that it trusts.
    pub trusted: Vec<String>,
}

impl Certificate {
    /// Whether two thirds of its life are over: time for the next one.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms()
    }

    /// When that is.
    pub(super) fn due_ms(&self) -> u64 {
        let life = self.not_after_ms.saturating_sub(self.not_before_ms);
        self.not_before_ms + life / 3 * 2
    }

    /// Whether four fifths of its lifetime are over: time for a rotation.
    pub(super) fn is_aging(&self, now_ms: u64) -> bool {
        let life = self.not_after_ms.saturating_sub(self.not_before_ms);
        now_ms >= self.not_before_ms + life / 5 * 4
    }

    /// Whether nine tenths of its life are over: it should have been renewed long ago.
    pub(super) fn is_late(&self, now_ms: u64) -> bool {
        let life = self.not_after_ms.saturating_sub(self.not_before_ms);
        now_ms >= self.not_before_ms + life / 10 * 9
    }

    /// Whether it expires within 14 days, or has less than a third of a short lifetime left: time to renew it by hand.
    pub(super) fn ends_soon(&self, now_ms: u64) -> bool {
        let life = self.not_after_ms.saturating_sub(self.not_before_ms);
        now_ms >= self.not_after_ms.saturating_sub(FORTNIGHT_MS.min(life / 3))
    }

    /// Whether it does not hold any more.
    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.not_after_ms
    }
}
