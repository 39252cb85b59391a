//! Runs a client program that asks for things while it runs, and ends it if it takes too long.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The timeout of a whole program on a slow machine.
const LIMIT: Duration = Duration::from_secs(240);

/// What a program printed, and how it ended.
pub(crate) struct Told {
    pub(crate) chapters: Vec<String>,
    pub(crate) status: ExitStatus,
    pub(crate) errors: String,
}

/// Runs a program. Each of its lines is given to `answer`: those that it returns false for are chapters, the others
/// were requests, and the program is told that they are done.
pub(crate) fn converse(program: &[String], mut answer: impl FnMut(&str) -> bool) -> Told {
    let errors = tempfile::NamedTempFile::new().expect("a file");
    let stderr = errors.reopen().expect("a file");
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let mut input = child.stdin.take().expect("piped");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let dog = Watchdog::new(child);
    let mut chapters = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        if answer(&line) {
            let _ = input.write_all(b"done\n");
        } else {
            chapters.push(line);
        }
    }
    let mut child = dog.child.lock().expect("no panic");
    let status = child.wait().expect("a status");
    Told {
        chapters,
        status,
        errors: std::fs::read_to_string(errors.path()).unwrap_or_default(),
    }
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
