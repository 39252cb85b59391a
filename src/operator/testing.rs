//! What the tests of this room share: plain facts and plans to start from.

use crate::crd::EtcdClusterStatus;
use crate::operator::platform::Observation;
use crate::plan::testing::observed_at;
use crate::plan::{Plan, Step};

/// A view of a fresh resource, with nothing made yet.
pub(crate) fn observation_at(now_ms: u64) -> Observation {
    let status = EtcdClusterStatus::default();
    Observation {
        observed: observed_at(now_ms),
        generation: 1,
        status,
        status_age_ms: None,
    }
}

/// A plan of these steps and nothing else.
pub(crate) fn plan_of(steps: Vec<Step>) -> Plan {
    Plan {
        steps,
        holds: vec![],
        notes: vec![],
        progress: None,
        next: None,
        summary: String::new(),
        conditions: vec![],
        status: EtcdClusterStatus::default(),
        recoveries: Vec::new(),
        requeue_ms: 10_000,
        calm: false,
    }
}
