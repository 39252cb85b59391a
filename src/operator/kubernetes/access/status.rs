//! Writes the statuses of users and roles, and an event when one becomes Ready or stops being so.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};

use super::{Accesses, ROLE, USER, is_ready};
use crate::crd::access::{EtcdRole, EtcdRoleStatus, EtcdUser, EtcdUserStatus};
use crate::crd::{READY, ready_condition};
use crate::operator::kubernetes::objects::{Object, apply_status};
use crate::operator::platform::Failure;
use crate::operator::queue::Ended;

/// Bytes of an event: the API server refuses more than 1024.
const MOST_NOTE: usize = 1000;

impl Accesses {
    pub(super) async fn write_role(
        &self,
        role: &EtcdRole,
        (before, mut status): (&EtcdRoleStatus, EtcdRoleStatus),
        failed: Option<&Failure>,
    ) -> Result<(), Failure> {
        if let Some(failure) = failed {
            status.message = Some(failure.to_string());
            self.fail(&mut status.conditions, failure);
        }
        self.tell_of(ROLE, role, &status.conditions);
        if *before == status {
            return Ok(());
        }
        let conditions = (&before.conditions[..], &status.conditions[..]);
        self.write(role, &status, conditions).await
    }

    pub(super) async fn write_user(
        &self,
        user: &EtcdUser,
        (before, mut status): (&EtcdUserStatus, EtcdUserStatus),
        failed: Option<&Failure>,
    ) -> Result<(), Failure> {
        if let Some(failure) = failed {
            status.message = Some(failure.to_string());
            self.fail(&mut status.conditions, failure);
        }
        self.tell_of(USER, user, &status.conditions);
        if *before == status {
            return Ok(());
        }
        let conditions = (&before.conditions[..], &status.conditions[..]);
        self.write(user, &status, conditions).await
    }

    /// What could not be observed is said too.
    pub(super) async fn role_is_unseen(
        &self,
        role: &EtcdRole,
        failure: Failure,
    ) -> Result<Ended, Failure> {
        let before = role.status.clone().unwrap_or_default();
        self.write_role(role, (&before, before.clone()), Some(&failure))
            .await?;
        Err(failure)
    }

    /// The same of a user.
    pub(super) async fn user_is_unseen(
        &self,
        user: &EtcdUser,
        failure: Failure,
    ) -> Result<Ended, Failure> {
        let before = user.status.clone().unwrap_or_default();
        self.write_user(user, (&before, before.clone()), Some(&failure))
            .await?;
        Err(failure)
    }

    fn tell_of(&self, kind: &'static str, resource: &impl ResourceExt, conditions: &[Condition]) {
        let namespace = resource.namespace().unwrap_or_default();
        self.tell(
            kind,
            (&namespace, &resource.name_any()),
            is_ready(conditions),
        );
    }

    /// Not Ready: the step that would have made it so failed.
    fn fail(&self, conditions: &mut Vec<Condition>, failure: &Failure) {
        let generation = conditions.first().and_then(|one| one.observed_generation);
        let state = ("False", "StepFailed", failure.to_string());
        *conditions = vec![ready_condition(conditions, state, generation, self.now())];
    }

    async fn write<K: Object>(
        &self,
        resource: &K,
        status: &impl serde::Serialize,
        (before, after): (&[Condition], &[Condition]),
    ) -> Result<(), Failure> {
        let (namespace, name) = (
            resource.namespace().unwrap_or_default(),
            resource.name_any(),
        );
        let uid = resource.uid().unwrap_or_default();
        let client = &self.shared.client;
        let there = apply_status::<K>(client, (&namespace, &name), &uid, status).await?;
        if there {
            let (of, about) = ((&*namespace, &*name), resource.object_ref(&()));
            self.announce(of, &about, (before, after)).await;
        }
        Ok(())
    }

    /// An event of what has changed, if that is worth one.
    pub(super) async fn announce(
        &self,
        (namespace, name): (&str, &str),
        about: &ObjectReference,
        (before, after): (&[Condition], &[Condition]),
    ) {
        let Some(event) = event(before, after) else {
            return;
        };
        // An event that is lost is not worth a failed reconcile.
        if let Err(error) = self.shared.recorder.publish(&event, about).await {
            tracing::warn!(%namespace, %name, %error, "an event was not written");
        }
    }
}

/// What has changed about Ready; not each step on the way there.
fn event(before: &[Condition], after: &[Condition]) -> Option<Event> {
    let ready = |all: &[Condition]| all.iter().find(|one| one.type_ == READY).cloned();
    let (before, after) = (ready(before), ready(after)?);
    let same =
        |before: &Condition| (&before.status, &before.reason) == (&after.status, &after.reason);
    if before.as_ref().is_some_and(same) || after.reason == "Applying" {
        return None;
    }
    let is_ready = after.status == "True";
    let note = match is_ready {
        true => "The cluster has it as specified".to_owned(),
        false => after.message.clone(),
    };
    Some(Event {
        type_: if is_ready {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: after.reason,
        note: Some(note.chars().take(MOST_NOTE).collect()),
        action: "Reconcile".to_owned(),
        secondary: None,
    })
}
