//! A server with a limit of open files, and clients that hold many connections.

use std::io::Read as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use quorate::wire::etcd;

use super::fixture::{Server, put};

/// Connections of the attacker: more than twice the number that the server may have open in total.
const CROWD: usize = 600;
/// The preface of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn crowd(server: &Server, first_bytes: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect((server.host.as_str(), 2379)).expect("connects");
        // The server may have closed it already.
        let _ = stream.write_all(first_bytes);
        stream
    };
    (0..CROWD).map(connect).collect()
}

/// Whether the server has closed a connection.
fn closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    let mut buffer = [0; 256];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    assert!(value.is_some(), "{name} is not in\n{text}");
    value.unwrap_or_default()
}

/// 600 idle connections used every descriptor of a server with a limit of 256 (1,100 under systemd's limit of 1,024):
/// no new client could connect, and when the log needed its next file, opening it failed, which stopped the member.
/// etcd keeps serving. Now idle connections are closed for new ones, with or without the HTTP/2 preface, and the disk
/// has its own descriptors.
#[tokio::test]
async fn idle_connections_make_room_for_clients() {
    let server = Server::limited(256, &[]);
    let mut client = server.kv().await;
    client.put(put("before", "1")).await.expect("answered");
    for first_bytes in [&b""[..], PREFACE] {
        let mut crowd = crowd(&server, first_bytes);
        let deadline = Instant::now() + Duration::from_secs(30);
        while crowd.iter_mut().map(closed).filter(|gone| *gone).count() < CROWD - 200 {
            assert!(Instant::now() < deadline, "idle connections are not closed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The log needs more than one file: each is 64 MiB, and one is preallocated.
        let value = "x".repeat(1 << 20);
        for number in 0..75 {
            let request = put(&format!("key {}", number % 4), &value);
            client
                .put(request)
                .await
                .expect("a connected client is served");
            if number % 15 == 0 {
                let mut newcomer = server.kv().await;
                let request = put("newcomer", "1");
                newcomer.put(request).await.expect("a new client is served");
            }
        }
    }
    let limit = metric(&server, "quorate_server_connections_limit{port=\"client\"}");
    assert!((64..200).contains(&limit), "{limit}");
    assert!(metric(&server, "process_open_fds") < 256);
    assert!(
        metric(
            &server,
            "quorate_server_connections_evicted_total{port=\"client\"}"
        ) > 800
    );
    assert_eq!(
        metric(
            &server,
            "quorate_server_connections_refused_total{port=\"client\"}"
        ),
        0
    );
    let (code, log) = server.terminate();
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("Too many open files"), "{log}");
}

/// Open streams are in use: none is closed, new connections beyond the limit are refused, and succeed as soon as a
/// connection is closed.
#[tokio::test]
async fn refuses_connections_when_all_are_in_use() {
    let server = Server::limited(256, &[]);
    let limit = metric(&server, "quorate_server_connections_limit{port=\"client\"}");
    let mut watching = Vec::new();
    for _ in 0..limit {
        let (requests, receiver) = tokio::sync::mpsc::channel::<etcd::WatchRequest>(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let answers = server.watch().await.watch(stream).await.expect("opens");
        watching.push((requests, answers));
    }
    assert_eq!(server.get("/version"), "", "refused");
    watching.truncate(watching.len() / 2);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.get("/version").contains("etcdserver") {
        assert!(Instant::now() < deadline, "new connections succeed again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (requests, answers) in &mut watching {
        let progress = etcd::watch_request::RequestUnion::CreateRequest(etcd::WatchCreateRequest {
            key: "k".into(),
            ..Default::default()
        });
        let request = etcd::WatchRequest {
            request_union: Some(progress),
        };
        requests.send(request).await.expect("open");
        let created = answers
            .get_mut()
            .message()
            .await
            .expect("well")
            .expect("one");
        assert!(created.created);
    }
}

/// A member with too few descriptors for its own files would exit when they are used up: it reports this before it
/// writes to the disk.
#[test]
fn too_small_a_limit_is_refused() {
    let (code, log) = super::fixture::refused_under(64, &["--data-dir=/nonexistent/never"]);
    assert_ne!(code, 0);
    assert!(
        log.contains("64 open files") && log.contains("LimitNOFILE="),
        "{log}"
    );
}
