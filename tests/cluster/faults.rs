//! Faults of the disk of a real process: full, failing syncs, hanging syncs, read-only, and older than what the member
//! acknowledged. Each one either ends the server with its own exit code and termination message, or fails its liveness
//! probe; no acknowledged write is lost.
//!
//! The faults are injected by a small preloaded library (`faults.c`), so the server has no switch for them. It needs a
//! C compiler, as building Quorate does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{SECRET, Server, by_hand, leader, until};
use super::operated::{call, standbys};
use quorate::wire::member::{DescribeResponse, Phase};

/// Liveness fails after 30 s without progress.
const STUCK: Duration = Duration::from_secs(30);

/// The directory whose files switch one server's faults on.
pub(super) struct Faults(PathBuf);

impl Faults {
    /// Prepares a server that is not started yet for faults and for a termination message.
    pub(super) fn of(home: &Path, server: &mut Server) -> Faults {
        let switches = home.join(format!("{}.faults", server.name));
        std::fs::create_dir(&switches).unwrap();
        let library = home.join("faults.so");
        if !library.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/faults.c");
            let built = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .arg(&library)
                .args([source, "-ldl"])
                .status();
            assert!(built.unwrap().success(), "cc cannot build {source}");
        }
        let text = |path: &Path| path.display().to_string();
        server.environment.extend([
            ("LD_PRELOAD".to_owned(), text(&library)),
            ("FAULTS".to_owned(), text(&switches)),
            ("FAULTS_DATA".to_owned(), format!("{}/", text(&server.data))),
        ]);
        let message = Self::message_file(home, server);
        let flag = format!("--termination-message-file={}", message.display());
        server.arguments.push(flag);
        Faults(switches)
    }

    fn message_file(home: &Path, server: &Server) -> PathBuf {
        home.join(format!("{}.message", server.name))
    }

    pub(super) fn on(&self, fault: &str) {
        std::fs::write(self.0.join(fault), "").unwrap();
    }

    pub(super) fn off(&self, fault: &str) {
        std::fs::remove_file(self.0.join(fault)).unwrap();
    }
}

/// Waits until the server exits, and checks the exit code, class and text of its termination message.
async fn ends(home: &Path, server: &mut Server, code: i32, class: &str, words: &[&str]) {
    let status = server.ended().await;
    assert_eq!(status.code(), Some(code), "{}", server.log());
    let message = std::fs::read_to_string(Faults::message_file(home, server)).unwrap();
    let report: serde_json::Value = serde_json::from_str(&message).unwrap();
    assert_eq!(report["class"], class, "{message}");
    assert_eq!(report["exitCode"], code, "{message}");
    let text = report["message"].as_str().unwrap();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

/// Writes until a write is not acknowledged; returns the number of that write.
async fn write_until_it_fails(server: &Server) -> usize {
    for number in 0..10_000 {
        let (key, value) = (format!("key-{number}"), "x".repeat(1000));
        let put = tokio::time::timeout(Duration::from_secs(5), server.put(&key, &value)).await;
        if !matches!(put, Ok(Ok(_))) {
            return number;
        }
    }
    panic!("nothing fails:\n{}", server.log());
}

async fn a_fault_of_the_disk(fault: &str, code: i32, class: &str, words: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let faults = Faults::of(home.path(), &mut server);
    server.start();
    server.serves("before").await;
    faults.on(fault);
    let failed = write_until_it_fails(&server).await;
    ends(home.path(), &mut server, code, class, words).await;
    faults.off(fault);
    server.start();
    server.serves("after").await;
    server.holds("before", "1").await;
    for number in 0..failed {
        let found = server.get(&format!("key-{number}"), true).await.unwrap();
        assert!(found.is_some(), "key-{number} was acknowledged and is lost");
    }
}

#[tokio::test]
async fn full_disk_loses_nothing() {
    let words = ["no space left while writing", "free space on this volume"];
    a_fault_of_the_disk("full", 22, "disk_full", &words).await;
}

#[tokio::test]
async fn failed_sync_ends_the_server() {
    let words = ["sync of", "what reached the disk is unknown"];
    a_fault_of_the_disk("fsync", 23, "fsync", &words).await;
}

#[tokio::test]
async fn read_only_data_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let faults = Faults::of(home.path(), &mut server);
    server.start();
    server.serves("before").await;
    server.kill();
    faults.on("readonly");
    server.start();
    let words = ["cannot", "Read-only file system"];
    ends(home.path(), &mut server, 26, "io", &words).await;
    faults.off("readonly");
    server.start();
    server.holds("before", "1").await;
}

/// A volume was restored from an older copy: the member would vote and acknowledge without entries that it had
/// acknowledged.
#[tokio::test]
async fn older_copy_of_the_data_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    for server in &mut servers {
        let message = Faults::message_file(home.path(), server);
        let flag = format!("--termination-message-file={}", message.display());
        server.arguments.push(flag);
        server.start();
    }
    for server in &servers {
        server.serves("old").await;
    }
    let led = leader(&servers).await;
    let behind = (led + 1) % 3;
    servers[behind].holds("old", "1").await;
    // Copied during the last start: a copy from an earlier start is detected by the count of starts (`copies.rs`).
    let copy = home.path().join("copy");
    servers[behind].signal("STOP");
    copy_files(&servers[behind].data, &copy);
    servers[behind].signal("CONT");
    for number in 0..20 {
        servers[led].serves(&format!("new-{number}")).await;
    }
    servers[behind].holds("new-19", "1").await;
    servers[behind].kill();
    std::fs::remove_dir_all(&servers[behind].data).unwrap();
    copy_files(&copy, &servers[behind].data);
    servers[behind].start();
    let words = ["log lost", "remove the member and add a new one"];
    let server = &mut servers[behind];
    ends(home.path(), server, 20, "log_lost", &words).await;
    servers[led].serves("the-others-go-on").await;
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_files(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A sync that does not return blocks the log's thread, and with it every write. Only a restart helps, which the
/// `/livez` probe triggers.
#[tokio::test]
async fn hanging_disk_fails_liveness() {
    let home = tempfile::tempdir().unwrap();
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let faults = Faults::of(home.path(), &mut server);
    server.start();
    server.serves("before").await;
    assert!(livez(&server).await.starts_with("HTTP/1.1 200"));
    faults.on("hang");
    let hung = Instant::now();
    let waits = tokio::time::timeout(Duration::from_secs(2), server.put("held", "1"));
    assert!(waits.await.is_err(), "a write is not acknowledged");
    assert!(livez(&server).await.starts_with("HTTP/1.1 200"), "not yet");
    let answer = loop {
        let answer = livez(&server).await;
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
        assert!(hung.elapsed() < 2 * STUCK, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(answer.contains("made no progress for"), "{answer}");
    assert!(hung.elapsed() >= STUCK, "{:?}", hung.elapsed());
    // The probe measures progress of the log's thread: once the disk responds, the server is live again.
    faults.off("hang");
    until("it is live again", &server, async || {
        livez(&server)
            .await
            .starts_with("HTTP/1.1 200")
            .then_some(())
    })
    .await;
    server.serves("after").await;
}

/// Writes that wait for a disk are queued up to a limit; further ones are refused at once, and reads, which need no
/// disk, are served throughout.
// Shows KV.Put: too many requests.
#[tokio::test]
async fn hanging_disk_refuses_more_at_once() {
    const VALUE: usize = 1 << 20;
    const MOST: usize = 400;
    let home = tempfile::tempdir().unwrap();
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let faults = Faults::of(home.path(), &mut server);
    server.start();
    server.serves("before").await;
    faults.on("hang");
    let value = "x".repeat(VALUE);
    let mut held = tokio::task::JoinSet::new();
    let mut refused = None;
    for number in 0..MOST {
        let mut kv = server.kv();
        let put = quorate::wire::etcd::PutRequest {
            key: format!("k{number}").into(),
            value: value.clone().into(),
            ..Default::default()
        };
        held.spawn(async move { kv.put(put).await.map(|_| ()) });
        // Any response while the disk hangs is an error.
        let pause = Duration::from_millis(5);
        if let Ok(Some(answer)) = tokio::time::timeout(pause, held.join_next()).await {
            let error = answer.unwrap().unwrap_err();
            // A write that times out on a slow machine still occupies the queue.
            if !waited_too_long(&error) {
                refused = Some((number, error));
                break;
            }
        }
    }
    let (number, error) = refused.expect("a bound");
    assert_eq!(
        (error.code(), error.message()),
        (
            tonic::Code::ResourceExhausted,
            "etcdserver: too many requests"
        ),
        "after {number} MiB"
    );
    assert_eq!(
        server.get("before", true).await.unwrap().as_deref(),
        Some("1")
    );
    faults.off("hang");
    server.serves("after").await;
    // Each queued write gets a response or times out; none is dropped silently.
    while let Some(answer) = held.join_next().await {
        if let Err(error) = answer.unwrap() {
            let full = error.code() == tonic::Code::ResourceExhausted;
            assert!(full || waited_too_long(&error), "{error:?}");
        }
    }
}

/// A follower whose disk hangs still responds to heartbeats, so its leader reported it as a healthy voter. The
/// leader's view now includes how long the follower has had entries that it has not synced.
#[tokio::test]
async fn leader_reports_a_hanging_follower_disk() {
    let home = tempfile::tempdir().unwrap();
    let secret = home.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    let mut faults = Vec::new();
    for server in &mut servers {
        let flag = format!("--operator-secret-file={}", secret.display());
        server.arguments.push(flag);
        faults.push(Faults::of(home.path(), server));
        server.start();
    }
    for server in &servers {
        server.serves("before").await;
    }
    let led = leader(&servers).await;
    let hung = (led + 1) % 3;
    let of = |description: &DescribeResponse, name: &str| {
        let view = description
            .members
            .iter()
            .find(|member| member.name == name);
        view.map(|view| (view.last_contact_age_ms, view.unsynced_ms))
    };
    let name = servers[hung].name.clone();
    let others = |description: &DescribeResponse| {
        let views = description.members.iter().filter(|view| view.name != name);
        let unsynced: Vec<_> = views.map(|view| view.unsynced_ms).collect();
        unsynced.into_iter()
    };
    faults[hung].on("hang");
    servers[led].serves("meanwhile").await;
    // The leader reports this for the one member, which still responds to heartbeats.
    let shows = |description: &DescribeResponse| {
        let hangs = of(description, &name);
        hangs.is_some_and(|(contact, unsynced)| (0..1_000).contains(&contact) && unsynced >= 2_000)
            && others(description).all(|unsynced| unsynced < 2_000)
    };
    let led = until("the leader reports the disk", &servers[led], async || {
        for (at, server) in servers.iter().enumerate().filter(|(at, _)| *at != hung) {
            let description = server.operator().describe(false).await.ok()?;
            if shows(&description) {
                return Some(at);
            }
        }
        None
    })
    .await;
    faults[hung].off("hang");
    let back =
        |description: &DescribeResponse| of(description, &name).is_some_and(|(_, ms)| ms == 0);
    servers[led].describes("it syncs again", back).await;
}

/// The data directory was locked while the log was opened, which takes long for a large log: meanwhile the server
/// returned no description, and the operator took the member for unreachable.
#[tokio::test]
async fn a_member_that_opens_its_log_describes_itself() {
    let home = tempfile::tempdir().unwrap();
    let mut server = standbys(home.path(), &["demo-1"]).remove(0);
    let faults = Faults::of(home.path(), &mut server);
    server.start();
    let description = server
        .describes("a standby", |description| description.disk_empty)
        .await;
    server
        .operator()
        .bootstrap(call(&description))
        .await
        .unwrap();
    server.serves("before").await;
    server.kill();
    faults.on("hang-log");
    server.start();
    let opens =
        |description: &DescribeResponse| description.activity.starts_with("opening the log");
    let description = server.describes("it opens its log", opens).await;
    assert_eq!(description.phase(), Phase::Member);
    assert!(!description.ready && !description.disk_empty);
    faults.off("hang-log");
    server.serves("after").await;
    server.holds("before", "1").await;
}

fn waited_too_long(error: &tonic::Status) -> bool {
    let texts = ["request timed out", "Timeout expired"];
    texts.iter().any(|text| error.message().contains(text))
}

/// The whole HTTP response to `GET /livez`.
async fn livez(server: &Server) -> String {
    let address = format!("{}:2379", server.address);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
