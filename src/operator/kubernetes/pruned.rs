//! What a cache keeps of an object: what its readers use. The rest is dropped as the object enters the cache: of most
//! objects it is the larger part, and an operator of many clusters has many objects. Pure; reads nothing.
//!
//! A new reader of a cached object has to be served here first. What is compared with a rendering (`drift`) keeps
//! every field that can be rendered.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Node, NodeSpec, NodeStatus, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    PersistentVolumeSpec, Pod, PodSpec, PodStatus, Service, Volume,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crd::{EtcdCluster, GROUP};

/// What `kubectl apply` wrote last: a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind of object that is cached.
pub trait Prune: Resource<DynamicType = ()> {
    /// Drops what no reader of the cache uses.
    fn prune(&mut self) {
        prune_metadata(self.meta_mut());
    }

    /// The same, where what was kept of the object before tells part of it.
    fn prune_after(&mut self, _before: impl FnOnce() -> Option<Arc<Self>>)
    where
        Self: Sized,
    {
        self.prune();
    }

    /// The same of one that is gone: only its metadata are read.
    fn prune_deleted(&mut self) {
        self.prune();
    }

    /// The object as one text, where its kind is kept so: there are many of it, and readers want few of them at a time.
    /// `None` also of one that would be read differently.
    fn text(&self) -> Option<Box<[u8]>> {
        None
    }

    /// The object that a text is of; always for what [`Prune::text`] gave.
    fn of_text(_text: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Whether its text may be compressed against the first ones of its kind, which stay in memory for as long as the
    /// process lives, and be one of these.
    fn is_packed(&self) -> bool {
        true
    }

    /// The node that it is on.
    fn node(&self) -> Option<&str> {
        None
    }
}

/// The structures of Kubernetes' types have room for every field that an object may have: a StatefulSet takes 27 KiB, and its
/// text four.
macro_rules! kept_as_text {
    () => {
        fn text(&self) -> Option<Box<[u8]>> {
            text(self)
        }

        fn of_text(text: &[u8]) -> Option<Self> {
            serde_json::from_slice(text).ok()
        }
    };
}

fn text<K: Serialize + DeserializeOwned + PartialEq>(object: &K) -> Option<Box<[u8]>> {
    let text = serde_json::to_vec(object).ok()?;
    let again: K = serde_json::from_slice(&text).ok()?;
    (again == *object).then(|| text.into())
}

/// Which manager owns which field, and the copy of `kubectl apply`: of no use to any reader.
pub(super) fn prune_metadata(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    retain_annotations(meta, |key| key != LAST_APPLIED);
}

/// For kinds of which only annotations of this project are read.
fn prune_metadata_of_foreign(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    let ours = |key: &str| {
        let rest = key.strip_prefix(GROUP);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    retain_annotations(meta, ours);
}

fn retain_annotations(meta: &mut ObjectMeta, keep: impl Fn(&str) -> bool) {
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| keep(key));
        if annotations.is_empty() {
            meta.annotations = None;
        }
    }
}

impl<K> Prune for DeserializeGuard<K>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + PartialEq,
{
    /// Clusters alone: of backups and recoveries all in a namespace are looked through for those of one cluster.
    fn text(&self) -> Option<Box<[u8]>> {
        let is_cluster = K::kind(&()) == EtcdCluster::kind(&());
        text(self.0.as_ref().ok().filter(|_| is_cluster)?)
    }

    fn of_text(text: &[u8]) -> Option<Self> {
        let object = serde_json::from_slice(text).ok()?;
        Some(Self(Ok(object)))
    }
}

impl Prune for NetworkPolicy {
    kept_as_text!();
}

/// Its specification is compared with its rendering.
impl Prune for StatefulSet {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata(&mut self.metadata);
        self.status = None;
    }
}

/// Its specification is compared with its rendering.
impl Prune for Service {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata(&mut self.metadata);
        self.status = None;
    }
}

/// Its specification is compared with its rendering.
impl Prune for PodDisruptionBudget {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata(&mut self.metadata);
        let status = self.status.take();
        self.status = status.map(|status| PodDisruptionBudgetStatus {
            current_healthy: status.current_healthy,
            disruptions_allowed: status.disruptions_allowed,
            observed_generation: status.observed_generation,
            ..Default::default()
        });
    }
}

impl Prune for Job {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        self.spec = None;
    }
}

/// Of a member, and of a backup's Job.
impl Prune for Pod {
    kept_as_text!();

    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        self.spec = self.spec.take().map(pod_spec);
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            pod_ip: status.pod_ip,
            conditions: status.conditions,
            container_statuses: status
                .container_statuses
                .map(|all| all.into_iter().map(container_status).collect()),
            init_container_statuses: status
                .init_container_statuses
                .map(|all| all.into_iter().map(init_container_status).collect()),
            ..Default::default()
        });
    }
}

fn pod_spec(spec: PodSpec) -> PodSpec {
    PodSpec {
        node_name: spec.node_name,
        // Whom a kubelet's requests for its certificates have to name.
        service_account_name: spec.service_account_name,
        containers: spec.containers.into_iter().map(container).collect(),
        init_containers: spec
            .init_containers
            .map(|all| all.into_iter().map(init_container).collect()),
        // Those with the user's certificates.
        volumes: spec
            .volumes
            .map(|all| {
                let kept = all.into_iter().filter(|one| one.projected.is_some());
                kept.map(projected).collect::<Vec<_>>()
            })
            .filter(|kept| !kept.is_empty()),
        ..Default::default()
    }
}

fn projected(volume: Volume) -> Volume {
    Volume {
        name: volume.name,
        projected: volume.projected,
        ..Default::default()
    }
}

fn container(container: Container) -> Container {
    Container {
        name: container.name,
        image: container.image,
        args: container.args,
        // Their sum decides of the pod's class.
        resources: container.resources,
        resize_policy: container.resize_policy,
        ..Default::default()
    }
}

/// Of those that run before the server, or beside it from then on.
fn init_container(container: Container) -> Container {
    Container {
        name: container.name,
        resources: container.resources,
        restart_policy: container.restart_policy,
        ..Default::default()
    }
}

fn init_container_status(status: ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: status.name,
        ready: status.ready,
        started: status.started,
        state: status.state,
        ..Default::default()
    }
}

fn container_status(status: ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: status.name,
        ready: status.ready,
        image_id: status.image_id,
        resources: status.resources,
        state: status.state,
        last_state: status.last_state,
        ..Default::default()
    }
}

impl Prune for PersistentVolumeClaim {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        let spec = self.spec.take();
        self.spec = spec.map(|spec| PersistentVolumeClaimSpec {
            resources: spec.resources,
            storage_class_name: spec.storage_class_name,
            volume_name: spec.volume_name,
            ..Default::default()
        });
        let status = self.status.take();
        self.status = status.map(|status| PersistentVolumeClaimStatus {
            allocated_resource_statuses: status.allocated_resource_statuses,
            capacity: status.capacity,
            conditions: status.conditions,
            phase: status.phase,
            ..Default::default()
        });
    }
}

impl Prune for EndpointSlice {
    kept_as_text!();

    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        self.ports = None;
        for endpoint in &mut self.endpoints {
            *endpoint = Endpoint {
                conditions: endpoint.conditions.take(),
                target_ref: endpoint.target_ref.take(),
                ..Default::default()
            };
        }
    }
}

/// Its labels are selected by, and its taints tolerated or not.
impl Prune for Node {
    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        self.spec = self.spec.take().map(|spec| NodeSpec {
            taints: spec.taints,
            unschedulable: spec.unschedulable,
            ..Default::default()
        });
        self.status = self.status.take().map(|status| NodeStatus {
            conditions: status.conditions.map(|mut all| {
                all.retain(|condition| condition.type_ == "Ready");
                all
            }),
            ..Default::default()
        });
    }
}

/// Which nodes can use it.
impl Prune for PersistentVolume {
    fn prune(&mut self) {
        prune_metadata_of_foreign(&mut self.metadata);
        self.spec = self.spec.take().map(|spec| PersistentVolumeSpec {
            local: spec.local,
            node_affinity: spec.node_affinity,
            ..Default::default()
        });
        self.status = None;
    }
}

/// Whether it is the default is an annotation of Kubernetes'.
impl Prune for StorageClass {
    fn prune(&mut self) {
        prune_metadata(&mut self.metadata);
        self.allowed_topologies = None;
        self.mount_options = None;
        self.parameters = None;
    }
}

#[cfg(test)]
#[path = "pruned_test.rs"]
mod tests;
