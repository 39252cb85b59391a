//! Certificates as simulated servers have them: kubelets carry Secrets into pods, at once where a
//! container starts and after a while where it runs, and servers take what they find. Certificates
//! and authorities are real ones; only the handshake is left out, and reported as failed where it would fail.

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{TlsPort, is_named};
use crate::server::operator_api::secure::Secure;
use crate::server::tls::certificates::{Certificate, Chain};
use crate::wire::member as proto;

use super::{Process, Servers};
use crate::opsim::harness::containers::NAMESPACE;

/// Between a change of a Secret and a server that runs with it.
const CARRY_MS: u64 = 12_000;

/// A Secret's texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) certificate: String,
    pub(crate) trusted: String,
}

/// A Secret that pods mount, and when it changed last.
#[derive(Clone, Debug)]
pub(super) struct Mounted {
    texts: Texts,
    changed_ms: u64,
}

/// What a server uses.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    texts: Texts,
    leaf: Certificate,
    /// Fingerprints of the authorities that it leads to, and of those that are trusted.
    issuers: BTreeSet<String>,
    trusted: BTreeSet<String>,
}

impl Loaded {
    fn read(texts: &Texts) -> Option<Self> {
        let chain = Chain::read(&texts.certificate).ok()?;
        let roots = Certificate::all(&texts.trusted).ok()?;
        let leads = |root: &&Certificate| chain.leads_to(std::slice::from_ref(*root));
        Some(Self {
            texts: texts.clone(),
            issuers: (roots.iter().filter(leads))
                .map(|root| root.sha256.clone())
                .collect(),
            trusted: roots.iter().map(|root| root.sha256.clone()).collect(),
            leaf: chain.leaf,
        })
    }

    fn accepts(&self, other: &Self, now_ms: u64) -> bool {
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let holds = (other.leaf.not_before_ms..other.leaf.not_after_ms).contains(&now);
        holds && !self.trusted.is_disjoint(&other.issuers)
    }
}

/// A name of a host, in the other namespace.
pub(crate) fn moved(name: &str, from: &str, to: &str) -> String {
    name.replace(&format!(".{from}.svc"), &format!(".{to}.svc"))
}

impl Servers {
    /// What the Secrets with certificates hold now, by name.
    pub(crate) fn mount(&mut self, now: BTreeMap<String, Texts>) {
        self.mounted.retain(|name, _| now.contains_key(name));
        for (name, texts) in now {
            let known = self.mounted.get(&name);
            if known.is_none_or(|known| known.texts != texts) {
                let changed_ms = self.now_ms;
                self.mounted.insert(name, Mounted { texts, changed_ms });
            }
        }
    }

    /// Servers take what was carried to them by now; one that has nothing, what is there.
    pub(super) fn carry(&mut self) {
        let (now_ms, mounted) = (self.now_ms, &self.mounted);
        for process in self.processes.values_mut().filter(|p| p.container.tls) {
            for (port, (certificate, trusted)) in &process.container.secrets {
                let (Some(certificate), Some(trusted)) =
                    (mounted.get(certificate), mounted.get(trusted))
                else {
                    continue;
                };
                let texts = Texts {
                    certificate: certificate.texts.certificate.clone(),
                    trusted: trusted.texts.trusted.clone(),
                };
                let changed_ms = certificate.changed_ms.max(trusted.changed_ms);
                let before = process.loaded.get(port);
                let news = before
                    .is_none_or(|before| before.texts != texts && now_ms >= changed_ms + CARRY_MS);
                if news && let Some(loaded) = Loaded::read(&texts) {
                    process.loaded.insert(*port, loaded);
                }
            }
        }
    }

    /// The namespace of whoever is called like this, if these servers stand for it, and how it would be called here.
    pub(super) fn stands_for(&self, secure: &Secure) -> Option<(String, Secure)> {
        let (_, namespace) = secure.server_name.strip_suffix(".svc")?.rsplit_once('.')?;
        self.stands_for.contains_key(namespace).then(|| {
            let mut here = secure.clone();
            here.server_name = moved(&secure.server_name, namespace, NAMESPACE);
            (namespace.to_owned(), here)
        })
    }

    /// What this pod's server says where it stands for another namespace's: it has the certificates of there. The digest is
    /// that of its own description, as calls that are held know it.
    pub(super) fn in_place(&self, pod: &str, namespace: &str, told: &mut proto::DescribeResponse) {
        let (Some(process), Some(there)) =
            (self.processes.get(pod), self.stands_for.get(namespace))
        else {
            return;
        };
        for (port, (certificate, _)) in &process.container.secrets {
            let security = match port {
                TlsPort::Peer => &mut told.peer_security,
                TlsPort::Client => &mut told.client_security,
            };
            if let (Some(security), Some(sha256)) = (security, there.get(certificate)) {
                security.certificate_sha256.clone_from(sha256);
            }
        }
    }

    /// Whether one member's server gets through to another one's, by the URL that it knows of it.
    pub(super) fn dials(&self, from: &Process, to: &Process) -> bool {
        let known = |of: &Process| {
            let disk = self.disks.get(&of.container.volume)?;
            let id = self.disks.get(&to.container.volume)?.member_id;
            let urls = &disk.membership.member(id)?.peer_urls;
            Some(urls.iter().any(|url| url.starts_with("https://")))
        };
        match known(from).or_else(|| known(to)) {
            Some(false) => self.takes_plaintext(to),
            Some(true) => self.accept(from, to),
            None => self.asks(from, to),
        }
    }

    /// Whether a server that looks for its cluster gets through to another one: with TLS, and where
    /// that is being switched on, without.
    pub(super) fn asks(&self, from: &Process, to: &Process) -> bool {
        let plain = !from.container.tls || from.container.plaintext_peers;
        self.accept(from, to) || plain && self.takes_plaintext(to)
    }

    fn accept(&self, one: &Process, other: &Process) -> bool {
        let port = TlsPort::Peer;
        match (one.loaded.get(&port), other.loaded.get(&port)) {
            (Some(one), Some(other)) => {
                one.accepts(other, self.now_ms) && other.accepts(one, self.now_ms)
            }
            _ => false,
        }
    }

    /// Whether the peer port takes connections without TLS now.
    fn takes_plaintext(&self, process: &Process) -> bool {
        let disk = self.disks.get(&process.container.volume);
        let member = disk.filter(|disk| disk.phase == super::Phase::Member);
        let all_secure = member.is_some_and(|disk| {
            let urls = disk.membership.members.values();
            let mut urls = urls.flat_map(|member| &member.peer_urls);
            urls.all(|url| url.starts_with("https://"))
        });
        !process.container.tls || process.container.plaintext_peers && !all_secure
    }
}

impl Process {
    /// Why a caller who asks for this proof gets no connection, if so. The time is not looked at.
    pub(super) fn refuses(&self, secure: Option<&Secure>) -> Option<&'static str> {
        match (secure, self.loaded.get(&TlsPort::Peer)) {
            (None, None) => None,
            (None, Some(_)) => Some("the port takes TLS alone"),
            (Some(_), None) => Some("it speaks no TLS"),
            (Some(secure), Some(loaded)) => {
                // Mostly the very text that it has itself, which needs no reading.
                let same = *secure.roots_pem == *loaded.texts.trusted;
                let known = same && !loaded.issuers.is_empty() || {
                    let roots = Certificate::all(&secure.roots_pem).unwrap_or_default();
                    roots
                        .iter()
                        .any(|root| loaded.issuers.contains(&root.sha256))
                };
                let named = is_named(&loaded.leaf.names, &secure.server_name);
                (!known || !named).then_some("its certificate is not the right one")
            }
        }
    }

    pub(super) fn security(&self, port: TlsPort) -> proto::PortSecurity {
        let Some(loaded) = self.loaded.get(&port) else {
            return proto::PortSecurity {
                plaintext_accepted: true,
                ..proto::PortSecurity::default()
            };
        };
        proto::PortSecurity {
            tls: true,
            plaintext_accepted: false,
            certificate_sha256: loaded.leaf.sha256.clone(),
            not_before_ms: loaded.leaf.not_before_ms,
            not_after_ms: loaded.leaf.not_after_ms,
            trusted_sha256: loaded.trusted.iter().cloned().collect(),
        }
    }
}
