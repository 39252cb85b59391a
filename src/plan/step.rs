//! What a plan is made of: steps, holds, notes, and what they mean to somebody who watches.

use crate::crd::{ConditionStatus, ConditionType, EtcdClusterStatus, StepState, TlsPort};

use super::observed::{ClaimState, ObjectKey};

/// One mutating act. It names everything that it needs: execution has no choice left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the specification that this was planned from as the one that was last admitted.
    AdmitSpec {
        /// Its hash.
        hash: String,
    },
    /// Apply an object beside the members, as rendered from the spec.
    ApplyObject(ObjectKey),
    /// Let the disruption budget keep so many members available, from the gate or from another
    /// number; make it where it is missing.
    SetBudget {
        /// Members that have to stay available.
        least: u32,
        /// What it said when this was decided; `None`: nothing of the kind. A budget that says
        /// something else by now is left alone.
        before: Option<u32>,
    },
    /// Make a port's authority; fail if it exists.
    MakeAuthority {
        /// Whose certificates it signs.
        port: TlsPort,
        /// The Secret.
        secret: String,
    },
    /// Take the next stage of a port's change to another authority.
    RotateAuthority {
        /// Whose certificates it signs.
        port: TlsPort,
        /// The Secret.
        secret: String,
        /// Fingerprint of the authority that signs now.
        signs: String,
        /// What is done.
        stage: Rotation,
    },
    /// Make a certificate with a new key, in place of the one that is there.
    IssueCertificate {
        /// The port that it is for.
        port: TlsPort,
        /// The member that it is for; `None` for the certificate of clients.
        member: Option<String>,
        /// The Secret.
        secret: String,
        /// Fingerprint of the authority that signs it.
        authority: String,
        /// Fingerprint of the certificate that is there; `None`: there is none, or none that can be
        /// read.
        replaces: Option<String>,
    },
    /// Write the authorities that are trusted now beside a certificate; the certificate stays.
    TrustAuthorities {
        /// The port.
        port: TlsPort,
        /// The Secret.
        secret: String,
        /// Fingerprints of the authorities.
        trusted: Vec<String>,
    },
    /// Delete the certificate of a member that is gone.
    DropCertificate {
        /// The Secret.
        secret: String,
        /// Its UID.
        uid: String,
    },
    /// Create the identity latch, live; fail if it exists.
    CreateLatch {
        /// Member that will bootstrap.
        seed: String,
        /// Nonce of the bootstrap call.
        nonce: String,
        /// Life of the cluster: the first one, or of one that lives what its members say.
        incarnation: u64,
    },
    /// Create the volume claim of a new member; fail if it exists.
    CreateClaim {
        /// The member.
        member: String,
        /// The claim.
        claim: String,
    },
    /// Raise the size that a claim asks for.
    GrowClaim {
        /// The claim.
        claim: String,
        /// Its UID.
        uid: String,
        /// The new size in bytes (the spec's size as written).
        bytes: u64,
    },
    /// Record on a claim what it has been.
    MarkClaim {
        /// The claim.
        claim: String,
        /// Its UID.
        uid: String,
        /// What to record.
        state: ClaimState,
    },
    /// Make a claim go away with the resource, or not.
    OwnClaim {
        /// The claim.
        claim: String,
        /// Its UID.
        uid: String,
        /// Whether the resource owns it from now on.
        owned: bool,
    },
    /// Apply a member's set: create it, or give it the spec's current template. Restarts nothing,
    /// and stops its pod where the set is to sleep.
    ApplySet {
        /// The member.
        member: String,
        /// The claim that it mounts.
        claim: String,
        /// Never on a node with another member: its volume could not leave that node.
        apart: bool,
        /// Without a pod, until it is applied awake.
        asleep: bool,
        /// Its server takes connections without TLS on its peer port too, until all members are dialled
        /// with TLS.
        transition: bool,
    },
    /// Point a slot's Service at a voter, creating it where it is missing.
    MapSlot {
        /// The slot's number, from 0.
        slot: u32,
        /// Its Service.
        service: String,
        /// The voter.
        member: String,
    },
    /// Delete the Service of a slot that is not wanted any more.
    DropSlot {
        /// The slot's number.
        slot: u32,
        /// Its Service.
        service: String,
        /// UID of the Service.
        uid: String,
    },
    /// Tell the seed to form the cluster.
    Bootstrap {
        /// The seed.
        member: String,
        /// UID of its pod.
        pod_uid: String,
        /// UID of the resource.
        cluster_uid: String,
        /// Life of the cluster.
        incarnation: u64,
        /// The latch's nonce.
        nonce: String,
        /// UID of the seed's claim.
        claim_uid: String,
        /// The disk that described itself as empty.
        disk_uuid: String,
    },
    /// Change where the others dial a member.
    SetPeerUrls {
        /// The member.
        member: String,
        /// Its member ID.
        id: u64,
        /// All of its URLs.
        urls: Vec<String>,
        /// The call's fence.
        fence: Fence,
    },
    /// Add a standby that waits as a learner.
    AddLearner {
        /// The standby.
        member: String,
        /// The others dial it with TLS from the beginning.
        secure: bool,
        /// Its disk: no other one may join under this entry.
        disk_uuid: String,
        /// The call's fence.
        fence: Fence,
    },
    /// Make a learner a voter.
    Promote {
        /// The learner.
        member: String,
        /// Its member ID.
        id: u64,
        /// The call's fence.
        fence: Fence,
    },
    /// Move the leadership to a voter in sync.
    Transfer {
        /// The leader.
        from: String,
        /// The voter that takes over.
        to: String,
        /// Its member ID.
        to_id: u64,
        /// The call's fence.
        fence: Fence,
    },
    /// Switch an alarm off whose reason is gone.
    Disarm {
        /// Which alarm.
        kind: AlarmKind,
        /// The member that it names, or its ID where that is none any more.
        member: String,
        /// Its member ID.
        id: u64,
        /// The call's fence.
        fence: Fence,
    },
    /// Ask a voter to become unready and to hand over what it leads; it keeps following.
    Retire {
        /// The voter.
        member: String,
        /// UID of its pod.
        pod_uid: String,
    },
    /// Remove a member from the cluster.
    Remove {
        /// The member.
        member: String,
        /// Its member ID.
        id: u64,
        /// The call's fence.
        fence: Fence,
    },
    /// Let an eviction take a member's pod.
    ReleasePod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Let no eviction take a member's pod any more.
    HoldPod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Evict a member's pod, which the disruption budget may refuse; its set makes a new one.
    EvictPod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Delete a member's pod; its set makes a new one.
    DeletePod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Delete a member's set, and with it its pod.
    DeleteSet {
        /// The member.
        member: String,
        /// UID of the set.
        uid: String,
    },
    /// Delete a volume claim, and with it usually its data.
    DeleteClaim {
        /// The claim.
        claim: String,
        /// UID of the claim.
        uid: String,
    },
}

/// The alarms that a server raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// A quota is used up, or a volume nearly full.
    NoSpace,
    /// A member's data differs.
    Corrupt,
}

impl AlarmKind {
    /// As etcd's tools write it.
    pub fn as_str(self) -> &'static str {
        match self {
            AlarmKind::NoSpace => "NOSPACE",
            AlarmKind::Corrupt => "CORRUPT",
        }
    }
}

/// The stages of a change to another authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Make the next one, and trust it.
    Prepare {
        /// The annotation's value, if it asks for this.
        asked: Option<String>,
    },
    /// Let the next one sign; the one before is trusted on.
    Switch {
        /// Fingerprint of the next one.
        to: String,
    },
    /// Trust nobody but the one that signs.
    Forget,
}

/// What a membership call carries so that a stale one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Index of the configuration that the plan was made from.
    pub configuration_index: u64,
    /// The operator's epoch.
    pub epoch: u64,
}

/// An action and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the rule that wants it (see the contract's order).
    pub rule: u8,
    /// What to do.
    pub action: Action,
    /// Why, in words.
    pub reason: String,
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

/// Whether something has to be done by somebody, is under way, or is only worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A word for events and metrics.
    pub reason: &'static str,
    /// In words.
    pub text: String,
}

/// The step in hand, acting or waiting, as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What, such as `Promote`.
    pub action: &'static str,
    /// Whom it concerns.
    pub member: Option<String>,
    /// Acting or waiting.
    pub state: StepState,
    /// A machine-readable word for why.
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
    /// A machine-readable word for why.
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
    /// The step in hand; `None` at rest.
    pub progress: Option<Progress>,
    /// What comes after the step in hand, in words.
    pub next: Option<String>,
    /// One plain sentence.
    pub summary: String,
    /// All conditions, in their order.
    pub conditions: Vec<ConditionInput>,
    /// The status to write, conditions aside (those need their transition times).
    pub status: EtcdClusterStatus,
    /// Look again after this many milliseconds even if nothing changes.
    pub requeue_ms: u64,
}

impl Action {
    /// The word for it in the status, events and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Action::AdmitSpec { .. } => "AdmitSpec",
            Action::ApplyObject(_) => "ApplyObject",
            Action::SetBudget { .. } => "SetBudget",
            Action::MakeAuthority { .. } => "MakeAuthority",
            Action::RotateAuthority { .. } => "RotateAuthority",
            Action::IssueCertificate { .. } => "IssueCertificate",
            Action::TrustAuthorities { .. } => "TrustAuthorities",
            Action::DropCertificate { .. } => "DropCertificate",
            Action::CreateLatch { .. } => "CreateLatch",
            Action::CreateClaim { .. } => "CreateClaim",
            Action::GrowClaim { .. } => "GrowClaim",
            Action::MarkClaim { .. } => "MarkClaim",
            Action::OwnClaim { .. } => "OwnClaim",
            Action::ApplySet { .. } => "ApplySet",
            Action::MapSlot { .. } => "MapSlot",
            Action::DropSlot { .. } => "DropSlot",
            Action::Bootstrap { .. } => "Bootstrap",
            Action::SetPeerUrls { .. } => "SetPeerUrls",
            Action::AddLearner { .. } => "AddLearner",
            Action::Promote { .. } => "Promote",
            Action::Transfer { .. } => "Transfer",
            Action::Disarm { .. } => "Disarm",
            Action::Retire { .. } => "Retire",
            Action::Remove { .. } => "Remove",
            Action::ReleasePod { .. } => "ReleasePod",
            Action::HoldPod { .. } => "HoldPod",
            Action::EvictPod { .. } => "EvictPod",
            Action::DeletePod { .. } => "DeletePod",
            Action::DeleteSet { .. } => "DeleteSet",
            Action::DeleteClaim { .. } => "DeleteClaim",
        }
    }

    /// The member that it concerns.
    pub fn member(&self) -> Option<&str> {
        match self {
            Action::CreateLatch { seed: member, .. }
            | Action::CreateClaim { member, .. }
            | Action::ApplySet { member, .. }
            | Action::MapSlot { member, .. }
            | Action::Bootstrap { member, .. }
            | Action::AddLearner { member, .. }
            | Action::SetPeerUrls { member, .. }
            | Action::Promote { member, .. }
            | Action::Transfer { from: member, .. }
            | Action::Disarm { member, .. }
            | Action::Retire { member, .. }
            | Action::Remove { member, .. }
            | Action::ReleasePod { member, .. }
            | Action::HoldPod { member, .. }
            | Action::EvictPod { member, .. }
            | Action::DeletePod { member, .. }
            | Action::DeleteSet { member, .. } => Some(member),
            Action::IssueCertificate { member, .. } => member.as_deref(),
            Action::AdmitSpec { .. }
            | Action::ApplyObject(_)
            | Action::SetBudget { .. }
            | Action::MakeAuthority { .. }
            | Action::RotateAuthority { .. }
            | Action::TrustAuthorities { .. }
            | Action::DropCertificate { .. }
            | Action::DropSlot { .. }
            | Action::GrowClaim { .. }
            | Action::MarkClaim { .. }
            | Action::OwnClaim { .. }
            | Action::DeleteClaim { .. } => None,
        }
    }

    /// Whether it makes, changes or deletes a certificate.
    pub fn is_of_certificates(&self) -> bool {
        matches!(
            self,
            Action::MakeAuthority { .. }
                | Action::RotateAuthority { .. }
                | Action::IssueCertificate { .. }
                | Action::TrustAuthorities { .. }
                | Action::DropCertificate { .. }
        )
    }

    /// Whether it changes the cluster's membership or leadership: executed through a leader that
    /// holds a quorum, after the member list was read again.
    pub fn is_membership(&self) -> bool {
        matches!(
            self,
            Action::AddLearner { .. }
                | Action::SetPeerUrls { .. }
                | Action::Promote { .. }
                | Action::Transfer { .. }
                | Action::Remove { .. }
        )
    }
}

impl Plan {
    /// The one step to execute.
    pub fn first(&self) -> Option<&Step> {
        self.steps.first()
    }
}
