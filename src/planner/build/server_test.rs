//! `spec.server` as flags, and which members it makes outdated.

use super::*;
use crate::crd::{
    EtcdCluster, FLAGS_OF_OPERATOR, FLAGS_OF_SERVER, FLAGS_OF_TLS, Timings, ValidatedCluster,
    parse, validate,
};

fn cluster(spec: &str) -> ValidatedCluster {
    let head = "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: demo, namespace: prod, uid: u}\n";
    let mut cluster: EtcdCluster = parse(&format!("{head}spec: {spec}\n")).expect("valid");
    cluster.spec.version = "0.1.0".into();
    validate(&cluster).expect("valid")
}

fn flags(server: &str) -> Vec<String> {
    server_flags(&cluster(&format!("{{server: {server}}}")).spec.server)
}

const ALL: &str = "{quota: 1Gi, autoCompaction: {mode: Revision, retention: '1000'}, heartbeatIntervalMilliseconds: 200, electionTimeoutMilliseconds: 2000, extraArgs: [{name: log-level, value: debug}, {name: unsafe-no-fsync, value: 'true'}]}";

#[test]
fn every_setting_of_the_server_is_a_flag() {
    let expected = [
        "--quota-backend-bytes=1073741824",
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=1000",
        "--heartbeat-interval=200",
        "--election-timeout=2000",
        "--log-level=debug",
        "--unsafe-no-fsync=true",
    ];
    assert_eq!(flags(ALL), expected);
    let all = cluster(&format!("{{server: {ALL}}}"));
    let arguments = server_arguments(&all, "demo-1", false);
    assert!(arguments.ends_with(&expected.map(str::to_owned)));
    let plain = server_arguments(&cluster("{}"), "demo-1", false);
    assert_eq!(plain.len() + expected.len(), arguments.len());
    let facts = server_facts(arguments.iter().map(String::as_str));
    assert_eq!(facts, crate::plan::ServerFacts::of(&all.spec.server));
    assert!(facts.unsynced && facts.timings.election_ms == 2000);
    let facts = server_facts(plain.iter().map(String::as_str));
    assert_eq!((facts.unsynced, facts.timings), (false, Timings::default()));
}

/// The kubelet replaces `$(NAME)` in arguments, and takes `$$(` for the text itself.
#[test]
fn a_value_has_its_etcd_meaning() {
    let odd = cluster("{server: {extraArgs: [{name: cors, value: 'a$(POD_UID)'}]}}");
    let arguments = server_arguments(&odd, "demo-1", false);
    let last = arguments.last().map(String::as_str);
    assert_eq!(last, Some("--cors=a$$(POD_UID)"));
}

/// A newer operator with settings of the server restarts no member; nor does setting the server's default, or the same
/// value written differently.
#[test]
fn only_effective_changes_roll() {
    let of = |server: &str| wanted_inputs(&cluster(&format!("{{server: {server}}}")));
    let plain = wanted_inputs(&cluster("{}"));
    assert_eq!(plain, "39a193e505a73bd789df2f497846ccb1");
    for own in [
        "{}",
        "{autoCompaction: {mode: Revision}}",
        "{autoCompaction: {retention: 0s}}",
        "{heartbeatIntervalMilliseconds: 100, electionTimeoutMilliseconds: 1000}",
        "{extraArgs: []}",
    ] {
        assert_eq!(of(own), plain, "{own}");
    }
    let mut seen = vec![plain];
    for other in [
        "{quota: 1Gi}",
        "{autoCompaction: {retention: 1h}}",
        "{autoCompaction: {mode: Revision, retention: '5'}}",
        "{heartbeatIntervalMilliseconds: 50}",
        "{electionTimeoutMilliseconds: 2000}",
        "{extraArgs: [{name: log-level, value: debug}]}",
        "{extraArgs: [{name: log-level, value: warn}]}",
    ] {
        let inputs = of(other);
        assert!(!seen.contains(&inputs), "{other}");
        seen.push(inputs);
    }
    assert_eq!(of("{quota: 1Gi}"), of("{quota: 1024Mi}"));
    let (one, two) = ("{name: log-level, value: warn}", "{name: cors, value: a}");
    assert_eq!(
        of(&format!("{{extraArgs: [{one}, {two}]}}")),
        of(&format!("{{extraArgs: [{two}, {one}]}}"))
    );
}

/// Flags that the operator sets cannot be set a second time.
#[test]
fn flags_of_the_operator_are_not_for_users() {
    let tls = "{tls: {plaintext: Accepted}}";
    let mut arguments = server_arguments(&cluster("{}"), "demo-1", false);
    arguments.extend(server_arguments(&cluster(tls), "demo-1", true));
    arguments.extend(flags(ALL).into_iter().take(5));
    let reserved = [FLAGS_OF_OPERATOR, FLAGS_OF_SERVER, FLAGS_OF_TLS].concat();
    for argument in arguments.iter().filter(|argument| *argument != "server") {
        let name = argument.trim_start_matches("--").split('=').next();
        let name = name.unwrap_or_default();
        assert!(reserved.contains(&name), "--{name} can be asked for");
    }
}
