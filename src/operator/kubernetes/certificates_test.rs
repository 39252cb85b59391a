//! How members are dialled.

use serde_json::json;

use super::*;
use crate::build::CONTAINER;
use crate::operator::testing::observation_at;

fn started(arguments: &[&str]) -> serde_json::Value {
    json!({"containers": [{"name": CONTAINER, "args": arguments}]})
}

/// How `demo-1` is dialled, by the arguments of its pod and of its set, with this Secret there.
fn dialled(pod: &[&str], set: &[&str], roots: Option<&str>) -> Way {
    let cluster = observation_at(0).observed.cluster.expect("a cluster");
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {}, "spec": started(pod)})).expect("a pod");
    let set: StatefulSet = serde_json::from_value(json!({"metadata": {}, "spec": {
        "selector": {}, "serviceName": "s", "template": {"spec": started(set)}}}))
    .expect("a set");
    let roots = |name: &str| {
        let data = [("ca.crt".to_owned(), k8s_openapi::ByteString(roots?.into()))];
        let mut secret = Secret {
            data: Some(data.into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        Held::of(&secret).roots
    };
    way(Some(&cluster), "demo-1", (&pod, &set), roots, |_| None)
}

const PLAIN: &[&str] = &["server", "--listen-peer-urls=http://0.0.0.0:2380"];
const BOTH: &[&str] = &[
    "server",
    "--listen-peer-urls=https://0.0.0.0:2380",
    build::TRANSITION,
];
const TLS: &[&str] = &["server", "--listen-peer-urls=https://0.0.0.0:2380"];

/// A pod that claimed to have been started without TLS was dialled without, and so was one with an unknown CA: anything
/// that answered there counted as the member.
#[test]
fn no_way_back_from_tls() {
    let made = authority();
    let roots = Some(made.as_str());
    // Before TLS, and while it comes, what a pod was started with is what it speaks.
    assert_eq!(dialled(PLAIN, PLAIN, roots), Way::Plain);
    assert_eq!(dialled(PLAIN, BOTH, roots), Way::Plain);
    assert!(matches!(dialled(BOTH, BOTH, roots), Way::Secure(_)));
    // From then on it is not consulted.
    assert!(matches!(dialled(PLAIN, TLS, roots), Way::Secure(_)));
    assert!(matches!(dialled(TLS, TLS, roots), Way::Secure(_)));
    assert_eq!(dialled(TLS, TLS, None), Way::None);
    assert_eq!(dialled(PLAIN, TLS, None), Way::None);
}

fn authority() -> String {
    let at = |ms| Timestamp::from_millisecond(ms).expect("a time");
    let validity = Validity {
        not_before: at(0),
        not_after: at(4_000_000_000_000),
    };
    let made = Authority::new("test", validity, None).and_then(|made| made.issued());
    made.expect("an authority").certificate
}
