//! Extracts the fenced code blocks of the pages for users, without judging them.

use std::fs;
use std::path::PathBuf;

/// The language of a block, which selects how it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// An `EtcdCluster` or other resources, or a part of a cluster's `spec`.
    Yaml,
    /// Commands, which are checked.
    Shell,
    /// Commands, which are also run.
    Run,
    /// Recorded output of a program.
    Output,
    /// Lines of a program that the tests run, in this programming language.
    Program(&'static str),
    /// Anything else: an error.
    Other(String),
}

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The path of the page, relative to the root of the repository.
    pub(crate) page: String,
    /// The line of the opening fence.
    pub(crate) line: usize,
    pub(crate) language: Language,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn new(info: &str, text: &str) -> Block {
        let language = match info {
            "yaml" => Language::Yaml,
            "sh" => Language::Shell,
            "sh run" => Language::Run,
            "text" | "console" => Language::Output,
            other => super::programs::language(other)
                .map_or_else(|| Language::Other(other.to_owned()), Language::Program),
        };
        Block {
            page: String::new(),
            line: 0,
            language,
            text: text.to_owned(),
        }
    }
}

/// The pages that contain commands or resources for users.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "docs/README.md",
        "docs/how-the-operator-decides.md",
    ]
    .iter()
    .map(|page| super::root().join(page))
    .collect();
    for folder in [
        "docs/tasks",
        "docs/runbooks",
        "deploy/systemd",
        "deploy/static-pod",
    ] {
        let entries = fs::read_dir(super::root().join(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages.sort();
    pages
}

/// Every block of the pages for users.
pub(crate) fn of_user_pages() -> Vec<Block> {
    let mut all = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(super::root()).expect("below the root");
        for mut block in blocks(&text) {
            block.page = name.display().to_string();
            all.push(block);
        }
    }
    all
}

/// The blocks of one page; a block in a list is indented as its fence is.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let mut text = String::new();
        for (_, line) in lines.by_ref() {
            if line.trim_start().starts_with("```") {
                break;
            }
            text += line.get(indent..).unwrap_or_default();
            text.push('\n');
        }
        let mut block = Block::new(info.trim(), &text);
        block.line = at + 1;
        found.push(block);
    }
    found
}

#[test]
fn blocks_are_read_as_they_stand() {
    let page = "a\n```sh\none\n```\n- b\n\n  ```yaml\n  two: 2\n  ```\n```\nthree\n```\n";
    let found: Vec<(usize, Language, String)> = blocks(page)
        .into_iter()
        .map(|block| (block.line, block.language, block.text))
        .collect();
    assert_eq!(
        found,
        [
            (2, Language::Shell, "one\n".to_owned()),
            (7, Language::Yaml, "two: 2\n".to_owned()),
            (10, Language::Other(String::new()), "three\n".to_owned()),
        ]
    );
}
