//! What the tests of this room share: plain facts and plans to start from.

use crate::crd::{EtcdClusterSpec, EtcdClusterStatus, ValidatedCluster};
use crate::operator::platform::Observation;
use crate::plan::{Hints, Observed, Plan, Step};

/// A view of a fresh resource, with nothing made yet.
pub(crate) fn observation_at(now_ms: u64) -> Observation {
    let cluster = ValidatedCluster {
        namespace: "default".into(),
        name: "demo".into(),
        uid: "11111111-2222-3333-4444-555555555555".into(),
        generation: 1,
        spec: EtcdClusterSpec::default(),
        storage_bytes: 8 << 30,
    };
    let observed = Observed {
        now_ms,
        entropy: "e".into(),
        epoch: 1,
        deleting: false,
        refused: None,
        spec: None,
        cluster: Ok(cluster),
        client_endpoint: String::new(),
        status_cluster_id: None,
        hints: Hints::default(),
        identity_secret: None,
        wanted_objects: [].into(),
        objects: [].into(),
        pdb: None,
        slot_endpoints: [].into(),
        wanted_slot_inputs: String::new(),
        tls: crate::plan::TlsFacts::default(),
        slots: [].into(),
        wanted_inputs: "inputs".into(),
        sets: [].into(),
        pods: [].into(),
        pvcs: [].into(),
        class_node_bound: None,
        nodes: [].into(),
        routed: [].into(),
        denied: [].into(),
        descriptions: [].into(),
    };
    let status = EtcdClusterStatus::default();
    Observation {
        observed,
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
        requeue_ms: 10_000,
    }
}
