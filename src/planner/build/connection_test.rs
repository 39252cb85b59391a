//! What connection Secrets hold, for clusters with and without TLS, and what other programs read of them.

use serde_json::Value;

use super::{ConnectionContent, connection_data};
use crate::crd::access::{EtcdUser, EtcdUserSpec};
use crate::crd::{ValidatedCluster, parse, validate};

fn cluster(spec: &str) -> ValidatedCluster {
    let text = format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: demo, namespace: prod, uid: u}}\nspec: {spec}\n"
    );
    validate(&parse(&text).expect("it parses")).expect("it is valid")
}

fn spec(text: &str) -> EtcdUserSpec {
    let text = format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdUser\nmetadata: {{name: app}}\nspec: {text}\n"
    );
    let user: EtcdUser = serde_saphyr::from_str(&text).expect("a user");
    user.spec
}

#[test]
fn a_secret_has_what_is_asked_for_and_nothing_else() {
    let plain = cluster("{replicas: 3, storage: {size: 1Gi}}");
    let content = ConnectionContent {
        cluster: &plain,
        user: "app",
        secret: "app-connection",
        asked: None,
        authorities: None,
        password: Some("p"),
        certificate: None,
    };
    let data = connection_data(content);
    let keys: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(keys, ["endpoints", "password", "username"]);
    assert_eq!(data["endpoints"], "http://demo-client.prod.svc:2379");
}

#[test]
fn other_programs_find_the_files() {
    let secure = cluster("{replicas: 3, storage: {size: 1Gi}, tls: {}}");
    let asked = spec(
        "{clusterRef: {name: demo}, certificate: {}, connection: {kubeApiserver: {mountPath: /etc/etcd/}, kamaji: {name: tenants}}}",
    );
    let content = ConnectionContent {
        cluster: &secure,
        user: "app",
        secret: "app-connection",
        asked: asked.connection.as_ref(),
        authorities: Some("CA"),
        password: None,
        certificate: Some(("CRT", "KEY")),
    };
    let data = connection_data(content);
    let endpoints = "https://demo-client-0.prod.svc:2379,https://demo-client-1.prod.svc:2379,https://demo-client-2.prod.svc:2379";
    let flags: Vec<&str> = data["kube-apiserver.flags"].lines().collect();
    let servers = format!("--etcd-servers={endpoints}");
    let wanted = [
        servers.as_str(),
        "--etcd-prefix=/registry",
        "--etcd-cafile=/etc/etcd/ca.crt",
        "--etcd-certfile=/etc/etcd/tls.crt",
        "--etcd-keyfile=/etc/etcd/tls.key",
    ];
    assert_eq!(flags, wanted);
    let store: Value = serde_saphyr::from_str(&data["kamaji-datastore.yaml"]).expect("YAML");
    assert_eq!(store["kind"], "DataStore");
    assert_eq!(store["spec"]["endpoints"][2], "demo-client-2.prod.svc:2379");
    let reference = |path: &[&str]| {
        let at = path
            .iter()
            .fold(&store["spec"]["tlsConfig"], |at, key| &at[*key]);
        let at = &at["secretReference"];
        (at["name"].clone(), at["keyPath"].clone())
    };
    let is = |path: &[&str], name: &str, key: &str| {
        assert_eq!(reference(path), (name.into(), key.into()), "{path:?}");
    };
    is(
        &["certificateAuthority", "certificate"],
        "demo-client-ca",
        "ca.crt",
    );
    is(
        &["certificateAuthority", "privateKey"],
        "demo-client-ca",
        "ca.key",
    );
    is(
        &["clientCertificate", "certificate"],
        "app-connection",
        "tls.crt",
    );
    is(
        &["clientCertificate", "privateKey"],
        "app-connection",
        "tls.key",
    );
}
