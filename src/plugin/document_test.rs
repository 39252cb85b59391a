//! The documents of `-o json` and `-o yaml`: `tests/screens`. `UPDATE_GOLDEN=1` rewrites them.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::document::{self, Format, written};
use super::screen::{Observation, Operator};
use super::screen_test::{NOW, cluster, compare_wide, member};

const READ: &str = "the test's own objects are whole";

fn resource() -> Value {
    let status = json!({
        "observedGeneration": 3, "summary": "3 voters, demo-2 leads",
        "members": [member("demo-1", json!({})), member("demo-2", json!({"leader": true}))],
    });
    let mut resource = cluster(json!({"replicas": 3, "version": "0.1.0"}), status);
    // Of a newer operator, for example.
    resource["status"]["unknownToThisPlugin"] = json!([1]);
    resource
}

fn observed(operator: Operator) -> Value {
    let event = |at: &str, reason: &str| {
        json!({
            "metadata": {"name": at}, "involvedObject": {}, "type": "Normal", "reason": reason,
            "message": "in words", "lastTimestamp": at,
        })
    };
    let events = json!([
        event("2026-05-01T11:59:00Z", "Promoted"),
        event("2026-05-01T11:58:00Z", "Joined")
    ]);
    let observation = Observation {
        cluster: serde_json::from_value(resource()).expect(READ),
        events: serde_json::from_value(events).expect(READ),
        operator,
    };
    let now = NOW.parse::<Timestamp>().expect(READ);
    document::status(&resource(), &observation, now)
}

fn leases(renewed: &str) -> Operator {
    let leases = json!([{
        "metadata": {"name": "quorate-operator", "namespace": "quorate-system"},
        "spec": {"renewTime": renewed, "leaseDurationSeconds": 15, "holderIdentity": "quorate-7d9-x2"},
    }]);
    Operator::Leases(serde_json::from_value(leases).expect(READ))
}

#[test]
fn status_for_programs() {
    let document = observed(leases("2026-05-01T11:59:58.000000Z"));
    assert_eq!(document["cluster"], resource(), "as the API server has it");
    let json = written(&document, Format::Json).expect(READ);
    assert_eq!(serde_json::from_str::<Value>(&json).expect(READ), document);
    let yaml = written(&document, Format::Yaml).expect(READ);
    assert_eq!(
        serde_saphyr::from_str::<Value>(&yaml).expect(READ),
        document
    );
    compare_wide("status.json", &json);
    compare_wide("status.yaml", &yaml);
}

#[test]
fn operator_in_one_word() {
    let state = |operator| observed(operator)["operator"]["state"].clone();
    assert_eq!(state(leases("2026-05-01T11:59:00.000000Z")), "NotRunning");
    assert_eq!(state(Operator::Leases(Vec::new())), "NeverRun");
    let unknown = observed(Operator::Unknown("forbidden".to_owned()));
    assert_eq!(
        unknown["operator"],
        json!({"state": "Unknown", "message": "forbidden"})
    );
}

#[test]
fn forecast_and_members_for_programs() {
    let wanted = serde_json::from_value(resource()).expect(READ);
    let forecast = json!({
        "steps": [{"afterSeconds": 3, "member": "demo-3", "what": "promote demo-3", "why": "it has caught up"}],
        "end": {"state": "rest", "words": "3 voters, demo-2 leads"},
        "holds": [],
    });
    let read = serde_json::from_value(forecast.clone()).expect(READ);
    let document = document::plan(&wanted, &read, true);
    let expected =
        json!({"namespace": "tenants", "name": "demo", "asIfApplied": true, "forecast": forecast});
    assert_eq!(document, expected);
    let members = document::members(&resource());
    assert_eq!(members["members"][1]["name"], "demo-2");
    assert_eq!(members["members"][1]["leader"], true);
}
