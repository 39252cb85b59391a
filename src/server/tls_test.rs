//! Certificates made on the spot: what is taken, what is refused and how, what is read again.

use std::path::Path;
use std::time::Duration;

use super::{CLIENT_ALPN, TlsError, client, server};
use crate::server::config::{TlsFiles, TlsPolicy};
use crate::server::tls_fixture::Certificates as Files;

fn refusal(files: &TlsFiles, policy: &TlsPolicy) -> String {
    server(files, policy, CLIENT_ALPN)
        .err()
        .map(|error: TlsError| error.to_string())
        .unwrap_or_default()
}

#[test]
fn good_files_serve_and_dial() {
    let files = Files::new();
    let server = server(&files.files(), &TlsPolicy::default(), CLIENT_ALPN).expect("serves");
    assert_eq!(
        server.current().alpn_protocols,
        [b"h2".to_vec(), b"http/1.1".to_vec()]
    );
    client(&files.files(), &TlsPolicy::default(), &[]).expect("dials");
    let without = TlsFiles {
        trusted_ca: None,
        ..files.files()
    };
    let text = client(&without, &TlsPolicy::default(), &[])
        .err()
        .expect("refused")
        .to_string();
    assert!(text.contains("--peer-trusted-ca-file"), "{text}");
}

#[test]
fn bad_files_are_named() {
    let files = Files::new();
    let policy = TlsPolicy::default();
    let missing = TlsFiles {
        certificate: Path::new("/nowhere.pem").to_owned(),
        ..files.files()
    };
    assert!(refusal(&missing, &policy).contains("cannot read the certificate /nowhere.pem"));
    let empty = TlsFiles {
        trusted_ca: Some(files.write("empty", "")),
        ..files.files()
    };
    assert!(refusal(&empty, &policy).contains("it holds no certificate"));
    let no_key = TlsFiles {
        key: files.write("none.key", "text"),
        ..files.files()
    };
    assert!(refusal(&no_key, &policy).contains("cannot read the key"));
    files.leaf("other");
    let mismatch = TlsFiles {
        key: files.path("other.key"),
        ..files.files()
    };
    assert!(
        refusal(&mismatch, &policy).contains("other.key"),
        "{}",
        refusal(&mismatch, &policy)
    );
}

#[test]
fn suites_are_chosen_by_name() {
    let files = Files::new();
    let policy = |name: &str| TlsPolicy {
        cipher_suites: vec![name.to_owned()],
        ..TlsPolicy::default()
    };
    let chosen = server(
        &files.files(),
        &policy("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        CLIENT_ALPN,
    )
    .expect("offered");
    let old = chosen
        .current()
        .crypto_provider()
        .cipher_suites
        .iter()
        .filter(|s| s.tls13().is_none())
        .count();
    assert_eq!(old, 1);
    let text = refusal(&files.files(), &policy("TLS_RSA_WITH_RC4_128_SHA"));
    assert!(
        text.contains("which is not offered; known: TLS_ECDHE"),
        "{text}"
    );
}

#[test]
fn changed_files_are_read_again_and_half_a_change_is_not_used() {
    let files = Files::new();
    let server = server(&files.files(), &TlsPolicy::default(), CLIENT_ALPN).expect("serves");
    let first = server.current();
    files.leaf("next");
    let copy = |from: &str, to: &str| {
        let text = std::fs::read_to_string(files.path(from)).expect("read");
        // One byte more, so that the change shows however coarse the file system's clock is.
        files.write(to, &format!("{text}\n"));
    };
    copy("next.pem", "leaf.pem");
    server.look(Duration::ZERO);
    assert!(
        std::sync::Arc::ptr_eq(&first, &server.current()),
        "the key is still the old one"
    );
    copy("next.key", "leaf.key");
    server.look(Duration::ZERO);
    assert!(!std::sync::Arc::ptr_eq(&first, &server.current()));
}
