//! What tests of the plan and of the operator start from; in no release.

use super::{DeletionPolicy, Earlier, Observed, StatusMemory, TlsFacts};
use crate::crd::{EtcdClusterSpec, ValidatedCluster};

/// A fresh resource at this time in milliseconds, with nothing made yet.
#[must_use]
pub fn observed_at(now_ms: u64) -> Observed {
    let cluster = ValidatedCluster {
        namespace: "default".into(),
        name: "demo".into(),
        uid: "11111111-2222-3333-4444-555555555555".into(),
        life: "11111111-2222-3333-4444-555555555555".into(),
        generation: 1,
        spec: EtcdClusterSpec::default(),
        storage_bytes: 8 << 30,
    };
    Observed {
        now_ms,
        entropy: "e".into(),
        epoch: 1,
        deleting: false,
        source_waived: false,
        fenced: std::collections::BTreeSet::new(),
        refused: None,
        spec: None,
        cluster: Ok(cluster),
        client_endpoint: String::new(),
        held: false,
        last_backup: None,
        deletion_policy: DeletionPolicy::Enforced,
        status_cluster_id: None,
        status_incarnation: None,
        status_memory: StatusMemory::default(),
        identity_secret: None,
        wanted_objects: [].into(),
        objects: [].into(),
        pdb: None,
        slot_endpoints: [].into(),
        service_families: [].into(),
        wanted_slot_inputs: String::new(),
        tls: TlsFacts::default(),
        slots: [].into(),
        wanted_inputs: "inputs".into(),
        sets: [].into(),
        pods: [].into(),
        pvcs: [].into(),
        class_node_bound: None,
        classes: [].into(),
        nodes: [].into(),
        routed: [].into(),
        denied: [].into(),
        descriptions: [].into(),
        restore: None,
        follow: None,
        backups: None,
        recoveries: [].into(),
        earlier: Earlier::default(),
    }
}
