//! The version of this tree where people read and paste it: `Cargo.toml` has it, and these files follow. Other versions in
//! them, such as that of a release, are left alone.

use std::collections::BTreeMap;

/// Files, and what stands before the version in them.
const PLACES: [(&str, &str); 7] = [
    ("Dockerfile", "ARG VERSION="),
    ("charts/quorate/Chart.yaml", "\nversion: "),
    ("charts/quorate/Chart.yaml", "\nappVersion: \""),
    ("deploy/static-pod/quorate.yaml", "image: quorate:"),
    ("README.md", "YOUR-REGISTRY/quorate:"),
    ("docs/tasks/install.md", "YOUR-REGISTRY/quorate:"),
    ("docs/tasks/upgrades.md", "--set image.tag="),
];

/// These files below the current directory, with this version.
pub(super) fn files() -> Result<BTreeMap<String, String>, String> {
    let mut files = BTreeMap::new();
    for (path, before) in PLACES {
        let text = match files.remove(path) {
            Some(text) => text,
            None => std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read {path}: {error}"))?,
        };
        let text = with_version(&text, before, env!("CARGO_PKG_VERSION"));
        let text = text.ok_or_else(|| {
            format!("{path} has no version behind {before:?}: correct src/cli/generate/version.rs")
        })?;
        files.insert(path.to_owned(), text);
    }
    Ok(files)
}

/// The text with this version everywhere behind these words; `None` if it is nowhere.
fn with_version(text: &str, before: &str, version: &str) -> Option<String> {
    let mut parts = text.split(before);
    let mut whole = parts.next()?.to_owned();
    let mut found = false;
    for part in parts {
        let ends = |c: char| !c.is_ascii_alphanumeric() && !".-+".contains(c);
        let end = part.find(ends).unwrap_or(part.len());
        // A point behind it ends a sentence.
        let (old, _) = part.split_at(end);
        let old = old.trim_end_matches('.');
        let is_version = old.starts_with(|c: char| c.is_ascii_digit());
        found |= is_version;
        whole.push_str(before);
        whole.push_str(if is_version { version } else { old });
        whole.push_str(&part[old.len()..]);
    }
    found.then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_behind_the_words_change() {
        let text =
            "run x:0.1.0 .\npush x:0.1.0-rc.1\nnot y:0.1.0, nor x:main; the last is x:0.1.0.\n";
        let new = "run x:0.2.0 .\npush x:0.2.0\nnot y:0.1.0, nor x:main; the last is x:0.2.0.\n";
        assert_eq!(with_version(text, "x:", "0.2.0").as_deref(), Some(new));
        assert_eq!(with_version(new, "x:", "0.2.0").as_deref(), Some(new));
        assert_eq!(with_version("x:main", "x:", "0.2.0"), None);
    }
}
