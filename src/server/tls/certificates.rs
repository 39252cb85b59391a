//! What stands in certificates, for whoever keeps or shows them: validity, names, fingerprints,
//! and whether a chain leads to a root and fits its key.
//!
//! Never judges a connection, which the TLS library does alone; never reads a file or a clock.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use sha2::{Digest as _, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::server::auth::certificate::{element, last_common_name};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The optional fields at the head and at the end of what is signed.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Kinds of alternative names.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Why certificates cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The text is no PEM.
    #[error("it is no PEM: {0}")]
    Pem(String),
    /// PEM without a certificate.
    #[error("it holds no certificate")]
    Empty,
    /// A certificate that is none.
    #[error("certificate {0} of it cannot be read")]
    Damaged(usize),
}

/// What one certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// SHA-256 of its DER, hexadecimal.
    pub sha256: String,
    /// Begin of its validity in Unix milliseconds.
    pub not_before_ms: i64,
    /// End of its validity in Unix milliseconds.
    pub not_after_ms: i64,
    /// Its alternative names: DNS names as they are written, and addresses.
    pub names: BTreeSet<String>,
    /// The subject's common name; empty where it has none.
    pub common_name: String,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// What this DER says; `None` where it is no certificate.
    #[must_use]
    pub fn of_der(der: &[u8]) -> Option<Certificate> {
        let signed = Signed::read(der)?;
        Some(Certificate {
            sha256: fingerprint(der),
            not_before_ms: signed.not_before_ms,
            not_after_ms: signed.not_after_ms,
            names: signed.names,
            common_name: last_common_name(signed.subject).unwrap_or_default(),
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

    /// It as PEM.
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

    /// Whether whatever leads to one of the two leads to the other: same name and same key.
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

/// A leaf certificate, and those between it and a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The one that is shown.
    pub leaf: Certificate,
    between: Vec<CertificateDer<'static>>,
}

impl Chain {
    /// Reads what a port shows: the leaf comes first.
    pub fn read(pem: &str) -> Result<Chain, CertificateError> {
        let mut all = Certificate::all(pem)?.into_iter();
        let leaf = all.next().ok_or(CertificateError::Empty)?;
        Ok(Chain {
            leaf,
            between: all.map(|certificate| certificate.der).collect(),
        })
    }

    /// Whether the chain leads to one of these roots, whatever the time is now: it is held against
    /// the moment at which the leaf begins to hold.
    #[must_use]
    pub fn leads_to(&self, roots: &[Certificate]) -> bool {
        [KeyUsage::server_auth(), KeyUsage::client_auth()]
            .into_iter()
            .any(|usage| self.verifies(roots, usage))
    }

    /// As [`Chain::leads_to`], for one that is shown by whoever is dialled.
    #[must_use]
    pub fn may_serve(&self, roots: &[Certificate]) -> bool {
        self.verifies(roots, KeyUsage::server_auth())
    }

    /// As [`Chain::leads_to`], for one that is shown by whoever dials.
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

/// When the certificate of this DER begins to hold, as verifiers take it.
pub(in crate::server) fn begins(der: &CertificateDer<'_>) -> Option<UnixTime> {
    beginning(Signed::read(der)?.not_before_ms)
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

/// The signed part of a certificate, as far as it matters here.
struct Signed<'a> {
    not_before_ms: i64,
    not_after_ms: i64,
    subject: &'a [u8],
    names: BTreeSet<String>,
}

impl<'a> Signed<'a> {
    fn read(der: &'a [u8]) -> Option<Signed<'a>> {
        let (certificate, rest) = expect(SEQUENCE, der)?;
        if !rest.is_empty() {
            return None;
        }
        let (mut rest, _) = expect(SEQUENCE, certificate)?;
        if let Some((_, after)) = expect(VERSION, rest) {
            rest = after;
        }
        let (_serial, rest) = expect(INTEGER, rest)?;
        let (_algorithm, rest) = expect(SEQUENCE, rest)?;
        let (_issuer, rest) = expect(SEQUENCE, rest)?;
        let (validity, rest) = expect(SEQUENCE, rest)?;
        let (subject, rest) = expect(SEQUENCE, rest)?;
        let (_key, mut rest) = expect(SEQUENCE, rest)?;
        let (not_before_ms, validity) = time(validity)?;
        let (not_after_ms, _) = time(validity)?;
        let mut names = BTreeSet::new();
        while !rest.is_empty() {
            let (tag, inside, after) = element(rest)?;
            if tag == EXTENSIONS {
                names = alternative_names(inside)?;
            }
            rest = after;
        }
        Some(Signed {
            not_before_ms,
            not_after_ms,
            subject,
            names,
        })
    }
}

/// An element with this tag: what it holds, and what follows it.
fn expect(wanted: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, inside, rest) = element(bytes)?;
    (tag == wanted).then_some((inside, rest))
}

/// A point in time in Unix milliseconds, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, text, rest) = element(bytes)?;
    let digits = std::str::from_utf8(text.strip_suffix(b"Z")?).ok()?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, digits) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let (year, digits) = digits.split_at(2);
            let year: i16 = year.parse().ok()?;
            // The standard's century.
            (if year < 50 { 2000 + year } else { 1900 + year }, digits)
        }
        GENERALIZED_TIME if digits.len() == 14 => {
            let (year, digits) = digits.split_at(4);
            (year.parse().ok()?, digits)
        }
        _ => return None,
    };
    // Ten digits are left, two a number.
    let number = |at: usize| digits.get(at..at + 2)?.parse::<i8>().ok();
    let date = Date::new(year, number(0)?, number(2)?).ok()?;
    let time = Time::new(number(4)?, number(6)?, number(8)?, 0).ok()?;
    let zoned = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
    Some((zoned.timestamp().as_millisecond(), rest))
}

/// The names among a certificate's extensions.
fn alternative_names(extensions: &[u8]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let (mut extensions, _) = expect(SEQUENCE, extensions)?;
    while !extensions.is_empty() {
        let (extension, rest) = expect(SEQUENCE, extensions)?;
        extensions = rest;
        let (kind, value) = expect(OBJECT_IDENTIFIER, extension)?;
        if kind != ALTERNATIVE_NAMES {
            continue;
        }
        let value = match expect(BOOLEAN, value) {
            Some((_, after)) => after,
            None => value,
        };
        let (list, _) = expect(OCTETS, value)?;
        let (mut list, _) = expect(SEQUENCE, list)?;
        while !list.is_empty() {
            let (tag, name, rest) = element(list)?;
            list = rest;
            names.extend(alternative_name(tag, name));
        }
    }
    Some(names)
}

/// A DNS name or an address; nothing for other kinds.
fn alternative_name(tag: u8, name: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME => String::from_utf8(name.to_vec()).ok(),
        IP_ADDRESS => match <[u8; 4]>::try_from(name) {
            Ok(four) => Some(Ipv4Addr::from(four).to_string()),
            Err(_) => {
                let sixteen = <[u8; 16]>::try_from(name).ok()?;
                Some(Ipv6Addr::from(sixteen).to_string())
            }
        },
        _ => None,
    }
}

#[cfg(test)]
#[path = "certificates_test.rs"]
mod tests;
