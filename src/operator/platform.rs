//! What a platform must be able to do. Small on purpose: observe, carry out one act, write down the
//! report. A platform decides nothing: which act, and whether it is safe, is the plan's business.

use crate::crd::EtcdClusterStatus;
use crate::plan::{Action, Observed, Plan};

/// Why a request was not executed. Nothing was changed, or it is unknown whether the change happened; the next
/// reconcile observes again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An object with that name belongs to another owner.
    #[error(
        "{kind} {name} belongs to {owner}: use another name for this cluster or for that object"
    )]
    NameConflict {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Its owner, as far as known.
        owner: String,
    },
    /// An object with that name is still being deleted.
    #[error("{kind} {name} is still being deleted")]
    Terminating {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The basis of the decision has changed.
    #[error("the situation changed: {0}")]
    Changed(String),
    /// It will be refused again until the user changes something: a specification that the platform does not accept, a
    /// permission that the operator lacks.
    #[error("refused: {0}")]
    Refused(String),
    /// It may work the next time: a time-out, an overload, a member that does not answer.
    #[error("{0}")]
    Retry(String),
}

/// How fresh an observation has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// From what is known; descriptions of members within their freshness bound.
    Cached,
    /// Everything read live, bypassing caches.
    Live,
}

/// By which specification a cluster is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specification {
    /// The one that the resource has; where that cannot be carried out, the recorded one.
    Wanted,
    /// The one that is recorded as admitted last.
    Recorded,
}

/// The result of an observation.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The facts.
    pub observed: Observed,
    /// Generation of the specification that the facts belong to.
    pub generation: i64,
    /// The status as it is stored.
    pub status: EtcdClusterStatus,
    /// Milliseconds since this operator last wrote the status; `None`: it has not.
    pub status_age_ms: Option<u64>,
}

/// One mutating act, with nothing left to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// What to do.
    pub action: Action,
    /// Name of the member that leads with a quorum: membership calls go there.
    pub leader: Option<String>,
}

/// Whether an event is information or needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Normal,
    /// It may need attention.
    Warning,
}

/// Something that a user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How bad it is.
    pub severity: Severity,
    /// Machine-readable reason, CamelCase.
    pub reason: String,
    /// What was being done, CamelCase.
    pub action: String,
    /// In words, at most 1 kB.
    pub note: String,
}

/// What a reconcile leaves behind.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plan that was followed.
    pub plan: Plan,
    /// The step that was executed, if one was.
    pub acted: Option<Action>,
    /// Why the step was not executed, if it was not.
    pub failure: Option<Failure>,
    /// The status to write; `None` if it is unchanged.
    pub status: Option<EtcdClusterStatus>,
    /// The events to publish.
    pub events: Vec<Event>,
}

/// Where clusters live: Kubernetes, this machine, or a test's memory.
pub trait Platform {
    /// Observes. `None`: the resource was deleted. `entropy` becomes [`Observed::entropy`].
    fn observe(
        &mut self,
        freshness: Freshness,
        entropy: &str,
        by: Specification,
    ) -> impl Future<Output = Result<Option<Observation>, Failure>> + Send;

    /// Carries out one act on what was last seen. An act that was carried out before succeeds.
    fn act(&mut self, act: &Act) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Whether a calm cluster's changes are told of from now on, by its objects and by its members.
    fn is_told(&mut self) -> bool {
        false
    }

    /// Writes down what the reconcile leaves behind.
    fn report(&mut self, report: &Report) -> impl Future<Output = Result<(), Failure>> + Send;
}
