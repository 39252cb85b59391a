//! Pure: what an action does. One model of the API server, its controllers and kubelets, and of the members, as far as
//! a plan depends on them: the forecast, the plan's tests and the tests of the reconcile all use it. It is built from
//! an [`Observed`], [`Model::act`] executes an action or refuses it like the real components, [`Model::advance`] lets
//! time pass, and [`Model::observe`] returns what an operator would observe.
//!
//! It decides nothing, and never judges whether an action is safe: what an operator must not do is asserted by the
//! tests around it, and checked by the lints, which do not depend on it. It has no clock, no randomness and no
//! timeouts: time is an argument, and names are counted.

mod alarms;
mod authorities;
pub mod call;
mod certificates;
mod faults;
pub mod forecast;
mod kubelets;
mod links;
mod members;
mod objects;
mod observe;
mod pod_certificates;
mod pods;
mod pvcs;
mod raft;
mod recall;
mod refused;
mod sets;
mod sleepers;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::crd::{TlsPort, ValidatedCluster, pvc_name};
use crate::plan::{Action, Certificate, Observed, StatusMemory};

pub use alarms::Health;
pub use faults::Faults;
pub use raft::Raft;
pub use refused::Refused;
pub use sets::Template;

use kubelets::Server;

/// A cluster, its Kubernetes and its members.
#[derive(Clone, Debug)]
pub struct Model {
    /// What the API server holds, and what the resource is rendered to: all that is observed, but for
    /// the members' own descriptions and the PDB's count.
    pub api: Observed,
    /// Properties of StatefulSets' pods that are not observed, by member.
    pub templates: BTreeMap<String, Template>,
    /// What is on the volumes, by PVC.
    pub disks: BTreeMap<String, Disk>,
    /// What servers have in memory, by the UID of their pod.
    servers: BTreeMap<String, Server>,
    /// The members.
    pub raft: Raft,
    /// Alarms, and what they are about.
    pub health: Health,
    /// When Secrets were written last, by name.
    written_ms: BTreeMap<String, u64>,
    /// Every certificate that ever was, by fingerprint.
    pub issued: BTreeMap<String, Certificate>,
    /// What was signed for keys of kubelets, by the UID of the pod: fingerprints.
    signed: BTreeMap<(String, TlsPort), String>,
    /// Versions of servers, by the UID of their pods, or by its inputs.
    pub versions: BTreeMap<String, String>,
    /// The version of all other servers.
    pub version: String,
    /// The oldest version that can read the disks.
    pub readable_since: Option<String>,
    /// How long things take.
    pub pace: Pace,
    /// What does not work.
    pub faults: Faults,
    /// Number of the last thing that was made.
    pub last: u64,
}

/// What is on a PVC's volume.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Its UUID.
    pub uuid: String,
    /// The member that uses it; `None` while it is empty.
    pub member: Option<u64>,
    /// The member was removed.
    pub removed: bool,
    /// Nonce of the bootstrap call that made the member, if one did.
    pub nonce: Option<String>,
    /// What its server reports if that does not follow from the above (its disk is another cluster's, or it has not
    /// joined yet): it keeps reporting this.
    foreign: Option<Box<crate::plan::Description>>,
}

/// Delays, and properties of created objects.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Entries that a learner receives in a second.
    pub catch_up: u64,
    /// How long kubelets take to carry a changed Secret to the servers.
    pub carried_ms: u64,
    /// New volumes are bound to their node.
    pub node_bound: bool,
    /// The validity of certificates and CAs.
    pub days: (u64, u64),
}

impl Model {
    /// Executes an action, or returns why the API server or the members refuse it.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed. What was created or deleted before is no failure, as for
    /// the operator's platforms.
    pub fn act(&mut self, action: &Action) -> Result<(), Refused> {
        match action {
            Action::Object(action) => self.change_object(action),
            Action::Certificate(action) => self.certify(action),
            Action::Member(action) => self.call(action),
        }
    }

    /// So many milliseconds pass: controllers, kubelets and members do what they do by themselves,
    /// once, at their end.
    pub fn advance(&mut self, ms: u64) {
        self.api.now_ms += ms;
        self.control();
        self.carry_certificates();
        self.replicate(ms);
        self.compare();
        self.probe();
    }

    /// What the status keeps between two reconciles.
    pub fn remember(&mut self, cluster_id: Option<String>, memory: StatusMemory) {
        self.api.status_cluster_id = cluster_id;
        self.api.status_memory = memory;
    }

    fn cluster(&self) -> Option<&ValidatedCluster> {
        self.api.cluster.as_ref().ok()
    }

    fn speaks_tls(&self) -> bool {
        self.cluster()
            .is_some_and(|cluster| cluster.spec.tls.is_some())
    }

    fn uid(&self) -> &str {
        self.cluster().map_or("", |cluster| &cluster.life)
    }

    fn pvc_of(&self, member: &str) -> String {
        pvc_name(member, self.uid())
    }

    fn disk(&self, member: &str) -> Option<&Disk> {
        self.disks.get(&self.pvc_of(member))
    }

    /// A name that nothing had before.
    fn fresh(&mut self, what: &str) -> String {
        self.last += 1;
        format!("{what}{}", self.last)
    }
}
