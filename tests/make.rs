//! Runs the commands of the Makefile without their prerequisites: each reports what is missing before it starts.
//!
//! Found on a fresh machine: `make e2e` ran for minutes and then failed with the compiler's "can't find crate for
//! `core`", because only `.ci/run` installed the musl target.

// Helpers fail a test by panicking, and the tests run other programs.
#![allow(clippy::panic, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The targets of the Makefile with their recipes.
fn recipes() -> BTreeMap<String, Vec<String>> {
    let mut recipes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut target = None;
    for line in file("Makefile").lines() {
        if let Some(command) = line.strip_prefix('\t') {
            if let Some(target) = &target {
                let recipe = recipes.entry(String::clone(target)).or_default();
                recipe.push(command.to_owned());
            }
        } else {
            let named = line.split_once(": ").map(|(name, _)| name);
            let named = named.filter(|name| !name.starts_with('.') && !name.contains(' '));
            target = named.map(str::to_owned);
        }
    }
    recipes
}

/// Words in a recipe, and the prerequisites that must have been checked before it.
const SIGNS: &[(&str, &[&str])] = &[
    ("cargo ", &["rust", "cc"]),
    ("tests/interop/build.sh", &["go"]),
    ("tests/interop/build-bench.sh", &["go"]),
    ("tests/interop/h2spec.sh", &["go"]),
    ("tests/kubernetes/build.sh", &["go"]),
    ("promtool ", &["promtool"]),
    ("tests/topology/run.sh", &["root"]),
    ("tests/kubeadm/run.sh", &["root"]),
    ("tests/fuzz.sh", &["rust", "cc", "c++"]),
    (
        "tests/soak.sh",
        &["rust", "cc", "c++", "go", "python", "yaml"],
    ),
    ("tests/supply-chain.sh", &["deny"]),
    (
        "IMAGES=$(IMAGES) tests/console/run.sh",
        &["rust", "cc", "node", "chromium"],
    ),
    ("tests/generated.sh", &["python"]),
    ("tests/docs/images.py", &["python"]),
    ("tests/chart/", &["python", "yaml"]),
    ("tests/kubernetes/quorate-image.sh", &["rust", "cc", "musl"]),
    (
        "deploy/release/tools.sh",
        &["rust", "cc", "go", "python", "yaml"],
    ),
    ("deploy/release/build.sh", &["rust", "python", "yaml"]),
];

#[test]
fn every_make_target_checks_its_needs() {
    let recipes = recipes();
    assert!(recipes.len() > 15, "{:?}", recipes.keys());
    for (target, recipe) in &recipes {
        // Targets that need nothing or only change the sources, or whose script does the check.
        if ["help", "fix", "e2e"].contains(&target.as_str()) {
            continue;
        }
        let first = recipe.first().map(String::as_str).unwrap_or_default();
        let asked = first.strip_prefix("@tests/needs.sh ");
        let asked = asked.unwrap_or_else(|| panic!("make {target} begins with {first:?}"));
        let asked: Vec<&str> = asked.split(' ').collect();
        for (sign, needed) in SIGNS {
            let used = recipe[1..].iter().any(|line| line.starts_with(sign));
            for name in needed.iter().filter(|_| used) {
                assert!(
                    asked.contains(name),
                    "make {target} does not look for {name}"
                );
            }
        }
    }
    // In these two scripts the order matters: packages are installed first, among them musl-gcc.
    for (script, names) in [
        ("tests/e2e/run.sh", ["rust go", "cc musl"]),
        ("tests/kubernetes/quorate-image.sh", ["rust cc musl", ""]),
    ] {
        let text = file(script);
        for names in names.iter().filter(|names| !names.is_empty()) {
            let line = format!("tests/needs.sh {names}\n");
            assert!(text.contains(&line), "{script}: {line}");
        }
    }
}

/// Every command on the pages for developers is a target of the Makefile.
#[test]
fn documented_commands_exist() {
    let recipes = recipes();
    let mut found = 0;
    for name in ["README.md", "CONTRIBUTING.md", "tests/README.md"] {
        let page = file(name);
        for (at, _) in page.match_indices("make ") {
            let (before, rest) = (&page[..at], &page[at + 5..]);
            let code = before.ends_with(['`', '\n', ' ']) && before.matches('`').count() % 2 == 1;
            if !code {
                continue;
            }
            let words = rest.split(['`', '\n']).next().unwrap_or_default();
            for target in words.split(' ').filter(|word| !word.contains('=')) {
                let known = recipes.contains_key(target);
                assert!(known, "{name}: make {target} is no command");
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found} commands found");
}

/// On a machine with only a shell, all missing prerequisites are reported at once, each with how to install it.
#[cfg(unix)]
#[test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    for tool in [
        "bash", "dirname", "uname", "id", "sed", "cut", "sort", "head",
    ] {
        let found = ["/usr/bin", "/bin", "/usr/local/bin"]
            .iter()
            .map(|place| Path::new(place).join(tool))
            .find(|path| path.exists());
        let Some(path) = found else { continue };
        std::os::unix::fs::symlink(path, folder.path().join(tool)).expect("a link");
    }
    let run = |names: &[&str]| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/needs.sh");
        let out = Command::new(folder.path().join("bash"))
            .arg(script)
            .args(names)
            .env_clear()
            .env("PATH", folder.path())
            .output()
            .expect("it runs");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    for (name, words) in [
        ("rust", "a Rust toolchain: https://rustup.rs"),
        ("cc", "a C compiler: apt-get install gcc"),
        ("c++", "a C++ compiler: apt-get install g++"),
        ("go", "https://go.dev/doc/install"),
        ("deny", "tests/supply-chain.sh --install"),
        ("musl", "apt-get install musl-tools"),
        ("promtool", "apt-get install prometheus"),
        ("python", "apt-get install python3"),
        ("yaml", "apt-get install python3-yaml"),
        ("valgrind", "apt-get install valgrind"),
        ("node", "apt-get install nodejs npm"),
        ("chromium", "apt-get install chromium"),
        ("curl", "apt-get install curl"),
        ("prometheus", "apt-get install prometheus"),
    ] {
        let (code, output) = run(&[name]);
        assert!(
            code == Some(1) && output.contains(words),
            "{name}: {code:?} {output}"
        );
    }
    let (code, output) = run(&["rust", "cc", "go"]);
    assert!(code == Some(1) && output.lines().count() == 4, "{output}");
    assert_eq!(run(&[]).0, Some(0));
    let (code, output) = run(&["gpu"]);
    assert!(code == Some(2) && output.contains("\"gpu\""), "{output}");
}
