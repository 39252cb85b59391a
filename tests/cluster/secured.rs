//! TLS of an operated cluster: enabled while the cluster runs, renewed by replacing files, and enforced on the peer
//! port.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fixture::{PATIENCE, SECRET, Server, until};
use super::operated::{add, call, fence, standbys};
use quorate::server::operator_api::auth::Key;
use quorate::server::operator_api::client::MemberClient;
use quorate::server::operator_api::held_call::{Answer, HeldCall};
use quorate::server::operator_api::secure::Secure;
use quorate::server::tls::certificates::Certificate;
use quorate::server::tls::issue::{Authority, Purpose, Validity};
use quorate::wire::member::{DescribeResponse, Phase, PortSecurity};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A CA, and the directory for the certificates that it signs.
pub(super) struct Certificates {
    home: PathBuf,
    authority: Authority,
    pub(super) root: String,
}

/// A validity in hours from now.
pub(super) fn hours(from: i64, until: i64) -> Validity {
    let now = jiff::Timestamp::now();
    let at = |hours: i64| now + jiff::SignedDuration::from_hours(hours);
    Validity {
        not_before: at(from),
        not_after: at(until),
    }
}

impl Certificates {
    pub(super) fn new(home: &Path, name: &str) -> Certificates {
        let authority = Authority::new(name, hours(-1, 1000), None).unwrap();
        let root = authority.issued().unwrap().certificate;
        Certificates {
            home: home.to_owned(),
            authority,
            root,
        }
    }

    /// Writes the certificate and key of a member; returns the certificate's fingerprint.
    pub(super) fn issue(&self, server: &Server, validity: Validity) -> String {
        let hosts = [server.address.clone()];
        let issued = self
            .authority
            .issue(&server.name, &hosts, Purpose::Member, validity);
        let issued = issued.unwrap();
        std::fs::write(self.path(server, "key"), &issued.key).unwrap();
        std::fs::write(self.path(server, "crt"), &issued.certificate).unwrap();
        Certificate::first(&issued.certificate).unwrap().sha256
    }

    /// Writes the CA bundle that every member trusts.
    pub(super) fn trust(&self, roots: &[&str]) {
        std::fs::write(self.home.join("ca.crt"), roots.concat()).unwrap();
    }

    fn path(&self, server: &Server, ending: &str) -> PathBuf {
        self.home.join(format!("{}.{ending}", server.name))
    }

    /// Configures TLS on the peer port from the server's next start on.
    pub(super) fn give(&self, server: &mut Server) {
        let listen = format!("--listen-peer-urls=https://{}:2380", server.address);
        server
            .arguments
            .retain(|argument| !argument.starts_with("--listen-peer-urls="));
        server.arguments.extend([
            listen,
            format!("--peer-cert-file={}", self.path(server, "crt").display()),
            format!("--peer-key-file={}", self.path(server, "key").display()),
            format!(
                "--peer-trusted-ca-file={}",
                self.home.join("ca.crt").display()
            ),
            "--peer-client-cert-auth=true".to_owned(),
        ]);
    }

    fn secure(&self, server: &Server, plaintext_too: bool) -> Secure {
        Secure {
            roots_pem: self.root.as_str().into(),
            server_name: server.address.clone(),
            plaintext_too,
        }
    }

    /// The operator's client, over TLS.
    pub(super) fn operator(&self, server: &Server, plaintext_too: bool) -> MemberClient {
        let secure = self.secure(server, plaintext_too);
        let address = format!("{}:2380", server.address);
        let key = Key::new(SECRET.as_bytes());
        MemberClient::new(&address, key, Duration::from_secs(10), Some(&secure)).unwrap()
    }

    /// What a call tells, over TLS, that the server holds until its description has another digest than this.
    async fn told(&self, server: &Server, digest: u64) -> Option<u64> {
        let call = HeldCall {
            address: format!("{}:2380", server.address),
            key: Key::new(SECRET.as_bytes()),
            secure: Some(self.secure(server, false)),
            digest,
            wait: Duration::from_secs(10),
        };
        match call.answer().await {
            Ok(Answer::Digest(digest)) => Some(digest),
            Ok(Answer::Unread) | Err(_) => None,
        }
    }

    /// Waits until the server's description satisfies the condition, queried over TLS or, if the server has none,
    /// without.
    pub(super) async fn describes(
        &self,
        what: &str,
        server: &Server,
        wanted: impl Fn(&DescribeResponse) -> bool,
    ) -> DescribeResponse {
        until(&format!("{}: {what}", server.name), server, async || {
            let description = self.operator(server, true).describe(false).await.ok()?;
            wanted(&description).then_some(description)
        })
        .await
    }

    /// Makes a change through the leader.
    async fn led<T>(
        &self,
        what: &str,
        servers: &[Server],
        mut change: impl AsyncFnMut(MemberClient, DescribeResponse) -> Option<T>,
    ) -> T {
        until(what, &servers[0], async || {
            for server in servers {
                let mut operator = self.operator(server, true);
                if let Ok(description) = operator.describe(true).await
                    && description.leader_with_quorum
                    && let Some(done) = change(operator, description).await
                {
                    return Some(done);
                }
            }
            None
        })
        .await
    }

    /// Bootstraps a cluster on this standby.
    async fn found(&self, seed: &Server) {
        let description = self
            .describes("a standby", seed, |description| {
                description.phase() == Phase::Standby
            })
            .await;
        let founded = self
            .operator(seed, true)
            .bootstrap(call(&description))
            .await;
        founded.unwrap();
        seed.serves("founded").await;
    }

    /// Makes a standby a voter, with this peer URL.
    async fn take_in(&self, members: &[Server], standby: &Server, url: &str) {
        let empty = self
            .describes("a standby", standby, |description| {
                description.phase() == Phase::Standby
            })
            .await;
        let id = self
            .led("it is added", members, async |mut operator, description| {
                let mut request = add(standby, &empty, &description);
                request.peer_urls = vec![url.to_owned()];
                Some(operator.add_learner(request).await.ok()?.id)
            })
            .await;
        self.led(
            "it is promoted",
            members,
            async |mut operator, description| operator.promote(fence(&description), id).await.ok(),
        )
        .await;
        standby.serves(&format!("through-{}", standby.name)).await;
    }
}

fn peer(description: &DescribeResponse) -> PortSecurity {
    description.peer_security.clone().unwrap_or_default()
}

/// Puts increasing numbers, each through any member that serves it, until stopped. Returns the last acknowledged
/// number and the longest time without an acknowledgement.
struct Load {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(u64, Duration)>,
}

impl Load {
    fn start(servers: &[Server]) -> Load {
        let mut clients: Vec<_> = servers.iter().map(Server::kv).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let (mut written, mut at, mut longest) = (0_u64, 0, Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let begun = std::time::Instant::now();
                loop {
                    let request = quorate::wire::etcd::PutRequest {
                        key: b"load".to_vec().into(),
                        value: (written + 1).to_string().into_bytes().into(),
                        ..Default::default()
                    };
                    match clients[at % 3].put(request).await {
                        Ok(_) => break,
                        // As etcd's clients do: retry the same write at another member.
                        Err(status) => {
                            assert!(begun.elapsed() < PATIENCE, "a write fails: {status}");
                            at += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
                longest = longest.max(begun.elapsed());
                written += 1;
            }
            (written, longest)
        });
        Load { stop, task }
    }

    async fn end(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// A cluster without TLS adds a member that has it, gets certificates by a rolling restart, changes its peer URLs to
/// https one by one, and then refuses plain text by itself, all while a client writes.
#[tokio::test]
async fn a_running_cluster_changes_over_to_tls() {
    let home = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(home.path(), "peers");
    certificates.trust(&[&certificates.root]);
    let mut servers = standbys(home.path(), &["demo-1", "demo-2", "demo-3"]);
    for server in &mut servers[..2] {
        server.start();
    }
    certificates.found(&servers[0]).await;
    let url = servers[1].peer_url();
    certificates.take_in(&servers[..1], &servers[1], &url).await;
    let plain = servers[0].operator().describe(false).await.unwrap();
    assert!(!peer(&plain).tls && peer(&plain).plaintext_accepted);

    // The third member has certificates from the start and joins members that have none.
    change_over(&certificates, &mut servers[2]);
    servers[2].start();
    let url = servers[2].peer_url();
    certificates.take_in(&servers[..2], &servers[2], &url).await;
    let load = Load::start(&servers);
    for at in 0..2 {
        assert!(servers[at].terminate().await.success());
        change_over(&certificates, &mut servers[at]);
        servers[at].start();
        certificates
            .describes("it is ready", &servers[at], |description| description.ready)
            .await;
        certificates
            .led("all are in sync", &servers, async |_, description| {
                description
                    .members
                    .iter()
                    .all(|member| member.in_sync)
                    .then_some(())
            })
            .await;
    }
    for server in &servers {
        let description = certificates
            .describes("it accepts TLS and plain text", server, |description| {
                peer(description).tls
            })
            .await;
        assert!(
            peer(&description).plaintext_accepted,
            "members have http URLs"
        );
        assert!(server.operator().describe(false).await.is_ok());
    }
    for server in &servers {
        let url = server.peer_url().replace("http://", "https://");
        let name = server.name.clone();
        certificates
            .led(
                "its peer URL is https",
                &servers,
                async |mut operator, description| {
                    let member = description
                        .members
                        .iter()
                        .find(|member| member.name == name)?;
                    let urls = vec![url.clone()];
                    if member.peer_urls == urls {
                        return Some(());
                    }
                    let changed = operator.update_peer_urls(fence(&description), member.id, urls);
                    changed.await.ok()?;
                    None
                },
            )
            .await;
    }
    for server in &servers {
        certificates
            .describes("it refuses plain text", server, |description| {
                peer(description).tls && !peer(description).plaintext_accepted
            })
            .await;
        assert!(server.operator().describe(false).await.is_err());
        assert!(answer_to_a_plain_link(server).await.is_empty());
    }
    // A restarted member can link over TLS only.
    let written = servers[0].put("changed", "over").await;
    written.unwrap();
    servers[0].kill();
    servers[0].start();
    servers[0].holds("changed", "over").await;
    certificates
        .led("all are in sync", &servers, async |_, description| {
            description
                .members
                .iter()
                .all(|member| member.in_sync)
                .then_some(())
        })
        .await;
    let (written, longest) = load.end().await;
    println!("{written} writes, the longest took {longest:?}");
    for server in &servers {
        server.holds("load", &written.to_string()).await;
    }
}

fn change_over(certificates: &Certificates, server: &mut Server) {
    certificates.issue(server, hours(-1, 100));
    certificates.give(server);
    server.arguments.push("--peer-tls-transition".to_owned());
}

/// A member's answer to a link without TLS; empty if it closes the connection.
async fn answer_to_a_plain_link(server: &Server) -> Vec<u8> {
    let address = format!("{}:2380", server.address);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    // The server may close the connection at any time.
    let _ = stream.write_all(b"QUORATE\n\0\0\0\0\0\0\0\0").await;
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("the connection is closed");
    answer
}

/// A member's certificate expires. Its peers refuse it; the operator, which signs its calls and has no certificate of
/// its own, can still connect and reports the expiry. Replaced files are loaded without a restart, including those of
/// another CA once that is trusted.
#[tokio::test]
async fn expired_peer_certificate_is_reloaded() {
    let home = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(home.path(), "peers");
    certificates.trust(&[&certificates.root]);
    let mut servers = standbys(home.path(), &["demo-1", "demo-2"]);
    let mut shown = BTreeMap::new();
    for server in &mut servers {
        shown.insert(
            server.name.clone(),
            certificates.issue(server, hours(-1, 100)),
        );
        certificates.give(server);
        for argument in &mut server.arguments {
            if argument.starts_with("--initial-advertise-peer-urls=") {
                *argument = argument.replace("http://", "https://");
            }
        }
        // The client port accepts TLS and plain text.
        for argument in &mut server.arguments {
            if argument.starts_with("--listen-client-urls=") {
                *argument = argument.replace("http://", "https://");
            }
        }
        server.arguments.extend([
            format!("--cert-file={}", certificates.path(server, "crt").display()),
            format!("--key-file={}", certificates.path(server, "key").display()),
            "--client-plaintext".to_owned(),
        ]);
        server.start();
    }
    certificates.found(&servers[0]).await;
    let url = servers[1].peer_url().replace("http://", "https://");
    certificates.take_in(&servers[..1], &servers[1], &url).await;
    let root = Certificate::first(&certificates.root).unwrap().sha256;
    for server in &servers {
        let description = certificates.operator(server, false).describe(false).await;
        let description = description.unwrap();
        let port = peer(&description);
        assert!(port.tls && !port.plaintext_accepted);
        assert_eq!(port.certificate_sha256, shown[&server.name]);
        assert_eq!(port.trusted_sha256, std::slice::from_ref(&root));
        assert!(shown_by_command(home.path(), server).contains("peer port: TLS; "));
        let client = description.client_security.unwrap();
        assert!(client.tls && client.plaintext_accepted);
        assert_eq!(client.certificate_sha256, shown[&server.name]);
        assert!(
            client.trusted_sha256.is_empty(),
            "client certificates are not requested"
        );
        assert!(server.operator().describe(false).await.is_err());
        // The second member has just joined, and much of what a description says comes after that.
        until("it tells of what it describes", server, async || {
            let described = certificates.operator(server, false).describe(false).await;
            let digest = described.ok()?.digest;
            (certificates.told(server, digest ^ 1).await == Some(digest)).then_some(())
        })
        .await;
    }

    // The certificate expires; new links fail.
    let follower = &mut servers[1];
    follower.kill();
    let expired = certificates.issue(follower, hours(-3, -1));
    follower.start();
    let description = certificates
        .describes(
            "it reports the expired certificate",
            follower,
            |description| peer(description).certificate_sha256 == expired,
        )
        .await;
    let now = jiff::Timestamp::now().as_millisecond();
    assert!(peer(&description).not_after_ms < now && peer(&description).not_before_ms > 0);
    until(
        "the expired certificate is refused",
        &servers[0],
        async || {
            servers[0]
                .log()
                .to_lowercase()
                .contains("certificate expired")
                .then_some(())
        },
    )
    .await;
    assert!(metric(&servers[1]).await * 1000.0 < now as f64);
    let renewed = certificates.issue(&servers[1], hours(-1, 100));
    certificates
        .describes(
            "it reports the renewed certificate",
            &servers[1],
            |description| peer(description).certificate_sha256 == renewed,
        )
        .await;
    servers[0].serves("renewed").await;
    servers[1].holds("renewed", "1").await;
    assert!(metric(&servers[1]).await * 1000.0 > now as f64);

    // The CA is replaced: the new one is trusted as well, then signs, then the old one is removed.
    let next = Certificates::new(home.path(), "peers");
    certificates.trust(&[&next.root, &certificates.root]);
    for server in &servers {
        certificates
            .describes("it trusts both CAs", server, |description| {
                peer(description).trusted_sha256.len() == 2
            })
            .await;
    }
    for server in &servers {
        let signed = next.issue(server, hours(-1, 100));
        next.describes(
            "it reports a certificate of the new CA",
            server,
            |description| peer(description).certificate_sha256 == signed,
        )
        .await;
    }
    certificates.trust(&[&next.root]);
    for server in &servers {
        next.describes("it no longer trusts the old CA", server, |description| {
            peer(description).trusted_sha256.len() == 1
        })
        .await;
    }
    let mut late = certificates.operator(&servers[0], true);
    assert!(
        late.describe(false).await.is_err(),
        "an operator that trusts the old CA cannot connect"
    );
    servers[1].kill();
    servers[1].start();
    servers[1].serves("of the next authority").await;
}

/// The output of `quorate describe` for a server.
fn shown_by_command(home: &Path, server: &Server) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_quorate"))
        .arg("describe")
        .arg(format!("--address={}:2380", server.address))
        .arg(format!(
            "--operator-secret-file={}",
            home.join("secret").display()
        ))
        .arg(format!(
            "--trusted-ca-file={}",
            home.join("ca.crt").display()
        ))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// When the peer port's certificate expires, in Unix seconds.
async fn metric(server: &Server) -> f64 {
    let text = until("metrics are returned", server, async || {
        let address = format!("{}:2379", server.address);
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let ask = b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        stream.write_all(ask).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    })
    .await;
    let name = "quorate_certificate_expiry_timestamp_seconds{port=\"peer\"} ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("shown").parse().unwrap()
}
