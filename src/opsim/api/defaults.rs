//! What the API server fills in: defaults of the kinds' fields, and what admission adds.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object::{self, default};
use super::schema;
use super::server::ApiServer;

/// Label of a Job's pods.
pub(in crate::opsim) const JOB_UID: &str = "batch.kubernetes.io/controller-uid";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What a new object gets once.
pub(super) fn on_create(server: &ApiServer, kind: Kind, object: &mut Value) {
    match kind {
        Kind::PersistentVolumeClaim => {
            if object::at(object, &["spec", "storageClassName"]).is_none()
                && let Some(class) = default_class(server)
            {
                object["spec"]["storageClassName"] = json!(class);
            }
            add_finalizer(object, "kubernetes.io/pvc-protection");
            object["status"] = json!({"phase": "Pending"});
        }
        Kind::PersistentVolume => {
            add_finalizer(object, "kubernetes.io/pv-protection");
            object["status"] = json!({"phase": "Available"});
        }
        Kind::Pod => object["status"] = json!({"phase": "Pending", "qosClass": "Burstable"}),
        Kind::StatefulSet => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        Kind::Service => object["status"] = json!({"loadBalancer": {}}),
        Kind::PodDisruptionBudget => {
            object["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0,
                "disruptionsAllowed": 0, "expectedPods": 0});
        }
        _ => {}
    }
}

/// Of several default classes the newest counts.
fn default_class(server: &ApiServer) -> Option<String> {
    let classes = server.all(Kind::StorageClass).filter(|class| {
        let marked = object::at(class, &["metadata", "annotations", DEFAULT_CLASS]);
        marked.and_then(Value::as_str) == Some("true")
    });
    let newest = classes.max_by_key(|class| {
        let made = object::text(class, &["metadata", "creationTimestamp"]);
        (
            made.to_owned(),
            std::cmp::Reverse(object::name(class).to_owned()),
        )
    });
    newest.map(|class| object::name(class).to_owned())
}

fn add_finalizer(object: &mut Value, name: &str) {
    let mut all: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
    if !all.iter().any(|known| known == name) {
        all.push(name.to_owned());
    }
    object["metadata"]["finalizers"] = json!(all);
}

/// What a new version takes over from the old one where it does not set a field.
pub(super) fn on_update(kind: Kind, old: &Value, object: &mut Value) {
    let kept: &[&str] = match kind {
        Kind::PersistentVolumeClaim => &["volumeName", "storageClassName"],
        _ => &[],
    };
    for field in kept {
        if let Some(value) = object::at(old, &["spec", field]) {
            default(object, &["spec", field], value.clone());
        }
    }
}

/// Defaults that every version has.
pub(super) fn always(kind: Kind, object: &mut Value) {
    match kind {
        _ if kind.is_ours() => schema::fill(kind, object),
        Kind::Job => job(object),
        Kind::StatefulSet => stateful_set(object),
        Kind::Pod => {
            pod_spec(&mut object["spec"]);
            requests(&mut object["spec"]);
        }
        Kind::Service => service(object),
        Kind::Secret => default(object, &["type"], json!("Opaque")),
        Kind::PersistentVolumeClaim => {
            default(object, &["spec", "volumeMode"], json!("Filesystem"))
        }
        Kind::PersistentVolume => {
            default(object, &["spec", "volumeMode"], json!("Filesystem"));
            default(
                object,
                &["spec", "persistentVolumeReclaimPolicy"],
                json!("Retain"),
            );
        }
        Kind::StorageClass => {
            default(object, &["reclaimPolicy"], json!("Delete"));
            default(object, &["volumeBindingMode"], json!("Immediate"));
        }
        _ => {}
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, &["type"], json!("ClusterIP"));
    default(spec, &["sessionAffinity"], json!("None"));
    default(spec, &["internalTrafficPolicy"], json!("Cluster"));
    let outside = matches!(object::text(spec, &["type"]), "NodePort" | "LoadBalancer");
    if outside {
        default(spec, &["externalTrafficPolicy"], json!("Cluster"));
    } else {
        object::take(spec, &["externalTrafficPolicy"]);
    }
    if object::text(spec, &["type"]) == "LoadBalancer" {
        default(spec, &["allocateLoadBalancerNodePorts"], json!(true));
    } else {
        object::take(spec, &["allocateLoadBalancerNodePorts"]);
    }
    for port in object::items_mut(spec, "ports") {
        default(port, &["protocol"], json!("TCP"));
        let number = port["port"].clone();
        default(port, &["targetPort"], number);
        if outside {
            let node = 30_000 + object::number(port, &["port"]).unwrap_or(0) % 2_767;
            default(port, &["nodePort"], json!(node));
        } else {
            object::take(port, &["nodePort"]);
        }
    }
}

fn job(object: &mut Value) {
    let uid = object::uid(object).to_owned();
    let spec = &mut object["spec"];
    for (field, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
    ] {
        default(spec, &[field], value);
    }
    let replaced = match spec.get("podFailurePolicy") {
        Some(_) => "Failed",
        None => "TerminatingOrFailed",
    };
    default(spec, &["podReplacementPolicy"], json!(replaced));
    let own = json!({"matchLabels": {JOB_UID: uid}});
    default(spec, &["selector"], own);
    pod_spec(&mut spec["template"]["spec"]);
}

fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    default(spec, &["replicas"], json!(1));
    default(spec, &["podManagementPolicy"], json!("OrderedReady"));
    default(spec, &["revisionHistoryLimit"], json!(10));
    default(spec, &["updateStrategy", "type"], json!("RollingUpdate"));
    if object::text(spec, &["updateStrategy", "type"]) == "RollingUpdate" {
        default(
            spec,
            &["updateStrategy", "rollingUpdate", "partition"],
            json!(0),
        );
    }
    default(
        spec,
        &["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    pod_spec(&mut spec["template"]["spec"]);
}

fn pod_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default(spec, &["restartPolicy"], json!("Always"));
    default(spec, &["dnsPolicy"], json!("ClusterFirst"));
    default(spec, &["schedulerName"], json!("default-scheduler"));
    default(spec, &["securityContext"], json!({}));
    default(spec, &["terminationGracePeriodSeconds"], json!(30));
    // The old name of the field, which is never applied, holds its last value and gives it back.
    match object::at(spec, &["serviceAccountName"]).cloned() {
        Some(account) => spec["serviceAccount"] = account,
        None => {
            if let Some(kept) = object::at(spec, &["serviceAccount"]).cloned() {
                spec["serviceAccountName"] = kept;
            }
        }
    }
    for container in object::items_mut(spec, "containers") {
        self::container(container);
    }
    for volume in object::items_mut(spec, "volumes") {
        if volume.get("secret").is_some() {
            default(volume, &["secret", "defaultMode"], json!(420));
        }
    }
}

/// Of pods, and not of templates: what has a limit alone requests that.
fn requests(spec: &mut Value) {
    for container in object::items_mut(spec, "containers") {
        let limits = container["resources"]["limits"].clone();
        for (kind, limit) in limits.as_object().into_iter().flatten() {
            default(container, &["resources", "requests", kind], limit.clone());
        }
    }
}

fn container(container: &mut Value) {
    let image = object::text(container, &["image"]);
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    let pull = if latest { "Always" } else { "IfNotPresent" };
    default(container, &["imagePullPolicy"], json!(pull));
    default(container, &["resources"], json!({}));
    default(
        container,
        &["terminationMessagePath"],
        json!("/dev/termination-log"),
    );
    default(container, &["terminationMessagePolicy"], json!("File"));
    for port in object::items_mut(container, "ports") {
        default(port, &["protocol"], json!("TCP"));
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let Some(probe) = container.get_mut(probe) else {
            continue;
        };
        for (field, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            default(probe, &[field], json!(value));
        }
        if probe.get("httpGet").is_some() {
            default(probe, &["httpGet", "scheme"], json!("HTTP"));
        }
    }
}
