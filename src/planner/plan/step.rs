//! The parts of a plan: steps, holds, notes, and their meaning for users.

use crate::crd::{ConditionStatus, ConditionType, EtcdClusterStatus, RecoveryPhase, StepState};

use super::action::Action;

/// An action and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rule that wants it.
    pub rule: Rule,
    /// What to do.
    pub action: Action,
    /// Why, in words.
    pub reason: String,
}

impl Step {
    /// Whether a pod goes by it: also that of a fenced member, whose set gets none.
    #[must_use]
    pub fn ends_a_pod(&self) -> bool {
        self.rule == Rule::Fence || self.action.ends_a_pod()
    }
}

/// The rules that want steps. Their order is that of `rules::run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The specification is kept as the one that was last admitted.
    Admission,
    /// Objects that are not a member's: Services, Secrets, certificates, the PodDisruptionBudget.
    Objects,
    /// A cluster that has lost its quorum goes on as its next incarnation.
    Recovery,
    /// All members stop, or start again.
    Hibernation,
    /// The volumes of a deleted resource are adopted.
    Adoption,
    /// The identity, and the first member.
    Bootstrap,
    /// A known member without its set, or with an edited one.
    MissingSet,
    /// Members without a quorum that get a corrected spec.
    Quorum,
    /// A voter is stopped because the user wants to look at its volume.
    Fence,
    /// NOSPACE and CORRUPT.
    Alarms,
    /// An unhealthy member gets a changed spec first.
    RollUnhealthy,
    /// A voter that does not serve is restarted or removed.
    Unhealthy,
    /// Learners are promoted or given up.
    Learner,
    /// Standbys are added as learners, or given up.
    Standby,
    /// Too few members.
    Grow,
    /// The node of a voter is drained.
    Drain,
    /// Too many members, or one that is to be replaced.
    Shrink,
    /// A changed spec reaches the members one at a time.
    Roll,
    /// StatefulSets, PVCs and certificates of removed members.
    Leftovers,
}

impl Rule {
    /// Its name in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Objects => "objects",
            Self::Recovery => "recovery",
            Self::Hibernation => "hibernation",
            Self::Adoption => "adoption",
            Self::Bootstrap => "bootstrap",
            Self::MissingSet => "missing set",
            Self::Quorum => "quorum",
            Self::Fence => "fence",
            Self::Alarms => "alarms",
            Self::RollUnhealthy => "roll unhealthy",
            Self::Unhealthy => "unhealthy",
            Self::Learner => "learner",
            Self::Standby => "standby",
            Self::Grow => "grow",
            Self::Drain => "drain",
            Self::Shrink => "shrink",
            Self::Roll => "roll",
            Self::Leftovers => "leftovers",
        }
    }
}

/// Classes of acts that a situation can hold back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Adding, promoting and removing members.
    Membership,
    /// Restarting members that serve.
    Disruption,
    /// Making objects of new members.
    Objects,
}

/// Acts that are not done now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What is held.
    pub class: Class,
    /// Why, in words.
    pub reason: String,
}

/// Whether the user has to act, a change is in progress, or it is only information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The name for events and metrics.
    pub reason: &'static str,
    /// In words.
    pub text: String,
}

/// The current step, acting or waiting, as in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What, such as `Promote`.
    pub action: &'static str,
    /// The affected member.
    pub member: Option<String>,
    /// Acting or waiting.
    pub state: StepState,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// What has to happen first, in words.
    pub waiting_for: Option<String>,
    /// Since when.
    pub since_ms: u64,
    /// When the wait ends.
    pub deadline_ms: Option<u64>,
}

/// One condition with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionInput {
    /// Which.
    pub type_: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

/// The answer to one `Observed`.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The first is executed; the others are what would follow from the same view.
    pub steps: Vec<Step>,
    /// What is not done now.
    pub holds: Vec<Hold>,
    /// What is worth knowing.
    pub notes: Vec<Note>,
    /// The current step; `None` at rest.
    pub progress: Option<Progress>,
    /// What comes after the current step, in words.
    pub next: Option<String>,
    /// One plain sentence.
    pub summary: String,
    /// All conditions, in their order.
    pub conditions: Vec<ConditionInput>,
    /// The status to write, conditions aside (those need their transition times).
    pub status: EtcdClusterStatus,
    /// How each EtcdRecovery of the cluster is doing, by name.
    pub recoveries: Vec<RecoveryReport>,
    /// Look again after this many milliseconds even if nothing changes.
    pub requeue_ms: u64,
    /// Nothing changes that no object and no member tells of.
    pub calm: bool,
}

/// How an EtcdRecovery is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub phase: RecoveryPhase,
    /// What happens now, or why nothing does.
    pub message: String,
    /// The incarnation that it makes.
    pub incarnation: u64,
    /// The new member that gets the data, once it is named.
    pub seed: Option<String>,
}

impl Plan {
    /// The one step to execute.
    pub fn first(&self) -> Option<&Step> {
        self.steps.first()
    }
}
