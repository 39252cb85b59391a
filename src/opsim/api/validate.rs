//! What the API server refuses: malformed objects, fields that must not change, values that a kind
//! does not allow. As much of it as what the operator and its users write can run into.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::schema;
use super::selector::label_selector_fits;
use super::server::ApiServer;
use crate::server::tls::certificates::Certificate;

/// Whether it is an object of this kind at all.
pub(super) fn shape_of(kind: Kind, object: &Value) -> Result<(), Refusal> {
    if !object.is_object() || !object["metadata"].is_object() {
        return Err(Refusal::bad_request("the body is not an object"));
    }
    let given = object::text(object, &["kind"]);
    let version = object::text(object, &["apiVersion"]);
    let fits = (given.is_empty() || given == kind.name())
        && (version.is_empty() || version == kind.api_version());
    if fits {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "{version} {given} is not {} {}",
        kind.api_version(),
        kind.name()
    )))
}

/// Whether a creation's own status counts for nothing.
pub(super) fn resets_status(kind: Kind) -> bool {
    // A Node and a volume are created by those who know their state.
    kind.facts().status && !matches!(kind, Kind::Node | Kind::PersistentVolume)
}

/// Whether a PUT without a `resourceVersion` replaces whatever is there.
pub(super) fn may_be_unconditional(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Lease | Kind::PodDisruptionBudget | Kind::Certificate
    ) && !kind.is_ours()
}

/// Looks at a new object.
pub(super) fn on_create(server: &ApiServer, kind: Kind, object: &Value) -> Result<(), Refusal> {
    let _ = server;
    always(kind, object)?;
    match kind {
        _ if kind.is_ours() => schema::obeys(kind, None, object),
        _ => Ok(()),
    }
}

/// Looks at a new version of an object.
pub(super) fn on_update(
    server: &ApiServer,
    kind: Kind,
    old: &Value,
    object: &Value,
) -> Result<(), Refusal> {
    always(kind, object)?;
    let refuse =
        |field: &str, why: &str| Err(Refusal::invalid(kind, object::name(old), field, why));
    if object::is_deleting(old) {
        let mut held = object::finalizers(object);
        if held.any(|new| object::finalizers(old).all(|old| old != new)) {
            let why = "Forbidden: no new finalizers can be added if the object is being deleted";
            return refuse("metadata.finalizers", why);
        }
    }
    match kind {
        Kind::Secret => {
            if old["type"] != object["type"] {
                return refuse("type", "field is immutable");
            }
            let immutable = old["immutable"] == Value::Bool(true);
            if immutable
                && (old["data"] != object["data"] || object["immutable"] != old["immutable"])
            {
                return refuse(
                    "data",
                    "Forbidden: field is immutable when `immutable` is set",
                );
            }
        }
        _ if kind.is_ours() => schema::obeys(kind, Some(old), object)?,
        Kind::Job => job_change(old, object)?,
        Kind::StatefulSet => stateful_set_change(old, object)?,
        Kind::PersistentVolumeClaim => pvc_change(server, old, object)?,
        Kind::Service => {
            let address = |object: &Value| object::at(object, &["spec", "clusterIP"]).cloned();
            if address(old) != address(object) {
                return refuse("spec.clusterIP", "Invalid value: field is immutable");
            }
        }
        Kind::Pod => pod_change(old, object)?,
        Kind::ClusterTrustBundle if old["spec"]["signerName"] != object["spec"]["signerName"] => {
            return refuse("spec.signerName", "Invalid value: field is immutable");
        }
        Kind::StorageClass => {
            for field in [
                "provisioner",
                "parameters",
                "reclaimPolicy",
                "volumeBindingMode",
            ] {
                if old[field] != object[field] {
                    return refuse(field, "Forbidden: updates to this field are forbidden.");
                }
            }
        }
        Kind::Event => {
            for field in [
                "action",
                "reason",
                "regarding",
                "reportingController",
                "note",
                "type",
            ] {
                if old[field] != object[field] {
                    return refuse(field, "field is immutable");
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn always(kind: Kind, object: &Value) -> Result<(), Refusal> {
    let name = object::name(object);
    let refuse = |field: &str, why: &str| Err(Refusal::invalid(kind, name, field, why));
    if kind.is_namespaced() && object::namespace(object).is_empty() {
        return refuse("metadata.namespace", "Required value");
    }
    // The name begins with that of its signer.
    if kind == Kind::ClusterTrustBundle {
        trust_bundle(object)?;
    } else if !is_name(kind, name) {
        return refuse(
            "metadata.name",
            "Invalid value: not a lowercase RFC 1123 name",
        );
    }
    let meta = &object["metadata"];
    labels(kind, name, "metadata.labels", &meta["labels"])?;
    annotations(kind, name, "metadata.annotations", &meta["annotations"])?;
    let owners = object::owners(object);
    for owner in owners {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if object::text(owner, &[field]).is_empty() {
                return refuse(
                    "metadata.ownerReferences",
                    "Invalid value: must not be empty",
                );
            }
        }
    }
    let controlling = |owner: &&Value| owner["controller"] == Value::Bool(true);
    if owners.iter().filter(controlling).count() > 1 {
        let why = "Invalid value: Only one reference can have Controller set to true";
        return refuse("metadata.ownerReferences", why);
    }
    match kind {
        _ if kind.is_ours() => schema::check(kind, object),
        Kind::Job => job(object),
        Kind::StatefulSet => stateful_set(object),
        Kind::Pod => pod_spec(kind, name, "spec", &object["spec"]),
        Kind::PersistentVolumeClaim => pvc(object),
        Kind::Service => service(object),
        Kind::PodDisruptionBudget
            if object["spec"]["minAvailable"] != Value::Null
                && object["spec"]["maxUnavailable"] != Value::Null =>
        {
            let why = "Invalid value: minAvailable and maxUnavailable cannot be both set";
            refuse("spec", why)
        }
        Kind::Event => event(object),
        Kind::Lease => match object::number(object, &["spec", "leaseDurationSeconds"]) {
            Some(seconds) if seconds <= 0 => refuse(
                "spec.leaseDurationSeconds",
                "Invalid value: must be greater than 0",
            ),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// An answer to a kubelet: once, and as the certificate in it says.
pub(super) fn pod_certificate_request(
    now_ms: u64,
    old: &Value,
    object: &Value,
) -> Result<(), Refusal> {
    let kind = Kind::PodCertificateRequest;
    let refuse =
        |field: &str, why: &str| Err(Refusal::invalid(kind, object::name(old), field, why));
    let answered = ["Issued", "Denied", "Failed"];
    if answered.iter().any(|it| object::holds(old, it)) && old["status"] != object["status"] {
        return refuse("status", "Invalid value: immutable after it is answered");
    }
    if !object::holds(object, "Issued") || object::holds(old, "Issued") {
        return Ok(());
    }
    let chain = object::text(object, &["status", "certificateChain"]);
    let Ok(leaf) = Certificate::first(chain) else {
        return refuse("status.certificateChain", "Invalid value: no certificate");
    };
    if leaf.names.iter().any(|name| name.contains("..")) {
        let why = "Invalid value: leaf certificate's DNSName should not contain '..'";
        return refuse("status.certificateChain", why);
    }
    let time = |field: &str| {
        let at = object::time_ms(object, &["status", field]);
        at.and_then(|at| i64::try_from(at).ok()).unwrap_or_default()
    };
    let (begin, end, refresh) = (time("notBefore"), time("notAfter"), time("beginRefreshAt"));
    if (begin, end) != (leaf.not_before_ms, leaf.not_after_ms) {
        return refuse("status.notBefore", "Invalid value: not that of the leaf");
    }
    let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
    if (now - begin).abs() > 300_000 {
        let why = "Invalid value: must be set to within 5 minutes of kube-apiserver's current time";
        return refuse("status.notBefore", why);
    }
    let most = object::number(object, &["spec", "maxExpirationSeconds"]).unwrap_or(86_400);
    if !(3_600_000..=most * 1000).contains(&(end - begin)) {
        return refuse("status.certificateChain", "Invalid value: its lifetime");
    }
    if refresh < begin + 600_000 || refresh > end - 600_000 {
        return refuse(
            "status.beginRefreshAt",
            "Invalid value: too early or too late",
        );
    }
    Ok(())
}

/// A signer's ClusterTrustBundle: its name, and CAs that are each there once.
fn trust_bundle(object: &Value) -> Result<(), Refusal> {
    let kind = Kind::ClusterTrustBundle;
    let name = object::name(object);
    let refuse = |field: &str, why: &str| Err(Refusal::invalid(kind, name, field, why));
    let signer = object::text(object, &["spec", "signerName"]);
    let prefix = match signer {
        "" => String::new(),
        signer => format!("{}:", signer.replace('/', ":")),
    };
    let rest = name.strip_prefix(&prefix);
    if !rest.is_some_and(|rest| is_name(kind, rest)) {
        let why = format!("Invalid value: must be {prefix:?} and a lowercase RFC 1123 name");
        return refuse("metadata.name", &why);
    }
    let field = "spec.trustBundle";
    let Ok(authorities) = Certificate::all(object::text(object, &["spec", "trustBundle"])) else {
        return refuse(
            field,
            "Invalid value: entry does not parse as a certificate",
        );
    };
    let once: BTreeSet<&str> = authorities.iter().map(|one| one.sha256.as_str()).collect();
    if once.is_empty() || once.len() < authorities.len() {
        return refuse(
            field,
            "Invalid value: at least one trust anchor, and no duplicates",
        );
    }
    Ok(())
}

/// Names of paths' segments; Services are stricter, because they are DNS labels.
fn is_name(kind: Kind, name: &str) -> bool {
    let (most, dots) = match kind {
        Kind::Service => (63, false),
        _ => (253, true),
    };
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let fits = |c: u8| inner(c) || (dots && c == b'.');
    let edge = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let bytes = name.as_bytes();
    let letter_first = kind != Kind::Service || name.starts_with(|c: char| c.is_ascii_lowercase());
    bytes.len() <= most
        && bytes.iter().all(|c| fits(*c))
        && edge(bytes.first())
        && edge(bytes.last())
        && letter_first
}

/// Whether keys and values are those of labels.
fn labels(kind: Kind, name: &str, field: &str, labels: &Value) -> Result<(), Refusal> {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let (prefix, short) = key.rsplit_once('/').unwrap_or(("x", key));
        let good = is_label(short)
            && !short.is_empty()
            && is_name(Kind::Secret, prefix)
            && value.as_str().is_some_and(is_label);
        if !good {
            let why = format!("Invalid value: {key:?}: {value} is not a label");
            return Err(Refusal::invalid(kind, name, field, &why));
        }
    }
    Ok(())
}

/// Whether keys are those of annotations; their values are free.
fn annotations(kind: Kind, name: &str, field: &str, all: &Value) -> Result<(), Refusal> {
    let keys = all.as_object().into_iter().flatten();
    let keys: Value = keys
        .map(|(key, _)| (key.to_lowercase(), Value::from("")))
        .collect();
    labels(kind, name, field, &keys)
}

/// A label's value, or the name part of its key.
fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let edge = |c: Option<&u8>| c.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|c| inner(*c))
        && edge(bytes.first())
        && edge(bytes.last())
}

fn stateful_set(set: &Value) -> Result<(), Refusal> {
    let (kind, name, spec) = (Kind::StatefulSet, object::name(set), &set["spec"]);
    let template = &spec["template"];
    let selector = &spec["selector"];
    let empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
    if empty || !label_selector_fits(selector, template) {
        let why = "Invalid value: `selector` does not match template `labels`";
        return Err(Refusal::invalid(
            kind,
            name,
            "spec.template.metadata.labels",
            why,
        ));
    }
    if object::text(&template["spec"], &["restartPolicy"]) != "Always" {
        let field = "spec.template.spec.restartPolicy";
        return Err(Refusal::invalid(kind, name, field, "Unsupported value"));
    }
    let meta = &template["metadata"];
    labels(kind, name, "spec.template.labels", &meta["labels"])?;
    annotations(
        kind,
        name,
        "spec.template.annotations",
        &meta["annotations"],
    )?;
    pod_spec(kind, name, "spec.template.spec", &template["spec"])
}

fn stateful_set_change(old: &Value, new: &Value) -> Result<(), Refusal> {
    const FREE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |set: &Value| -> Value {
        let mut spec = set["spec"].clone();
        for field in FREE {
            object::take(&mut spec, &[field]);
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Ok(());
    }
    let why = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    Err(Refusal::invalid(
        Kind::StatefulSet,
        object::name(old),
        "spec",
        why,
    ))
}

/// Its pods end: they are not started again by their node for ever.
fn job(job: &Value) -> Result<(), Refusal> {
    let (kind, name) = (Kind::Job, object::name(job));
    let template = &job["spec"]["template"];
    let policy = object::text(&template["spec"], &["restartPolicy"]);
    let refuse = |field: &str, why: &str| Err(Refusal::invalid(kind, name, field, why));
    if !matches!(policy, "Never" | "OnFailure") {
        let why = "Required value: valid values: \"OnFailure\", \"Never\"";
        return refuse("spec.template.spec.restartPolicy", why);
    }
    if policy != "Never" && object::at(job, &["spec", "podFailurePolicy"]).is_some() {
        let why = "Invalid value: only \"Never\" is supported when podFailurePolicy is specified";
        return refuse("spec.template.spec.restartPolicy", why);
    }
    // Its pods are named after it, with a label of its name.
    if name.len() > 63 {
        return refuse(
            "metadata.name",
            "Invalid value: must be no more than 63 characters",
        );
    }
    let meta = &template["metadata"];
    labels(kind, name, "spec.template.labels", &meta["labels"])?;
    pod_spec(kind, name, "spec.template.spec", &template["spec"])
}

fn job_change(old: &Value, new: &Value) -> Result<(), Refusal> {
    if old["spec"]["template"] == new["spec"]["template"] {
        return Ok(());
    }
    let (kind, name) = (Kind::Job, object::name(old));
    let why = "Invalid value: field is immutable";
    Err(Refusal::invalid(kind, name, "spec.template", why))
}

fn pod_spec(kind: Kind, name: &str, at: &str, spec: &Value) -> Result<(), Refusal> {
    let refuse = |field: &str, why: String| {
        Err(Refusal::invalid(kind, name, &format!("{at}.{field}"), &why))
    };
    if object::items(spec, &["containers"]).is_empty() {
        return refuse("containers", "Required value".into());
    }
    labels(
        kind,
        name,
        &format!("{at}.nodeSelector"),
        &spec["nodeSelector"],
    )?;
    let volumes = object::items(spec, &["volumes"]);
    for container in object::items(spec, &["containers"]) {
        if object::text(container, &["image"]).is_empty() {
            return refuse("containers[0].image", "Required value".into());
        }
        for mount in object::items(container, &["volumeMounts"]) {
            if !volumes.iter().any(|volume| volume["name"] == mount["name"]) {
                return refuse("containers[0].volumeMounts[0].name", "Not found".into());
            }
        }
        resources(&container["resources"])
            .or_else(|why| refuse("containers[0].resources.requests", why))?;
    }
    for rule in object::items(spec, &["topologySpreadConstraints"]) {
        if object::number(rule, &["maxSkew"]).unwrap_or(0) <= 0 {
            let why = "Invalid value: 0: must be greater than zero";
            return refuse("topologySpreadConstraints[0].maxSkew", why.into());
        }
    }
    for toleration in object::items(spec, &["tolerations"]) {
        let text = |field: &str| object::text(toleration, &[field]);
        let exists = text("operator") == "Exists";
        if text("key").is_empty() && !exists {
            let why = "Invalid value: operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            return refuse("tolerations[0].operator", why.into());
        }
        if exists && !text("value").is_empty() {
            let why = "Invalid value: value must be empty when `operator` is 'Exists'";
            return refuse("tolerations[0].operator", why.into());
        }
        if toleration.get("tolerationSeconds").is_some() && text("effect") != "NoExecute" {
            let why = "Invalid value: effect must be 'NoExecute' when `tolerationSeconds` is set";
            return refuse("tolerations[0].effect", why.into());
        }
    }
    Ok(())
}

/// Quantities are such, and requests not above limits.
pub(super) fn resources(resources: &Value) -> Result<(), String> {
    let limits = &resources["limits"];
    for part in [&resources["requests"], limits] {
        let mut all = part.as_object().into_iter().flatten();
        if let Some((_, wrong)) = all.find(|(_, quantity)| amount(quantity).is_none()) {
            return Err(format!("Invalid value: {wrong}: not a quantity"));
        }
    }
    for (what, asked) in resources["requests"].as_object().into_iter().flatten() {
        let (Some(asked), Some(limit)) = (amount(asked), limits.get(what).and_then(amount)) else {
            continue;
        };
        if asked > limit {
            return Err(format!(
                "Invalid value: must be less than or equal to {what} limit of {}",
                limits[what]
            ));
        }
    }
    Ok(())
}

/// A quantity in thousandths; `None` when it is none.
pub(super) fn amount(quantity: &Value) -> Option<i128> {
    let text = match quantity {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let end = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor: i128 = match unit {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = whole.parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part: i128 = if part.is_empty() {
        0
    } else {
        part.parse().ok()?
    };
    Some(whole * factor + part * factor / scale)
}

fn pod_change(old: &Value, new: &Value) -> Result<(), Refusal> {
    let fixed = |pod: &Value| -> Value {
        let mut spec = pod["spec"].clone();
        for field in [
            "tolerations",
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
        ] {
            object::take(&mut spec, &[field]);
        }
        for container in object::items_mut(&mut spec, "containers") {
            object::take(container, &["image"]);
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Ok(());
    }
    let why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations)";
    Err(Refusal::invalid(Kind::Pod, object::name(old), "spec", why))
}

const STORAGE: &[&str] = &["spec", "resources", "requests", "storage"];

fn pvc(pvc: &Value) -> Result<(), Refusal> {
    let refuse = |field: &str, why: &str| {
        let name = object::name(pvc);
        Err(Refusal::invalid(
            Kind::PersistentVolumeClaim,
            name,
            field,
            why,
        ))
    };
    if object::items(pvc, &["spec", "accessModes"]).is_empty() {
        return refuse(
            "spec.accessModes",
            "Required value: at least 1 access mode is required",
        );
    }
    match object::at(pvc, STORAGE).and_then(amount) {
        Some(asked) if asked > 0 => Ok(()),
        _ => refuse(
            "spec.resources[storage]",
            "Invalid value: must be greater than zero",
        ),
    }
}

/// Only the size may change, upwards, where the class lets volumes grow.
fn pvc_change(server: &ApiServer, old: &Value, new: &Value) -> Result<(), Refusal> {
    let (kind, name) = (Kind::PersistentVolumeClaim, object::name(old));
    let fixed = |pvc: &Value| -> Value {
        let mut spec = pvc["spec"].clone();
        object::take(&mut spec, &["resources"]);
        // A PVC that was made before there was a default class may be given one.
        if old["spec"].get("storageClassName").is_none() {
            object::take(&mut spec, &["storageClassName"]);
        }
        spec
    };
    let (before, after) = (
        object::at(old, STORAGE).and_then(amount),
        object::at(new, STORAGE).and_then(amount),
    );
    let bound = object::text(old, &["status", "phase"]) == "Bound";
    if fixed(old) != fixed(new) || (before != after && !bound) {
        let why = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        return Err(Refusal::invalid(kind, name, "spec", why));
    }
    if after < before {
        let why = "Forbidden: field can not be less than status.capacity";
        return Err(Refusal::invalid(
            kind,
            name,
            "spec.resources.requests.storage",
            why,
        ));
    }
    if after == before {
        return Ok(());
    }
    let class = object::text(old, &["spec", "storageClassName"]);
    let class = server.get(Kind::StorageClass, "", class);
    if class.is_some_and(|class| class["allowVolumeExpansion"] == Value::Bool(true)) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(Refusal::forbidden(kind, name, why))
}

fn service(service: &Value) -> Result<(), Refusal> {
    let refuse = |field: &str, why: &str| {
        Err(Refusal::invalid(
            Kind::Service,
            object::name(service),
            field,
            why,
        ))
    };
    let ports = object::items(service, &["spec", "ports"]);
    let headless = object::text(service, &["spec", "clusterIP"]) == "None";
    if ports.is_empty() && !headless {
        return refuse("spec.ports", "Required value");
    }
    for (at, port) in ports.iter().enumerate() {
        let same = |other: &Value| other["name"] == port["name"];
        if ports.iter().skip(at + 1).any(same) {
            return refuse("spec.ports[1].name", "Duplicate value");
        }
    }
    if headless && object::text(service, &["spec", "type"]) != "ClusterIP" {
        let why = "Invalid value: may not be set to 'None' for this type";
        return refuse("spec.clusterIPs[0]", why);
    }
    Ok(())
}

fn event(event: &Value) -> Result<(), Refusal> {
    let refuse = |field: &str, why: &str| {
        Err(Refusal::invalid(
            Kind::Event,
            object::name(event),
            field,
            why,
        ))
    };
    for field in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        if object::text(event, &[field]).is_empty() {
            return refuse(field, "Required value");
        }
    }
    for (field, most) in [("note", 1024), ("action", 128), ("reason", 128)] {
        if object::text(event, &[field]).len() > most {
            let why = format!("Invalid value: can have at most {most} characters");
            return refuse(field, &why);
        }
    }
    Ok(())
}
