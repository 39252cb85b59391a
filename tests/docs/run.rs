//! Runs a block as a user would, in an empty directory, with the built program on the `PATH`. The default ports in a
//! block are replaced by free ones.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The timeout of a block.
const BOUND: Duration = Duration::from_secs(60);

/// Runs a block.
///
/// # Errors
///
/// Why the block failed, with its output.
pub(crate) fn run(text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join(".output");
    let file = std::fs::File::create(&log).expect("a file");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_quorate"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &with_free_ports(text)])
        .env(
            "PATH",
            format!("{}:{path}", program.parent().expect("a folder").display()),
        )
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(file.try_clone().expect("another end"))
        .stdout(file)
        .process_group(0)
        .spawn()
        .expect("bash starts");
    let group = i32::try_from(child.id()).expect("a process ID");
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child of ours") {
            Some(status) => break Some(status),
            None if began.elapsed() > BOUND => break None,
            None => wait(),
        }
    };
    end_all(group);
    let _ = child.wait();
    let output = std::fs::read_to_string(&log).unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{status}: {output}")),
        None => Err(format!(
            "it did not end within {} s: {output}",
            BOUND.as_secs()
        )),
    }
}

/// Kills all processes that a block left running.
fn end_all(group: i32) {
    // SAFETY: only sends a signal, to the process group that was created for this block.
    #[allow(unsafe_code)]
    let _ = unsafe { libc::killpg(group, libc::SIGKILL) };
}

fn with_free_ports(text: &str) -> String {
    let mut text = text.to_owned();
    for usual in ["2379", "2380", "2381"] {
        let from = format!("127.0.0.1:{usual}");
        if text.contains(&from) {
            let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            let free = free.local_addr().expect("an address");
            text = text.replace(&from, &free.to_string());
        }
    }
    text
}

/// Waits a moment for another process.
#[allow(clippy::disallowed_methods)]
fn wait() {
    std::thread::sleep(Duration::from_millis(50));
}
