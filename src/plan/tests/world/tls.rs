//! Certificates in the toy world: Secrets that kubelets carry to servers half a minute later, and
//! members that reach each other only where each trusts what the other shows.

use crate::plan::CertificateAction;
use std::collections::BTreeMap;

use super::{SECOND, World};
use crate::crd::{
    CertificateSource, ClientAuth, GivenSecret, IssuerRef, PortTls, Tls, TlsPort,
    authority_secret_name, issued_certificate_name, member_certificate_name,
};
use crate::plan::*;

/// How long the kubelets take to carry a changed Secret to the servers.
const CARRIED_MS: u64 = 30 * SECOND;
const DAY_MS: u64 = 86_400 * SECOND;
const NAMES: &str = "names-1";

#[derive(Clone, Debug, Default)]
pub(in crate::plan::tests) struct Certificates {
    pub(in crate::plan::tests) secrets: BTreeMap<String, CertificateFacts>,
    changed_ms: BTreeMap<String, u64>,
    /// By pod and port.
    loaded: BTreeMap<(String, TlsPort), PortSecurity>,
    /// Every certificate that ever was.
    issued: BTreeMap<String, Certificate>,
    /// Secrets of these members are not carried to them.
    pub(in crate::plan::tests) stuck: Vec<String>,
    pub(in crate::plan::tests) names: Option<String>,
    pub(in crate::plan::tests) rotate: BTreeMap<TlsPort, String>,
    /// What the user gives.
    pub(in crate::plan::tests) given: BTreeMap<TlsPort, Given>,
    /// Nobody remembers who signed what was there before.
    pub(in crate::plan::tests) forgotten: bool,
    /// Sets with TLS, and whether their servers take connections without it on the peer port too; and
    /// the same of pods, by UID.
    pub(super) of_sets: BTreeMap<String, bool>,
    of_pods: BTreeMap<String, bool>,
}

fn given_name(port: TlsPort) -> String {
    format!("their-{}", port.as_str())
}

/// A member's peer URL.
pub(super) fn url(member: &str, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{member}:2380")
}

impl World {
    pub(in crate::plan::tests) fn with_tls(mut self) -> World {
        self.cluster.spec.tls = Some(Tls::default());
        self
    }

    pub(in crate::plan::tests) fn tls_facts(&self) -> TlsFacts {
        let names = self.tls.names.as_deref().unwrap_or(NAMES);
        let wanted = TlsPort::ALL.map(|port| (port, names.to_owned()));
        let mut wanted = BTreeMap::from(wanted);
        wanted.retain(|port, _| !self.tls.given.contains_key(port));
        let given = self.tls.given.values();
        let shown: Vec<&String> = (given.filter_map(|given| given.certificate.as_ref()))
            .map(|one| &one.fingerprint)
            .collect();
        let vouched = (self.tls.issued.iter())
            .filter(|(name, _)| !self.tls.forgotten || shown.contains(name))
            .map(|(name, one)| (name.clone(), one.issuer.clone().into_iter().collect()));
        match self.cluster.spec.tls {
            Some(_) => TlsFacts {
                wanted,
                rotate: self.tls.rotate.clone(),
                secrets: self.tls.secrets.clone(),
                given: self.tls.given.clone(),
                vouched: vouched.collect(),
            },
            None => TlsFacts::default(),
        }
    }

    /// Whether the pod of a member finds the Secrets that it mounts.
    pub(super) fn has_certificates(&self, member: &str) -> bool {
        let has = |port| {
            if let Some(given) = self.tls.given.get(&port) {
                return given.unfit.is_none();
            }
            let secret = member_certificate_name(member, port);
            self.tls.secrets.contains_key(&secret)
        };
        self.cluster.spec.tls.is_none() || TlsPort::ALL.into_iter().all(has)
    }

    /// Servers load what their kubelets carried to them; one that starts, what is there.
    pub(super) fn carry_certificates(&mut self) {
        if self.cluster.spec.tls.is_none() {
            return;
        }
        for (name, pod) in self.pods.iter().filter(|(_, pod)| pod.peer_tls) {
            let both = self.tls.of_sets.get(name).copied().unwrap_or(false);
            self.tls.of_pods.entry(pod.uid.clone()).or_insert(both);
        }
        let pods: Vec<(String, String)> = (self.pods.iter())
            .filter(|(_, pod)| pod.started_ms.is_some() && pod.peer_tls)
            .map(|(name, pod)| (name.clone(), pod.uid.clone()))
            .collect();
        for (member, uid) in pods {
            for port in TlsPort::ALL {
                let secret = match self.tls.given.get(&port) {
                    Some(given) => given.secret.clone(),
                    None => member_certificate_name(&member, port),
                };
                let key = (uid.clone(), port);
                let changed = self.tls.changed_ms.get(&secret).copied().unwrap_or(0);
                let carried = self.now >= changed + CARRIED_MS && !self.tls.stuck.contains(&member);
                let first = !self.tls.loaded.contains_key(&key);
                let facts = self.tls.secrets.get(&secret);
                let made =
                    facts.and_then(|facts| Some((facts.certificate.as_ref()?, &facts.trusted)));
                let given = self.tls.given.get(&port).filter(|_| {
                    // Who was started with Secrets of other names has those.
                    let inputs = self.pods.get(&member).and_then(|pod| pod.inputs.as_ref());
                    inputs == Some(&self.inputs)
                });
                let given =
                    given.and_then(|given| Some((given.certificate.as_ref()?, &given.trusted)));
                let found = match self.tls.given.contains_key(&port) {
                    true => given,
                    false => made,
                };
                let (Some((certificate, trusted)), true) = (found, carried || first) else {
                    continue;
                };
                let security = PortSecurity {
                    tls: true,
                    plaintext: false,
                    fingerprint: certificate.fingerprint.clone(),
                    trusted: trusted.clone(),
                };
                self.tls.loaded.insert(key, security);
            }
        }
    }

    pub(super) fn security(&self, member: &str) -> BTreeMap<TlsPort, PortSecurity> {
        let Some(pod) = self.pods.get(member).filter(|pod| pod.peer_tls) else {
            return BTreeMap::new();
        };
        let loaded = |port| {
            let found = self.tls.loaded.get(&(pod.uid.clone(), port))?;
            Some((port, found.clone()))
        };
        TlsPort::ALL.into_iter().filter_map(loaded).collect()
    }

    /// The URL that a member tells of itself when it founds a cluster.
    pub(super) fn own_urls(&self, member: &str) -> Vec<String> {
        vec![url(
            member,
            self.tls.of_pods.get(&self.pods[member].uid) == Some(&false),
        )]
    }

    /// Whether a member can be dialled by another one: by its URL with TLS, where each accepts what the
    /// other shows, or without, where it takes that.
    pub(super) fn dials(&self, from: &str, to: &str) -> bool {
        let view = self.members.iter().find(|member| member.name == to);
        let urls = view.iter().flat_map(|view| &view.peer_urls);
        let secure = urls.clone().any(|url| url.starts_with("https://"));
        let (a, b) = (self.security(from), self.security(to));
        let (a, b) = (a.get(&TlsPort::Peer), b.get(&TlsPort::Peer));
        match (a, b) {
            (Some(a), Some(b)) if secure => self.accepts(a, b) && self.accepts(b, a),
            (_, Some(_)) if !secure => {
                let uid = self.pods.get(to).map(|pod| pod.uid.clone());
                uid.and_then(|uid| self.tls.of_pods.get(&uid)) == Some(&true)
            }
            (_, None) => !secure,
            (None, Some(_)) | (Some(_), Some(_)) => false,
        }
    }

    fn accepts(&self, who: &PortSecurity, whom: &PortSecurity) -> bool {
        let shown = &self.tls.issued[&whom.fingerprint];
        let known = |issuer: &String| who.trusted.contains(issuer);
        shown.issuer.as_ref().is_some_and(known) && self.now < shown.not_after_ms
    }

    fn certificate(&mut self, days: u64, issuer: Option<String>) -> Certificate {
        let fingerprint = self.fresh("certificate");
        let certificate = Certificate {
            issuer: Some(issuer.unwrap_or_else(|| fingerprint.clone())),
            fingerprint: fingerprint.clone(),
            not_before_ms: self.now - 3600 * SECOND,
            not_after_ms: self.now + days * DAY_MS,
        };
        self.tls.issued.insert(fingerprint, certificate.clone());
        certificate
    }

    /// TLS with Secrets of the user's, for both ports.
    pub(in crate::plan::tests) fn with_given(mut self) -> World {
        let port = |port: TlsPort| PortTls {
            source: CertificateSource::Secret,
            certificate_secret_ref: Some(GivenSecret {
                name: given_name(port),
            }),
            ..PortTls::default()
        };
        self.cluster.spec.tls = Some(Tls {
            client: port(TlsPort::Client),
            peer: port(TlsPort::Peer),
            ..Tls::default()
        });
        for port in TlsPort::ALL {
            self.give(port, "theirs-1", &["theirs-1"], 90);
        }
        self
    }

    /// TLS by cert-manager for the peer port, which has issued nothing yet.
    pub(in crate::plan::tests) fn with_issued(mut self) -> World {
        self = self.with_given();
        self.issued_by("corp");
        let given = self.tls.given.get_mut(&TlsPort::Peer).expect("given");
        given.secret = issued_certificate_name("demo", TlsPort::Peer);
        given.trusted_secret.clone_from(&given.secret);
        given.certificate = None;
        given.unfit = Some(Unfit {
            reason: NOT_ISSUED,
            text: format!(
                "cert-manager has not issued Certificate {} yet: DoesNotExist: no Secret",
                given.secret
            ),
        });
        self
    }

    /// The user names who signs for peers.
    pub(in crate::plan::tests) fn issued_by(&mut self, issuer: &str) {
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

    /// What cert-manager is asked for, made from the issuer's name.
    pub(in crate::plan::tests) fn certificates_wanted(&self) -> Vec<(ObjectKey, String)> {
        let asked = |port: TlsPort| {
            let tls = self.cluster.spec.tls.as_ref()?;
            let issuer = tls.port(port).issuer_ref.as_ref()?;
            let key = ObjectKey {
                kind: ObjectKind::Certificate,
                name: issued_certificate_name("demo", port),
            };
            Some((key, issuer.name.clone()))
        };
        TlsPort::ALL.into_iter().filter_map(asked).collect()
    }

    /// The user puts a new certificate into a port's Secret, of this authority and for so many days,
    /// with those who are trusted.
    pub(in crate::plan::tests) fn give(
        &mut self,
        port: TlsPort,
        issuer: &str,
        trusted: &[&str],
        days: u64,
    ) {
        let certificate = self.certificate(days, Some(issuer.to_owned()));
        let names = ["*.demo-peers", "demo-peers", "*"].map(|name| format!("{name}.default.svc"));
        let given = Given {
            secret: given_name(port),
            trusted_secret: given_name(port),
            unfit: None,
            certificate: Some(certificate),
            names: names.into(),
            trusted: trusted.iter().map(|one| (*one).to_owned()).collect(),
        };
        self.tls.changed_ms.insert(given.secret.clone(), self.now);
        self.tls.given.insert(port, given);
    }

    /// The user changes who is trusted on a port.
    pub(in crate::plan::tests) fn trust(&mut self, port: TlsPort, trusted: &[&str]) {
        let given = self.tls.given.get_mut(&port).expect("one is given");
        given.trusted = trusted.iter().map(|one| (*one).to_owned()).collect();
        self.tls.changed_ms.insert(given.secret.clone(), self.now);
    }

    fn store(&mut self, secret: &str, facts: CertificateFacts) {
        self.tls.changed_ms.insert(secret.to_owned(), self.now);
        self.tls.secrets.insert(secret.to_owned(), facts);
    }

    /// Everything that certificates trust, in the order of an authority's own list.
    fn trusted(&self, port: TlsPort) -> Vec<String> {
        let authority = authority_secret_name("demo", port);
        self.tls.secrets[&authority].trusted.clone()
    }

    /// Carries out a step of certificates.
    pub(super) fn certify(&mut self, action: &Action) {
        match action {
            Action::Certificate(CertificateAction::MakeAuthority { port, secret }) => {
                assert!(!self.tls.secrets.contains_key(secret), "{secret} exists");
                let certificate = self.certificate(3650, None);
                // Whoever an earlier authority signed for is trusted on.
                let mut trusted = vec![certificate.fingerprint.clone()];
                let suffix = format!("-{}-tls", port.as_str());
                let leaves = self.tls.secrets.iter();
                for (_, leaf) in leaves.filter(|(name, _)| name.ends_with(&suffix)) {
                    let more = leaf.trusted.iter().filter(|one| !trusted.contains(one));
                    let more: Vec<String> = more.cloned().collect();
                    trusted.extend(more);
                }
                let facts = self.facts(None, certificate, trusted);
                self.store(secret, facts);
            }
            Action::Certificate(CertificateAction::RotateAuthority {
                secret,
                signs,
                stage,
                ..
            }) => {
                let mut facts = self.tls.secrets[secret].clone();
                let signer = facts.certificate.clone().expect("an authority");
                assert_eq!(&signer.fingerprint, signs);
                match stage {
                    Rotation::Prepare { asked } => {
                        assert!(facts.next.is_none(), "one is on its way");
                        let next = self.certificate(3650, None);
                        facts.trusted.insert(1, next.fingerprint.clone());
                        facts.next = Some(next);
                        facts.rotated_for.clone_from(asked);
                    }
                    Rotation::Switch { to } => {
                        facts.certificate = facts.next.take();
                        facts.trusted.retain(|one| one != to);
                        facts.trusted.insert(0, to.clone());
                    }
                    Rotation::Forget => facts.trusted.truncate(1),
                }
                self.store(secret, facts);
            }
            Action::Certificate(CertificateAction::IssueCertificate {
                port,
                member,
                secret,
                authority,
                replaces,
            }) => {
                let signer = &self.tls.secrets[&authority_secret_name("demo", *port)];
                let signer = signer.certificate.as_ref().map(|one| &one.fingerprint);
                assert_eq!(signer, Some(authority), "it signs");
                let old = self.tls.secrets.get(secret);
                let old = old.and_then(|facts| facts.certificate.as_ref());
                let old = old.map(|old| old.fingerprint.clone());
                assert_eq!(&old, replaces, "it is the one that was seen");
                let certificate = self.certificate(90, Some(authority.clone()));
                let trusted = self.trusted(*port);
                let facts = self.facts(member.clone(), certificate, trusted);
                self.store(secret, facts);
            }
            Action::Certificate(CertificateAction::TrustAuthorities {
                secret, trusted, ..
            }) => {
                let mut facts = self.tls.secrets[secret].clone();
                facts.trusted.clone_from(trusted);
                self.store(secret, facts);
            }
            Action::Certificate(CertificateAction::DropCertificate { secret, uid }) => {
                let gone = self.tls.secrets.remove(secret);
                assert_eq!(gone.map(|facts| facts.uid).as_ref(), Some(uid));
            }
            other => panic!("not a step of certificates: {other}"),
        }
    }

    fn facts(
        &mut self,
        member: Option<String>,
        certificate: Certificate,
        trusted: Vec<String>,
    ) -> CertificateFacts {
        CertificateFacts {
            uid: self.fresh("secret"),
            owner: Owner::Ours,
            terminating: false,
            inputs: Some(self.tls.names.clone().unwrap_or_else(|| NAMES.to_owned())),
            member,
            certificate: Some(certificate),
            trusted,
            next: None,
            rotated_for: None,
        }
    }

    /// Without a certificate of their own.
    pub(in crate::plan::tests) fn ask_no_client(&mut self) {
        if let Some(tls) = &mut self.cluster.spec.tls {
            tls.client_auth = ClientAuth::None;
        }
    }

    /// Days pass at once, without anybody doing anything.
    pub(in crate::plan::tests) fn skip_days(&mut self, days: u64) {
        self.now += days * DAY_MS;
        self.tick();
    }
}
