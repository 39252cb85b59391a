//! Certificates in Secrets that the operator does not write: of the user (source `Secret`), or of cert-manager (source
//! `CertManager`, `cert_manager.rs`). The Secrets are in none of our caches, so they are read live, and rarely; their
//! content is checked once per change. They are never written, and their keys are dropped once checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;

use super::objects::failure;
use crate::build;
use crate::crd::{TlsPort, ValidatedCluster};
use crate::operator::clock::{Clock, Moment};
use crate::operator::platform::Failure;
use crate::plan::{Unfit, UserCertificate};
use crate::server::tls::certificates::{Certificate, Chain};

/// Between two readings of a cluster's Secrets.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The same, while one of them is missing.
const MISSING_READ_EVERY: Duration = Duration::from_secs(5);
/// How long previously trusted CAs are accepted when dialling: far longer than kubelets take to update a mount.
const CARRIED: Duration = Duration::from_secs(900);
/// Maximum number of earlier certificates and CAs that are kept.
const REMEMBERED: usize = 16;

/// What was read of the user's Secrets.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    read: Option<Moment>,
    held: BTreeMap<String, Held>,
    /// The last readable CAs of each Secret, PEM, and the previous ones.
    roots: BTreeMap<String, (String, Option<(String, Moment)>)>,
    chains: Vec<Arc<Chain>>,
    authorities: Vec<Arc<Certificate>>,
    signers: BTreeMap<String, BTreeSet<String>>,
    /// What was found out about the Secrets as they are, by port and names: chains take a while to
    /// follow, and reconciles come every few seconds.
    checked: BTreeMap<(TlsPort, String, String), UserCertificate>,
}

/// A Secret as it was read.
#[derive(Clone, Debug, PartialEq)]
enum Held {
    Missing,
    Denied,
    There(Texts),
}

#[derive(Clone, Debug, PartialEq)]
struct Texts {
    certificate: Option<String>,
    /// Whether its key fits; `None` where it has none.
    key_fits: Option<bool>,
    authorities: Option<String>,
}

/// The names of the Secrets that matter: those of the specification, and those that pods have.
pub(super) fn names(
    cluster: &ValidatedCluster,
    pods: &BTreeMap<String, Arc<Pod>>,
) -> BTreeSet<String> {
    let Some(tls) = &cluster.spec.tls else {
        return BTreeSet::new();
    };
    let mut names = BTreeSet::new();
    for port in TlsPort::ALL {
        let Some((certificate, trusted)) = tls.user_secrets(&cluster.name, port) else {
            continue;
        };
        names.extend([certificate, trusted]);
        let of_pods = pods.values();
        let of_pods =
            of_pods.filter_map(|pod| build::mounted_user_secrets(pod.spec.as_ref(), port));
        names.extend(of_pods.flat_map(|(certificate, trusted)| [certificate, trusted]));
    }
    names
}

impl Known {
    /// Reads these Secrets if that is due.
    pub(super) async fn read(
        &mut self,
        api: &Api<Secret>,
        names: BTreeSet<String>,
        clock: &Clock,
    ) -> Result<(), Failure> {
        let missing = self.held.values().any(|held| *held == Held::Missing);
        let every = if missing {
            MISSING_READ_EVERY
        } else {
            READ_EVERY
        };
        let fresh = (self.read.as_ref()).is_some_and(|read| read.elapsed() < every);
        if names.is_empty() || fresh && names.iter().all(|name| self.held.contains_key(name)) {
            return Ok(());
        }
        let mut held = BTreeMap::new();
        for name in names {
            let now = match api.get_opt(&name).await {
                Ok(Some(secret)) => Held::There(texts(&secret)),
                Ok(None) => Held::Missing,
                Err(kube::Error::Api(status)) if status.code == 403 => Held::Denied,
                // Errors of the API server do not remove earlier observations.
                Err(error) => match self.held.get(&name) {
                    Some(before) => before.clone(),
                    None => return Err(failure("read", &name, &error)),
                },
            };
            held.insert(name, now);
        }
        self.read = Some(clock.now());
        if held != self.held {
            self.held = held;
            self.learn(clock);
        }
        Ok(())
    }

    /// Adds new knowledge about CAs and the certificates that they signed.
    fn learn(&mut self, clock: &Clock) {
        self.checked.clear();
        let Known { held, roots, .. } = self;
        roots.retain(|name, _| held.contains_key(name));
        for (name, held) in held {
            let Held::There(texts) = held else { continue };
            if let Some(text) = &texts.authorities
                && let Ok(all) = Certificate::all(text)
            {
                remember(&mut self.authorities, all);
                let before = roots.get(name).map(|(now, _)| now);
                if before != Some(text) {
                    let before = before.map(|before| (before.clone(), clock.now()));
                    roots.insert(name.clone(), (text.clone(), before));
                }
            }
            let chain = texts.certificate.as_deref().map(Chain::read);
            if let Some(Ok(chain)) = chain {
                remember(&mut self.chains, vec![chain]);
            }
        }
        let signers = |chain: &Arc<Chain>| {
            let all = self.authorities.iter();
            let all = all.filter(|one| chain.leads_to(std::slice::from_ref(one.as_ref())));
            let all = all.map(|one| one.sha256.clone()).collect();
            (chain.leaf.sha256.clone(), all)
        };
        self.signers = self.chains.iter().map(signers).collect();
    }

    /// The certificates that the specification names, by port.
    pub(super) fn certificates(
        &mut self,
        cluster: &ValidatedCluster,
    ) -> BTreeMap<TlsPort, UserCertificate> {
        let tls = cluster.spec.tls.iter();
        let ports = tls.flat_map(|tls| TlsPort::ALL.map(|port| (tls, port)));
        let all = ports.filter_map(|(tls, port)| {
            let (secret, trusted) = tls.user_secrets(&cluster.name, port)?;
            let key = (port, secret.clone(), trusted.clone());
            let known = self.checked.get(&key).cloned();
            let user_certificate = known.unwrap_or_else(|| self.checked(port, &secret, &trusted));
            self.checked.insert(key, user_certificate.clone());
            Some((port, user_certificate))
        });
        all.collect()
    }

    /// The issuers of current and earlier certificates, among all known CAs.
    pub(super) fn signers(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.signers.clone()
    }

    /// The CAs for a member whose pod has this Secret; for a while after a change also the previous ones, because the
    /// member may not have the change yet.
    pub(super) fn roots(&self, secret: &str) -> Option<String> {
        let (now, before) = self.roots.get(secret)?;
        let before = before.as_ref();
        let before = before.filter(|(_, since)| since.elapsed() < CARRIED);
        Some(match before {
            Some((before, _)) => format!("{now}\n{before}"),
            None => now.clone(),
        })
    }

    fn checked(&self, port: TlsPort, secret: &str, trusted: &str) -> UserCertificate {
        let mut user_certificate = UserCertificate {
            secret: secret.to_owned(),
            trusted_secret: trusted.to_owned(),
            ..UserCertificate::default()
        };
        user_certificate.unfit = self.check(port, &mut user_certificate).err();
        user_certificate
    }

    /// Fills in what can be read.
    fn check(&self, port: TlsPort, user_certificate: &mut UserCertificate) -> Result<(), Unfit> {
        let (secret, trusted) = (
            user_certificate.secret.clone(),
            user_certificate.trusted_secret.clone(),
        );
        let authorities = self.authorities_of(&trusted);
        if let Ok(all) = &authorities {
            user_certificate.trusted = all.iter().map(|one| one.sha256.clone()).collect();
        }
        let texts = self.texts(&secret)?;
        let text = texts.certificate.as_deref().ok_or_else(|| {
            let text = format!("Secret {secret} has no tls.crt: add the certificate there");
            unfit("CertificateMissing", text)
        })?;
        let chain = Chain::read(text).map_err(|error| {
            let text = format!("tls.crt of Secret {secret} is not a certificate: {error}");
            unfit("CertificateUnreadable", text)
        })?;
        let ms = |at: i64| u64::try_from(at).unwrap_or(0);
        let roots = authorities.as_deref().unwrap_or_default();
        let issuer = roots
            .iter()
            .find(|one| chain.leads_to(std::slice::from_ref(*one)));
        user_certificate.names.clone_from(&chain.leaf.names);
        user_certificate.certificate = Some(crate::plan::Certificate {
            fingerprint: chain.leaf.sha256.clone(),
            not_before_ms: ms(chain.leaf.not_before_ms),
            not_after_ms: ms(chain.leaf.not_after_ms),
            issuer: issuer.map(|one| one.sha256.clone()),
        });
        match texts.key_fits {
            Some(true) => {}
            Some(false) => {
                let text = format!("tls.key in Secret {secret} does not match its tls.crt");
                return Err(unfit("KeyMismatch", text));
            }
            None => {
                let text =
                    format!("Secret {secret} has no tls.key: add the certificate's key there");
                return Err(unfit("KeyMissing", text));
            }
        }
        let roots = authorities?;
        if !chain.leads_to(&roots) {
            let text = format!(
                "tls.crt of Secret {secret} was not signed by any CA in ca.crt of Secret {trusted}: add its CA there, and intermediate CAs to tls.crt"
            );
            return Err(unfit("NotTrusted", text));
        }
        let lacks = match port {
            _ if !chain.may_serve(&roots) => Some("server"),
            TlsPort::Peer if !chain.may_dial(&roots) => Some("client"),
            _ => None,
        };
        match lacks {
            None => Ok(()),
            Some(lacks) => {
                let text = format!(
                    "the certificate in Secret {secret} does not allow the use as a {lacks}: members need the extended key usages serverAuth and, for peers, clientAuth"
                );
                Err(unfit("WrongPurpose", text))
            }
        }
    }

    fn texts(&self, secret: &str) -> Result<&Texts, Unfit> {
        match self.held.get(secret) {
            Some(Held::There(texts)) => Ok(texts),
            Some(Held::Denied) => {
                let text =
                    format!("the operator may not read Secret {secret}: grant it the permission");
                Err(unfit("SecretUnreadable", text))
            }
            Some(Held::Missing) | None => {
                let text = format!("Secret {secret} does not exist: create it");
                Err(unfit("SecretMissing", text))
            }
        }
    }

    fn authorities_of(&self, secret: &str) -> Result<Vec<Certificate>, Unfit> {
        let text = self.texts(secret)?.authorities.as_deref().ok_or_else(|| {
            let text = format!(
                "Secret {secret} has no ca.crt: add the trusted CAs there, or name the Secret that contains them in caSecretRef"
            );
            unfit("AuthorityMissing", text)
        })?;
        Certificate::all(text).map_err(|error| {
            let text = format!("ca.crt of Secret {secret} contains no certificates: {error}");
            unfit("AuthorityUnreadable", text)
        })
    }
}

fn unfit(reason: &'static str, text: String) -> Unfit {
    Unfit { reason, text }
}

fn texts(secret: &Secret) -> Texts {
    let certificate = build::secret_text(secret, build::CERTIFICATE);
    let key = build::secret_text(secret, build::CERTIFICATE_KEY);
    let fits = |key: String| {
        let chain = certificate.as_deref().map(Chain::read);
        chain.is_some_and(|chain| chain.is_ok_and(|chain| chain.fits(&key)))
    };
    Texts {
        key_fits: key.map(fits),
        authorities: build::secret_text(secret, build::CA_CERTIFICATES),
        certificate,
    }
}

/// Keeps what is new, at the end, and what was there, up to a number.
fn remember<T: PartialEq>(known: &mut Vec<Arc<T>>, new: Vec<T>) {
    for one in new {
        known.retain(|known| **known != one);
        known.push(Arc::new(one));
    }
    let surplus = known.len().saturating_sub(REMEMBERED);
    known.drain(..surplus);
}

#[cfg(test)]
#[path = "user_certificates_test.rs"]
mod tests;
