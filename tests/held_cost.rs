//! What an operator keeps of one member: of a call that the member holds, and of a connection of gRPC, which it closes when a
//! cluster is at rest. Real sockets and sessions of TLS, to a second process; counted is this process's resident memory.
//!
//! `cargo test --test held_cost -- --ignored --nocapture` prints it for 1,000 members.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::server::operator_api::held_call::HeldCall;
use quorate::server::operator_api::secure::Secure;
use quorate::server::tls::issue::{Authority, Purpose, Validity};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const MEMBERS: usize = 1_000;
/// Connections that are made first: what the first one takes is no matter of the number.
const FIRST: usize = 100;
const NAME: &str = "demo-1.example";
/// What ends by itself has ended after this.
const SETTLED: Duration = Duration::from_secs(2);
const BRIEF: Duration = Duration::from_secs(10);

/// The resident memory of this process, in KiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("readable on Linux");
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.expect("a size").parse().expect("a number")
}

/// The processor time of this thread.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable on Linux");
    let nanoseconds = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// The other process, which ends with this value.
struct Members {
    child: Child,
    /// That of those that hold their calls, and that of those that answer.
    addresses: [String; 2],
    roots_pem: String,
}

impl Drop for Members {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Members {
    fn start(home: &std::path::Path) -> Self {
        let now = jiff::Timestamp::now();
        let validity = Validity {
            not_before: now - jiff::SignedDuration::from_hours(1),
            not_after: now + jiff::SignedDuration::from_hours(1000),
        };
        let authority = Authority::new("peers", validity, None).expect("a CA");
        let roots_pem = authority.issued().expect("its certificate").certificate;
        let issued = authority
            .issue("demo-1", &[NAME.to_owned()], Purpose::Member, validity)
            .expect("a certificate");
        std::fs::write(home.join("crt"), issued.certificate).expect("written");
        std::fs::write(home.join("key"), issued.key).expect("written");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "members", "--nocapture"])
            .env("HELD_COST_HOME", home)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut addresses = lines.map_while(Result::ok).filter_map(|line| {
            line.split_once("listens on ")
                .map(|(_, address)| address.to_owned())
        });
        let mut address = || addresses.next().expect("it listens");
        let addresses = [address(), address()];
        Self {
            child,
            addresses,
            roots_pem,
        }
    }

    fn secure(&self, tls: bool) -> Option<Secure> {
        tls.then(|| Secure {
            roots_pem: self.roots_pem.as_str().into(),
            server_name: NAME.into(),
            plaintext_too: false,
        })
    }
}

/// Not a test: the other process. At one address it answers nothing, at the other that there is nothing, by HTTP/2.
#[tokio::test(flavor = "current_thread")]
#[ignore = "the other process of the measurement"]
async fn members() {
    let Ok(home) = std::env::var("HELD_COST_HOME") else {
        return;
    };
    let home = std::path::Path::new(&home);
    let chain = CertificateDer::from_pem_file(home.join("crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(home.join("key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("they fit");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let answering = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    for listener in [&silent, &answering] {
        println!("listens on {}", listener.local_addr().expect("its address"));
    }
    tokio::join!(
        serve(silent, tls.clone(), false),
        serve(answering, tls, true)
    );
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, answers: bool) {
    loop {
        let (tcp, _) = listener.accept().await.expect("a connection");
        let tls = tls.clone();
        tokio::spawn(async move {
            let mut first = [0];
            tcp.peek(&mut first).await.expect("something");
            // A record of TLS begins with 22.
            match (first[0] == 22, answers) {
                (true, true) => answer(tls.accept(tcp).await.expect("a session")).await,
                (true, false) => hold(tls.accept(tcp).await.expect("a session")).await,
                (false, true) => answer(tcp).await,
                (false, false) => hold(tcp).await,
            }
        });
    }
}

async fn hold(mut io: impl AsyncRead + Unpin) {
    while io.read_u8().await.is_ok() {}
}

async fn answer(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let nothing = |_| async { Ok::<_, Infallible>(http::Response::new(String::new())) };
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let service = hyper::service::service_fn(nothing);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// KiB of each of so many, of which some were made before, and how much of a processor making it takes.
async fn measured<T>(what: String, mut make: impl AsyncFnMut() -> T) -> Vec<T> {
    let mut made = Vec::new();
    let (mut before, mut begun) = (0, Duration::ZERO);
    for number in 0..FIRST + MEMBERS {
        if number == FIRST {
            tokio::time::sleep(SETTLED).await;
            (before, begun) = (memory(), processor());
        }
        made.push(make().await);
    }
    let time = (processor() - begun) / MEMBERS as u32;
    tokio::time::sleep(SETTLED).await;
    let each = memory().saturating_sub(before) as f64 / MEMBERS as f64;
    println!("{what}: {each:.1} KiB, {time:?} of a processor to make it");
    made
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "a measurement"]
async fn a_held_call_takes_little() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let home = tempfile::tempdir().expect("a directory");
    let members = Members::start(home.path());
    let [silent, answering] = &members.addresses;
    let key = Key::new(b"0123456789abcdef0123456789abcdef");
    // All stay until the end: what is freed would be taken again.
    let (mut calls, mut clients) = (Vec::new(), Vec::new());
    for tls in [false, true] {
        let secure = members.secure(tls);
        let call = HeldCall {
            address: silent.clone(),
            key: key.clone(),
            secure: secure.clone(),
            digest: 1,
            wait: Duration::from_secs(600),
        };
        let held = measured(format!("a held call, TLS {tls}"), async || {
            let call = call.clone();
            let held = tokio::spawn(async move { call.answer().await });
            tokio::time::sleep(Duration::from_millis(2)).await;
            held.abort_handle()
        });
        calls.extend(held.await);
        let called = measured(format!("a connection of gRPC, TLS {tls}"), async || {
            let client = MemberClient::new(answering, key.clone(), BRIEF, secure.as_ref());
            let mut client = client.expect("an address");
            let answer = client.describe(false).await;
            assert!(answer.is_err(), "it is no member");
            client
        });
        clients.extend(called.await);
    }
    assert!(calls.iter().all(|call| !call.is_finished()), "all are held");
    drop(clients);
}
