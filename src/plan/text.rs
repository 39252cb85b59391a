//! Actions and plans as text, as a person reads them: in the status, in events, in the goldens.

use std::fmt;

use crate::crd::StepState;

use super::step::{Action, ConditionInput, Plan, Rotation};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::ApplyObject(key) => write!(f, "apply {} {}", key.kind.as_str(), key.name),
            Action::SetBudget { least, .. } => {
                let members = if *least == 1 { "member" } else { "members" };
                write!(
                    f,
                    "let the disruption budget keep {least} {members} available"
                )
            }
            Action::AdmitSpec { hash } => write!(f, "admit the specification {hash}"),
            Action::MakeAuthority { secret, .. } => write!(f, "make the authority {secret}"),
            Action::RotateAuthority { secret, stage, .. } => match stage {
                Rotation::Prepare { .. } => write!(f, "make another authority for {secret}"),
                Rotation::Switch { .. } => write!(f, "let the other authority of {secret} sign"),
                Rotation::Forget => write!(f, "forget the earlier authorities of {secret}"),
            },
            Action::IssueCertificate { secret, .. } => write!(f, "make the certificate {secret}"),
            Action::TrustAuthorities {
                secret, trusted, ..
            } => write!(f, "let {secret} trust {} authorities", trusted.len()),
            Action::DropCertificate { secret, .. } => write!(f, "delete the certificate {secret}"),
            Action::CreateLatch { seed, nonce, .. } => {
                write!(f, "create the identity latch (seed {seed}, nonce {nonce})")
            }
            Action::CreateClaim { member, claim } => write!(f, "create claim {claim} for {member}"),
            Action::GrowClaim { claim, bytes, .. } => {
                write!(f, "grow claim {claim} to {bytes} bytes")
            }
            Action::MarkClaim { claim, state, .. } => write!(f, "mark claim {claim} {state:?}"),
            Action::OwnClaim {
                claim, owned: true, ..
            } => {
                write!(f, "let claim {claim} go with the resource")
            }
            Action::OwnClaim {
                claim,
                owned: false,
                ..
            } => {
                write!(f, "keep claim {claim} when the resource is deleted")
            }
            Action::ApplySet {
                member,
                claim,
                apart,
                asleep,
                transition,
            } => {
                if *asleep {
                    return write!(f, "put set {member} to sleep on claim {claim}");
                }
                let alone = if *apart { ", alone on its node" } else { "" };
                let both = if *transition {
                    ", with and without TLS"
                } else {
                    ""
                };
                write!(f, "apply set {member} on claim {claim}{alone}{both}")
            }
            Action::MapSlot {
                service, member, ..
            } => write!(f, "point Service {service} at {member}"),
            Action::DropSlot { service, .. } => write!(f, "delete Service {service}"),
            Action::Bootstrap { member, .. } => write!(f, "bootstrap the cluster on {member}"),
            Action::SetPeerUrls { member, .. } => {
                write!(f, "let the others dial {member} with TLS")
            }
            Action::AddLearner { member, .. } => write!(f, "add {member} as a learner"),
            Action::Promote { member, .. } => write!(f, "promote {member}"),
            Action::Transfer { from, to, .. } => write!(f, "move leadership from {from} to {to}"),
            Action::Disarm { kind, member, .. } => {
                write!(f, "switch off the alarm {} of {member}", kind.as_str())
            }
            Action::Retire { member, .. } => write!(f, "retire {member}"),
            Action::Remove { member, .. } => write!(f, "remove {member} from the cluster"),
            Action::ReleasePod { member, .. } => {
                write!(f, "let an eviction take the pod of {member}")
            }
            Action::HoldPod { member, .. } => {
                write!(f, "let no eviction take the pod of {member} any more")
            }
            Action::EvictPod { member, .. } => write!(f, "evict the pod of {member}"),
            Action::DeletePod { member, .. } => write!(f, "replace the pod of {member}"),
            Action::DeleteSet { member, .. } => write!(f, "delete set {member}"),
            Action::DeleteClaim { claim, .. } => write!(f, "delete claim {claim}"),
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
                "{word}: {} (rule {}: {})",
                step.action, step.rule, step.reason
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
