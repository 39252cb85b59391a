//! One reading of a port's certificates, keys, CAs and revocation lists. Never checks for changes:
//! `tls` does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::certificates::{Certificate, fingerprint};
use super::{Shown, TlsError};
use crate::server::flags::config::TlsFiles;

type Chain = Vec<CertificateDer<'static>>;

/// The content of a port's files.
pub(in crate::server) struct Read {
    /// The chain that the port presents.
    pub(in crate::server) chain: Chain,
    pub(in crate::server) key: PrivateKeyDer<'static>,
    /// The chain that is presented when dialling, if it differs.
    pub(in crate::server) dialling: Option<(Chain, PrivateKeyDer<'static>)>,
    /// The CAs that verify the other side, and their file.
    pub(in crate::server) roots: Option<(PathBuf, Arc<RootCertStore>)>,
    pub(in crate::server) revoked: Vec<CertificateRevocationListDer<'static>>,
    trusted: Vec<String>,
}

impl Read {
    pub(in crate::server) fn all(files: &TlsFiles) -> Result<Read, TlsError> {
        let mut trusted = Vec::new();
        let roots = match &files.trusted_ca {
            Some(path) => {
                let certificates = chain(path)?;
                trusted = certificates.iter().map(|one| fingerprint(one)).collect();
                trusted.sort();
                trusted.dedup();
                Some((path.clone(), roots(path, certificates)?))
            }
            None => None,
        };
        let dialling = match (&files.client_certificate, &files.client_key) {
            (Some(certificate), Some(private)) => Some((chain(certificate)?, key(private)?)),
            _ => None,
        };
        Ok(Read {
            chain: chain(&files.certificate)?,
            key: key(&files.key)?,
            dialling,
            roots,
            revoked: revoked(files)?,
            trusted,
        })
    }

    pub(in crate::server) fn shown(&self) -> Shown {
        Shown {
            certificate: self
                .chain
                .first()
                .and_then(|leaf| Certificate::of_der(leaf)),
            trusted: self.trusted.clone(),
        }
    }
}

fn file_error(what: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn chain(path: &Path) -> Result<Chain, TlsError> {
    let what = "the certificate";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| file_error(what, path, error))?
        .collect();
    let chain = chain.map_err(|error| file_error(what, path, error))?;
    if chain.is_empty() {
        return Err(file_error(what, path, "it holds no certificate"));
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| file_error("the key", path, error))
}

fn roots(path: &Path, certificates: Chain) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store
            .add(certificate)
            .map_err(|error| file_error("the roots", path, error))?;
    }
    Ok(Arc::new(store))
}

fn revoked(files: &TlsFiles) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(path) = &files.revoked else {
        return Ok(Vec::new());
    };
    let what = "the list of revoked certificates";
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_file_iter(path)
        .map_err(|error| file_error(what, path, error))?
        .collect();
    let lists = lists.map_err(|error| file_error(what, path, error))?;
    if lists.is_empty() {
        return Err(file_error(what, path, "it holds no list"));
    }
    Ok(lists)
}
