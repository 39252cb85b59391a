//! Processes of Quorate and of real etcd, each with its own directory and ports.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The timeout of any step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The directory of etcd's binaries; `None`, with a message, if they have not been built.
pub(crate) fn peers(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/bin");
    let directory = std::env::var_os("QUORATE_PEERS").map_or(built, PathBuf::from);
    if directory.join("etcd").is_file() {
        // Servers run in directories of their own, so the path has to be absolute.
        return Some(std::path::absolute(directory).expect("a path"));
    }
    let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "etcd_compatibility::{test} needs real etcd in {}",
        directory.display()
    );
    // Written to the handle directly: the test harness captures the macros' output of a passing test.
    let text =
        format!("skipped: etcd_compatibility::{test} (no real etcd: run tests/interop/build.sh)\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// A loopback address with a port that was free a moment ago; each is returned once. The ports are below the range
/// from which the kernel assigns ports to outgoing connections, so that none is taken in between.
pub(crate) fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id() % 600 * 20;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < 12_000, "no free port");
        let address = format!("127.0.0.1:{}", 20_000 + (start + number) % 12_000);
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Quorate,
    Etcd,
}

/// A cluster of one member; killed when dropped.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// `host:port` of the client port.
    pub(crate) client: String,
    process: Child,
    log: PathBuf,
    directory: tempfile::TempDir,
}

impl Node {
    /// Starts a cluster of one member with these additional flags, and waits until it serves.
    pub(crate) fn start(kind: Kind, peers: &Path, flags: &[&str]) -> Node {
        let flags = [flags, &["--unsafe-no-fsync"]].concat();
        let mut nodes = Node::cluster(kind, peers, 1, &flags);
        nodes.remove(0)
    }

    /// The same with several members.
    pub(crate) fn cluster(kind: Kind, peers: &Path, size: usize, flags: &[&str]) -> Vec<Node> {
        let scheme = match flags.contains(&"--peer-auto-tls") {
            true => "https",
            false => "http",
        };
        let addresses: Vec<_> = (0..size)
            .map(|_| (free_address(), free_address()))
            .collect();
        let initial: Vec<String> = addresses
            .iter()
            .enumerate()
            .map(|(number, (_, peer))| format!("n{number}={scheme}://{peer}"))
            .collect();
        let initial = format!("--initial-cluster={}", initial.join(","));
        let mut nodes: Vec<Node> = addresses
            .iter()
            .enumerate()
            .map(|(number, (client, peer))| {
                let own = [
                    format!("--name=n{number}"),
                    format!("--listen-client-urls=http://{client}"),
                    format!("--advertise-client-urls=http://{client}"),
                    format!("--listen-peer-urls={scheme}://{peer}"),
                    format!("--initial-advertise-peer-urls={scheme}://{peer}"),
                    initial.clone(),
                ];
                Node::launch(kind, peers, client, &own, flags)
            })
            .collect();
        for node in &mut nodes {
            node.wait();
        }
        nodes
    }

    fn launch(kind: Kind, peers: &Path, client: &str, own: &[String], flags: &[&str]) -> Node {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let open = || {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&log);
            file.expect("a log file")
        };
        let mut command = match kind {
            Kind::Etcd => Command::new(peers.join("etcd")),
            Kind::Quorate => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
                command.arg("server");
                command
            }
        };
        let data = directory.path().join("data");
        let process = command
            .arg(format!("--data-dir={}", data.display()))
            .args(own)
            .args(flags)
            .env_clear()
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("it starts");
        Node {
            kind,
            client: client.to_owned(),
            process,
            log,
            directory,
        }
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while !self.log().contains("ready to serve client requests") {
            let ended = self.process.try_wait().expect("its state");
            assert!(
                ended.is_none() && start.elapsed() < PATIENCE,
                "{:?} does not serve ({ended:?}):\n{}",
                self.kind,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The working directory of the server.
    pub(crate) fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// Sends SIGTERM and waits until the process exits.
    pub(crate) fn terminate(&mut self) {
        let id = self.process.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.expect("kill runs").success());
        let start = Instant::now();
        while self.process.try_wait().expect("its state").is_none() {
            assert!(
                start.elapsed() < PATIENCE,
                "it does not stop:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One member of ours and one of etcd, with the same flags; `None`, with a message, if etcd has not been built.
pub(crate) fn pair(test: &str, flags: &[&str]) -> Option<[Node; 2]> {
    let peers = peers(test)?;
    Some([Kind::Quorate, Kind::Etcd].map(|kind| Node::start(kind, &peers, flags)))
}
