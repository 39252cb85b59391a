//! Checks blocks of YAML: a cluster must pass all rules of the API server and of the operator, a part of one must pass
//! as part of `spec`, and references to objects of a cluster must name objects that the operator creates.

use k8s_openapi::api::core::v1::Pod;
use kube::CustomResourceExt;
use kube::core::cel::{Validator, compile_schema};
use quorate::crd;
use quorate::operator::admission::admit;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Kinds of other projects that the pages use.
const OTHERS: &[(&str, &str)] = &[
    ("cert-manager.io/v1", "Certificate"),
    ("kamaji.clastix.io/v1alpha1", "DataStore"),
    ("kubeadm.k8s.io/v1beta4", "ClusterConfiguration"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
];

/// The problems of a block.
pub(crate) fn problems(text: &str) -> Vec<String> {
    let documents = text.split("\n---\n");
    documents.flat_map(document).collect()
}

fn document(text: &str) -> Vec<String> {
    let value: Value = match serde_saphyr::from_str(text) {
        Ok(value) => value,
        Err(error) => return vec![format!("not YAML: {error}")],
    };
    let word = |key: &str| value[key].as_str().unwrap_or_default();
    match (word("apiVersion"), word("kind")) {
        ("", "") => piece(&value),
        (_, "EtcdCluster") => cluster(text),
        (_, "EtcdRecovery") => other::<crd::EtcdRecovery>(&value),
        (_, "EtcdUser") => other::<crd::access::EtcdUser>(&value),
        (_, "EtcdRole") => other::<crd::access::EtcdRole>(&value),
        (_, "DataStore") if known(&value) => data_store(&value),
        ("v1", "Pod") => pod(&value),
        (version, kind) if !known(&value) => {
            vec![format!(
                "{version} {kind} is not known here: add it to this test"
            )]
        }
        _ => Vec::new(),
    }
}

fn known(value: &Value) -> bool {
    let word = |key: &str| value[key].as_str().unwrap_or_default();
    OTHERS.contains(&(word("apiVersion"), word("kind")))
}

/// Checks a part of a cluster's `spec` as part of a complete one.
pub(crate) fn piece(spec: &Value) -> Vec<String> {
    let whole = json!({
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {"name": "demo"},
        "spec": spec,
    });
    // JSON is valid YAML.
    cluster(&whole.to_string())
}

fn cluster(text: &str) -> Vec<String> {
    let mut cluster = match crd::parse(text) {
        Ok(cluster) => cluster,
        Err(error) => return vec![error.to_string()],
    };
    cluster
        .metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    cluster.metadata.uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    let refused = admit(&cluster).err();
    refused.map(|why| why.to_string()).into_iter().collect()
}

/// Checks the rules of the definition, and that every field is one of its own.
fn other<K: CustomResourceExt + DeserializeOwned + Serialize>(value: &Value) -> Vec<String> {
    let read: K = match serde_json::from_value(value.clone()) {
        Ok(read) => read,
        Err(error) => return vec![error.to_string()],
    };
    let written = serde_json::to_value(&read).expect("it was read");
    let written = &written["spec"];
    let schema = K::crd().spec.versions.remove(0).schema;
    let schema = schema.and_then(|schema| schema.open_api_v3_schema);
    let schema = serde_json::to_value(schema).expect("a schema");
    let mut problems = unknown(&value["spec"], written);
    if let Err(errors) = Validator::new().validate_compiled(&compile_schema(&schema), value, None) {
        problems.extend(errors.iter().map(|error| error.message.clone()));
    }
    problems
}

/// Fields of the first that the second does not have.
fn unknown(given: &Value, known: &Value) -> Vec<String> {
    let fields = given.as_object().into_iter().flatten();
    let of_field = |(name, inner): (&String, &Value)| match known.get(name) {
        Some(known) => unknown(inner, known),
        None => vec![format!("unknown field {name}")],
    };
    fields.flat_map(of_field).collect()
}

/// Checks that a pod has no fields that pods do not have, and that each ClusterTrustBundle that it mounts is one of a cluster.
fn pod(value: &Value) -> Vec<String> {
    let read: Pod = match serde_json::from_value(value.clone()) {
        Ok(read) => read,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = unknown(value, &serde_json::to_value(&read).expect("it was read"));
    let volumes = read
        .spec
        .into_iter()
        .flat_map(|spec| spec.volumes)
        .flatten();
    let sources = volumes.flat_map(|volume| volume.projected.and_then(|it| it.sources));
    for name in sources
        .flatten()
        .flat_map(|source| source.cluster_trust_bundle?.name)
    {
        let of = name
            .strip_prefix("quorate.dev:")
            .and_then(|rest| rest.strip_suffix(":client"));
        let of = of.and_then(|of| of.split_once('.'));
        let named = of.map(|(namespace, name)| crd::trust_bundle_name(namespace, name));
        if named.as_ref() != Some(&name) {
            problems.push(format!("{name} is no ClusterTrustBundle of a cluster"));
        }
    }
    problems
}

/// Checks references to a cluster's Services and Secrets, by their names and keys.
fn data_store(value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let endpoints = value["spec"]["endpoints"].as_array();
    let mut name = String::new();
    for (slot, endpoint) in endpoints.into_iter().flatten().enumerate() {
        let endpoint = endpoint.as_str().unwrap_or_default();
        let service = endpoint.split('.').next().unwrap_or_default();
        let end = format!("-client-{slot}");
        match service.strip_suffix(&end) {
            Some(cluster) => name = cluster.to_owned(),
            None => problems.push(format!("{endpoint} is no Service of a cluster")),
        }
        let slot = u32::try_from(slot).expect("few");
        if !name.is_empty() && crd::slot_service_name(&name, slot) != service {
            problems.push(format!("{endpoint} is no slot of {name}"));
        }
    }
    let authority = crd::authority_secret_name(&name, crd::TlsPort::Client);
    let user = crd::client_certificate_name(&name);
    let mut references = Vec::new();
    collect(&value["spec"]["tlsConfig"], &mut references);
    for reference in references {
        let word = |key: &str| reference[key].as_str().unwrap_or_default();
        let keys: &[&str] = match word("name") {
            name if name == authority => &["ca.crt", "ca.key", "tls.crt"],
            name if name == user => &["ca.crt", "tls.crt", "tls.key"],
            other => {
                problems.push(format!("{other} is no Secret of {name}"));
                continue;
            }
        };
        if !keys.contains(&word("keyPath")) {
            problems.push(format!(
                "Secret {} has no {}",
                word("name"),
                word("keyPath")
            ));
        }
    }
    problems
}

/// Every `secretReference` below a value.
fn collect<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "secretReference" => found.push(inner),
            _ => collect(inner, found),
        }
    }
}
