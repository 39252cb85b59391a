//! Lines of programs on the pages stand in a program that the tests run, one after the other; only how far they are
//! indented may differ.

use std::fs;

use super::root;

/// The programming languages of blocks, and the program that connects by a connection Secret in each.
const PROGRAMS: [(&str, &str); 5] = [
    ("go", "tests/interop/go/connect/main.go"),
    ("rust", "tests/interop/rust/src/connect.rs"),
    ("python", "tests/interop/python/connect.py"),
    ("js", "tests/interop/node/connect.js"),
    ("java", "tests/interop/java/Connect.java"),
];

/// The language of a block, if it is one of a program.
pub(crate) fn language(name: &str) -> Option<&'static str> {
    let found = PROGRAMS.iter().find(|(language, _)| *language == name);
    found.map(|(language, _)| *language)
}

/// What is wrong with a block in this language.
pub(crate) fn problems(language: &str, text: &str) -> Vec<String> {
    let found = PROGRAMS.iter().find(|(name, _)| *name == language);
    let Some((_, path)) = found else {
        return vec![format!("there is no program in {language}")];
    };
    let program = fs::read_to_string(root().join(path)).expect("a program");
    match lines(&program)
        .windows(lines(text).len().max(1))
        .any(|at| at == lines(text))
    {
        true => Vec::new(),
        false => vec![format!("{path} has not these lines: copy them from there")],
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_start).collect()
}

/// A client that is tested and that no page shows helps nobody.
#[test]
fn every_client_is_shown() {
    let page = fs::read_to_string(root().join("docs/tasks/clients.md")).expect("a page");
    for (language, _) in PROGRAMS {
        assert!(page.contains(&format!("```{language}\n")), "{language}");
    }
}
