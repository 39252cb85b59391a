//! IP families of Services beside the rules of the real API server, as `pkg/registry/core/service/storage/alloc.go` and the
//! validation of Kubernetes 1.34 have them.

use serde_json::{Value, json};

use super::tests::{apply, server};
use super::*;

fn service(spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": "prod"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 1}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

/// Applies one after the other to one Service; what it has then, or why the last one is refused.
fn applied(
    configured: &[&'static str],
    specs: &[Value],
) -> Result<(String, String, usize), String> {
    let mut server = server();
    server.set_ip_families(configured);
    let mut last = Err("nothing".to_owned());
    for spec in specs {
        let answer = apply(&mut server, "quorate", service(spec.clone()), true);
        last = answer.map_err(|refusal| {
            assert_eq!(refusal.code, 422, "{refusal:?}");
            refusal.message
        });
    }
    let last = last?;
    let families: Vec<&str> = object::items(&last, &["spec", "ipFamilies"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let addresses = object::items(&last, &["spec", "clusterIPs"]);
    assert_eq!(Some(&last["spec"]["clusterIP"]), addresses.first());
    for (address, family) in addresses.iter().zip(&families) {
        let six = address.as_str().is_some_and(|text| text.contains(':'));
        assert!(address == "None" || six == (*family == "IPv6"), "{last}");
    }
    let policy = object::text(&last, &["spec", "ipFamilyPolicy"]).to_owned();
    Ok((policy, families.join(","), addresses.len()))
}

fn is(policy: &str, families: &str, addresses: usize) -> Result<(String, String, usize), String> {
    Ok((policy.to_owned(), families.to_owned(), addresses))
}

const DUAL: &[&str] = &["IPv4", "IPv6"];
const ONE: &[&str] = &["IPv4"];
const SIX: &[&str] = &["IPv6", "IPv4"];

#[test]
fn families_come_and_go_with_the_policy() {
    let (single, prefer, require) = (
        json!({"ipFamilyPolicy": "SingleStack"}),
        json!({"ipFamilyPolicy": "PreferDualStack"}),
        json!({"ipFamilyPolicy": "RequireDualStack"}),
    );
    let silent = json!({});
    let headless = |policy: &str| json!({"clusterIP": "None", "ipFamilyPolicy": policy});
    for (configured, specs, expected) in [
        (DUAL, vec![silent.clone()], is("SingleStack", "IPv4", 1)),
        (
            DUAL,
            vec![prefer.clone()],
            is("PreferDualStack", "IPv4,IPv6", 2),
        ),
        (ONE, vec![prefer.clone()], is("PreferDualStack", "IPv4", 1)),
        (
            SIX,
            vec![require.clone()],
            is("RequireDualStack", "IPv6,IPv4", 2),
        ),
        (
            DUAL,
            vec![silent.clone(), prefer.clone()],
            is("PreferDualStack", "IPv4,IPv6", 2),
        ),
        (
            DUAL,
            vec![prefer.clone(), single.clone()],
            is("SingleStack", "IPv4", 1),
        ),
        // What is not applied any more stays.
        (
            DUAL,
            vec![prefer.clone(), silent.clone()],
            is("PreferDualStack", "IPv4,IPv6", 2),
        ),
        (
            DUAL,
            vec![json!({"ipFamilies": ["IPv6"]}), silent.clone()],
            is("SingleStack", "IPv6", 1),
        ),
        (
            DUAL,
            vec![json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"})],
            is("PreferDualStack", "IPv6,IPv4", 2),
        ),
        (
            DUAL,
            vec![
                json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}),
                json!({"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}),
            ],
            is("SingleStack", "IPv4", 1),
        ),
        (
            DUAL,
            vec![headless("SingleStack"), headless("PreferDualStack")],
            is("PreferDualStack", "IPv4,IPv6", 1),
        ),
        (
            DUAL,
            vec![headless("RequireDualStack"), headless("SingleStack")],
            is("SingleStack", "IPv4", 1),
        ),
        // One without an address may change its first one.
        (
            DUAL,
            vec![
                json!({"clusterIP": "None", "ipFamilies": ["IPv4"]}),
                json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}),
            ],
            is("SingleStack", "IPv6", 1),
        ),
    ] {
        assert_eq!(
            applied(configured, &specs),
            expected,
            "{configured:?} {specs:?}"
        );
    }
}

#[test]
fn impossible_families_are_refused() {
    let prefer = json!({"ipFamilyPolicy": "PreferDualStack"});
    for (configured, specs, words) in [
        (
            ONE,
            vec![json!({"ipFamilyPolicy": "RequireDualStack"})],
            "this cluster is not configured for dual-stack services",
        ),
        (
            ONE,
            vec![json!({"ipFamilies": ["IPv6"]})],
            "not configured on this cluster",
        ),
        (
            DUAL,
            vec![json!({"ipFamilies": ["IPv4", "IPv6"]})],
            "when multiple IP families are specified",
        ),
        (
            DUAL,
            vec![json!({"ipFamilies": ["IPv4", "IPv4"], "ipFamilyPolicy": "PreferDualStack"})],
            "Duplicate value",
        ),
        (
            DUAL,
            vec![json!({"ipFamilyPolicy": "Both"})],
            "Unsupported value",
        ),
        (
            DUAL,
            vec![json!({"ipFamilies": ["IPv5"]})],
            "Unsupported value",
        ),
        (
            DUAL,
            vec![json!({}), json!({"ipFamilies": ["IPv6"]})],
            "expected an IPv6 value as indicated by `ipFamilies[0]`",
        ),
        (
            DUAL,
            vec![
                prefer.clone(),
                json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]}),
            ],
            "must be 'SingleStack' to release the secondary IP family",
        ),
        (
            DUAL,
            vec![prefer, json!({"ipFamilies": ["IPv4"]})],
            "must be 'SingleStack' to release the secondary IP family",
        ),
    ] {
        let refused = applied(configured, &specs).expect_err("refused");
        assert!(refused.contains(words), "{specs:?}: {refused}");
    }
}
