//! What is told of a unary call that has ended: counters, a line if it was slow, and its spans if it is sampled.
//!
//! Never tells more of a message than the beginning of its key and its size, and delays nobody: lines are limited, and so
//! is the queue of spans.

use std::cell::LazyCell;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::metadata::MetadataMap;

use super::call::Services;
use crate::server::listen::quiet::Quiet;
use crate::server::metrics::client::Method;
use crate::server::traces::about::About;
use crate::server::traces::context::Parent;
use crate::server::traces::marks::Marks;
use crate::server::traces::stages::Stages;
use crate::server::traces::tracer::{Begun, Told};

/// Limits the log lines about slow requests.
static SLOW: Quiet = Quiet::new();

/// A unary call that has ended.
pub(super) struct Ended {
    pub(super) method: Method,
    pub(super) code: Code,
    pub(super) took: Duration,
    /// The client's address; `None` for a Unix socket.
    pub(super) from: Option<IpAddr>,
    pub(super) about: About,
    pub(super) marks: Marks,
}

impl Services {
    /// Counts a call, logs it if slow, and queues its spans if it has any.
    pub(super) fn tell(&self, ended: &Ended, span: Option<Begun>, metadata: &MetadataMap) {
        let shared = &self.shared;
        // For the line and the span the same, and for none where there is neither.
        let request = LazyCell::new(|| shared.member.request_id(ended.marks.number()));
        shared.metrics.handled(ended.method, ended.code, ended.took);
        if ended.took > shared.port.warn_unary {
            shared.metrics.slow_requests.fetch_add(1, Relaxed);
            if let Some(left_out) = SLOW.line(Instant::now()) {
                let trace = match &span {
                    Some(span) => Some(span.trace()),
                    // Of a caller that traces, though this member does not.
                    None => Parent::of(metadata).map(|parent| parent.trace.hex()),
                };
                self.warn_of_slow(ended, &request, trace, left_out);
            }
        }
        if let (Some(tracer), Some(span)) = (&shared.tracer, span) {
            let told = Told {
                method: ended.method,
                code: ended.code,
                took: ended.took,
                about: ended.about,
                from: ended.from,
                request: (*request).clone(),
                stages: self.stages(ended),
            };
            tracer.end(span, told);
        }
    }

    fn stages(&self, ended: &Ended) -> Stages {
        let end = ended.marks.began() + ended.took;
        Stages::of(&ended.marks, self.shared.member.moments(), end)
    }

    fn warn_of_slow(&self, ended: &Ended, request: &str, trace: Option<String>, left_out: u64) {
        let Ended {
            code, took, about, ..
        } = ended;
        let method = ended.method.name();
        let key = about.key.map(tracing::field::display);
        let (size, lease) = (about.size, about.lease);
        let from = ended.from.map(tracing::field::display);
        let stages = self.stages(ended);
        tracing::warn!(
            method, request, ?took, ?code, key, size, lease, from, trace, %stages, left_out,
            "a request took long"
        );
    }
}
