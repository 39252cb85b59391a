//! What a pod needs to have what is wanted: nothing, another word with its kubelet, or a restart.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{resize_asked, resize_change, resize_done, resize_of};
use crate::build::{SetOptions, Settings, stateful_set, wanted_inputs};
use crate::crd::{EtcdCluster, ValidatedCluster, validate};
use crate::plan::Resize;

const ASKED_MS: u64 = 7_000;

fn cluster(resources: &Value) -> ValidatedCluster {
    changed(&json!({"resources": resources}))
}

fn changed(change: &Value) -> ValidatedCluster {
    let mut resource = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "prod", "uid": "c1"}, "spec": {"replicas": 3}});
    set(&mut resource["spec"], change);
    let resource: EtcdCluster = serde_json::from_value(resource).expect("a resource");
    validate(&resource).expect("it is valid")
}

fn set(object: &mut Value, fields: &Value) {
    let object = object.as_object_mut().expect("an object");
    for (field, value) in fields.as_object().expect("fields") {
        match value {
            Value::Null => drop(object.remove(field)),
            value => drop(object.insert(field.clone(), value.clone())),
        }
    }
}

/// A pod that runs and was made from this, with a sidecar that has these resources.
fn pod(made_from: &ValidatedCluster, sidecar: Option<Value>) -> Value {
    let settings = Settings {
        image: crate::build::OwnImage::of("registry.example/quorate".parse().expect("a reference")),
        operator_namespace: None,
        user: None,
    };
    let set = stateful_set(made_from, &settings, "demo-1", SetOptions::default());
    let mut pod = json!(set.spec.expect("a spec").template);
    let resources = pod["spec"]["containers"][0]["resources"].clone();
    if let Some(resources) = sidecar {
        let sidecar = json!({"name": "mesh", "resources": resources});
        let containers = pod["spec"]["containers"].as_array_mut();
        containers.expect("containers").insert(0, sidecar);
    }
    pod["status"] = json!({"containerStatuses": [{"name": "member", "image": "", "imageID": "",
        "ready": true, "restartCount": 0, "state": {"running": {}}, "resources": resources}]});
    pod
}

fn of(cluster: &ValidatedCluster, pod: &Value) -> Option<Resize> {
    let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
    resize_of(cluster, &wanted_inputs(cluster), &pod)
}

fn annotate(pod: &mut Value, annotations: Value) {
    set(&mut pod["metadata"]["annotations"], &annotations);
}

#[test]
fn a_pod_is_resized_stage_by_stage() {
    let (before, after) = (
        cluster(&json!({"requests": {"cpu": "1"}})),
        cluster(&json!({"requests": {"cpu": "1500m"}})),
    );
    let mut pod = pod(&before, None);
    assert_eq!(of(&before, &pod), None, "it has all");
    assert_eq!(of(&after, &pod), Some(Resize::Wanted));
    annotate(&mut pod, resize_asked(&after, ASKED_MS));
    assert_eq!(
        of(&after, &pod),
        Some(Resize::Wanted),
        "the request itself was lost"
    );
    assert_eq!(of(&before, &pod), Some(Resize::Wanted), "and back");
    let resources = resize_change(&after)["spec"]["containers"][0]["resources"].clone();
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    let asked = |why: Option<&str>, infeasible| {
        let why = why.map(str::to_owned);
        Some(Resize::Asked {
            since_ms: ASKED_MS,
            why,
            infeasible,
        })
    };
    assert_eq!(of(&after, &pod), asked(None, false));
    assert_eq!(of(&before, &pod), Some(Resize::Wanted), "and back");
    let full = "Node didn't have enough capacity: cpu";
    for (reason, infeasible) in [("Deferred", false), ("Infeasible", true)] {
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True",
            "reason": reason, "message": full}]);
        assert_eq!(of(&after, &pod), asked(Some(full), infeasible));
    }
    pod["status"]["conditions"][0]["message"] = json!("exclusive cores");
    assert_eq!(of(&after, &pod), None, "the next container has other cores");
    pod["status"]["containerStatuses"][0]["resources"] = resources;
    pod["status"]["conditions"] = json!([{"type": "PodResizeInProgress", "status": "True"}]);
    assert_eq!(of(&after, &pod), asked(None, false));
    pod["status"]["conditions"] = json!([]);
    assert_eq!(of(&after, &pod), Some(Resize::Provided));
    annotate(&mut pod, resize_done(&after));
    assert_eq!(of(&after, &pod), None, "it has all");
    assert_eq!(of(&before, &pod), Some(Resize::Wanted), "and back");
}

/// The API server writes a quantity in its own way.
#[test]
fn equal_quantities_are_equal() {
    let wanted = cluster(&json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}}));
    let mut pod = pod(&wanted, None);
    annotate(&mut pod, resize_asked(&wanted, ASKED_MS));
    let written = json!({"requests": {"cpu": "1", "ephemeral-storage": "64Mi", "memory": "1Gi"}});
    pod["spec"]["containers"][0]["resources"] = written.clone();
    pod["status"]["containerStatuses"][0]["resources"] = written;
    assert_eq!(of(&wanted, &pod), Some(Resize::Provided));
}

#[test]
fn all_else_needs_a_restart() {
    let before = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}});
    let pod = pod(&cluster(&before), None);
    for (why, after) in [
        (
            "the default quota follows the limit",
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "3Gi"}}),
        ),
        (
            "so do threads",
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}),
        ),
        (
            "a limit goes",
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
        ),
        (
            "another kind",
            json!({"requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}}),
        ),
        (
            "the class changes",
            json!({"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}}),
        ),
    ] {
        assert_eq!(of(&cluster(&after), &pod), None, "{why}");
    }
    let parts = json!({"requests": {"cpu": "600m", "memory": "2Gi"}, "limits": {"cpu": "1900m", "memory": "2Gi"}});
    assert_eq!(
        of(&cluster(&parts), &pod),
        Some(Resize::Wanted),
        "parts of a core"
    );
    let also = changed(&json!({"resources": parts, "version": "0.1.9"}));
    assert_eq!(of(&also, &pod), None, "another version");
}

/// A pod's class is that of all its containers.
#[test]
fn a_sidecar_decides_of_the_class() {
    let before =
        json!({"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    let after = cluster(
        &json!({"requests": {"cpu": "900m", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}),
    );
    let with = |sidecar: Value| of(&after, &pod(&cluster(&before), Some(sidecar)));
    assert_eq!(with(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), None);
    assert_eq!(with(json!({})), Some(Resize::Wanted));
}

/// A native sidecar is an init container: it was not counted, so that a change that alters the pod's class was asked for, which
/// the API server refuses.
#[test]
fn so_does_one_that_starts_first() {
    let before =
        json!({"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    let after = cluster(
        &json!({"requests": {"cpu": "900m", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}),
    );
    let with = |resources: Value| {
        let mut pod = pod(&cluster(&before), None);
        pod["spec"]["initContainers"] =
            json!([{"name": "mesh", "restartPolicy": "Always", "resources": resources}]);
        of(&after, &pod)
    };
    assert_eq!(with(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), None);
    assert_eq!(with(json!({})), Some(Resize::Wanted));
}

/// No kubelet has given it anything: another pod may come to another node.
#[test]
fn a_pod_that_never_ran_is_made_anew() {
    let mut pod = pod(&cluster(&json!({"requests": {"cpu": "64"}})), None);
    pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "ErrImagePull"}});
    let after = cluster(&json!({"requests": {"cpu": "2"}}));
    assert_eq!(of(&after, &pod), None);
    let exited = json!({"terminated": {"exitCode": 1}});
    pod["status"]["containerStatuses"][0]["lastState"] = exited;
    assert_eq!(of(&after, &pod), Some(Resize::Wanted), "it has run before");
}

/// A pod of 0.1.0 does not record what needs a restart.
#[test]
fn a_pod_without_the_record_is_restarted() {
    let mut pod = pod(&cluster(&json!({"requests": {"cpu": "1"}})), None);
    annotate(&mut pod, json!({"quorate.dev/restart-inputs": null}));
    assert_eq!(of(&cluster(&json!({"requests": {"cpu": "2"}})), &pod), None);
}
