//! The second check: runs porcupine, as a separate process, on the recorded operations.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The result of porcupine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Opinion {
    pub(crate) operations: u64,
    pub(crate) histories: u64,
    pub(crate) ok: u64,
    /// Histories that are not linearizable.
    pub(crate) illegal: Vec<String>,
    /// Histories that could not be decided in time.
    pub(crate) unknown: Vec<String>,
    pub(crate) longest_seconds: f64,
}

/// The program, if it was built.
fn program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/bin");
    let folder = std::env::var_os("QUORATE_PEERS").map_or(built, PathBuf::from);
    Some(folder.join("porcupine")).filter(|program| program.is_file())
}

/// Checks the record; `Ok(None)` if porcupine was not built and is not required.
pub(crate) fn opinion(folder: &Path) -> Result<Option<Opinion>, String> {
    let Some(program) = program() else {
        let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
        let text = "porcupine was not built: run tests/interop/porcupine/build.sh";
        return if required {
            Err(text.to_owned())
        } else {
            Ok(None)
        };
    };
    let asked = Command::new(&program)
        .args(["-timeout", "60s", "-picture"])
        .arg(folder)
        .arg(folder.join("operations.jsonl"))
        .output();
    let output = asked.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map(Some).map_err(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("porcupine printed {last:?} ({error}): {complaint}")
    })
}
