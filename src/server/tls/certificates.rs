//! The content of certificates, for storing or showing them: validity, names, fingerprints, and
//! whether a chain is verified by a CA and matches its key.
//!
//! Never decides about a connection, which only the TLS library does; never reads a file or a
//! clock.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use sha2::{Digest as _, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::asn1_rs::{FromDer as _, Sequence};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::extensions::{GeneralName, SubjectAlternativeName};
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::time::ASN1Time;

use crate::server::auth::certificate::last_common_name;

/// Why certificates cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The text is no PEM.
    #[error("it is no PEM: {0}")]
    Pem(String),
    /// PEM without a certificate.
    #[error("it holds no certificate")]
    Empty,
    /// Data that are no valid certificate.
    #[error("certificate {0} of it cannot be read")]
    Damaged(usize),
}

/// The content of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// SHA-256 of its DER, hexadecimal.
    pub sha256: String,
    /// Begin of its validity in Unix milliseconds.
    pub not_before_ms: i64,
    /// End of its validity in Unix milliseconds.
    pub not_after_ms: i64,
    /// Its subject alternative names: DNS names as written, and IP addresses.
    pub names: BTreeSet<String>,
    /// The subject's common name; empty if it has none.
    pub common_name: String,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Parses DER; `None` if it is no certificate.
    #[must_use]
    pub fn of_der(der: &[u8]) -> Option<Certificate> {
        let read = parsed(der)?;
        Some(Certificate {
            sha256: fingerprint(der),
            not_before_ms: milliseconds(read.validity().not_before),
            not_after_ms: milliseconds(read.validity().not_after),
            names: alternative_names(&read)?,
            common_name: common_name(&read),
            der: CertificateDer::from(der.to_vec()),
        })
    }

    /// Every certificate of a PEM text, in order; at least one.
    pub fn all(pem: &str) -> Result<Vec<Certificate>, CertificateError> {
        let mut found = Vec::new();
        for (number, der) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
            let der = der.map_err(|error| CertificateError::Pem(error.to_string()))?;
            let read = Certificate::of_der(&der);
            found.push(read.ok_or(CertificateError::Damaged(number + 1))?);
        }
        match found.is_empty() {
            true => Err(CertificateError::Empty),
            false => Ok(found),
        }
    }

    /// The first certificate of a PEM text.
    pub fn first(pem: &str) -> Result<Certificate, CertificateError> {
        let all = Certificate::all(pem)?;
        all.into_iter().next().ok_or(CertificateError::Empty)
    }

    /// Encodes it as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
        let encoded = STANDARD.encode(&self.der);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            // Base64 is ASCII: every byte ends a character.
            let (line, more) = rest.split_at(rest.len().min(64));
            text += line;
            text.push('\n');
            rest = more;
        }
        text + "-----END CERTIFICATE-----\n"
    }

    /// Whether chains verified by one of the two are verified by the other: same name and same key.
    #[must_use]
    pub fn is_same_issuer(&self, other: &Certificate) -> bool {
        match (
            anchor_from_trusted_cert(&self.der),
            anchor_from_trusted_cert(&other.der),
        ) {
            (Ok(own), Ok(others)) => {
                own.subject == others.subject
                    && own.subject_public_key_info == others.subject_public_key_info
            }
            _ => false,
        }
    }
}

/// A leaf certificate and its intermediates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The leaf.
    pub leaf: Certificate,
    between: Vec<CertificateDer<'static>>,
}

impl Chain {
    /// Reads the chain of a port: the leaf comes first.
    pub fn read(pem: &str) -> Result<Chain, CertificateError> {
        let mut all = Certificate::all(pem)?.into_iter();
        let leaf = all.next().ok_or(CertificateError::Empty)?;
        Ok(Chain {
            leaf,
            between: all.map(|certificate| certificate.der).collect(),
        })
    }

    /// Whether one of these CAs verifies the chain, whatever the present time: it is verified as of
    /// the start of the leaf's validity.
    #[must_use]
    pub fn leads_to(&self, roots: &[Certificate]) -> bool {
        [KeyUsage::server_auth(), KeyUsage::client_auth()]
            .into_iter()
            .any(|usage| self.verifies(roots, usage))
    }

    /// As [`Chain::leads_to`], for the certificate of a server.
    #[must_use]
    pub fn may_serve(&self, roots: &[Certificate]) -> bool {
        self.verifies(roots, KeyUsage::server_auth())
    }

    /// As [`Chain::leads_to`], for the certificate of a client.
    #[must_use]
    pub fn may_dial(&self, roots: &[Certificate]) -> bool {
        self.verifies(roots, KeyUsage::client_auth())
    }

    fn verifies(&self, roots: &[Certificate], usage: KeyUsage) -> bool {
        let anchors: Vec<_> = roots
            .iter()
            .filter_map(|root| anchor_from_trusted_cert(&root.der).ok())
            .collect();
        let (Ok(leaf), Some(at)) = (
            EndEntityCert::try_from(&self.leaf.der),
            beginning(self.leaf.not_before_ms),
        ) else {
            return false;
        };
        let known = aws_lc_rs::default_provider().signature_verification_algorithms;
        let verified =
            leaf.verify_for_usage(known.all, &anchors, &self.between, at, usage, None, None);
        verified.is_ok()
    }

    /// Whether this PEM key is the leaf's.
    #[must_use]
    pub fn fits(&self, key: &str) -> bool {
        let Ok(key) = PrivateKeyDer::from_pem_slice(key.as_bytes()) else {
            return false;
        };
        let chain = vec![self.leaf.der.clone()];
        CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).is_ok()
    }
}

/// When the certificate in this DER becomes valid, in the verifiers' type.
pub(in crate::server) fn begins(der: &CertificateDer<'_>) -> Option<UnixTime> {
    beginning(milliseconds(parsed(der)?.validity().not_before))
}

fn beginning(not_before_ms: i64) -> Option<UnixTime> {
    let since = Duration::from_millis(u64::try_from(not_before_ms).ok()?);
    Some(UnixTime::since_unix_epoch(since))
}

/// SHA-256, hexadecimal.
pub(in crate::server) fn fingerprint(der: &[u8]) -> String {
    let hash = Sha256::digest(der);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a certificate to its end. Of the extensions only the list is checked: the code that needs
/// one parses it, and a damaged other one is no reason to refuse.
fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (rest, certificate) = parser.parse(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// In Unix milliseconds.
fn milliseconds(time: ASN1Time) -> i64 {
    time.timestamp().saturating_mul(1_000)
}

/// The subject's common name; empty if it has none.
fn common_name(certificate: &X509Certificate<'_>) -> String {
    // Without what could not be parsed, the name is shorter than its header states, and so no
    // sequence.
    let subject = Sequence::from_der(certificate.subject().as_raw());
    let name = subject
        .ok()
        .and_then(|(_, it)| last_common_name(&it.content));
    name.unwrap_or_default()
}

/// The DNS names and IP addresses of a certificate; `None` if the extension occurs twice or cannot
/// be parsed.
fn alternative_names(certificate: &X509Certificate<'_>) -> Option<BTreeSet<String>> {
    let wanted = &OID_X509_EXT_SUBJECT_ALT_NAME;
    let Some(extension) = certificate.get_extension_unique(wanted).ok()? else {
        return Some(BTreeSet::new());
    };
    let (_, names) = SubjectAlternativeName::from_der(extension.value).ok()?;
    let names = names.general_names.iter();
    Some(names.filter_map(alternative_name).collect())
}

/// A DNS name or an IP address; `None` for other kinds.
fn alternative_name(name: &GeneralName<'_>) -> Option<String> {
    match *name {
        GeneralName::DNSName(name) => Some(name.to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let any = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            any.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "certificates_test.rs"]
mod tests;
