//! The other cluster, behind the driver of `tests/interop/raft`. Judges nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The driver's process. It ends with its standard input.
pub(super) struct Theirs {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a command came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DriverResponse {
    /// `ok`, `refused`, or `panic` and why.
    pub(super) outcome: String,
    /// A line a member.
    pub(super) members: Vec<String>,
}

impl Theirs {
    /// Starts the driver, if it was built. `QUORATE_REQUIRE_INTEROP=1` insists on it.
    pub(super) fn start() -> Option<Self> {
        let built =
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("target/interop/bin");
        let folder = std::env::var_os("QUORATE_PEERS").map_or(built, PathBuf::from);
        let path = folder.join("raft-driver");
        if !path.is_file() {
            let reason = format!("no {}: run tests/interop/build.sh", path.display());
            let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
            assert!(!required, "{reason}");
            // Straight to the handle: what a passing test prints through macros is not shown.
            let text = format!("skipped: raft::tests::differential ({reason})\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
            return None;
        }
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the driver starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let input = child.stdin.take();
        Some(Self {
            child,
            input,
            output,
        })
    }

    pub(super) fn ask(&mut self, command: &str) -> DriverResponse {
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{command}").expect("the driver takes a command");
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line);
            assert!(read.is_ok_and(|n| n > 0), "the driver died of {command:?}");
            match line.trim_end() {
                "." => break,
                line => lines.push(line.to_owned()),
            }
        }
        let outcome = lines.remove(0);
        DriverResponse {
            outcome,
            members: lines,
        }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
