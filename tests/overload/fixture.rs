//! Server processes, each with its own data directory and address.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::{PutRequest, RangeRequest};
use tonic::transport::Channel;

/// The timeout of any wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A unique loopback address, one per process and call.
fn address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("127.{}.{low}.{number}", high | 64)
}

/// A number from the environment.
pub(crate) fn size(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Prints a figure even if the test passes.
pub(crate) fn figure(text: &str) {
    let _ = writeln!(std::io::stderr(), "figure: {text}");
}

/// A server; killed when dropped.
pub(crate) struct Server {
    name: String,
    host: String,
    folder: PathBuf,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// A server that is not started yet.
    pub(crate) fn new(home: &Path, name: &str) -> Server {
        Server {
            name: name.to_owned(),
            host: address(),
            folder: home.join(name),
            arguments: Vec::new(),
            process: None,
        }
    }

    /// A cluster of one member without syncs, once it serves.
    pub(crate) async fn alone(home: &Path) -> Server {
        let mut server = Server::new(home, "one");
        server.arguments.push("--unsafe-no-fsync".to_owned());
        server.start();
        server.serves().await;
        server
    }

    /// A cluster of three members on a real disk, once each serves.
    pub(crate) async fn three(home: &Path) -> Vec<Server> {
        let mut servers: Vec<Server> = (1..=3)
            .map(|number| Server::new(home, &format!("n{number}")))
            .collect();
        let initial: Vec<String> = servers
            .iter()
            .map(|server| format!("{}=http://{}:2380", server.name, server.host))
            .collect();
        for server in &mut servers {
            let flag = format!("--initial-cluster={}", initial.join(","));
            server.arguments.push(flag);
            server.start();
        }
        for server in &servers {
            server.serves().await;
        }
        servers
    }

    /// Starts the process, or restarts it.
    pub(crate) fn start(&mut self) {
        let log = || {
            let path = self.folder.with_extension("log");
            File::options().create(true).append(true).open(path)
        };
        let host = &self.host;
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command
            .arg("server")
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.folder.display()))
            .arg(format!("--listen-client-urls=http://{host}:2379"))
            .arg(format!("--advertise-client-urls=http://{host}:2379"))
            .arg(format!("--listen-peer-urls=http://{host}:2380"))
            .arg(format!("--initial-advertise-peer-urls=http://{host}:2380"))
            .arg("--log-level=error")
            .args(&self.arguments)
            .env_clear()
            .stdout(log().expect("a log"))
            .stderr(log().expect("a log"));
        self.process = Some(command.spawn().expect("starts"));
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}:2379", self.host)
    }

    /// A new connection.
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(self.endpoint()).expect("a URL");
        endpoint.connect().await.expect("connects")
    }

    pub(crate) async fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel().await)
    }

    /// Waits until a linearizable read is answered.
    pub(crate) async fn serves(&self) {
        let begun = Instant::now();
        loop {
            let endpoint = Channel::from_shared(self.endpoint()).expect("a URL");
            let endpoint = endpoint.timeout(Duration::from_secs(5));
            let mut client = KvClient::new(endpoint.connect_lazy());
            let request = RangeRequest {
                key: "none".into(),
                ..RangeRequest::default()
            };
            if client.range(request).await.is_ok() {
                return;
            }
            let log = std::fs::read_to_string(self.folder.with_extension("log"));
            let log = log.unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "it does not serve:\n{log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The resident memory of the process, in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let id = self.process.as_ref().expect("it runs").id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<f64>().ok()).expect("a size") / 1024.0
    }

    /// Sends SIGTERM, as an init system does, and waits until the process exits successfully.
    pub(crate) async fn terminate(&mut self) {
        let mut process = self.process.take().expect("it runs");
        let id = process.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.expect("kill runs").success());
        let begun = Instant::now();
        loop {
            if let Some(status) = process.try_wait().expect("a child process") {
                assert!(status.success(), "{} ended with {status}", self.name);
                return;
            }
            if begun.elapsed() > PATIENCE {
                let _ = process.kill();
                let _ = process.wait();
            }
            assert!(begun.elapsed() <= PATIENCE, "{} does not stop", self.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A put.
pub(crate) fn put(key: impl Into<String>, value: Vec<u8>) -> PutRequest {
    PutRequest {
        key: key.into().into(),
        value: value.into(),
        ..PutRequest::default()
    }
}
