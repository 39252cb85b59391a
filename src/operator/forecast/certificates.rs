//! What a step makes of certificates in an imagined future: servers have them at once.

use crate::crd::{TlsPort, authority_secret_name};
use crate::plan::{Certificate, CertificateAction, CertificateFacts, Observed, Owner, Rotation};

/// As long as the operator's own last, in milliseconds.
const LIFE_MS: u64 = 90 * 86_400_000;

/// Does what a step of certificates does. `id` is of nothing that was made before.
pub(super) fn act(o: &mut Observed, action: &CertificateAction, id: &str) {
    match action {
        CertificateAction::MakeAuthority { port, secret } => {
            let suffix = format!("-{}-tls", port.as_str());
            let leaves = o.tls.secrets.iter();
            let leaves = leaves.filter(|(name, _)| name.ends_with(&suffix));
            let old = leaves.flat_map(|(_, facts)| facts.trusted.iter().cloned());
            let mut trusted = vec![id.to_owned()];
            for one in old.collect::<Vec<_>>() {
                if !trusted.contains(&one) {
                    trusted.push(one);
                }
            }
            let facts = made(o.now_ms, id, id, None, (trusted, None));
            o.tls.secrets.insert(secret.clone(), facts);
        }
        CertificateAction::RotateAuthority { secret, stage, .. } => {
            let now_ms = o.now_ms;
            if let Some(facts) = o.tls.secrets.get_mut(secret) {
                rotate(facts, stage, id, now_ms);
            }
        }
        CertificateAction::IssueCertificate {
            port,
            member,
            secret,
            authority,
            ..
        } => {
            let trusted = trusted(o, *port);
            let inputs = o.tls.wanted.get(port).cloned();
            let now_ms = o.now_ms;
            let facts = made(now_ms, id, authority, member.clone(), (trusted, inputs));
            o.tls.secrets.insert(secret.clone(), facts);
        }
        CertificateAction::TrustAuthorities {
            secret, trusted, ..
        } => {
            if let Some(facts) = o.tls.secrets.get_mut(secret) {
                facts.trusted.clone_from(trusted);
            }
        }
        CertificateAction::DropCertificate { secret, .. } => drop(o.tls.secrets.remove(secret)),
    }
    load(o);
}

fn rotate(facts: &mut CertificateFacts, stage: &Rotation, id: &str, now_ms: u64) {
    match stage {
        Rotation::Prepare { asked } => {
            let next = made(now_ms, id, id, None, (Vec::new(), None));
            facts.next = next.certificate;
            facts
                .trusted
                .insert(1.min(facts.trusted.len()), id.to_owned());
            facts.rotated_for.clone_from(asked);
        }
        Rotation::Switch { to } => {
            facts.certificate = facts.next.take();
            facts.trusted.retain(|one| one != to);
            facts.trusted.insert(0, to.clone());
        }
        Rotation::Forget => facts.trusted.truncate(1),
    }
}

fn trusted(o: &Observed, port: TlsPort) -> Vec<String> {
    let name = o.cluster.as_ref().map(|cluster| cluster.name.clone());
    let authority = authority_secret_name(&name.unwrap_or_default(), port);
    let facts = o.tls.secrets.get(&authority);
    facts.map(|facts| facts.trusted.clone()).unwrap_or_default()
}

fn made(
    now_ms: u64,
    id: &str,
    issuer: &str,
    member: Option<String>,
    (trusted, inputs): (Vec<String>, Option<String>),
) -> CertificateFacts {
    CertificateFacts {
        uid: id.to_owned(),
        owner: Owner::Ours,
        terminating: false,
        inputs,
        member,
        certificate: Some(Certificate {
            fingerprint: id.to_owned(),
            not_before_ms: now_ms,
            not_after_ms: now_ms + LIFE_MS,
            issuer: Some(issuer.to_owned()),
        }),
        trusted,
        next: None,
        rotated_for: None,
    }
}

/// Servers that tell what they have loaded have loaded what there is.
pub(super) fn load(o: &mut Observed) {
    for (member, description) in &mut o.descriptions {
        for (port, security) in &mut description.security {
            let given = o.tls.given.get(port);
            if let Some((given, certificate)) =
                given.and_then(|given| Some((given, given.certificate.as_ref()?)))
            {
                security.fingerprint.clone_from(&certificate.fingerprint);
                security.trusted.clone_from(&given.trusted);
                continue;
            }
            let secret = crate::crd::member_certificate_name(member, *port);
            let Some(facts) = o.tls.secrets.get(&secret) else {
                continue;
            };
            if let Some(certificate) = &facts.certificate {
                security.fingerprint.clone_from(&certificate.fingerprint);
                security.trusted.clone_from(&facts.trusted);
            }
        }
    }
}
