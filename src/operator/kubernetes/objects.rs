//! Writing objects: server-side apply under one field manager, never over another owner's object, and deletion of
//! exactly the intended object.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DeserializeGuard, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::crd::MANAGER as FIELD_MANAGER;
use crate::operator::platform::Failure;

/// Whose an object must be before it is written.
#[derive(Clone, Copy, Debug)]
pub enum Owned<'a> {
    /// Its controller owner has this UID.
    Controller(&'a str),
    /// It carries this label with this value (PVCs, which may have no owner).
    Label(&'a str, &'a str),
}

/// How a deletion went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is being deleted by this call.
    Now,
    /// It was already deleted, or another object has its name.
    Already,
}

/// An object that can be written.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// Applies an object after reading live what has its name now.
pub async fn apply<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
    owned: Owned<'_>,
) -> Result<K, Failure> {
    let (api, mut object, found) = live_object(client, namespace, object, owned).await?;
    let name = object.name_any();
    // The UID makes the server refuse if another object took the name since.
    object.meta_mut().uid = found.and_then(|found| found.uid());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .map_err(|error| failure("apply", &name, &error))
}

/// Applies an object only if the live one with its name is as it was when this was decided: `changed` reports what
/// differs. Nor is it applied if another client writes in between.
pub async fn apply_where<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
    owned: Owned<'_>,
    changed: impl Fn(&K) -> Option<String>,
) -> Result<K, Failure> {
    let (api, mut object, found) = live_object(client, namespace, object, owned).await?;
    let name = object.name_any();
    if let Some(found) = found {
        if let Some(what) = changed(&found) {
            return Err(Failure::Changed(what));
        }
        object.meta_mut().uid = found.uid();
        object.meta_mut().resource_version = found.resource_version();
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .map_err(|error| failure("apply", &name, &error))
}

/// What has an object's name now, where it may be written.
async fn live_object<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
    owned: Owned<'_>,
) -> Result<(Api<K>, K, Option<K>), Failure> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    let found = api
        .get_opt(&name)
        .await
        .map_err(|error| failure("read", &name, &error))?;
    if let Some(found) = &found {
        check(found, owned)?;
    }
    Ok((api, object.clone(), found))
}

/// Creates an object that is never changed afterwards. If it exists, returns the existing one.
pub async fn create<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
    owned: Owned<'_>,
) -> Result<K, Failure> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..Default::default()
    };
    match api.create(&parameters, object).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let found = api
                .get(&name)
                .await
                .map_err(|error| failure("read", &name, &error))?;
            check(&found, owned)?;
            Ok(found)
        }
        Err(error) => Err(failure("create", &name, &error)),
    }
}

/// Deletes the object with this name and UID, and no other; if the decision was about its content, only in this
/// resourceVersion.
pub async fn delete<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    (uid, version): (&str, Option<&str>),
) -> Result<Deleted, Failure> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteParams::background()
    };
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(Deleted::Now),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deleted::Already),
        // By its UID alone it is another one of the name; by its version it may be the same.
        Err(kube::Error::Api(status)) if status.code == 409 && version.is_none() => {
            Ok(Deleted::Already)
        }
        Err(error) => Err(failure("delete", name, &error)),
    }
}

/// Evicts the pod with this name and UID, and no other. A PDB may refuse it for now.
pub async fn evict(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<Deleted, Failure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // Not by `Api::evict`, which sends its options under a name that API servers pass over: the UID
    // would count for nothing.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    });
    let parameters = PostParams::default();
    let evicted = api.create_subresource::<_, Value>("eviction", name, &parameters, &eviction);
    match evicted.await {
        Ok(_) => Ok(Deleted::Now),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deleted::Already),
        Err(error) => Err(failure("evict", name, &error)),
    }
}

/// Adds or removes a finalizer, of the resource as it was read: fails if it has changed since.
pub async fn set_finalizer<K: Object>(
    client: &Client,
    object: &K,
    finalizer: &str,
    held: bool,
) -> Result<(), Failure> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let change = Patch::Merge(finalizer_change(object, finalizer, held));
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let changed = api.patch_metadata(&name, &parameters, &change);
    match changed.await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(failure("change", &name, &error)),
    }
}

/// The change of an object's metadata, which fails if it has changed since it was read.
pub fn finalizer_change<K: Object>(object: &K, finalizer: &str, held: bool) -> Value {
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|it| it != finalizer);
    if held {
        finalizers.push(finalizer.to_owned());
    }
    json!({
        "metadata": {
            "uid": object.uid(),
            "resourceVersion": object.resource_version(),
            "finalizers": finalizers,
        },
    })
}

/// Writes the status of the resource with this name and UID. Tells whether it was still there.
///
/// For a status the API server ignores the UID in the body, so the status of an earlier incarnation would land on the
/// next one: the UID is checked here, and the resourceVersion guards it.
pub async fn apply_status<K: Object>(
    client: &Client,
    (namespace, name): (&str, &str),
    uid: &str,
    status: &impl Serialize,
) -> Result<bool, Failure> {
    let api: Api<DeserializeGuard<K>> = Api::namespaced(client.clone(), namespace);
    let found = api
        .get_opt(name)
        .await
        .map_err(|error| failure("read", name, &error))?;
    let Some(found) = found.filter(|found| found.meta().uid.as_deref() == Some(uid)) else {
        return Ok(false);
    };
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "resourceVersion": found.meta().resource_version},
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match api
        .patch_status(name, &parameters, &Patch::Apply(&body))
        .await
    {
        Ok(_) => Ok(true),
        // It went in the meantime.
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(false),
        Err(error) => Err(failure("write the status of", name, &error)),
    }
}

fn check<K: Object>(found: &K, owned: Owned<'_>) -> Result<(), Failure> {
    let (kind, name) = (K::kind(&()).into_owned(), found.name_any());
    if !belongs(found.meta(), owned) {
        return Err(Failure::NameConflict {
            kind,
            name,
            owner: owner(found.meta()),
        });
    }
    if found.meta().deletion_timestamp.is_some() {
        return Err(Failure::Terminating { kind, name });
    }
    Ok(())
}

fn belongs(meta: &kube::api::ObjectMeta, owned: Owned<'_>) -> bool {
    match owned {
        Owned::Controller(uid) => {
            let mut owners = meta.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && owner.uid == uid)
        }
        Owned::Label(key, value) => {
            let labels = meta.labels.as_ref();
            labels
                .and_then(|labels| labels.get(key))
                .is_some_and(|found| found == value)
        }
    }
}

fn owner(meta: &kube::api::ObjectMeta) -> String {
    let mut owners = meta.owner_references.iter().flatten();
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) => format!("{} {} (UID {})", owner.kind, owner.name, owner.uid),
        None => "an unknown owner".into(),
    }
}

/// What an error of the API server means for the step.
pub fn failure(act: &str, name: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let text = format!("cannot {act} {name}: {}", status.message);
            match status.code {
                409 => Failure::Changed(text),
                422 if is_another(status) => Failure::Changed(text),
                400 | 403 | 405 | 413 | 422 => Failure::Refused(text),
                _ => Failure::Retry(text),
            }
        }
        error => Failure::Retry(format!("cannot {act} {name}: {error}")),
    }
}

/// Whether the object with this name is no longer the intended one: the API server reports this as a change of its UID,
/// which it does not allow.
fn is_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
#[path = "objects_test.rs"]
mod tests;
