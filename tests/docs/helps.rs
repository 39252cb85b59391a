//! The subcommands and flags in the program's own help: the pages may use only these.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

static KNOWN: Mutex<BTreeMap<String, Option<BTreeSet<String>>>> = Mutex::new(BTreeMap::new());

/// The flags of a subcommand according to its help; none if there is no such subcommand.
pub(crate) fn flags(words: &[&str]) -> Option<BTreeSet<String>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = known.entry(words.join(" "));
    asked.or_insert_with(|| ask(words)).clone()
}

fn ask(words: &[&str]) -> Option<BTreeSet<String>> {
    let answer = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(words)
        .arg("--help")
        .output()
        .expect("the built program starts");
    if !answer.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    Some(
        words
            .filter(|word| word.starts_with('-'))
            .map(str::to_owned)
            .collect(),
    )
}
