//! Which test runs the commands of a page: every block of shell commands of the README, the tasks and the runbooks is run by one, or is
//! listed in `ran.txt` with what runs the same or why nothing does. Never runs any itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::blocks::{self, Block, Language};

/// They run blocks of pages on a real Kubernetes.
const SCENARIOS: [&str; 2] = [
    "tests/e2e/scenarios/pages.sh",
    "tests/e2e/scenarios/pages-recovery.sh",
];
/// Of them, the one that runs the pages of the alerts.
const RUNBOOKS: &str = SCENARIOS[0];
/// Lists the other ones.
const LIST: &str = "tests/docs/ran.txt";
/// Its blocks without kubectl are read and run by a test of the cluster.
const OUT: (&str, &str) = ("docs/tasks/move-to-etcd.md", "tests/cluster/out.rs");

/// The page of a block, and how it begins.
type Named = (String, String);

#[test]
fn every_block_of_commands_is_run_by_a_test() {
    let mut ran: BTreeMap<Named, &str> = BTreeMap::new();
    for (name, by) in SCENARIOS.into_iter().flat_map(of_scenario).chain(of_list()) {
        let twice = ran.insert(name.clone(), by);
        assert!(twice.is_none(), "{name:?} is in {by} and {twice:?}");
    }
    let blocks = blocks::of_user_pages();
    let shell: Vec<&Block> = blocks.iter().filter(|block| is_ours(block)).collect();
    assert!(shell.len() > 100, "only {} blocks were found", shell.len());
    let mut wrong = Vec::new();
    for block in &shell {
        let names = ran.keys().filter(|name| names(name, block)).count();
        if names > 1 {
            wrong.push(format!("{}:{}: it is named twice", block.page, block.line));
        } else if names == 0 && !is_run_with_its_page(block) {
            wrong.push(format!("{}:{}: no test runs it", block.page, block.line));
        }
    }
    for (name, by) in &ran {
        if shell.iter().filter(|block| names(name, block)).count() != 1 {
            wrong.push(format!("{by}: {name:?} names not one block"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn is_ours(block: &Block) -> bool {
    let page = block.page.as_str();
    let ours = page == "README.md" || page.starts_with("docs/");
    ours && block.language == Language::Shell
}

fn names((page, first): &Named, block: &Block) -> bool {
    *page == block.page && block.text.starts_with(first.as_str())
}

/// Whether it is run with all others of its page, or of a part of it. What these leave out is listed.
fn is_run_with_its_page(block: &Block) -> bool {
    let (page, by) = OUT;
    if block.page == page && !block.text.contains("kubectl") {
        let section = heading_before(page, block.line);
        let sections = format!("blocks(\"{section}\")");
        return read(by).contains(&sections);
    }
    block.page.starts_with("docs/runbooks/") && runs_runbook(&block.page)
}

/// The last heading of the second level before a line.
fn heading_before(page: &str, line: usize) -> String {
    let text = read(page);
    let before = text.lines().take(line);
    let heading = before.filter(|line| line.starts_with("## ")).last();
    heading.unwrap_or_default().to_owned()
}

/// Whether the scenario's loop over all runbooks runs this one, or a line of its own does where the loop leaves it out.
fn runs_runbook(page: &str) -> bool {
    let text = read(RUNBOOKS);
    let mut lines = text.lines();
    let all = lines.any(|line| line == "for page in docs/runbooks/*.md; do");
    let name = page.rsplit('/').next().unwrap_or_default();
    let left_out = lines.any(|line| line.trim_start().starts_with(&format!("*/{name}) ;;")));
    let own = format!("block {page} '*'");
    all && (!left_out || text.lines().any(|line| line.starts_with(&own)))
}

/// The blocks that a scenario runs, by the lines that say so.
fn of_scenario(scenario: &'static str) -> Vec<(Named, &'static str)> {
    let text = read(scenario).replace("$docs/", "docs/tasks/");
    let calls = text.lines().filter_map(|line| line.strip_prefix("block "));
    let calls = calls.map(|call| {
        let (page, rest) = call.split_once(' ').expect("a page and a line");
        ((page.to_owned(), quoted(rest)), scenario)
    });
    // Runbooks are run whole.
    let calls = calls.filter(|((page, _), _)| !page.starts_with("docs/runbooks/"));
    calls.collect()
}

/// The first word of a shell's line, in quotes of either kind.
fn quoted(rest: &str) -> String {
    let quote = rest.chars().next().expect("a quote");
    assert!(matches!(quote, '\'' | '"'), "no quote begins {rest}");
    let mut word = String::new();
    let mut chars = rest.chars().skip(1);
    while let Some(it) = chars.next().filter(|it| *it != quote) {
        match it {
            '\\' if quote == '"' => word.extend(chars.next()),
            it => word.push(it),
        }
    }
    word
}

fn of_list() -> Vec<(Named, &'static str)> {
    let text = read(LIST);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entries = lines.map(|line| {
        let [page, first, why]: [&str; 3] = line
            .split(" | ")
            .collect::<Vec<_>>()
            .try_into()
            .expect("a page, a line and a reason");
        assert!(why.len() > 10, "{line} says nothing");
        named_files(why).for_each(|path| assert!(path.exists(), "{line}: no {}", path.display()));
        ((page.to_owned(), first.replace("\\n", "\n")), LIST)
    });
    entries.collect()
}

/// The scenarios and the files of tests that a reason names.
fn named_files(why: &str) -> impl Iterator<Item = PathBuf> {
    let words: Vec<&str> = why.split([' ', ',', ';', ':']).collect();
    let scenarios = words.windows(2).filter(|pair| pair[0] == "scenario");
    let scenarios = scenarios.map(|pair| format!("tests/e2e/scenarios/{}.sh", pair[1]));
    let files = words.iter().filter(|word| word.starts_with("tests/"));
    let all: Vec<String> = scenarios.chain(files.map(ToString::to_string)).collect();
    all.into_iter().map(|path| super::root().join(path))
}

fn read(path: &str) -> String {
    fs::read_to_string(super::root().join(path)).expect(path)
}
