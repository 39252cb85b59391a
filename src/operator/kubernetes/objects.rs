//! Writing objects: server-side apply under one field manager, never over somebody else's object,
//! and deletion of exactly the object that was meant.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crd::MANAGER as FIELD_MANAGER;
use crate::operator::platform::Failure;

/// Whose an object must be before it is written.
#[derive(Clone, Copy, Debug)]
pub enum Owned<'a> {
    /// Its controller owner has this UID.
    Controller(&'a str),
    /// It carries this label with this value (claims, which may have no owner).
    Label(&'a str, &'a str),
}

/// How a deletion went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is being deleted by this call.
    Now,
    /// It was gone already, or another object has its name.
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

/// Applies an object after a live look at what has its name now.
pub async fn apply<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
    owned: Owned<'_>,
) -> Result<K, Failure> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.name_any();
    let found = api
        .get_opt(&name)
        .await
        .map_err(|error| failure("read", &name, &error))?;
    let mut object = object.clone();
    if let Some(found) = found {
        check(&found, owned)?;
        // The UID makes the server refuse if another object took the name since.
        object.meta_mut().uid = found.uid();
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .map_err(|error| failure("apply", &name, &error))
}

/// Creates an object that is never changed afterwards. If it is there already, returns that one.
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

/// Deletes the object with this name and UID, and no other.
pub async fn delete<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<Deleted, Failure> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(Deleted::Now),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
            Ok(Deleted::Already)
        }
        Err(error) => Err(failure("delete", name, &error)),
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
        None => "nobody that this operator knows".into(),
    }
}

/// What an error of the API server means for the step.
pub fn failure(act: &str, name: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let text = format!("cannot {act} {name}: {}", status.message);
            match status.code {
                409 => Failure::Changed(text),
                400 | 403 | 405 | 413 | 422 => Failure::Refused(text),
                _ => Failure::Retry(text),
            }
        }
        error => Failure::Retry(format!("cannot {act} {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use kube::api::ObjectMeta;
    use kube::core::Status;

    use super::*;

    fn service(controller: Option<&str>, label: Option<&str>) -> Service {
        let owner_references = controller.map(|uid| {
            vec![OwnerReference {
                kind: "EtcdCluster".into(),
                name: "demo".into(),
                uid: uid.into(),
                controller: Some(true),
                ..OwnerReference::default()
            }]
        });
        let labels = label.map(|value| [("life".to_owned(), value.to_owned())].into());
        let name = Some("demo-client".into());
        Service {
            metadata: ObjectMeta {
                name,
                owner_references,
                labels,
                ..ObjectMeta::default()
            },
            ..Service::default()
        }
    }

    #[test]
    fn an_object_of_somebody_else_is_never_written() {
        assert_eq!(
            check(&service(Some("u1"), None), Owned::Controller("u1")),
            Ok(())
        );
        let error = check(&service(Some("u2"), None), Owned::Controller("u1"));
        let text = error.expect_err("another owner").to_string();
        assert!(
            text.contains("Service demo-client belongs to EtcdCluster demo (UID u2)"),
            "{text}"
        );
        assert!(matches!(
            check(&service(None, None), Owned::Controller("u1")),
            Err(Failure::NameConflict { .. })
        ));
        assert_eq!(
            check(&service(None, Some("u1")), Owned::Label("life", "u1")),
            Ok(())
        );
        assert!(check(&service(None, Some("u2")), Owned::Label("life", "u1")).is_err());
    }

    #[test]
    fn an_object_on_its_way_out_is_waited_for() {
        let mut found = service(Some("u1"), None);
        found.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let kind = check(&found, Owned::Controller("u1"));
        assert!(matches!(kind, Err(Failure::Terminating { .. })), "{kind:?}");
    }

    #[test]
    fn refusals_are_told_from_what_may_work_the_next_time() {
        let api = |code| {
            let status = Status {
                code,
                message: "why".into(),
                ..Status::default()
            };
            failure("apply", "demo", &kube::Error::Api(Box::new(status)))
        };
        assert!(matches!(api(422), Failure::Refused(text) if text == "cannot apply demo: why"));
        assert!(matches!(api(403), Failure::Refused(_)));
        assert!(matches!(api(409), Failure::Changed(_)));
        assert!(matches!(api(500), Failure::Retry(_)));
        assert!(matches!(api(429), Failure::Retry(_)));
    }
}
