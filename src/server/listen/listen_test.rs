//! Real sockets on loopback: accepting, refusing with a reason, and draining.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use super::{Bound, ClientRuntimes, ListenError, Serve, accept, bind_one};
use crate::server::flags::config::{ClientPort, TlsPolicy};
use crate::server::flags::url::ClientUrl;
use crate::server::listen::bodies::{Bodies, WHOLE_WITHIN};
use crate::server::listen::seats::Seats;
use crate::server::listen::serving::Front;
use crate::server::metrics::client::ClientMetrics;
use crate::server::tls::fixture::Certificates;
use crate::server::tls::{self, CLIENT_ALPN};

fn loopback() -> Bound {
    let url = ClientUrl::parse("http://127.0.0.1:0").expect("url");
    bind_one("listen-client-urls", &url, None).expect("bound")
}

fn address(bound: &Bound) -> SocketAddr {
    bound.address.parse().expect("an address")
}

fn serve(metrics: &Arc<ClientMetrics>) -> (Serve, watch::Sender<bool>) {
    let (drain, draining) = watch::channel(false);
    let router = axum::Router::new().route("/hello", axum::routing::get(|| async { "hello" }));
    let port = ClientPort {
        max_concurrent_streams: None,
        keepalive: None,
        watch_progress_interval: Duration::from_secs(1),
        warn_unary: Duration::MAX,
        json_gateway: false,
        access: Default::default(),
        extensive_metrics: false,
        own_http2: true,
        gates: Default::default(),
    };
    let open = Arc::new(AtomicU64::new(0));
    (
        Serve {
            front: Front::new(router, None),
            plain: None,
            port,
            handshake: super::HANDSHAKE,
            unused: super::UNUSED,
            seats: Seats::new("client", 64, 1000),
            bodies: Bodies::new(1 << 20, WHOLE_WITHIN),
            metrics: Some(metrics.clone()),
            draining,
            hang_ups: watch::channel(0).1,
            open,
            probes: false,
            inbox: Default::default(),
        },
        drain,
    )
}

/// `0.0.0.0` meant IPv4 alone: on an IPv6-only Kubernetes no member could be reached.
#[test]
fn wildcard_address_serves_both_families() {
    for url in ["http://0.0.0.0:0", "http://[::]:0", "http://:0"] {
        let url = ClientUrl::parse(url).expect("url");
        let bound = bind_one("listen-client-urls", &url, None).expect("bound");
        let port = address(&bound).port();
        TcpStream::connect(("127.0.0.1", port)).expect("by IPv4");
        // A machine without IPv6 has no such address, and is served nevertheless.
        if std::net::TcpListener::bind(("::1", 0)).is_ok() {
            TcpStream::connect(("::1", port)).expect("by IPv6");
        }
        let again = ClientUrl::parse(&format!("http://0.0.0.0:{port}")).expect("url");
        let taken = bind_one("listen-client-urls", &again, None);
        assert!(matches!(taken.err(), Some(ListenError::InUse { .. })));
    }
}

#[test]
fn port_in_use_is_named() {
    let bound = loopback();
    let url = ClientUrl::parse(&format!("http://{}", bound.address)).expect("url");
    let error = bind_one("listen-client-urls", &url, None)
        .err()
        .expect("taken");
    assert!(matches!(error, ListenError::InUse { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "--listen-client-urls: {url} is in use by another process: stop that process or give another port"
        )
    );
}

/// Clients that connect in a burst wait to be accepted; none is dropped and left to retry a second
/// later.
#[test]
fn connection_burst_fits_the_backlog() {
    let bound = loopback();
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    let burst = most.unwrap_or(128_usize).min(600);
    // Nothing accepts: all of them wait in the backlog.
    let patience = Duration::from_millis(900);
    let waiting: io::Result<Vec<TcpStream>> = (0..burst)
        .map(|_| TcpStream::connect_timeout(&address(&bound), patience))
        .collect();
    assert_eq!(waiting.expect("each is let in at once").len(), burst);
}

#[test]
fn connections_are_answered_counted_and_drained() {
    let metrics = Arc::new(ClientMetrics::new(false));
    let runtimes = ClientRuntimes::start(2).expect("threads");
    let bound = loopback();
    let address = address(&bound);
    let (serve, drain) = serve(&metrics);
    let open = serve.open.clone();
    accept(bound, runtimes.handles(), serve);
    let ask = |stream: &mut TcpStream| {
        stream
            .write_all(b"GET /hello HTTP/1.1\r\nhost: h\r\n\r\n")
            .expect("sent");
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let mut streams: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).expect("connected"))
        .collect();
    for stream in &mut streams {
        assert!(ask(stream).starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(open.load(Relaxed), 3);
    assert_eq!(metrics.received_bytes.load(Relaxed), 3 * 32);
    assert!(metrics.sent_bytes.load(Relaxed) > 3 * 32);
    drain.send(true).expect("listening");
    for stream in &mut streams {
        // An idle connection is closed: the end of the stream, not a time-out.
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        assert_eq!(stream.read(&mut [0; 8]).expect("closed"), 0);
    }
    runtimes.shutdown();
}

/// A member that retires disconnects its present clients, and serves those that connect later.
#[test]
fn retire_disconnects_present_clients() {
    let metrics = Arc::new(ClientMetrics::new(false));
    let runtimes = ClientRuntimes::start(1).expect("threads");
    let bound = loopback();
    let address = address(&bound);
    let (mut serve, drain) = serve(&metrics);
    let (hang_up, hang_ups) = watch::channel(0_u64);
    serve.hang_ups = hang_ups;
    accept(bound, runtimes.handles(), serve);
    let served = |stream: &mut TcpStream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("set");
        stream
            .write_all(b"GET /hello HTTP/1.1\r\nhost: h\r\n\r\n")
            .expect("sent");
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer[..length]).starts_with("HTTP/1.1 200 OK")
    };
    for round in 1..=2 {
        let mut before = TcpStream::connect(address).expect("connected");
        assert!(served(&mut before));
        hang_up.send(round).expect("listening");
        assert_eq!(before.read(&mut [0; 8]).expect("closed"), 0);
        let mut after = TcpStream::connect(address).expect("connected");
        assert!(served(&mut after) && served(&mut after));
    }
    drop(drain);
    runtimes.shutdown();
}

/// One request over TLS; the error is whatever ended the connection.
async fn ask(address: SocketAddr, config: Arc<rustls::ClientConfig>) -> io::Result<String> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("name");
    let mut stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await?;
    stream
        .write_all(b"GET /hello HTTP/1.1\r\nhost: h\r\n\r\n")
        .await?;
    let mut answer = vec![0; 512];
    let length = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[tokio::test]
async fn only_allowed_certificates_are_admitted() {
    let certificates = Certificates::new();
    let policy = TlsPolicy::default();
    let shown = Arc::new(tls::server(&certificates.files(), &policy, CLIENT_ALPN).expect("tls"));
    let url = ClientUrl::parse("https://127.0.0.1:0").expect("url");
    let bound = bind_one("listen-client-urls", &url, Some(&shown)).expect("bound");
    let address = address(&bound);
    let runtimes = ClientRuntimes::start(1).expect("threads");
    let (serve, _drain) = serve(&Arc::new(ClientMetrics::new(false)));
    accept(bound, runtimes.handles(), serve);

    let known = tls::peers(&certificates.files(), &policy).expect("client");
    let answer = ask(address, known.current().dialled.clone())
        .await
        .expect("let in");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");

    let provider = known.current().dialled.crypto_provider().clone();
    let without_certificate = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut anonymous = (*known.current().dialled).clone();
    anonymous.client_auth_cert_resolver = without_certificate.client_auth_cert_resolver.clone();
    let error = ask(address, Arc::new(anonymous))
        .await
        .expect_err("no certificate");
    assert!(error.to_string().contains("CertificateRequired"), "{error}");

    let stranger = Certificates::new();
    let other = tls::peers(&stranger.files(), &policy).expect("client");
    let mut other_root = (*known.current().dialled).clone();
    other_root.client_auth_cert_resolver =
        other.current().dialled.client_auth_cert_resolver.clone();
    let error = ask(address, Arc::new(other_root))
        .await
        .expect_err("a stranger's certificate");
    assert!(error.to_string().contains("alert"), "{error}");
    runtimes.shutdown();
}

#[tokio::test]
async fn unfinished_handshake_is_dropped() {
    let certificates = Certificates::new();
    let policy = TlsPolicy::default();
    let shown = Arc::new(tls::server(&certificates.files(), &policy, CLIENT_ALPN).expect("tls"));
    let url = ClientUrl::parse("https://127.0.0.1:0").expect("url");
    let bound = bind_one("listen-client-urls", &url, Some(&shown)).expect("bound");
    let address = address(&bound);
    let runtimes = ClientRuntimes::start(1).expect("threads");
    let (mut serve, _drain) = serve(&Arc::new(ClientMetrics::new(false)));
    serve.handshake = Duration::from_secs(5);
    let open = serve.open.clone();
    accept(bound, runtimes.handles(), serve);

    let mut stalled = Vec::new();
    // Nothing at all, a part of a ClientHello, and no TLS.
    for first in [&b""[..], &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]] {
        for _ in 0..20 {
            let mut stream = tokio::net::TcpStream::connect(address)
                .await
                .expect("connected");
            stream.write_all(first).await.expect("sent");
            stalled.push(stream);
        }
    }
    let known = tls::peers(&certificates.files(), &policy).expect("client");
    let answer = ask(address, known.current().dialled.clone())
        .await
        .expect("let in");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    for mut stream in stalled {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest));
        // EOF or a reset: it is closed either way.
        let _ = closed.await.expect("dropped in time");
    }
    let gone = async {
        while open.load(Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(gone.is_ok(), "{} connections are kept", open.load(Relaxed));
    runtimes.shutdown();
}

/// During a transition to TLS one socket accepts both; the rules for plain text apply to
/// connections without TLS.
#[tokio::test]
async fn tls_port_accepts_plaintext_in_transition() {
    let certificates = Certificates::new();
    let policy = TlsPolicy::default();
    let shown = Arc::new(tls::server(&certificates.files(), &policy, CLIENT_ALPN).expect("tls"));
    let url = ClientUrl::parse("https://127.0.0.1:0").expect("url");
    let runtimes = ClientRuntimes::start(1).expect("threads");
    let known = tls::peers(&certificates.files(), &policy).expect("client");
    let known = known.current().dialled.clone();
    for taken in [true, false] {
        let bound = bind_one("listen-client-urls", &url, Some(&shown)).expect("bound");
        let address = address(&bound);
        let (mut serve, _drain) = serve(&Arc::new(ClientMetrics::new(false)));
        let plain = axum::routing::get(|| async { "in plain text" });
        let router = axum::Router::new().route("/hello", plain);
        serve.plain = taken.then(|| Front::new(router, None));
        accept(bound, runtimes.handles(), serve);
        let answer = ask(address, known.clone()).await.expect("let in");
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("open");
        let asked = b"GET /hello HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        stream.write_all(asked).await.expect("sent");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(
            answer.ends_with("in plain text"),
            taken,
            "{read:?} {answer}"
        );
    }
    runtimes.shutdown();
}

/// A connection that had to make room was cut off 250 ms later, or at once, despite pending
/// requests: its client could not know the outcome of its writes.
#[tokio::test]
async fn pending_requests_end_before_the_connection() {
    let seats = Seats::new("client", 2, 100);
    let greedy = Some([10, 0, 0, 1].into());
    let crowd =
        [seats.admit(greedy).await, seats.admit(greedy).await].map(|seat| seat.expect("free"));
    let handle = crowd[0].handle();
    let calls = crowd
        .each_ref()
        .map(|seat| seat.handle().begin().expect("a call"));
    let newcomer = seats.admit(Some([10, 0, 0, 2].into())).await;
    assert!(newcomer.is_some(), "one host has more than half");
    let mut gone = std::pin::pin!(super::gone(&handle));
    let early = tokio::time::timeout(super::FAREWELL * 2, gone.as_mut()).await;
    assert!(early.is_err(), "its request is under way");
    drop(calls);
    tokio::time::timeout(super::GRACE * 5, gone)
        .await
        .expect("then it goes");
    // A stream has no end, and its connection is closed nevertheless.
    let _stream = handle.begin().expect("a call");
    tokio::time::timeout(super::GRACE * 20, super::gone(&handle))
        .await
        .expect("in time");
}

/// A new connection waited for more than a second for each busy connection that made room beyond
/// the first 16, and all connections behind it in the port's queue waited too.
#[tokio::test]
async fn busy_connection_blocks_no_other() {
    let seats = Seats::new("client", 100, 1000);
    let greedy = Some([10, 0, 0, 1].into());
    let mut leaving = Vec::new();
    for _ in 0..100 {
        let seat = seats.admit(greedy).await.expect("free");
        let handle = seat.handle();
        let call = handle.begin().expect("a call");
        leaving.push(tokio::spawn(async move {
            super::gone(&handle).await;
            drop((seat, call));
        }));
    }
    let mut held = Vec::new();
    let came = async {
        while held.len() < 40 {
            if let Some(seat) = seats.admit(Some([10, 0, 0, 2].into())).await {
                held.push((seat.handle().begin(), seat));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::GRACE * 10, came)
        .await
        .expect("no connection waits for a stream's end");
    leaving.iter().for_each(tokio::task::JoinHandle::abort);
}
