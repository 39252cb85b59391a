//! What does not work. A forecast takes silent members from its observation and adds no faults; tests use all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Archived, Beside, Staged};

/// What does not work.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Pods, by UID, that stay as they are: a server that hangs, a container that does not start.
    pub stuck: BTreeSet<String>,
    /// Pods, by UID, whose server answers although their node or their status indicates otherwise.
    pub answering: BTreeSet<String>,
    /// Inputs whose image cannot be pulled.
    pub bad_inputs: BTreeSet<String>,
    /// Members whose StatefulSet currently creates no pod.
    pub podless: BTreeSet<String>,
    /// Members whose pod uses its whole grace period.
    pub lingering: BTreeSet<String>,
    /// Members whose kubelet no longer checks readiness.
    pub unprobed: BTreeSet<String>,
    /// Members whose kubelet does not update changed Secrets.
    pub uncarried: BTreeSet<String>,
    /// Members in whose pods another container is not well.
    pub beside: BTreeMap<String, Beside>,
    /// Members that the operator cannot dial.
    pub unseen: BTreeSet<String>,
    /// Members whose answers carry no signature, as of version 0.1.0.
    pub unsigned: BTreeSet<String>,
    /// What is wanted differs from what pods have in resources alone: no pod needs a restart for it.
    pub resizes: bool,
    /// Members on a node that never has the resources that are wanted.
    pub confined: BTreeSet<String>,
    /// What the seed of a cluster that is restored has of its snapshot, instead of all of it.
    pub staged: Option<Staged>,
    /// What the members were told of the archive.
    pub archived: Option<Archived>,
    /// Sides of a partition between members; members that are not listed are on side 0.
    pub side: BTreeMap<String, u8>,
}
