//! The members of a cluster as a table: what the resource's status says of each. A function of it; never decides who is
//! healthy.

use super::table::{self, wrapped};
use crate::crd::{MemberHealth, MemberRole, MemberStatus};

/// What is shown of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// What fits on a screen.
    Few,
    /// Its ID, pod and PVC as well.
    All,
}

const FEW: [&str; 6] = ["MEMBER", "ROLE", "HEALTH", "LAG", "VERSION", "NODE"];
const MORE: [&str; 3] = ["ID", "POD", "PVC"];

/// A line a member, and below it why it is not healthy.
pub(super) fn table(members: &[MemberStatus], columns: Columns) -> Vec<String> {
    if members.is_empty() {
        return vec!["no member is known".to_owned()];
    }
    let titles = match columns {
        Columns::Few => FEW.to_vec(),
        Columns::All => [&FEW[..], &MORE].concat(),
    };
    let titles: Vec<String> = titles.into_iter().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = members.iter().map(|member| row(member, columns)).collect();
    let mut drawn = table::table(&[vec![titles], rows].concat()).into_iter();
    let mut lines: Vec<String> = drawn.next().into_iter().collect();
    for (line, member) in drawn.zip(members) {
        lines.push(line);
        lines.extend(remarks(member));
    }
    lines
}

fn row(member: &MemberStatus, columns: Columns) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let behind = !member.updated && member.pod_name.is_some();
    let outdated = if behind { " (old spec)" } else { "" };
    let mut row = vec![
        member.name.clone(),
        role(member),
        format!("{:?}", member.health),
        or_dash(member.lag_entries.map(|lag| lag.to_string())),
        or_dash(member.version.clone()) + outdated,
        or_dash(member.node_name.clone()),
    ];
    if columns == Columns::All {
        row.push(or_dash(member.id.clone()));
        row.push(or_dash(member.pod_name.clone()));
        row.push(or_dash(member.volume_claim_name.clone()));
    }
    row
}

fn role(member: &MemberStatus) -> String {
    match (member.role, member.leader) {
        (MemberRole::Voter, true) => "Leader".to_owned(),
        (role, _) => format!("{role:?}"),
    }
}

fn remarks(member: &MemberStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if member.health != MemberHealth::Healthy {
        lines.extend(member.reason.iter().flat_map(|why| wrapped("  ", why)));
    }
    let restarts = member.restarts.filter(|count| *count > 0);
    lines.extend(restarts.map(|count| format!("  its pod was replaced {count} times so far")));
    lines
}
