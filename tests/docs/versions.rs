//! The changelog's versions and the one of this tree.

/// The tree went on as 0.1.0 long after that release: an operator of it took the release's members for its own version, and
/// their disks, which the release could not read any more, for ones that it can.
#[test]
fn a_released_version_is_not_built_again() {
    let log = std::fs::read_to_string(super::root().join("CHANGELOG.md")).unwrap();
    let sections = log.split("\n## ").skip(1);
    let released: Vec<&str> = sections
        .filter(|section| section.contains("\nCommit `"))
        .filter_map(|section| section.lines().next())
        .collect();
    assert!(released.contains(&"0.1.0"), "{released:?}");
    let own = env!("CARGO_PKG_VERSION");
    assert!(
        !released.contains(&own),
        "{own} was released from another commit: raise the version in Cargo.toml (CONTRIBUTING.md, \"A version\")"
    );
}
