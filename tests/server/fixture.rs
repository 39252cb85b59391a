//! A server process with its own data directory and address.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{self, watch_client::WatchClient};
use tempfile::TempDir;
use tonic::transport::Channel;

/// The binary under test.
pub(crate) fn binary() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_quorate")))
}

/// The same with this limit of open files.
fn limited(files: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_quorate"));
    without_settings(command)
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ETCD_") || text.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the server until it exits by itself; returns its exit code and standard error.
pub(crate) fn refused(arguments: &[&str]) -> (i32, String) {
    let output = binary()
        .arg("server")
        .args(arguments)
        .output()
        .expect("runs");
    ended(&output)
}

/// The same with this limit of open files.
pub(crate) fn refused_under(files: u32, arguments: &[&str]) -> (i32, String) {
    let output = limited(files).arg("server").args(arguments).output();
    ended(&output.expect("runs"))
}

/// Exit code and standard error.
pub(crate) fn ended(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

/// The output of a command that succeeded.
pub(crate) fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The error of a command that ended with this code.
pub(crate) fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A unique loopback address, one per process and call.
pub(crate) fn address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    format!(
        "127.{}.{}.{}",
        high.max(1),
        low,
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    process: Child,
    /// The host of the client port and the peer port.
    pub(crate) host: String,
    /// The folder with its data directory.
    folder: TempDir,
}

impl Server {
    /// Starts a cluster of one member and waits until it serves.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("folder");
        Server::in_folder(binary(), folder, address(), arguments, "/health")
    }

    /// The same with this variable of the environment.
    pub(crate) fn with_variable((name, value): (&str, &str), arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("folder");
        let mut command = binary();
        command.env(name, value);
        Server::in_folder(command, folder, address(), arguments, "/health")
    }

    /// The same with this limit of open files.
    pub(crate) fn limited(files: u32, arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("folder");
        Server::in_folder(limited(files), folder, address(), arguments, "/health")
    }

    /// The same, started through another program.
    pub(crate) fn pinned(by: &[&str], arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("folder");
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(env!("CARGO_BIN_EXE_quorate"));
        let command = without_settings(command);
        let mut server = Server::in_folder(command, folder, address(), arguments, "/health");
        // A full pipe would block a server that logs a lot.
        if let Some(mut log) = server.process.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        }
        server
    }

    /// The same from a snapshot. Waits with `/readyz`, because `/health` fails while an alarm is active.
    pub(crate) fn restored(snapshot: &str, arguments: &[&str]) -> Server {
        let (host, folder) = (address(), tempfile::tempdir().expect("folder"));
        let done = binary()
            .args(["restore", snapshot, "--name=one", "--data-dir"])
            .arg(folder.path().join("data"))
            .arg(format!("--initial-cluster=one=http://{host}:2380"))
            .arg(format!("--initial-advertise-peer-urls=http://{host}:2380"))
            .output()
            .expect("runs");
        assert!(done.status.success(), "{done:?}");
        Server::in_folder(binary(), folder, host, arguments, "/readyz")
    }

    fn in_folder(
        mut command: Command,
        folder: TempDir,
        host: String,
        arguments: &[&str],
        probe: &str,
    ) -> Server {
        let process = command
            .arg("server")
            .arg(format!(
                "--data-dir={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--listen-client-urls=http://{host}:2379"))
            .arg(format!("--advertise-client-urls=http://{host}:2379"))
            .arg(format!("--listen-peer-urls=http://{host}:2380"))
            .arg(format!("--initial-advertise-peer-urls=http://{host}:2380"))
            .args(["--name=one", "--unsafe-no-fsync", "--log-level=warn"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut server = Server {
            process,
            host,
            folder,
        };
        server.wait(probe);
        server
    }

    #[expect(clippy::panic, reason = "a test's fixture fails the test")]
    fn wait(&mut self, probe: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if self.get(probe).starts_with("HTTP/1.1 200") {
                return;
            }
            let ended = self.process.try_wait().expect("waits");
            if ended.is_some() || Instant::now() > deadline {
                let _ = self.process.kill();
                let mut log = String::new();
                if let Some(mut stderr) = self.process.stderr.take() {
                    let _ = stderr.read_to_string(&mut log);
                }
                panic!("the server does not answer: {ended:?}\n{log}");
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The raw response to a plain HTTP request; empty if there is none.
    pub(crate) fn get(&self, path: &str) -> String {
        use std::io::Write as _;
        let Ok(mut stream) = std::net::TcpStream::connect((self.host.as_str(), 2379)) else {
            return String::new();
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A new connection.
    pub(crate) async fn channel(&self) -> Channel {
        let url = format!("http://{}:2379", self.host);
        Channel::from_shared(url)
            .expect("url")
            .connect()
            .await
            .expect("connects")
    }

    /// A client of the KV service.
    pub(crate) async fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel().await).max_encoding_message_size(64 << 20)
    }

    /// A client of the Watch service.
    pub(crate) async fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel().await)
    }

    /// A client of the Cluster service.
    pub(crate) async fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel().await)
    }

    /// A client of the Maintenance service.
    pub(crate) async fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel().await)
    }

    /// The number of its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The resident memory of the process.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        kilobytes
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
            * 1024
    }

    /// The names in its data directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path().join("data")).expect("a directory");
        let name = |name: std::io::Result<std::fs::DirEntry>| name.expect("a name").file_name();
        names
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    }

    /// Sends SIGTERM, as an init system does; returns its exit code and log.
    pub(crate) fn terminate(mut self) -> (i32, String) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        let mut log = String::new();
        if let Some(stderr) = self.process.stderr.take() {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                log += &line;
                log.push('\n');
            }
        }
        let status = self.process.wait().expect("ends");
        (status.code().unwrap_or(-1), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A put of a key.
pub(crate) fn put(key: &str, value: &str) -> etcd::PutRequest {
    etcd::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..Default::default()
    }
}

/// A range over every key.
pub(crate) fn everything() -> etcd::RangeRequest {
    etcd::RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..Default::default()
    }
}
