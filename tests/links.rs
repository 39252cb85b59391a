//! Checks the links between the pages: the file exists, and so does the heading if the link names one. Links out of
//! the repository are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page below a folder, without built or downloaded files.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                pages(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The lines of a page outside of code blocks.
fn text(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// A line without its inline code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of the links on a page.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text(page) {
        let line = without_code(line);
        let mut ends = line.split("](");
        ends.next();
        for end in ends {
            let target = end.split([')', ' ']).next().unwrap_or_default();
            found.push(target.to_owned());
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            found.push(target.trim().to_owned());
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub generates them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let heads = text(page).filter(|line| line.starts_with('#'));
    let names = heads.map(|line| {
        // Of a link in a heading, only the text is part of the anchor.
        let mut words = String::new();
        for (at, part) in line.trim_start_matches('#').split("](").enumerate() {
            let part = match at {
                0 => part,
                _ => part.split_once(')').map_or("", |(_, rest)| rest),
            };
            words += part;
        }
        let words = words.trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = seen.entry(name.clone()).or_insert(0);
        *before += 1;
        match *before - 1 {
            0 => name,
            more => format!("{name}-{more}"),
        }
    });
    names.collect()
}

/// The path with `..` and `.` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
}

/// Why a link of a page is broken; `None` if it is not.
fn broken(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => plain(&page.with_file_name(file)),
    };
    if !target.starts_with(root()) {
        return Some("it leads out of the repository".to_owned());
    }
    if !target.exists() {
        return Some("there is no such file".to_owned());
    }
    if heading.is_empty() {
        return None;
    }
    let Ok(there) = fs::read_to_string(&target) else {
        return Some("what has a heading is a page".to_owned());
    };
    (!headings(&there).contains(heading)).then(|| "there is no such heading".to_owned())
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut all = Vec::new();
    pages(root(), &mut all);
    let (mut followed, mut wrong) = (0, Vec::new());
    for page in &all {
        let text = fs::read_to_string(page).expect("text");
        for link in links(&text) {
            followed += 1;
            if let Some(why) = broken(page, &link) {
                let page = page.strip_prefix(root()).expect("below the root");
                wrong.push(format!("{}: ({link}): {why}", page.display()));
            }
        }
    }
    assert!(
        followed > 50,
        "of {} pages only {followed} links were found",
        all.len()
    );
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_broken_link_is_reported() {
    let page = "# The `one`, and [a link](README.md)!\n\n# Two\n## Two\n\n```sh\n# no heading\n[no](link)\n```\n\
                See [this](README.md#read-it) and `[not](this)`, [that](#two-1 \"words\").\n[ref]: docs\n";
    let names: Vec<String> = headings(page).into_iter().collect();
    assert_eq!(names, ["the-one-and-a-link", "two", "two-1"]);
    assert_eq!(
        links(page),
        ["README.md", "README.md#read-it", "#two-1", "docs"]
    );
    let readme = root().join("README.md");
    let why = |link: &str| broken(&readme, link).unwrap_or_default();
    assert_eq!(why("docs/security.md#actors"), "");
    assert_eq!(why("docs/../README.md#measured"), "");
    assert_eq!(why("https://example.com/none"), "");
    assert_eq!(why("docs/none.md"), "there is no such file");
    assert_eq!(why("#none"), "there is no such heading");
    assert_eq!(why("../none.md"), "it leads out of the repository");
}
