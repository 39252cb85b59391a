//! What is found wrong with certificates of the user, and what is known of those that were there before.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::crd::{parse, validate};
use crate::server::tls::issue::{Authority, Issued, Purpose, Validity};

fn validity() -> Validity {
    Validity::days(jiff::civil::date(2026, 11, 1), 90).expect("a calendar")
}

fn authority(name: &str) -> (Authority, String) {
    let made = Authority::new(name, validity(), None).expect("an authority");
    let root = made.issued().expect("its certificate").certificate;
    (made, root)
}

fn signed(by: &Authority, purpose: Purpose) -> Issued {
    let names = ["*.demo-peers.prod.svc".to_owned()];
    let signed = by.issue("members", &names, purpose, validity());
    signed.expect("a certificate")
}

fn secret(texts: &[(&str, &str)]) -> Secret {
    let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    let data = texts.iter();
    Secret {
        data: Some(
            data.map(|(key, text)| ((*key).to_owned(), bytes(text)))
                .collect(),
        ),
        ..Secret::default()
    }
}

fn cluster(tls: &str) -> ValidatedCluster {
    let text = format!(
        "{{apiVersion: quorate.dev/v1alpha1, kind: EtcdCluster, metadata: {{name: demo, namespace: prod, uid: u}}, spec: {{tls: {tls}}}}}"
    );
    let mut parsed = parse(&text).expect("a cluster");
    parsed.metadata.uid = Some("u".into());
    validate(&parsed).expect("a valid cluster")
}

fn holds(known: &mut Known, clock: &Clock, name: &str, found: Option<&Secret>) {
    let held = found.map_or(Held::Missing, |secret| Held::There(texts(secret)));
    known.held.insert(name.to_owned(), held);
    known.learn(clock);
}

fn clock() -> (Arc<AtomicU64>, Clock) {
    let time = Arc::new(AtomicU64::new(1_000_000));
    (time.clone(), Clock::simulated(time))
}

#[test]
fn each_mistake_is_named() {
    let (ours, root) = authority("ours");
    let (theirs, other_root) = authority("theirs");
    let good = signed(&ours, Purpose::Member);
    let other = signed(&theirs, Purpose::Member);
    let dials = signed(&ours, Purpose::Client);
    let (certificate, key) = (good.certificate.as_str(), good.key.as_str());
    let cluster = cluster("{peer: {source: Secret, certificateSecretRef: {name: theirs}}}");
    let (_, clock) = clock();
    let reason = |found: Option<&Secret>| {
        let mut known = Known::default();
        holds(&mut known, &clock, "theirs", found);
        let user_certificate = known
            .certificates(&cluster)
            .remove(&TlsPort::Peer)
            .expect("user certificate");
        user_certificate.unfit.map(|unfit| unfit.reason)
    };
    let of = |texts: &[(&str, &str)]| reason(Some(&secret(texts)));
    let all = [
        ("tls.crt", certificate),
        ("tls.key", key),
        ("ca.crt", &root),
    ];
    assert_eq!(of(&all), None);
    assert_eq!(reason(None), Some("SecretMissing"));
    assert_eq!(of(&all[1..]), Some("CertificateMissing"));
    assert_eq!(of(&[all[0], all[2]]), Some("KeyMissing"));
    assert_eq!(of(&all[..2]), Some("AuthorityMissing"));
    let with = |at: usize, text: &str| {
        let mut changed = all;
        changed[at].1 = text;
        of(&changed)
    };
    assert_eq!(with(0, "no certificate"), Some("CertificateUnreadable"));
    assert_eq!(with(1, &other.key), Some("KeyMismatch"));
    assert_eq!(with(1, "no key"), Some("KeyMismatch"));
    assert_eq!(with(2, "nobody"), Some("AuthorityUnreadable"));
    assert_eq!(with(2, &other_root), Some("NotTrusted"));
    let dials = [
        ("tls.crt", dials.certificate.as_str()),
        ("tls.key", &dials.key),
        ("ca.crt", &root),
    ];
    assert_eq!(of(&dials), Some("WrongPurpose"));
    let mut known = Known::default();
    known.held.insert("theirs".into(), Held::Denied);
    let user_certificate = known
        .certificates(&cluster)
        .remove(&TlsPort::Peer)
        .expect("user certificate");
    assert_eq!(
        user_certificate.unfit.expect("unfit").reason,
        "SecretUnreadable"
    );
}

/// Members have the old content for a while: they are dialled with the CAs of what they may still use, and its issuer
/// is still known.
#[test]
fn user_certificates_are_remembered_for_a_while() {
    let (ours, root) = authority("ours");
    let (theirs, other_root) = authority("theirs");
    let (time, clock) = clock();
    let mut known = Known::default();
    let content = |by: &Authority, root: &str| {
        let issued = signed(by, Purpose::Member);
        let texts = [
            ("tls.crt", issued.certificate.as_str()),
            ("tls.key", &issued.key),
            ("ca.crt", root),
        ];
        secret(&texts)
    };
    holds(&mut known, &clock, "theirs", Some(&content(&ours, &root)));
    assert_eq!(known.roots("theirs"), Some(root.clone()));
    holds(
        &mut known,
        &clock,
        "theirs",
        Some(&content(&theirs, &other_root)),
    );
    let both = known.roots("theirs").expect("roots");
    assert!(both.contains(&root) && both.contains(&other_root));
    assert_eq!(known.signers().len(), 2);
    assert!(known.signers().values().all(|signers| signers.len() == 1));
    // An unreadable or missing Secret does not lock out members.
    holds(
        &mut known,
        &clock,
        "theirs",
        Some(&secret(&[("ca.crt", "nobody")])),
    );
    assert_eq!(known.roots("theirs"), Some(both.clone()));
    holds(&mut known, &clock, "theirs", None);
    assert_eq!(known.roots("theirs"), Some(both));
    time.fetch_add(1_000_000, Ordering::SeqCst);
    assert_eq!(known.roots("theirs"), Some(other_root));
}

#[test]
fn only_named_secrets_are_read() {
    let pods = BTreeMap::new();
    let names = |tls: &str| names(&cluster(tls), &pods);
    assert!(names("{}").is_empty());
    let peer = "{peer: {source: Secret, certificateSecretRef: {name: a}, caSecretRef: {name: b}}}";
    assert_eq!(
        names(peer),
        BTreeSet::from(["a".to_owned(), "b".to_owned()])
    );
}
