//! Clusters of Quorate's server or of real etcd, started with etcd's flags and without an operator.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{Running, eventually, finish};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Quorate,
    Etcd,
}

pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) client: String,
    pub(crate) peer: String,
    process: Option<Running>,
}

pub(crate) struct Cluster {
    pub(crate) kind: Kind,
    peers: PathBuf,
    directory: tempfile::TempDir,
    /// Additional flags for every member.
    extra: Vec<String>,
    /// Whether clients use TLS; the certificates are in the cluster's directory.
    tls: bool,
    pub(crate) members: Vec<Member>,
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

impl Cluster {
    /// Starts a cluster and waits until every member answers a linearizable read.
    pub(crate) fn start(kind: Kind, peers: &Path, size: usize) -> Cluster {
        Cluster::start_with(kind, peers, size, &[])
    }

    /// The same with additional flags for every member.
    pub(crate) fn start_with(kind: Kind, peers: &Path, size: usize, extra: &[String]) -> Cluster {
        let mut cluster = Cluster::blank(kind, peers, size);
        cluster.extra = extra.to_vec();
        cluster.start_all();
        cluster
    }

    /// The same with one member, and TLS for clients. `certificates` writes `ca.crt`, `server.crt`, `server.key`,
    /// `client.crt` and `client.key` into the cluster's directory.
    pub(crate) fn start_secured(
        kind: Kind,
        peers: &Path,
        certificates: impl Fn(&Path),
        extra: &[String],
    ) -> Cluster {
        let cluster = Cluster::blank(kind, peers, 1);
        cluster.start_with_tls(certificates, extra)
    }

    /// Starts a cluster that was not started yet in this way.
    pub(crate) fn start_with_tls(
        mut self,
        certificates: impl Fn(&Path),
        extra: &[String],
    ) -> Cluster {
        certificates(self.directory.path());
        self.extra = extra.to_vec();
        for (flag, file) in [
            ("cert-file", "server.crt"),
            ("key-file", "server.key"),
            ("trusted-ca-file", "ca.crt"),
        ] {
            let path = self.file(file);
            self.extra.push(format!("--{flag}={path}"));
        }
        self.tls = true;
        self.start_all();
        self
    }

    /// The same path as text.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn start_all(&mut self) {
        for number in 0..self.members.len() {
            self.run(number, "new");
        }
        for number in 0..self.members.len() {
            self.wait_healthy(number);
        }
    }

    /// A cluster that is not started yet, for data directories that a restore creates.
    pub(crate) fn blank(kind: Kind, peers: &Path, size: usize) -> Cluster {
        Cluster {
            kind,
            peers: peers.to_owned(),
            directory: tempfile::tempdir().expect("a directory"),
            extra: Vec::new(),
            tls: false,
            members: (0..size).map(Member::new).collect(),
        }
    }

    /// A path in the cluster's directory, next to the members' data.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The flags for restoring a member; both tools accept them.
    pub(crate) fn restore_flags(&self, number: usize) -> Vec<String> {
        let initial: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}=http://{}", member.name, member.peer))
            .collect();
        let member = &self.members[number];
        vec![
            format!("--name={}", member.name),
            format!("--data-dir={}", self.path(&member.name).display()),
            format!("--initial-cluster={}", initial.join(",")),
            format!("--initial-advertise-peer-urls=http://{}", member.peer),
            "--initial-cluster-token=test".to_owned(),
        ]
    }

    /// Adds a further member's name and addresses, without starting it.
    pub(crate) fn prepare(&mut self) -> usize {
        self.members.push(Member::new(self.members.len()));
        self.members.len() - 1
    }

    /// Starts the process of a member.
    pub(crate) fn run(&mut self, number: usize, state: &str) {
        let initial: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}=http://{}", member.name, member.peer))
            .collect();
        let member = &self.members[number];
        let data = self.directory.path().join(&member.name);
        let client = format!("{}://{}", self.scheme(), member.client);
        let flags = [
            ("name", member.name.clone()),
            ("data-dir", data.display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", format!("http://{}", member.peer)),
            (
                "initial-advertise-peer-urls",
                format!("http://{}", member.peer),
            ),
            ("initial-cluster", initial.join(",")),
            ("initial-cluster-state", state.to_owned()),
            ("initial-cluster-token", "test".to_owned()),
        ];
        let mut arguments: Vec<String> = flags
            .iter()
            .map(|(flag, value)| format!("--{flag}={value}"))
            .chain(self.extra.iter().cloned())
            .collect();
        let program = match self.kind {
            Kind::Quorate => {
                arguments.insert(0, "server".to_owned());
                PathBuf::from(env!("CARGO_BIN_EXE_quorate"))
            }
            Kind::Etcd => self.peers.join("etcd"),
        };
        let log = self.directory.path().join(format!("{}.log", member.name));
        self.members[number].process = Some(Running::start(&program, &arguments, log));
    }

    /// Kills a member.
    pub(crate) fn stop(&mut self, number: usize) {
        self.members[number].process = None;
    }

    /// Waits until a member answers a linearizable read.
    pub(crate) fn wait_healthy(&mut self, number: usize) {
        let healthy = eventually(|| {
            let ended = self.members[number]
                .process
                .as_mut()
                .is_none_or(Running::has_ended);
            ended
                || self
                    .ctl(number, &["get", "health", "--command-timeout=2s"], "")
                    .status
                    == 0
        });
        let process = self.members[number].process.as_mut();
        let ended = process.is_none_or(Running::has_ended);
        assert!(
            healthy && !ended,
            "member {number} is not healthy:\n{}",
            self.logs()
        );
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// etcdctl's flags for reaching a member. Its own five seconds would measure how busy the machine is; a story about a
    /// timeout names its own, and the last flag counts.
    fn endpoint(&self, number: usize) -> Vec<String> {
        let client = &self.members[number].client;
        let mut flags = vec![
            format!("--endpoints={}://{client}", self.scheme()),
            "--command-timeout=30s".to_owned(),
        ];
        if self.tls {
            for (flag, file) in [
                ("cacert", "ca.crt"),
                ("cert", "client.crt"),
                ("key", "client.key"),
            ] {
                flags.push(format!("--{flag}={}", self.file(file)));
            }
        }
        flags
    }

    /// Runs etcdctl against one member.
    pub(crate) fn ctl(&self, number: usize, arguments: &[&str], input: &str) -> Answer {
        let mut all = self.endpoint(number);
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let output = finish(&self.peers.join("etcdctl"), &all, input);
        Answer {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs etcdctl against one member and expects it to succeed.
    pub(crate) fn must(&self, number: usize, arguments: &[&str]) -> String {
        let answer = self.ctl(number, arguments, "");
        let failed = format!("{:?}: etcdctl {arguments:?} failed: {answer:?}", self.kind);
        assert!(answer.status == 0, "{failed}\n{}", self.logs());
        answer.stdout
    }

    /// Runs etcdctl against one member for a change of the membership, and retries while the response is that members
    /// have not been connected for long enough: etcd's strict check requires five seconds after a start, and so does
    /// ours.
    pub(crate) fn change(&self, number: usize, arguments: &[&str]) -> Answer {
        let mut answer = self.ctl(number, arguments, "");
        let answered = eventually(|| {
            let early = answer.stderr.contains("unhealthy cluster");
            if early {
                answer = self.ctl(number, arguments, "");
            }
            !early
        });
        assert!(answered, "{answer:?}\n{}", self.logs());
        answer
    }

    /// Runs etcdctl against one member and parses what it prints.
    pub(crate) fn json(&self, number: usize, arguments: &[&str]) -> serde_json::Value {
        let mut all = arguments.to_vec();
        all.extend(["-w", "json"]);
        let text = self.must(number, &all);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Starts etcdctl against one member and leaves it running.
    pub(crate) fn follow(&self, number: usize, arguments: &[&str]) -> Running {
        let mut all = self.endpoint(number);
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let log = tempfile::NamedTempFile::new_in(self.directory.path()).expect("a file");
        let log = log.into_temp_path().keep().expect("a file that stays");
        Running::start(&self.peers.join("etcdctl"), &all, log)
    }

    /// ID of a member, as etcdctl writes it.
    pub(crate) fn id(&self, number: usize) -> String {
        let name = format!(", {},", self.members[number].name);
        let peer = format!("http://{}", self.members[number].peer);
        let list = self.must(self.serving(number), &["member", "list"]);
        let line = list
            .lines()
            .find(|line| line.contains(&name) || line.contains(&peer));
        let line = line.unwrap_or_else(|| panic!("no member {number} in\n{list}"));
        line.split(',').next().unwrap_or_default().to_owned()
    }

    /// Another running member, or this one if there is none.
    fn serving(&self, other: usize) -> usize {
        let mut running = (0..self.members.len()).filter(|at| self.members[*at].process.is_some());
        running.find(|at| *at != other).unwrap_or(other)
    }

    /// The number of the member that leads.
    pub(crate) fn leader(&self) -> usize {
        let mut leader = None;
        let found = eventually(|| {
            let status = self.json(self.serving(usize::MAX), &["endpoint", "status"]);
            let id = &status[0]["Status"]["leader"];
            let hex = id.as_u64().map(|id| format!("{id:x}"));
            leader = (0..self.members.len())
                .filter(|at| self.members[*at].process.is_some())
                .find(|at| Some(self.id(*at)) == hex);
            leader.is_some()
        });
        assert!(found, "no leader:\n{}", self.logs());
        leader.unwrap_or_default()
    }

    /// The last lines of every member's log, for a failed test.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for member in &self.members {
            let path = self.directory.path().join(format!("{}.log", member.name));
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            text.push_str(&format!("--- {:?} {}\n{tail}\n", self.kind, member.name));
        }
        text
    }
}

impl Member {
    fn new(number: usize) -> Member {
        Member {
            name: format!("m{number}"),
            client: free_address(),
            peer: free_address(),
            process: None,
        }
    }
}

/// etcdctl's output.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}
