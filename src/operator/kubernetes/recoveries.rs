//! EtcdRecoveries: which of them name a cluster, and their status as the plan reports it. Decides nothing about a
//! recovery; a status that is final is never written again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt};

use super::context::Context;
use super::objects::{apply_status, failure};
use super::platform::OneCluster;
use super::workers::Key;
use crate::crd::{EtcdClusterStatus, EtcdRecovery, EtcdRecoveryStatus, RecoveryPhase};
use crate::operator::platform::{Failure, Freshness};
use crate::plan::status_memory;
use crate::plan::{IdentitySecret, Owner, RecoveryFacts, RecoveryReport};

type Guarded = DeserializeGuard<EtcdRecovery>;

impl OneCluster {
    /// Writes how the recoveries of this cluster are doing, where that is news. A failure holds nothing up: the next
    /// reconcile writes it.
    pub(super) async fn write_recoveries(&self, reports: &[RecoveryReport]) {
        let Some(view) = &self.seen else {
            return;
        };
        for report in reports {
            let mut seen = view.recoveries.iter();
            let Some(recovery) = seen.find(|it| it.name_any() == report.name) else {
                continue;
            };
            self.shared.write_recovery(recovery, report).await;
        }
    }
}

impl Context {
    /// The EtcdRecoveries that name this cluster, whatever their UID, by name.
    pub(super) async fn recoveries(
        &self,
        cluster: &Key,
        freshness: Freshness,
    ) -> Result<Vec<EtcdRecovery>, Failure> {
        match freshness {
            Freshness::Cached => Ok(self.cached_recoveries(cluster)),
            Freshness::Live => self.live_recoveries(cluster).await,
        }
    }

    /// None where the API server does not have the kind, or the role is an older one.
    async fn live_recoveries(&self, cluster: &Key) -> Result<Vec<EtcdRecovery>, Failure> {
        if self.caches.recoveries.is_denied() {
            return Ok(Vec::new());
        }
        let api: Api<Guarded> = Api::namespaced(self.client.clone(), &cluster.0);
        let mut found = match api.list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Vec::new(),
            Err(error) => return Err(failure("list", "etcdrecoveries", &error)),
        };
        found.retain(|guard| names(guard, cluster));
        found.sort_by_key(|guard| guard.meta().name.clone());
        Ok(found.into_iter().filter_map(|guard| guard.0.ok()).collect())
    }

    fn cached_recoveries(&self, cluster: &Key) -> Vec<EtcdRecovery> {
        let recoveries = &self.caches.recoveries;
        let found = recoveries.in_namespace(&cluster.0, |guard| names(guard, cluster));
        let found = found.iter().filter_map(|guard| guard.0.as_ref().ok());
        found.cloned().collect()
    }

    /// Writes into the recoveries of a cluster that there is none.
    pub(super) async fn report_without_cluster(&self, cluster: &Key) {
        for recovery in self.cached_recoveries(cluster) {
            let report = RecoveryReport {
                name: recovery.name_any(),
                phase: RecoveryPhase::Pending,
                message: format!("there is no EtcdCluster {} in this namespace", cluster.1),
                incarnation: u64::try_from(recovery.spec.incarnation).unwrap_or(0) + 1,
                seed: None,
            };
            self.write_recovery(&recovery, &report).await;
        }
    }

    async fn write_recovery(&self, seen: &EtcdRecovery, report: &RecoveryReport) {
        if let Err(failure) = self.try_write_recovery(seen, report).await {
            let namespace = seen.namespace().unwrap_or_default();
            tracing::warn!(%namespace, recovery = %report.name, %failure, "the status of a recovery was not written");
        }
    }

    async fn try_write_recovery(
        &self,
        seen: &EtcdRecovery,
        report: &RecoveryReport,
    ) -> Result<(), Failure> {
        let now = now(self.outside.clock.unix_ms());
        let known = seen.status.clone().unwrap_or_default();
        if seen.status.is_some() && status(&known, report, &now) == known {
            return Ok(());
        }
        // The cache may be behind what was written last.
        let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
        let api: Api<EtcdRecovery> = Api::namespaced(self.client.clone(), &namespace);
        let live = api.get_opt(&name).await;
        let live = live.map_err(|error| failure("read", &name, &error))?;
        let Some(live) = live.filter(|live| live.uid() == seen.uid()) else {
            return Ok(());
        };
        let before = live.status.clone().unwrap_or_default();
        let after = status(&before, report, &now);
        let unchanged = live.status.is_some() && after == before;
        // What is final is concluded from what was written before, not from what the cache is behind.
        let outdated = is_final(after.phase) && before != known;
        if unchanged || outdated {
            return Ok(());
        }
        let uid = live.uid().unwrap_or_default();
        let written =
            apply_status::<EtcdRecovery>(&self.client, (&namespace, &name), &uid, &after).await?;
        if written && (live.status.is_none() || after.phase != before.phase) {
            self.publish_phase(&live, &after).await;
        }
        Ok(())
    }

    async fn publish_phase(&self, recovery: &EtcdRecovery, status: &EtcdRecoveryStatus) {
        let event = Event {
            type_: match status.phase {
                RecoveryPhase::Refused => EventType::Warning,
                _ => EventType::Normal,
            },
            reason: format!("{:?}", status.phase),
            note: status.message.clone(),
            action: "Recover".to_owned(),
            secondary: None,
        };
        let about = recovery.object_ref(&());
        // An event that is lost is not worth a failed reconcile.
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::warn!(recovery = %recovery.name_any(), %error, "an event was not written");
        }
    }
}

/// Whether it asks for the recovery of this cluster, and is not being deleted.
fn names(guard: &Guarded, cluster: &Key) -> bool {
    let Ok(recovery) = &guard.0 else {
        return false;
    };
    recovery.metadata.namespace.as_ref() == Some(&cluster.0)
        && recovery.spec.cluster_ref.name == cluster.1
        && recovery.metadata.deletion_timestamp.is_none()
}

/// A recovery as a fact of its cluster.
pub(super) fn facts(recovery: &EtcdRecovery) -> RecoveryFacts {
    let status = recovery.status.clone().unwrap_or_default();
    let refused = status.phase == RecoveryPhase::Refused;
    RecoveryFacts {
        name: recovery.name_any(),
        spec: recovery.spec.clone(),
        refused: refused.then(|| status.message.unwrap_or_default()),
        begun: status.start_time.is_some(),
        recovered: status.phase == RecoveryPhase::Recovered,
    }
}

/// The recovery that made this incarnation of a cluster, if it is the only one that asks for it.
pub(super) fn that_made<'a>(
    recoveries: &'a [EtcdRecovery],
    uid: &str,
    incarnation: u64,
) -> Option<&'a EtcdRecovery> {
    let made = |it: &&EtcdRecovery| {
        let lost = u64::try_from(it.spec.incarnation).unwrap_or(0);
        let refused = facts(it).refused.is_some();
        !refused && it.spec.cluster_uid == uid && lost.saturating_add(1) == incarnation
    };
    let mut made = recoveries.iter().filter(made);
    let one = made.next()?;
    made.next().is_none().then_some(one)
}

/// Whether something may still be done for it.
pub(super) fn is_under_way(recovery: &EtcdRecovery) -> bool {
    let status = recovery.status.as_ref();
    !status.is_some_and(|status| is_final(status.phase))
}

fn is_final(phase: RecoveryPhase) -> bool {
    match phase {
        RecoveryPhase::Recovered | RecoveryPhase::Refused => true,
        RecoveryPhase::Pending | RecoveryPhase::Fencing | RecoveryPhase::Restoring => false,
    }
}

/// Whether the stored status shows that a cluster with this identity was formed: its cluster ID is of this incarnation.
pub(super) fn is_formed(status: &EtcdClusterStatus, identity: Option<&IdentitySecret>) -> bool {
    let of_status = status_memory::incarnation(status).unwrap_or(1);
    let ours = identity.filter(|it| it.owner == Owner::Ours);
    status.cluster_id.is_some() && ours.is_none_or(|it| it.incarnation == of_status)
}

/// The status after this report.
fn status(before: &EtcdRecoveryStatus, report: &RecoveryReport, now: &Time) -> EtcdRecoveryStatus {
    if is_final(before.phase) {
        return before.clone();
    }
    let begun = !matches!(
        report.phase,
        RecoveryPhase::Pending | RecoveryPhase::Refused
    );
    let recovered = report.phase == RecoveryPhase::Recovered;
    EtcdRecoveryStatus {
        phase: report.phase,
        message: Some(report.message.clone()),
        incarnation: i64::try_from(report.incarnation).ok(),
        seed: report.seed.clone(),
        start_time: before
            .start_time
            .clone()
            .or_else(|| begun.then(|| now.clone())),
        completion_time: recovered.then(|| now.clone()),
    }
}

/// In whole seconds, as times are stored.
fn now(unix_ms: u64) -> Time {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
#[path = "recoveries_test.rs"]
mod tests;
