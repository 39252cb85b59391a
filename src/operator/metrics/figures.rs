//! What one EtcdCluster says, as numbers: a function of the resource as a cache has it. Pure; times are given as they are, and the one age
//! among the numbers, the lag behind a followed cluster, grows with the time that is an argument: a status that nobody writes any more
//! would keep it as it was. What the status does not say is absent, and never 0.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::crd::{
    ConditionStatus, ConditionType, EtcdCluster, EtcdClusterStatus, FollowPhase, FollowStatus,
    MemberHealth, MemberRole, MemberStatus, StepState, StepStatus,
};
use crate::mutants::mutant;

pub(super) const ROLES: [MemberRole; 4] = [
    MemberRole::Voter,
    MemberRole::Learner,
    MemberRole::Standby,
    MemberRole::Leaving,
];
pub(super) const HEALTHS: [MemberHealth; 3] = [
    MemberHealth::Healthy,
    MemberHealth::Unhealthy,
    MemberHealth::Unknown,
];

/// To so many seconds the status tells as of when a cluster follows another one.
const AS_OF_STEP: i64 = 30;
/// Less than so many seconds are no lag, as in the status.
const NO_LAG: i64 = 10;

/// The numbers of one cluster. Some hundred bytes: all clusters' are in memory during a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) cluster_id: String,
    pub(super) wanted: i64,
    pub(super) paused: bool,
    pub(super) generation: Option<i64>,
    pub(super) observed_generation: Option<i64>,
    pub(super) voters: Option<i64>,
    pub(super) ready: Option<i64>,
    pub(super) updated: Option<i64>,
    pub(super) conditions: Vec<ConditionFigure>,
    /// By [`ROLES`] and [`HEALTHS`].
    pub(super) members: Option<[[i64; 3]; 4]>,
    pub(super) tolerated: Option<i64>,
    pub(super) disruptions_allowed: Option<i64>,
    /// Of members that have one: name and entries.
    pub(super) lags: Vec<(String, i64)>,
    pub(super) step: Option<StepFigure>,
    pub(super) failing_since: Option<i64>,
    pub(super) certificates: Vec<CertificateFigure>,
    pub(super) backup: BackupTimes,
    pub(super) follow: Option<FollowFigure>,
}

/// A condition of a known type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionFigure {
    pub(super) type_: &'static str,
    pub(super) status: ConditionStatus,
    pub(super) reason: String,
}

/// The step in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepFigure {
    pub(super) step: String,
    pub(super) state: StepState,
    pub(super) reason: String,
    pub(super) began: i64,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFigure {
    pub(super) secret: String,
    pub(super) port: String,
    pub(super) ends: i64,
}

/// What the cluster would be restored from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackupTimes {
    pub(super) last_success: Option<i64>,
    pub(super) last_verified: Option<i64>,
    pub(super) recovery_seconds: Option<i64>,
    pub(super) archived: Option<i64>,
}

/// How far behind the cluster that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FollowFigure {
    pub(super) phase: FollowPhase,
    pub(super) lag_revisions: Option<i64>,
    pub(super) lag_seconds: Option<i64>,
}

impl Figures {
    /// Those of a resource, now. `disruptions_allowed`: what Kubernetes counts for its own PDB, if that is what limits evictions.
    pub(crate) fn of(
        cluster: &EtcdCluster,
        disruptions_allowed: Option<i64>,
        now: Timestamp,
    ) -> Figures {
        let (meta, spec) = (&cluster.metadata, &cluster.spec);
        let known = Figures {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            wanted: spec.replicas.into(),
            paused: spec.paused,
            generation: meta.generation,
            disruptions_allowed,
            ..Figures::default()
        };
        match &cluster.status {
            Some(status) => known.with(status, now),
            None => known,
        }
    }

    fn with(self, status: &EtcdClusterStatus, now: Timestamp) -> Figures {
        // A status that was computed without asking the members has no voters and lists nobody.
        let observed = status.replicas.is_some();
        let backup = status.backup.as_ref();
        let lags = status.members.iter();
        let lags = lags.filter_map(|row| Some((row.name.clone(), row.lag_entries?)));
        let certificates = status.certificates.iter().filter_map(|row| {
            Some(CertificateFigure {
                secret: row.secret.clone(),
                port: row.port.clone(),
                ends: seconds(&row.not_after)?,
            })
        });
        Figures {
            version: status.version.clone().unwrap_or_default(),
            cluster_id: status.cluster_id.clone().unwrap_or_default(),
            observed_generation: status.observed_generation,
            voters: status.replicas.map(i64::from),
            ready: status.ready_replicas.map(i64::from),
            updated: status.updated_replicas.map(i64::from),
            conditions: status.conditions.iter().filter_map(condition).collect(),
            members: observed.then(|| by_role_and_health(&status.members)),
            tolerated: tolerated(status),
            lags: lags.collect(),
            step: status.step.as_ref().and_then(step),
            failing_since: status
                .failing
                .as_ref()
                .and_then(|act| seconds(&act.start_time)),
            certificates: certificates.collect(),
            backup: BackupTimes {
                last_success: backup.and_then(|it| Some(second(&it.last_success.as_ref()?.time))),
                last_verified: backup.and_then(|it| Some(second(&it.last_verified.as_ref()?.time))),
                recovery_seconds: backup.and_then(|it| it.recovery_seconds),
                archived: backup.and_then(|it| Some(second(&it.archived.as_ref()?.time))),
            },
            follow: status.follow.as_ref().map(|follow| FollowFigure {
                phase: follow.phase,
                lag_revisions: follow.lag_revisions,
                lag_seconds: lag_seconds(follow, now),
            }),
            ..self
        }
    }
}

/// Only of a type that this operator knows, so that there are as many as the code has.
fn condition(condition: &Condition) -> Option<ConditionFigure> {
    let mut types = ConditionType::ALL.into_iter().map(ConditionType::as_str);
    let type_ = types.find(|type_| *type_ == condition.type_)?;
    let status = match condition.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Some(ConditionFigure {
        type_,
        status,
        reason: condition.reason.clone(),
    })
}

fn by_role_and_health(rows: &[MemberStatus]) -> [[i64; 3]; 4] {
    let of = |role, health| count(rows, |row| (row.role, row.health) == (role, health));
    ROLES.map(|role| HEALTHS.map(|health| of(role, health)))
}

/// How many more healthy voters may fail. Without a leader with a quorum nobody knows.
fn tolerated(status: &EtcdClusterStatus) -> Option<i64> {
    let mut conditions = status.conditions.iter().filter_map(condition);
    let quorate = conditions.find(|one| one.type_ == ConditionType::Quorate.as_str());
    let seen = quorate.is_some_and(|one| one.status == ConditionStatus::True);
    let voters = count(&status.members, |row| row.role == MemberRole::Voter);
    let healthy = count(&status.members, |row| {
        row.role == MemberRole::Voter && row.health == MemberHealth::Healthy
    });
    let known = (seen && voters > 0) || mutant!(ToleranceUnseen);
    known.then(|| (healthy - (voters / 2 + 1)).max(0))
}

fn count(rows: &[MemberStatus], fits: impl Fn(&MemberStatus) -> bool) -> i64 {
    let found = rows.iter().filter(|row| fits(row)).count();
    i64::try_from(found).unwrap_or(i64::MAX)
}

/// The lag as it was written, or what it has become since if that is more: at least the time since everything was here for certain.
fn lag_seconds(follow: &FollowStatus, now: Timestamp) -> Option<i64> {
    let written = follow.lag_seconds?;
    let as_of = follow.as_of.as_deref().and_then(seconds);
    let since = as_of.map(|at| now.as_second() - at - AS_OF_STEP);
    let since = since.filter(|since| *since >= NO_LAG);
    Some(since.map_or(written, |since| since.max(written)))
}

fn step(step: &StepStatus) -> Option<StepFigure> {
    Some(StepFigure {
        step: step.action.clone(),
        state: step.state,
        reason: step.reason.clone(),
        began: seconds(step.start_time.as_deref()?)?,
    })
}

/// Unix seconds of a time as the status has it.
fn seconds(text: &str) -> Option<i64> {
    let time: Timestamp = text.parse().ok()?;
    Some(time.as_second())
}

fn second(time: &Time) -> i64 {
    time.0.as_second()
}

#[cfg(test)]
#[path = "figures_test.rs"]
mod tests;
