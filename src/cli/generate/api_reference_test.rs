//! Tests of the reference: every field and value of ours has a description, and the page matches the CRD.

use serde_json::json;

use super::*;

fn all() -> Vec<Field> {
    let crd = serde_json::to_value(EtcdCluster::crd()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        fields(&schema["properties"][part], part, &values(), &mut found);
    }
    found
}

fn without_text(fields: &[Field]) -> Vec<&str> {
    let mut bare = Vec::new();
    for field in fields {
        // A description is a sentence that begins with a capital letter and ends with a full stop.
        if field.text.split(' ').count() < 2 || !field.text.ends_with(['.', ':']) {
            bare.push(field.path.as_str());
        }
    }
    bare
}

#[test]
fn every_field_of_ours_has_a_text() {
    let all = all();
    assert!(all.len() > 120, "only {} fields", all.len());
    assert_eq!(without_text(&all), Vec::<&str>::new());
}

#[test]
fn a_field_without_a_text_is_found() {
    let schema = json!({"properties": {
        "a": {"type": "string", "description": "What it is."},
        "b": {"type": "array", "description": "Some of them.", "items": {"properties": {"c": {"type": "string"}}}},
        "d": {"type": "object", "description": "As in Kubernetes: core/v1 Affinity.", "properties": {"e": {}}},
        "f": {"type": "string", "description": "Name"},
    }});
    let mut found = Vec::new();
    fields(&schema, "spec", &Values::new(), &mut found);
    assert_eq!(without_text(&found), ["spec.b[].c", "spec.f"]);
}

/// A list of ours that Kubernetes documents elsewhere names the type there.
#[test]
fn kubernetes_types_are_named_not_expanded() {
    let all = all();
    let embedded = all.iter().filter(|field| field.text.contains(EMBEDDED));
    let types: Vec<(&str, &str)> = embedded
        .filter_map(|field| {
            let (_, rest) = field.text.split_once(EMBEDDED)?;
            Some((
                field.path.as_str(),
                rest.split(['.', ',', ' ']).next_back()?,
            ))
        })
        .collect();
    assert_eq!(types.len(), 6, "{types:?}");
    for (path, _) in types {
        let below = format!("{path}[");
        assert!(!all.iter().any(|field| field.path.starts_with(&below)));
    }
}

#[test]
fn every_value_of_an_enumeration_has_a_text() {
    for field in all() {
        let one = field
            .limits
            .iter()
            .find(|limit| limit.starts_with("One of "));
        // Those of a condition are Kubernetes' own.
        if let Some(one) = one.filter(|_| field.path != "status.conditions[].status") {
            assert!(!one.contains("`."), "{}: {one}", field.path);
        }
    }
}

#[test]
fn a_field_is_described_as_in_the_definition() {
    let all = all();
    let field = |path: &str| all.iter().find(|field| field.path == path).expect(path);
    let replicas = field("spec.replicas");
    assert_eq!(
        (replicas.kind.as_str(), replicas.default.as_str()),
        ("integer", "3")
    );
    assert!(
        replicas.limits[0].starts_with("Refused: \"replicas must be 0 (hibernation) to 9"),
        "{replicas:?}"
    );
    let size = field("spec.tls.client");
    assert!(
        size.limits
            .iter()
            .any(|limit| limit
                .starts_with("Refused on a change: \"the source of a port's certificates")),
        "{size:?}"
    );
    let names = field("spec.replaceMembers");
    assert_eq!(names.kind, "list of string");
    assert_eq!(
        names.limits,
        [
            "At most 64 entries. Each once.",
            "Each entry: 1 to 63 characters."
        ]
    );
    let clients = field("spec.networkPolicy.clients");
    let named = clients.limits.join(" ");
    assert!(
        named.contains("`ipBlock`, `namespaceSelector`, `podSelector`"),
        "{named}"
    );
    assert!(
        named.contains("ipBlock.cidr must be a block of addresses"),
        "{named}"
    );
    assert!(
        field("status.endpoints.client")
            .limits
            .contains(&"Required.".to_owned())
    );
    let page = page().expect("a page");
    assert!(page.contains("| `spec.storage.size` | string | `8Gi` | Size of each member's volume"));
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells = line.replace("\\|", "").matches('|').count();
        assert!(cells == 5 || cells == 3, "{line}");
    }
}
