//! TLS of both ports: rustls with the aws-lc-rs provider; certificates are reloaded when their
//! files change.
//!
//! A change is detected at the next connection or when the presented certificate is queried, at
//! most once a second. If certificate and key do not match (files change one after the other), the
//! old pair is kept and the reload is retried. Never holds a socket.

pub(in crate::server) mod auto;
pub mod certificates;
mod files;
#[cfg(test)]
pub(in crate::server) mod fixture;
pub mod issue;
pub(in crate::server) mod names;
pub(in crate::server) mod ports;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

use self::certificates::Certificate;
use self::files::Read;
use self::names::{Dialled, NamedClients};
use crate::server::flags::config::{TlsFiles, TlsPolicy};

/// Interval between two checks for changed files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The protocols that a client of the port may negotiate: gRPC, or HTTP/1 for probes.
pub const CLIENT_ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Why certificates cannot be used. Each text names the file or the setting.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read as PEM.
    #[error("cannot read {} {}: {reason}; give a PEM file that this user may read", what, path.display())]
    File {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key do not match, or the library refuses them.
    #[error("certificate {} with key {}: {reason}", certificate.display(), key.display())]
    Pair {
        /// The chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A suite of `--cipher-suites` that is not offered.
    #[error("--cipher-suites has {name:?}, which is not offered; known: {known}")]
    Suite {
        /// The name.
        name: String,
        /// The names that are supported.
        known: String,
    },
    /// The CAs are missing or unusable.
    #[error("{0}")]
    Roots(String),
}

/// Creates a value from files.
type Make<T> = Box<dyn Fn(&TlsFiles) -> Result<T, TlsError> + Send + Sync>;

/// Time and size of one file; `None` while it cannot be read.
type Stamp = Option<(SystemTime, u64)>;

/// A value created from files, and again when they change.
pub struct Reloaded<T> {
    files: TlsFiles,
    make: Make<T>,
    current: ArcSwap<T>,
    last_check: Mutex<LastCheck>,
}

/// The result of the last check.
struct LastCheck {
    at: Instant,
    /// The files in use.
    used: Vec<Stamp>,
    /// Files that could not be used; that was logged once, and the reload is retried.
    refused: Option<Vec<Stamp>>,
}

impl<T> Reloaded<T> {
    fn new(
        files: &TlsFiles,
        make: impl Fn(&TlsFiles) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let stamps = stamps(files);
        let current = ArcSwap::from_pointee(make(files)?);
        let last_check = Mutex::new(LastCheck {
            at: Instant::now(),
            used: stamps,
            refused: None,
        });
        Ok(Reloaded {
            files: files.clone(),
            make: Box::new(make),
            current,
            last_check,
        })
    }

    /// The newest value that the files gave.
    pub fn current(&self) -> Arc<T> {
        self.reload(CHECK_EVERY);
        self.current.load_full()
    }

    fn reload(&self, every: Duration) {
        // Another connection is checking: its result will do.
        let Ok(mut last_check) = self.last_check.try_lock() else {
            return;
        };
        if last_check.at.elapsed() < every {
            return;
        }
        last_check.at = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == last_check.used {
            return;
        }
        match (self.make)(&self.files) {
            Ok(value) => {
                self.current.store(Arc::new(value));
                last_check.used = stamps;
                last_check.refused = None;
                tracing::info!(certificate = %self.files.certificate.display(), "certificates were read again");
            }
            Err(error) if last_check.refused.as_ref() != Some(&stamps) => {
                last_check.refused = Some(stamps);
                tracing::warn!(%error, "changed certificates are not usable yet");
            }
            Err(_) => {}
        }
    }
}

/// Time and size of every file, by which changes are detected.
fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    [
        Some(&files.certificate),
        Some(&files.key),
        files.trusted_ca.as_ref(),
        files.revoked.as_ref(),
        files.client_certificate.as_ref(),
        files.client_key.as_ref(),
    ]
    .into_iter()
    .flatten()
    .map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
    .collect()
}

/// The TLS of a port.
#[derive(Debug)]
pub struct Served {
    /// The configuration for the library.
    pub config: Arc<ServerConfig>,
    /// What it presents and which CAs it trusts, for display and for an operator.
    pub shown: Shown,
}

/// The content of a port's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The leaf; `None` if the library accepts it and this program cannot parse it.
    pub certificate: Option<Certificate>,
    /// SHA-256 of each CA that may verify the other side, hexadecimal, sorted.
    pub trusted: Vec<String>,
}

/// Both sides of the peer port, from one reading of the files.
#[derive(Debug)]
pub struct Peers {
    /// The accepting side.
    pub served: Served,
    /// The dialling side: the certificate that a member presents, and the CAs that it trusts.
    pub dialled: Arc<ClientConfig>,
}

/// The accepting side of a port.
pub fn server(
    files: &TlsFiles,
    policy: &TlsPolicy,
    alpn: &'static [&'static [u8]],
) -> Result<Reloaded<Served>, TlsError> {
    let provider = provider(policy)?;
    let versions = versions(policy);
    Reloaded::new(files, move |files| {
        served(&Read::all(files)?, files, &provider, &versions, alpn)
    })
}

/// The peer port, where a member accepts and dials with the same files.
pub fn peers(files: &TlsFiles, policy: &TlsPolicy) -> Result<Reloaded<Peers>, TlsError> {
    let provider = provider(policy)?;
    let versions = versions(policy);
    Reloaded::new(files, move |files| {
        let read = Read::all(files)?;
        Ok(Peers {
            served: served(&read, files, &provider, &versions, &[b"h2"])?,
            dialled: Arc::new(client_config(&read, files, &provider, &versions)?),
        })
    })
}

fn served(
    read: &Read,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> Result<Served, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Roots(format!("TLS versions: {error}")))?;
    let builder = match &read.roots {
        Some((path, roots)) if files.client_auth => {
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
                    .with_crls(read.revoked.clone())
                    .allow_unknown_revocation_status();
            if files.calls_without {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| {
                TlsError::Roots(format!("roots in {}: {error}", path.display()))
            })?;
            if files.allowed.is_empty() {
                builder.with_client_cert_verifier(verifier)
            } else {
                builder.with_client_cert_verifier(Arc::new(NamedClients {
                    chain: verifier,
                    allowed: files.allowed.clone(),
                }))
            }
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(read.chain.clone(), read.key.clone_key())
        .map_err(|error| pair(&files.certificate, &files.key, &error))?;
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(Served {
        config: Arc::new(config),
        shown: read.shown(),
    })
}

fn client_config(
    read: &Read,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, TlsError> {
    let dialled = dialled(read, files, provider)?;
    let (certificate, private) = match (&files.client_certificate, &files.client_key) {
        (Some(certificate), Some(key)) => (certificate, key),
        _ => (&files.certificate, &files.key),
    };
    let (chain, key) = match &read.dialling {
        Some((chain, key)) => (chain, key),
        None => (&read.chain, &read.key),
    };
    ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Roots(format!("TLS versions: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(dialled))
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(|error| pair(certificate, private, &error))
}

/// The verification of a dialled server.
fn dialled(
    read: &Read,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<Dialled, TlsError> {
    let Some((path, roots)) = &read.roots else {
        if files.self_signed_years.is_some() {
            return Ok(Dialled::Anyone(provider.clone()));
        }
        return Err(TlsError::Roots(
            "dialling with TLS needs roots: give --peer-trusted-ca-file".to_owned(),
        ));
    };
    let chain = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| TlsError::Roots(format!("roots in {}: {error}", path.display())))?;
    Ok(Dialled::Named {
        chain,
        allowed: files.allowed.clone(),
    })
}

fn versions(policy: &TlsPolicy) -> Vec<&'static SupportedProtocolVersion> {
    match (policy.only_tls12, policy.only_tls13) {
        (true, _) => vec![&TLS12],
        (_, true) => vec![&TLS13],
        _ => vec![&TLS13, &TLS12],
    }
}

/// The provider with the suites of `--cipher-suites`; those of TLS 1.3 always stay, as in etcd.
fn provider(policy: &TlsPolicy) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if policy.cipher_suites.is_empty() {
        return Ok(Arc::new(provider));
    }
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    let optional = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_none();
    let known: Vec<String> = provider
        .cipher_suites
        .iter()
        .filter(|suite| optional(suite))
        .map(name)
        .collect();
    // Go writes the two ChaCha suites with and without their hash.
    let wanted: Vec<String> = policy
        .cipher_suites
        .iter()
        .map(|name| {
            if name.ends_with("_CHACHA20_POLY1305") {
                format!("{name}_SHA256")
            } else {
                name.clone()
            }
        })
        .collect();
    if let Some(name) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(TlsError::Suite {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    provider
        .cipher_suites
        .retain(|suite| !optional(suite) || wanted.contains(&name(suite)));
    Ok(Arc::new(provider))
}

fn pair(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
