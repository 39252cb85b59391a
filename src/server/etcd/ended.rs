//! What is told of a unary call that has ended: counters, and a line if it was slow.
//!
//! Never tells more of a message than the beginning of its key and its size, and delays nobody: lines are limited.

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tonic::Code;

use super::call::Services;
use crate::server::listen::quiet::Quiet;
use crate::server::metrics::client::Method;
use crate::server::traces::about::About;
use crate::server::traces::marks::Marks;
use crate::server::traces::stages::Stages;

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
    /// Counts a call, and logs it if slow.
    pub(super) fn tell(&self, ended: &Ended) {
        let shared = &self.shared;
        shared.metrics.handled(ended.method, ended.code, ended.took);
        if ended.took > shared.port.warn_unary {
            shared.metrics.slow_requests.fetch_add(1, Relaxed);
            if let Some(left_out) = SLOW.line(Instant::now()) {
                self.warn_of_slow(ended, left_out);
            }
        }
    }

    fn stages(&self, ended: &Ended) -> Stages {
        let end = ended.marks.began() + ended.took;
        Stages::of(&ended.marks, self.shared.member.moments(), end)
    }

    fn warn_of_slow(&self, ended: &Ended, left_out: u64) {
        let Ended {
            code, took, about, ..
        } = ended;
        let request = self.shared.member.request_id(ended.marks.number());
        let method = ended.method.name();
        let key = about.key.map(tracing::field::display);
        let (size, lease) = (about.size, about.lease);
        let from = ended.from.map(tracing::field::display);
        let stages = self.stages(ended);
        tracing::warn!(
            method, request, ?took, ?code, key, size, lease, from, %stages, left_out,
            "a request took long"
        );
    }
}
