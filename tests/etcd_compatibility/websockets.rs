//! Compares the JSON gateway over websockets with etcd's: each message from the client is a piece of the request
//! stream, and each message from the server is a line of the response.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::http::post;
use crate::node::{Node, PATIENCE, pair};

/// A minimal websocket client.
struct Socket(BufReader<TcpStream>);

/// What the client may receive.
#[derive(Debug, PartialEq)]
enum Frame {
    Text(Value),
    Pong(Vec<u8>),
    /// The end of the stream, with or without a close frame.
    End,
}

impl Socket {
    /// Opens a websocket; returns the status of the response, its subprotocol, and the socket.
    fn open(node: &Node, path: &str, headers: &[(&str, &str)]) -> (String, String, Socket) {
        let mut stream = TcpStream::connect(&node.client).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut text = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        stream
            .write_all(format!("{text}\r\n").as_bytes())
            .expect("sent");
        let mut socket = Socket(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = socket.0.read_line(&mut head).expect("a line");
            assert!(read > 0, "no answer: {head:?}");
        }
        let line = |name: &str| {
            let line = head
                .lines()
                .find(|line| line.to_ascii_lowercase().starts_with(name));
            line.map_or(String::new(), |line| line[name.len()..].trim().to_owned())
        };
        if head.starts_with("HTTP/1.1 101") {
            // The response to the example key in RFC 6455.
            assert_eq!(
                line("sec-websocket-accept:"),
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            );
        }
        let status = line("http/1.1 ").get(..3).unwrap_or_default().to_owned();
        (status, line("sec-websocket-protocol:"), socket)
    }

    fn send(&mut self, kind: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).expect("short");
        assert!(length < 126);
        // A zero mask is a valid mask.
        let head = [0x80 | kind, 0x80 | length, 0, 0, 0, 0];
        let frame = [&head, payload].concat();
        self.0.get_mut().write_all(&frame).expect("sent");
    }

    fn text(&mut self, text: &str) {
        self.send(1, text.as_bytes());
    }

    fn next(&mut self) -> Frame {
        let mut head = [0; 2];
        if self.0.read_exact(&mut head).is_err() {
            return Frame::End;
        }
        let mut length = u64::from(head[1] & 0x7f);
        let wide = match length {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mut bytes = [0; 8];
        if wide > 0 {
            self.0.read_exact(&mut bytes[8 - wide..]).expect("a length");
            length = u64::from_be_bytes(bytes);
        }
        let mut payload = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut payload).expect("a payload");
        match head[0] {
            0x81 => Frame::Text(serde_json::from_slice(&payload).expect("JSON")),
            0x8a => Frame::Pong(payload),
            0x88 => Frame::End,
            other => panic!("frame {other:x}"),
        }
    }
}

/// A message without the fields that differ between two clusters.
fn plain(frame: Frame) -> Frame {
    fn strip(value: &mut Value) {
        if let Value::Object(map) = value {
            for own in ["cluster_id", "member_id", "raft_term"] {
                map.remove(own);
            }
            map.values_mut().for_each(strip);
        }
    }
    match frame {
        Frame::Text(mut value) => {
            strip(&mut value);
            Frame::Text(value)
        }
        other => other,
    }
}

#[test]
fn a_browser_can_watch() {
    let Some([ours, etcd]) = pair("websockets::a_browser_can_watch", &[]) else {
        return;
    };
    let [ours, etcd] = [&ours, &etcd].map(|node| {
        let mut received = Vec::new();
        let (status, protocol, mut socket) = Socket::open(node, "/v3/watch", &[]);
        assert_eq!((&*status, &*protocol), ("101", ""), "{:?}", node.kind);
        // A request may be split into several messages.
        socket.text(r#"{"create_request":"#);
        socket.text(r#"{"key":"Zm9v"}}"#);
        received.push(plain(socket.next()));
        for value in ["YQ==", "Yg=="] {
            let body = format!(r#"{{"key":"Zm9v","value":"{value}"}}"#);
            assert_eq!(post(&node.client, "/v3/kv/put", &body).status, 200);
            received.push(plain(socket.next()));
        }
        socket.send(9, b"hello");
        received.push(socket.next());
        socket.text(r#"{"cancel_request":{"watch_id":"0"}}"#);
        received.push(plain(socket.next()));
        // A close frame with status 1000, normal closure.
        socket.send(8, &1000_u16.to_be_bytes());
        received.push(socket.next());
        received
    });
    assert_eq!(ours, etcd, "ours and etcd's");
}

/// An unknown path returns an error; the requests of a stream are answered one by one.
#[test]
fn streams_are_answered_request_by_request() {
    let Some([ours, etcd]) = pair("websockets::streams_are_answered_request_by_request", &[])
    else {
        return;
    };
    let [ours, etcd] = [&ours, &etcd].map(|node| {
        let (status, _, mut socket) = Socket::open(node, "/v3/nothing", &[]);
        assert_eq!(status, "101", "{:?}", node.kind);
        let mut received = vec![socket.next(), socket.next()];
        let (_, _, mut socket) = Socket::open(node, "/v3/lease/keepalive", &[]);
        for request in [r#"{"ID":"7"}"#, r#"{"ID":"8"}"#] {
            socket.text(request);
            received.push(plain(socket.next()));
        }
        received
    });
    assert_eq!(ours, etcd, "ours and etcd's");
}

/// For a call with one response, etcd waits for the end of the request, which a websocket never sends; ours responds
/// and closes.
#[test]
fn calls_with_one_answer_are_answered() {
    let Some(peers) = crate::node::peers("websockets::calls_with_one_answer_are_answered") else {
        return;
    };
    let node = Node::start(crate::node::Kind::Quorate, &peers, &[]);
    let (_, _, mut socket) = Socket::open(&node, "/v3/kv/range", &[]);
    socket.text("{}");
    let refused = serde_json::json!({"code": 3, "message": "etcdserver: key is not provided"});
    assert_eq!(socket.next(), Frame::Text(refused));
    assert_eq!(socket.next(), Frame::End);
}

#[test]
fn tokens_are_sent_by_subprotocol_or_cookie() {
    let flags = ["--bcrypt-cost=4"];
    let Some([ours, etcd]) = pair(
        "websockets::tokens_are_sent_by_subprotocol_or_cookie",
        &flags,
    ) else {
        return;
    };
    let [ours, etcd] = [&ours, &etcd].map(|node| {
        for (path, body) in [
            ("auth/user/add", r#"{"name":"root","password":"pw"}"#),
            ("auth/role/add", r#"{"name":"root"}"#),
            ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
            ("auth/enable", "{}"),
        ] {
            let answer = post(&node.client, &format!("/v3/{path}"), body);
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        }
        let who = r#"{"name":"root","password":"pw"}"#;
        let given = post(&node.client, "/v3/auth/authenticate", who).json();
        let token = given["token"].as_str().expect("a token").to_owned();
        let bearer = format!("Bearer, {token}");
        let cookie = format!("token={token}");
        let ways: [&[(&str, &str)]; 4] = [
            &[],
            &[("sec-websocket-protocol", &bearer)],
            &[("sec-websocket-protocol", "Bearer, nobody.1")],
            &[("cookie", &cookie)],
        ];
        ways.map(|headers| {
            let (status, protocol, mut socket) = Socket::open(node, "/v3/watch", headers);
            socket.text(r#"{"create_request":{"key":"Zm9v"}}"#);
            (status, protocol, plain(socket.next()))
        })
    });
    assert_eq!(ours, etcd, "ours and etcd's");
}

/// Browsers do not check CORS for websockets, so the server enforces the list of origins here; etcd does not.
#[test]
fn origins_that_are_not_named_get_no_websocket() {
    let Some(peers) = crate::node::peers("websockets::origins_that_are_not_named_get_no_websocket")
    else {
        return;
    };
    let flags = ["--cors=http://a.test"];
    let node = Node::start(crate::node::Kind::Quorate, &peers, &flags);
    for (headers, expected) in [
        (&[("origin", "http://a.test")][..], "101"),
        (&[("origin", "http://b.test")], "403"),
        (&[], "101"),
    ] {
        let (status, ..) = Socket::open(&node, "/v3/watch", headers);
        assert_eq!(status, expected, "{headers:?}");
    }
}

/// Incomplete websocket messages did not count towards any limit: a thousand attackers, each with 3 MiB of an endless
/// message, used 3 GiB of the server's memory.
#[test]
fn incomplete_messages_count_towards_the_limit() {
    let Some(peers) = crate::node::peers("websockets::incomplete_messages_count_towards_the_limit")
    else {
        return;
    };
    let node = Node::start(crate::node::Kind::Quorate, &peers, &[]);
    let counted = || {
        let page = crate::http::get(&node.client, "/metrics").body;
        let name = "quorate_server_incomplete_request_bytes ";
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the metric")
            .parse::<usize>()
            .expect("a number")
    };
    let until = |what: &str, is: &dyn Fn(usize) -> bool| {
        let begun = std::time::Instant::now();
        while !is(counted()) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", counted());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let (_, _, mut socket) = Socket::open(&node, "/v3/watch", &[]);
    socket.text(r#"{"create_request":{"key":"Zm9v"}}"#);
    assert!(matches!(socket.next(), Frame::Text(_)));
    // Complete messages and control frames do not count towards the incomplete message.
    (0..100).for_each(|_| socket.send(9, b"there"));
    (0..100).for_each(|_| assert_eq!(socket.next(), Frame::Pong(b"there".to_vec())));
    until("nothing waits", &|bytes| bytes == 0);
    // A frame with a length of `length`, and `sent` bytes of its content.
    let piece = |socket: &mut Socket, kind: u8, length: u32, sent: usize| {
        let mut frame = vec![kind, 0x80 | 127, 0, 0, 0, 0];
        frame.extend_from_slice(&length.to_be_bytes());
        frame.resize(frame.len() + 4, 0);
        frame.resize(frame.len() + sent, b' ');
        socket.0.get_mut().write_all(&frame).expect("sent");
    };
    piece(&mut socket, 1, 100_000, 100_000);
    until("a piece waits", &|bytes| bytes >= 100_000);
    socket.send(9, b"still there");
    assert_eq!(socket.next(), Frame::Pong(b"still there".to_vec()));
    piece(&mut socket, 0x80, 300_000, 200_000);
    let all = 300_000..310_000;
    until("all of it waits", &|bytes| all.contains(&bytes));
    drop(socket);
    until("its memory is freed", &|bytes| bytes == 0);
}
