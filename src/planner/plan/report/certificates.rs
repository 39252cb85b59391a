//! The reported state of a cluster's certificates: the expiry of each, and whether all are in order.

use std::collections::BTreeMap;

use crate::crd::ConditionStatus::{False, True};
use crate::crd::{
    CertificateStatus, ClientAuth, ConditionType, SecretReference, TlsPort, authority_secret_name,
    client_certificate_name, trust_bundle_name,
};
use crate::plan::certificates::Certificate;
use crate::plan::rules::certificates::lagging;
use crate::plan::rules::user_certificates::unfit;
use crate::plan::situation::Situation;
use crate::plan::step::ConditionInput;

use super::timestamp;

/// Every certificate that there is, in order of the Secrets' names.
pub(super) fn rows(s: &Situation<'_>) -> Vec<CertificateStatus> {
    let row = |(secret, certificate): (&str, &Certificate)| CertificateStatus {
        secret: secret.to_owned(),
        port: port_of(s, secret).as_str().to_owned(),
        member: (s.o.tls.secrets.get(secret)).and_then(|facts| facts.member.clone()),
        not_after: timestamp(certificate.not_after_ms),
    };
    all(s).map(row).take(64).collect()
}

/// The Secrets that clients need: the CAs, and a certificate.
pub(super) fn references(s: &Situation<'_>) -> (Option<SecretReference>, Option<SecretReference>) {
    let name = s.cluster.name.as_str();
    let Some(tls) = &s.cluster.spec.tls else {
        return (None, None);
    };
    let made = |name: String| {
        let facts = s.o.tls.secrets.get(&name)?;
        let readable = facts.certificate.is_some();
        readable.then_some(SecretReference { name })
    };
    if let Some(user_certificate) = s.o.tls.user_certificates.get(&TlsPort::Client) {
        // The issuer of clients' certificates is up to the user.
        let name = user_certificate.trusted_secret.clone();
        let trusted = (!user_certificate.trusted.is_empty()).then_some(SecretReference { name });
        return (trusted, None);
    }
    let user = (tls.client_auth == ClientAuth::Required).then(|| client_certificate_name(name));
    (
        made(authority_secret_name(name, TlsPort::Client)),
        user.and_then(made),
    )
}

/// The ClusterTrustBundle that clients may mount, also while it is still to be deleted.
pub(super) fn bundle(s: &Situation<'_>) -> Option<String> {
    let published = s.o.tls.bundle.ours();
    published.map(|_| trust_bundle_name(&s.cluster.namespace, &s.cluster.name))
}

/// TLSReady; `None` for a cluster without TLS.
pub(super) fn ready(s: &Situation<'_>) -> Option<ConditionInput> {
    s.cluster.spec.tls.as_ref()?;
    let now_ms = s.o.now_ms;
    let condition = |status, reason, message: String| {
        Some(ConditionInput {
            type_: ConditionType::TlsReady,
            status,
            reason,
            message,
        })
    };
    let mut missing = s.o.tls.wanted.keys().filter(|port| {
        let secret = authority_secret_name(&s.cluster.name, **port);
        let facts = s.o.tls.secrets.get(&secret);
        facts.is_none_or(|facts| facts.certificate.is_none())
    });
    if let Some(port) = missing.next() {
        let text = format!(
            "the CA of the {} port has not been created yet",
            port.as_str()
        );
        return condition(False, "NotIssued", text);
    }
    // The requested certificates are not those in use, even if those in use are valid.
    let refused = s.o.refused.as_ref();
    if let Some(change) = refused.filter(|change| change.of_certificate) {
        return condition(False, change.reason, change.text.clone());
    }
    if let Some(unfit) = unfit(s) {
        return condition(False, unfit.reason, unfit.text);
    }
    let words = |(secret, certificate): (&str, &Certificate)| {
        format!("{secret}, at {}", timestamp(certificate.not_after_ms))
    };
    if let Some(over) = all(s).find(|(_, certificate)| certificate.is_over(now_ms)) {
        let text = format!("a certificate has expired: {}", words(over));
        return condition(False, "CertificateExpired", text);
    }
    if let Some(late) = all(s).find(|(_, certificate)| certificate.is_late(now_ms)) {
        let text = format!("a certificate expires soon: {}", words(late));
        return condition(False, "CertificateExpiring", text);
    }
    let user_certificates = s.o.tls.user_certificates.values();
    let mut user_certificates =
        user_certificates.filter_map(|one| Some((one.secret.as_str(), one.certificate.as_ref()?)));
    if let Some(soon) = user_certificates.find(|(_, certificate)| certificate.ends_soon(now_ms)) {
        let text = format!(
            "a certificate expires soon: {}; its successor goes into the same Secret",
            words(soon)
        );
        return condition(False, "CertificateExpiring", text);
    }
    for port in TlsPort::ALL {
        if let Some((_, what)) = lagging(s, port) {
            return condition(True, "Renewing", format!("waiting for {what}"));
        }
    }
    for port in s.o.tls.wanted.keys() {
        let secret = authority_secret_name(&s.cluster.name, *port);
        let next =
            s.o.tls
                .secrets
                .get(&secret)
                .is_some_and(|facts| facts.next.is_some());
        if next {
            let text = format!(
                "{secret} has another CA that will soon sign: clients must trust it by then"
            );
            return condition(True, "RotatingAuthority", text);
        }
    }
    let first = all(s).min_by_key(|(_, certificate)| certificate.not_after_ms);
    let first = first.map_or(String::new(), words);
    let text = match all(s).count() {
        1 => format!("1 certificate is valid; it expires: {first}"),
        n => format!("{n} certificates are valid; the first to expire: {first}"),
    };
    condition(True, "AsWanted", text)
}

/// Every certificate by its Secret; one that both ports use only once.
fn all<'a>(s: &Situation<'a>) -> impl Iterator<Item = (&'a str, &'a Certificate)> + use<'a> {
    let secrets = s.o.tls.secrets.iter();
    let secrets = secrets.filter(|(name, facts)| !s.binds_nobody(port_of(s, name), facts));
    let made =
        secrets.filter_map(|(name, facts)| Some((name.as_str(), facts.certificate.as_ref()?)));
    let user_certificates = s.o.tls.user_certificates.values();
    let user_certificates =
        user_certificates.filter_map(|one| Some((one.secret.as_str(), one.certificate.as_ref()?)));
    let all: BTreeMap<&str, &Certificate> = made.chain(user_certificates).collect();
    all.into_iter()
}

/// The names of our Secrets contain their port; the clients' certificate belongs to the client port.
fn port_of(s: &Situation<'_>, secret: &str) -> TlsPort {
    let mut user_certificates = s.o.tls.user_certificates.iter();
    if let Some((port, _)) = user_certificates.find(|(_, one)| one.secret == secret) {
        return *port;
    }
    let peer = secret == authority_secret_name(&s.cluster.name, TlsPort::Peer)
        || secret.ends_with("-peer-tls");
    if peer { TlsPort::Peer } else { TlsPort::Client }
}
