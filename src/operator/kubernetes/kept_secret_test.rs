//! What is read of a kept Secret is what is read of one as it was received, and no key of a certificate is in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::runtime::watcher::Event;

use super::super::certificates;
use super::super::indexed::Indexed;
use super::super::observe::read_identity_secret;
use super::*;
use crate::crd::{TlsPort, ValidatedCluster};
use crate::operator::testing::observation_at;
use crate::server::tls::issue::{Authority, Issued, Purpose, Validity};

fn cluster() -> ValidatedCluster {
    observation_at(0).observed.cluster.expect("a cluster")
}

fn validity() -> Validity {
    let at = |ms| Timestamp::from_millisecond(ms).expect("a time");
    Validity {
        not_before: at(0),
        not_after: at(4_000_000_000_000),
    }
}

fn authority() -> Authority {
    Authority::new("test", validity(), None).expect("an authority")
}

fn issued(authority: &Authority) -> Issued {
    authority.issued().expect("its certificate")
}

fn member(authority: &Authority) -> Issued {
    let names = ["demo-1.demo-peers".to_owned()];
    let issued = authority.issue("demo-1", &names, Purpose::Member, validity());
    issued.expect("a certificate")
}

/// As the API server stores it: with a UID and a version.
fn stored(mut secret: Secret, version: &str) -> Secret {
    secret.metadata.uid = Some("u1".to_owned());
    secret.metadata.resource_version = Some(version.to_owned());
    secret
}

/// A CA's Secret in the middle of a rotation, and a member's and the client's certificate; with all keys in them.
fn secrets(port: TlsPort) -> (Vec<Secret>, Vec<String>) {
    let (cluster, signs, next) = (cluster(), authority(), authority());
    let (own, to) = (issued(&signs), issued(&next));
    let (of_member, of_client) = (member(&signs), member(&signs));
    let trusted = own.certificate.clone() + &to.certificate;
    let content = build::AuthorityContent {
        certificate: own.certificate,
        key: own.key.clone(),
        trusted: trusted.clone(),
        next: Some((to.certificate, to.key.clone())),
        rotated_for: Some("1".to_owned()),
    };
    let certificate = |member: Option<&str>, issued: &Issued| {
        let (certificate, key) = (&issued.certificate, &issued.key);
        build::certificate_secret(&cluster, port, member, certificate, key, &trusted)
    };
    let secrets = [
        build::authority_secret(&cluster, port, &content),
        certificate(Some("demo-1"), &of_member),
        certificate(None, &of_client),
    ];
    let secrets = secrets.map(|secret| stored(secret, "1")).into();
    (secrets, vec![own.key, to.key, of_member.key, of_client.key])
}

fn kept(secret: &Secret) -> KeptSecret {
    let kept = KeptSecret::of(secret.clone(), || None);
    let text = kept.text().expect("a text");
    KeptSecret::of_text(&text).expect("it is read again")
}

/// The facts of what is received are the same as of what is kept.
#[test]
fn kept_facts_are_those_of_a_live_read() {
    let ports = [TlsPort::Peer, TlsPort::Client].into_iter();
    let mut all: Vec<Secret> = ports.flat_map(|port| secrets(port).0).collect();
    let changed = |at: usize, key: &str, text: &str| {
        let mut secret: Secret = all[at].clone();
        let data = secret.data.as_mut().expect("data");
        data.insert(key.to_owned(), ByteString(text.into()));
        secret
    };
    let other = member(&authority());
    let odd = [
        changed(1, build::CERTIFICATE_KEY, &other.key),
        changed(1, build::CA_CERTIFICATES, "no certificate"),
        changed(1, build::CERTIFICATE, "no certificate"),
        changed(0, build::NEXT_KEY, &other.key),
        changed(0, build::CA_CERTIFICATES, &other.certificate),
    ];
    all.extend(odd);
    let mut there = Vec::new();
    for secret in &all {
        let (received, kept) = (KeptSecret::from(secret.clone()), kept(secret));
        let read =
            |secret: &KeptSecret| certificates::read(std::iter::once(secret), ("demo", "c1"));
        assert_eq!(read(&kept), read(&received), "{secret:?}");
        assert_eq!(kept.held().roots, received.held().roots);
        assert_eq!(kept.meta(), received.meta());
        let facts = read(&kept).remove(&kept.name_any()).expect("its facts");
        there.push((
            facts.certificate.is_some(),
            facts.next.is_some(),
            facts.trusted.len(),
            kept.held().roots.is_some(),
        ));
    }
    // Whether there is a certificate and a next one, how many CAs, and whether members of the peer port are dialled by them.
    let expected = [
        (true, true, 2, true),
        (true, false, 2, true),
        (true, false, 2, false),
        (true, true, 2, false),
        (true, false, 2, false),
        (true, false, 2, false),
        // The odd ones.
        (false, false, 2, true),
        (true, false, 0, false),
        (false, false, 2, true),
        (true, false, 2, true),
        (true, true, 1, true),
    ];
    assert_eq!(there, expected);
}

/// Whoever may create Secrets in one namespace could keep the operator busy with certificates in Secrets that nobody reads, and the
/// Secrets of all other clusters waited until it was done with them.
#[test]
fn only_certificates_of_clusters_are_verified() {
    for secret in secrets(TlsPort::Client).0 {
        assert_ne!(*kept(&secret).held(), Held::default());
        let mut other = secret.clone();
        let labels = other.metadata.labels.as_mut().expect("labels");
        labels
            .remove("app.kubernetes.io/component")
            .expect("of what it is");
        assert_eq!(*kept(&other).held(), Held::default());
    }
}

/// The same with Secrets that are labelled as those of a cluster.
#[test]
fn long_certificates_are_not_verified() {
    let secret = secrets(TlsPort::Peer).0.remove(1);
    let repeated = |key: &str, times: usize| {
        let mut secret = secret.clone();
        let data = secret.data.as_mut().expect("data");
        let text = data.get_mut(key).expect("its text");
        text.0 = text.0.repeat(times);
        let kept = kept(&secret);
        let facts = certificates::read(std::iter::once(&kept), ("demo", "c1"));
        let facts = facts.into_values().next().expect("its facts");
        let roots = kept.held().roots.is_some();
        (facts.certificate.is_some(), facts.trusted.len(), roots)
    };
    // Two CAs, of which one is the next.
    assert_eq!(repeated(build::CA_CERTIFICATES, 16), (true, 32, true));
    assert_eq!(repeated(build::CA_CERTIFICATES, 17), (true, 0, false));
    assert_eq!(repeated(build::CERTIFICATE, 1), (true, 2, true));
    assert_eq!(repeated(build::CERTIFICATE, 200), (false, 2, true));
}

/// Certificates of what is gone are read by nobody, and were verified once more.
#[test]
fn deleted_secret_is_not_verified() {
    let (mut filler, _) = Indexed::<KeptSecret>::new();
    let mut event = Event::Delete(KeptSecret::from(secrets(TlsPort::Peer).0.remove(0)));
    filler.apply(&mut event);
    let Event::Delete(gone) = event else {
        unreachable!("it is what it was")
    };
    assert_eq!(*gone.held(), Held::default());
    assert_eq!(gone.secret().data, None);
    assert_eq!(gone.meta().uid.as_deref(), Some("u1"));
}

/// A copy of the operator's memory held the keys of the CAs of every cluster. Neither a kept text nor the sample that
/// others are compressed against, which is made of the first of them, may have one.
#[test]
fn no_key_of_a_certificate_is_kept() {
    let (mut filler, cache) = Indexed::<KeptSecret>::new();
    let mut keys = Vec::new();
    for number in 0..4 {
        for port in TlsPort::ALL {
            let (all, more) = secrets(port);
            keys.extend(more);
            for mut secret in all {
                secret.metadata.namespace = Some(format!("team-{number}"));
                filler.apply(&mut Event::Apply(secret.into()));
            }
        }
    }
    // What else an operator's watch shows: the keys of a Job, and whatever carries a cluster's labels.
    for name in ["demo-backup-1-key", "demo-anything", "demo-operator-2"] {
        let mut secret = stored(Secret::default(), "1");
        secret.metadata.name = Some(name.to_owned());
        let key = |name: &str| (name.to_owned(), ByteString(keys[0].clone().into()));
        secret.data = Some(["key", "view", "tls.key", "seed"].map(key).into());
        filler.apply(&mut Event::Apply(secret.into()));
    }
    let texts = cache.texts();
    assert_eq!(texts.len(), 4 * 5 + 3, "the client's Secret is one");
    for text in texts {
        let text = String::from_utf8(text.expect("a text")).expect("JSON");
        let mut hidden = keys.iter().flat_map(|key| {
            let line = key.lines().nth(1).expect("a line of the key").to_owned();
            [line, STANDARD.encode(key)]
        });
        assert!(!hidden.any(|key| text.contains(&key)), "{text}");
        assert!(!text.contains("PRIVATE"), "{text}");
    }
    // The tests' own search finds a key where there is one.
    let (whole, keys) = secrets(TlsPort::Peer);
    let whole = serde_json::to_string(&whole[0]).expect("JSON");
    assert!(
        whole.contains(&STANDARD.encode(&keys[0])) && whole.contains(&STANDARD.encode(&keys[1]))
    );
}

/// A second list, and a live read, show most Secrets as they were, and to verify a certificate takes longer than whatever
/// else is done with it.
#[test]
fn certificates_are_verified_once_a_version() {
    let before = Arc::new(kept(&secrets(TlsPort::Peer).0[1]));
    let other = secrets(TlsPort::Peer).0.remove(1);
    let of = |secret: Secret| {
        KeptSecret::of(secret, || Some(before.clone()))
            .held()
            .into_owned()
    };
    let new = Held::of(&other);
    assert_ne!(*before.held(), new);
    assert_eq!(
        of(other.clone()),
        *before.held(),
        "of this version all is known"
    );
    assert_eq!(of(stored(other.clone(), "2")), new);
    let mut another = other.clone();
    another.metadata.uid = Some("u2".to_owned());
    assert_eq!(of(another), new, "another Secret of this name");
    let mut unknown = other.clone();
    unknown.metadata.resource_version = None;
    assert_eq!(of(unknown), new);

    // A second list has a cache ask what it has of each.
    let (mut filler, cache) = Indexed::<KeptSecret>::new();
    filler.apply(&mut Event::Apply((*before).clone()));
    let mut listed = |secret: Secret| {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        filler.apply(&mut Event::Init);
        filler.apply(&mut Event::InitApply(secret.into()));
        filler.apply(&mut Event::InitDone);
        let there = cache.get(&namespace, &name).expect("it is there");
        there.held().into_owned()
    };
    assert_eq!(listed(other.clone()), *before.held());
    assert_eq!(listed(stored(other, "2")), new);
}

/// The two Secrets whose data is read from the cache, and which leave memory with their object.
#[test]
fn identity_and_operator_key_are_read_from_the_cache() {
    let cluster = cluster();
    let identity = build::identity_secret(&cluster, 1, "demo-1", "nonce");
    let kept_identity = kept(&identity);
    let read = |secret: &Secret| read_identity_secret(secret, "demo", "c1");
    assert_eq!(read(kept_identity.secret()), read(&identity));
    assert_eq!(read(kept_identity.secret()).nonce, "nonce");
    let operator = build::operator_secret(&cluster, "the key");
    let kept_operator = kept(&operator);
    let key = build::operator_key(kept_operator.secret());
    assert_eq!(key.as_deref(), Some(&b"the key"[..]));
    assert!(!kept_identity.is_packed() && !kept_operator.is_packed());
    assert!(kept(&secrets(TlsPort::Peer).0[0]).is_packed());
}
