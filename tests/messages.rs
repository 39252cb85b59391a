//! The protobuf messages of our log, checkpoints, disks and peer protocol have no `.proto` files: they are defined by
//! the structs in `src` (docs/decisions/046-messages-without-proto-files.md). This test reads their field numbers from
//! the sources and lists them, one line per field.
//!
//! Fails if a number is used twice, if `tests/data/messages.txt` differs from the code (`MESSAGES_WRITE=1` writes it,
//! so that a review shows each change of a number), or if a number that a release has written has another meaning now.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const NOW: &str = "tests/data/messages.txt";
const RELEASED: &str = "tests/data/releases/0.1.0/messages.txt";
/// Messages that were renamed since a release: names are not encoded.
const RENAMED: &[(&str, &str)] = &[
    ("backup.AlarmMember", "snapshot.AlarmMember"),
    ("backup.Lease", "snapshot.Lease"),
    ("node.Fate", "node.ForwardedOutcome"),
    ("node.FateKind", "node.ForwardedOutcomeKind"),
    ("node.Fates", "node.ForwardedOutcomes"),
    ("node.Place", "raft.Position"),
    ("node.Settle", "node.ConfigurationApplied"),
    ("server.Answer", "server.PeerResponse"),
    ("server.Ask", "server.RequestKind"),
    ("server.Question", "server.PeerRequest"),
];

/// A field of a message, or a variant of a oneof.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    /// Prefixed with its room, because two rooms may use the same name.
    message: String,
    /// Its number; for a oneof, the numbers of its variants.
    numbers: String,
    /// The type that is encoded, in prost's notation.
    kind: String,
    name: String,
}

impl Field {
    fn line(&self) -> String {
        format!(
            "{} {} {} {}",
            self.message, self.numbers, self.kind, self.name
        )
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every field of every message in `src`.
fn fields() -> Vec<Field> {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("source");
        let inside = file.strip_prefix(root().join("src")).expect("below src");
        let mut folders = inside.iter().map(|part| part.to_string_lossy());
        let room = folders.find(|part| !matches!(part.as_ref(), "core" | "planner"));
        all.extend(fields_of(&room.expect("a room"), &text));
    }
    all.sort();
    all
}

fn fields_of(room: &str, source: &str) -> Vec<Field> {
    let mut found = Vec::new();
    let mut message = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = declared(line) {
            message = format!("{room}.{name}");
        }
        if !line.trim_start().starts_with("#[prost(") {
            continue;
        }
        let mut attribute = line.trim().to_owned();
        while !attribute.ends_with(")]") {
            let more = lines.next().expect("an attribute ends");
            attribute.push(' ');
            attribute.push_str(more.trim());
        }
        let owner = lines
            .by_ref()
            .find(|line| !line.trim_start().starts_with(['#', '/']))
            .expect("an attribute stands above a field");
        found.push(field(&message, &attribute, owner));
    }
    found
}

/// The name of the struct or enum whose declaration begins on this line.
fn declared(line: &str) -> Option<String> {
    let rest = ["struct ", "enum "]
        .iter()
        .find_map(|word| line.split_once(word))?;
    let before = rest.0.trim();
    let begins = before.is_empty() || before.starts_with("pub") && !before.contains("//");
    begins.then(|| word(rest.1))
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

fn field(message: &str, attribute: &str, owner: &str) -> Field {
    let inside = attribute
        .trim_start_matches("#[prost(")
        .trim_end_matches(")]")
        .trim();
    // `tag = "1"`, or `tags = "1, 2"` for a oneof.
    let (kind, numbers) = inside.rsplit_once("tag").expect("a number");
    let numbers = numbers.split('"').nth(1).expect("a quoted number");
    let (visible, plain) = owner
        .trim()
        .split_once("pub ")
        .unwrap_or(("", owner.trim()));
    assert!(visible.is_empty(), "{owner}");
    Field {
        message: message.to_owned(),
        numbers: numbers.replace(' ', ""),
        kind: kind.trim_end_matches([',', ' ']).replace(' ', ""),
        name: word(plain),
    }
}

fn listed(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

#[test]
fn every_number_is_used_once() {
    let mut seen = BTreeSet::new();
    for field in fields() {
        for number in field.numbers.split(',') {
            let key = (field.message.clone(), number.to_owned());
            assert!(seen.insert(key), "used twice: {}", field.line());
        }
    }
    assert!(seen.len() > 300, "{} numbers are too few", seen.len());
}

#[test]
fn numbers_are_those_that_are_written_down() {
    let now: String = fields().iter().map(|field| field.line() + "\n").collect();
    if std::env::var("MESSAGES_WRITE").is_ok_and(|value| value == "1") {
        fs::write(root().join(NOW), &now).expect("it is written");
    }
    assert!(
        listed(NOW) == now,
        "{NOW} differs from the code: MESSAGES_WRITE=1 cargo test --test messages"
    );
}

/// Data written by a release must stay readable, and members of a release are peers during an upgrade: a number keeps
/// its type, and a number that is no longer used is not reused.
#[test]
fn numbers_of_a_release_keep_their_meaning() {
    let now: BTreeMap<(String, String), String> = fields()
        .into_iter()
        .map(|field| ((field.message, field.numbers), wire_type(&field.kind)))
        .collect();
    let released = listed(RELEASED);
    let mut compared = 0;
    for line in released.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let [message, numbers, kind, _] = parts[..] else {
            panic!("{RELEASED}: {line}")
        };
        let renamed = RENAMED.iter().find(|(old, _)| *old == message);
        let message = renamed.map_or(message, |(_, new)| new).to_owned();
        let kind = wire_type(kind);
        let is_there = match kind.as_str() {
            // One of several may become one of more.
            "oneof" => now.iter().any(|((of, more), now)| {
                let more: Vec<&str> = more.split(',').collect();
                let mut released = numbers.split(',');
                *of == message && *now == kind && released.all(|number| more.contains(&number))
            }),
            _ => now.get(&(message, numbers.to_owned())) == Some(&kind),
        };
        assert!(is_there, "of 0.1.0: {line}");
        compared += 1;
    }
    assert!(compared > 300, "{compared} are too few");
}

/// The encoded part of a field's type, without the name of a oneof and the Rust type of bytes.
fn wire_type(kind: &str) -> String {
    match kind.split_once('=') {
        Some((first @ ("oneof" | "bytes"), _)) => first.to_owned(),
        _ => kind.to_owned(),
    }
}
