//! The Services: a headless one that publishes every member, ready or not, so that members find
//! each other before they are ready; one for clients, of ready voters only; and the slots, each in
//! front of one voter, for clients that know all of them and cannot learn new names. The IP families that the
//! resource asks for are those of all of them.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{
    IpFamily, IpFamilyPolicy, LABEL_MEMBER, ServiceType, ValidatedCluster, client_service_name,
    peers_service_name, slot_service_name,
};
use crate::plan::ObjectKind;

use super::common::{
    CLIENT_PORT, METRICS_PORT, PEER_PORT, inputs_of, metadata, selector, wanted_slot_inputs,
};

/// The Service with this name other than the slots; `None` if the cluster has none with this name.
pub fn service(cluster: &ValidatedCluster, name: &str) -> Option<Service> {
    if name == peers_service_name(&cluster.name) {
        Some(peers_service(cluster))
    } else {
        (name == client_service_name(&cluster.name)).then(|| client_service(cluster))
    }
}

/// The headless Service that gives each member's pod its DNS name.
pub fn peers_service(cluster: &ValidatedCluster) -> Service {
    let name = peers_service_name(&cluster.name);
    let inputs = inputs_of(cluster, ObjectKind::Service, &name);
    Service {
        metadata: metadata(cluster, name, &inputs),
        spec: Some(ServiceSpec {
            ip_family_policy: policy(cluster),
            ip_families: families(cluster),
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector(cluster)),
            ports: Some(vec![
                port("peer", PEER_PORT),
                port("client", CLIENT_PORT),
                port("metrics", METRICS_PORT),
            ]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The Service for clients. A member is ready only as a voter with a recent linearizable read,
/// so readiness alone keeps learners and standbys out.
pub fn client_service(cluster: &ValidatedCluster) -> Service {
    let options = &cluster.spec.service;
    let name = client_service_name(&cluster.name);
    let inputs = inputs_of(cluster, ObjectKind::Service, &name);
    let mut metadata = metadata(cluster, name, &inputs);
    // The operator's own labels and annotations win over the user's.
    let own = metadata.labels.take().unwrap_or_default();
    metadata.labels = Some(options.labels.clone().into_iter().chain(own).collect());
    let own = metadata.annotations.take().unwrap_or_default();
    metadata.annotations = Some(options.annotations.clone().into_iter().chain(own).collect());
    let type_ = match options.type_ {
        ServiceType::ClusterIP => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            ip_family_policy: policy(cluster),
            ip_families: families(cluster),
            type_: Some(type_.to_owned()),
            selector: Some(selector(cluster)),
            ports: Some(vec![port("client", CLIENT_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The Service of a slot, in front of this member while it is ready. ClusterIP, whatever type `spec.service` sets for
/// the common one.
pub fn slot_service(cluster: &ValidatedCluster, slot: u32, member: &str) -> Service {
    let mut selector = selector(cluster);
    selector.insert(LABEL_MEMBER.to_owned(), member.to_owned());
    let name = slot_service_name(&cluster.name, slot);
    Service {
        metadata: metadata(cluster, name, &wanted_slot_inputs(cluster)),
        spec: Some(ServiceSpec {
            ip_family_policy: policy(cluster),
            ip_families: families(cluster),
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector),
            ports: Some(vec![port("client", CLIENT_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The same cluster, without what it asks of its Services' IP families.
#[must_use]
pub fn without_families(cluster: &ValidatedCluster) -> ValidatedCluster {
    let mut plain = cluster.clone();
    plain.spec.service.ip_family_policy = None;
    plain.spec.service.ip_families.clear();
    plain
}

/// Nothing where the resource says nothing: what the API server has chosen is not ours then.
fn policy(cluster: &ValidatedCluster) -> Option<String> {
    let policy = cluster.spec.service.ip_family_policy?;
    Some(policy.as_str().to_owned())
}

fn families(cluster: &ValidatedCluster) -> Option<Vec<String>> {
    let asked = cluster.spec.service.ip_families.iter();
    let asked: Vec<String> = asked.map(|family| family.as_str().to_owned()).collect();
    (!asked.is_empty()).then_some(asked)
}

/// A rendering for the Service that there is: the second family, which the API server has added by the policy to the one
/// that is named, is named too. It takes one family where there are two for a request to give the second one up, which it
/// refuses under every policy but SingleStack.
#[must_use]
pub fn with_added_family(mut rendered: Service, live: &Service) -> Service {
    let live = live.spec.as_ref();
    if let (Some(spec), Some(live)) = (&mut rendered.spec, live)
        && let (Some(asked), Some(found)) = (&mut spec.ip_families, &live.ip_families)
        && found.len() > asked.len()
        && found.starts_with(asked)
        && let Some(policy) = spec
            .ip_family_policy
            .as_ref()
            .or(live.ip_family_policy.as_ref())
        && policy != IpFamilyPolicy::SingleStack.as_str()
    {
        asked.clone_from(found);
    }
    rendered
}

/// The IP families of a Service, those that this operator knows.
#[must_use]
pub fn families_of(service: &Service) -> Vec<IpFamily> {
    let spec = service.spec.as_ref();
    let families = spec.and_then(|spec| spec.ip_families.as_ref());
    let families = families.into_iter().flatten();
    families.filter_map(|text| IpFamily::of(text)).collect()
}

/// The member of a slot's Service, according to its selector.
pub fn slot_member(service: &Service) -> Option<String> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    selector.get(LABEL_MEMBER).cloned()
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(number),
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
