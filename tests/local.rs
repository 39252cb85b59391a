//! Runs `quorate local` as a user would: a cluster grows, a killed member comes back with its data, a lost disk is
//! replaced, and the cluster continues when the command is run again after a stop. Its console follows it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorate::operator::local::writer::Client;
use serde_json::Value;
use tokio::sync::watch;

/// The timeout of each wait.
const BOUND: Duration = Duration::from_secs(60);

const RESOURCE: &str = "apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: test}
spec:
  replicas: 3
  storage: {size: 1Gi}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
";

/// A running `quorate local`; killed with all its members when dropped.
struct Local {
    child: Child,
    directory: PathBuf,
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Local {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    fn start_with(folder: &Path, flags: &[&str]) -> Self {
        let directory = folder.join("cluster");
        let child = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .arg("local")
            .arg(folder.join("test.yaml"))
            .arg("--dir")
            .arg(&directory)
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the built program starts");
        Self { child, directory }
    }

    fn state(&self) -> Value {
        let text = std::fs::read_to_string(self.directory.join("state.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn until(&mut self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let state = self.state();
            if so(&state) {
                return state;
            }
            let late = started.elapsed() > BOUND;
            let mut output = String::new();
            if late {
                let _ = self.child.kill();
                let out = self.child.stdout.as_mut().expect("it is piped");
                let _ = out.read_to_string(&mut output);
            }
            assert!(!late, "timed out waiting for {what}; the output:\n{output}");
            wait();
        }
    }

    /// The process ID of a member.
    fn pid(&self, member: &str) -> Option<i32> {
        let name = format!("--name={member}");
        let directory = self.directory.canonicalize().ok()?.display().to_string();
        std::fs::read_dir("/proc")
            .ok()?
            .flatten()
            .find_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let line = std::fs::read(entry.path().join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).into_owned();
                (line.contains(&directory) && line.split('\0').any(|word| word == name))
                    .then_some(pid)
            })
    }

    /// Where its console is: `127.0.0.1:PORT`. The output is read on, so that the program is never held up by it.
    fn console(&mut self) -> String {
        let out = self.child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let found = lines.find_map(|line| {
            let (_, rest) = line.split_once("console: http://")?;
            Some(rest.trim_end_matches('/').to_owned())
        });
        std::thread::spawn(move || lines.for_each(drop));
        found.expect("it is printed")
    }

    fn client(&self) -> Client {
        let state = self.state();
        let ports = state["ports"].as_object().expect("ports").values();
        let urls = ports
            .map(|ports| format!("http://127.0.0.1:{}", ports["client"]))
            .collect();
        let (keep, endpoints) = watch::channel(urls);
        std::mem::forget(keep);
        Client::new(endpoints)
    }

    /// Sends Ctrl-C and returns the exit code.
    fn stop(mut self) -> Option<i32> {
        signal(
            i32::try_from(self.child.id()).expect("a process ID"),
            libc::SIGINT,
        );
        let started = Instant::now();
        loop {
            match self.child.try_wait().expect("a child of ours") {
                Some(status) => return status.code(),
                None => assert!(started.elapsed() < BOUND, "it does not stop"),
            }
            wait();
        }
    }
}

/// Waits a moment for other processes.
#[allow(clippy::disallowed_methods)]
fn wait() {
    std::thread::sleep(Duration::from_millis(100));
}

#[allow(unsafe_code)]
fn signal(pid: i32, number: i32) {
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

/// The healthy voters: name and ID.
fn voters(state: &Value) -> Vec<(String, String)> {
    let members = state["status"]["members"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let healthy = members
        .iter()
        .filter(|m| m["role"] == "Voter" && m["health"] == "Healthy");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    healthy
        .map(|member| (text(&member["name"]), text(&member["id"])))
        .collect()
}

fn names(state: &Value) -> Vec<String> {
    voters(state).into_iter().map(|(name, _)| name).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn put(local: &Local, key: &str, value: &str) {
    let mut client = local.client();
    let done = runtime().block_on(async {
        let mut last = Ok(());
        for _ in 0..20 {
            last = client.put(key, value).await;
            if last.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        last
    });
    done.expect("written");
}

fn list(local: &Local) -> Vec<(String, String)> {
    let mut client = local.client();
    let found = runtime().block_on(async {
        let mut last = Err(String::new());
        for _ in 0..20 {
            last = client.list("k/").await;
            if last.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        last
    });
    found.expect("read")
}

#[test]
fn a_cluster_lives_on_this_machine() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("test.yaml"), RESOURCE).expect("written");
    let mut local = Local::start(folder.path());
    let state = local.until("three voters", |state| voters(state).len() == 3);
    assert_eq!(names(&state), ["test-1", "test-2", "test-3"]);
    put(&local, "k/1", "before");

    // A killed member comes back as the same member, with its data.
    let first = local.pid("test-2").expect("a process");
    signal(first, libc::SIGKILL);
    let started = Instant::now();
    while local.pid("test-2").is_none_or(|pid| pid == first) {
        assert!(started.elapsed() < BOUND, "test-2 does not come back");
        wait();
    }
    let before = voters(&state);
    local.until("the same three voters", |state| voters(state) == before);
    put(&local, "k/2", "after the kill");

    // One that is fenced is stopped, and stays so, until its name is taken out.
    let file = folder.path().join("test.yaml");
    let named = "{name: test, annotations: {quorate.dev/fenced: test-2}}";
    std::fs::write(&file, RESOURCE.replace("{name: test}", named)).expect("written");
    let fenced = |state: &Value| state["sets"]["test-2"]["asleep"] == true;
    local.until("a fenced member", fenced);
    let started = Instant::now();
    while local.pid("test-2").is_some() {
        assert!(started.elapsed() < BOUND, "test-2 is not stopped");
        wait();
    }
    put(&local, "k/2", "beside the fence");
    std::fs::write(&file, RESOURCE).expect("written");
    let started = Instant::now();
    while local.pid("test-2").is_none() {
        assert!(started.elapsed() < BOUND, "test-2 does not come back");
        wait();
    }
    local.until("the same three voters", |state| {
        voters(state) == before && !fenced(state)
    });
    put(&local, "k/2", "after the fence");

    // A member whose disk is lost is removed, and replaced under a new name.
    let pvc = state["sets"]["test-3"]["claim"]
        .as_str()
        .expect("a PVC")
        .to_owned();
    std::fs::remove_dir_all(local.directory.join("claims").join(pvc)).expect("removed");
    local.until("a replacement", |state| {
        names(state) == ["test-1", "test-2", "test-4"]
    });
    put(&local, "k/3", "after the loss");
    let all = list(&local);
    let keys: Vec<&str> = all.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["k/1", "k/2", "k/3"]);

    // It stops gracefully, leaves no process running, and continues with its data at the next start.
    let member = local.pid("test-1").expect("a process");
    assert_eq!(local.stop(), Some(0));
    assert!(
        !Path::new(&format!("/proc/{member}")).exists(),
        "a member is left running"
    );
    let mut local = Local::start(folder.path());
    let started = Instant::now();
    while local.pid("test-4").is_none() {
        assert!(started.elapsed() < BOUND, "test-4 does not come back");
        wait();
    }
    local.until("the same voters", |state| {
        names(state) == ["test-1", "test-2", "test-4"]
    });
    assert_eq!(list(&local), all);

    // No member keeps running when the program itself is killed.
    let member = local.pid("test-1").expect("a process");
    drop(local);
    let started = Instant::now();
    while is_running(member) {
        assert!(started.elapsed() < BOUND, "a member outlives the program");
        wait();
    }
}

/// The answer to a request of the console, as it comes.
fn asked(address: &str, path: &str, host: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("it is served");
    stream.set_read_timeout(Some(BOUND)).expect("a time-out");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    BufReader::new(stream)
}

/// Reads documents until one is as wanted.
fn document(stream: &mut BufReader<TcpStream>, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    let mut last = Value::Null;
    loop {
        assert!(started.elapsed() < BOUND, "no document with {what}: {last}");
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("a line in time");
        assert_ne!(read, 0, "the stream ends");
        // Chunks of the transfer begin at the same places as events.
        if let Some(data) = line.strip_prefix("data: ") {
            last = serde_json::from_str(data).expect("a document");
            if so(&last) {
                return last;
            }
        }
    }
}

#[test]
fn the_console_follows_the_cluster() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("test.yaml");
    std::fs::write(&file, RESOURCE.replace("replicas: 3", "replicas: 1")).expect("written");
    let mut local = Local::start_with(folder.path(), &["--console"]);
    let address = local.console();
    let mut stream = asked(&address, "/stream?of=local&cluster=test", &address);
    let alone = document(&mut stream, "a leader", |document| {
        document["cluster"]["ready"] == "1/1"
    });
    assert_eq!(alone["clusters"][0]["name"], "test");
    assert_eq!(alone["cluster"]["members"][0]["leader"], true);
    std::fs::write(&file, RESOURCE).expect("written");
    let grown = document(&mut stream, "three voters", |document| {
        let members = document["cluster"]["members"].as_array();
        let members = members.map(Vec::as_slice).unwrap_or_default();
        let voters = members.iter().filter(|member| member["role"] == "Voter");
        document["cluster"]["ready"] == "3/3" && voters.count() == 3
    });
    let events = grown["cluster"]["events"]["shown"].as_array();
    let events = events.expect("events");
    assert!(
        !events.is_empty() && events[0]["note"].is_string(),
        "{events:?}"
    );

    // Another name that leads to this machine may be a stranger's page.
    for (host, wanted) in [(address.as_str(), "200"), ("a.example", "403")] {
        let mut first = String::new();
        let mut answer = asked(&address, "/stream", host);
        answer.read_line(&mut first).expect("an answer");
        assert!(
            first.starts_with(&format!("HTTP/1.1 {wanted}")),
            "{host}: {first}"
        );
    }
    assert_eq!(local.stop(), Some(0));
}

/// It has no token, so nobody else may reach it.
#[test]
fn a_console_for_others_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("test.yaml"), RESOURCE).expect("written");
    let directory = folder.path().join("cluster");
    for (flag, expected) in [
        ("--console=0.0.0.0:0", "served on loopback alone"),
        ("--console=8082", "invalid value"),
    ] {
        let error = refused(folder.path(), &[flag]);
        assert!(error.contains(expected), "{flag}: {error}");
        assert!(!directory.exists(), "{flag}: it made a directory");
    }
}

/// What it says when it ends by itself, with an error. One that goes on is ended, and fails the test.
fn refused(folder: &Path, flags: &[&str]) -> String {
    let directory = folder.join("cluster");
    let child = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .arg("local")
        .arg(folder.join("test.yaml"))
        .args(["--dir".as_ref(), directory.as_os_str()])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts");
    let mut local = Local { child, directory };
    let started = Instant::now();
    let status = loop {
        if let Some(status) = local.child.try_wait().expect("its state") {
            break status;
        }
        assert!(started.elapsed() < BOUND, "{flags:?} is not refused");
        wait();
    };
    let mut error = String::new();
    let out = local.child.stderr.as_mut().expect("it is piped");
    out.read_to_string(&mut error).expect("it is text");
    assert!(!status.success(), "{error}");
    error
}

/// A cluster whose port another process had taken since was started all the same: its server failed to listen, again and again,
/// and only the log of the member said so. And whoever wanted to write an endpoint down had to look which port was found free.
#[test]
fn ports_are_fixed_and_a_taken_one_is_named() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let one = RESOURCE.replace("replicas: 3", "replicas: 1");
    std::fs::write(folder.path().join("test.yaml"), one).expect("written");
    let mut places = (0..50)
        .map(|at| 6000 + u16::try_from(std::process::id() % 400).unwrap_or(0) * 10 + at * 97);
    let port = places.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.expect("a free port");
    let fixed = format!("--client-port={port}");
    let flags = [fixed.as_str()];
    let other = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let taken =
        |port: u64| format!("port {port} on 127.0.0.1, of test-1, is taken by another process");
    let said = refused(folder.path(), &flags);
    assert!(said.contains(&taken(port.into())), "{said}");
    drop(other);
    let client = |state: &Value| state["ports"]["test-1"]["client"].as_u64();
    let peer = |state: &Value| state["ports"]["test-1"]["peer"].as_u64();
    let mut local = Local::start_with(folder.path(), &flags);
    let state = local.until("a voter", |state| voters(state).len() == 1);
    assert_eq!(client(&state), Some(port.into()));
    put(&local, "k", "v");
    assert_eq!(local.stop(), Some(0));
    let mut local = Local::start_with(folder.path(), &flags);
    let started = Instant::now();
    while local.pid("test-1").is_none() {
        assert!(started.elapsed() < BOUND, "test-1 does not come back");
        wait();
    }
    let again = local.until("a voter", |state| voters(state).len() == 1);
    assert_eq!(
        (client(&again), peer(&again)),
        (client(&state), peer(&state))
    );
    put(&local, "k", "w");
    assert_eq!(local.stop(), Some(0));
    // A port that was found free is the member's as well.
    let found = peer(&state).expect("a port");
    let at = u16::try_from(found).expect("a port");
    let other = TcpListener::bind(("127.0.0.1", at)).expect("it is free");
    let said = refused(folder.path(), &flags);
    assert!(said.contains(&taken(found)), "{said}");
    drop(other);
}

/// Whether a process runs; a zombie does not.
fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn bad_input_is_named_and_nothing_is_made() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("bad.yaml");
    for (text, expected) in [
        (
            RESOURCE.replace("replicas: 3", "replicas: 12"),
            "spec.replicas",
        ),
        (
            RESOURCE.replace("replicas: 3", "replica: 3"),
            "spec.replica: unknown field",
        ),
        (RESOURCE.replace("EtcdCluster", "EtcdClub"), "EtcdClub"),
        ("{".to_owned(), "not YAML"),
    ] {
        std::fs::write(&file, text).expect("written");
        let directory = folder.path().join("cluster");
        let out = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args([
                "local".as_ref(),
                file.as_os_str(),
                "--dir".as_ref(),
                directory.as_os_str(),
            ])
            .output()
            .expect("it runs");
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && error.contains(expected),
            "{expected}: {error}"
        );
        assert!(!directory.exists(), "{expected}: it made a directory");
    }
}
