//! docs/conformance.md lists for every call of etcd's API which behaviour is shown by which test. It is generated from
//! the tests: a comment `Shows KV.Put, KV.Range: what is shown.` above a test, or above a chapter of a client's story,
//! is a row for each call that it names.
//!
//! Fails if a comment names a call that does not exist or is not above a test, or if the page differs from the
//! comments; `CONFORMANCE_WRITE=1` writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/conformance.md";
/// The mark at the beginning of a comment that generates rows.
const MARK: &str = " Shows ";
/// The files that are searched: extension, comment, and how a test or a chapter of a client's story begins.
const LANGUAGES: &[(&str, &str, &[&str])] = &[
    ("rs", "//", &["fn ", "async fn "]),
    ("go", "//", &["func "]),
    ("py", "#", &["async def "]),
    ("js", "//", &["async function "]),
];

const HEAD: &str = "\
# Conformance

Which behaviour of etcd's client API is shown by which test. Generated from the tests by `make generate`; do not
edit. Tests in `tests/etcdctl` run the same commands of real etcdctl against Quorate and real etcd and compare
the output; those in `tests/differential` send both the same random requests; the stories in
`tests/interop` are run by third-party client libraries against both. Known differences are
in [differences.md](differences.md).

| call | behaviour | shown by |
|---|---|---|
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("node_modules") {
            files(&path, found);
        } else if !path.is_dir() {
            found.push(path);
        }
    }
}

/// Every call in our protobuf files, such as `KV.Put`.
fn calls() -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for entry in fs::read_dir(root().join("src/wire/proto")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let mut service = String::new();
        for line in text.lines().map(str::trim) {
            let word = |line: &str| line.split([' ', '(', '{']).next().unwrap_or("").to_owned();
            if let Some(rest) = line.strip_prefix("service ") {
                service = word(rest);
            } else if let Some(rest) = line.strip_prefix("rpc ") {
                calls.insert(format!("{service}.{}", word(rest)));
            }
        }
    }
    calls
}

/// The call, the behaviour, and the test that shows it.
type Row = (String, String, String);

/// The rows that one file generates.
fn rows(path: &Path, calls: &BTreeSet<String>) -> Vec<Row> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let language = LANGUAGES.iter().find(|(name, ..)| Some(*name) == extension);
    let Some((_, comment, starts)) = language else {
        return Vec::new();
    };
    let text = fs::read_to_string(path).expect("a readable file");
    let shown = path.strip_prefix(root()).expect("below the root").display();
    let (mut rows, mut open) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(text) = line
            .strip_prefix(comment)
            .and_then(|rest| rest.strip_prefix(MARK))
        {
            let (names, behaviour) = text.split_once(": ").unwrap_or((text, ""));
            assert!(!behaviour.is_empty(), "{shown}: no behaviour in `{line}`");
            for name in names.split(", ") {
                assert!(calls.contains(name), "{shown}: there is no call {name}");
                let behaviour = behaviour.trim_end_matches('.').replace('|', "or");
                open.push((name.to_owned(), behaviour));
            }
            continue;
        }
        let Some(rest) = starts.iter().find_map(|start| line.strip_prefix(start)) else {
            continue;
        };
        let name = rest.split(['(', '<']).next().unwrap_or("");
        let place = format!("`{shown}`: {name}");
        rows.extend(
            open.drain(..)
                .map(|(call, what)| (call, what, place.clone())),
        );
    }
    assert!(open.is_empty(), "{shown}: `{open:?}` stands above no test");
    rows
}

fn page(calls: &BTreeSet<String>) -> (String, BTreeSet<String>) {
    let mut found = Vec::new();
    files(&root().join("tests"), &mut found);
    let mut all: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    // This file is left out: its text contains the mark and generates no rows.
    for path in found
        .iter()
        .filter(|path| !path.ends_with("tests/conformance.rs"))
    {
        for (call, behaviour, place) in rows(path, calls) {
            all.entry((call, behaviour)).or_default().insert(place);
        }
    }
    let mut page = HEAD.to_owned();
    let mut missing = calls.clone();
    for ((call, behaviour), places) in &all {
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let _ = writeln!(page, "| {call} | {behaviour} | {} |", places.join("; "));
        missing.remove(call);
    }
    (page, missing)
}

#[test]
fn the_page_lists_what_the_tests_show() {
    let (page, missing) = page(&calls());
    // Calls of quorate.v1 are not listed: they are not part of etcd's API, and their files are in another folder.
    println!("calls that no test names: {missing:?}");
    let path = root().join(PAGE);
    if std::env::var_os("CONFORMANCE_WRITE").is_some() {
        fs::write(&path, &page).expect("a page");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "{PAGE} is stale: run `make generate`");
}

#[test]
fn what_clients_live_on_is_shown() {
    let (_, missing) = page(&calls());
    let of = |service: &str| {
        let all = missing.iter().filter(|call| call.starts_with(service));
        all.cloned().collect::<Vec<String>>()
    };
    for service in [
        "KV.",
        "Watch.",
        "Lease.",
        "Cluster.",
        "Maintenance.",
        "Health.",
    ] {
        assert_eq!(of(service), Vec::<String>::new(), "no test shows these");
    }
}

/// The texts between backquotes on a page, without its code blocks.
fn quoted(page: &str) -> Vec<&str> {
    let parts = page.split('`').skip(1).step_by(2);
    parts.filter(|part| !part.contains('\n')).collect()
}

/// Whether a quoted text on a page exists: as a test, a file, a line of the simulator's counters, or a text in the
/// sources. Texts of any other form are prose.
fn exists(name: &str, sources: &str) -> bool {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    if let Some(line) = name.strip_prefix("sim: ") {
        return read("src/core/sim/counters.rs").contains(&format!("\"{line}\""));
    }
    if let Some((path, function)) = name.split_once("::").filter(|(path, _)| path.contains('/')) {
        return read(path).contains(&format!("fn {function}("));
    }
    if let Some(text) = name
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        return sources.contains(text);
    }
    let folders = ["src/", "tests/", "docs/", "deploy/", "charts/"];
    !folders.iter().any(|folder| name.starts_with(folder)) || root().join(name).exists()
}

#[test]
fn documented_tests_and_texts_exist() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("the page");
    let failures = read("docs/failure-modes.md");
    let security = read("docs/security.md");
    let mut paths = Vec::new();
    files(&root().join("src"), &mut paths);
    let sources: String = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    let mut names = quoted(&failures);
    assert!(names.len() > 50, "the page was not read");
    names.extend(quoted(&security));
    let symptoms = read("docs/tasks/troubleshooting.md");
    names.extend(quoted(&symptoms));
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !exists(name, &sources))
        .collect();
    assert!(
        missing.is_empty(),
        "the pages name tests or texts that do not exist: {missing:?}"
    );
    for wrong in [
        "sim: nothing of the kind",
        "tests/sim.rs::no_such_test",
        "tests/plan/no-such-file.txt",
        "\"no such \u{73}entence in the build\"",
    ] {
        assert!(!exists(wrong, &sources), "{wrong} does not exist");
    }
}
