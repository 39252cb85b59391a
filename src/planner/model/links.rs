//! Which members can be dialled: kubelets update mounted Secrets some time after they were written, and members
//! reach each other with TLS only where each accepts what the other shows.

use super::Model;
use crate::crd::{TlsPort, member_certificate_name};
use crate::plan::{Certificate, PodFacts, PortSecurity};

/// A member's peer URL.
pub(super) fn url(member: &str, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{member}:2380")
}

impl Model {
    /// A member's advertised URL when it forms a cluster.
    pub(super) fn own_url(&self, member: &str) -> String {
        let pod = self.api.pods.get(member).filter(|pod| pod.peer_tls);
        url(member, pod.is_some_and(|pod| !self.takes_plain(pod)))
    }

    fn takes_plain(&self, pod: &PodFacts) -> bool {
        let server = self.servers.get(&pod.uid);
        server.is_some_and(|server| server.plain_peers)
    }

    /// Whether the Secrets that the pod of a member mounts are there.
    pub fn has_secrets(&self, member: &str) -> bool {
        let has = |port| match self.api.tls.user_certificates.get(&port) {
            Some(user_certificate) => user_certificate.unfit.is_none(),
            None => {
                let secret = member_certificate_name(member, port);
                self.api.tls.secrets.contains_key(&secret)
            }
        };
        !self.speaks_tls() || TlsPort::ALL.into_iter().all(has)
    }

    /// Whether the pod of a member has all that it mounts: also what its kubelet requests.
    pub(super) fn has_certificates(&self, member: &str) -> bool {
        let pod = self.api.pods.get(member);
        let signed = |port: &TlsPort| {
            let signed = pod.and_then(|pod| self.signed_for(&pod.uid, *port));
            signed.is_some()
        };
        let complete = self.api.tls.pod_keys.iter().all(signed);
        self.has_secrets(member) && (complete || !self.speaks_tls())
    }

    /// Servers load what their kubelets have mounted; one that starts, the current content.
    pub(super) fn carry_certificates(&mut self) {
        let names: Vec<String> = self.api.pods.keys().cloned().collect();
        names.iter().for_each(|member| self.load(member));
    }

    /// A member's server loads its current mount.
    pub(super) fn load(&mut self, member: &str) {
        let running = |pod: &&PodFacts| pod.started_ms.is_some() && pod.peer_tls;
        let Some(pod) = self.api.pods.get(member).filter(running) else {
            return;
        };
        let uid = pod.uid.clone();
        let found = TlsPort::ALL.map(|port| Some((port, self.mounted(member, pod, port)?)));
        let server = self.servers.entry(uid).or_default();
        server.loaded.extend(found.into_iter().flatten());
    }

    /// What a server finds now for one of its ports; `None` where it goes on with what it has.
    fn mounted(&self, member: &str, pod: &PodFacts, port: TlsPort) -> Option<PortSecurity> {
        let user_certificate = self.api.tls.user_certificates.get(&port);
        let secret = match user_certificate {
            Some(user_certificate) => user_certificate.secret.clone(),
            None => member_certificate_name(member, port),
        };
        let (certificate, trusted) = match user_certificate {
            Some(user_certificate) => {
                // A server that was started with Secrets of other names has those.
                let current = pod.inputs.as_ref() == Some(&self.api.wanted_inputs);
                (
                    user_certificate.certificate.as_ref().filter(|_| current)?,
                    &user_certificate.trusted,
                )
            }
            None if self.api.tls.pod_keys.contains(&port) => {
                let facts = self.api.tls.secrets.get(&secret)?;
                let signed = self.signed_for(&pod.uid, port)?;
                (self.issued.get(signed)?, &facts.trusted)
            }
            None => {
                let facts = self.api.tls.secrets.get(&secret)?;
                (facts.certificate.as_ref()?, &facts.trusted)
            }
        };
        let server = self.servers.get(&pod.uid);
        let first = server.is_none_or(|server| !server.loaded.contains_key(&port));
        let written_ms = self.written_ms.get(&secret).copied().unwrap_or(0);
        let carried = self.api.now_ms >= written_ms + self.pace.carried_ms
            && !self.faults.uncarried.contains(member);
        (first || carried).then(|| PortSecurity {
            tls: true,
            plaintext: false,
            fingerprint: certificate.fingerprint.clone(),
            trusted: trusted.clone(),
        })
    }

    /// Whether a member can be dialled by another one: by its URL with TLS, if each accepts the other's certificate, or
    /// without, if it accepts that.
    pub(super) fn dials(&self, from: &str, to: &str) -> bool {
        let view = self.raft.by_name(to);
        let mut urls = view.iter().flat_map(|view| &view.peer_urls);
        let secure = urls.any(|url| url.starts_with("https://"));
        match (self.peer_port(from), self.peer_port(to)) {
            (Some(a), Some(b)) if secure => self.accepts(a, b) && self.accepts(b, a),
            (_, Some(_)) if !secure => {
                let pod = self.api.pods.get(to);
                pod.is_some_and(|pod| self.takes_plain(pod))
            }
            (_, None) => !secure,
            (None, Some(_)) | (Some(_), Some(_)) => false,
        }
    }

    /// What a member has loaded for its peer port, if that speaks TLS.
    fn peer_port(&self, member: &str) -> Option<&PortSecurity> {
        let pod = self.api.pods.get(member)?;
        let loaded = self.servers.get(&pod.uid)?.loaded.get(&TlsPort::Peer);
        loaded.filter(|security| security.tls)
    }

    /// A certificate that is not known further was accepted when it was seen.
    fn accepts(&self, port: &PortSecurity, other: &PortSecurity) -> bool {
        let trusted = |issuer: &String| port.trusted.contains(issuer);
        let good = |shown: &Certificate| {
            shown.issuer.as_ref().is_some_and(trusted) && self.api.now_ms < shown.not_after_ms
        };
        self.issued.get(&other.fingerprint).is_none_or(good)
    }
}
