//! What a step does: one mutating act, by what executes it. Knows nothing of why, and executes
//! nothing.

use crate::crd::TlsPort;

use super::observed::{AskedStorage, ObjectKey, PvcState};
use super::pdb::PdbLimit;

/// One mutating act. It names everything that it needs: execution has no choice left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A call of a member's server.
    Member(MemberAction),
    /// A change of a certificate or of a CA, in a Secret.
    Certificate(CertificateAction),
    /// A change of any other object.
    Object(ObjectAction),
}

/// A call of a member's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
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
        /// The identity Secret's nonce.
        nonce: String,
        /// UID of the seed's PVC.
        pvc_uid: String,
        /// The disk that described itself as empty.
        disk_uuid: String,
        /// The snapshot to form it from, which the seed has; `None`: the cluster starts empty.
        snapshot: Option<FirstData>,
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
    /// Disarm an alarm whose cause is gone.
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
    /// Ask a voter to become unready and to transfer leadership, if it leads; it stays a follower.
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
}

/// The snapshot that a cluster is formed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstData {
    /// SHA-256 of the snapshot, in hexadecimal.
    pub sha256: String,
    /// By how much the revision is raised.
    pub revision_bump: u64,
    /// The cluster follows the one that the snapshot was taken from.
    pub follow: bool,
}

/// A change of a certificate or of a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateAction {
    /// Create a port's CA; fail if it exists.
    MakeAuthority {
        /// Whose certificates it signs.
        port: TlsPort,
        /// The Secret.
        secret: String,
    },
    /// Take the next stage of a port's CA rotation.
    RotateAuthority {
        /// Whose certificates it signs.
        port: TlsPort,
        /// The Secret.
        secret: String,
        /// Fingerprint of the CA that currently signs.
        signs: String,
        /// What is done.
        stage: Rotation,
    },
    /// Issue a certificate with a new key, replacing the existing one.
    IssueCertificate {
        /// The port that it is for.
        port: TlsPort,
        /// The member that it is for; `None` for the certificate of clients.
        member: Option<String>,
        /// The Secret.
        secret: String,
        /// Fingerprint of the CA that signs it.
        authority: String,
        /// Fingerprint of the existing certificate; `None` if none exists, or it is unreadable.
        replaces: Option<String>,
    },
    /// Create the Secret of a member whose key a kubelet makes, with the currently trusted CAs.
    MakeTrust {
        /// The port.
        port: TlsPort,
        /// The member.
        member: String,
        /// The Secret.
        secret: String,
    },
    /// Sign a certificate for a key that a kubelet has made, record it, and answer the kubelet's request with it.
    SignRequest {
        /// The port that it is for.
        port: TlsPort,
        /// The member.
        member: String,
        /// The Secret that records it.
        secret: String,
        /// The PodCertificateRequest.
        request: String,
        /// Its UID.
        uid: String,
        /// UID of the pod that it is for.
        pod_uid: String,
        /// Fingerprint of the CA that signs it.
        authority: String,
        /// Fingerprint of the recorded certificate, if there is one.
        replaces: Option<String>,
    },
    /// Write the currently trusted CAs next to a certificate; the certificate is not changed.
    TrustAuthorities {
        /// The port.
        port: TlsPort,
        /// The Secret.
        secret: String,
        /// Fingerprints of the CAs.
        trusted: Vec<String>,
    },
    /// Write the currently trusted CAs of the client port into the cluster's ClusterTrustBundle.
    PublishAuthorities {
        /// The ClusterTrustBundle.
        bundle: String,
        /// Fingerprints of the CAs.
        trusted: Vec<String>,
    },
    /// Delete the cluster's ClusterTrustBundle, which is asked for no more.
    WithdrawAuthorities {
        /// The ClusterTrustBundle.
        bundle: String,
        /// Its UID.
        uid: String,
    },
    /// Delete the certificate of a removed member.
    DropCertificate {
        /// The Secret.
        secret: String,
        /// Its UID.
        uid: String,
    },
}

/// A change of an object in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectAction {
    /// Keep the specification that this was planned from as the one that was last admitted.
    AdmitSpec {
        /// Its hash.
        hash: String,
    },
    /// Apply another object, as rendered from the spec.
    ApplyObject(ObjectKey),
    /// Let the PDB limit evictions by this, from another limit; make it where it is missing.
    SetPdb {
        /// The limit.
        limit: PdbLimit,
        /// Its limit when this was decided; `None`: it had none, or was missing. A PDB that has changed since is not
        /// touched.
        before: Option<PdbLimit>,
    },
    /// Create the identity Secret, live; fail if it exists.
    CreateIdentitySecret {
        /// Member that will bootstrap.
        seed: String,
        /// Nonce of the bootstrap call.
        nonce: String,
        /// Incarnation of the cluster: the first one, or, for a running cluster, the one that its members report.
        incarnation: u64,
    },
    /// Delete the identity Secret of a former incarnation, so that the next one gets its own.
    DeleteIdentitySecret {
        /// The former incarnation: a Secret of another one is left alone.
        incarnation: u64,
    },
    /// Create the PVC of a new member; fail if it exists.
    CreatePvc {
        /// The member.
        member: String,
        /// The incarnation that it is for.
        incarnation: u64,
        /// The PVC.
        pvc: String,
        /// Bytes that it requests.
        bytes: u64,
        /// Of those, what the specification asks for; the others were grown beyond that.
        asked: u64,
    },
    /// Raise the size that a PVC asks for.
    GrowPvc {
        /// The PVC.
        pvc: String,
        /// Its UID.
        uid: String,
        /// The new size in bytes.
        bytes: u64,
        /// What to record as asked for, where it grows to the size that the specification asks for.
        asked: Option<AskedStorage>,
    },
    /// Record on a PVC what the specification asks of its volume: it was already so, or was asked of it before this
    /// was recorded.
    RecordStorage {
        /// The PVC.
        pvc: String,
        /// Its UID.
        uid: String,
        /// What to record.
        asked: AskedStorage,
    },
    /// Record on a PVC what it has been.
    MarkPvc {
        /// The PVC.
        pvc: String,
        /// Its UID.
        uid: String,
        /// What to record.
        state: PvcState,
    },
    /// Make a PVC go away with the resource, or not.
    OwnPvc {
        /// The PVC.
        pvc: String,
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
        /// The PVC that it mounts.
        pvc: String,
        /// Never on a node with another member: its volume could not leave that node.
        one_per_node: bool,
        /// Without a pod, until it is applied awake.
        hibernated: bool,
        /// Its server takes connections without TLS on its peer port too, until all members are dialled
        /// with TLS.
        plaintext_peers: bool,
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
    /// Evict a member's pod, which the PDB may refuse; its set makes a new one.
    EvictPod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Ask the kubelet of a member's pod for the resources of the specification, while it runs.
    ResizePod {
        /// The member.
        member: String,
        /// UID of the pod: another pod is left alone.
        uid: String,
    },
    /// Record on a member's pod that it has the resources of the specification.
    RecordInputs {
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
    /// Delete a PVC, and with it usually its data.
    DeletePvc {
        /// The PVC.
        pvc: String,
        /// UID of the PVC.
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

/// The stages of a CA rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Make the next one, and trust it.
    Prepare {
        /// The annotation's value, if it requested this.
        asked: Option<String>,
    },
    /// Let the next one sign; the one before is trusted on.
    Switch {
        /// Fingerprint of the next one.
        to: String,
    },
    /// Trust only the CA that signs.
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

impl Action {
    /// Its name in the status, events and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Member(action) => action.word(),
            Self::Certificate(action) => action.word(),
            Self::Object(action) => action.word(),
        }
    }

    /// The member that it concerns.
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::Member(action) => Some(action.member()),
            Self::Certificate(action) => action.member(),
            Self::Object(action) => action.member(),
        }
    }

    /// Whether it changes the cluster's membership or leadership: executed through a leader that
    /// holds a quorum, after the member list was read again.
    pub fn is_membership(&self) -> bool {
        matches!(self, Self::Member(action) if action.is_membership())
    }

    /// Whether its failure blocks the steps after it. After the others the next step is tried: the rules, guards and
    /// lints of that step check what it depends on.
    #[must_use]
    pub fn blocks(&self) -> bool {
        match self {
            Self::Member(action) => !matches!(action, MemberAction::Disarm { .. }),
            Self::Certificate(_) => false,
            Self::Object(action) => action.blocks(),
        }
    }

    /// Whether a pod ends by it, or may.
    #[must_use]
    pub fn ends_a_pod(&self) -> bool {
        matches!(self, Self::Object(action) if action.ends_a_pod())
    }

    /// An idempotent rendering of an object from the specification: harmless on a stale view, because it is applied to
    /// the live object of its name and owner only.
    #[must_use]
    pub fn renders_only(&self) -> bool {
        matches!(self, Self::Object(ObjectAction::ApplyObject(_)))
    }
}

impl MemberAction {
    fn word(&self) -> &'static str {
        match self {
            Self::Bootstrap { .. } => "Bootstrap",
            Self::SetPeerUrls { .. } => "SetPeerUrls",
            Self::AddLearner { .. } => "AddLearner",
            Self::Promote { .. } => "Promote",
            Self::Transfer { .. } => "Transfer",
            Self::Disarm { .. } => "Disarm",
            Self::Retire { .. } => "Retire",
            Self::Remove { .. } => "Remove",
        }
    }

    /// The member that it concerns.
    pub fn member(&self) -> &str {
        match self {
            Self::Bootstrap { member, .. }
            | Self::AddLearner { member, .. }
            | Self::SetPeerUrls { member, .. }
            | Self::Promote { member, .. }
            | Self::Transfer { from: member, .. }
            | Self::Disarm { member, .. }
            | Self::Retire { member, .. }
            | Self::Remove { member, .. } => member,
        }
    }

    fn is_membership(&self) -> bool {
        match self {
            Self::AddLearner { .. }
            | Self::SetPeerUrls { .. }
            | Self::Promote { .. }
            | Self::Transfer { .. }
            | Self::Remove { .. } => true,
            Self::Bootstrap { .. } | Self::Disarm { .. } | Self::Retire { .. } => false,
        }
    }
}

impl CertificateAction {
    fn word(&self) -> &'static str {
        match self {
            Self::MakeAuthority { .. } => "MakeAuthority",
            Self::RotateAuthority { .. } => "RotateAuthority",
            Self::IssueCertificate { .. } => "IssueCertificate",
            Self::MakeTrust { .. } => "MakeTrust",
            Self::SignRequest { .. } => "SignRequest",
            Self::TrustAuthorities { .. } => "TrustAuthorities",
            Self::PublishAuthorities { .. } => "PublishAuthorities",
            Self::WithdrawAuthorities { .. } => "WithdrawAuthorities",
            Self::DropCertificate { .. } => "DropCertificate",
        }
    }

    fn member(&self) -> Option<&str> {
        match self {
            Self::IssueCertificate { member, .. } => member.as_deref(),
            Self::MakeTrust { member, .. } | Self::SignRequest { member, .. } => Some(member),
            Self::MakeAuthority { .. }
            | Self::RotateAuthority { .. }
            | Self::TrustAuthorities { .. }
            | Self::PublishAuthorities { .. }
            | Self::WithdrawAuthorities { .. }
            | Self::DropCertificate { .. } => None,
        }
    }
}

impl ObjectAction {
    fn word(&self) -> &'static str {
        match self {
            Self::AdmitSpec { .. } => "AdmitSpec",
            Self::ApplyObject(_) => "ApplyObject",
            Self::SetPdb { .. } => "SetPDB",
            Self::CreateIdentitySecret { .. } => "CreateIdentitySecret",
            Self::DeleteIdentitySecret { .. } => "DeleteIdentitySecret",
            Self::CreatePvc { .. } => "CreatePVC",
            Self::GrowPvc { .. } => "GrowPVC",
            Self::RecordStorage { .. } => "RecordStorage",
            Self::MarkPvc { .. } => "MarkPVC",
            Self::OwnPvc { .. } => "OwnPVC",
            Self::ApplySet { .. } => "ApplySet",
            Self::MapSlot { .. } => "MapSlot",
            Self::DropSlot { .. } => "DropSlot",
            Self::ReleasePod { .. } => "ReleasePod",
            Self::HoldPod { .. } => "HoldPod",
            Self::EvictPod { .. } => "EvictPod",
            Self::ResizePod { .. } => "ResizePod",
            Self::RecordInputs { .. } => "RecordInputs",
            Self::DeletePod { .. } => "DeletePod",
            Self::DeleteSet { .. } => "DeleteSet",
            Self::DeletePvc { .. } => "DeletePVC",
        }
    }

    fn blocks(&self) -> bool {
        match self {
            Self::CreatePvc { .. }
            | Self::ReleasePod { .. }
            | Self::EvictPod { .. }
            | Self::DeletePod { .. }
            | Self::ApplySet {
                hibernated: true, ..
            } => true,
            Self::ApplySet {
                hibernated: false, ..
            }
            | Self::ApplyObject(_)
            | Self::AdmitSpec { .. }
            | Self::CreateIdentitySecret { .. }
            | Self::DeleteIdentitySecret { .. }
            | Self::SetPdb { .. }
            | Self::MapSlot { .. }
            | Self::DropSlot { .. }
            | Self::HoldPod { .. }
            | Self::ResizePod { .. }
            | Self::RecordInputs { .. }
            | Self::MarkPvc { .. }
            | Self::OwnPvc { .. }
            | Self::GrowPvc { .. }
            | Self::RecordStorage { .. }
            | Self::DeletePvc { .. }
            | Self::DeleteSet { .. } => false,
        }
    }

    fn ends_a_pod(&self) -> bool {
        matches!(
            self,
            Self::DeletePod { .. } | Self::EvictPod { .. } | Self::ReleasePod { .. }
        )
    }

    fn member(&self) -> Option<&str> {
        match self {
            Self::CreateIdentitySecret { seed: member, .. }
            | Self::CreatePvc { member, .. }
            | Self::ApplySet { member, .. }
            | Self::MapSlot { member, .. }
            | Self::ReleasePod { member, .. }
            | Self::HoldPod { member, .. }
            | Self::EvictPod { member, .. }
            | Self::ResizePod { member, .. }
            | Self::RecordInputs { member, .. }
            | Self::DeletePod { member, .. }
            | Self::DeleteSet { member, .. } => Some(member),
            Self::AdmitSpec { .. }
            | Self::ApplyObject(_)
            | Self::DeleteIdentitySecret { .. }
            | Self::SetPdb { .. }
            | Self::DropSlot { .. }
            | Self::GrowPvc { .. }
            | Self::RecordStorage { .. }
            | Self::MarkPvc { .. }
            | Self::OwnPvc { .. }
            | Self::DeletePvc { .. } => None,
        }
    }
}
