//! The resource `EtcdUser`: a user of a cluster, the roles, how the user is known, and the Secret by which an
//! application connects. That of root also says whether authentication is enabled.

// The derive creates a public copy of the spec for its schema.
#![allow(unreachable_pub)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DeletionPolicy;
use crate::crd::backups::LocalRef;
use crate::crd::schema;

/// A user of a cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    group = "quorate.dev",
    version = "v1alpha1",
    kind = "EtcdUser",
    plural = "etcdusers",
    shortname = "qu",
    category = "quorate",
    namespaced,
    crates(kube_core = "::kube_core", kube = "::kube_derive"),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    cel,
    status = "EtcdUserStatus",
    derive = "PartialEq",
    doc = "A user of an EtcdCluster, and the Secret by which an application connects as that user.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "Whose user it is"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", description = "Whether the cluster has the user as specified"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.connectionSecret", description = "By which an application connects"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "When it was created"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", description = "What happens now, or what is missing"),
    printcolumn(name = "User", type_ = "string", json_path = ".status.userName", priority = "1", description = "The name in the cluster"),
    printcolumn(name = "Expires", type_ = "date", json_path = ".status.certificateExpires", priority = "1", description = "When the certificate does, if it is not renewed"),
    validation = kube_core::Rule::new("size(self.metadata.name) <= 240")
        .message("the name must have at most 240 characters, because a Secret is named after it: choose a shorter metadata.name"),
    validation = kube_core::Rule::new("has(self.spec.userName) || size(self.metadata.name) <= 64")
        .message("a user's name must have at most 64 characters, because it is the common name of a certificate: give userName, or choose a shorter metadata.name"),
    validation = kube_core::Rule::new("self.spec.clusterRef == oldSelf.spec.clusterRef && has(self.spec.userName) == has(oldSelf.spec.userName) && (!has(self.spec.userName) || self.spec.userName == oldSelf.spec.userName)")
        .message("clusterRef and userName cannot be changed: create another EtcdUser"),
    validation = kube_core::Rule::new("(has(self.spec.connection) && has(self.spec.connection.secretName) ? self.spec.connection.secretName : self.metadata.name + '-connection') == (has(oldSelf.spec.connection) && has(oldSelf.spec.connection.secretName) ? oldSelf.spec.connection.secretName : self.metadata.name + '-connection')")
        .message("connection.secretName cannot be changed: the Secret before would stay, with a certificate that holds; create another EtcdUser"),
    validation = kube_core::Rule::new("has(self.spec.password) || has(self.spec.certificate)")
        .message("say how the user is known: give password: {}, certificate: {}, or both"),
    validation = kube_core::Rule::new("!has(self.spec.authentication) || (has(self.spec.userName) ? self.spec.userName : self.metadata.name) == 'root'")
        .message("authentication is of the cluster, and set by the EtcdUser of root alone: take the field out"),
    validation = kube_core::Rule::new("!has(self.spec.connection) || !(has(self.spec.connection.kubeApiserver) || has(self.spec.connection.kamaji)) || has(self.spec.certificate)")
        .message("a kube-apiserver is known by a certificate: give certificate: {}, or take connection.kubeApiserver and connection.kamaji out")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdUserSpec {
    /// The EtcdCluster, in the same namespace.
    pub cluster_ref: LocalRef,
    /// The user's name in the cluster, and the common name of the certificate; by default the name of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub user_name: Option<String>,
    /// Names of the roles in the cluster. Any other that the user has there is taken away; root keeps the role root.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub roles: Vec<String>,
    /// The user is known by a password. Without it, by a certificate alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<UserPassword>,
    /// The user gets a certificate of the cluster's client CA. Only where the operator issues those of the client port
    /// (`tls.client.source: Operator`) and members ask for them (`tls.clientAuth: Required`); from any other CA, ask for one with the user as its common name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<UserCertificateSpec>,
    /// Of root alone: whether requests need a user. Enabled once root exists, has the role root and can prove to be root.
    /// Without it, that stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// The Secret by which an application connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<UserConnection>,
    /// What becomes of the user once this resource is deleted. While authentication is enabled, root stays in any case.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Where a password comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("!has(self.secretRef) || !has(self.rotateAfterDays)", "a password of yours is rotated by changing its Secret: take rotateAfterDays out"),
])))]
pub struct UserPassword {
    /// A key of a Secret with the password, of 1 to 72 bytes. Another content is another password within a minute. Without
    /// it, the operator makes one in the connection Secret; once that Secret is deleted, it makes another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<PasswordSecretRef>,
    /// Days after which the operator makes another password. Applications have to read the connection Secret again:
    /// logins with the old one are refused from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 3650", "rotateAfterDays must be 1 to 3650")])))]
    pub rotate_after_days: Option<i32>,
}

/// A key of a Secret in the namespace of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PasswordSecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "the name of a Secret holds only a-z, 0-9, '-' and '.'")])))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A certificate of the cluster's client CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserCertificateSpec {
    /// How many days each certificate holds. It is renewed in the connection Secret after two thirds of that.
    #[serde(default = "default_days")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 1 && self <= 90", "validityDays must be 1 to 90: after an exchange of the CA, members accept certificates of the one before for 91 days")])))]
    pub validity_days: i32,
}

fn default_days() -> i32 {
    90
}

/// Whether requests need a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Authentication {
    /// They do, as after `etcdctl auth enable`.
    Enabled,
    /// Everybody may do everything, as after `etcdctl auth disable`.
    Disabled,
}

/// The Secret by which an application connects: `endpoints`, `username`, `ca.crt`, and as they are asked for `password`,
/// `tls.crt` and `tls.key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserConnection {
    /// Its name; by default that of the resource with `-connection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "the name of a Secret holds only a-z, 0-9, '-' and '.'")])))]
    pub secret_name: Option<String>,
    /// With the flags of a kube-apiserver, a line each, in the key `kube-apiserver.flags`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_apiserver: Option<KubeApiserverFlags>,
    /// With a DataStore of Kamaji, as YAML in the key `kamaji-datastore.yaml`. It names the Secret with the cluster's
    /// client CA and its key, because Kamaji issues a certificate for each of its tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kamaji: Option<KamajiDataStore>,
}

/// How a kube-apiserver uses the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeApiserverFlags {
    /// Where the Secret is mounted.
    #[serde(default = "default_mount")]
    #[schemars(length(min = 1, max = 1024))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.startsWith('/')", "mountPath must be an absolute path")])))]
    pub mount_path: String,
    /// The prefix of its keys.
    #[serde(default = "default_prefix")]
    #[schemars(length(min = 1, max = 1024))]
    pub prefix: String,
}

fn default_mount() -> String {
    "/etc/kubernetes/etcd".to_owned()
}

fn default_prefix() -> String {
    "/registry".to_owned()
}

/// A DataStore of Kamaji.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KamajiDataStore {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "the name of a DataStore holds only a-z, 0-9, '-' and '.'")])))]
    pub name: String,
}

/// State of a user as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdUserStatus {
    /// What happens now and why, or what is missing and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the user in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// Name of the Secret by which an application connects, once it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_secret: Option<String>,
    /// When the certificate expires, if it is not renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub certificate_expires: Option<Time>,
    /// Whether requests need a user, as last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_enabled: Option<bool>,
    /// Ready: the cluster has the user with these roles, and the Secret leads there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
