//! Certificates created on the spot: which are accepted, which are refused and how, and reloads.

use std::path::Path;
use std::time::Duration;

use super::{CLIENT_ALPN, TlsError, peers, server};
use crate::server::flags::config::{AllowedNames, TlsFiles, TlsPolicy};
use crate::server::tls::fixture::Certificates as Files;

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
        server.current().config.alpn_protocols,
        [b"h2".to_vec(), b"http/1.1".to_vec()]
    );
    peers(&files.files(), &TlsPolicy::default()).expect("dials");
    let without = TlsFiles {
        trusted_ca: None,
        ..files.files()
    };
    let text = peers(&without, &TlsPolicy::default())
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
        .config
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
fn half_a_certificate_change_is_not_used() {
    let files = Files::new();
    let server = server(&files.files(), &TlsPolicy::default(), CLIENT_ALPN).expect("serves");
    let first = server.current();
    files.leaf("next");
    let copy = |from: &str, to: &str| {
        let text = std::fs::read_to_string(files.path(from)).expect("read");
        // One byte more, so that the change is detected however coarse the file system's timestamps
        // are.
        files.write(to, &format!("{text}\n"));
    };
    copy("next.pem", "leaf.pem");
    server.reload(Duration::ZERO);
    assert!(
        std::sync::Arc::ptr_eq(&first, &server.current()),
        "the key is still the old one"
    );
    copy("next.key", "leaf.key");
    server.reload(Duration::ZERO);
    assert!(!std::sync::Arc::ptr_eq(&first, &server.current()));
}

/// One handshake in memory between a dialling side and a port, and one byte each way.
async fn handshake(dialler: &TlsFiles, port: &TlsFiles) -> Result<(), String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let policy = TlsPolicy::default();
    let server = server(port, &policy, &[]).expect("serves").current();
    let server = server.config.clone();
    let dialler = peers(dialler, &policy).expect("dials").current();
    let client = dialler.dialled.clone();
    let (near, far) = tokio::io::duplex(1 << 16);
    let accept = async {
        let mut stream = tokio_rustls::TlsAcceptor::from(server).accept(far).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte + 1).await?;
        stream.shutdown().await
    };
    let dial = async {
        let name = rustls::pki_types::ServerName::try_from("localhost").expect("name");
        let mut stream = tokio_rustls::TlsConnector::from(client)
            .connect(name, near)
            .await?;
        stream.write_u8(1).await?;
        stream.read_u8().await
    };
    let (accepted, dialled) = tokio::join!(accept, dial);
    match (accepted, dialled) {
        (Ok(()), Ok(2)) => Ok(()),
        (accepted, dialled) => Err(format!("{accepted:?} {dialled:?}")),
    }
}

fn shown(files: &Files, name: &str) -> TlsFiles {
    TlsFiles {
        certificate: files.path(&format!("{name}.pem")),
        key: files.path(&format!("{name}.key")),
        ..files.files()
    }
}

#[tokio::test]
async fn both_sides_enforce_the_allowed_names() {
    let files = Files::new();
    files.leaf_for("other", "other.test");
    let names = |common: &[&str], hosts: &[&str]| AllowedNames {
        common_names: common.iter().map(|name| (*name).to_owned()).collect(),
        hosts: hosts.iter().map(|name| (*name).to_owned()).collect(),
    };
    for (dialler, allowed, passes) in [
        ("leaf", names(&["leaf"], &[]), true),
        ("leaf", names(&["x", "leaf"], &[]), true),
        ("other", names(&["leaf"], &[]), false),
        ("leaf", names(&[], &["localhost"]), true),
        ("other", names(&[], &["localhost"]), false),
        ("other", names(&[], &["localhost", "other.test"]), true),
    ] {
        let port = TlsFiles {
            allowed: allowed.clone(),
            ..files.files()
        };
        let result = handshake(&shown(&files, dialler), &port).await;
        assert_eq!(result.is_ok(), passes, "{dialler} {allowed:?}: {result:?}");
    }
    // The dialling side requires the same of the dialled one.
    let dialler = TlsFiles {
        allowed: names(&["other"], &[]),
        ..files.files()
    };
    let result = handshake(&dialler, &files.files()).await;
    assert!(result.is_err(), "{result:?}");
}

#[tokio::test]
async fn revoked_certificates_are_refused() {
    let files = Files::new();
    files.leaf("revoked");
    let port = TlsFiles {
        revoked: Some(files.revoke("list", &["revoked".len()])),
        ..files.files()
    };
    assert_eq!(handshake(&files.files(), &port).await, Ok(()));
    let text = handshake(&shown(&files, "revoked"), &port)
        .await
        .expect_err("revoked");
    assert!(text.contains("Revoked"), "{text}");
}

#[tokio::test]
async fn self_signed_members_reach_each_other() {
    let files = Files::new();
    let other = Files::new();
    let auto = |files: &Files| TlsFiles {
        trusted_ca: None,
        client_auth: false,
        self_signed_years: Some(1),
        ..files.files()
    };
    assert_eq!(handshake(&auto(&files), &auto(&other)).await, Ok(()));
}

#[tokio::test]
async fn both_sides_reload_new_roots() {
    let (old, new) = (Files::new(), Files::new());
    let policy = TlsPolicy::default();
    let port = peers(&old.files(), &policy).expect("serves and dials");
    let first = port.current();
    assert_eq!(first.served.shown.trusted.len(), 1);
    assert_eq!(handshake(&old.files(), &old.files()).await, Ok(()));
    assert!(handshake(&new.files(), &old.files()).await.is_err());
    // Both CAs during a transition: a bundle, one byte longer whatever the clock shows.
    let root = |files: &Files| std::fs::read_to_string(files.path("ca.pem")).expect("read");
    let bundle = format!("{}\n{}", root(&old), root(&new));
    old.write("ca.pem", &bundle);
    new.write("ca.pem", &bundle);
    port.reload(Duration::ZERO);
    let second = port.current();
    assert!(!std::sync::Arc::ptr_eq(&first, &second));
    let shown = [&first, &second].map(|read| &read.served.shown);
    assert_eq!(shown[1].trusted.len(), 2, "both roots are shown");
    assert!(shown[1].trusted.contains(&shown[0].trusted[0]));
    assert_eq!(shown[0].certificate, shown[1].certificate);
    assert_eq!(handshake(&new.files(), &old.files()).await, Ok(()));
    assert_eq!(handshake(&old.files(), &new.files()).await, Ok(()));
}
