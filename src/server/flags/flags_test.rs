//! Go's syntax, the environment, and the three classes of flags.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{FlagError, Flags, parse_duration, parse_nanoseconds};
use crate::server::flags::table::{self, Class, FLAGS, Group};

fn parse(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Flags, FlagError> {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let environment: BTreeMap<String, String> = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Flags::parse(&arguments, &environment)
}

#[test]
fn flags_take_both_dash_and_separator_forms() {
    let flags = parse(
        &[
            "--name=a",
            "-data-dir",
            "/d",
            "--client-cert-auth",
            "-pre-vote=F",
            "--snapshot-count",
            "7",
        ],
        &[],
    )
    .expect("valid");
    assert_eq!(flags.text("name"), "a");
    assert_eq!(flags.text("data-dir"), "/d");
    assert!(flags.bool("client-cert-auth"));
    assert!(!flags.bool("pre-vote"));
    assert_eq!(flags.number("snapshot-count"), 7);
    assert_eq!(flags.number("max-txn-ops"), 128, "the default");
    assert!(flags.warnings.is_empty());
}

#[test]
fn go_durations_are_parsed() {
    for (text, milliseconds) in [
        ("100ms", 100),
        ("1h30m", 5_400_000),
        ("1.5s", 1500),
        ("0", 0),
        ("0s", 0),
        ("5s", 5000),
        ("+5s", 5000),
        (".5s", 500),
        ("1.s", 1000),
        ("2562047h", 9_223_369_200_000_000_000 / 1_000_000),
        ("0.1000000000000000000000000000001s", 100),
    ] {
        assert_eq!(
            parse_duration(text),
            Some(Duration::from_millis(milliseconds)),
            "{text}"
        );
    }
    for text in [
        "", "5", "s", "-", "+", ".s", "1..5s", "--5s", "5 s", "5d", "1h30", "9999999h", "2562048h",
    ] {
        assert_eq!(parse_nanoseconds(text), None, "{text}");
    }
    assert_eq!(parse_duration("-5s"), None);
    for (text, nanoseconds) in [
        ("-5s", -5_000_000_000),
        ("-0", 0),
        ("-9223372036854775808ns", i64::MIN),
        ("9223372036854775807ns", i64::MAX),
    ] {
        assert_eq!(parse_nanoseconds(text), Some(nanoseconds), "{text}");
    }
}

#[test]
fn environment_fills_unset_flags() {
    let flags = parse(
        &["--name=a"],
        &[("ETCD_DATA_DIR", "/d"), ("ETCD_WAL_DIR", ""), ("HOME", "/")],
    )
    .expect("valid");
    assert_eq!(flags.text("data-dir"), "/d");
    assert!(flags.warnings.is_empty());
    assert_eq!(
        parse(&["--name=a"], &[("ETCD_NAME", "b")])
            .expect_err("both")
            .to_string(),
        "environment variable ETCD_NAME and flag --name are both set: unset the variable or leave the flag out"
    );
    let flags = parse(
        &[],
        &[("ETCD_SERVICE_HOST", "10.0.0.1"), ("ETCD_VERSION", "3")],
    )
    .expect("valid");
    assert_eq!(flags.warnings.len(), 2, "{:?}", flags.warnings);
}

#[test]
fn each_refusal_names_the_flag_and_the_remedy() {
    for (arguments, text) in [
        (
            &["--heartbeat-intervall=1"][..],
            "flag --heartbeat-intervall is not known (did you mean --heartbeat-interval?); see 'quorate server --help'",
        ),
        (
            &["--qwertyuiop=1"],
            "flag --qwertyuiop is not known; see 'quorate server --help'",
        ),
        (
            &["gateway"],
            "\"gateway\" is not a flag: flags begin with '--', and the server takes no other arguments",
        ),
        (&["--name"], "flag --name needs a value: --name=VALUE"),
        (
            &["--snapshot-count=-1"],
            "flag --snapshot-count has the value \"-1\": give a whole number from 0",
        ),
        (
            &["--pre-vote=yes"],
            "flag --pre-vote has the value \"yes\": give true or false",
        ),
        (
            &["--initial-cluster-state=old"],
            "flag --initial-cluster-state has the value \"old\": give \"new\" or \"existing\"",
        ),
        (
            &["--wal-dir=/w"],
            "flag --wal-dir is not supported: the log lives in --data-dir: put that directory on the fast volume",
        ),
    ] {
        assert_eq!(parse(arguments, &[]).expect_err(text).to_string(), text);
    }
    let text = parse(&[], &[("ETCD_WAL_DIR", "/w")])
        .expect_err("refused")
        .to_string();
    assert!(
        text.starts_with("environment variable ETCD_WAL_DIR is not supported"),
        "{text}"
    );
}

#[test]
fn default_flag_values_are_accepted() {
    for flag in FLAGS.iter().filter(|flag| flag.group != Group::Removed) {
        let argument = format!("--{}={}", flag.name, flag.default);
        let flags = parse(&[&argument], &[]).expect(&argument);
        assert!(
            flags.warnings.is_empty(),
            "{argument}: {:?}",
            flags.warnings
        );
    }
}

#[test]
fn config_file_excludes_other_flags() {
    let file = |arguments: &[&str], environment: &[(&str, &str)]| {
        let flags = parse(arguments, environment).expect("valid");
        (flags.text("config-file").to_owned(), flags.is_given("name"))
    };
    let expected = |path: &str| (path.to_owned(), false);
    let arguments = ["--name=a", "--wal-dir=/w", "--config-file", "f"];
    assert_eq!(file(&arguments, &[("ETCD_NAME", "b")]), expected("f"));
    let both = [("ETCD_CONFIG_FILE", "g")];
    assert_eq!(file(&["--name=a"], &both), expected("g"));
    assert_eq!(file(&["--config-file=f"], &both), expected("f"));
    let version = parse(&["--config-file=f", "--version"], &[]).expect("valid");
    assert!(version.bool("version"));
    // An unknown flag is refused nevertheless.
    assert!(parse(&["--config-file=f", "--nmae=a"], &[]).is_err());
}

#[test]
fn flags_without_effect_are_reported() {
    let flags = parse(
        &[
            "--experimental-initial-corrupt-check",
            "--backend-batch-limit=5",
            "--memory-mlock",
        ],
        &[],
    )
    .expect("accepted");
    assert_eq!(flags.warnings.len(), 3);
    assert_eq!(
        flags.warnings[1],
        "flag --backend-batch-limit is accepted without effect: there is no bbolt file to tune"
    );
}

#[test]
fn kubeadms_flags_are_accepted() {
    let flags = parse(
        &[
            "--advertise-client-urls=https://10.0.0.1:2379",
            "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
            "--client-cert-auth=true",
            "--data-dir=/var/lib/etcd",
            "--feature-gates=InitialCorruptCheck=true",
            "--initial-advertise-peer-urls=https://10.0.0.1:2380",
            "--initial-cluster=node=https://10.0.0.1:2380",
            "--key-file=/etc/kubernetes/pki/etcd/server.key",
            "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379",
            "--listen-metrics-urls=http://127.0.0.1:2381",
            "--listen-peer-urls=https://10.0.0.1:2380",
            "--name=node",
            "--peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt",
            "--peer-client-cert-auth=true",
            "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
            "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--snapshot-count=10000",
            "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--watch-progress-notify-interval=5s",
        ],
        &[],
    )
    .expect("accepted");
    assert_eq!(
        flags.warnings.len(),
        0,
        "each of them is carried out: {:?}",
        flags.warnings
    );
}

/// kubeadm writes these two where the tag of etcd's image is no version of 3.6 or newer.
#[test]
fn kubeadms_older_flags_are_accepted() {
    let flags = parse(
        &[
            "--name=node",
            "--experimental-initial-corrupt-check=true",
            "--experimental-watch-progress-notify-interval=5s",
        ],
        &[],
    )
    .expect("accepted");
    assert_eq!(flags.warnings.len(), 2, "{:?}", flags.warnings);
}

#[test]
fn flag_table_is_sorted() {
    let names: BTreeSet<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    assert_eq!(names.len(), FLAGS.len(), "a name stands twice");
    for flag in FLAGS {
        let text = match flag.class {
            Class::Effect => continue,
            Class::Accepted(text) | Class::Refused(text) => text,
        };
        assert!(!text.is_empty() && !text.ends_with('.'), "{}", flag.name);
    }
}

#[test]
fn help_lists_every_flag_that_is_not_removed() {
    let help = table::help();
    for flag in FLAGS {
        let line = format!("  --{} ", flag.name);
        assert_eq!(
            help.contains(&line),
            flag.group != Group::Removed,
            "{}",
            flag.name
        );
    }
    assert!(parse(&["--name=a", "-h"], &[]).expect("help").help);
}
