//! Certificates: one CA per port, one certificate per member and port before its StatefulSet is created, and one for
//! clients. They need no quorum and block nothing, and are maintained while paused.
//!
//! Existing certificates are replaced for one member at a time; the next one follows when the server reports that it
//! has loaded the last. Nothing is signed by a CA that a member does not trust yet, if it can come to trust it:
//! `rotate.rs` describes how a CA itself is rotated. All of it follows from the Secrets and the servers' descriptions;
//! nothing is stored.

use crate::plan::Rule;
use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{
    ClientAuth, TlsPort, authority_secret_name, client_certificate_name, member_certificate_name,
};
use crate::mutants::mutant;
use crate::plan::action::{Action, CertificateAction};
use crate::plan::certificates::{Certificate, CertificateFacts, PortSecurity};
use crate::plan::draft::Draft;
use crate::plan::observed::{Owner, PvcState};
use crate::plan::situation::Situation;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for (port, inputs) in &s.o.tls.wanted {
        keep(s, draft, *port, inputs);
    }
    super::trust_bundle::withdraw(s, draft);
    drop_surplus(s, draft);
}

/// Answers what kubelets request, where the rules above were not run: nothing else is done there.
pub(super) fn answer(s: &Situation<'_>, draft: &mut Draft) {
    for port in &s.o.tls.pod_keys {
        let Some(signer) = signer(s, *port) else {
            continue;
        };
        let doubters = doubters(s, *port, &signer.fingerprint);
        super::pod_certificates::sign(s, draft, (*port, signer), &doubters);
    }
}

/// What signs for a port now, if it can be read.
fn signer<'a>(s: &Situation<'a>, port: TlsPort) -> Option<&'a Certificate> {
    let secret = authority_secret_name(&s.cluster.name, port);
    let facts = s.o.tls.secrets.get(&secret);
    facts
        .filter(|facts| !facts.terminating && facts.owner == Owner::Ours)?
        .certificate
        .as_ref()
}

/// Why the next pod of a member would wait for its certificate: there is no CA to sign it, or another member that runs does not trust
/// that yet.
pub(in crate::plan) fn withheld(s: &Situation<'_>, member: Option<&str>) -> Option<String> {
    let mut ports = s.o.tls.pod_keys.iter();
    ports.find_map(|port| {
        let Some(signer) = signer(s, *port) else {
            return Some(format!("the CA of the {} port cannot be read, and its next pod would wait for a certificate", port.as_str()));
        };
        let doubters = doubters(s, *port, &signer.fingerprint);
        let others = doubters.iter().filter(|one| Some(**one) != member);
        let mut waited_for = others.filter(|one| is_waited_for(s, *port, one));
        let first = waited_for.next()?;
        Some(format!("{first} does not trust the new CA of the {} port yet, and its next pod would wait for that", port.as_str()))
    })
}

/// Certificates that a server has not loaded yet; reported last.
pub(super) fn waits(s: &Situation<'_>, draft: &mut Draft) {
    let waits = TlsPort::ALL.into_iter();
    if let Some((member, what)) = waits.flat_map(|port| lagging(s, port)).next() {
        draft.wait("LoadCertificate", member, "LoadingCertificate", what);
    }
}

/// The certificates of one port.
fn keep(s: &Situation<'_>, draft: &mut Draft, port: TlsPort, inputs: &str) {
    let Some((authority, signer)) = authority(s, draft, port) else {
        return;
    };
    // Trust first: it is the precondition for issuing a certificate of a new CA.
    for (name, facts) in certificates(s, port) {
        let behind = !trust_alike(facts, authority);
        let pod_keys = facts.member.is_some() && s.o.tls.pod_keys.contains(&port);
        let kept = facts.certificate.is_some() || pod_keys;
        if behind && kept && !facts.terminating {
            let action = Action::Certificate(CertificateAction::TrustAuthorities {
                port,
                secret: name,
                trusted: authority.trusted.clone(),
            });
            draft.step(Rule::Objects, action, "the trusted CAs changed");
        }
    }
    super::trust_bundle::publish(s, draft, port, authority);
    let doubters = doubters(s, port, &signer.fingerprint);
    make_missing(s, draft, (port, signer), &doubters);
    super::pod_certificates::sign(s, draft, (port, signer), &doubters);
    if let Some(member) = doubters.first() {
        let text = format!("{member} does not trust the new CA of this port yet");
        draft.note("RotatingAuthority", text);
        return;
    }
    if s.o.tls.pod_keys.contains(&port) {
        super::pod_certificates::tell_of_earlier(s, draft, (port, signer));
    } else {
        make_anew(s, draft, (port, signer), inputs);
    }
    let secret = authority_secret_name(&s.cluster.name, port);
    super::rotate::rule(s, draft, port, &secret, (authority, signer));
    if has_user(s, port) {
        keep_user(s, draft, (port, signer));
    }
}

/// Missing certificates of members, also while a CA is new to some of them: without it a member cannot start, and a
/// running one learns the new CA with it.
fn make_missing(
    s: &Situation<'_>,
    draft: &mut Draft,
    (port, signer): (TlsPort, &Certificate),
    doubters: &[&str],
) {
    if s.o.tls.pod_keys.contains(&port) {
        return super::pod_certificates::make_trust(s, draft, port);
    }
    let waits = is_any_waited_for(s, port, doubters);
    for member in members(s) {
        let secret = member_certificate_name(member, port);
        let there = s.o.tls.is_there(member, port);
        if gone(draft, &secret, s.o.tls.secrets.get(&secret)) || there || waits {
            continue;
        }
        let action = issue((port, signer), secret, Some(member), None);
        draft.step(Rule::Objects, action, "it is missing");
    }
}

/// Certificates that expire, or that have another CA or other names: one member after another.
fn make_anew(
    s: &Situation<'_>,
    draft: &mut Draft,
    (port, signer): (TlsPort, &Certificate),
    inputs: &str,
) {
    let mut busy = lagging(s, port).is_some();
    for member in members(s) {
        let secret = member_certificate_name(member, port);
        let facts = s.o.tls.secrets.get(&secret);
        let facts = facts.filter(|facts| !facts.terminating);
        let Some(old) = facts.and_then(|facts| facts.certificate.as_ref()) else {
            continue;
        };
        let made_from = facts.and_then(|facts| facts.inputs.as_deref());
        let renamed = made_from != Some(inputs);
        let Some(why) = renew(s, old, &signer.fingerprint).or(renamed.then_some(NAMES)) else {
            continue;
        };
        // One that is about to expire does not wait for others.
        if !busy || old.is_late(s.o.now_ms) || mutant!(RenewedAtOnce) {
            let action = issue((port, signer), secret, Some(member), Some(old));
            draft.step(Rule::Objects, action, why);
            busy = true;
        }
    }
}

/// The certificate for clients.
fn keep_user(s: &Situation<'_>, draft: &mut Draft, (port, signer): (TlsPort, &Certificate)) {
    let secret = client_certificate_name(&s.cluster.name);
    let facts = s.o.tls.secrets.get(&secret);
    if gone(draft, &secret, facts) {
        return;
    }
    let old = facts.and_then(|facts| facts.certificate.as_ref());
    let why = match old {
        None => Some("it is missing"),
        Some(old) => renew(s, old, &signer.fingerprint),
    };
    if let Some(why) = why {
        let action = issue((port, signer), secret, None, old);
        draft.step(Rule::Objects, action, why);
    }
}

fn issue(
    (port, signer): (TlsPort, &Certificate),
    secret: String,
    member: Option<&str>,
    replaces: Option<&Certificate>,
) -> Action {
    Action::Certificate(CertificateAction::IssueCertificate {
        port,
        member: member.map(str::to_owned),
        secret,
        authority: signer.fingerprint.clone(),
        replaces: replaces.map(|old| old.fingerprint.clone()),
    })
}

const NAMES: &str = "the names that it is issued for changed";

/// Whether two Secrets trust the same CAs, in any order.
pub(super) fn trust_alike(one: &CertificateFacts, other: &CertificateFacts) -> bool {
    same_authorities(&one.trusted, &other.trusted)
}

/// Whether these are the same fingerprints, in any order.
pub(super) fn same_authorities(one: &[String], other: &[String]) -> bool {
    let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<_>>();
    set(one) == set(other)
}

/// Why a readable certificate is reissued.
fn renew(s: &Situation<'_>, old: &Certificate, signer: &str) -> Option<&'static str> {
    if old.is_over(s.o.now_ms) {
        Some("it has expired")
    } else if old.is_due(s.o.now_ms) {
        Some("two thirds of its lifetime have passed")
    } else if old.issuer.as_deref() != Some(signer) {
        Some("another CA signs now")
    } else {
        None
    }
}

/// A port's CA and its certificate; `None` if none exists yet.
fn authority<'a>(
    s: &Situation<'a>,
    draft: &mut Draft,
    port: TlsPort,
) -> Option<(&'a CertificateFacts, &'a Certificate)> {
    let secret = authority_secret_name(&s.cluster.name, port);
    let Some(facts) = s.o.tls.secrets.get(&secret) else {
        draft.step(
            Rule::Objects,
            Action::Certificate(CertificateAction::MakeAuthority { port, secret }),
            "it is missing",
        );
        return None;
    };
    if gone(draft, &secret, Some(facts)) {
        return None;
    }
    let certificate = facts.certificate.as_ref();
    if certificate.is_none() {
        let text = format!(
            "Secret {secret} contains no readable CA: restore its content, or delete it and the operator creates a new CA"
        );
        draft.stall("AuthorityUnreadable", text);
    }
    certificate.map(|certificate| (facts, certificate))
}

/// Whether a Secret is being deleted, which has to finish first.
pub(super) fn gone(draft: &mut Draft, secret: &str, facts: Option<&CertificateFacts>) -> bool {
    let goes = facts.is_some_and(|facts| facts.terminating);
    if goes {
        let text = format!("Secret {secret} to be deleted");
        draft.wait("IssueCertificate", "", "Terminating", text);
    }
    goes
}

/// Every member, and every server with a disk of this incarnation.
pub(super) fn members<'s>(s: &'s Situation<'_>) -> BTreeSet<&'s str> {
    let disks = s.our_pvcs().filter_map(|(_, pvc)| {
        // A recovery that was given up leaves the volumes of members marked as kept until a leader is seen again.
        let starts = |member: &&str| s.o.sets.contains_key(*member);
        let kept = pvc.state == PvcState::Retired;
        let member = pvc.member.as_deref().filter(|_| !pvc.terminating);
        member.filter(|member| !kept || starts(member))
    });
    let seats = s.voters.iter().chain(&s.learners);
    let seats = seats.filter(|(_, seat)| seat.ours);
    disks.chain(seats.map(|(name, _)| name.as_str())).collect()
}

/// Whether clients get a certificate, from the CA of this port.
fn has_user(s: &Situation<'_>, port: TlsPort) -> bool {
    let tls = s.cluster.spec.tls.as_ref();
    port == TlsPort::Client && tls.is_some_and(|tls| tls.client_auth == ClientAuth::Required)
}

/// The Secrets with certificates of a port, without the CA.
pub(super) fn certificates<'a>(
    s: &Situation<'a>,
    port: TlsPort,
) -> impl Iterator<Item = (String, &'a CertificateFacts)> + use<'a> {
    let mut names: Vec<String> = members(s)
        .into_iter()
        .map(|member| member_certificate_name(member, port))
        .collect();
    if has_user(s, port) {
        names.push(client_certificate_name(&s.cluster.name));
    }
    let secrets = &s.o.tls.secrets;
    names.into_iter().filter_map(move |name| {
        let facts = secrets.get(&name)?;
        Some((name, facts))
    })
}

/// What the members that answer have loaded for a port.
pub(super) fn loaded<'a>(
    s: &Situation<'a>,
    port: TlsPort,
) -> impl Iterator<Item = (&'a str, &'a PortSecurity)> + use<'a> {
    let loaded: BTreeMap<&'a str, &'a PortSecurity> = (s.o.descriptions.keys())
        .filter_map(|name| {
            let security = s.description(name)?.security.get(&port)?;
            security.tls.then_some((name.as_str(), security))
        })
        .collect();
    loaded.into_iter()
}

/// Whether members request client certificates on this port. Otherwise they need to trust no CA.
fn asks(s: &Situation<'_>, port: TlsPort) -> bool {
    port == TlsPort::Peer || has_user(s, port)
}

/// Members that answer and do not trust this CA yet. Leaving members need not reach the others.
fn doubters<'a>(s: &Situation<'a>, port: TlsPort, authority: &str) -> Vec<&'a str> {
    let (asks, members) = (asks(s, port), members(s));
    let knows = |security: &PortSecurity| security.trusted.iter().any(|known| known == authority);
    loaded(s, port)
        .filter(|(member, security)| {
            asks && !knows(security) && members.contains(member) && !s.leaving.contains(*member)
        })
        .map(|(member, _)| member)
        .collect()
}

/// Whether one of these blocks issuing the missing certificates.
pub(super) fn is_any_waited_for(s: &Situation<'_>, port: TlsPort, doubters: &[&str]) -> bool {
    doubters
        .iter()
        .any(|doubter| is_waited_for(s, port, doubter))
}

/// Whether a member that does not trust a CA yet blocks issuing the missing certificates: it would refuse them. Not one
/// that can learn the CA only with its own certificate, which is missing as well; nor one whose node does not report
/// and does not update Secrets, as long as it does not lead.
pub(super) fn is_waited_for(s: &Situation<'_>, port: TlsPort, doubter: &str) -> bool {
    // A kubelet that has forgotten the key exchanges nothing in the volume before its request is answered, not even the CAs; one
    // that renews a certificate does.
    let secret = s.o.tls.secrets.get(&member_certificate_name(doubter, port));
    let recorded = secret.and_then(|facts| facts.certificate.as_ref());
    let renews = recorded.is_some_and(|recorded| recorded.is_due(s.o.now_ms));
    let frozen = s.o.tls.request(doubter, port).is_some() && !renews;
    let can_learn = s.o.tls.is_there(doubter, port) && !frozen || mutant!(MissingWaits);
    let leads = s.view.is_some_and(|(leader, _)| leader == doubter);
    can_learn && (leads || !is_cut_off(s, doubter))
}

/// Whether the node of a member's pod does not report: then its kubelet carries nothing.
fn is_cut_off(s: &Situation<'_>, member: &str) -> bool {
    let pod = s.o.pods.get(member);
    let node = pod.and_then(|pod| pod.node.as_ref());
    node.is_some_and(|node| !s.o.node_reports(node))
}

/// What a member is to show and to trust on a port.
struct Due<'a> {
    secret: String,
    certificate: &'a Certificate,
    trusted_secret: String,
    trusted: &'a [String],
}

fn due<'a>(s: &Situation<'a>, member: &str, port: TlsPort) -> Option<Due<'a>> {
    if let Some(user_certificate) = s.o.tls.user_certificates.get(&port) {
        // One that was started with other Secrets loads these when it is restarted.
        let certificate = user_certificate
            .certificate
            .as_ref()
            .filter(|_| s.is_started_as_wanted(member))?;
        return Some(Due {
            secret: user_certificate.secret.clone(),
            certificate,
            trusted_secret: user_certificate.trusted_secret.clone(),
            trusted: &user_certificate.trusted,
        });
    }
    let secret = member_certificate_name(member, port);
    let facts = s.o.tls.secrets.get(&secret)?;
    Some(Due {
        certificate: facts.certificate.as_ref()?,
        trusted_secret: secret.clone(),
        secret,
        trusted: &facts.trusted,
    })
}

/// A member that answers and has not loaded what its Secret holds, and what it is to load.
pub(in crate::plan) fn lagging<'a>(s: &Situation<'a>, port: TlsPort) -> Option<(&'a str, String)> {
    all_lagging(s, port).next()
}

/// All of these.
pub(super) fn all_lagging<'a>(
    s: &Situation<'a>,
    port: TlsPort,
) -> impl Iterator<Item = (&'a str, String)> {
    let asks = asks(s, port);
    loaded(s, port).filter_map(move |(member, security)| {
        let due = due(s, member, port)?;
        if due.certificate.fingerprint != security.fingerprint {
            let secret = due.secret;
            return Some((member, format!("{member} to load the certificate {secret}")));
        }
        let held: BTreeSet<&String> = due.trusted.iter().collect();
        let differs = asks && held != security.trusted.iter().collect();
        differs.then(|| {
            let secret = due.trusted_secret;
            (member, format!("{member} to load the CAs in {secret}"))
        })
    })
}

/// Certificates of removed members, and that of clients if none is requested.
fn drop_surplus(s: &Situation<'_>, draft: &mut Draft) {
    let members = members(s);
    let user = client_certificate_name(&s.cluster.name);
    if let Some(facts) = s.o.tls.secrets.get(&user)
        && !has_user(s, TlsPort::Client)
        && !facts.terminating
        && facts.owner == Owner::Ours
    {
        let uid = facts.uid.clone();
        let action = Action::Certificate(CertificateAction::DropCertificate { secret: user, uid });
        draft.step(Rule::Leftovers, action, "clients need none");
    }
    for (secret, facts) in &s.o.tls.secrets {
        let Some(member) = facts.member.as_deref() else {
            continue;
        };
        let used = members.contains(member)
            || s.o.sets.contains_key(member)
            || s.o.pods.contains_key(member)
            || s.o.earlier.sets.contains_key(member)
            || s.o.earlier.pods.contains_key(member)
            || facts.terminating
            || facts.owner != Owner::Ours;
        if !used {
            let action = Action::Certificate(CertificateAction::DropCertificate {
                secret: secret.clone(),
                uid: facts.uid.clone(),
            });
            draft.step(Rule::Leftovers, action, format!("{member} is gone"));
        }
    }
}
