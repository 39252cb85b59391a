//! The calls that a member accepts, and for which recipient.

use super::super::proof::DESCRIBE;
use super::*;

const RETIRE: &str = "/quorate.v1.Member/Retire";

fn own(disk: &str, boot: &str) -> Recipient {
    Recipient {
        disk_uuid: disk.to_owned(),
        boot: boot.to_owned(),
    }
}

/// A call as sent.
struct Sent {
    path: &'static str,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

fn sent(key: &Key, path: &'static str, to: &str, time: u64, nonce: &str) -> Sent {
    let (time, body) = (time.to_string(), b"body".to_vec());
    let proof = text(key.of_call(Call {
        path,
        to,
        time: &time,
        nonce,
        body: &body,
    }));
    let mut headers = http::HeaderMap::new();
    for (name, value) in [(TIME, &*time), (NONCE, nonce), (TO, to), (PROOF, &*proof)] {
        headers.insert(name, value.parse().expect("ASCII"));
    }
    Sent {
        path,
        headers,
        body,
    }
}

fn check(verifier: &Verifier, now: u64, sent: &Sent) -> Result<(), &'static str> {
    let signed_call = SignedCall::read(sent.path, &sent.headers)?;
    let proven = verifier.check(now, signed_call, &sent.body)?;
    proven.admitted.map_err(|(_, why)| why)
}

fn key() -> Key {
    Key::new(b"0123456789abcdef\n")
}

#[test]
fn fresh_proof_is_accepted_once() {
    let verifier = Verifier::new(Some(key()), None, &own("one", "1"));
    let call = sent(&key(), RETIRE, "one/1", 1_000_000, "a");
    assert_eq!(check(&verifier, 1_000_500, &call), Ok(()));
    let again = check(&verifier, 1_000_600, &call);
    assert_eq!(again, Err("the proof was used before"));
    // It is still refused at the end of its validity, when the nonce might have been forgotten.
    assert!(check(&verifier, 1_060_000, &call).is_err());
}

/// A captured call to retire was accepted once by every other member for a minute, and once more by
/// the same member after a restart, which forgets the nonces: the proof named no recipient.
#[test]
fn captured_call_is_useless_elsewhere() {
    let captured = sent(&key(), RETIRE, "one/1", 1_000_000, "a");
    for other in [own("two", "1"), own("one", "2")] {
        let verifier = Verifier::new(Some(key()), None, &other);
        let refused = check(&verifier, 1_000_001, &captured).expect_err("it is for another");
        assert!(refused.contains("another server"), "{refused}");
    }
    // The recipient cannot be replaced either.
    let mut bent = captured;
    bent.headers.insert(TO, "two/1".parse().expect("ASCII"));
    let verifier = Verifier::new(Some(key()), None, &own("two", "1"));
    assert!(check(&verifier, 1_000_001, &bent).is_err());
    let nameless = sent(&key(), RETIRE, "", 1_000_000, "b");
    let refused = check(&verifier, 1_000_001, &nameless).expect_err("it is for anyone");
    assert!(refused.contains("no recipient"), "{refused}");
    let question = sent(&key(), DESCRIBE, "", 1_000_000, "c");
    assert_eq!(check(&verifier, 1_000_001, &question), Ok(()));
}

/// An operator of 0.1.0 is answered with the remedy.
#[test]
fn proof_format_of_0_1_0_is_refused() {
    let verifier = Verifier::new(Some(key()), None, &own("one", "1"));
    for path in [RETIRE, DESCRIBE] {
        let mut old = sent(&key(), path, "", 1_000_000, "a");
        let proof = text(key().of_old_call(Call {
            path,
            to: "",
            time: "1000000",
            nonce: "a",
            body: &old.body,
        }));
        old.headers.remove(PROOF);
        old.headers.insert(OLD_PROOF, proof.parse().expect("ASCII"));
        let refused = check(&verifier, 1_000_000, &old).expect_err("the old form");
        assert!(refused.contains("update the operator before"), "{refused}");
        // The old proof is not valid as a new one either.
        old.headers.insert(PROOF, proof.parse().expect("ASCII"));
        assert!(check(&verifier, 1_000_000, &old).is_err());
    }
}

#[test]
fn signature_covers_body_method_key_and_time() {
    let verifier = Verifier::new(Some(key()), None, &own("one", "1"));
    let good = || sent(&key(), RETIRE, "one/1", 1_000_000, "a");
    let refused = |now, call: &Sent| check(&verifier, now, call).is_err();
    let mut bytes = good();
    bytes.body = b"another".to_vec();
    assert!(refused(1_000_000, &bytes));
    let mut method = good();
    method.path = "/quorate.v1.Member/Promote";
    assert!(refused(1_000_000, &method));
    assert!(refused(1_060_001, &good()));
    let other = Key::new(b"fedcba9876543210");
    assert!(refused(
        1_000_000,
        &sent(&other, RETIRE, "one/1", 1_000_000, "b")
    ));
    let mut bare = good();
    bare.headers.clear();
    assert!(refused(1_000_000, &bare));
    // None of these used up the nonce.
    assert_eq!(check(&verifier, 1_000_000, &good()), Ok(()));
}

#[test]
fn server_without_a_key_refuses_every_call() {
    let verifier = Verifier::new(None, None, &own("one", "1"));
    let call = sent(&key(), RETIRE, "one/1", 5, "a");
    assert!(check(&verifier, 5, &call).is_err());
}

#[test]
fn recreated_secret_replaces_the_key() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "0123456789abcdef").expect("written");
    let old = Key::read(&file).expect("a key");
    let verifier = Verifier::new(Some(old.clone()), Some(file.clone()), &own("one", "1"));
    let new = Key::new(b"fedcba9876543210");
    let check = |key: &Key, now: u64| {
        let call = sent(key, RETIRE, "one/1", now, &now.to_string());
        check(&verifier, now, &call).is_ok()
    };
    assert!(check(&old, 10_000));
    assert!(!check(&new, 10_001), "the file does not hold it yet");
    std::fs::write(&file, "fedcba9876543210\n").expect("written");
    assert!(!check(&new, 10_500), "the file is checked once a second");
    assert!(check(&new, 11_001));
    assert!(!check(&old, 12_002), "the old key is of no use any more");
    // A file without a usable key changes nothing.
    std::fs::write(&file, "short").expect("written");
    assert!(!check(&old, 13_003));
    assert!(check(&new, 13_004));
}

/// The key of a backup is in a Secret of its own, and lets its holder read the data and change nothing.
#[test]
fn key_of_backups_opens_backups_alone() {
    const OPEN: &str = "/quorate.v1.Backup/Open";
    const STANDING: &str = "/quorate.v1.Backup/Standing";
    let operators = Verifier::new(Some(key()), None, &own("one", "1"));
    let backups = operators.for_backups();
    let derived = key().for_backups();
    for path in [RETIRE, DESCRIBE] {
        let call = sent(&derived, path, "one/1", 1_000_000, "a");
        assert!(check(&operators, 1_000_000, &call).is_err(), "{path}");
    }
    let call = sent(&key(), OPEN, "one/1", 1_000_000, "a");
    assert!(check(&backups, 1_000_000, &call).is_err());
    let call = sent(&derived, OPEN, "one/1", 1_000_000, "b");
    assert_eq!(check(&backups, 1_000_000, &call), Ok(()));
    let nameless = sent(&derived, OPEN, "", 1_000_000, "c");
    assert!(check(&backups, 1_000_000, &nameless).is_err());
    let nameless = sent(&derived, STANDING, "", 1_000_000, "d");
    assert_eq!(check(&backups, 1_000_000, &nameless), Ok(()));
}

/// The key of a restore is another one, and opens neither the operator's calls nor those of backups.
#[test]
fn key_of_restores_opens_restores_alone() {
    const FINISH: &str = "/quorate.v1.Restore/Finish";
    const PROSPECT: &str = "/quorate.v1.Restore/Prospect";
    let operators = Verifier::new(Some(key()), None, &own("one", "1"));
    let (backups, restores) = (operators.for_backups(), operators.for_restores());
    let derived = key().for_restores();
    for other in [&operators, &backups] {
        for path in [RETIRE, FINISH] {
            let call = sent(&derived, path, "one/1", 1_000_000, "a");
            assert!(check(other, 1_000_000, &call).is_err(), "{path}");
        }
    }
    for wrong in [key(), key().for_backups()] {
        let call = sent(&wrong, FINISH, "one/1", 1_000_000, "a");
        assert!(check(&restores, 1_000_000, &call).is_err());
    }
    let call = sent(&derived, FINISH, "one/1", 1_000_000, "b");
    assert_eq!(check(&restores, 1_000_000, &call), Ok(()));
    let nameless = sent(&derived, FINISH, "", 1_000_000, "c");
    assert!(check(&restores, 1_000_000, &nameless).is_err());
    let nameless = sent(&derived, PROSPECT, "", 1_000_000, "d");
    assert_eq!(check(&restores, 1_000_000, &nameless), Ok(()));
}

/// A body that does not arrive.
fn stalled() -> Body {
    Body::new(http_body_util::StreamBody::new(futures::stream::pending::<
        Result<hyper::body::Frame<Bytes>, StdError>,
    >()))
}

fn large() -> Body {
    Body::new(Full::new(Bytes::from(vec![0; 1 << 20])))
}

/// One that does not wait for long.
fn restores() -> Verifier {
    let mut restores = Verifier::new(Some(key()), None, &own("one", "1")).for_restores();
    restores.body_time = Duration::from_millis(300);
    if let Some(large) = &mut restores.large {
        large.time = Duration::from_secs(1);
    }
    restores
}

/// Strangers held all places for large bodies, and a Job was told that its key is wrong.
#[tokio::test]
async fn strangers_take_no_place_for_large_bodies() {
    let restores = restores();
    let strangers = (0..100).map(|_| restores.body(stalled(), false));
    let strangers = futures::future::join_all(strangers);
    let (late, read) = tokio::join!(strangers, restores.body(large(), true));
    assert_eq!(read.expect("whole").len(), 1 << 20);
    for late in late {
        assert_eq!(late.expect_err("it is late").0, Code::Unavailable);
    }
    let (code, why) = restores
        .body(large(), false)
        .await
        .expect_err("it is the first call");
    assert_eq!(code, Code::Unavailable);
    assert!(why.contains("Prospect"), "{why}");
}

#[tokio::test]
async fn slow_calls_and_those_that_wait_are_repeated() {
    let mut operators = Verifier::new(Some(key()), None, &own("one", "1"));
    operators.body_time = Duration::from_millis(10);
    let late = operators.body(stalled(), true).await;
    assert_eq!(late.expect_err("it is late").0, Code::Unavailable);
    let refused = operators.body(large(), true).await.expect_err("too large");
    assert_eq!(refused.0, Code::Unauthenticated);
    let restores = restores();
    let all = (0..=LARGE_BODIES).map(|_| restores.body(stalled(), true));
    for late in futures::future::join_all(all).await {
        assert_eq!(late.expect_err("it is late").0, Code::Unavailable);
    }
    // A slow link: longer than a small call may take.
    let slow = futures::stream::once(async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok::<_, StdError>(hyper::body::Frame::data(Bytes::from(vec![0; 1 << 20])))
    });
    let slow = Body::new(http_body_util::StreamBody::new(Box::pin(slow)));
    let read = restores.body(slow, true).await.expect("in time");
    assert_eq!(read.len(), 1 << 20);
}
