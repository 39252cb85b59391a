//! Actions and plans as text, as a person reads them: in the status, in events, in the golden files.

use std::fmt;

use crate::crd::StepState;

use super::action::{Action, CertificateAction, MemberAction, ObjectAction, Rotation};
use super::step::{ConditionInput, Plan};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(action) => action.fmt(f),
            Self::Certificate(action) => action.fmt(f),
            Self::Object(action) => action.fmt(f),
        }
    }
}

impl Action {
    /// The reason of the event when it was executed, for those that a user should know about.
    #[must_use]
    pub fn event_reason(&self) -> Option<&'static str> {
        match self {
            Self::Member(action) => Some(action.event_reason()),
            Self::Certificate(action) => action.event_reason(),
            Self::Object(action) => action.event_reason(),
        }
    }
}

impl MemberAction {
    fn event_reason(&self) -> &'static str {
        match self {
            Self::Bootstrap { .. } => "Bootstrapped",
            Self::SetPeerUrls { .. } => "MemberEncrypted",
            Self::AddLearner { .. } => "LearnerAdded",
            Self::Promote { .. } => "MemberPromoted",
            Self::Transfer { .. } => "LeadershipMoved",
            Self::Disarm { .. } => "AlarmDisarmed",
            Self::Retire { .. } => "MemberRetired",
            Self::Remove { .. } => "MemberRemoved",
        }
    }
}

impl CertificateAction {
    fn event_reason(&self) -> Option<&'static str> {
        match self {
            Self::MakeAuthority { .. } => Some("AuthorityMade"),
            Self::RotateAuthority { .. } => Some("AuthorityRotated"),
            Self::IssueCertificate {
                replaces: Some(_), ..
            } => Some("CertificateRenewed"),
            Self::SignRequest {
                replaces: Some(_), ..
            } => Some("CertificateRenewed"),
            Self::IssueCertificate { replaces: None, .. }
            | Self::SignRequest { replaces: None, .. } => Some("CertificateIssued"),
            Self::PublishAuthorities { .. } => Some("AuthoritiesPublished"),
            Self::WithdrawAuthorities { .. } => Some("AuthoritiesWithdrawn"),
            Self::MakeTrust { .. }
            | Self::TrustAuthorities { .. }
            | Self::DropCertificate { .. } => None,
        }
    }
}

impl ObjectAction {
    fn event_reason(&self) -> Option<&'static str> {
        match self {
            Self::CreatePvc { .. } => Some("MemberCreating"),
            Self::DeleteIdentitySecret { .. } => Some("RecoveryBegun"),
            Self::MapSlot { .. } => Some("SlotMapped"),
            Self::ReleasePod { .. } => Some("PodReleased"),
            Self::HoldPod { .. } => Some("PodHeld"),
            Self::SetPdb { .. } => Some("PDBSet"),
            Self::EvictPod { .. } => Some("PodEvicted"),
            Self::ResizePod { .. } => Some("PodResized"),
            Self::DeletePod { .. } => Some("PodReplaced"),
            Self::DeleteSet { .. } => Some("SetDeleted"),
            Self::DeletePvc { .. } => Some("PVCDeleted"),
            Self::GrowPvc { .. } => Some("PVCGrown"),
            Self::ApplySet {
                hibernated: true, ..
            } => Some("MemberStopped"),
            Self::ApplySet {
                hibernated: false, ..
            }
            | Self::ApplyObject(_)
            | Self::AdmitSpec { .. }
            | Self::CreateIdentitySecret { .. }
            | Self::MarkPvc { .. }
            | Self::RecordStorage { .. }
            | Self::RecordInputs { .. }
            | Self::OwnPvc { .. }
            | Self::DropSlot { .. } => None,
        }
    }
}

impl fmt::Display for MemberAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrap {
                member,
                snapshot: None,
                ..
            } => write!(f, "bootstrap the cluster on {member}"),
            Self::Bootstrap {
                member,
                snapshot: Some(snapshot),
                ..
            } => match snapshot.follow {
                true => write!(
                    f,
                    "bootstrap the cluster on {member} with the data of the cluster that it follows"
                ),
                false => write!(
                    f,
                    "bootstrap the cluster on {member} with the restored data"
                ),
            },
            Self::SetPeerUrls { member, .. } => {
                write!(f, "let the others dial {member} with TLS")
            }
            Self::AddLearner { member, .. } => write!(f, "add {member} as a learner"),
            Self::Promote { member, .. } => write!(f, "promote {member}"),
            Self::Transfer { from, to, .. } => write!(f, "move leadership from {from} to {to}"),
            Self::Disarm { kind, member, .. } => {
                write!(f, "disarm the alarm {} of {member}", kind.as_str())
            }
            Self::Retire { member, .. } => write!(f, "retire {member}"),
            Self::Remove { member, .. } => write!(f, "remove {member} from the cluster"),
        }
    }
}

impl fmt::Display for CertificateAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeAuthority { secret, .. } => write!(f, "create the CA {secret}"),
            Self::RotateAuthority { secret, stage, .. } => match stage {
                Rotation::Prepare { .. } => write!(f, "create another CA for {secret}"),
                Rotation::Switch { .. } => write!(f, "let the other CA of {secret} sign"),
                Rotation::Forget => write!(f, "forget the earlier CAs of {secret}"),
            },
            Self::IssueCertificate { secret, .. } => write!(f, "issue the certificate {secret}"),
            Self::MakeTrust { secret, .. } => write!(f, "create {secret} with the trusted CAs"),
            Self::SignRequest { secret, .. } => {
                write!(f, "sign what the kubelet requests for {secret}")
            }
            Self::TrustAuthorities {
                secret, trusted, ..
            } => write!(
                f,
                "let {secret} trust {}",
                super::report::count(trusted.len(), "CA")
            ),
            Self::PublishAuthorities { bundle, trusted } => write!(
                f,
                "publish {} in ClusterTrustBundle {bundle}",
                super::report::count(trusted.len(), "CA")
            ),
            Self::WithdrawAuthorities { bundle, .. } => {
                write!(f, "delete ClusterTrustBundle {bundle}")
            }
            Self::DropCertificate { secret, .. } => write!(f, "delete the certificate {secret}"),
        }
    }
}

impl fmt::Display for ObjectAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplyObject(key) => write!(f, "apply {} {}", key.kind.as_str(), key.name),
            Self::SetPdb { limit, .. } => write!(f, "set the PDB to {limit}"),
            Self::AdmitSpec { hash } => write!(f, "admit the specification {hash}"),
            Self::CreateIdentitySecret { seed, nonce, .. } => {
                write!(f, "create the identity Secret (seed {seed}, nonce {nonce})")
            }
            Self::DeleteIdentitySecret { incarnation } => {
                write!(f, "delete the identity Secret of incarnation {incarnation}")
            }
            Self::CreatePvc { member, pvc, .. } => write!(f, "create PVC {pvc} for {member}"),
            Self::GrowPvc { pvc, bytes, .. } => {
                write!(f, "grow PVC {pvc} to {bytes} bytes")
            }
            Self::RecordStorage { pvc, .. } => write!(f, "record the storage asked of PVC {pvc}"),
            Self::MarkPvc { pvc, state, .. } => write!(f, "mark PVC {pvc} {state:?}"),
            Self::OwnPvc {
                pvc, owned: true, ..
            } => {
                write!(f, "let PVC {pvc} go with the resource")
            }
            Self::OwnPvc {
                pvc, owned: false, ..
            } => {
                write!(f, "keep PVC {pvc} when the resource is deleted")
            }
            Self::ApplySet {
                member,
                pvc,
                one_per_node,
                hibernated,
                plaintext_peers,
            } => {
                if *hibernated {
                    return write!(f, "scale set {member} to zero; PVC {pvc} stays");
                }
                let alone = if *one_per_node {
                    ", alone on its node"
                } else {
                    ""
                };
                let both = if *plaintext_peers {
                    ", peers with and without TLS"
                } else {
                    ""
                };
                write!(f, "apply set {member} on PVC {pvc}{alone}{both}")
            }
            Self::MapSlot {
                service, member, ..
            } => write!(f, "point Service {service} at {member}"),
            Self::DropSlot { service, .. } => write!(f, "delete Service {service}"),
            Self::ReleasePod { member, .. } => {
                write!(f, "release the pod of {member} for eviction")
            }
            Self::HoldPod { member, .. } => {
                write!(f, "protect the pod of {member} from evictions again")
            }
            Self::EvictPod { member, .. } => write!(f, "evict the pod of {member}"),
            Self::ResizePod { member, .. } => write!(f, "resize the pod of {member} in place"),
            Self::RecordInputs { member, .. } => {
                write!(
                    f,
                    "record that the pod of {member} has the changed resources"
                )
            }
            Self::DeletePod { member, .. } => write!(f, "replace the pod of {member}"),
            Self::DeleteSet { member, .. } => write!(f, "delete set {member}"),
            Self::DeletePvc { pvc, .. } => write!(f, "delete PVC {pvc}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "summary: {}", self.summary)?;
        for (i, step) in self.steps.iter().enumerate() {
            let word = if i == 0 { "step" } else { "then" };
            writeln!(
                f,
                "{word}: {} ({}: {})",
                step.action,
                step.rule.as_str(),
                step.reason
            )?;
        }
        if let Some(progress) = &self.progress
            && progress.state == StepState::Waiting
        {
            let member = progress.member.as_deref().unwrap_or("-");
            let what = progress.waiting_for.as_deref().unwrap_or("-");
            writeln!(
                f,
                "waiting: {} {member} ({}): {what}",
                progress.action, progress.reason
            )?;
            if let Some(deadline) = progress.deadline_ms {
                writeln!(
                    f,
                    "deadline: {} s after its start",
                    deadline.saturating_sub(progress.since_ms) / 1000
                )?;
            }
        }
        if let Some(next) = &self.next {
            writeln!(f, "next: {next}")?;
        }
        for hold in &self.holds {
            writeln!(f, "hold {:?}: {}", hold.class, hold.reason)?;
        }
        for note in &self.notes {
            writeln!(f, "note {}: {}", note.reason, note.text)?;
        }
        for condition in &self.conditions {
            let ConditionInput {
                type_,
                status,
                reason,
                message,
            } = condition;
            writeln!(
                f,
                "{}={} {reason}: {message}",
                type_.as_str(),
                status.as_str()
            )?;
        }
        Ok(())
    }
}
