//! Certificates in the toy world: what its user gives and asks for. What becomes of them is the
//! model's.

use std::collections::{BTreeMap, BTreeSet};

use super::{SECOND, World};
use crate::crd::{
    CertificateSource, ClientAuth, IssuerRef, PortTls, PublishCas, Tls, TlsPort, UserSecretRef,
    cert_manager_certificate_name,
};
use crate::plan::*;

const DAY_MS: u64 = 86_400 * SECOND;

fn user_secret_name(port: TlsPort) -> String {
    format!("their-{}", port.as_str())
}

impl World {
    pub(in crate::plan::tests) fn with_tls(mut self) -> World {
        self.cluster.spec.tls = Some(Tls::default());
        self
    }

    /// TLS with keys that kubelets make, for both ports.
    pub(in crate::plan::tests) fn with_pod_keys(mut self) -> World {
        let port = PortTls {
            source: CertificateSource::PodCertificate,
            ..PortTls::default()
        };
        self.cluster.spec.tls = Some(Tls {
            client: port.clone(),
            peer: port,
            ..Tls::default()
        });
        self.api.tls.pod_keys = TlsPort::ALL.into();
        self.api.tls.requests = Some(BTreeMap::new());
        self
    }

    /// The API server shows what kubelets request, or shows it no more.
    pub(in crate::plan::tests) fn show_requests(&mut self, shown: bool) {
        let tls = &mut self.api.tls;
        tls.requests_refused = !shown;
        tls.requests = shown.then(BTreeMap::new);
    }

    /// The CAs of the client port are to be published, or are to be no more, in a Kubernetes that has ClusterTrustBundles.
    pub(in crate::plan::tests) fn publish(&mut self, asked: bool) {
        let tls = self.cluster.spec.tls.as_mut().expect("TLS");
        tls.publish_cas = match asked {
            true => PublishCas::ClusterTrustBundle,
            false => PublishCas::Secret,
        };
        if self.api.tls.bundle == TrustBundle::Unseen {
            self.api.tls.bundle = TrustBundle::Missing;
        }
    }

    /// The CAs that are published.
    pub(in crate::plan::tests) fn published(&self) -> Option<&[String]> {
        match &self.api.tls.bundle {
            TrustBundle::There(facts) => Some(&facts.trusted),
            _ => None,
        }
    }

    /// The inputs of certificates, for the ports whose certificates the operator issues.
    pub(super) fn wanted_certificates(&self) -> BTreeMap<TlsPort, String> {
        let own = |port: &TlsPort| {
            self.cluster.spec.tls.is_some() && !self.api.tls.user_certificates.contains_key(port)
        };
        let ports = TlsPort::ALL.into_iter().filter(own);
        ports.map(|port| (port, self.names.clone())).collect()
    }

    /// Who signed which certificate, as far as it is remembered.
    pub(super) fn signers(&self) -> BTreeMap<String, BTreeSet<String>> {
        let all = self.api.tls.user_certificates.values();
        let shown: Vec<&String> = (all.filter_map(|one| one.certificate.as_ref()))
            .map(|one| &one.fingerprint)
            .collect();
        (self.issued.iter())
            .filter(|(name, _)| !self.forgotten || shown.contains(name))
            .map(|(name, one)| (name.clone(), one.issuer.clone().into_iter().collect()))
            .collect()
    }

    /// TLS with Secrets of the user's, for both ports.
    pub(in crate::plan::tests) fn with_user_certificates(mut self) -> World {
        let port = |port: TlsPort| PortTls {
            source: CertificateSource::Secret,
            certificate_secret_ref: Some(UserSecretRef {
                name: user_secret_name(port),
            }),
            ..PortTls::default()
        };
        self.cluster.spec.tls = Some(Tls {
            client: port(TlsPort::Client),
            peer: port(TlsPort::Peer),
            ..Tls::default()
        });
        for port in TlsPort::ALL {
            self.put_user_certificate(port, "theirs-1", &["theirs-1"], 90);
        }
        self
    }

    /// TLS by cert-manager for the peer port, which has issued nothing yet.
    pub(in crate::plan::tests) fn with_cert_manager(mut self) -> World {
        self = self.with_user_certificates();
        self.set_issuer("corp");
        let user_certificate = self
            .api
            .tls
            .user_certificates
            .get_mut(&TlsPort::Peer)
            .expect("user certificate");
        user_certificate.secret = cert_manager_certificate_name("demo", TlsPort::Peer);
        user_certificate
            .trusted_secret
            .clone_from(&user_certificate.secret);
        user_certificate.certificate = None;
        user_certificate.unfit = Some(Unfit {
            reason: NOT_ISSUED,
            text: format!(
                "cert-manager has not issued Certificate {} yet: DoesNotExist: no Secret",
                user_certificate.secret
            ),
        });
        self
    }

    /// The user sets the issuer for peers.
    pub(in crate::plan::tests) fn set_issuer(&mut self, issuer: &str) {
        let tls = self.cluster.spec.tls.as_mut().expect("TLS");
        tls.peer = PortTls {
            source: CertificateSource::CertManager,
            issuer_ref: Some(IssuerRef {
                name: issuer.into(),
                kind: "Issuer".into(),
                group: "cert-manager.io".into(),
            }),
            ..PortTls::default()
        };
    }

    /// The `Certificate` requested from cert-manager, derived from the issuer's name.
    pub(in crate::plan::tests) fn certificates_wanted(&self) -> Vec<(ObjectKey, String)> {
        let asked = |port: TlsPort| {
            let tls = self.cluster.spec.tls.as_ref()?;
            let issuer = tls.port(port).issuer_ref.as_ref()?;
            let key = ObjectKey {
                kind: ObjectKind::Certificate,
                name: cert_manager_certificate_name("demo", port),
            };
            Some((key, issuer.name.clone()))
        };
        TlsPort::ALL.into_iter().filter_map(asked).collect()
    }

    /// The user puts a new certificate into a port's Secret, of this CA, valid for this number of days, with the
    /// trusted CAs.
    pub(in crate::plan::tests) fn put_user_certificate(
        &mut self,
        port: TlsPort,
        issuer: &str,
        trusted: &[&str],
        days: u64,
    ) {
        let certificate = self.certificate(days, Some(issuer.to_owned()));
        let names = ["*.demo-peers", "demo-peers", "*"].map(|name| format!("{name}.default.svc"));
        let user_certificate = UserCertificate {
            secret: user_secret_name(port),
            trusted_secret: user_secret_name(port),
            unfit: None,
            certificate: Some(certificate),
            names: names.into(),
            trusted: trusted.iter().map(|one| (*one).to_owned()).collect(),
        };
        self.written(&user_certificate.secret);
        self.api
            .tls
            .user_certificates
            .insert(port, user_certificate);
    }

    /// The user changes the trusted CAs of a port.
    pub(in crate::plan::tests) fn trust(&mut self, port: TlsPort, trusted: &[&str]) {
        let user_certificate = self
            .api
            .tls
            .user_certificates
            .get_mut(&port)
            .expect("user certificate");
        user_certificate.trusted = trusted.iter().map(|one| (*one).to_owned()).collect();
        let secret = user_certificate.secret.clone();
        self.written(&secret);
    }

    /// Without a certificate of their own.
    pub(in crate::plan::tests) fn ask_no_client(&mut self) {
        if let Some(tls) = &mut self.cluster.spec.tls {
            tls.client_auth = ClientAuth::None;
        }
    }

    /// Days pass at once, without any action.
    pub(in crate::plan::tests) fn skip_days(&mut self, days: u64) {
        self.api.now_ms += days * DAY_MS;
        self.tick();
    }
}
