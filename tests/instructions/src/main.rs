//! Counts the instructions that one operation takes, by valgrind, and compares them with `baseline.csv`: a count is the
//! same on a busy machine and on a quiet one, where a time is not.
//!
//!     quorate-instructions                 measures every case and compares; WRITE=1 writes the baseline
//!     quorate-instructions run CASE COUNT  carries a case out so many times: what valgrind watches
//!
//! Each case runs twice, once with twice as many operations, and the difference is what they take: starting up and
//! filling the store cancel out. Never measures time, opens a socket or starts a thread.

mod baseline;
mod cases;
mod count;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use quorate_core::store;

/// As the server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The server's own files, as shipped, at the paths by which they name each other.
#[path = "../../../src/wire/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the server uses the rest of it, and more from outside"
)]
mod wire;
mod server {
    pub(super) mod etcd;
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => compare(&file()),
        ["run", name, count] => run(name, count),
        _ => Err("usage: quorate-instructions [run CASE COUNT]".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate-instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.csv")
}

fn run(name: &str, count: &str) -> Result<(), String> {
    let case = cases::ALL.iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| format!("there is no case {name:?}"))?;
    let count = count.parse().map_err(|_| format!("{count}: no number"))?;
    (case.run)(count);
    Ok(())
}

/// Measures everything, and writes or compares.
fn compare(path: &Path) -> Result<(), String> {
    let writes = std::env::var_os("WRITE").is_some_and(|value| value == "1");
    let here = baseline::Build::this();
    // What cannot be compared or written is refused before it is measured.
    let known = match writes {
        true => baseline::may_write(&here).map(|()| None)?,
        false => Some(baseline::read(path, &here)?),
    };
    let mut found = Vec::new();
    for case in cases::ALL {
        let each = count::instructions(case)?;
        let was = known
            .as_ref()
            .and_then(|known| known.get(case.name).copied());
        println!("{}", baseline::line(case.name, each, was));
        found.push((case.name, each));
    }
    match known {
        None => baseline::write(path, &here, &found),
        Some(known) => baseline::judge(&known, &found),
    }
}
