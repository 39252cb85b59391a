//! The name in a client's certificate. Never judges the certificate: the TLS handshake has.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The common name of a connection's verified certificate; an extension of each of its
/// requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonName(pub(crate) Arc<str>);

/// The common name of a certificate; empty if it has none.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<CommonName> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let name = last_common_name(certificate.subject()).unwrap_or_default();
    Some(CommonName(name.into()))
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Of several, the last counts, as in Go.
pub(crate) fn last_common_name(mut subject: &[u8]) -> Option<String> {
    let mut found = None;
    while !subject.is_empty() {
        let (SET, mut set, rest) = element(subject)? else {
            return None;
        };
        subject = rest;
        while !set.is_empty() {
            let (SEQUENCE, pair, rest) = element(set)? else {
                return None;
            };
            set = rest;
            let (OBJECT_IDENTIFIER, kind, value) = element(pair)? else {
                return None;
            };
            if kind == COMMON_NAME {
                let (tag, text, _) = element(value)?;
                found = text_of(tag, text);
            }
        }
    }
    found
}

fn text_of(tag: u8, bytes: &[u8]) -> Option<String> {
    if tag == BMP_STRING {
        let units: Vec<u16> = bytes
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        return String::from_utf16(&units).ok();
    }
    String::from_utf8(bytes.to_vec()).ok()
}

/// One element of DER: its tag, what it holds, and what follows it.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        let length = digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit));
        (length, rest)
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    Some((tag, inside, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[(rcgen::DnType, &str)]) -> CertificateDer<'static> {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            parameters.distinguished_name.push(kind.clone(), *name);
        }
        let key = rcgen::KeyPair::generate().expect("a key");
        parameters.self_signed(&key).expect("signed").der().clone()
    }

    fn name_of(names: &[(rcgen::DnType, &str)]) -> Option<String> {
        common_name(&certificate(names)).map(|name| name.0.to_string())
    }

    #[test]
    fn the_common_name_is_found_among_others() {
        use rcgen::DnType::{CommonName, CountryName, OrganizationName};
        let names = [
            (CountryName, "ZZ"),
            (OrganizationName, "root"),
            (CommonName, "alice"),
        ];
        assert_eq!(name_of(&names).as_deref(), Some("alice"));
        assert_eq!(name_of(&names[..2]).as_deref(), Some(""));
        assert_eq!(name_of(&[]).as_deref(), Some(""));
        let long = "x".repeat(300);
        assert_eq!(name_of(&[(CommonName, &long)]).as_deref(), Some(&*long));
    }

    #[test]
    fn damaged_names_are_no_names() {
        let subject = b"\x31\x0c\x30\x0a\x06\x03\x55\x04\x03\x0c\x03bob";
        assert_eq!(last_common_name(subject).as_deref(), Some("bob"));
        for end in 1..subject.len() {
            assert_eq!(last_common_name(&subject[..end]), None, "{end}");
        }
        let wide = b"\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x1e\x04\x00b\x00o";
        assert_eq!(last_common_name(wide).as_deref(), Some("bo"));
    }
}
