//! Addresses and the command line of a member in Kubernetes.

use crate::crd::{
    ValidatedCluster, client_service_name, peers_service_name, pod_name, slot_service_name,
};

use super::certificates::{self, scheme};
use super::common::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use super::pod::{DATA_FOLDER, KEY_FILE};
use super::server;

/// DNS name of a member's pod, for as long as the member exists.
pub fn host(cluster: &ValidatedCluster, member: &str) -> String {
    let service = peers_service_name(&cluster.name);
    format!("{}.{service}.{}.svc", pod_name(member), cluster.namespace)
}

/// URL under which the others dial a member, with TLS or without.
pub fn peer_url(cluster: &ValidatedCluster, member: &str, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{}:{PEER_PORT}", host(cluster, member))
}

/// URL that a member advertises to clients.
pub fn client_url(cluster: &ValidatedCluster, member: &str) -> String {
    format!(
        "{}://{}:{CLIENT_PORT}",
        scheme(cluster),
        host(cluster, member)
    )
}

/// URL of the client Service.
pub fn client_endpoint(cluster: &ValidatedCluster) -> String {
    let service = client_service_name(&cluster.name);
    let (scheme, namespace) = (scheme(cluster), &cluster.namespace);
    format!("{scheme}://{service}.{namespace}.svc:{CLIENT_PORT}")
}

/// URLs of the slots that a cluster of this size has.
pub fn slot_endpoints(cluster: &ValidatedCluster) -> Vec<String> {
    let slots = u32::try_from(cluster.target()).unwrap_or(0);
    let url = |slot| {
        let service = slot_service_name(&cluster.name, slot);
        let (scheme, namespace) = (scheme(cluster), &cluster.namespace);
        format!("{scheme}://{service}.{namespace}.svc:{CLIENT_PORT}")
    };
    (0..slots).map(url).collect()
}

/// Arguments of a member's server. `plaintext_peers`: it accepts connections without TLS on its peer port too, until
/// all members are dialled with TLS. `$(POD_UID)` is filled in by the kubelet.
pub fn server_arguments(
    cluster: &ValidatedCluster,
    member: &str,
    plaintext_peers: bool,
) -> Vec<String> {
    let peers = peers_service_name(&cluster.name);
    let scheme = scheme(cluster);
    let secure = cluster.spec.tls.is_some() && !plaintext_peers;
    let mut arguments = vec![
        "server".to_owned(),
        format!("--name={member}"),
        format!("--data-dir={DATA_FOLDER}/data"),
        format!("--listen-peer-urls={scheme}://0.0.0.0:{PEER_PORT}"),
        format!(
            "--initial-advertise-peer-urls={}",
            peer_url(cluster, member, secure)
        ),
        format!("--listen-client-urls={scheme}://0.0.0.0:{CLIENT_PORT}"),
        format!("--advertise-client-urls={}", client_url(cluster, member)),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
        "--await-membership".to_owned(),
        format!("--join-from={peers}.{}.svc:{PEER_PORT}", cluster.namespace),
        format!("--cluster-uid={}", cluster.life),
        "--pod-uid=$(POD_UID)".to_owned(),
        format!("--expected-hostname={}", pod_name(member)),
        format!("--operator-secret-file={KEY_FILE}"),
        "--termination-message-file=/dev/termination-log".to_owned(),
    ];
    arguments.extend(certificates::arguments(cluster));
    if plaintext_peers {
        arguments.push(certificates::TRANSITION.to_owned());
    }
    arguments.extend(server::container_flags(&cluster.spec.server));
    arguments
}
