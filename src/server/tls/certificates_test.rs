//! The content of certificates, parsed from ones created here.

use jiff::Timestamp;

use super::*;
use crate::server::tls::issue::{Authority, IssueError, Issued, Purpose, Validity};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn validity(from: &str, until: &str) -> Validity {
    Validity {
        not_before: at(from),
        not_after: at(until),
    }
}

fn authority(name: &str) -> Authority {
    let validity = validity("2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z");
    Authority::new(name, validity, None).expect("an authority")
}

fn leaf(authority: &Authority, purpose: Purpose) -> Issued {
    let hosts = ["a.b.svc", "*.c.svc", "127.0.0.1", "::1"].map(str::to_owned);
    let validity = validity("2026-02-03T04:05:06Z", "2026-05-04T03:02:01Z");
    let issued = authority.issue("demo-1", &hosts, purpose, validity);
    issued.expect("a leaf")
}

fn roots(authorities: &[&Authority]) -> Vec<Certificate> {
    let pem = authorities
        .iter()
        .map(|one| one.issued().expect("its own").certificate);
    Certificate::all(&pem.collect::<String>()).expect("roots")
}

#[test]
fn leaf_has_expiry_and_names() {
    let issued = leaf(&authority("ca"), Purpose::Member);
    let read = Certificate::first(&issued.certificate).expect("read");
    assert_eq!(
        (read.not_before_ms, read.not_after_ms),
        (
            at("2026-02-03T04:05:06Z").as_millisecond(),
            at("2026-05-04T03:02:01Z").as_millisecond()
        )
    );
    let names: Vec<&str> = read.names.iter().map(String::as_str).collect();
    assert_eq!(names, ["*.c.svc", "127.0.0.1", "::1", "a.b.svc"]);
    assert_eq!(read.common_name, "demo-1");
    assert_eq!(read.sha256.len(), 64);
    assert_eq!(read.pem().replace("\r\n", "\n"), {
        issued.certificate.replace("\r\n", "\n")
    });
}

#[test]
fn both_asn1_time_forms_are_read() {
    // After 2049 certificates write the year with four digits.
    let far = validity("1999-12-31T23:59:59Z", "2123-04-05T06:07:08Z");
    let authority = Authority::new("ca", far, None).expect("an authority");
    let read = Certificate::first(&authority.issued().expect("its own").certificate);
    let read = read.expect("read");
    assert_eq!(
        (read.not_before_ms, read.not_after_ms),
        (
            at("1999-12-31T23:59:59Z").as_millisecond(),
            at("2123-04-05T06:07:08Z").as_millisecond()
        )
    );
}

/// A certificate whose validity begins at this time, which has the length of the original.
fn beginning_at(time: &[u8]) -> Option<Certificate> {
    let issued = leaf(&authority("ca"), Purpose::Member);
    let mut der = Certificate::first(&issued.certificate)
        .expect("read")
        .der
        .to_vec();
    let stands = b"\x17\x0d260203040506Z";
    let place = der.windows(stands.len()).position(|part| part == stands);
    let place = place.expect("its begin");
    der[place..place + stands.len()].copy_from_slice(time);
    Certificate::of_der(&der)
}

#[test]
fn invalid_time_is_no_certificate() {
    let read = beginning_at(b"\x17\x0d991231235959Z").expect("a time");
    let before = at("1999-12-31T23:59:59Z").as_millisecond();
    assert_eq!(read.not_before_ms, before);
    for wrong in [
        b"\x17\x0d261301000000Z",
        b"\x17\x0d260230000000Z",
        b"\x17\x0d260101250000Z",
        b"\x17\x0d26010100000+Z",
        b"\x18\x0d260101000000Z",
        b"\x17\x0d260101000000+",
        b"\x17\x0d2601010000 0Z",
        b"\x04\x0d260101000000Z",
    ] {
        assert_eq!(beginning_at(wrong), None, "{wrong:?}");
    }
}

#[test]
fn chain_leads_to_its_expired_root() {
    let (first, second) = (authority("first"), authority("second"));
    for purpose in [Purpose::Member, Purpose::Client] {
        let chain = Chain::read(&leaf(&first, purpose).certificate).expect("a chain");
        assert!(chain.leads_to(&roots(&[&first])));
        assert!(chain.leads_to(&roots(&[&second, &first])));
        assert!(!chain.leads_to(&roots(&[&second])));
        assert!(!chain.leads_to(&[]));
    }
    // Same name and another key: another CA.
    let impostor = authority("first");
    let chain = Chain::read(&leaf(&first, Purpose::Member).certificate).expect("a chain");
    assert!(!chain.leads_to(&roots(&[&impostor])));
    assert!(!roots(&[&first])[0].is_same_issuer(&roots(&[&impostor])[0]));
}

#[test]
fn chain_fits_only_its_own_key() {
    let authority = authority("ca");
    let (one, other) = (
        leaf(&authority, Purpose::Member),
        leaf(&authority, Purpose::Member),
    );
    let chain = Chain::read(&one.certificate).expect("a chain");
    assert!(chain.fits(&one.key));
    assert!(!chain.fits(&other.key));
    assert!(!chain.fits("no key"));
}

#[test]
fn stored_authority_keeps_signing() {
    let made = authority("demo peers").issued().expect("its own");
    let again = Authority::stored(&made.certificate, &made.key).expect("stored");
    let pem = again.issued().expect("its own");
    let same = |a: &str, b: &str| Certificate::first(a) == Certificate::first(b);
    assert!(same(&pem.certificate, &made.certificate));
    assert_eq!(pem.key, made.key);
    let chain = Chain::read(&leaf(&again, Purpose::Member).certificate).expect("a chain");
    assert!(chain.leads_to(&Certificate::all(&made.certificate).expect("roots")));
    let other = authority("demo peers").issued().expect("its own");
    let refused = Authority::stored(&made.certificate, &other.key);
    assert!(matches!(refused, Err(IssueError::Foreign(name)) if name == "demo peers"));
    let refused = Authority::stored("nothing", &other.key);
    assert!(matches!(
        refused,
        Err(IssueError::Stored(CertificateError::Empty))
    ));
}

#[test]
fn damaged_der_is_no_certificate() {
    let issued = leaf(&authority("ca"), Purpose::Member);
    let whole = Certificate::first(&issued.certificate).expect("read").der;
    for end in 0..whole.len() {
        assert_eq!(Certificate::of_der(&whole[..end]), None, "{end}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 0x55;
        // Any result is fine, as long as it returns.
        let _ = Certificate::of_der(&damaged);
    }
    let cut = &issued.certificate[..issued.certificate.len() / 2];
    assert!(matches!(
        Certificate::all(cut),
        Err(CertificateError::Pem(_) | CertificateError::Empty)
    ));
}
