//! Child processes that are killed when the test ends, also when it fails.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The timeout of any step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The directory of etcd's binaries; `None`, with a message, if they have not been built.
pub(crate) fn peers(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/bin");
    let directory = std::env::var_os("QUORATE_PEERS").map_or(built, PathBuf::from);
    if ["etcd", "etcdctl", "etcdutl"]
        .iter()
        .all(|tool| directory.join(tool).is_file())
    {
        return Some(directory);
    }
    let reason = format!(
        "no real etcd in {}: run tests/interop/build.sh",
        directory.display()
    );
    skip(test, &reason);
    None
}

/// Reports that a test was skipped and why; with `QUORATE_REQUIRE_INTEROP=1` it fails instead.
pub(crate) fn skip(test: &str, reason: &str) {
    let suite = env!("CARGO_CRATE_NAME");
    let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
    assert!(!required, "{suite}::{test}: {reason}");
    report_skipped(test, reason);
}

/// Reports that a test was skipped and why.
pub(crate) fn report_skipped(test: &str, reason: &str) {
    let suite = env!("CARGO_CRATE_NAME");
    // Written to the handle directly: the test harness captures the macros' output of a passing test.
    let text = format!("skipped: {suite}::{test} ({reason})\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A child that is killed when it goes out of scope.
pub(crate) struct Running {
    child: Child,
    pub(crate) log: PathBuf,
}

impl Running {
    /// Starts a program with its output redirected to a file.
    pub(crate) fn start(program: &Path, arguments: &[String], log: PathBuf) -> Running {
        let open = || {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&log);
            file.expect("a log file")
        };
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        Running { child, log }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the output satisfies a condition, and returns it.
    pub(crate) fn wait_for(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let mut output = String::new();
        let seen = eventually(|| {
            output = self.output();
            done(&output)
        });
        assert!(seen, "waited for {what}, got:\n{output}");
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls a condition until it holds; false after the timeout.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Runs a program with this input until it exits.
pub(crate) fn finish(program: &Path, arguments: &[String], input: &str) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().expect("its output")
}
