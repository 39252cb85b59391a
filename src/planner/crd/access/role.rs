//! The resource `EtcdRole`: a role of a cluster with its permissions, and with no others.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DeletionPolicy;
use crate::crd::backups::LocalRef;
use crate::crd::schema;

/// A role of a cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdRole",
    plural = "etcdroles",
    shortname = "qrole",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdRoleStatus",
    derive = "PartialEq",
    doc = "A role of an EtcdCluster and what it permits. Has an effect on requests once authentication is enabled, by the EtcdUser root.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "Whose role it is"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", description = "Whether the cluster has it as specified"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "When it was created"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", description = "What happens now, or what is missing"),
    printcolumn(name = "Role", type_ = "string", json_path = ".status.roleName", priority = "1", description = "Its name in the cluster"),
    validation = kube_core::Rule::new("self.spec.clusterRef == oldSelf.spec.clusterRef && has(self.spec.roleName) == has(oldSelf.spec.roleName) && (!has(self.spec.roleName) || self.spec.roleName == oldSelf.spec.roleName)")
        .message("clusterRef and roleName cannot be changed: create another EtcdRole"),
    validation = kube_core::Rule::new("(has(self.spec.roleName) ? self.spec.roleName : self.metadata.name) != 'root'")
        .message("the role root may do everything and needs no resource: give users roles: [root], or choose another name")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRoleSpec {
    /// The EtcdCluster, in the same namespace.
    pub cluster_ref: LocalRef,
    /// The role's name in the cluster; by default that of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub role_name: Option<String>,
    /// What it permits. Whatever else the role has in the cluster is taken away.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub permissions: Vec<RolePermission>,
    /// What becomes of the role once this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// One permission: of a key, of all keys with a prefix, or of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("has(self.key) != has(self.prefix)", "give either key, or prefix: an empty prefix is that of all keys"),
    ("!has(self.rangeEnd) || has(self.key)", "rangeEnd is the end of a range that begins with key: give key, or take it out"),
])))]
pub struct RolePermission {
    /// To do what.
    pub access: KeyAccess,
    /// One key, or with `rangeEnd` the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub key: Option<String>,
    /// All keys that begin with this; an empty one is that of all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub prefix: Option<String>,
    /// The first key that is no longer permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub range_end: Option<String>,
}

/// What a permission allows. The order is that of etcd's numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum KeyAccess {
    /// To read and to watch.
    #[default]
    Read,
    /// To put and to delete.
    Write,
    /// Both.
    ReadWrite,
}

/// A span of keys as in a range request: an empty end is one key, one zero byte is open-ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The first key.
    pub key: Vec<u8>,
    /// The end.
    pub end: Vec<u8>,
}

/// What no schema can refuse of a role's permissions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    /// The same span twice.
    #[error("spec.permissions[{0}] is about the same keys as one before: give each span once")]
    Twice(usize),
    /// No key, or both a key and a prefix.
    #[error("spec.permissions[{0}] has to have either a key or a prefix")]
    NoKey(usize),
    /// The end of a range is not behind its beginning.
    #[error("spec.permissions[{0}]: rangeEnd has to be behind key")]
    Backwards(usize),
}

impl EtcdRoleSpec {
    /// What is permitted, by the span.
    ///
    /// # Errors
    /// [`PermissionError`] names the first that is wrong.
    pub fn spans(&self) -> Result<BTreeMap<KeySpan, KeyAccess>, PermissionError> {
        let mut spans = BTreeMap::new();
        for (at, permission) in self.permissions.iter().enumerate() {
            let span = permission.span(at)?;
            if spans.insert(span, permission.access).is_some() {
                return Err(PermissionError::Twice(at));
            }
        }
        Ok(spans)
    }
}

impl RolePermission {
    fn span(&self, at: usize) -> Result<KeySpan, PermissionError> {
        let (key, end) = match (&self.key, &self.prefix) {
            (None, Some(prefix)) => prefix_span(prefix.as_bytes()),
            (Some(key), None) if !key.is_empty() => {
                let end = self.range_end.clone().unwrap_or_default();
                if !end.is_empty() && end.as_bytes() <= key.as_bytes() {
                    return Err(PermissionError::Backwards(at));
                }
                (key.clone().into_bytes(), end.into_bytes())
            }
            _ => return Err(PermissionError::NoKey(at)),
        };
        Ok(KeySpan { key, end })
    }
}

/// etcdctl's `--prefix`: up to the first key that has another prefix.
fn prefix_span(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (prefix.to_vec(), end);
        }
    }
    let first = if prefix.is_empty() { &[0] } else { prefix };
    (first.to_vec(), vec![0])
}

/// State of a role as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdRoleStatus {
    /// What happens now and why, or what is missing and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the role in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,
    /// Ready: the cluster has the role with these permissions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
