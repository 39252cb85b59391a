//! etcd's configuration file: the accepted content, and the error for each mistake.

use std::time::Duration;

use super::parse;

fn refusal(text: &str) -> String {
    parse("f.yaml", text).expect_err(text).to_string()
}

#[test]
fn config_file_equals_its_flags() {
    let flags = parse(
        "f.yaml",
        "# comment\nname: 'one'\ndata-dir: /d\nheartbeat-interval: 50\nquota-backend-bytes: -1\n\
         watch-progress-notify-interval: 5000000000\npre-vote: false\nlog-outputs: [stdout]\n\
         cipher-suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n\
         advertise-client-urls:\nlisten-metrics-urls: ''\n\
         client-transport-security:\n  cert-file: c\n  key-file: k\n  client-cert-auth: true\n  trusted-ca-file: ca\n\
         peer-transport-security:\n  cert-file: pc\n",
    )
    .expect("valid");
    assert!(flags.from_file && flags.warnings.is_empty());
    assert_eq!(flags.text("name"), "one");
    assert_eq!(flags.number("heartbeat-interval"), 50);
    assert_eq!(flags.signed("quota-backend-bytes"), -1);
    let interval = flags.duration("watch-progress-notify-interval");
    assert_eq!(interval, Some(Duration::from_secs(5)));
    assert!(!flags.bool("pre-vote"));
    assert_eq!(flags.list("cipher-suites").len(), 2);
    assert_eq!(flags.text("log-outputs"), "stdout");
    assert!(!flags.is_given("advertise-client-urls"));
    assert_eq!(flags.text("cert-file"), "c");
    assert_eq!(flags.text("peer-cert-file"), "pc");
    assert!(flags.bool("client-cert-auth"));
    assert!(!flags.bool("peer-client-cert-auth"));
}

#[test]
fn json_and_empty_config_files_are_accepted() {
    let flags = parse("f.json", "{\"name\": \"one\", \"max-txn-ops\": 7}").expect("valid");
    assert_eq!(
        (flags.text("name"), flags.number("max-txn-ops")),
        ("one", 7)
    );
    assert!(!parse("f.yaml", "").expect("empty").is_given("name"));
    assert!(
        !parse("f.yaml", "# nothing\n")
            .expect("empty")
            .is_given("name")
    );
}

#[test]
fn each_mistake_names_the_file_and_the_key() {
    for (text, error) in [
        (
            "heartbeat-intervall: 1",
            "--config-file: f.yaml: the key heartbeat-intervall is not known (did you mean heartbeat-interval?)",
        ),
        ("config-file: x", "the key config-file is not known"),
        (
            "cert-file: x",
            "the key cert-file is not known; it belongs into client-transport-security as cert-file",
        ),
        (
            "peer-transport-security: {cert: x}",
            "the key peer-transport-security.cert is not known; known: cert-file, key-file",
        ),
        (
            "peer-transport-security: yes please",
            "peer-transport-security must be a mapping",
        ),
        (
            "watch-progress-notify-interval: 10m",
            "watch-progress-notify-interval must be a whole number of nanoseconds, such as 600000000000 for 10m",
        ),
        (
            "heartbeat-interval: 100ms",
            "heartbeat-interval must be a whole number",
        ),
        (
            "heartbeat-interval: -1",
            "heartbeat-interval has the value \"-1\": give a whole number from 0",
        ),
        ("pre-vote: perhaps", "pre-vote must be true or false"),
        ("name: {a: b}", "name must be a text"),
        ("log-outputs: [1]", "log-outputs must be a list of texts"),
        (
            "wal-dir: /w",
            "f.yaml: wal-dir is not supported: the log lives in",
        ),
        ("- a", "is not a YAML mapping of settings"),
        ("a: [", "is not a YAML mapping of settings"),
        ("name: a\nname: b", "is not a YAML mapping of settings"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(error), "{text}: {refusal}");
    }
}
