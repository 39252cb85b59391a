//! What `-o json` and `-o yaml` print, for programs: documents whose shape stays, described in `docs/tasks/observe.md`.
//! Functions of what was observed and of the time. A new field may come; none goes or changes its meaning.

use clap::ValueEnum;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

use super::error::Error;
use super::screen::{Observation, Operator, in_order};
use crate::crd::EtcdCluster;
use crate::model::forecast::Forecast;

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

/// A document as text, which ends with a line break.
pub(super) fn written(document: &Value, format: Format) -> Result<String, Error> {
    let mut text = match format {
        Format::Json => format!("{document:#}"),
        Format::Yaml => serde_saphyr::to_string(document)
            .map_err(|error| Error::Unwritable(error.to_string()))?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The resource as the API server has it, its events, and what is known of the operator.
pub(super) fn status(resource: &Value, observation: &Observation, now: Timestamp) -> Value {
    json!({
        "cluster": resource,
        "events": events(observation),
        "operator": operator(&observation.operator, now),
    })
}

/// The oldest first.
fn events(observation: &Observation) -> Vec<Value> {
    let all = in_order(&observation.events).into_iter();
    let one = |(at, event): (Timestamp, &Event)| {
        json!({
            "time": at.to_string(),
            "type": event.type_,
            "reason": event.reason,
            "message": event.message,
            "count": event.count,
        })
    };
    all.map(one).map(without_nulls).collect()
}

fn operator(operator: &Operator, now: Timestamp) -> Value {
    let leases = match operator {
        Operator::Unknown(why) => return json!({"state": "Unknown", "message": why}),
        Operator::Leases(leases) => leases,
    };
    let sign = operator.sign();
    let state = match &sign {
        None => "NeverRun",
        Some(sign) if sign.is_fresh(now) => "Running",
        Some(_) => "NotRunning",
    };
    without_nulls(json!({
        "state": state,
        "lastSeen": sign.map(|sign| sign.seen.to_string()),
        "leases": leases.iter().map(lease).collect::<Vec<Value>>(),
    }))
}

fn lease(lease: &Lease) -> Value {
    let spec = lease.spec.as_ref();
    without_nulls(json!({
        "namespace": lease.namespace(),
        "name": lease.name_any(),
        "holderIdentity": spec.and_then(|spec| spec.holder_identity.as_ref()),
        "renewTime": spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string()),
        "leaseDurationSeconds": spec.and_then(|spec| spec.lease_duration_seconds),
    }))
}

/// The forecast, and for what.
pub(super) fn plan(wanted: &EtcdCluster, forecast: &Forecast, applied: bool) -> Value {
    json!({
        "namespace": wanted.namespace(),
        "name": wanted.name_any(),
        "asIfApplied": applied,
        "forecast": forecast,
    })
}

/// The members as the status has them, with what this plugin may not know.
pub(super) fn members(resource: &Value) -> Value {
    let members = resource.pointer("/status/members");
    json!({
        "namespace": resource["metadata"]["namespace"],
        "name": resource["metadata"]["name"],
        "members": members.unwrap_or(&json!([])),
    })
}

/// Clusters in a few fields each, as `top` shows them.
pub(super) fn clusters<'a>(all: impl Iterator<Item = &'a Value>) -> Value {
    let one = |cluster: &Value| {
        let (metadata, status) = (&cluster["metadata"], &cluster["status"]);
        let members = status["members"].as_array();
        let lags = members.into_iter().flatten();
        let lags = lags.filter_map(|member| member["lagEntries"].as_i64());
        without_nulls(json!({
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "replicas": cluster["spec"]["replicas"],
            "readyReplicas": status["readyReplicas"],
            "leader": status["leader"],
            "version": status["version"],
            "lagEntries": lags.max(),
            "summary": status["summary"],
            "conditions": conditions(status).collect::<Vec<Value>>(),
        }))
    };
    json!({"clusters": all.map(one).collect::<Vec<Value>>()})
}

/// What each condition says, without the words.
fn conditions(status: &Value) -> impl Iterator<Item = Value> {
    let all = status["conditions"].as_array().into_iter().flatten();
    all.map(|one| json!({"type": one["type"], "status": one["status"], "reason": one["reason"]}))
        .map(without_nulls)
}

/// The EtcdRecoveries of a cluster, among those of its namespace, as a list of the API.
pub(super) fn recoveries(all: &Value, cluster: &str) -> Value {
    let items = all["items"].as_array().into_iter().flatten();
    let items = items.filter(|item| item["spec"]["clusterRef"]["name"] == cluster);
    json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<&Value>>()})
}

/// A field that is not known is left out, as Kubernetes does.
fn without_nulls(mut document: Value) -> Value {
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    document
}
