//! What the console shows: functions of the resources, as a cache or this machine has them. Pure. What a status does not
//! say is absent; times are given as they are, and ages are the page's business. Nothing of a Secret is shown, not even
//! the name of one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{Event, Position};
use crate::crd::backups::{BackupPhase, EtcdBackup};
use crate::crd::{
    ConditionType, EtcdCluster, EtcdClusterStatus, MemberHealth, MemberRole, MemberStatus,
    NoteStatus, StepState, StepStatus,
};

/// Backups of one cluster that are shown, the newest.
const BACKUPS: usize = 20;

/// Everything that one viewer sees.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    /// Version of the operator.
    pub(crate) version: &'static str,
    /// Whether this operator acts; a standby knows of clusters, and not of backups and events.
    pub(crate) active: bool,
    /// The namespace whose clusters these are; absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// In order of namespace and name.
    pub(crate) clusters: Vec<Row>,
    /// How many more there are.
    pub(crate) omitted: usize,
    /// How many of these resources cannot be read.
    pub(crate) unreadable: usize,
    /// The one that was asked for, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<Cluster>,
}

/// A cluster in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What its conditions come to.
    pub(crate) signs: Vec<Sign>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<Step>,
}

/// A word about a cluster, and how it is to be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sign {
    pub(crate) text: &'static str,
    pub(crate) tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Tone {
    Good,
    Busy,
    Warning,
    Bad,
    Unknown,
}

/// The step in hand.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    pub(crate) state: StepState,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<String>,
}

/// One cluster with everything that is shown of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    #[serde(flatten)]
    pub(crate) row: Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
    /// Voters that the spec wants.
    pub(crate) replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster_id: Option<String>,
    /// URL of the Service for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    /// The write that fails: what, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing: Option<Failing>,
    pub(crate) members: Vec<Member>,
    /// When the members were last asked; absent where that is always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observed: Option<Timestamp>,
    pub(crate) conditions: Vec<ConditionRow>,
    pub(crate) notes: Vec<NoteStatus>,
    /// Until when everything is saved: the time of the newest good backup, or of the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_point: Option<Timestamp>,
    pub(crate) backups: Part<Backup>,
    pub(crate) events: Part<Event>,
}

/// What may be shown, or why it is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Part<T> {
    Shown(Vec<T>),
    Withheld(String),
}

impl<T> Part<T> {
    /// What these are, if they may be shown.
    pub(crate) fn of(may: &Result<(), String>, shown: impl FnOnce() -> Vec<T>) -> Self {
        match may {
            Ok(()) => Self::Shown(shown()),
            Err(why) => Self::Withheld(why.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failing {
    pub(crate) action: String,
    pub(crate) message: String,
    pub(crate) since: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) role: MemberRole,
    pub(crate) leader: bool,
    pub(crate) health: MemberHealth,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Whether it runs the current spec.
    pub(crate) updated: bool,
    /// Entries of the leader's log that it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lag_entries: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<Position>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConditionRow {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Timestamp,
}

/// An EtcdBackup.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Backup {
    pub(crate) name: String,
    pub(crate) phase: BackupPhase,
    pub(crate) store: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// What is known of a cluster beside its resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// When the members were asked; `None`: just now.
    pub(crate) at: Option<Timestamp>,
    /// By name.
    pub(crate) positions: BTreeMap<String, Position>,
}

/// A cluster as it is in the list.
pub(crate) fn row(cluster: &EtcdCluster) -> Row {
    let status = cluster.status.as_ref();
    Row {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        signs: signs(cluster),
        ready: status.and_then(|status| status.ready.clone()),
        version: status.and_then(|status| status.version.clone()),
        leader: status.and_then(|status| status.leader.clone()),
        step: status.and_then(|status| status.step.as_ref()).map(step),
    }
}

/// A cluster with everything.
pub(crate) fn cluster(
    cluster: &EtcdCluster,
    observed: &Observed,
    backups: Part<Backup>,
    events: Part<Event>,
) -> Cluster {
    let none = EtcdClusterStatus::default();
    let status = cluster.status.as_ref().unwrap_or(&none);
    let members = status.members.iter();
    Cluster {
        row: row(cluster),
        created: cluster.creation_timestamp().map(|time| time.0),
        replicas: cluster.spec.replicas.into(),
        cluster_id: status.cluster_id.clone(),
        endpoint: status.endpoints.as_ref().map(|all| all.client.clone()),
        summary: status.summary.clone(),
        failing: status.failing.as_ref().map(|failing| Failing {
            action: failing.action.clone(),
            message: failing.message.clone(),
            since: failing.start_time.clone(),
        }),
        members: members
            .map(|row| member(row, observed.positions.get(&row.name)))
            .collect(),
        observed: observed.at,
        conditions: status.conditions.iter().map(condition).collect(),
        notes: status.notes.clone(),
        recovery_point: recovery_point(status),
        backups,
        events,
    }
}

/// The backups of a cluster, the newest first.
pub(crate) fn backups<'a>(all: impl Iterator<Item = &'a EtcdBackup>) -> Vec<Backup> {
    let mut rows: Vec<Backup> = all.map(backup).collect();
    rows.sort_by(|a, b| (b.taken, &b.name).cmp(&(a.taken, &a.name)));
    // Those that have not begun are newer than any other.
    rows.sort_by_key(|row| row.taken.is_some());
    rows.truncate(BACKUPS);
    rows
}

fn backup(backup: &EtcdBackup) -> Backup {
    let status = backup.status.clone().unwrap_or_default();
    Backup {
        name: backup.name_any(),
        phase: status.phase,
        store: backup.spec.store_ref.name.clone(),
        taken: status.start_time.map(|time| time.0),
        revision: status.revision,
        size: status.size,
        message: status.message,
    }
}

fn step(step: &StepStatus) -> Step {
    Step {
        action: step.action.clone(),
        member: step.member.clone(),
        state: step.state,
        reason: step.reason.clone(),
        waiting_for: step.waiting_for.clone(),
        next: step.next.clone(),
        since: step.start_time.clone(),
        deadline: step.deadline.clone(),
    }
}

fn member(row: &MemberStatus, position: Option<&Position>) -> Member {
    let lag = position.and_then(|position| position.lag_entries);
    let lag = lag.and_then(|entries| i64::try_from(entries).ok());
    Member {
        name: row.name.clone(),
        id: row.id.clone(),
        role: row.role,
        leader: row.leader,
        health: row.health,
        reason: row.reason.clone(),
        version: row.version.clone(),
        node: row.node_name.clone(),
        updated: row.updated,
        lag_entries: lag.or(row.lag_entries),
        position: position.copied(),
    }
}

fn condition(condition: &Condition) -> ConditionRow {
    ConditionRow {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
    }
}

fn recovery_point(status: &EtcdClusterStatus) -> Option<Timestamp> {
    let backup = status.backup.as_ref()?;
    let archived = backup.archived.as_ref().map(|point| point.time.0);
    let saved = backup.last_success.as_ref().map(|last| last.time.0);
    archived.max(saved)
}

/// The resource has no phase: these are the conditions that are not as in a cluster at rest, or Ready alone.
fn signs(cluster: &EtcdCluster) -> Vec<Sign> {
    use ConditionType as Type;
    let sign = |text, tone| Sign { text, tone };
    let Some(status) = cluster.status.as_ref() else {
        return vec![sign("No status yet", Tone::Unknown)];
    };
    let is = |type_: Type, value: &str| {
        let mut all = status.conditions.iter();
        all.any(|one| one.type_ == type_.as_str() && one.status == value)
    };
    let said = [
        (is(Type::Stalled, "True"), "Stalled", Tone::Bad),
        (is(Type::Quorate, "False"), "No quorum", Tone::Bad),
        (
            is(Type::Quorate, "Unknown"),
            "Quorum unknown",
            Tone::Unknown,
        ),
        (is(Type::Available, "False"), "Not available", Tone::Bad),
        (is(Type::Degraded, "True"), "Degraded", Tone::Warning),
        (is(Type::Durable, "False"), "Not durable", Tone::Warning),
        (is(Type::TlsReady, "False"), "TLS not ready", Tone::Warning),
        (cluster.spec.paused, "Paused", Tone::Warning),
        (is(Type::Following, "True"), "Following", Tone::Busy),
        (is(Type::Progressing, "True"), "Progressing", Tone::Busy),
        (is(Type::Ready, "True"), "Ready", Tone::Good),
    ];
    let said = said.into_iter().filter(|(so, _, _)| *so);
    let signs: Vec<Sign> = said.map(|(_, text, tone)| sign(text, tone)).collect();
    match signs.is_empty() {
        true => vec![sign("Not ready", Tone::Warning)],
        false => signs,
    }
}

#[cfg(test)]
#[path = "view_test.rs"]
mod tests;
