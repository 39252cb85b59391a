//! State of earlier reconciles in the status, as used by the plan. An invalid status is ignored; that only restarts
//! waits.

use k8s_openapi::jiff::Timestamp;

use crate::crd::{EtcdClusterStatus, MemberRole};
use crate::plan::{Disarms, JoinFailure, StatusMemory};

/// Reads what earlier reconciles remembered in a stored status.
pub fn of_status(status: &EtcdClusterStatus) -> StatusMemory {
    let step = status.step.as_ref().and_then(|step| {
        let since = milliseconds(step.start_time.as_deref()?)?;
        Some((step.action.clone(), step.member.clone(), since))
    });
    let restarts = status.members.iter().filter_map(|member| {
        let count = u32::try_from(member.restarts?).ok()?;
        Some((member.name.clone(), count))
    });
    let join_failures = status.join_failures.as_ref().and_then(|failures| {
        Some(JoinFailure {
            count: u32::try_from(failures.count).ok()?,
            last_ms: milliseconds(&failures.last_time)?,
            inputs: failures.inputs.clone(),
            reason: failures.reason.clone(),
        })
    });
    let disarms = status.disarms.as_ref().and_then(|disarms| {
        Some(Disarms {
            count: u32::try_from(disarms.count).ok()?,
            last_ms: milliseconds(&disarms.last_time)?,
            member: u64::from_str_radix(&disarms.member_id, 16).ok()?,
        })
    });
    let voters = status
        .members
        .iter()
        .filter(|member| member.role == MemberRole::Voter);
    StatusMemory {
        step,
        restarts: restarts.collect(),
        join_failures,
        disarms,
        version: status.version.clone(),
        voters: voters.map(|member| member.name.clone()).collect(),
        restore: status.restore.clone(),
        follow: status.follow.clone(),
        backup: status.backup.clone(),
    }
}

/// The incarnation whose cluster ID is in a stored status.
pub fn incarnation(status: &EtcdClusterStatus) -> Option<u64> {
    u64::try_from(status.incarnation?).ok()
}

/// Unix milliseconds of a time as the API server writes it.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::{JoinFailures, MemberHealth, MemberStatus, StepState, StepStatus};

    fn member(name: &str, role: MemberRole, restarts: Option<i32>) -> MemberStatus {
        MemberStatus {
            name: name.into(),
            id: None,
            role,
            leader: false,
            health: MemberHealth::Healthy,
            reason: None,
            lag_entries: None,
            version: None,
            pod_name: None,
            node_name: None,
            volume_claim_name: None,
            disk: None,
            updated: true,
            restarts,
        }
    }

    #[test]
    fn status_memory_round_trips() {
        let mut status = EtcdClusterStatus {
            step: Some(StepStatus {
                action: "Promote".into(),
                member: Some("demo-3".into()),
                state: StepState::Waiting,
                reason: "CatchingUp".into(),
                waiting_for: None,
                next: None,
                start_time: Some("1970-01-01T00:01:00Z".into()),
                deadline: None,
            }),
            members: vec![
                member("demo-1", MemberRole::Voter, Some(2)),
                member("demo-3", MemberRole::Learner, None),
            ],
            join_failures: Some(JoinFailures {
                count: 2,
                last_time: "1970-01-01T00:00:01Z".into(),
                inputs: "h".into(),
                reason: "never started".into(),
            }),
            ..EtcdClusterStatus::default()
        };
        let memory = of_status(&status);
        assert_eq!(
            memory.step,
            Some(("Promote".into(), Some("demo-3".into()), 60_000))
        );
        assert_eq!(memory.restarts, [("demo-1".into(), 2)].into());
        assert_eq!(
            memory.join_failures.map(|failure| failure.last_ms),
            Some(1000)
        );
        assert_eq!(memory.voters, ["demo-1"]);
        if let Some(step) = &mut status.step {
            step.start_time = Some("yesterday".into());
        }
        assert_eq!(of_status(&status).step, None);
    }
}
