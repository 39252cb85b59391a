//! From the stored resource to a validated cluster for the other rooms. Runs the same rules as the API server, because
//! an object can be older than its rules.

use std::sync::LazyLock;

use kube_core::cel::{CompiledSchema, ValidationErrors, Validator, compile_schema};

use super::autogrow::Growth;
use super::image::ImageReference;
use super::quantity::bytes_of;
use super::spec::{EtcdCluster, EtcdClusterSpec};
use super::tls::Tls;

/// A resource that passed every rule. Nothing after validation uses the raw object.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedCluster {
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// UID of the resource: that of its objects' owner, and of nothing else.
    pub uid: String,
    /// The UID that its members, their volumes and its objects' labels carry: its own, or the adopted one of a deleted
    /// resource. Whatever is compared with a label, a disk or an identity is compared with this one.
    pub life: String,
    /// Generation of the spec.
    pub generation: i64,
    /// The spec, within its rules.
    pub spec: EtcdClusterSpec,
    /// `spec.storage.size` in bytes.
    pub storage_bytes: u64,
}

impl ValidatedCluster {
    /// The number of voters that the user wants; 0 for a cluster that hibernates.
    pub fn target(&self) -> usize {
        usize::try_from(self.spec.replicas).unwrap_or(1)
    }

    /// When volumes grow by themselves, if they do.
    pub fn autogrow(&self) -> Option<Growth> {
        // It was checked that these are numbers.
        self.spec.storage.autogrow.as_ref()?.growth().ok()
    }
}

/// A resource that violates rules; each line names the field and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct Invalid {
    /// The violated rules.
    pub problems: Vec<String>,
}

/// The schema's rules, compiled once per process: compiling takes far longer than checking a resource.
static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&super::parse::schema()));

/// Checks a resource against the expressions of its schema.
pub(super) fn obeys_rules(cluster: &EtcdCluster) -> Result<(), ValidationErrors> {
    // All of its maps have string keys, so it can be written as JSON.
    let object = serde_json::to_value(cluster).expect("a resource is JSON");
    Validator::new().validate_compiled(&RULES, &object, None)
}

/// Checks a resource against every rule of its schema that is an expression.
///
/// # Errors
/// [`Invalid`] with one line per violated rule.
pub fn validate(cluster: &EtcdCluster) -> Result<ValidatedCluster, Invalid> {
    let mut problems = Vec::new();
    if let Err(errors) = obeys_rules(cluster) {
        for error in errors.iter() {
            problems.push(format!("{}: {}", error.field_path, error.message));
        }
    }
    let mut needed = |what: &str, value: Option<String>| {
        value.filter(|v| !v.is_empty()).unwrap_or_else(|| {
            problems.push(format!("metadata.{what}: missing"));
            String::new()
        })
    };
    let name = needed("name", cluster.metadata.name.clone());
    let namespace = needed("namespace", cluster.metadata.namespace.clone());
    let uid = needed("uid", cluster.metadata.uid.clone());
    if let Some(image) = &cluster.spec.image
        && let Err(error) = image.parse::<ImageReference>()
    {
        problems.push(format!("spec.image: {error}"));
    }
    let storage_bytes = match bytes_of(&cluster.spec.storage.size) {
        Ok(bytes) => bytes,
        Err(error) => {
            problems.push(format!("spec.storage.size: {error}"));
            0
        }
    };
    if let Some(autogrow) = &cluster.spec.storage.autogrow {
        problems.extend(autogrow.growth().err());
    }
    if let Some(quota) = &cluster.spec.server.quota
        && let Err(error) = bytes_of(quota)
    {
        problems.push(format!("spec.server.quota: {error}"));
    }
    for name in cluster.spec.tls.iter().flat_map(Tls::extra_sans) {
        // Only an IPv6 address has colons.
        if name.contains(':') && name.parse::<core::net::IpAddr>().is_err() {
            problems.push(format!(
                "spec.tls: {name:?} in extraSANs is no IP address: correct it, or take it out"
            ));
        }
    }
    problems.extend(cluster.spec.network_policy.problems());
    if !problems.is_empty() {
        return Err(Invalid { problems });
    }
    let generation = cluster.metadata.generation.unwrap_or(0);
    Ok(ValidatedCluster {
        namespace,
        name,
        uid,
        life: cluster.life().to_owned(),
        generation,
        spec: cluster.spec.clone(),
        storage_bytes,
    })
}
