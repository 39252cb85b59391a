//! The list of fields against the schema, and the parts of a path.

use std::collections::BTreeSet;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::path::{Deed, path, set, sources};
use super::{edit_paths, edited_fields, fields, leaves};

fn schema_of_spec() -> Value {
    let crd = serde_json::to_value(crate::crd::EtcdCluster::crd()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"].clone()
}

/// Only volumes that are there make a good value, and it never changes: the scenarios `adopted` give it. Here it is one of
/// the values that are refused.
const OF_SCENARIOS: &str = "bootstrap.adopt.clusterUID";

/// Whoever adds a field adds values to edit it with, for each of its leaves.
#[test]
fn every_field_of_the_schema_is_edited() {
    let schema = schema_of_spec();
    let mut covered = BTreeSet::new();
    for field in fields::all() {
        for value in &field.good {
            let mut spec = json!({});
            set(&mut spec, field.path, value);
            covered.extend(leaves::of_value(&schema, &spec));
        }
    }
    let wanted = leaves::of_schema(&schema);
    assert!(wanted.len() > 60, "{wanted:?}");
    assert!(wanted.contains(OF_SCENARIOS));
    covered.insert(OF_SCENARIOS.to_owned());
    let missing: Vec<_> = wanted.difference(&covered).collect();
    assert!(missing.is_empty(), "no good value has {missing:?}");
    let unknown: Vec<_> = covered.difference(&wanted).collect();
    assert!(unknown.is_empty(), "the schema has no {unknown:?}");
}

#[test]
fn every_field_has_values_of_each_kind() {
    for field in fields::all() {
        assert!(!field.good.is_empty(), "{}", field.path);
        assert!(!field.refused.is_empty(), "{}", field.path);
    }
    let bad = fields::all().iter().filter(|f| !f.bad.is_empty()).count();
    assert!(bad >= 12, "{bad}");
}

#[test]
fn edit_paths_cover_every_field() {
    let all: BTreeSet<_> = edited_fields().into_iter().collect();
    for seed in [1, 2, 77] {
        let mut seen = BTreeSet::new();
        for number in 0..edit_paths() {
            let path = path(seed, number);
            for edit in &path.edits {
                seen.insert(edit.field);
            }
            for field in &seen {
                let done = path.edits.iter().filter(|edit| edit.field == *field);
                let mut done = done.filter(|edit| !matches!(edit.deed, Deed::Refused(_)));
                assert!(done.next_back().is_none_or(|edit| !edit.bad), "{path:?}");
            }
        }
        assert_eq!(seen, all, "seed {seed}");
    }
}

/// A path once gave a cluster without TLS the user's certificates after the operator's own, which a
/// cluster refuses, and called that a fault of the operator.
#[test]
fn no_path_changes_where_certificates_come_from() {
    let mut seen = BTreeSet::new();
    for (seed, number) in (1..=100).flat_map(|seed| (0..edit_paths()).map(move |n| (seed, n))) {
        let path = path(seed, number);
        let first = path.first.get("tls").into_iter();
        let set = path.edits.iter().filter_map(|edit| match &edit.deed {
            Deed::Set(value) if edit.field == "tls" => Some(value),
            _ => None,
        });
        let from: BTreeSet<_> = first.chain(set).map(sources).collect();
        assert!(from.len() <= 1, "{path:?}");
        seen.extend(from);
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// The comparison must be able to see a leaf that is missing.
#[test]
fn field_without_values_is_detected() {
    let schema = json!({"properties": {"a": {"type": "string"},
        "b": {"items": {"properties": {"c": {}, "d": {}}}}}});
    let all = leaves::of_schema(&schema);
    assert_eq!(all.len(), 3);
    let some = leaves::of_value(&schema, &json!({"a": "x", "b": [{"c": 1}]}));
    let missing: Vec<_> = all.difference(&some).collect();
    assert_eq!(missing, ["b[].d"]);
}
