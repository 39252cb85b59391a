//! No member is created, and no voter restarted, before the Secrets that its pod mounts exist: it would hang in
//! ContainerCreating. Certificates that the operator does not issue are checked by `Facts::user_certificates`.

use super::{Facts, refuse};
use crate::crd::{TlsPort, authority_secret_name, member_certificate_name, operator_secret_name};
use crate::plan::action::{Action, CertificateAction, ObjectAction};
use crate::plan::observed::{ObjectKey, ObjectKind, Owner};
use crate::plan::step::Step;

impl Facts<'_> {
    /// A StatefulSet whose pod would run. Objects of earlier steps of the plan exist by then.
    pub(super) fn mounts(&self, action: &Action, earlier: &[Step]) -> Result<(), String> {
        let Action::Object(ObjectAction::ApplySet {
            member,
            hibernated: false,
            ..
        }) = action
        else {
            return Ok(());
        };
        let made = |secret: &str| {
            let mut earlier = earlier.iter().map(|step| &step.action);
            earlier.any(|action| makes(action, secret))
        };
        for (port, secret) in self.certificates_of(member) {
            refuse(
                !self.holds_what_is_mounted(port, &secret) && !made(&secret),
                &format!("its pod mounts Secret {secret}, which does not exist"),
            )?;
        }
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: operator_secret_name(&self.cluster.name),
        };
        let lacks = self.o.wanted_objects.contains_key(&key) && !self.o.objects.contains_key(&key);
        refuse(
            lacks && !made(&key.name),
            &format!("its pod mounts Secret {}, which does not exist", key.name),
        )
    }

    /// A voter that runs: the next pod of its set mounts the same.
    pub(super) fn returns(&self, member: &str) -> Result<(), String> {
        let mut secrets = self.certificates_of(member);
        refuse(
            !self.o.tls.pod_keys.is_empty() && self.o.tls.requests.is_none(),
            "its next pod's kubelet gets no certificate",
        )?;
        refuse(
            self.o.tls.pod_keys.iter().any(|port| !self.can_sign(*port)),
            "its next pod's kubelet gets no certificate without a CA",
        )?;
        refuse(
            secrets.any(|(port, secret)| !self.holds_what_is_mounted(port, &secret)),
            "its next pod mounts a Secret that is not there",
        )
    }

    /// Whether there is a CA of ours for a port.
    fn can_sign(&self, port: TlsPort) -> bool {
        let secret = authority_secret_name(&self.cluster.name, port);
        let facts = self.o.tls.secrets.get(&secret);
        facts.is_some_and(|facts| {
            facts.certificate.is_some() && !facts.terminating && facts.owner == Owner::Ours
        })
    }

    /// The Secrets with a member's certificates, of those that the operator makes.
    fn certificates_of(&self, member: &str) -> impl Iterator<Item = (TlsPort, String)> {
        let tls = self.cluster.spec.tls.is_some();
        let user_certificates = &self.o.tls.user_certificates;
        let ports = TlsPort::ALL.into_iter();
        let made = ports.filter(move |port| tls && !user_certificates.contains_key(port));
        made.map(move |port| (port, member_certificate_name(member, port)))
    }

    /// A certificate, or, where kubelets make the keys, the CAs.
    fn holds_what_is_mounted(&self, port: TlsPort, secret: &str) -> bool {
        let facts = self.o.tls.secrets.get(secret);
        let pod_keys = self.o.tls.pod_keys.contains(&port);
        facts.is_some_and(|facts| match pod_keys {
            true => !facts.trusted.is_empty(),
            false => facts.certificate.is_some(),
        })
    }
}

fn makes(action: &Action, wanted: &str) -> bool {
    match action {
        Action::Certificate(
            CertificateAction::IssueCertificate { secret, .. }
            | CertificateAction::MakeTrust { secret, .. },
        ) => secret == wanted,
        Action::Object(ObjectAction::ApplyObject(key)) => key.name == wanted,
        _ => false,
    }
}
