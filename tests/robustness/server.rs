//! Members as processes on loopback: started, stopped, killed, paused, moved to another disk. Each listens on its own
//! address and advertises that of a proxy to its peers.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address::address;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{MemberListRequest, RangeRequest, StatusRequest, StatusResponse};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

use crate::proxy::{self, Network};

/// Longer than any step takes on a slow machine; reached only if something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const CLIENT_PORT: u16 = 12_379;
const PEER_PORT: u16 = 12_380;
const PROXY_PORT: u16 = 12_381;

/// The faults of one member's disk and clock: the shared page of `faults.c`.
#[derive(Clone, Debug)]
pub(crate) struct Page(Arc<File>);

/// Offsets in the page.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Place {
    SyncMicros = 0,
    SyncErrno = 1,
    WriteErrno = 2,
    ClockSeconds = 3,
    SyncsDelayed = 8,
    SyncsFailed = 9,
    WritesFailed = 10,
    ClocksRead = 11,
}

impl Page {
    fn create(path: &Path) -> Page {
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
            .expect("a page of faults");
        file.set_len(4096).expect("its size");
        Page(Arc::new(file))
    }

    pub(crate) fn set(&self, place: Place, value: i64) {
        let at = place as u64 * 8;
        let written = self.0.write_all_at(&value.to_ne_bytes(), at);
        written.expect("a page of faults");
    }

    pub(crate) fn get(&self, place: Place) -> u64 {
        let mut bytes = [0; 8];
        let read = self.0.read_exact_at(&mut bytes, place as u64 * 8);
        read.expect("a page of faults");
        u64::from_ne_bytes(bytes)
    }
}

/// A member, running or not.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) page: Page,
    address: String,
    home: PathBuf,
    /// The arguments that make it part of its cluster.
    pub(crate) membership: Vec<String>,
    child: Option<Child>,
    proxy: tokio::task::JoinHandle<()>,
}

/// Builds the library that is preloaded into every server.
pub(crate) fn build_faults(home: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/robustness/faults.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(home.join("faults.so"))
        .args([source, "-ldl"])
        .status();
    assert!(
        built.expect("cc runs").success(),
        "cc cannot build {source}"
    );
}

/// The binary under test: `$QUORATE`, or the one of this build.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("QUORATE").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_quorate")),
        PathBuf::from,
    )
}

impl Server {
    /// A member that is not started yet, with its proxy.
    pub(crate) async fn new(home: &Path, name: &str, network: &Arc<Network>) -> Server {
        let address = address();
        let listener = TcpListener::bind(format!("{address}:{PROXY_PORT}")).await;
        let target = format!("{address}:{PEER_PORT}");
        let proxy = proxy::serve(
            Arc::clone(network),
            listener.expect("a loopback address of its own"),
            name.to_owned(),
            target,
        );
        Server {
            name: name.to_owned(),
            page: Page::create(&home.join(format!("{name}.faults"))),
            address,
            home: home.to_owned(),
            membership: Vec::new(),
            child: None,
            proxy: tokio::spawn(proxy),
        }
    }

    /// The URL that its peers dial.
    pub(crate) fn peer_url(&self) -> String {
        format!("http://{}:{PROXY_PORT}", self.address)
    }

    /// The URL that clients dial.
    pub(crate) fn client_url(&self) -> String {
        format!("http://{}:{CLIENT_PORT}", self.address)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.join(&self.name)
    }

    /// The record of the bytes that its unsynced writes replaced.
    pub(crate) fn undo(&self) -> PathBuf {
        self.home.join(format!("{}.faults.undo", self.name))
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.home.join(format!("{}.log", self.name)))
            .expect("a log file");
        let client = self.client_url();
        let child = Command::new(binary())
            .arg("server")
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!(
                "--listen-peer-urls=http://{}:{PEER_PORT}",
                self.address
            ))
            .arg(format!("--initial-advertise-peer-urls={}", self.peer_url()))
            .args([
                "--heartbeat-interval=100",
                "--election-timeout=1000",
                "--snapshot-count=100",
                "--watch-progress-notify-interval=500ms",
                // The members also compare their data themselves.
                "--feature-gates=CompactHashCheck=true",
                "--compact-hash-check-time=5s",
            ])
            .args(&self.membership)
            .env("LD_PRELOAD", self.home.join("faults.so"))
            .env("FAULTS", self.home.join(format!("{}.faults", self.name)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the binary runs"));
    }

    /// SIGKILL: nothing is flushed, no peer is notified.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let Some(child) = &self.child else { return };
        let done = Command::new("kill")
            .args(["-s", name, &child.id().to_string()])
            .status();
        assert!(done.expect("kill runs").success());
    }

    /// Waits until the process exits by itself; `None` if it does not.
    pub(crate) async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child process") {
                self.child = None;
                return Some(status);
            }
            if begun.elapsed() > within {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The end of its log, for error messages.
    pub(crate) fn last_words(&self) -> String {
        let path = self.home.join(format!("{}.log", self.name));
        let log = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    pub(crate) fn channel(&self) -> Channel {
        channel(&self.client_url(), Duration::from_secs(5))
    }

    pub(crate) async fn status(&self) -> Option<StatusResponse> {
        let channel = channel(&self.client_url(), Duration::from_secs(1));
        let answer = MaintenanceClient::new(channel)
            .status(StatusRequest {})
            .await;
        Some(answer.ok()?.into_inner())
    }

    /// Whether it answers a linearizable read.
    pub(crate) async fn serves(&self) -> bool {
        let request = RangeRequest {
            key: "none".into(),
            ..RangeRequest::default()
        };
        KvClient::new(self.channel()).range(request).await.is_ok()
    }

    /// The member list of this member.
    pub(crate) async fn members(&self) -> Option<Vec<quorate::wire::etcd::Member>> {
        let request = MemberListRequest { linearizable: true };
        let answer = ClusterClient::new(self.channel())
            .member_list(request)
            .await;
        Some(answer.ok()?.into_inner().members)
    }
}

/// A channel that connects on first use, with a timeout for each call.
pub(crate) fn channel(url: &str, limit: Duration) -> Channel {
    Endpoint::from_shared(url.to_owned())
        .expect("a URL")
        .connect_timeout(limit)
        .timeout(limit)
        .connect_lazy()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        self.proxy.abort();
    }
}
