//! The Secret by which an application connects as a user: endpoints, CA, password, certificate, and on request the flags
//! of a kube-apiserver and a DataStore of Kamaji. Never makes a password or a key.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::certificates::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, CERTIFICATE_KEY};
use super::member::{client_endpoint, slot_endpoints};
use crate::crd::access::{KamajiDataStore, KubeApiserverFlags, UserConnection};
use crate::crd::{
    ANNOTATION_PASSWORD_MADE, APP, LABEL_USER, MANAGER, TlsPort, ValidatedCluster,
    authority_secret_name,
};

/// Key of the Secret's data: the URLs of the cluster, separated by commas.
pub const ENDPOINTS: &str = "endpoints";
/// The user's name in the cluster.
pub const USERNAME: &str = "username";
/// The password.
pub const PASSWORD: &str = "password";
/// Flags of a kube-apiserver, a line each.
pub const KUBE_APISERVER_FLAGS: &str = "kube-apiserver.flags";
/// A DataStore of Kamaji as YAML.
pub const KAMAJI_DATASTORE: &str = "kamaji-datastore.yaml";

/// Every key that is ours: any other in the Secret is left alone.
pub const CONNECTION_KEYS: [&str; 8] = [
    ENDPOINTS,
    USERNAME,
    PASSWORD,
    CA_CERTIFICATES,
    CERTIFICATE,
    CERTIFICATE_KEY,
    KUBE_APISERVER_FLAGS,
    KAMAJI_DATASTORE,
];

/// What the Secret of one user holds.
#[derive(Clone, Copy)]
pub struct ConnectionContent<'a> {
    /// The cluster.
    pub cluster: &'a ValidatedCluster,
    /// The user's name there.
    pub user: &'a str,
    /// Name of the Secret.
    pub secret: &'a str,
    /// What is asked for.
    pub asked: Option<&'a UserConnection>,
    /// The CAs that sign the members' certificates; without them the cluster has no TLS.
    pub authorities: Option<&'a str>,
    /// The password.
    pub password: Option<&'a str>,
    /// The certificate and its key, PEM.
    pub certificate: Option<(&'a str, &'a str)>,
}

/// The data, by their keys.
#[must_use]
pub fn connection_data(content: ConnectionContent<'_>) -> BTreeMap<String, String> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, text: String| drop(data.insert(key.to_owned(), text));
    put(ENDPOINTS, client_endpoint(content.cluster));
    put(USERNAME, content.user.to_owned());
    if let Some(password) = content.password {
        put(PASSWORD, password.to_owned());
    }
    if let Some(authorities) = content.authorities {
        put(CA_CERTIFICATES, authorities.to_owned());
    }
    if let Some((certificate, key)) = content.certificate {
        put(CERTIFICATE, certificate.to_owned());
        put(CERTIFICATE_KEY, key.to_owned());
    }
    if let Some(asked) = content
        .asked
        .and_then(|asked| asked.kube_apiserver.as_ref())
    {
        put(KUBE_APISERVER_FLAGS, kube_apiserver_flags(content, asked));
    }
    if let Some(asked) = content.asked.and_then(|asked| asked.kamaji.as_ref()) {
        put(KAMAJI_DATASTORE, kamaji_datastore(content, asked));
    }
    data
}

/// The Secret with these data; `made`: when the operator made the password.
#[must_use]
pub fn connection_secret(
    content: ConnectionContent<'_>,
    (resource, owner): (&str, OwnerReference),
    made: Option<String>,
) -> Secret {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = [
        label("app.kubernetes.io/name", APP),
        label("app.kubernetes.io/managed-by", MANAGER),
        label("app.kubernetes.io/component", "connection"),
        label(LABEL_USER, &label_value(resource)),
    ];
    let annotations = made.map(|made| [(ANNOTATION_PASSWORD_MADE.to_owned(), made)].into());
    let data = connection_data(content);
    let bytes = |(key, text): (String, String)| (key, ByteString(text.into_bytes()));
    Secret {
        metadata: ObjectMeta {
            name: Some(content.secret.to_owned()),
            namespace: Some(content.cluster.namespace.clone()),
            labels: Some(labels.into()),
            annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(data.into_iter().map(bytes).collect()),
        ..Secret::default()
    }
}

/// A label's value has at most 63 characters.
fn label_value(name: &str) -> String {
    let short: String = name.chars().take(63).collect();
    short.trim_end_matches(['-', '.']).to_owned()
}

/// Each voter by its own address, so that its client notices one that is away; all by the Service while there is none.
fn addresses(cluster: &ValidatedCluster) -> Vec<String> {
    let slots = slot_endpoints(cluster);
    match slots.is_empty() {
        true => vec![client_endpoint(cluster)],
        false => slots,
    }
}

fn kube_apiserver_flags(content: ConnectionContent<'_>, asked: &KubeApiserverFlags) -> String {
    let file = |name: &str| format!("{}/{name}", asked.mount_path.trim_end_matches('/'));
    let mut flags = vec![
        format!("--etcd-servers={}", addresses(content.cluster).join(",")),
        format!("--etcd-prefix={}", asked.prefix),
    ];
    if content.authorities.is_some() {
        flags.push(format!("--etcd-cafile={}", file(CA_CERTIFICATES)));
    }
    if content.certificate.is_some() {
        flags.push(format!("--etcd-certfile={}", file(CERTIFICATE)));
        flags.push(format!("--etcd-keyfile={}", file(CERTIFICATE_KEY)));
    }
    flags.join("\n") + "\n"
}

/// JSON, which is YAML too.
fn kamaji_datastore(content: ConnectionContent<'_>, asked: &KamajiDataStore) -> String {
    let cluster = content.cluster;
    let within = |secret: &str, key: &str| {
        let reference = json!({"name": secret, "namespace": cluster.namespace, "keyPath": key});
        json!({ "secretReference": reference })
    };
    let without_scheme = |url: String| {
        let host = url.split_once("://").map(|(_, host)| host.to_owned());
        host.unwrap_or(url)
    };
    let endpoints: Vec<String> = addresses(cluster).into_iter().map(without_scheme).collect();
    let authority = authority_secret_name(&cluster.name, TlsPort::Client);
    let mut spec = json!({"driver": "etcd", "endpoints": endpoints});
    if content.authorities.is_some() {
        spec["tlsConfig"]["certificateAuthority"] = json!({
            "certificate": within(&authority, CA_CERTIFICATES),
            "privateKey": within(&authority, CA_KEY),
        });
    }
    if content.certificate.is_some() {
        spec["tlsConfig"]["clientCertificate"] = json!({
            "certificate": within(content.secret, CERTIFICATE),
            "privateKey": within(content.secret, CERTIFICATE_KEY),
        });
    }
    let store = json!({
        "apiVersion": "kamaji.clastix.io/v1alpha1",
        "kind": "DataStore",
        "metadata": {"name": asked.name},
        "spec": spec,
    });
    format!("{store:#}\n")
}
