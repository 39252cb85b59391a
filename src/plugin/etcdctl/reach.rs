//! Which members etcdctl talks to, and by which certificates: a function of the resource and of its pods. Asks nobody.

use k8s_openapi::api::core::v1::Pod;
use kube_core::ResourceExt;

use crate::build::container_arguments;
use crate::crd::{ClientAuth, EtcdCluster, LABEL_CLUSTER_UID, LABEL_MEMBER, MemberRole};
use crate::error::Error;

/// The members that are talked to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Their pods.
    pub(super) pods: Vec<String>,
    /// Whether they speak TLS.
    pub(super) tls: bool,
}

/// The Secrets with what etcdctl needs for TLS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// Whose `ca.crt` verifies the members.
    pub(super) authorities: String,
    /// Whose `tls.crt` and `tls.key` are the client's; `None`: the members ask for no certificate.
    pub(super) identity: Option<String>,
}

/// The pods of the members that were named, or of all ready voters.
pub(super) fn reach(cluster: &EtcdCluster, pods: &[Pod], named: &[String]) -> Result<Reach, Error> {
    let of_cluster = pods.iter().filter(|pod| belongs(pod, cluster));
    let mut chosen: Vec<&Pod> = Vec::new();
    if named.is_empty() {
        chosen.extend(of_cluster.filter(|pod| is_ready(pod) && votes(cluster, pod)));
        if chosen.is_empty() {
            return Err(Error::NoReadyMember(cluster.name_any()));
        }
    } else {
        let running: Vec<&Pod> = of_cluster.filter(|pod| runs(pod)).collect();
        for member in named {
            let found = running.iter().find(|pod| member_of(pod) == Some(member));
            chosen.push(found.ok_or_else(|| Error::NotRunning(member.clone()))?);
        }
    }
    // While TLS is being enabled some members speak it already: one call of etcdctl speaks it with all or with none.
    let tls = chosen.iter().any(|pod| speaks_tls(pod));
    let other = chosen.iter().find(|pod| speaks_tls(pod) != tls);
    if let Some(pod) = other.filter(|_| !named.is_empty()) {
        return Err(Error::TlsOfSome(pod.name_any()));
    }
    chosen.retain(|pod| speaks_tls(pod) == tls);
    let mut pods: Vec<String> = chosen.into_iter().map(ResourceExt::name_any).collect();
    pods.sort_by_key(|name| (name.len(), name.clone()));
    pods.dedup();
    Ok(Reach { pods, tls })
}

/// Where the certificates are, for a cluster whose members speak TLS or not; `given`: the Secret that the user named.
pub(super) fn trust(
    cluster: &EtcdCluster,
    tls: bool,
    given: Option<&str>,
) -> Result<Option<Trust>, Error> {
    let name = cluster.name_any();
    if !tls {
        return match given {
            Some(_) => Err(Error::NoTls(name)),
            None => Ok(None),
        };
    }
    let status = cluster.status.as_ref();
    let endpoints = status.and_then(|status| status.endpoints.as_ref());
    let of_clients = endpoints.and_then(|it| Some(it.client_secret_ref.as_ref()?.name.clone()));
    let of_authority = endpoints.and_then(|it| Some(it.ca_secret_ref.as_ref()?.name.clone()));
    // The Secret of clients has the CAs as well, and not a CA's key.
    let authorities = of_clients.clone().or(of_authority);
    let authorities = authorities.ok_or_else(|| Error::NoCertificatesYet(name.clone()))?;
    let identity = given.map(str::to_owned).or(of_clients);
    let asked = cluster.spec.tls.as_ref().map(|tls| tls.client_auth);
    if identity.is_none() && asked == Some(ClientAuth::Required) {
        return Err(Error::NoClientSecret(name));
    }
    Ok(Some(Trust {
        authorities,
        identity,
    }))
}

fn belongs(pod: &Pod, cluster: &EtcdCluster) -> bool {
    let uid = pod.labels().get(LABEL_CLUSTER_UID).map(String::as_str);
    uid == Some(cluster.life()) && member_of(pod).is_some()
}

fn member_of(pod: &Pod) -> Option<&String> {
    pod.labels().get(LABEL_MEMBER)
}

/// By the status, as far as an operator has reported any member.
fn votes(cluster: &EtcdCluster, pod: &Pod) -> bool {
    let status = cluster.status.as_ref();
    let members = status.map_or(&[][..], |status| &status.members);
    let mut rows = members.iter().filter(|it| Some(&it.name) == member_of(pod));
    members.is_empty() || rows.any(|it| it.role == MemberRole::Voter)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    phase == Some("Running")
}

fn speaks_tls(pod: &Pod) -> bool {
    let mut arguments = container_arguments(pod.spec.as_ref());
    arguments.any(|it| it.starts_with("--listen-client-urls=https://"))
}
