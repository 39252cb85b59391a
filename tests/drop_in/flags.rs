//! Every flag of real etcd is in the flag table, with etcd's default.

use std::process::Command;

use quorate::server::flag_table::{self, Class, Kind};

use crate::node::peers;

/// Defaults that are not etcd's words; each by choice.
const OTHER_DEFAULTS: &[(&str, &str)] = &[
    // etcd prints a shell's variable, a Go constant or a computed value.
    ("data-dir", ""),
    ("max-concurrent-streams", "4294967295"),
    ("initial-cluster", ""),
    ("log-rotation-config-json", ""),
    ("backend-batch-interval", "0"),
];

#[test]
fn every_flag_of_etcd_is_known_with_its_default() {
    let Some(peers) = peers("flags::every_flag_of_etcd_is_known_with_its_default") else {
        return;
    };
    let output = Command::new(peers.join("etcd"))
        .arg("--help")
        .env_clear()
        .output()
        .expect("etcd runs");
    let help = [output.stdout, output.stderr].concat();
    let help = String::from_utf8_lossy(&help);
    let mut flags = Vec::new();
    for line in help.lines() {
        let Some(text) = line.strip_prefix("  --") else {
            continue;
        };
        let (name, default) = text.split_once(' ').unwrap_or((text, ""));
        flags.push((name, default.trim_matches('\'')));
    }
    assert!(flags.len() > 100, "{} flags in\n{help}", flags.len());
    for (name, default) in flags {
        let flag = flag_table::find(name).unwrap_or_else(|| panic!("--{name} is missing"));
        let by_choice = OTHER_DEFAULTS.iter().find(|(other, _)| *other == name);
        match by_choice {
            Some((_, ours)) => assert_eq!(flag.default, *ours, "--{name}"),
            // Some of etcd's lines name no default.
            None if default.is_empty() => {}
            None => assert_eq!(flag.default, default, "--{name}"),
        }
    }
}

#[test]
fn every_flag_can_be_given_as_one_argument() {
    for flag in flag_table::FLAGS {
        let needs = matches!(flag.class, Class::Refused(_)) || flag.default.is_empty();
        if needs || flag.kind == Kind::Text || flag.name == "version" {
            continue;
        }
        for dashes in ["-", "--"] {
            let argument = format!("{dashes}{}={}", flag.name, flag.default);
            let flags = quorate::server::flags::Flags::parse(
                std::slice::from_ref(&argument),
                &std::collections::BTreeMap::new(),
            );
            let flags = flags.unwrap_or_else(|error| panic!("{argument}: {error}"));
            assert!(flags.is_given(flag.name), "{argument}");
        }
    }
}
