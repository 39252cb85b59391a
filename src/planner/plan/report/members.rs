//! One row per member: voters, learners, standbys and leaving members.

use crate::crd::{MemberDisk, MemberHealth, MemberRole, MemberStatus, pod_name};
use crate::plan::draft::Draft;
use crate::plan::evidence::{Verdict, pod_in_words};
use crate::plan::observed::Phase;
use crate::plan::rules::{bootstrap, lag};
use crate::plan::situation::{Seat, Situation};

/// Maximum number of rows in the schema of the status.
const ROWS: usize = 64;

/// The rows, by name.
pub(super) fn rows(s: &Situation<'_>, draft: &Draft) -> Vec<MemberStatus> {
    let mut rows: Vec<MemberStatus> = Vec::new();
    for (name, seat) in &s.voters {
        rows.push(seated(s, draft, name, seat, MemberRole::Voter));
    }
    for (name, seat) in &s.learners {
        rows.push(seated(s, draft, name, seat, MemberRole::Learner));
    }
    // Without a leader's description, a voter whose PVC is gone looks like a joining member.
    let voted = |name: &&String| s.view.is_none() && s.o.status_memory.voters.contains(*name);
    for name in s.standbys.iter().filter(|name| !voted(name)) {
        rows.push(unseated(s, draft, name, MemberRole::Standby));
    }
    for name in &s.leaving {
        rows.push(unseated(s, draft, name, MemberRole::Leaving));
    }
    if s.view.is_none() {
        // Those of adopted volumes are in no status yet: whoever answers knows them.
        let remembered = &s.o.status_memory.voters;
        let described = bootstrap::described_voters(s).filter(|_| remembered.is_empty());
        for name in described.as_ref().unwrap_or(remembered) {
            if !rows.iter().any(|row| row.name == *name) {
                rows.push(unseated(s, draft, name, MemberRole::Voter));
            }
        }
    }
    rows.sort_by_key(|row| {
        (
            crate::crd::member_number(&s.cluster.name, &row.name).unwrap_or(u64::MAX),
            row.name.clone(),
        )
    });
    // Voters and learners are few. The number of PVCs of joining or leaving members is not bounded.
    let seated = |row: &MemberStatus| matches!(row.role, MemberRole::Voter | MemberRole::Learner);
    let mut room = ROWS.saturating_sub(rows.iter().filter(|row| seated(row)).count());
    rows.retain(|row| {
        let kept = seated(row) || room > 0;
        room = room.saturating_sub(usize::from(!seated(row)));
        kept
    });
    rows.truncate(ROWS);
    rows
}

fn seated(
    s: &Situation<'_>,
    draft: &Draft,
    name: &str,
    seat: &Seat<'_>,
    role: MemberRole,
) -> MemberStatus {
    let mut row = blank(s, name, role);
    row.id = Some(format!("{:x}", seat.view.id));
    row.leader = s.view.is_some_and(|(leader, _)| leader == name);
    row.health = match seat.verdict {
        Verdict::Healthy => MemberHealth::Healthy,
        Verdict::Unknown(_) => MemberHealth::Unknown,
        _ => MemberHealth::Unhealthy,
    };
    row.reason = seat.verdict.why().map(str::to_owned);
    if role == MemberRole::Learner {
        row.lag_entries = i64::try_from(lag(s, seat)).ok();
    }
    row.restarts = super::restarts(s, draft, name, seat.healthy());
    row
}

fn unseated(s: &Situation<'_>, draft: &Draft, name: &str, role: MemberRole) -> MemberStatus {
    let mut row = blank(s, name, role);
    row.reason = match (s.description(name), s.o.pods.get(name)) {
        (Some(d), _) if d.phase == Phase::Member => {
            Some("it answers, but no leader with a quorum was seen".to_owned())
        }
        (Some(d), _) => Some(format!("its server reports phase {:?}", d.phase)),
        (None, Some(pod)) => Some(format!("it does not answer; {}", pod_in_words(pod))),
        (None, None) if s.fenced.contains(name) => Some("it is fenced".to_owned()),
        (None, None) if s.o.sets.get(name).is_some_and(|set| set.hibernated) => {
            Some("it sleeps".to_owned())
        }
        (None, None) => Some("it has no pod".to_owned()),
    };
    row.restarts = super::restarts(s, draft, name, false);
    row
}

/// What a member's disk holds, while that may be needed for a recovery.
fn disk(s: &Situation<'_>, name: &str) -> Option<MemberDisk> {
    let description = s.description(name).filter(|_| s.view.is_none())?;
    if description.phase != Phase::Member || description.last_term == 0 {
        return None;
    }
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Some(MemberDisk {
        disk_uuid: description.disk_uuid.clone(),
        term: number(description.last_term),
        index: number(description.last_index),
        last_append_time: description.last_append_ms.map(super::timestamp),
        corrupt: description.is_corrupt(),
    })
}

fn blank(s: &Situation<'_>, name: &str, role: MemberRole) -> MemberStatus {
    let pod = s.o.pods.get(name);
    let version = s
        .description(name)
        .map(|d| d.version.clone())
        .filter(|v| !v.is_empty());
    MemberStatus {
        name: name.to_owned(),
        id: None,
        role,
        leader: false,
        health: MemberHealth::Unknown,
        reason: None,
        lag_entries: None,
        version,
        pod_name: pod.map(|_| pod_name(name)),
        node_name: pod.and_then(|pod| pod.node.clone()),
        volume_claim_name: s.pvc(name).map(|_| s.pvc_name(name)),
        disk: disk(s, name),
        updated: pod.is_some() && s.updated(name) && s.unfit(name).is_none(),
        restarts: None,
    }
}
