//! Writing objects: server-side apply under one field manager, never over somebody else's object,
//! and deletion of exactly the object that was meant.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DeserializeGuard, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::crd::{EtcdCluster, EtcdClusterStatus, MANAGER as FIELD_MANAGER};
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

/// Writes the status of the resource with this name and UID. Tells whether it was still there.
///
/// For a status the API server looks at no UID in the body, so that what was seen of an earlier
/// life would land on the next one: it is looked at here, and the version keeps it so.
pub async fn apply_status(
    client: &Client,
    (namespace, name): (&str, &str),
    uid: &str,
    status: &EtcdClusterStatus,
) -> Result<bool, Failure> {
    let api: Api<DeserializeGuard<EtcdCluster>> = Api::namespaced(client.clone(), namespace);
    let found = api
        .get_opt(name)
        .await
        .map_err(|error| failure("read", name, &error))?;
    let Some(found) = found.filter(|found| found.meta().uid.as_deref() == Some(uid)) else {
        return Ok(false);
    };
    let body = json!({
        "apiVersion": EtcdCluster::api_version(&()),
        "kind": EtcdCluster::kind(&()),
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
                422 if is_another(status) => Failure::Changed(text),
                400 | 403 | 405 | 413 | 422 => Failure::Refused(text),
                _ => Failure::Retry(text),
            }
        }
        error => Failure::Retry(format!("cannot {act} {name}: {error}")),
    }
}

/// Whether the object of this name is not the one that was meant any more: the API server tells
/// so as a change of its UID, which it does not allow.
fn is_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use kube::api::ObjectMeta;

    use super::*;
    use crate::opsim::api::{ApiServer, Delete, Kind, Shared};

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

    /// A resource that was deleted and made anew between a look and the report got the status of
    /// its earlier life, with that life's cluster ID.
    #[tokio::test]
    async fn a_status_never_lands_on_another_life() {
        let shared = Shared::new(ApiServer::new(1, 1_700_000_000_000));
        let client = shared.client("operator-1", "prod");
        let made = || {
            let resource = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": {"name": "demo", "namespace": "prod"}, "spec": {}});
            let made = shared.lock().create("user", Kind::EtcdCluster, resource);
            made.expect("valid")["metadata"]["uid"]
                .as_str()
                .expect("a UID")
                .to_owned()
        };
        let stored = || {
            let found = shared.lock().get(Kind::EtcdCluster, "prod", "demo");
            found.expect("there")["status"]["clusterID"].clone()
        };
        let status = EtcdClusterStatus {
            cluster_id: Some("abc".into()),
            ..EtcdClusterStatus::default()
        };
        let (id, none) = (("prod", "demo"), Delete::default());
        let first = made();
        assert_eq!(apply_status(&client, id, &first, &status).await, Ok(true));
        assert_eq!(stored(), "abc");
        let gone = shared.lock().delete("user", Kind::EtcdCluster, id, &none);
        gone.expect("deleted");
        assert_eq!(apply_status(&client, id, &first, &status).await, Ok(false));
        made();
        assert_eq!(apply_status(&client, id, &first, &status).await, Ok(false));
        assert!(stored().is_null(), "{}", stored());
    }

    /// That another object has taken a name by now was told as a refusal, which only somebody's
    /// change of the specification would end.
    #[tokio::test]
    async fn another_object_of_the_name_is_a_change_and_no_refusal() {
        let shared = Shared::new(ApiServer::new(1, 1_700_000_000_000));
        let service = json!({"metadata": {"name": "demo-client", "namespace": "prod"},
            "spec": {"ports": [{"port": 1}]}});
        let made = shared.lock().create("user", Kind::Service, service);
        made.expect("valid");
        let api: Api<Service> = Api::namespaced(shared.client("operator-1", "prod"), "prod");
        let body = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "demo-client", "uid": "another"}});
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&body);
        let error = api
            .patch("demo-client", &parameters, &patch)
            .await
            .expect_err("another");
        let told = failure("apply", "demo-client", &error);
        assert!(matches!(told, Failure::Changed(_)), "{told:?}");
    }
}
