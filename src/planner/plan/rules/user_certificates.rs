//! Certificates from the user (source `Secret`) or from cert-manager: no member is created or restarted with one that
//! is not usable, and running members keep theirs.
//!
//! Usable is one that can be read, has its key, leads to a trusted CA, is valid now, and contains every name by which a
//! member is dialled. On the peer port members must accept each other all the time: every running member trusts its
//! issuer, and its `ca.crt` verifies the certificates of every running member. The user may change the content of
//! Secrets at any time; this is observed and reported, never prevented.

use std::collections::BTreeSet;

use crate::crd::{
    TlsPort, client_service_name, is_named, member_name, member_number, peers_service_name,
    pod_name, slot_service_name,
};
use crate::mutants::mutant;
use crate::plan::certificates::{NOT_ISSUED, PortSecurity, Unfit, UserCertificate};
use crate::plan::draft::Draft;
use crate::plan::situation::Situation;
use crate::plan::step::Class;

use super::certificates::{loaded, members};

/// Returns whether a certificate is not fit for use, and the plan ends here.
pub(super) fn refused(s: &Situation<'_>, draft: &mut Draft) -> bool {
    for port in
        s.o.tls
            .user_certificates
            .keys()
            .filter(|p| s.o.tls.rotate.contains_key(p))
    {
        let text = format!(
            "{} asks for another CA of the {} port, whose certificates the operator does not issue",
            port.rotation(),
            port.as_str()
        );
        draft.note("RotationIgnored", text);
    }
    // A hibernating member needs none.
    if s.hibernates() || mutant!(UnfitUsed) {
        return false;
    }
    let held = "a certificate that the operator does not issue is not fit for use";
    if let Some(Unfit { reason, text }) = unfit(s) {
        if reason == NOT_ISSUED {
            let text = format!("a certificate: {text}");
            draft.wait("IssueCertificate", "", reason, text);
            return hold_all(draft, held);
        }
        draft.stall(
            reason,
            format!("{text}. No member is created or restarted until then"),
        );
    } else if let Some((member, text)) = unproven(s) {
        draft.wait("LoadCertificate", &member, "LoadingCertificate", text);
    } else {
        return false;
    }
    hold_all(draft, held)
}

fn hold_all(draft: &mut Draft, held: &str) -> bool {
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, held);
    }
    true
}

/// Why a certificate of the user cannot be used, if so, and what to do about it.
pub(in crate::plan) fn unfit(s: &Situation<'_>) -> Option<Unfit> {
    s.o.tls.user_certificates.iter().find_map(|(port, one)| {
        let of_it = one.unfit.clone().or_else(|| outside_validity(s, one));
        let of_it = of_it.or_else(|| missing_names(s, *port, one));
        of_it.or_else(|| {
            (*port == TlsPort::Peer)
                .then(|| trust_gap(s, one))
                .flatten()
        })
    })
}

fn outside_validity(s: &Situation<'_>, user_certificate: &UserCertificate) -> Option<Unfit> {
    let (secret, certificate) = (
        &user_certificate.secret,
        user_certificate.certificate.as_ref()?,
    );
    if certificate.is_over(s.o.now_ms) {
        return Some(Unfit {
            reason: "CertificateExpired",
            text: format!("the certificate in Secret {secret} has expired: replace it"),
        });
    }
    (certificate.not_before_ms > s.o.now_ms).then(|| Unfit {
        reason: "CertificateNotYetValid",
        text: format!(
            "the certificate in Secret {secret} is not valid yet: replace it by one that is"
        ),
    })
}

fn missing_names(
    s: &Situation<'_>,
    port: TlsPort,
    user_certificate: &UserCertificate,
) -> Option<Unfit> {
    user_certificate.certificate.as_ref()?;
    let missing: Vec<String> = (needed(s, port).into_iter())
        .filter(|host| !is_named(&user_certificate.names, host))
        .collect();
    let (first, rest) = (missing.iter().take(8), missing.len().saturating_sub(8));
    let listed = first.cloned().collect::<Vec<_>>().join(", ");
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    (!missing.is_empty()).then(|| Unfit {
        reason: "NamesMissing",
        text: format!(
            "the certificate in Secret {} lacks names that are used to connect to the {} port: {listed}{more}. Replace it by one with these names; a wildcard for the first label is accepted",
            user_certificate.secret,
            port.as_str()
        ),
    })
}

/// The names by which a port is dialled: those of current and next members, and of Services.
fn needed(s: &Situation<'_>, port: TlsPort) -> BTreeSet<String> {
    let (cluster, namespace) = (s.cluster.name.as_str(), &s.cluster.namespace);
    let peers = peers_service_name(cluster);
    let service = |name: String| format!("{name}.{namespace}.svc");
    let mut names: BTreeSet<String> = BTreeSet::new();
    match port {
        TlsPort::Peer => drop(names.insert(service(peers.clone()))),
        TlsPort::Client => {
            names.insert(service(client_service_name(cluster)));
            let slots = u32::try_from(s.o.slot_endpoints.len()).unwrap_or(0);
            names.extend((0..slots).map(|slot| service(slot_service_name(cluster, slot))));
        }
    }
    let mut who: BTreeSet<String> = members(s).into_iter().map(str::to_owned).collect();
    let first = member_number(cluster, &s.next_name()).unwrap_or(1);
    let comes = match (s.view.is_some(), s.bootstrapped()) {
        (true, _) => s.goal().saturating_sub(s.seats()),
        (false, true) => 0,
        (false, false) => s.cluster.target().saturating_sub(who.len()),
    };
    who.extend((first..).take(comes).map(|n| member_name(cluster, n)));
    names.extend(
        who.iter()
            .map(|member| service(format!("{}.{peers}", pod_name(member)))),
    );
    names
}

/// Whether a running member and new ones would refuse each other.
fn trust_gap(s: &Situation<'_>, user_certificate: &UserCertificate) -> Option<Unfit> {
    let own = user_certificate.certificate.as_ref()?;
    let (secret, trusted) = (&user_certificate.secret, &user_certificate.trusted_secret);
    let signers = |fingerprint: &str| s.o.tls.signers.get(fingerprint);
    let knows = |known: &[String], signers: &BTreeSet<String>| {
        known.iter().any(|one| signers.contains(one))
    };
    let reason = "TrustDoesNotOverlap";
    loaded(s, TlsPort::Peer).find_map(|(member, security)| {
        let trusts = signers(&own.fingerprint).is_some_and(|all| knows(&security.trusted, all));
        if !trusts {
            let text = format!(
                "{member} does not trust the issuer of the certificate in Secret {secret}: first put both CAs into ca.crt of Secret {trusted}, and the new tls.crt only after {member} has loaded that"
            );
            return Some(Unfit { reason, text });
        }
        if security.fingerprint == own.fingerprint {
            return None;
        }
        let text = match signers(&security.fingerprint) {
            Some(signers) if knows(&user_certificate.trusted, signers) => return None,
            Some(_) => format!(
                "ca.crt of Secret {trusted} does not contain the CA that issued {member}'s current certificate: keep it there until every member has loaded the new certificate"
            ),
            None if s.is_started_as_wanted(member) => return None, // it is about to load this one
            None => format!(
                "the issuer of {member}'s current certificate is unknown: restore the previous Secrets until every member has loaded the new ones"
            ),
        };
        Some(Unfit { reason, text })
    })
}

/// A member whose certificate has an unknown issuer, and which is about to load the new one: a restarted operator
/// observes a renewal in progress.
fn unproven(s: &Situation<'_>) -> Option<(String, String)> {
    let user_certificate = s.o.tls.user_certificates.get(&TlsPort::Peer)?;
    let own = user_certificate.certificate.as_ref()?;
    let unknown = |security: &PortSecurity| {
        security.fingerprint != own.fingerprint
            && !s.o.tls.signers.contains_key(&security.fingerprint)
    };
    let mut all = loaded(s, TlsPort::Peer);
    let (member, _) = all.find(|(_, security)| unknown(security))?;
    let text = format!(
        "{member} to load the certificate {}",
        user_certificate.secret
    );
    Some((member.to_owned(), text))
}
