//! The server's errors at start, and its shutdown.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{Server, address, binary, ended, refused};

#[test]
fn argv0_etcd_prints_etcd_version() {
    let output = binary()
        .arg0("etcd")
        .arg("--version")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    let keys: Vec<&str> = text
        .lines()
        .map(|line| line.split(": ").next().unwrap_or_default())
        .collect();
    let expected = [
        "etcd Version",
        "Git SHA",
        "Go Version",
        "Go OS/Arch",
        "Quorate Version",
    ];
    assert_eq!(keys, expected, "{text}");
    assert!(text.starts_with("etcd Version: 3.7."), "{text}");
}

#[test]
fn config_file_replaces_flags_and_env() {
    let (host, folder) = (address(), tempfile::tempdir().expect("folder"));
    let file = folder.path().join("etcd.yaml");
    let data = folder.path().join("data");
    let text = format!(
        "name: filed\ndata-dir: {}\nunsafe-no-fsync: true\nwatch-progress-notify-interval: 5000000000\n\
         listen-client-urls: http://{host}:2379\nadvertise-client-urls: http://{host}:2379\n\
         listen-peer-urls: http://{host}:2380\ninitial-advertise-peer-urls: http://{host}:2380\n",
        data.display()
    );
    std::fs::write(&file, text).expect("written");
    let notified = folder.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&notified).expect("bound");
    let log = std::fs::File::create(folder.path().join("log")).expect("log");
    let mut process = binary()
        .arg0("etcd")
        .arg("-config-file")
        .arg(&file)
        .arg("--name=ignored")
        .env("ETCD_NAME", "ignored as well")
        .env("NOTIFY_SOCKET", &notified)
        .stderr(log)
        .spawn()
        .expect("starts");
    let mut word = [0; 16];
    systemd
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .expect("set");
    let heard = systemd.recv(&mut word);
    let _ = process.kill();
    let _ = process.wait();
    let log = std::fs::read_to_string(folder.path().join("log")).expect("read");
    assert_eq!(
        heard.map(|length| &word[..length]).ok(),
        Some(&b"READY=1"[..]),
        "{log}"
    );
    assert!(data.join("identity").exists(), "{log}");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let logged = |text: &str| {
        lines.iter().find(|line| {
            line["msg"]
                .as_str()
                .is_some_and(|message| message.contains(text))
        })
    };
    let ready = logged("ready to serve client requests").expect("the message is logged");
    assert_eq!(ready["level"], "info");
    assert!(
        logged("other flags and variables are ignored").is_some(),
        "{log}"
    );
}

#[test]
fn a_bad_file_of_settings_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("etcd.yaml");
    let flag = format!("--config-file={}", file.display());
    let (code, error) = refused(&[&flag]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("--config-file: cannot read"), "{error}");
    std::fs::write(&file, "nmae: a\n").expect("written");
    let (code, error) = refused(&[&flag]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("the key nmae is not known (did you mean name?)"),
        "{error}"
    );
}

#[test]
fn help_lists_flags_of_test_frameworks() {
    let output = binary().args(["server", "-h"]).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("--unsafe-no-fsync"), "{text}");
}

#[test]
fn wrong_flags_name_the_flag_and_the_remedy() {
    for (arguments, text) in [
        (
            &["--nmae=a"][..],
            "flag --nmae is not known (did you mean --name?)",
        ),
        (&["--wal-dir=/x"], "put that directory on the fast volume"),
        (
            &["--election-timeout=100"],
            "at least five times --heartbeat-interval",
        ),
        (
            &["--listen-client-urls=http://127.0.0.1:0"],
            "--advertise-client-urls is required",
        ),
    ] {
        let (code, error) = refused(arguments);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_setting_in_two_places_is_an_error() {
    let output = binary()
        .args(["server", "--name=a"])
        .env("ETCD_NAME", "b")
        .output()
        .expect("runs");
    let (code, error) = ended(&output);
    assert_eq!(code, 2);
    assert!(
        error.contains("ETCD_NAME and flag --name are both set"),
        "{error}"
    );
}

#[test]
fn taken_port_leaves_the_disk_untouched() {
    let host = address();
    let _taken = std::net::TcpListener::bind((host.as_str(), 2379)).expect("bound");
    let folder = tempfile::tempdir().expect("folder");
    let message = folder.path().join("message");
    let data = folder.path().join("data");
    let (code, error) = refused(&[
        &format!("--listen-client-urls=http://{host}:2379"),
        &format!("--advertise-client-urls=http://{host}:2379"),
        &format!("--data-dir={}", data.display()),
        &format!("--termination-message-file={}", message.display()),
    ]);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("is in use by another process: stop that process"),
        "{error}"
    );
    assert!(!data.exists());
    let line = std::fs::read_to_string(message).expect("written");
    let json: serde_json::Value = serde_json::from_str(&line).expect("json");
    assert_eq!(json["class"], "listen");
}

#[test]
fn wrong_hostname_leaves_the_disk_untouched() {
    let folder = tempfile::tempdir().expect("folder");
    let data = folder.path().join("data");
    let (code, error) = refused(&[
        "--expected-hostname=elsewhere-0",
        &format!("--data-dir={}", data.display()),
    ]);
    assert_eq!(code, 24, "{error}");
    assert!(
        error.contains("this data directory belongs to another pod"),
        "{error}"
    );
    assert!(!data.exists());
}

#[test]
fn certificates_that_cannot_be_read_are_named() {
    let (code, error) = refused(&[
        "--listen-client-urls=https://127.0.0.1:0",
        "--advertise-client-urls=https://127.0.0.1:2379",
        "--cert-file=/nowhere/cert.pem",
        "--key-file=/nowhere/key.pem",
    ]);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("cannot read the certificate /nowhere/cert.pem"),
        "{error}"
    );
}

#[test]
fn sigterm_stops_the_server_gracefully() {
    let server = Server::start(&[]);
    let version = server.get("/version");
    assert!(version.contains("\"etcdserver\":\"3.7."), "{version}");
    let (code, log) = server.terminate();
    assert_eq!(code, 0, "{log}");
}

/// Who came from etcd with a log in a file was refused, and had to redirect standard error.
#[test]
fn log_goes_to_a_file_as_well() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("new/server.log");
    let server = Server::start(&[
        &format!("--log-outputs=stderr,{}", path.display()),
        "--enable-log-rotation",
        "--log-level=info",
    ]);
    let (code, log) = server.terminate();
    assert_eq!(code, 0, "{log}");
    let file = std::fs::read_to_string(&path).expect("the file");
    let lines = file.lines().map(serde_json::from_str::<serde_json::Value>);
    let messages: Vec<String> = lines
        .map(|line| line.expect("JSON")["msg"].to_string())
        .collect();
    for text in ["ready to serve client requests", "stopped"] {
        assert!(messages.iter().any(|it| it.contains(text)), "{messages:?}");
    }
    assert!(log.contains("stopped"), "{log}");
    let (code, error) = refused(&["--log-outputs=/nowhere/server.log"]);
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("cannot append to /nowhere/server.log: No such file or directory"),
        "{error}"
    );
}

/// Found on a busy machine: a pod that was deleted while its server was starting stayed until the end of its grace
/// period. The server is the first process of its container, and SIGTERM arrived while it was opening its disk, before
/// a handler was installed, so it was lost.
#[test]
fn signal_during_start_shuts_down_cleanly() {
    let (host, folder) = (address(), tempfile::tempdir().expect("folder"));
    let message = folder.path().join("message");
    let made = Command::new("mkfifo").arg(&message).status();
    assert!(made.expect("runs").success());
    // The start blocks here, before the disk is opened, until the pipe is read.
    let mut process = binary()
        .args(["server", "--name=one"])
        .arg(format!(
            "--data-dir={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--termination-message-file={}", message.display()))
        .arg(format!("--listen-client-urls=http://{host}:2379"))
        .arg(format!("--advertise-client-urls=http://{host}:2379"))
        .arg(format!("--listen-peer-urls=http://{host}:2380"))
        .arg(format!("--initial-advertise-peer-urls=http://{host}:2380"))
        .arg(format!("--initial-cluster=one=http://{host}:2380"))
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let id = process.id().to_string();
    let until = Instant::now() + Duration::from_secs(20);
    while !is_heard(&id) {
        assert!(
            Instant::now() < until,
            "the server never installed a handler for SIGTERM"
        );
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("runs").success());
    drop(std::fs::File::open(&message).expect("a writer is there"));
    let ended = process.wait().expect("ends");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

/// Three members on one host write a checkpoint at about the same time, each most of a second's work with a million keys: the
/// slowest puts of a thousand clients took two to three times as long while these threads had as much of the cores as those that serve clients.
#[test]
fn checkpoints_are_written_at_low_priority() {
    let (server, until) = (Server::start(&[]), Instant::now() + Duration::from_secs(20));
    let niceness = |thread: &str| -> Option<i64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process_id())).ok()?;
        tasks.flatten().find_map(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
            // Its state is the first of them, and the third of all fields.
            let nice = fields.split_whitespace().nth(19 - 3)?;
            (name == thread).then(|| nice.parse().ok())?
        })
    };
    let own = niceness("raft");
    assert!(own.is_some());
    let lower = own.map(|nice| (nice + 10).min(19));
    while niceness("background") != lower {
        assert!(Instant::now() < until, "it is {:?}", niceness("background"));
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether a process has a handler for SIGTERM.
fn is_heard(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (15 - 1)) != 0)
}
