//! Checks the layers of the packages: pure rooms use no runtime, Kubernetes client, file, socket, clock, thread or
//! thread-local randomness, and each room uses only the rooms below it.
//!
//! Reads the sources as text and therefore does not see through macros or re-exports, so `clippy.toml` bans the
//! important methods as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts that no pure room may contain.
const IMPURE: &[&str] = &[
    "tokio::",
    "tonic::",
    "kube::Client",
    "kube::client",
    "kube::Api",
    "kube::api::Api",
    "kube::runtime",
    "kube::{Api",
    "kube::{Client",
    "hyper::",
    "axum::",
    "reqwest::",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "rand::rng",
    "rand::random",
    "thread_rng",
    "OsRng",
    "getrandom",
    "jiff::Timestamp::now",
    "Timestamp::now",
    "Uuid::new_v4",
];

/// Each pure room and the rooms that it may use.
const PURE: &[(&str, &[&str])] = &[
    ("raft", &[]),
    ("bolt", &[]),
    ("store", &["raft"]),
    ("node", &["raft", "store"]),
    ("snapshot", &["bolt", "raft", "store", "node"]),
    ("crd", &[]),
    ("plan", &["crd"]),
    ("model", &["crd", "plan"]),
    ("build", &["crd", "plan"]),
    ("backup_plan", &["crd"]),
    ("access_plan", &["crd"]),
];

/// The other rooms and the rooms that they may use; rooms not listed here may use every room.
const SHELLS: &[(&str, &[&str])] = &[
    ("disk", &["raft"]),
    ("persist", &["raft", "store", "node", "disk"]),
    ("wire", &[]),
    (
        "server",
        &[
            "raft", "store", "node", "bolt", "snapshot", "disk", "persist", "wire",
        ],
    ),
    ("backup", &["bolt", "snapshot", "store", "server", "wire"]),
    (PLUGIN, &["crd", "model", "build"]),
    ("sim", &["raft", "store", "node", "disk", "persist"]),
];

/// The room of planted faults. Every room, pure or not, may use its one macro, [`THE_QUESTION`], and it uses no room
/// itself. The macro reads the environment and a thread-local, but only if its feature is compiled in; otherwise it is
/// a constant.
const PLANTED: &str = "mutants";
const THE_QUESTION: &str = "use crate::mutants::mutant;";

/// The room of kubectl's plugin, and what its package must not depend on, by whatever way: it is built for machines
/// that run no server, of other systems too, and asks through the user's kubectl.
const PLUGIN: &str = "plugin";
const NOT_IN_PLUGIN: &[&str] = &[
    "tokio",
    "hyper",
    "kube-client",
    "rustls",
    "aws-lc-sys",
    "ring",
    "openssl-sys",
    "native-tls",
    "quorate",
    "quorate-core",
];

/// Packages below `src`, which contain rooms; those of the planted faults and of the plugin are rooms themselves.
const PACKAGES: &[&str] = &["core", "planner"];

/// Rooms that may use every room: a new folder in `src` or in one of the packages has to be listed here or above.
const FREE: &[&str] = &["operator", "opsim", "cli"];

#[test]
fn pure_rooms_name_nothing_impure() {
    let mut found = Vec::new();
    for (room, _) in PURE {
        for (place, line) in code_of(room) {
            for word in IMPURE {
                if line.contains(word) {
                    found.push(format!("{place}: `{word}` in a pure room"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let mut found = Vec::new();
    for (room, allowed) in PURE.iter().chain(SHELLS) {
        for (place, line) in code_of(room) {
            for used in rooms_named_in(&line) {
                let planted = used == PLANTED && line.trim() == THE_QUESTION;
                if used != *room && !planted && !allowed.contains(&used.as_str()) {
                    found.push(format!("{place}: `{room}` uses `{used}`"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The planted faults are the one exception to purity, and no release build contains them.
#[test]
fn mutants_need_their_feature() {
    for (place, line) in code_of(PLANTED) {
        let own = rooms_named_in(&line).iter().all(|room| room == PLANTED);
        assert!(own, "{place} uses a room");
        let switch = place.contains("/switch.rs:");
        let impure = IMPURE.iter().find(|word| line.contains(**word));
        assert!(switch || impure.is_none(), "{place}: {impure:?}");
    }
    let head = fs::read_to_string(source().join(PLANTED).join("lib.rs")).expect("it is there");
    assert!(head.contains("#[cfg(feature = \"mutants\")]\nmod switch;"));
    assert!(head.contains("#[cfg(not(feature = \"mutants\"))]\n#[must_use]\n#[inline(always)]\npub const fn planted(_: Mutant) -> bool {\n    false\n}"));
}

/// No feature is on by default, in any package, and the packages' dependencies on each other turn none on.
#[test]
fn no_feature_is_on_by_default() {
    for manifest in manifests() {
        let text = fs::read_to_string(&manifest).expect("it is there");
        let (_, product) = text.split_once("[package]").expect("a package");
        let product: String = match product.split_once("[dev-dependencies]") {
            Some((before, _)) => before.to_owned(),
            None => product.to_owned(),
        };
        for line in product
            .lines()
            .chain(text.lines().take_while(|line| *line != "[package]"))
        {
            let ours = line.starts_with("quorate") && line.contains("features");
            let default = line.starts_with("default =");
            assert!(!ours && !default, "{}: {line}", manifest.display());
        }
    }
}

/// The fuzzer counts the lines of these packages alone, so a new one has to be listed there.
#[test]
fn fuzzer_instruments_every_package() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/rustc.sh");
    let script = fs::read_to_string(script).expect("it is there");
    for package in PACKAGES {
        let name = format!("*\" --crate-name quorate_{package} \"*");
        assert!(
            script.contains(&name),
            "tests/fuzz/rustc.sh lacks {package}"
        );
    }
}

/// By `Cargo.lock`, which has the dependencies of every platform.
#[test]
fn plugin_has_no_client_runtime_or_tls() {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock"));
    let below = dependencies(&lock.expect("it is there"), "quorate-plugin");
    assert!(below.contains("quorate-planner"), "{below:?}");
    for banned in NOT_IN_PLUGIN {
        assert!(!below.contains(*banned), "quorate-plugin needs {banned}");
    }
}

/// The names of all packages that a package of this lock file needs. Versions are not told apart.
fn dependencies(lock: &str, package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(name) = open.pop() {
        let head = format!("name = \"{name}\"\n");
        for entry in lock
            .split("[[package]]\n")
            .filter(|it| it.starts_with(&head))
        {
            let quoted = entry.lines().filter_map(|line| line.strip_prefix(" \""));
            let names = quoted.filter_map(|line| line.split(['"', ' ']).next());
            open.extend(
                names
                    .filter(|it| found.insert((*it).to_owned()))
                    .map(str::to_owned),
            );
        }
    }
    found
}

/// Rooms are named by `crate::`, which the checks of this file see; the packages only where they are re-exported.
#[test]
fn packages_are_named_in_their_heads_alone() {
    let mut found = Vec::new();
    for file in files_below(&source()) {
        let name = file.file_name().unwrap_or_default();
        let head = name == "lib.rs" || file.ends_with("plugin/main.rs");
        if head || name == "mutants_test.rs" {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file is readable");
        for (number, line) in code_lines(&text) {
            let names = PACKAGES.iter().chain([&PLANTED, &PLUGIN]);
            if names
                .map(|name| format!("quorate_{name}"))
                .any(|name| line.contains(&name))
            {
                found.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A room of simulators is compiled only with its feature, which the tests enable and a build without tests does not.
/// `tests/release-binary.sh` checks the released binary.
#[test]
fn simulators_need_their_feature() {
    let simulators = "feature = \"simulators\"";
    let testing = "any(test, feature = \"testing\")";
    for (file, room, condition) in [
        ("lib.rs", "opsim", simulators),
        ("core/lib.rs", "sim", simulators),
        ("planner/plan/mod.rs", "testing", testing),
    ] {
        let text = fs::read_to_string(source().join(file)).expect("it is there");
        let gated = format!("#[cfg({condition})]\npub mod {room};");
        assert!(text.contains(&gated), "{room} would be in the release");
    }
    let image = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/kubernetes/quorate-image.sh"
    );
    let image = fs::read_to_string(image).expect("it is there");
    assert!(image.contains("tests/release-binary.sh"));
}

#[test]
fn every_room_has_its_place_and_its_head() {
    let known: Vec<&str> = PURE
        .iter()
        .chain(SHELLS)
        .map(|(room, _)| *room)
        .chain(FREE.iter().copied())
        .chain([PLANTED])
        .collect();
    for room in rooms() {
        assert!(
            known.contains(&room.as_str()),
            "src/{room} is not listed in tests/layering.rs"
        );
        let package = [PLANTED, PLUGIN].contains(&room.as_str());
        let main = if package { "lib.rs" } else { "mod.rs" };
        let head = fs::read_to_string(folder_of(&room).join(main)).expect("a room has one");
        assert!(
            head.starts_with("//! "),
            "{main} of {room} does not state the purpose of the room"
        );
    }
}

#[test]
fn files_have_heads_and_stay_small() {
    const MOST_LINES: usize = 900;
    let mut found = Vec::new();
    for file in files_below(&source()) {
        let text = fs::read_to_string(&file).expect("a source file is readable");
        if !text.starts_with("//!") {
            found.push(format!("{}: no `//!` head", file.display()));
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            found.push(format!(
                "{}: {lines} lines, {MOST_LINES} at most",
                file.display()
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The checks must be able to fail: violations in sample lines are found.
#[test]
fn the_checks_can_fail() {
    assert_eq!(rooms_named_in("use crate::server::handle;"), vec!["server"]);
    assert_eq!(
        rooms_named_in("use crate::{raft, store::View};"),
        vec!["raft", "store"]
    );
    assert_eq!(strip_comment("let a = 1; // tokio::spawn"), "let a = 1; ");
    assert!(
        code_lines("fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nfn b() {}\n")
            .iter()
            .all(|(_, line)| !line.contains("std::fs"))
    );
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The names of all rooms, of which none may be in two packages.
fn rooms() -> Vec<String> {
    let mut names = folders(&source());
    names.retain(|name| !PACKAGES.contains(&name.as_str()));
    for package in PACKAGES {
        names.extend(folders(&source().join(package)));
    }
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a name of two rooms");
    names
}

fn manifests() -> Vec<PathBuf> {
    let packages = PACKAGES.iter().chain([&PLANTED, &PLUGIN]);
    let below = packages.map(|package| source().join(package).join("Cargo.toml"));
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    below.chain([main]).collect()
}

fn folder_of(room: &str) -> PathBuf {
    let inside = PACKAGES
        .iter()
        .map(|package| source().join(package).join(room));
    let mut places = inside.chain([source().join(room)]);
    places
        .find(|folder| folder.is_dir())
        .expect("a room is a folder")
}

fn folders(parent: &Path) -> Vec<String> {
    fs::read_dir(parent)
        .expect("it is readable")
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Every line of code in a room with its file and number, without comments and test code.
fn code_of(room: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for file in files_below(&folder_of(room)) {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let in_tests = file.components().any(|part| part.as_os_str() == "tests");
        if in_tests
            || name == "tests.rs"
            || name.ends_with("_test.rs")
            || name.ends_with("_tests.rs")
        {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file is readable");
        for (number, line) in code_lines(&text) {
            lines.push((format!("{}:{number}", file.display()), line));
        }
    }
    lines
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        let path = entry.path();
        if path.is_dir() {
            for file in files_below(&path) {
                files.insert(file.clone(), file);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.insert(path.clone(), path);
        }
    }
    files.into_values().collect()
}

/// Lines of code with their numbers, without comments and items under `#[cfg(test)]`.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut skipping: Option<i64> = None;
    for (number, line) in text.lines().enumerate() {
        let code = strip_comment(line);
        if let Some(depth) = skipping.as_mut() {
            *depth += braces(&code);
            let ends = *depth <= 0 && (code.contains('}') || code.trim_end().ends_with(';'));
            if ends {
                skipping = None;
            }
        } else if code.trim() == "#[cfg(test)]" {
            skipping = Some(0);
        } else {
            lines.push((number + 1, code));
        }
    }
    lines
}

fn braces(code: &str) -> i64 {
    code.chars()
        .map(|c| match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        })
        .sum()
}

fn strip_comment(line: &str) -> String {
    line.split("//").next().unwrap_or_default().to_owned()
}

/// The rooms that a line names after `crate::`, also in braces.
fn rooms_named_in(line: &str) -> Vec<String> {
    let mut named = Vec::new();
    for part in line.split("crate::").skip(1) {
        let list: Vec<&str> = match part.strip_prefix('{') {
            Some(inner) => inner.split(',').map(str::trim).collect(),
            None => vec![part],
        };
        for item in list {
            let word: String = item
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if rooms().contains(&word) {
                named.push(word);
            }
        }
    }
    named
}
