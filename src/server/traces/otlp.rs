//! A sampled call as OTLP's messages: one span of the request, and below it one for each stage in which it waited.
//!
//! Pure but for the IDs that it is given. Never tells more of a message than `about` does.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use tonic::Code;

use super::stages::{Stage, Step};
use super::tracer::Call;
use crate::server::flags::tracing::Tracing;

/// Flags of a span beside those of its trace: whether its parent is another process's is known, and is so.
const REMOTE_IS_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// These calls, as one request to the collector; `random` gives 64 bits for an ID.
pub(super) fn request(
    tracing: &Tracing,
    calls: &[Call],
    random: &mut impl FnMut() -> u64,
) -> ExportTraceServiceRequest {
    let mut spans = Vec::new();
    for call in calls {
        add(&mut spans, call, random);
    }
    let scope = InstrumentationScope {
        name: "quorate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let spans = ScopeSpans {
        scope: Some(scope),
        spans,
        ..Default::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource(tracing)),
            scope_spans: vec![spans],
            ..Default::default()
        }],
    }
}

fn resource(tracing: &Tracing) -> Resource {
    let mut attributes = vec![text("service.name", &tracing.service_name)];
    if let Some(id) = &tracing.instance_id {
        attributes.push(text("service.instance.id", id));
    }
    Resource {
        attributes,
        ..Default::default()
    }
}

/// Adds the span of a call and those of its stages.
fn add(spans: &mut Vec<Span>, call: &Call, random: &mut impl FnMut() -> u64) {
    let id = span_id(random);
    let own = request_span(call, id.clone());
    let below = Span {
        parent_span_id: id,
        flags: u32::from(call.sampled.flags) | REMOTE_IS_KNOWN,
        trace_id: own.trace_id.clone(),
        trace_state: own.trace_state.clone(),
        kind: SpanKind::Internal.into(),
        ..Default::default()
    };
    spans.push(own);
    let steps = call.told.stages.steps.iter();
    for step in steps.filter(|step| step.stage.is_wait()) {
        spans.push(Span {
            span_id: span_id(random),
            name: step.stage.name().to_owned(),
            start_time_unix_nano: nanos(call.at + step.from),
            end_time_unix_nano: nanos(call.at + step.to),
            events: logged(call, step),
            ..below.clone()
        });
    }
}

fn request_span(call: &Call, id: Vec<u8>) -> Span {
    let (sampled, told) = (&call.sampled, &call.told);
    let remote = if sampled.parent.is_some() { REMOTE } else { 0 };
    let (service, method) = (told.method.service(), told.method.name());
    Span {
        trace_id: sampled.trace.0.to_vec(),
        span_id: id,
        parent_span_id: sampled.parent.map_or_else(Vec::new, |span| span.0.to_vec()),
        trace_state: sampled.state.clone(),
        flags: u32::from(sampled.flags) | REMOTE_IS_KNOWN | remote,
        name: format!("{service}/{method}"),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(call.at),
        end_time_unix_nano: nanos(call.at + told.took),
        attributes: attributes(call),
        status: status(told.code),
        ..Default::default()
    }
}

/// By OpenTelemetry's conventions for RPC, and in etcd's words what they have no name for.
fn attributes(call: &Call) -> Vec<KeyValue> {
    let told = &call.told;
    let mut all = vec![
        text("rpc.system", "grpc"),
        text("rpc.service", told.method.service()),
        text("rpc.method", told.method.name()),
        number("rpc.grpc.status_code", i64::from(i32::from(told.code))),
        text("request_id", &told.request),
    ];
    if let Some(from) = told.from {
        all.push(text("client.address", &from.to_string()));
    }
    if let Some(key) = told.about.key {
        all.push(text("key", &key.to_string()));
    }
    if let Some(size) = told.about.size {
        all.push(number("req_size", i64::try_from(size).unwrap_or(i64::MAX)));
    }
    if let Some(lease) = told.about.lease {
        all.push(number("id", lease));
    }
    all
}

/// When this member's log had the entry, at the stage in which that was.
fn logged(call: &Call, step: &Step) -> Vec<Event> {
    let logged = call.told.stages.logged;
    let within =
        |at: &Duration| step.stage == Stage::Replicated && (step.from..=step.to).contains(at);
    let event = |at| Event {
        time_unix_nano: nanos(call.at + at),
        name: "logged".to_owned(),
        ..Default::default()
    };
    logged.filter(within).map(event).into_iter().collect()
}

/// An error is what the server has to answer for; the others are the caller's.
fn status(code: Code) -> Option<Status> {
    let is_ours = matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    );
    is_ours.then(|| Status {
        code: StatusCode::Error.into(),
        ..Default::default()
    })
}

fn span_id(random: &mut impl FnMut() -> u64) -> Vec<u8> {
    // One of zeros would be none.
    random().max(1).to_be_bytes().to_vec()
}

fn nanos(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

fn text(key: &str, value: &str) -> KeyValue {
    with(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    with(key, Value::IntValue(value))
}

fn with(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::traces::context::{Sampled, SpanId, TraceId};
    use crate::server::traces::tracer::tests::told;

    fn spans(call: Call) -> Vec<Span> {
        let tracing = Tracing {
            address: "localhost:4317".to_owned(),
            service_name: "etcd".to_owned(),
            instance_id: Some("one".to_owned()),
            per_million: 0,
            headers: Default::default(),
        };
        let mut next = 0;
        let mut random = || {
            next += 1;
            next
        };
        let request = request(&tracing, &[call], &mut random);
        let mut resources = request.resource_spans.into_iter();
        let mut one = resources.next().expect("one resource");
        let attributes = one.resource.take().expect("a resource").attributes;
        assert_eq!(
            attributes,
            [
                text("service.name", "etcd"),
                text("service.instance.id", "one")
            ]
        );
        one.scope_spans.remove(0).spans
    }

    fn call() -> Call {
        Call {
            sampled: Sampled {
                trace: TraceId([7; 16]),
                parent: Some(SpanId([9; 8])),
                flags: 1,
                state: "a=1".to_owned(),
            },
            at: Duration::from_secs(1000),
            told: told(),
        }
    }

    #[test]
    fn stages_are_spans_below_the_requests_own() {
        let spans = spans(call());
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["etcdserverpb.KV/Put", "queued", "replicated"]);
        let own = &spans[0];
        assert_eq!(
            (own.parent_span_id.as_slice(), own.flags),
            ([9; 8].as_slice(), 0x301)
        );
        for span in &spans {
            assert_eq!(
                (span.trace_id.as_slice(), span.trace_state.as_str()),
                ([7; 16].as_slice(), "a=1")
            );
        }
        for span in &spans[1..] {
            assert_eq!((&span.parent_span_id, span.flags), (&own.span_id, 0x101));
        }
        assert_eq!(spans[2].start_time_unix_nano, 1_000_003_000_000);
        assert_eq!(spans[2].events[0].time_unix_nano, 1_000_004_000_000);
        assert!(own.attributes.contains(&number("rpc.grpc.status_code", 0)));
        assert_eq!(own.status, None);
    }

    #[test]
    fn what_the_server_answers_for_is_an_error() {
        for (code, error) in [
            (Code::Unavailable, true),
            (Code::DeadlineExceeded, true),
            (Code::NotFound, false),
            (Code::PermissionDenied, false),
        ] {
            assert_eq!(status(code).is_some(), error, "{code:?}");
        }
        let mut root = call();
        root.sampled.parent = None;
        let own = spans(root).remove(0);
        assert_eq!((own.parent_span_id.len(), own.flags), (0, 0x101));
    }
}
