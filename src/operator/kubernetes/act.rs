//! Acts on objects: each is one change of one object, applied to or deleted from the live state
//! with the preconditions that the plan's step names. Repeating an act changes nothing more.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::facts;
use super::objects::{Object, Owned, apply, apply_where, create, delete, evict, failure};
use super::platform::OneCluster;
use crate::build;
use crate::crd::{
    LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_RELEASED, MANAGER, ValidatedCluster,
    operator_secret_name, pod_name,
};
use crate::operator::platform::Failure;
use crate::plan::{Action, ClaimState, ObjectKey, ObjectKind};

/// Carries out an act that is not a call to a member.
pub(super) async fn carry_out(one: &OneCluster, action: &Action) -> Result<(), Failure> {
    let Some(cluster) = one.seen.as_ref().and_then(|view| view.cluster.as_ref()) else {
        return Err(Failure::Changed("the resource is not valid".into()));
    };
    let client = &one.shared.client;
    let namespace = one.key.0.as_str();
    let ours = Owned::Controller(&cluster.uid);
    match action {
        Action::AdmitSpec { .. } => super::revisions::admit(client, namespace, cluster).await,
        Action::ApplyObject(key) => apply_object(one, cluster, key).await,
        Action::MakeAuthority { .. }
        | Action::IssueCertificate { .. }
        | Action::RotateAuthority { .. }
        | Action::TrustAuthorities { .. }
        | Action::DropCertificate { .. } => {
            Box::pin(super::certificates::carry_out(one, cluster, action)).await
        }
        Action::CreateLatch {
            seed,
            nonce,
            incarnation,
        } => {
            let latch = build::identity_secret(cluster, *incarnation, seed, nonce);
            create(client, namespace, &latch, ours).await.map(|_| ())
        }
        Action::CreateClaim { member, .. } => {
            let claim = build::claim(cluster, member, ClaimState::New);
            let ours = Owned::Label(LABEL_CLUSTER_UID, &cluster.uid);
            create(client, namespace, &claim, ours).await.map(|_| ())
        }
        Action::GrowClaim { claim, uid, .. } => {
            let size = &cluster.spec.storage.size;
            let change = json!({"spec": {"resources": {"requests": {"storage": size}}}});
            patch_claim(one, claim, uid, change).await
        }
        Action::MarkClaim { claim, uid, state } => {
            let state = match state {
                ClaimState::New => Value::Null,
                ClaimState::Joined => json!("joined"),
                ClaimState::Retired => json!("retired"),
            };
            let change = json!({"metadata": {"labels": {LABEL_CLAIM_STATE: state}}});
            patch_claim(one, claim, uid, change).await
        }
        Action::OwnClaim { claim, uid, owned } => own_claim(one, cluster, claim, uid, *owned).await,
        Action::MapSlot { slot, member, .. } => {
            let service = build::slot_service(cluster, *slot, member);
            apply_noted(one, &service, ours).await
        }
        Action::DropSlot { service, uid, .. } => {
            delete::<Service>(client, namespace, service, one.as_seen(uid))
                .await
                .map(|_| ())
        }
        Action::ApplySet {
            member,
            apart,
            asleep,
            transition,
            ..
        } => {
            let how = build::SetOptions {
                apart: *apart,
                asleep: *asleep,
                transition: *transition,
            };
            let set = build::stateful_set(cluster, &one.shared.settings, member, how);
            apply_noted(one, &set, ours).await
        }
        Action::ReleasePod { member, uid } => {
            let seconds = one.shared.outside.clock.unix_ms() / 1000;
            patch_pod(one, member, uid, json!(seconds.to_string())).await
        }
        Action::HoldPod { member, uid } => patch_pod(one, member, uid, Value::Null).await,
        Action::SetBudget { least, before } => {
            let budget = build::budget(cluster, *least);
            let unchanged = |found: &PodDisruptionBudget| {
                let said = facts::budget(found).least;
                (said != *before).then(|| format!("the disruption budget keeps {said:?}"))
            };
            let stored = apply_where(client, namespace, &budget, ours, unchanged).await?;
            one.made(&budget, &stored);
            Ok(())
        }
        Action::EvictPod { member, uid } => evict(client, namespace, &pod_name(member), uid)
            .await
            .map(|_| ()),
        Action::DeletePod { member, uid } => {
            // Its status changes all the time, and the decision is about the member.
            delete::<Pod>(client, namespace, &pod_name(member), (uid, None))
                .await
                .map(|_| ())
        }
        Action::DeleteSet { member, uid } => {
            delete::<StatefulSet>(client, namespace, member, one.as_seen(uid))
                .await
                .map(|_| ())
        }
        Action::DeleteClaim { claim, uid } => {
            delete::<PersistentVolumeClaim>(client, namespace, claim, one.as_seen(uid))
                .await
                .map(|_| ())
        }
        Action::Bootstrap { .. }
        | Action::AddLearner { .. }
        | Action::SetPeerUrls { .. }
        | Action::Promote { .. }
        | Action::Transfer { .. }
        | Action::Retire { .. }
        | Action::Disarm { .. }
        | Action::Remove { .. } => Err(Failure::Retry(
            "the cluster's key has not been seen yet".into(),
        )),
    }
}

impl OneCluster {
    /// The UID of an object, and the version of it that the last look saw: what is deleted for what it
    /// says has to say so still.
    pub(super) fn as_seen<'a>(&'a self, uid: &'a str) -> (&'a str, Option<&'a str>) {
        let view = self.seen.as_ref();
        let version = view.and_then(|view| view.versions.get(uid));
        (uid, version.map(String::as_str))
    }
}

/// Applies an object and notes what the API server made of it.
async fn apply_noted<K: Object>(
    one: &OneCluster,
    object: &K,
    ours: Owned<'_>,
) -> Result<(), Failure> {
    let stored = apply(&one.shared.client, &one.key.0, object, ours).await?;
    one.made(object, &stored);
    Ok(())
}

async fn apply_object(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    key: &ObjectKey,
) -> Result<(), Failure> {
    let (client, namespace) = (&one.shared.client, one.key.0.as_str());
    let ours = Owned::Controller(&cluster.uid);
    match key.kind {
        ObjectKind::Secret if key.name == operator_secret_name(&cluster.name) => {
            let secret = build::operator_secret(cluster, &kept_or_new_key(one, key).await?);
            apply(client, namespace, &secret, ours).await.map(|_| ())
        }
        ObjectKind::Service => {
            let service = build::service(cluster, &key.name);
            let service = service
                .ok_or_else(|| Failure::Refused(format!("there is no Service {}", key.name)))?;
            apply_noted(one, &service, ours).await
        }
        ObjectKind::PodDisruptionBudget => apply_noted(one, &build::gate(cluster), ours).await,
        ObjectKind::NetworkPolicy => {
            let policy = build::network_policy(cluster, &one.shared.settings);
            apply_noted(one, &policy, ours).await
        }
        ObjectKind::Certificate => {
            let wanted = build::issued_certificate(cluster, &key.name);
            let wanted = wanted
                .ok_or_else(|| Failure::Refused(format!("there is no Certificate {}", key.name)))?;
            apply_noted(one, &wanted, ours).await
        }
        ObjectKind::Secret => Err(Failure::Refused(format!("there is no Secret {}", key.name))),
    }
}

/// The key that members were started with stays; only a Secret without one gets a new key.
async fn kept_or_new_key(one: &OneCluster, key: &ObjectKey) -> Result<String, Failure> {
    let api: Api<Secret> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let found = api.get_opt(&key.name).await;
    let found = found.map_err(|error| failure("read", &key.name, &error))?;
    let kept = found.as_ref().and_then(build::operator_key);
    let kept = kept
        .and_then(|key| String::from_utf8(key).ok())
        .filter(|key| !key.is_empty());
    let new = || {
        format!(
            "{}{}",
            uuid::Uuid::new_v4().simple(),
            uuid::Uuid::new_v4().simple()
        )
    };
    Ok(kept.unwrap_or_else(new))
}

/// Lets evictions take the member's pod with this UID since a time, or no more.
async fn patch_pod(
    one: &OneCluster,
    member: &str,
    uid: &str,
    released: Value,
) -> Result<(), Failure> {
    let name = pod_name(member);
    let change = json!({"metadata": {"uid": uid, "labels": {LABEL_RELEASED: released}}});
    let api: Api<Pod> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..Default::default()
    };
    match api.patch(&name, &parameters, &Patch::Merge(&change)).await {
        Ok(_) => Ok(()),
        // A drain took it in the meantime.
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            Err(Failure::Changed(format!("{name} is gone")))
        }
        Err(error) => Err(failure("change", &name, &error)),
    }
}

/// Changes one thing about the claim with this UID, and leaves the rest of it alone.
async fn patch_claim(
    one: &OneCluster,
    claim: &str,
    uid: &str,
    mut change: Value,
) -> Result<(), Failure> {
    // Another object of this name makes the API server answer with a conflict.
    change["metadata"]["uid"] = json!(uid);
    let api: Api<PersistentVolumeClaim> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..Default::default()
    };
    match api.patch(claim, &parameters, &Patch::Merge(&change)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(failure("change", claim, &error)),
    }
}

async fn own_claim(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    claim: &str,
    uid: &str,
    owned: bool,
) -> Result<(), Failure> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let found = api
        .get(claim)
        .await
        .map_err(|error| failure("read", claim, &error))?;
    let mut owners = found.owner_references().to_vec();
    owners.retain(|owner| owner.uid != cluster.uid);
    if owned {
        owners.push(build::owner(cluster, false));
    }
    let owners = if owners.is_empty() {
        Value::Null
    } else {
        json!(owners)
    };
    let version = found.resource_version();
    let change = json!({"metadata": {"ownerReferences": owners, "resourceVersion": version}});
    patch_claim(one, claim, uid, change).await
}
