//! TLS with certificates that this program generated: `quorate certs` for members and clients, used by both servers,
//! and `--auto-tls`.

use std::path::Path;
use std::process::{Command, Output};

use crate::node::{Kind, Node, free_address, peers};

fn certs(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["certs", "--out"])
        .arg(folder)
        .args(arguments)
        .output()
        .expect("runs")
}

fn made(folder: &Path, arguments: &[&str]) -> String {
    let output = certs(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output of etcdctl, or its error.
fn ctl(peers: &Path, address: &str, arguments: &[String]) -> Result<String, String> {
    let output = Command::new(peers.join("etcdctl"))
        .arg(format!("--endpoints=https://{address}"))
        .arg("--command-timeout=10s")
        .args(arguments)
        .env_clear()
        .output()
        .expect("etcdctl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn certs_work_with_quorate_and_etcd() {
    let Some(peers) = peers("tls::certs_work_with_quorate_and_etcd") else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    made(
        folder,
        &["--member=one=127.0.0.1,one.test", "--client=alice"],
    );
    made(folder, &["--client=bob"]);
    let stranger = folder.join("stranger");
    made(&stranger, &["--client=alice"]);
    let file = |name: &str| folder.join(name).display().to_string();
    let client = |name: &str| {
        let mut arguments = vec![format!("--cacert={}", file("ca.crt"))];
        arguments.push(format!("--cert={}", file(&format!("{name}.crt"))));
        arguments.push(format!("--key={}", file(&format!("{name}.key"))));
        arguments
    };
    for kind in [Kind::Quorate, Kind::Etcd] {
        let address = free_address();
        let peer = free_address();
        let flags = [
            format!("--listen-client-urls=https://{address}"),
            format!("--advertise-client-urls=https://{address}"),
            format!("--listen-peer-urls=https://{peer}"),
            format!("--initial-advertise-peer-urls=https://{peer}"),
            format!("--initial-cluster=n0=https://{peer}"),
            format!("--cert-file={}", file("one/server.crt")),
            format!("--key-file={}", file("one/server.key")),
            format!("--trusted-ca-file={}", file("ca.crt")),
            "--client-cert-auth".to_owned(),
            format!("--peer-cert-file={}", file("one/peer.crt")),
            format!("--peer-key-file={}", file("one/peer.key")),
            format!("--peer-trusted-ca-file={}", file("ca.crt")),
            "--peer-client-cert-auth".to_owned(),
            "--peer-cert-allowed-cn=one".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let _node = Node::start(kind, &peers, &flags);
        for name in ["alice", "bob"] {
            let put = [client(name), words(&["put", "k", name])].concat();
            assert_eq!(
                ctl(&peers, &address, &put).as_deref(),
                Ok("OK\n"),
                "{kind:?}"
            );
        }
        let get = [client("stranger/alice"), words(&["get", "k"])].concat();
        assert!(
            ctl(&peers, &address, &get).is_err(),
            "{kind:?} accepted a client certificate of another CA"
        );
        let anonymous = [vec![client("bob")[0].clone()], words(&["get", "k"])].concat();
        assert!(
            ctl(&peers, &address, &anonymous).is_err(),
            "{kind:?} accepted a client without a certificate"
        );
    }
}

#[test]
fn certs_overwrites_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    let written = made(
        folder,
        &[
            "--member=one=a.test,10.0.0.1",
            "--member=two=b.test",
            "--client=root",
        ],
    );
    assert_eq!(written.lines().count(), 2 + 4 + 4 + 2, "{written}");
    for line in written.lines().filter(|line| line.ends_with(".key")) {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(line).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{line}");
    }
    let before = std::fs::read(folder.join("one/server.crt")).expect("read");
    for (arguments, expected) in [
        (
            &["--member=one=a.test"][..],
            "exists and is not overwritten",
        ),
        (
            &["--client=new", "--client=root"],
            "exists and is not overwritten",
        ),
        (&[], "nothing to make"),
        (&["--member=one"], "must have the form NAME=HOST"),
        (&["--member=one=http://a.test"], "leave scheme and path out"),
        (&["--client=../x"], "cannot be a name"),
        (&["--client=ca"], "cannot be a name"),
    ] {
        let output = certs(folder, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let after = std::fs::read(folder.join("one/server.crt")).expect("read");
    assert_eq!(before, after);
    assert!(!folder.join("new.crt").exists(), "all or nothing");
    // A certificate signed by another CA's key is not accepted.
    let other = tempfile::tempdir().expect("folder");
    made(other.path(), &["--client=x"]);
    std::fs::copy(other.path().join("ca.key"), folder.join("ca.key")).expect("copied");
    let output = certs(folder, &["--client=y"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("was not created with the ca.key next to it"),
        "{error}"
    );
    std::fs::remove_file(folder.join("ca.key")).expect("removed");
    let output = certs(folder, &["--client=y"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("belong together and one is missing"),
        "{error}"
    );
}

#[test]
fn certificates_are_made_where_none_are_given() {
    let Some(peers) = peers("tls::certificates_are_made_where_none_are_given") else {
        return;
    };
    for kind in [Kind::Quorate, Kind::Etcd] {
        let address = free_address();
        let listen = format!("--listen-client-urls=https://{address}");
        let advertise = format!("--advertise-client-urls=https://{address}");
        let flags = [&*listen, &*advertise, "--auto-tls"];
        let node = Node::start(kind, &peers, &flags);
        let own = node.data().join("fixtures/client/cert.pem");
        let put = [
            vec![format!("--cacert={}", own.display())],
            words(&["put", "k", "v"]),
        ];
        assert_eq!(
            ctl(&peers, &address, &put.concat()).as_deref(),
            Ok("OK\n"),
            "{kind:?}"
        );
    }
}

#[test]
fn members_make_their_own_peer_certificates() {
    let flags = ["--peer-auto-tls", "--unsafe-no-fsync"];
    let nodes = Node::cluster(Kind::Quorate, Path::new(""), 3, &flags);
    for node in &nodes {
        let put = crate::http::post(&node.client, "/v3/kv/put", r#"{"key":"Zm9v"}"#);
        assert_eq!(put.status, 200, "{}", put.body);
        assert!(node.data().join("fixtures/peer/key.pem").exists());
    }
}
