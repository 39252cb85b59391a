//! CA rotation, requested by an annotation or when four fifths of the CA's lifetime are over. The next CA is trusted
//! everywhere first; then it signs, and every certificate is reissued; then the previous one is dropped. Clients cannot
//! be observed: they get time.

use crate::crd::TlsPort;
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, CertificateAction, Rotation};
use crate::plan::certificates::{Certificate, CertificateFacts};
use crate::plan::draft::Draft;
use crate::plan::situation::Situation;

use super::certificates::{certificates, lagging, loaded, members, trust_alike};

/// How long clients have to read the next CA before members use certificates of it, from the start of its validity, in
/// milliseconds: an hour, and an hour for clocks that are behind.
const CLIENTS_MS: u64 = 2 * 3_600_000;
/// Certificates that a CA signed before the next CA was created are valid for at most this long after that.
const LONGEST_MS: u64 = 91 * 86_400_000;
/// A value of the annotation that ends so leaves clients no time.
const AT_ONCE: &str = "now";

pub(super) fn rule(
    s: &Situation<'_>,
    draft: &mut Draft,
    port: TlsPort,
    secret: &str,
    (facts, signer): (&CertificateFacts, &Certificate),
) {
    let asked = s.o.tls.rotate.get(&port);
    let now_ms = s.o.now_ms;
    let hurries = asked.is_some_and(|asked| asked.ends_with(AT_ONCE));
    let patient = |since: &Certificate, ms: u64| {
        port == TlsPort::Peer || hurries || now_ms >= since.not_before_ms.saturating_add(ms)
    };
    let mut step = |stage: Rotation, why: &str| {
        let action = Action::Certificate(CertificateAction::RotateAuthority {
            port,
            secret: secret.to_owned(),
            signs: signer.fingerprint.clone(),
            stage,
        });
        draft.step(Rule::Objects, action, why);
    };
    if !is_settled(s, port, facts, signer) && !mutant!(SwitchUntrusted) {
        return;
    }
    // Clients that trust it learn of the next CA by it alone.
    if !super::trust_bundle::is_settled(s, port, facts) {
        return;
    }
    let wanted = asked.filter(|asked| facts.rotated_for.as_ref() != Some(*asked));
    match &facts.next {
        Some(next) if patient(next, CLIENTS_MS) => {
            let to = next.fingerprint.clone();
            step(Rotation::Switch { to }, "every member trusts it");
        }
        Some(_) => {}
        None if wanted.is_some() => {
            let asked = wanted.cloned();
            step(Rotation::Prepare { asked }, "the annotation asks for it");
        }
        None if signer.is_aging(now_ms) => {
            let asked = facts.rotated_for.clone();
            step(
                Rotation::Prepare { asked },
                "four fifths of its lifetime have passed",
            );
        }
        None if facts.trusted.len() > 1 && patient(signer, LONGEST_MS) => {
            step(Rotation::Forget, "nothing that they signed is in use");
        }
        None => {}
    }
}

/// Whether every certificate of a port is signed by the current CA with the current trust, and every running server
/// reports that it has loaded it.
fn is_settled(
    s: &Situation<'_>,
    port: TlsPort,
    authority: &CertificateFacts,
    signer: &Certificate,
) -> bool {
    let mut held = certificates(s, port);
    let current = held.all(|(_, facts)| {
        if s.binds_nobody(port, facts) {
            return true;
        }
        let certificate = facts.certificate.as_ref();
        let issuer = certificate.and_then(|certificate| certificate.issuer.as_ref());
        issuer == Some(&signer.fingerprint) && trust_alike(facts, authority)
    });
    let loaded: Vec<&str> = loaded(s, port).map(|(member, _)| member).collect();
    let runs = |member: &&str| {
        let pod = s.o.pods.get(*member);
        pod.is_some_and(|pod| pod.started_ms.is_some())
    };
    let all_loaded = members(s)
        .iter()
        .filter(|member| runs(member))
        .all(|m| loaded.contains(m));
    current && all_loaded && lagging(s, port).is_none()
}
