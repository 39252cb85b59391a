//! The name in a client's certificate. Never verifies the certificate: the TLS handshake has.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_parser::asn1_rs::{Any, Class, DerParser, SequenceIterator, Tag};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;

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

/// If there are several, the last one counts, as in Go. If any of them cannot be parsed to its end,
/// there is none.
///
/// Parsed element by element: the parser's own reader of names skips what it cannot read, accepts
/// any tag as an object identifier, and pads truncated UTF-16; a client's identity must not depend
/// on that.
pub(crate) fn last_common_name(subject: &[u8]) -> Option<String> {
    let mut found = None;
    for set in elements(subject) {
        for pair in elements(inside(&set.ok()?, Tag::Set)?) {
            let mut pair = elements(inside(&pair.ok()?, Tag::Sequence)?);
            let kind = pair.next()?.ok()?;
            if inside(&kind, Tag::Oid)? == OID_X509_COMMON_NAME.as_bytes() {
                found = text_of(&pair.next()?.ok()?);
            }
        }
    }
    found
}

fn elements(bytes: &[u8]) -> SequenceIterator<'_, Any<'_>, DerParser> {
    SequenceIterator::new(bytes)
}

/// The content of an element of this kind.
fn inside<'a>(element: &Any<'a>, wanted: Tag) -> Option<&'a [u8]> {
    let holds_others = matches!(wanted, Tag::Set | Tag::Sequence);
    let fits = element.class() == Class::Universal
        && element.tag() == wanted
        && element.header.constructed() == holds_others;
    fits.then_some(element.data)
}

fn text_of(value: &Any<'_>) -> Option<String> {
    if let Some(wide) = inside(value, Tag::BmpString) {
        let units: Vec<u16> = wide
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        return String::from_utf16(&units).ok();
    }
    String::from_utf8(value.data.to_vec()).ok()
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
    fn common_name_is_found_among_attributes() {
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

    /// Each of these was read as a name, or omitted from one, by the parser's own reader of names.
    #[test]
    fn damaged_name_is_no_name() {
        let bob = b"\x31\x0c\x30\x0a\x06\x03\x55\x04\x03\x0c\x03bob";
        for behind in [&b"\x00"[..], b"\x31\x02\x30\x00", b"\x30\x00"] {
            assert_eq!(
                last_common_name(&[bob, behind].concat()),
                None,
                "{behind:?}"
            );
        }
        // Set, sequence and identifier with another tag or class.
        for (at, tag) in [
            (0, 0x11),
            (0, 0xb1),
            (2, 0x70),
            (2, 0x10),
            (4, 0x05),
            (4, 0x26),
        ] {
            let mut other = bob.to_vec();
            other[at] = tag;
            assert_eq!(last_common_name(&other), None, "{at}: {tag:#x}");
        }
        // The last common name counts, even if it cannot be parsed.
        let broken = b"\x31\x0a\x30\x08\x06\x03\x55\x04\x03\x0c\x01\xff";
        assert_eq!(last_common_name(&[&bob[..], broken].concat()), None);
        // Both in one set, as in multi-valued names.
        let two = b"\x31\x18\x30\x0a\x06\x03\x55\x04\x03\x0c\x03bob\x30\x0a\x06\x03\x55\x04\x03\x13\x03eve";
        assert_eq!(last_common_name(two).as_deref(), Some("eve"));
    }
}
