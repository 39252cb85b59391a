//! Writes what one reconcile reports: status and events. Never fails a reconcile for an event.

use kube::runtime::events::{Event as KubeEvent, EventType};
use kube::{Resource, ResourceExt};

use super::objects::apply_status;
use crate::crd::{EtcdCluster, EtcdClusterStatus};
use crate::operator::platform::{Failure, Report, Severity};

use super::context::Written;
use super::platform::OneCluster;

impl OneCluster {
    /// Writes events and the status of one reconcile.
    pub(super) async fn write_report(&mut self, report: &Report) -> Result<(), Failure> {
        if let Some(failure) = &report.failure {
            let (namespace, cluster) = (&self.key.0, &self.key.1);
            tracing::warn!(%namespace, %cluster, %failure, "the step was not carried out");
        }
        for event in &report.events {
            self.publish(event).await;
        }
        self.write_recoveries(&report.plan.recoveries).await;
        match &report.status {
            Some(status) => Box::pin(self.write_status(status)).await,
            None => Ok(()),
        }
    }

    async fn write_status(&mut self, status: &EtcdClusterStatus) -> Result<(), Failure> {
        let Some(view) = &self.seen else {
            return Ok(());
        };
        let (name, over) = (&self.key.1, view.resource.resource_version());
        let uid = view.resource.uid().unwrap_or_default();
        let client = &self.shared.client;
        if !apply_status::<EtcdCluster>(client, (&self.key.0, name), &uid, status).await? {
            return Ok(());
        }
        self.shared.metrics.status_write();
        self.memory.written = Some(Written {
            at: self.shared.outside.clock.now(),
            over,
            status: Some(status.clone()),
        });
        self.remember();
        Ok(())
    }

    async fn publish(&self, noted: &crate::operator::platform::Event) {
        let Some(view) = &self.seen else {
            return;
        };
        let event = KubeEvent {
            type_: match noted.severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: noted.reason.clone(),
            note: Some(noted.note.clone()),
            action: noted.action.clone(),
            secondary: None,
        };
        if let Some(feed) = self.shared.feed.get() {
            feed.published(&self.key, noted);
        }
        let about = view.resource.object_ref(&());
        // An event that is lost is not worth a failed reconcile.
        if let Err(error) = self.shared.recorder.publish(&event, &about).await {
            tracing::warn!(cluster = %self.key.1, %error, "an event was not written");
        }
    }
}
