//! What stands behind a Kubernetes API server, simulated: the controllers that the operator's
//! objects meet, the scheduler, volumes, and nodes with their kubelets. Each part is advanced by
//! its caller ([`Kube::advance`]), so that the caller decides what is late; nothing happens in
//! between, and time is that of the API server.
//!
//! What runs in a container is not modelled here: [`Kube::running`] lists which containers run,
//! and [`Kube::report`] takes what their processes do.

mod contents;
mod faults;
mod garbage;
mod jobs;
mod kubelet;
mod nodes;
mod pdbs;
mod place;
mod pod_certificates;
mod schedule;
mod sets;
pub(crate) mod slices;
mod volumes;

#[cfg(test)]
mod jobs_test;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::api::{ApiServer, SharedApiServer};
pub use faults::{Class, Sidecar};
pub use kubelet::{Process, Running};

/// A part that is advanced on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Makes pods of StatefulSets.
    Sets,
    /// Makes pods of Jobs, and counts how they end.
    Jobs,
    /// Gives pods a node.
    Scheduler,
    /// Makes, binds, grows and reclaims volumes; lets PVCs go that no pod uses.
    Volumes,
    /// Starts and stops containers, and reports them.
    Kubelets,
    /// Writes down to which pods Services send clients.
    Endpoints,
    /// Counts what PDBs allow.
    Pdbs,
    /// Notices nodes that are silent, and takes pods from them.
    Nodes,
    /// Takes away what has no owner any more.
    Garbage,
}

impl Part {
    /// Every part, in an order in which they have much to do for each other.
    pub const ALL: [Self; 9] = [
        Self::Garbage,
        Self::Sets,
        Self::Jobs,
        Self::Scheduler,
        Self::Volumes,
        Self::Nodes,
        Self::Kubelets,
        Self::Endpoints,
        Self::Pdbs,
    ];
}

/// A Kubernetes without its API server.
#[derive(Debug)]
pub struct Kube {
    shared: SharedApiServer,
    machines: BTreeMap<String, nodes::SimulatedNode>,
    containers: BTreeMap<String, kubelet::Container>,
    bad_images: BTreeSet<String>,
    /// Nodes that have nothing left for a container that asks for more.
    full_nodes: BTreeSet<String>,
    /// Sidecars that are not well, by the name of their pod.
    sidecars: BTreeMap<String, Sidecar>,
    /// Certificates that kubelets requested for pods.
    credentials: pod_certificates::Credentials,
    priority_classes: BTreeSet<String>,
    next_address: u32,
    volumes: u64,
    /// Since when nodes that pods name have been gone.
    gone: BTreeMap<String, u64>,
    /// Where a part has nothing to do before the API server has something new.
    seen: BTreeMap<Part, u64>,
    /// Chooses among equal nodes.
    tie: u64,
    /// How long a process takes to end after SIGTERM, in milliseconds.
    stop_ms: u64,
    /// What of endpoints is to be written down yet.
    late: slices::Late,
    /// How long it takes until that is done, in milliseconds.
    endpoints_ms: u64,
    /// Something changed that kubelets see and the API server does not: a node, an image, what a
    /// process does.
    stirred: bool,
    /// Rises whenever what [`Kube::running`] lists may have changed.
    turn: u64,
}

impl Kube {
    /// A Kubernetes without nodes.
    pub fn new(shared: SharedApiServer) -> Self {
        Self {
            shared,
            machines: BTreeMap::new(),
            containers: BTreeMap::new(),
            bad_images: BTreeSet::new(),
            full_nodes: BTreeSet::new(),
            sidecars: BTreeMap::new(),
            credentials: BTreeMap::new(),
            priority_classes: BTreeSet::new(),
            next_address: 0,
            volumes: 0,
            gone: BTreeMap::new(),
            seen: BTreeMap::new(),
            tie: 0,
            stop_ms: 500,
            late: slices::Late::new(),
            endpoints_ms: 300,
            stirred: true,
            turn: 0,
        }
    }

    /// The API server.
    pub fn api(&self) -> &SharedApiServer {
        &self.shared
    }

    /// Has the scheduler choose otherwise among equal nodes.
    pub fn set_tie(&mut self, tie: u64) {
        self.tie = tie;
    }

    /// Sets how long a process takes to end after SIGTERM, in milliseconds; one that takes
    /// longer than its pod's grace is killed.
    pub fn set_stop_ms(&mut self, stop_ms: u64) {
        self.stop_ms = stop_ms;
    }

    /// Sets how long it takes until it is written down that a pod became ready or unready, in
    /// milliseconds.
    pub fn set_endpoints_ms(&mut self, endpoints_ms: u64) {
        self.endpoints_ms = endpoints_ms;
    }

    /// Makes a priority class known: pods that name another one are refused.
    pub fn add_priority_class(&mut self, name: &str) {
        self.priority_classes.insert(name.to_owned());
    }

    /// Advances one part by a round. Tells whether anything changed.
    pub fn advance(&mut self, part: Part) -> bool {
        let shared = self.shared.clone();
        let mut api = shared.lock();
        let before = api.revision();
        let news = self.seen.get(&part) != Some(&before);
        // Nodes and kubelets also act because time passes.
        let due = match part {
            Part::Nodes => true,
            Part::Kubelets => self.is_kubelet_due(api.now_ms()),
            Part::Endpoints => !self.late.is_empty(),
            Part::Jobs => jobs::is_due(&api),
            _ => false,
        };
        if !news && !due {
            return false;
        }
        self.seen.insert(part, before);
        let moved = match part {
            Part::Sets => {
                sets::advance(&mut api, &self.priority_classes);
                false
            }
            Part::Jobs => {
                jobs::advance(&mut api);
                false
            }
            Part::Scheduler => {
                schedule::advance(&mut api, self.tie);
                false
            }
            Part::Volumes => {
                volumes::advance(&mut api, &mut self.volumes);
                false
            }
            Part::Kubelets => self.advance_kubelets(&mut api),
            Part::Endpoints => {
                slices::advance(&mut api, &mut self.late, self.endpoints_ms);
                false
            }
            Part::Pdbs => {
                pdbs::advance(&mut api);
                false
            }
            Part::Nodes => {
                nodes::advance(&mut api, &self.machines, &mut self.gone);
                false
            }
            Part::Garbage => {
                garbage::advance(&mut api);
                false
            }
        };
        moved || api.revision() != before
    }

    /// A number that rises whenever what [`Kube::running`] lists may have changed.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// What volumes with keys of kubelets have, a certificate and the CAs, by the names that [`Running::secrets`] has for it.
    pub fn pod_certificates(&self) -> impl Iterator<Item = (String, (&str, &str))> {
        pod_certificates::mounted(&self.credentials)
    }

    /// Restarts the kubelet of a node: its containers go on, and what it kept in memory is gone.
    pub fn restart_kubelet(&mut self, node: &str) {
        let of = self.containers.iter().filter(|(_, one)| one.is_on(node));
        let pods: Vec<String> = of.map(|(uid, _)| uid.clone()).collect();
        pod_certificates::forget(&mut self.credentials, &pods);
        self.stir();
    }

    fn stir(&mut self) {
        self.stirred = true;
        self.turn += 1;
    }

    /// Advances every part by a round. Tells whether anything changed.
    pub fn step(&mut self) -> bool {
        let mut changed = false;
        for part in Part::ALL {
            changed |= self.advance(part);
        }
        changed
    }

    /// Advances every part until nothing changes, at this time. Gives up after many rounds,
    /// which a caller may take for a fault of the parts themselves.
    pub fn settle(&mut self) -> bool {
        (0..100).any(|_| !self.step())
    }

    fn with<T>(&self, act: impl FnOnce(&mut ApiServer) -> T) -> T {
        act(&mut self.shared.lock())
    }
}
