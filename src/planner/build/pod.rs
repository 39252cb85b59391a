//! A member's StatefulSet: one pod, restricted, on a PVC that is referenced by name. The StatefulSet restarts nothing
//! by itself (`OnDelete`): only the operator deletes a member's pod.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    KeyToPath, ObjectFieldSelector, PersistentVolumeClaimVolumeSource, PodAffinityTerm,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecretVolumeSource, SecurityContext, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use crate::crd::{
    ANNOTATION_IMAGE, ANNOTATION_RENDERED, ANNOTATION_RESTART_INPUTS, ANNOTATION_VERSION,
    LABEL_CLUSTER_UID, LABEL_MEMBER, Spread, ValidatedCluster, bytes_of, operator_secret_name,
    peers_service_name, pvc_name,
};

use super::certificates;
use super::common::{
    CLIENT_PORT, METRICS_PORT, PEER_PORT, Settings, annotations, hash, member_labels, metadata,
    selector, strings, wanted_inputs, wanted_restart_inputs,
};
use super::image::{cluster_image, pull_policy, pull_secrets};
use super::member::server_arguments;

/// Where the volume is mounted. The data directory is a folder in it, because the root of a new
/// file system is not empty.
pub(super) const DATA_FOLDER: &str = "/var/lib/quorate";
/// The key that authorises the operator.
pub(super) const KEY_FILE: &str = "/etc/quorate/operator/key";
const KEY_FOLDER: &str = "/etc/quorate/operator";
/// The container of a member's server, whatever containers a mesh or a policy adds.
pub const CONTAINER: &str = "member";
/// The label that identifies a node.
const HOST: &str = "kubernetes.io/hostname";
/// Default CPU request.
const CPU: &str = "100m";
/// Default memory request without a quota.
const MEMORY: &str = "256Mi";
/// Default request of a node's own disk, of members and of Jobs: their logs, until the kubelet rotates them. A container has no
/// other place to write to but its volumes.
pub(super) const EPHEMERAL: &str = "64Mi";
/// Seconds to hand over before it is killed.
const GRACE_SECONDS: i64 = 60;

/// What of a member's set the plan decides. No input of the hash: it follows from what is seen, and
/// a member that runs is not outdated because more is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    /// Its pod never begins on a node with another member of the cluster.
    pub one_per_node: bool,
    /// It has no pod.
    pub hibernated: bool,
    /// Its server accepts connections without TLS on its peer port too, until all members are dialled with TLS.
    pub plaintext_peers: bool,
}

/// The set of a member.
pub fn stateful_set(
    cluster: &ValidatedCluster,
    settings: &Settings,
    member: &str,
    how: SetOptions,
) -> StatefulSet {
    let inputs = wanted_inputs(cluster);
    let labels = member_labels(cluster, member);
    let mut metadata = metadata(cluster, member.to_owned(), &inputs);
    metadata.labels = Some(labels.clone());
    let user = &cluster.spec.pod_template.metadata;
    let template = ObjectMeta {
        labels: Some(user.labels.clone().into_iter().chain(labels).collect()),
        annotations: Some(
            user.annotations
                .clone()
                .into_iter()
                .chain(annotations(&inputs))
                .chain([(
                    ANNOTATION_RESTART_INPUTS.to_owned(),
                    wanted_restart_inputs(cluster),
                )])
                .collect(),
        ),
        ..ObjectMeta::default()
    };
    let own = strings(&[(LABEL_CLUSTER_UID, &cluster.life), (LABEL_MEMBER, member)]);
    let mut set = StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(i32::from(!how.hibernated)),
            service_name: Some(peers_service_name(&cluster.name)),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            revision_history_limit: Some(2),
            selector: LabelSelector {
                match_labels: Some(own),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(template),
                spec: Some(pod(cluster, settings, member, how)),
            },
            ..StatefulSetSpec::default()
        }),
        status: None,
    };
    // Outside of the template, as the next one.
    if cluster.spec.image.is_none() {
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_VERSION.to_owned(), cluster.spec.version.clone());
        annotations.insert(
            ANNOTATION_IMAGE.to_owned(),
            cluster_image(cluster, settings),
        );
    }
    // Outside of the template: it records the rendering of the StatefulSet, which distinguishes edits from a rendering
    // that has changed since.
    let rendered = hash(&json!(set));
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION_RENDERED.to_owned(), rendered);
    set
}

fn pod(cluster: &ValidatedCluster, settings: &Settings, member: &str, how: SetOptions) -> PodSpec {
    let one_per_node = how.one_per_node;
    let user = &cluster.spec.pod_template.spec;
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(restricted_pod(settings)),
        termination_grace_period_seconds: Some(
            user.termination_grace_period_seconds
                .unwrap_or(GRACE_SECONDS),
        ),
        topology_spread_constraints: Some(spread(cluster, one_per_node)),
        node_selector: (!user.node_selector.is_empty()).then(|| user.node_selector.clone()),
        tolerations: (!user.tolerations.is_empty()).then(|| user.tolerations.clone()),
        affinity: affinity(cluster, one_per_node),
        priority_class_name: user.priority_class_name.clone(),
        image_pull_secrets: pull_secrets(cluster, settings),
        // Named even where the user names none: Kubernetes keeps the last name under the field's
        // old name, so that leaving it out would not take it back.
        service_account_name: Some(
            user.service_account_name
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
        ),
        containers: vec![container(cluster, settings, member, how.plaintext_peers)],
        volumes: Some(volumes(cluster, member)),
        ..PodSpec::default()
    }
}

fn container(
    cluster: &ValidatedCluster,
    settings: &Settings,
    member: &str,
    plaintext_peers: bool,
) -> Container {
    let image = cluster_image(cluster, settings);
    let port = |name: &str, number: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let mut mounts = vec![
        mount("data", DATA_FOLDER, false),
        mount("operator", KEY_FOLDER, true),
    ];
    mounts.extend(certificates::mounts(cluster));
    Container {
        name: CONTAINER.to_owned(),
        image_pull_policy: Some(pull_policy(&image)),
        image: Some(image),
        args: Some(server_arguments(cluster, member, plaintext_peers)),
        env: Some(vec![EnvVar {
            name: "POD_UID".to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: Some("v1".to_owned()),
                    field_path: "metadata.uid".to_owned(),
                }),
                ..EnvVarSource::default()
            }),
        }]),
        ports: Some(vec![
            port("client", CLIENT_PORT),
            port("peer", PEER_PORT),
            port("metrics", METRICS_PORT),
        ]),
        resources: Some(requirements(cluster)),
        volume_mounts: Some(mounts),
        // A long log is replayed before the first answer: twenty minutes.
        startup_probe: Some(probe("/livez", 1, 1200)),
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 2, 2)),
        security_context: Some(restricted_container()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Of members and of Jobs, under the restricted security standard.
pub(super) fn restricted_pod(settings: &Settings) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: settings.user,
        run_as_group: settings.user,
        fs_group: settings.user,
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

/// The same of their containers.
pub(super) fn restricted_container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        ..SecurityContext::default()
    }
}

fn probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("metrics".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(5.min(period_seconds.max(2))),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn volumes(cluster: &ValidatedCluster, member: &str) -> Vec<Volume> {
    let mut volumes = vec![
        Volume {
            name: "data".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: pvc_name(member, &cluster.life),
                read_only: None,
            }),
            ..Volume::default()
        },
        Volume {
            name: "operator".to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(operator_secret_name(&cluster.name)),
                default_mode: Some(0o440),
                items: Some(vec![KeyToPath {
                    key: "key".to_owned(),
                    path: "key".to_owned(),
                    mode: None,
                }]),
                optional: None,
            }),
            ..Volume::default()
        },
    ];
    volumes.extend(certificates::volumes(cluster, member));
    volumes
}

/// The user's resources, and default requests where neither a request nor a limit of the kind is set: a pod without
/// requests is the first to be starved, and to be evicted. Kubernetes derives requests from limits; no limit is ever
/// added.
pub(super) fn requirements(cluster: &ValidatedCluster) -> ResourceRequirements {
    let mut asked = asked_requirements(cluster).unwrap_or_default();
    let limits = asked.limits.as_ref();
    let unlimited = |kind: &str| limits.is_none_or(|limits| !limits.contains_key(kind));
    let defaults = [
        ("cpu", CPU.to_owned()),
        ("ephemeral-storage", EPHEMERAL.to_owned()),
        ("memory", memory(cluster)),
    ];
    for (kind, least) in defaults {
        if unlimited(kind) {
            let requests = asked.requests.get_or_insert_default();
            requests.entry(kind.to_owned()).or_insert(Quantity(least));
        }
    }
    asked
}

/// Only the user's resources; `None` if there are none.
pub(super) fn asked_requirements(cluster: &ValidatedCluster) -> Option<ResourceRequirements> {
    let resources = &cluster.spec.resources;
    let map = |from: &BTreeMap<String, crate::crd::Quantity>| {
        let pairs = from.iter();
        let map: BTreeMap<String, Quantity> = pairs
            .map(|(key, value)| (key.clone(), Quantity(value.0.clone())))
            .collect();
        (!map.is_empty()).then_some(map)
    };
    let (requests, limits) = (map(&resources.requests), map(&resources.limits));
    (requests.is_some() || limits.is_some()).then_some(ResourceRequirements {
        requests,
        limits,
        claims: None,
    })
}

/// What a member needs with all the data that its quota lets in: two and a half times as much. Without a stated quota
/// the request is that of small clusters: the server's default quota is a limit that few reach, and requesting memory
/// for it would keep members off most nodes.
fn memory(cluster: &ValidatedCluster) -> String {
    let quota = cluster.spec.server.quota.as_deref();
    match quota.and_then(|quota| bytes_of(quota).ok()) {
        None => MEMORY.to_owned(),
        Some(quota) => format!("{}Mi", (quota / 2).saturating_mul(5).div_ceil(1 << 20)),
    }
}

/// The user's own, and with anti-affinity a separate node for each: also against members created before, because the
/// scheduler evaluates it in both directions.
fn affinity(cluster: &ValidatedCluster, one_per_node: bool) -> Option<Affinity> {
    let user = cluster.spec.pod_template.spec.affinity.clone();
    if !one_per_node {
        return user;
    }
    let mut affinity = user.unwrap_or_default();
    let pods = affinity.pod_anti_affinity.get_or_insert_default();
    pods.required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(PodAffinityTerm {
            topology_key: HOST.to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(selector(cluster)),
                ..LabelSelector::default()
            }),
            ..PodAffinityTerm::default()
        });
    Some(affinity)
}

/// Over nodes according to the spec unless anti-affinity applies anyway, over zones where possible, then the user's
/// own, each with the selector of this cluster's member pods.
fn spread(cluster: &ValidatedCluster, one_per_node: bool) -> Vec<TopologySpreadConstraint> {
    let own = LabelSelector {
        match_labels: Some(selector(cluster)),
        ..LabelSelector::default()
    };
    let over = |key: &str, when: &str| TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew: 1,
        when_unsatisfiable: when.to_owned(),
        // A cordoned node accepts no member, so it must not count as an empty one.
        node_taints_policy: Some("Honor".to_owned()),
        label_selector: Some(own.clone()),
        ..TopologySpreadConstraint::default()
    };
    let hosts = match cluster.spec.scheduling.spread {
        Spread::Required => "DoNotSchedule",
        Spread::Preferred => "ScheduleAnyway",
    };
    let theirs = &cluster.spec.pod_template.spec.topology_spread_constraints;
    let mut all = Vec::new();
    if !one_per_node {
        all.push(over(HOST, hosts));
    }
    all.push(over("topology.kubernetes.io/zone", "ScheduleAnyway"));
    // Kubernetes identifies them by these two fields and refuses duplicates: the user's replaces ours.
    let same = |a: &TopologySpreadConstraint, b: &TopologySpreadConstraint| {
        a.topology_key == b.topology_key && a.when_unsatisfiable == b.when_unsatisfiable
    };
    all.retain(|ours| !theirs.iter().any(|user| same(ours, user)));
    for user in theirs {
        let mut user = user.clone();
        user.label_selector.get_or_insert_with(|| own.clone());
        all.push(user);
    }
    all
}
