//! Kubelets that make keys for pods: they request a certificate for each pod that has none, and the next one when two thirds of
//! its lifetime are over. A pod starts, and its server loads, only what was signed for this pod.

use super::Model;
use crate::crd::TlsPort;
use crate::plan::RequestFacts;

impl Model {
    /// What kubelets request by now. Requests of pods that are gone go with them.
    pub(super) fn request_certificates(&mut self) {
        let pods = &self.api.pods;
        let is_there = |uid: &String| pods.values().any(|pod| pod.uid == *uid);
        self.signed.retain(|(uid, _), _| is_there(uid));
        let Some(mut requests) = self.api.tls.requests.take() else {
            return;
        };
        requests.retain(|_, request| is_there(&request.pod_uid));
        let ports: Vec<TlsPort> = self.api.tls.pod_keys.iter().copied().collect();
        let members: Vec<String> = self.api.pods.keys().cloned().collect();
        for member in members {
            for port in &ports {
                let key = (member.clone(), *port);
                if !requests.contains_key(&key)
                    && let Some(request) = self.requested(&member, *port)
                {
                    requests.insert(key, request);
                }
            }
        }
        self.api.tls.requests = Some(requests);
    }

    fn requested(&mut self, member: &str, port: TlsPort) -> Option<RequestFacts> {
        let pod = self.api.pods.get(member)?;
        let works = !pod.terminating && pod.peer_tls && self.is_up(pod.node.as_ref());
        let now_ms = self.api.now_ms;
        let last = self.signed.get(&(pod.uid.clone(), port));
        // One that is not known further is another server's business.
        let certificate = last.and_then(|last| self.issued.get(last));
        let wanted = match (last, certificate) {
            (None, _) => pod.started_ms.is_none(),
            (Some(_), None) => false,
            (Some(_), Some(last)) => last.is_due(now_ms),
        };
        let pod_uid = pod.uid.clone();
        (works && wanted).then(|| RequestFacts {
            name: format!("req-{member}-{}", port.as_str()),
            uid: self.fresh("request"),
            pod_uid,
        })
    }

    /// A kubelet is restarted: its pods go on with what they have, and it requests certificates for new keys.
    pub fn restart_kubelet_of(&mut self, member: &str) {
        let Some(pod_uid) = self.api.pods.get(member).map(|pod| pod.uid.clone()) else {
            return;
        };
        for port in self.api.tls.pod_keys.clone() {
            let request = RequestFacts {
                name: format!("req-{member}-{}", port.as_str()),
                uid: self.fresh("request"),
                pod_uid: pod_uid.clone(),
            };
            if let Some(requests) = &mut self.api.tls.requests {
                requests.insert((member.to_owned(), port), request);
            }
        }
    }

    /// Fingerprint of what was signed for a pod.
    pub(super) fn signed_for(&self, pod_uid: &str, port: TlsPort) -> Option<&String> {
        self.signed.get(&(pod_uid.to_owned(), port))
    }
}
