//! Which members and certificates are chosen.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::reach::{Reach, Trust, reach, trust};
use crate::crd::EtcdCluster;
use crate::error::Error;
use crate::screen_test;

const READ: &str = "the test's own objects are whole";

fn cluster(tls: Value, endpoints: Value) -> EtcdCluster {
    let row = |name: &str, role: &str| screen_test::member(name, json!({"role": role}));
    let members = json!([
        row("demo-1", "Voter"),
        row("demo-2", "Voter"),
        row("demo-10", "Learner")
    ]);
    let spec = json!({"replicas": 3, "version": "0.1.0", "tls": tls});
    let status = json!({"members": members, "endpoints": endpoints});
    serde_json::from_value(screen_test::cluster(spec, status)).expect(READ)
}

fn plain() -> EtcdCluster {
    cluster(Value::Null, json!({"client": "http://demo-client:2379"}))
}

fn pod(member: &str, phase: &str, ready: &str, scheme: &str) -> Pod {
    let labels = json!({"quorate.dev/cluster-uid": "u", "quorate.dev/member": member});
    let argument = format!("--listen-client-urls={scheme}://0.0.0.0:2379");
    let container = json!({"name": "member", "args": [argument]});
    let pod = json!({
        "metadata": {"name": format!("{member}-0"), "labels": labels},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_value(pod).expect(READ)
}

fn chosen(pods: &[Pod], named: &[&str]) -> Result<Reach, Error> {
    let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
    reach(&plain(), pods, &named)
}

fn pods_of(reach: &Reach) -> Vec<&str> {
    reach.pods.iter().map(String::as_str).collect()
}

#[test]
fn ready_voters_by_default() {
    let mut stranger = pod("demo-1", "Running", "True", "http");
    let labels = stranger.metadata.labels.as_mut().expect("labels");
    labels.insert("quorate.dev/cluster-uid".to_owned(), "earlier".to_owned());
    let pods = [
        pod("demo-10", "Running", "True", "http"),
        pod("demo-2", "Running", "True", "http"),
        pod("demo-1", "Running", "False", "http"),
        stranger,
    ];
    let all = chosen(&pods, &[]).expect("a member");
    assert_eq!(pods_of(&all), ["demo-2-0"]);
    assert!(!all.tls);
    let error = chosen(&pods[2..], &[]).expect_err("none is ready");
    assert!(error.to_string().contains("no voter of demo is ready"));
}

#[test]
fn named_members_need_not_be_ready() {
    let pods = [
        pod("demo-1", "Running", "False", "http"),
        pod("demo-10", "Running", "True", "http"),
        pod("demo-2", "Pending", "False", "http"),
    ];
    let named = chosen(&pods, &["demo-10", "demo-1", "demo-1"]).expect("members");
    assert_eq!(pods_of(&named), ["demo-1-0", "demo-10-0"]);
    for absent in ["demo-2", "demo-3"] {
        let error = chosen(&pods, &[absent]).expect_err("it does not run");
        assert!(error.to_string().starts_with(absent), "{error}");
    }
}

#[test]
fn members_that_speak_tls_come_first() {
    let pods = [
        pod("demo-1", "Running", "True", "https"),
        pod("demo-2", "Running", "True", "http"),
    ];
    let both = chosen(&pods, &[]).expect("a member");
    assert_eq!((pods_of(&both), both.tls), (vec!["demo-1-0"], true));
}

#[test]
fn certificates_are_the_operators_or_named() {
    let own = json!({
        "client": "https://demo-client:2379", "caSecretRef": {"name": "demo-client-ca"},
        "clientSecretRef": {"name": "demo-client"},
    });
    let wanted = |authorities: &str, identity: Option<&str>| {
        Some(Trust {
            authorities: authorities.to_owned(),
            identity: identity.map(str::to_owned),
        })
    };
    let operators = cluster(json!({}), own);
    let found = trust(&operators, true, None).expect("certificates");
    assert_eq!(found, wanted("demo-client", Some("demo-client")));
    let found = trust(&operators, true, Some("mine")).expect("certificates");
    assert_eq!(found, wanted("demo-client", Some("mine")));

    let company =
        json!({"client": "https://demo-client:2379", "caSecretRef": {"name": "company-roots"}});
    let required = cluster(json!({}), company.clone());
    let error = trust(&required, true, None).expect_err("a certificate is needed");
    assert!(error.to_string().contains("--client-secret"), "{error}");
    let none = cluster(json!({"clientAuth": "None"}), company);
    let found = trust(&none, true, None).expect("certificates");
    assert_eq!(found, wanted("company-roots", None));

    let early = cluster(json!({}), json!({"client": "https://demo-client:2379"}));
    assert!(matches!(
        trust(&early, true, None),
        Err(Error::NoCertificatesYet(_))
    ));
    assert_eq!(trust(&plain(), false, None).expect("no TLS"), None);
    assert!(matches!(
        trust(&plain(), false, Some("mine")),
        Err(Error::NoTls(_))
    ));
}
