//! Addresses and the command line of a member in Kubernetes.

use crate::crd::{
    ValidatedCluster, client_service_name, peers_service_name, pod_name, slot_service_name,
};

use super::common::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use super::pod::{DATA_FOLDER, KEY_FILE};

/// DNS name of a member's pod, for as long as the member lives.
pub fn host(cluster: &ValidatedCluster, member: &str) -> String {
    let service = peers_service_name(&cluster.name);
    format!("{}.{service}.{}.svc", pod_name(member), cluster.namespace)
}

/// URL that a member advertises to the others, and under which it is added.
pub fn peer_url(cluster: &ValidatedCluster, member: &str) -> String {
    format!("http://{}:{PEER_PORT}", host(cluster, member))
}

/// URL that a member advertises to clients.
pub fn client_url(cluster: &ValidatedCluster, member: &str) -> String {
    format!("http://{}:{CLIENT_PORT}", host(cluster, member))
}

/// URL of the client Service.
pub fn client_endpoint(cluster: &ValidatedCluster) -> String {
    let service = client_service_name(&cluster.name);
    format!("http://{service}.{}.svc:{CLIENT_PORT}", cluster.namespace)
}

/// URLs of the slots that a cluster of this size has.
pub fn slot_endpoints(cluster: &ValidatedCluster) -> Vec<String> {
    let slots = u32::try_from(cluster.target()).unwrap_or(0);
    let url = |slot| {
        let service = slot_service_name(&cluster.name, slot);
        format!("http://{service}.{}.svc:{CLIENT_PORT}", cluster.namespace)
    };
    (0..slots).map(url).collect()
}

/// Arguments of a member's server. `$(POD_UID)` is filled in by the kubelet.
pub fn server_arguments(cluster: &ValidatedCluster, member: &str) -> Vec<String> {
    let peers = peers_service_name(&cluster.name);
    vec![
        "server".to_owned(),
        format!("--name={member}"),
        format!("--data-dir={DATA_FOLDER}/data"),
        format!("--listen-peer-urls=http://0.0.0.0:{PEER_PORT}"),
        format!(
            "--initial-advertise-peer-urls={}",
            peer_url(cluster, member)
        ),
        format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
        format!("--advertise-client-urls={}", client_url(cluster, member)),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
        "--await-membership".to_owned(),
        format!("--join-from={peers}.{}.svc:{PEER_PORT}", cluster.namespace),
        format!("--cluster-uid={}", cluster.uid),
        "--pod-uid=$(POD_UID)".to_owned(),
        format!("--expected-hostname={}", pod_name(member)),
        format!("--operator-secret-file={KEY_FILE}"),
        "--termination-message-file=/dev/termination-log".to_owned(),
    ]
}
