//! Who may reach the members over the network: one NetworkPolicy a cluster, over all of its members'
//! pods. What it does not name is refused by networks that enforce policies; others ignore it.
//!
//! The peer port is open to the other members, the operator and Jobs that save the cluster or give it data, the metrics port to the peers named in the resource,
//! the client port to everyone unless the resource restricts it. Probes come from the kubelet, and traffic from a pod's
//! own node is allowed by Kubernetes' rules. Egress is not restricted.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{APP, LABEL_BACKUP_OF, ValidatedCluster, network_policy_name};

use super::backup_job::BACKUP_COMPONENT;
use super::common::{
    CLIENT_PORT, METRICS_PORT, PEER_PORT, Settings, metadata, policy_inputs, selector, strings,
};

/// The label that identifies a namespace.
const NAMESPACE: &str = "kubernetes.io/metadata.name";

/// The policy over the members' pods.
pub fn network_policy(cluster: &ValidatedCluster, settings: &Settings) -> NetworkPolicy {
    let access = &cluster.spec.network_policy;
    let name = network_policy_name(&cluster.name);
    let inputs = policy_inputs(cluster, settings);
    let mut ingress = vec![
        rule(PEER_PORT, peers(cluster, settings)),
        rule(CLIENT_PORT, access.clients.clone()),
    ];
    if !access.metrics.is_empty() {
        ingress.push(rule(METRICS_PORT, access.metrics.clone()));
    }
    NetworkPolicy {
        metadata: metadata(cluster, name, &inputs),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(selector(cluster)),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            egress: None,
        }),
    }
}

/// The other members, Jobs that save the cluster, and the operator's pods. The address of an operator outside of Kubernetes is unknown: then the
/// port has to be open to all.
fn peers(cluster: &ValidatedCluster, settings: &Settings) -> Vec<NetworkPolicyPeer> {
    let Some(namespace) = &settings.operator_namespace else {
        return Vec::new();
    };
    let select = |labels: &[(&str, &str)]| {
        Some(LabelSelector {
            match_labels: Some(strings(labels)),
            ..LabelSelector::default()
        })
    };
    let members = NetworkPolicyPeer {
        pod_selector: Some(LabelSelector {
            match_labels: Some(selector(cluster)),
            ..LabelSelector::default()
        }),
        ..NetworkPolicyPeer::default()
    };
    let backups = NetworkPolicyPeer {
        pod_selector: select(&[
            ("app.kubernetes.io/component", BACKUP_COMPONENT),
            (LABEL_BACKUP_OF, &cluster.life),
        ]),
        ..NetworkPolicyPeer::default()
    };
    let operator = NetworkPolicyPeer {
        namespace_selector: select(&[(NAMESPACE, namespace)]),
        pod_selector: select(&[
            ("app.kubernetes.io/component", "operator"),
            ("app.kubernetes.io/name", APP),
        ]),
        ip_block: None,
    };
    vec![members, operator, backups]
}

/// A port and who may reach it; empty: everyone.
fn rule(port: u16, from: Vec<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: (!from.is_empty()).then_some(from),
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(i32::from(port))),
            protocol: Some("TCP".to_owned()),
            end_port: None,
        }]),
    }
}
