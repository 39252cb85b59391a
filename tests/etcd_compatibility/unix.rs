//! Compares client connections over Unix domain sockets with etcd: etcdctl, plain HTTP and TLS, and the socket file
//! when a server stops, is killed, or finds the file of another process.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use crate::node::{Kind, Node, PATIENCE, free_address, peers};

/// Runs etcdctl in a directory; returns its output with its errors.
fn ctl(peers: &Path, folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(peers.join("etcdctl"))
        .arg("--command-timeout=10s")
        .args(arguments)
        .env_clear()
        .current_dir(folder)
        .output()
        .expect("etcdctl runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Sends one HTTP/1.1 request; returns the whole response.
fn http(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let text = request.replacen("\r\n", "\r\nhost: localhost\r\nconnection: close\r\n", 1);
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

#[test]
fn etcdctl_and_http_use_unix_sockets() {
    let Some(peers) = peers("unix::etcdctl_and_http_use_unix_sockets") else {
        return;
    };
    for kind in [Kind::Quorate, Kind::Etcd] {
        let folder = tempfile::tempdir().expect("folder");
        let folder = folder.path();
        let socket = folder.join("client.sock");
        let url = format!("unix://{}", socket.display());
        // A relative path whose name looks like a host and a port.
        let flags = [
            format!("--listen-client-urls={url},unix://localhost:2379"),
            format!("--advertise-client-urls=unix://localhost:2379,{url}"),
            // etcd ignores an absolute path in this flag and does not listen on it.
            "--listen-metrics-urls=unix://metrics.sock".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut node = Node::start(kind, &peers, &flags);
        let relative = node.folder().join("localhost:2379");
        let metrics = node.folder().join("metrics.sock");
        assert!(is_socket(&socket) && is_socket(&relative), "{kind:?}");

        let put = ctl(&peers, folder, &["--endpoints", &url, "put", "k", "v"]);
        assert_eq!(put, "OK\n", "{kind:?}");
        let near = ["--endpoints", "unix://localhost:2379", "get", "k"];
        assert_eq!(ctl(&peers, node.folder(), &near), "k\nv\n", "{kind:?}");
        let list = ctl(&peers, folder, &["--endpoints", &url, "member", "list"]);
        let expected = format!("{url},unix://localhost:2379, false");
        assert!(list.trim_end().ends_with(&expected), "{kind:?}: {list}");
        // A stream too, over the connection that etcdctl keeps open.
        let grant = ctl(
            &peers,
            folder,
            &["--endpoints", &url, "snapshot", "save", "s"],
        );
        assert!(folder.join("s").exists(), "{kind:?}: {grant}");

        let version = http(&socket, "GET /version HTTP/1.1\r\n\r\n");
        assert!(version.contains("\"etcdserver\":\"3.7.3\""), "{version}");
        let range = "POST /v3/kv/range HTTP/1.1\r\ncontent-length: 14\r\n\r\n{\"key\":\"aw==\"}";
        assert!(
            http(&socket, range).contains("\"value\":\"dg==\""),
            "{kind:?}"
        );
        let health = http(&metrics, "GET /health HTTP/1.1\r\n\r\n");
        assert!(health.starts_with("HTTP/1.1 200 OK"), "{kind:?}: {health}");

        node.terminate();
        for path in [&socket, &metrics, &relative] {
            assert!(!path.exists(), "{kind:?} leaves {}", path.display());
        }
    }
}

#[test]
fn a_unix_socket_speaks_tls_by_its_scheme() {
    let Some(peers) = peers("unix::a_unix_socket_speaks_tls_by_its_scheme") else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    let made = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["certs", "--member=one=one.test", "--client=alice", "--out"])
        .arg(folder)
        .status();
    assert!(made.expect("runs").success());
    let file = |name: &str| folder.join(name).display().to_string();
    for kind in [Kind::Quorate, Kind::Etcd] {
        // etcdctl expects a certificate with the name of the socket file.
        let name = format!("unixs://{}", file("localhost"));
        let flags = [
            format!("--listen-client-urls={name}"),
            format!("--advertise-client-urls={name}"),
            format!("--cert-file={}", file("one/server.crt")),
            format!("--key-file={}", file("one/server.key")),
            format!("--trusted-ca-file={}", file("ca.crt")),
            "--client-cert-auth".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let _node = Node::start(kind, &peers, &flags);
        let roots = format!("--cacert={}", file("ca.crt"));
        let certificate = format!("--cert={}", file("alice.crt"));
        let key = format!("--key={}", file("alice.key"));
        let known = [
            "--endpoints",
            &name,
            &roots,
            &certificate,
            &key,
            "put",
            "k",
            "v",
        ];
        assert_eq!(ctl(&peers, folder, &known), "OK\n", "{kind:?}");
        let anonymous = [
            "--endpoints",
            &name,
            &roots,
            "get",
            "k",
            "--command-timeout=2s",
        ];
        let refused = ctl(&peers, folder, &anonymous);
        assert!(
            refused.contains("Error"),
            "{kind:?} accepted a client without a certificate: {refused}"
        );
    }
}

/// A killed server cannot remove its socket file; the next server replaces it.
#[test]
fn a_killed_servers_socket_file_is_replaced() {
    let Some(peers) = peers("unix::a_killed_servers_socket_file_is_replaced") else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("s");
    let url = format!("unix://{}", socket.display());
    let flags = [
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for kind in [Kind::Etcd, Kind::Quorate, Kind::Quorate, Kind::Etcd] {
        let node = Node::start(kind, &peers, &flags);
        let put = ctl(
            &peers,
            folder.path(),
            &["--endpoints", &url, "put", "k", "v"],
        );
        assert_eq!(put, "OK\n", "{kind:?}");
        // Dropping the node kills its process.
        drop(node);
        assert!(is_socket(&socket), "{kind:?}");
    }
}

/// etcd removes any file at the path. Quorate does not, because it may be the socket of a running server.
#[test]
fn live_sockets_are_left_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("s");
    let text = folder.path().join("text");
    std::fs::write(&text, "precious").expect("written");
    let start = |path: &Path| {
        let peer = free_address();
        let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .arg("server")
            .arg(format!("--data-dir={}", folder.path().join("d").display()))
            .arg(format!("--listen-client-urls=unix://{}", path.display()))
            .arg(format!("--advertise-client-urls=unix://{}", path.display()))
            .arg(format!("--listen-peer-urls=http://{peer}"))
            .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
            .arg(format!("--initial-cluster=n=http://{peer}"))
            .args(["--name=n", "--unsafe-no-fsync"])
            .env_clear()
            .output()
            .expect("runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), error)
    };
    let _other = UnixListener::bind(&socket).expect("bound");
    let (code, error) = start(&socket);
    assert_eq!(code, Some(3), "{error}");
    let expected = "is in use by another process: stop that process or give another path";
    assert!(error.contains(expected), "{error}");
    UnixStream::connect(&socket).expect("the other one is still found");

    let (code, error) = start(&text);
    assert_eq!(code, Some(3), "{error}");
    assert!(
        error.contains("something that is no socket is there"),
        "{error}"
    );
    assert_eq!(std::fs::read(&text).expect("read"), b"precious");

    let (code, error) = start(&folder.path().join("none/s"));
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("No such file or directory"), "{error}");
    assert!(
        !folder.path().join("d").exists(),
        "a data directory was created"
    );
}
