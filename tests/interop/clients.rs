//! Runs the client programs, and kills and restarts members on their request.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Kind};
use crate::process::{peers, skip};

/// The timeout of a whole story on a slow machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Used on both sides: on a busy machine or a slow disk the leader must not lose an election in the middle of a
/// chapter, because not every client retries. Without syncs a kill loses nothing: written data is still in the page
/// cache for the restarted process.
const FLAGS: &[&str] = &[
    "--heartbeat-interval=200",
    "--election-timeout=2000",
    "--unsafe-no-fsync",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name)
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/interop")
        .join(name)
}

/// Whether a program is installed and prints its version.
fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs one step of preparation; an error contains its output.
fn run(what: &str, command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let (out, err) = (&output.stdout, &output.stderr);
    let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].concat();
    assert!(output.status.success(), "{what} failed:\n{text}");
}

/// Prepares a folder of packages once for each version of a lock file.
fn prepared(name: &str, lock: &Path, prepare: impl FnOnce(&Path)) -> PathBuf {
    let (folder, lock) = (built(name), std::fs::read(lock).expect("a lock file"));
    let stamp = folder.join("stamp");
    if std::fs::read(&stamp).is_ok_and(|old| old == lock) {
        return folder;
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    prepare(&folder);
    std::fs::write(stamp, lock).expect("a stamp");
    folder
}

/// Kills a child that exceeds the time limit, so that reading from it ends.
struct Watchdog {
    child: Arc<Mutex<Child>>,
    over: Arc<AtomicBool>,
}

impl Watchdog {
    fn new(child: Child) -> Watchdog {
        let child = Arc::new(Mutex::new(child));
        let over = Arc::new(AtomicBool::new(false));
        let (watched, stop) = (child.clone(), over.clone());
        thread::spawn(move || {
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                if start.elapsed() > LIMIT {
                    let _ = watched.lock().map(|mut child| child.kill());
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        Watchdog { child, over }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Ok(mut child) = self.child.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a client's story against three members; returns the chapters that it completed.
fn run_story(kind: Kind, peers: &Path, program: &[String]) -> Vec<String> {
    let flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    let mut cluster = Cluster::start_with(kind, peers, 3, &flags);
    let errors = tempfile::NamedTempFile::new().expect("a file");
    let stderr = errors.reopen().expect("a file");
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .args(cluster.members.iter().map(|member| &member.client))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let mut input = child.stdin.take().expect("piped");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let dog = Watchdog::new(child);
    let (mut chapters, mut killed) = (Vec::new(), None);
    for line in output.lines().map_while(Result::ok) {
        match (line.as_str(), killed) {
            ("please kill the leader", None) => {
                let leader = cluster.leader();
                cluster.stop(leader);
                killed = Some(leader);
            }
            ("please restart it", Some(leader)) => {
                cluster.run(leader, "new");
                cluster.wait_healthy(leader);
                killed = None;
            }
            _ => {
                chapters.push(line);
                continue;
            }
        }
        let _ = input.write_all(b"done\n");
    }
    let status = dog
        .child
        .lock()
        .expect("no panic")
        .wait()
        .expect("a status");
    let stderr = std::fs::read_to_string(errors.path()).unwrap_or_default();
    // The client's output comes last, so that it is visible in a truncated message.
    assert!(
        status.success(),
        "{kind:?}\n{}--- {kind:?}: {program:?} ended with {status} after {chapters:?} with stderr:\n{stderr}",
        cluster.logs()
    );
    chapters
}

/// Runs the story against ours and against real etcd, so that a failure shows which side is wrong.
fn run_on_both(peers: &Path, program: &[String], least: usize) {
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run_story(Kind::Etcd, peers, program));
        let ours = run_story(Kind::Quorate, peers, program);
        (
            ours,
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    assert_eq!(ours, theirs);
    assert!(ours.len() >= least, "too few chapters: {ours:?}");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn the_go_client_library() {
    let test = "the_go_client_library";
    let Some(peers) = peers(test) else { return };
    let program = peers.join("story-go");
    if !program.is_file() {
        return skip(test, "no story-go: run tests/interop/build.sh");
    }
    run_on_both(&peers, &[text(&program)], 9);
}

#[test]
fn the_rust_client_etcd_client() {
    let test = "the_rust_client_etcd_client";
    let Some(peers) = peers(test) else { return };
    if !is_there("bash") {
        return skip(test, "no bash");
    }
    // After `make interop` everything is built, and cargo has nothing to do.
    let mut build = Command::new("bash");
    let script = folder("rust/build.sh");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    run("cargo build", build.arg(script).env("CARGO", cargo));
    run_on_both(&peers, &[text(&built("rust/debug/story"))], 9);
}

#[test]
fn the_python_client_aetcd() {
    let test = "the_python_client_aetcd";
    let Some(peers) = peers(test) else { return };
    if !is_there("python3") {
        return skip(test, "no python3");
    }
    let lock = folder("python").join("requirements.txt");
    let packages = prepared("python", &lock, |folder| {
        run(
            "python3 -m venv",
            Command::new("python3").args(["-m", "venv"]).arg(folder),
        );
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args([
            "install",
            "--quiet",
            "--require-hashes",
            "--only-binary=:all:",
            "-r",
        ]);
        run("pip install", pip.arg(&lock));
    });
    let program = [
        text(&packages.join("bin/python")),
        text(&folder("python/story.py")),
    ];
    run_on_both(&peers, &program, 7);
}

#[test]
fn the_node_client_etcd3() {
    let test = "the_node_client_etcd3";
    let Some(peers) = peers(test) else { return };
    if !is_there("node") || !is_there("npm") {
        return skip(test, "no node or no npm");
    }
    let source = folder("node");
    let packages = prepared("node", &source.join("package-lock.json"), |folder| {
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(source.join(file), folder.join(file)).expect("copied");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        run("npm ci", npm.current_dir(folder));
    });
    // Node searches packages next to the program.
    let program = packages.join("story.js");
    std::fs::copy(source.join("story.js"), &program).expect("copied");
    run_on_both(&peers, &["node".to_owned(), text(&program)], 9);
}
