//! How lists and maps of the API merge: by keys, as sets, or as a whole. Facts of the published
//! schema of the kinds that the operator applies; another list is refused, never guessed.

use super::kinds::Kind;

/// How a list merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListShape {
    /// As one value.
    Atomic,
    /// Items are identified by these fields; each with the value that an absent one counts as.
    Map(&'static [(&'static str, Option<&'static str>)]),
    /// Items are identified by their value.
    Set,
}

const NAME: ListShape = ListShape::Map(&[("name", None)]);
const TYPE: ListShape = ListShape::Map(&[("type", None)]);

/// How the list at this path merges; `None` when it is not modelled. Paths are fields joined by
/// dots, with `[]` for the items of a list; those of a pod's template read like a pod's own.
pub(super) fn list(kind: Kind, path: &str) -> Option<ListShape> {
    match path {
        "metadata.ownerReferences" => return Some(ListShape::Map(&[("uid", None)])),
        "metadata.finalizers" => return Some(ListShape::Set),
        "status.conditions" => return Some(TYPE),
        _ => {}
    }
    match kind {
        // The resource's own schema defines this for every other list of it.
        Kind::EtcdCluster => Some(etcd_cluster(path)),
        // They have no lists.
        Kind::EtcdRecovery | Kind::EtcdBackup | Kind::EtcdBackupSchedule => None,
        // Nobody applies one.
        Kind::Job => None,
        Kind::EtcdBackupStore => Some(ListShape::Atomic),
        Kind::StatefulSet => match path.strip_prefix("spec.template.") {
            Some(path) => pod(path),
            None => (path == "spec.volumeClaimTemplates").then_some(ListShape::Atomic),
        },
        Kind::Pod => pod(path),
        Kind::Service => match path {
            "spec.ports" => Some(ListShape::Map(&[("port", None), ("protocol", Some("TCP"))])),
            "spec.clusterIPs"
            | "spec.externalIPs"
            | "spec.ipFamilies"
            | "spec.loadBalancerSourceRanges"
            | "status.loadBalancer.ingress" => Some(ListShape::Atomic),
            _ => None,
        },
        Kind::PersistentVolumeClaim => {
            matches!(path, "spec.accessModes" | "status.accessModes").then_some(ListShape::Atomic)
        }
        Kind::PersistentVolume => {
            matches!(path, "spec.accessModes" | "spec.mountOptions").then_some(ListShape::Atomic)
        }
        Kind::Node => match path {
            "spec.taints" | "status.images" | "status.volumesAttached" | "status.volumesInUse" => {
                Some(ListShape::Atomic)
            }
            "status.addresses" => Some(TYPE),
            _ => None,
        },
        Kind::StorageClass
        | Kind::ClusterTrustBundle
        | Kind::ControllerRevision
        | Kind::EndpointSlice
        | Kind::Secret
        | Kind::PodDisruptionBudget
        | Kind::Lease
        | Kind::Event => None,
        Kind::PodCertificateRequest => (path == "status.conditions").then_some(TYPE),
        // As in networking/v1: every list of a policy is atomic.
        Kind::NetworkPolicy => Some(ListShape::Atomic),
        // Resource definitions state how each list is merged; these do not.
        Kind::Certificate => Some(ListShape::Atomic),
    }
}

fn etcd_cluster(path: &str) -> ListShape {
    match path {
        "spec.podTemplate.spec.topologySpreadConstraints" => SPREAD,
        "spec.podTemplate.spec.imagePullSecrets" => NAME,
        "status.members" => NAME,
        _ => ListShape::Atomic,
    }
}

const SPREAD: ListShape = ListShape::Map(&[("topologyKey", None), ("whenUnsatisfiable", None)]);

fn pod(path: &str) -> Option<ListShape> {
    const ATOMIC: &[&str] = &[
        "spec.tolerations",
        "spec.readinessGates",
        "spec.topologySpreadConstraints[].matchLabelKeys",
        "spec.containers[].args",
        "spec.containers[].command",
        "spec.containers[].envFrom",
        "spec.containers[].resizePolicy",
        "spec.containers[].securityContext.capabilities.add",
        "spec.containers[].securityContext.capabilities.drop",
        "spec.securityContext.supplementalGroups",
        "spec.securityContext.sysctls",
        "spec.volumes[].secret.items",
        "spec.volumes[].projected.sources",
        "spec.volumes[].configMap.items",
        "status.containerStatuses",
        "status.hostIPs",
    ];
    if ATOMIC.contains(&path) || path.starts_with("spec.affinity.") {
        return Some(ListShape::Atomic);
    }
    match path {
        "spec.containers"
        | "spec.initContainers"
        | "spec.volumes"
        | "spec.imagePullSecrets"
        | "spec.containers[].env" => Some(NAME),
        "spec.topologySpreadConstraints" => Some(SPREAD),
        "spec.containers[].ports" => Some(ListShape::Map(&[
            ("containerPort", None),
            ("protocol", Some("TCP")),
        ])),
        "spec.containers[].volumeMounts" => Some(ListShape::Map(&[("mountPath", None)])),
        "status.podIPs" => Some(ListShape::Map(&[("ip", None)])),
        _ => None,
    }
}

/// Whether the map at this path merges as one value.
pub(super) fn is_atomic_map(kind: Kind, path: &str) -> bool {
    // The items of these lists and the maps under these names are so wherever they are.
    const SUFFIXES: &[&str] = &[
        "metadata.ownerReferences[]",
        "abelSelector",
        "fieldRef",
        "secretKeyRef",
        "configMapKeyRef",
        "resourceFieldRef",
        "imagePullSecrets[]",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "claimRef",
    ];
    if SUFFIXES.iter().any(|suffix| path.ends_with(suffix)) {
        return true;
    }
    match kind {
        Kind::StatefulSet => matches!(path, "spec.selector" | "spec.template.spec.nodeSelector"),
        Kind::Pod => path == "spec.nodeSelector",
        Kind::Service | Kind::PodDisruptionBudget => path == "spec.selector",
        Kind::NetworkPolicy => path == "spec.podSelector",
        _ => false,
    }
}
