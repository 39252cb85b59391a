//! Acts on objects: each is one change of one object, applied to or deleted from the live state
//! with the preconditions that the plan's step names. Repeating an act changes nothing more.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::edits::made_from_the_same;
use super::facts;
use super::objects::{Object, Owned, apply, apply_where, create, delete, evict, failure};
use super::observe::read_identity_secret;
use super::platform::OneCluster;
use super::resize;
use crate::build;
use crate::crd::{
    ANNOTATION_STORAGE, LABEL_CLAIM_STATE, LABEL_CLUSTER_UID, LABEL_RELEASED, MANAGER,
    ValidatedCluster, identity_secret_name, operator_secret_name, pod_name,
};
use crate::operator::platform::Failure;
use crate::plan::{ObjectAction, ObjectKey, ObjectKind, PvcState};

/// Changes one object.
pub(super) async fn apply_action(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    action: &ObjectAction,
) -> Result<(), Failure> {
    let client = &one.shared.client;
    let namespace = one.key.0.as_str();
    let ours = Owned::Controller(&cluster.uid);
    match action {
        ObjectAction::AdmitSpec { .. } => super::revisions::admit(client, namespace, cluster).await,
        ObjectAction::ApplyObject(key) => apply_object(one, cluster, key).await,
        ObjectAction::CreateIdentitySecret {
            seed,
            nonce,
            incarnation,
        } => {
            let identity_secret = build::identity_secret(cluster, *incarnation, seed, nonce);
            create(client, namespace, &identity_secret, ours)
                .await
                .map(|_| ())
        }
        ObjectAction::DeleteIdentitySecret { incarnation } => {
            delete_identity_secret(one, cluster, *incarnation).await
        }
        ObjectAction::CreatePvc {
            member,
            incarnation,
            bytes,
            asked,
            ..
        } => {
            let size = build::PvcSize {
                bytes: *bytes,
                asked: *asked,
            };
            let pvc = build::pvc(cluster, member, *incarnation, PvcState::New, size);
            let ours = Owned::Label(LABEL_CLUSTER_UID, &cluster.life);
            create(client, namespace, &pvc, ours).await.map(|_| ())
        }
        ObjectAction::GrowPvc {
            pvc,
            uid,
            bytes,
            asked,
        } => {
            let size = build::size_in_words(cluster, *bytes);
            let mut change = json!({"spec": {"resources": {"requests": {"storage": size}}}});
            if let Some(asked) = asked {
                let asked = build::asked_storage(cluster, asked);
                change["metadata"] = json!({"annotations": {ANNOTATION_STORAGE: asked}});
            }
            patch_pvc(one, pvc, uid, change).await
        }
        ObjectAction::RecordStorage { pvc, uid, asked } => {
            let asked = build::asked_storage(cluster, asked);
            let change = json!({"metadata": {"annotations": {ANNOTATION_STORAGE: asked}}});
            patch_pvc(one, pvc, uid, change).await
        }
        ObjectAction::MarkPvc { pvc, uid, state } => {
            let state = match state {
                PvcState::New => Value::Null,
                PvcState::Joined => json!("joined"),
                PvcState::Retired => json!("retired"),
            };
            let change = json!({"metadata": {"labels": {LABEL_CLAIM_STATE: state}}});
            patch_pvc(one, pvc, uid, change).await
        }
        ObjectAction::OwnPvc { pvc, uid, owned } => own_pvc(one, cluster, pvc, uid, *owned).await,
        ObjectAction::MapSlot { slot, member, .. } => {
            let plain = (!has_its_families(one, cluster)).then(|| build::without_families(cluster));
            let cluster = plain.as_ref().unwrap_or(cluster);
            let service = build::slot_service(cluster, *slot, member);
            apply_service(one, cluster, service, ours).await
        }
        ObjectAction::DropSlot { service, uid, .. } => {
            delete::<Service>(client, namespace, service, one.as_seen(uid))
                .await
                .map(|_| ())
        }
        ObjectAction::ApplySet {
            member,
            one_per_node,
            hibernated,
            plaintext_peers,
            ..
        } => {
            let how = build::SetOptions {
                one_per_node: *one_per_node,
                hibernated: *hibernated,
                plaintext_peers: *plaintext_peers,
            };
            let settings = one.shared.settings_of_member(cluster, member);
            let set = build::stateful_set(cluster, &settings, member, how);
            apply_noted(one, &set, ours).await
        }
        ObjectAction::ReleasePod { member, uid } => {
            let seconds = one.shared.outside.clock.unix_ms() / 1000;
            release_pod(one, member, uid, json!(seconds.to_string())).await
        }
        ObjectAction::HoldPod { member, uid } => release_pod(one, member, uid, Value::Null).await,
        ObjectAction::SetPdb { limit, before } => {
            let pdb = build::pdb(cluster, *limit);
            let unchanged = |found: &PodDisruptionBudget| {
                let current = facts::pdb(found).limit;
                (current != *before).then(|| format!("the PDB has {current:?}"))
            };
            let stored = apply_where(client, namespace, &pdb, ours, unchanged).await?;
            one.made(&pdb, &stored);
            Ok(())
        }
        ObjectAction::EvictPod { member, uid } => evict(client, namespace, &pod_name(member), uid)
            .await
            .map(|_| ()),
        ObjectAction::ResizePod { member, uid } => resize::ask(one, cluster, member, uid).await,
        ObjectAction::RecordInputs { member, uid } => {
            let annotations = build::resize_done(cluster);
            patch_pod(one, member, uid, json!({"annotations": annotations})).await
        }
        ObjectAction::DeletePod { member, uid } => {
            // Its status changes all the time, and the decision is about the member.
            delete::<Pod>(client, namespace, &pod_name(member), (uid, None))
                .await
                .map(|_| ())
        }
        ObjectAction::DeleteSet { member, uid } => {
            delete::<StatefulSet>(client, namespace, member, one.as_seen(uid))
                .await
                .map(|_| ())
        }
        ObjectAction::DeletePvc { pvc, uid } => {
            delete::<PersistentVolumeClaim>(client, namespace, pvc, one.as_seen(uid))
                .await
                .map(|_| ())
        }
    }
}

impl OneCluster {
    /// The UID of an object, and its observed resourceVersion: an object that is deleted because of its content must
    /// not have changed.
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

/// Whether the client Service has the IP families that the resource asks for. Until it has them a slot follows its member
/// without them: Kubernetes may refuse them, and no member could hand its slot over.
fn has_its_families(one: &OneCluster, cluster: &ValidatedCluster) -> bool {
    if !cluster.spec.service.names_families() {
        return true;
    }
    let wanted = build::client_service(cluster);
    let services = &one.shared.caches.services;
    let found = services.get(&one.key.0, &wanted.name_any());
    found.is_some_and(|found| made_from_the_same(&wanted, &found))
}

/// As [`apply_noted`], of a Service, whose second IP family the API server may have added.
async fn apply_service(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    mut service: Service,
    ours: Owned<'_>,
) -> Result<(), Failure> {
    let asked = &cluster.spec.service;
    if !asked.ip_families.is_empty() {
        let (name, namespace) = (service.name_any(), one.key.0.as_str());
        let api: Api<Service> = Api::namespaced(one.shared.client.clone(), namespace);
        let found = api.get_opt(&name).await;
        let found = found.map_err(|error| failure("read", &name, &error))?;
        if let Some(found) = found {
            service = build::with_added_family(service, &found);
        }
    }
    let stored = apply(&one.shared.client, &one.key.0, &service, ours).await;
    let stored = stored.map_err(|failure| match failure {
        // Of which Kubernetes tells what it compares, and not what can be done.
        Failure::Refused(why) if asked.names_families() && is_about_families(&why) => {
            Failure::Refused(format!("{why}: {FAMILIES}"))
        }
        failure => failure,
    })?;
    one.made(&build::with_added_family(service, &stored), &stored);
    Ok(())
}

/// What whoever asks for families that a Service cannot have is told.
const FAMILIES: &str = "correct spec.service.ipFamilyPolicy and spec.service.ipFamilies: Kubernetes never changes the first family of a Service with an address (status.endpoints.ipFamilies), and has only those that its API server is configured with";

fn is_about_families(why: &str) -> bool {
    ["ipFamil", "IPFamil", "clusterIPs"]
        .iter()
        .any(|word| why.contains(word))
}

/// Deletes the identity Secret of this incarnation, as it is now, and no other.
async fn delete_identity_secret(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    incarnation: u64,
) -> Result<(), Failure> {
    let (client, namespace) = (&one.shared.client, one.key.0.as_str());
    let name = identity_secret_name(&cluster.name);
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(&name).await;
    let Some(found) = found.map_err(|error| failure("read", &name, &error))? else {
        return Ok(());
    };
    let identity = read_identity_secret(&found, &cluster.name, &cluster.uid);
    if identity.incarnation != incarnation || identity.cluster_uid != cluster.life {
        return Err(Failure::Changed(format!(
            "Secret {name} is of another incarnation"
        )));
    }
    let version = found.resource_version();
    let seen = (
        found.metadata.uid.as_deref().unwrap_or_default(),
        version.as_deref(),
    );
    delete::<Secret>(client, namespace, &name, seen)
        .await
        .map(|_| ())
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
            apply_service(one, cluster, service, ours).await
        }
        ObjectKind::PodDisruptionBudget => {
            apply_noted(one, &build::pdb_without_evictions(cluster), ours).await
        }
        ObjectKind::NetworkPolicy => {
            let policy = build::network_policy(cluster, &one.shared.settings);
            apply_noted(one, &policy, ours).await
        }
        ObjectKind::Certificate => {
            let wanted = build::cert_manager_certificate(cluster, &key.name);
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

/// Sets or removes the label that lets evictions take the member's pod with this UID.
async fn release_pod(
    one: &OneCluster,
    member: &str,
    uid: &str,
    released: Value,
) -> Result<(), Failure> {
    let change = json!({"labels": {LABEL_RELEASED: released}});
    patch_pod(one, member, uid, change).await
}

/// Changes the metadata of the member's pod with this UID.
pub(super) async fn patch_pod(
    one: &OneCluster,
    member: &str,
    uid: &str,
    mut metadata: Value,
) -> Result<(), Failure> {
    let name = pod_name(member);
    metadata["uid"] = json!(uid);
    let change = json!({ "metadata": metadata });
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

/// Changes one thing about the PVC with this UID, and leaves the rest of it alone.
async fn patch_pvc(
    one: &OneCluster,
    pvc: &str,
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
    match api.patch(pvc, &parameters, &Patch::Merge(&change)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(failure("change", pvc, &error)),
    }
}

async fn own_pvc(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    pvc: &str,
    uid: &str,
    owned: bool,
) -> Result<(), Failure> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let found = api
        .get(pvc)
        .await
        .map_err(|error| failure("read", pvc, &error))?;
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
    patch_pvc(one, pvc, uid, change).await
}
