//! Certificates: the content of their Secrets, as facts, and the actions that write them, which read the Secrets live. Keys
//! are generated here and written only to their Secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::facts;
use super::kept_secret::KeptSecret;
use super::objects::{Owned, apply, create, delete, failure};
use super::platform::OneCluster;
use super::pod_certificates;
use crate::build;
use crate::crd::{
    LABEL_CLUSTER, LABEL_MEMBER, TlsPort, ValidatedCluster, authority_secret_name,
    member_certificate_name,
};
use crate::mutants::mutant;
use crate::operator::platform::Failure;
use crate::plan::{CertificateAction, CertificateFacts, Owner, Rotation};
use crate::server::operator_api::secure::Secure;
use crate::server::tls::certificates::{Certificate, Chain};
use crate::server::tls::issue::{Authority, Issued, Purpose, Validity};

/// Label of what an object is for.
const COMPONENT: &str = "app.kubernetes.io/component";
const DAY_MS: u64 = 86_400_000;
/// Validity of a CA.
const AUTHORITY_DAYS: u64 = 3_650;
/// How long any other certificate holds; it is renewed after two thirds of that.
const CERTIFICATE_DAYS: u64 = 90;
/// Of a Secret with more CAs, or a certificate with a longer chain, nothing is read: whoever may create Secrets in one namespace must
/// not keep those of all clusters waiting until theirs are verified.
const MOST_AUTHORITIES: usize = 32;
const MOST_CHAIN: usize = 8;
/// Bytes of the longest certificate among these, as PEM.
const MOST_CERTIFICATE: usize = 4096;
/// Bytes of the longest chain, as PEM.
pub(super) const MOST_CHAIN_BYTES: usize = MOST_CHAIN * MOST_CERTIFICATE;
/// Clocks that are behind by at most this accept a new certificate at once, in milliseconds.
const SKEW_MS: u64 = 3_600_000;
/// The user of the client certificate, if authentication is enabled.
const USER: &str = "root";

/// What is read of a Secret's certificates: never a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    certificate: Option<crate::plan::Certificate>,
    /// The fingerprints of the CAs in its `ca.crt`.
    trusted: Vec<String>,
    next: Option<crate::plan::Certificate>,
    /// Its `ca.crt`, if that can be read and members of a peer port may be dialled by it.
    pub(super) roots: Option<String>,
}

impl Held {
    pub(super) fn of(secret: &Secret) -> Held {
        let has_roots = has_peer_roots(&secret.name_any());
        let is_read = is_certificate(&secret.metadata) || mutant!(EveryCertificateVerified);
        if !has_roots && !is_read {
            return Held::default();
        }
        let (text, trusted) = few_authorities(secret).unzip();
        let roots = text.filter(|_| has_roots);
        if !is_read {
            return Held {
                roots,
                ..Held::default()
            };
        }
        let trusted = trusted.unwrap_or_default();
        Held {
            certificate: held(secret, &trusted),
            trusted: (trusted.iter()).map(|one| one.sha256.clone()).collect(),
            next: next(secret, &trusted),
            roots,
        }
    }
}

/// Whether [`way`] may take the CAs of a Secret with this name.
fn has_peer_roots(name: &str) -> bool {
    let peer = TlsPort::Peer;
    let of = [
        authority_secret_name("", peer),
        member_certificate_name("", peer),
    ];
    of.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether a Secret holds a certificate of ours.
fn is_certificate(meta: &ObjectMeta) -> bool {
    facts::has_label(meta, COMPONENT, build::CERTIFICATE_COMPONENT)
}

/// The facts of the Secrets with certificates among these.
pub(super) fn read<'a>(
    secrets: impl Iterator<Item = &'a KeptSecret>,
    (name, uid): (&str, &str),
) -> BTreeMap<String, CertificateFacts> {
    let ours = secrets.filter(|secret| is_certificate(secret.meta()));
    ours.map(|secret| (secret.name_any(), certificate(secret, name, uid)))
        .collect()
}

fn certificate(secret: &KeptSecret, name: &str, uid: &str) -> CertificateFacts {
    let meta = secret.meta();
    let held = secret.held().into_owned();
    CertificateFacts {
        uid: meta.uid.clone().unwrap_or_default(),
        owner: facts::owner(meta, name, uid),
        terminating: meta.deletion_timestamp.is_some(),
        inputs: facts::annotation(meta, crate::crd::ANNOTATION_INPUTS),
        member: facts::label(meta, LABEL_MEMBER),
        certificate: held.certificate,
        trusted: held.trusted,
        next: held.next,
        rotated_for: facts::annotation(meta, build::ANNOTATION_ROTATED),
    }
}

/// The next signing CA.
fn next(secret: &Secret, trusted: &[Certificate]) -> Option<crate::plan::Certificate> {
    let certificate = build::secret_text(secret, build::NEXT_CERTIFICATE)?;
    let key = build::secret_text(secret, build::NEXT_KEY)?;
    pair(&certificate, &key, trusted)
}

/// The CAs in a Secret's `ca.crt`; none if it cannot be read.
fn authorities(secret: &Secret) -> Vec<Certificate> {
    let text = build::secret_text(secret, build::CA_CERTIFICATES).unwrap_or_default();
    Certificate::all(&text).unwrap_or_default()
}

/// The same with its text, if it can be read and has no more than those of ours.
fn few_authorities(secret: &Secret) -> Option<(String, Vec<Certificate>)> {
    let text = build::secret_text(secret, build::CA_CERTIFICATES)?;
    let all = few_authorities_of(&text)?;
    Some((text, all))
}

/// The CAs in a text, if it can be read and has no more than those of ours.
pub(super) fn few_authorities_of(text: &str) -> Option<Vec<Certificate>> {
    if text.len() > MOST_AUTHORITIES * MOST_CERTIFICATE {
        return None;
    }
    let all = Certificate::all(text).ok()?;
    let few = all.len() <= MOST_AUTHORITIES || mutant!(AnyNumberOfAuthorities);
    few.then_some(all)
}

/// The certificate of a Secret, if it is valid PEM and its key exists, or is not to be there.
pub(super) fn held(secret: &Secret, trusted: &[Certificate]) -> Option<crate::plan::Certificate> {
    let certificate = build::secret_text(secret, build::CERTIFICATE)?;
    if secret.type_.as_deref() == Some(build::POD_KEY) {
        return Some(shown(&few_of(&certificate)?, trusted));
    }
    let key = build::secret_text(secret, build::CERTIFICATE_KEY)
        .or_else(|| build::secret_text(secret, build::CA_KEY))?;
    pair(&certificate, &key, trusted)
}

fn pair(certificate: &str, key: &str, trusted: &[Certificate]) -> Option<crate::plan::Certificate> {
    let chain = few_of(certificate)?;
    chain.fits(key).then(|| shown(&chain, trusted))
}

/// A chain, if it is no longer than those of ours.
fn few_of(certificate: &str) -> Option<Chain> {
    if certificate.len() > MOST_CHAIN_BYTES {
        return None;
    }
    Chain::read(certificate).ok()
}

fn shown(chain: &Chain, trusted: &[Certificate]) -> crate::plan::Certificate {
    let issuer = trusted
        .iter()
        .find(|one| chain.leads_to(std::slice::from_ref(*one)));
    let ms = |at: i64| u64::try_from(at).unwrap_or(0);
    crate::plan::Certificate {
        fingerprint: chain.leaf.sha256.clone(),
        not_before_ms: ms(chain.leaf.not_before_ms),
        not_after_ms: ms(chain.leaf.not_after_ms),
        issuer: issuer.map(|one| one.sha256.clone()),
    }
}

/// How a member's peer port is dialled.
#[derive(Debug, PartialEq)]
pub(super) enum Way {
    /// It was started without TLS, and its StatefulSet does not require TLS only.
    Plain,
    /// It has to prove this.
    Secure(Secure),
    /// Not yet: the CA is not known.
    None,
}

/// How a member's peer port is dialled. Once its StatefulSet is created for TLS only, which happens after every member
/// uses it, nothing in its pod leads to a connection without TLS. Until then the settings with which the pod was
/// started count. `roots`: the CAs in one of the cluster's Secrets.
pub(super) fn way(
    cluster: Option<&ValidatedCluster>,
    member: &str,
    (pod, set): (&Pod, &StatefulSet),
    roots: impl Fn(&str) -> Option<String>,
    user_roots: impl Fn(&str) -> Option<String>,
) -> Way {
    let template = set.spec.as_ref().and_then(|set| set.template.spec.as_ref());
    let demanded = !build::takes_plain_peers(template) && !mutant!(PodChoosesTls);
    if !demanded && !build::speaks_tls(pod.spec.as_ref()) {
        return Way::Plain;
    }
    let Some(cluster) = cluster else {
        return Way::None;
    };
    let authority = authority_secret_name(&cluster.name, TlsPort::Peer);
    let own = member_certificate_name(member, TlsPort::Peer);
    let roots_pem = match build::mounted_user_secrets(pod.spec.as_ref(), TlsPort::Peer) {
        Some((_, trusted)) => user_roots(&trusted),
        None => roots(&authority).or_else(|| roots(&own)),
    };
    roots_pem.map_or(Way::None, |roots_pem| {
        Way::Secure(Secure {
            roots_pem: roots_pem.into(),
            server_name: build::host(cluster, member),
            plaintext_too: false,
        })
    })
}

/// Carries out an act on certificates.
pub(super) async fn apply_action(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    action: &CertificateAction,
) -> Result<(), Failure> {
    let (client, namespace) = (&one.shared.client, one.key.0.as_str());
    let ours = Owned::Controller(&cluster.uid);
    match action {
        CertificateAction::MakeAuthority { port, .. } => {
            let secret = make_authority(one, cluster, *port).await?;
            create(client, namespace, &secret, ours).await.map(|_| ())
        }
        CertificateAction::RotateAuthority {
            port,
            secret,
            signs,
            stage,
        } => rotate(one, cluster, *port, (secret, signs, stage)).await,
        CertificateAction::IssueCertificate {
            port,
            member,
            secret,
            authority,
            replaces,
        } => {
            let found = live(one, secret).await?;
            let now = found.as_ref().and_then(|found| held(found, &[]));
            if now.map(|now| now.fingerprint) != *replaces {
                return Err(Failure::Changed(format!(
                    "{secret} holds another one by now"
                )));
            }
            let signer = signer(one, cluster, *port, authority).await?;
            let issued = issue(one, cluster, (*port, member.as_deref()), &signer)?;
            let (port, member) = (*port, member.as_deref());
            let (certificate, key) = (&issued.certificate, &issued.key);
            let secret =
                build::certificate_secret(cluster, port, member, certificate, key, &signer.trusted);
            apply(client, namespace, &secret, ours).await.map(|_| ())
        }
        CertificateAction::MakeTrust { port, member, .. } => {
            pod_certificates::make_trust(one, cluster, *port, member).await
        }
        CertificateAction::SignRequest {
            port,
            member,
            secret,
            request,
            uid,
            authority,
            replaces,
            ..
        } => {
            let wanted = pod_certificates::Request {
                port: *port,
                member,
                request: (request, uid),
                secret,
                authority,
                replaces: replaces.as_deref(),
            };
            pod_certificates::sign(one, cluster, &wanted).await
        }
        CertificateAction::TrustAuthorities { port, secret, .. } => {
            trust(one, cluster, *port, secret).await
        }
        CertificateAction::PublishAuthorities { trusted, .. } => {
            super::trust_bundle::publish(one, cluster, trusted).await
        }
        CertificateAction::WithdrawAuthorities { bundle, uid } => {
            super::trust_bundle::withdraw(client, bundle, uid).await
        }
        CertificateAction::DropCertificate { secret, uid } => {
            delete::<Secret>(client, namespace, secret, one.as_seen(uid))
                .await
                .map(|_| ())
        }
    }
}

/// A Secret as it is now.
pub(super) async fn live(one: &OneCluster, name: &str) -> Result<Option<Secret>, Failure> {
    let api: Api<Secret> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let found = api.get_opt(name).await;
    found.map_err(|error| failure("read", name, &error))
}

/// A CA as currently in its Secret.
pub(super) struct Signer {
    pub(super) certificate: Certificate,
    pub(super) authority: Authority,
    pub(super) trusted: String,
}

pub(super) async fn signer(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
    fingerprint: &str,
) -> Result<Signer, Failure> {
    let name = authority_secret_name(&cluster.name, port);
    let changed = || Failure::Changed(format!("Secret {name} holds another authority by now"));
    let secret = live(one, &name).await?.ok_or_else(changed)?;
    let text = |key| build::secret_text(&secret, key).ok_or_else(changed);
    let pem = text(build::CERTIFICATE)?;
    let certificate = Certificate::first(&pem).map_err(|_| changed())?;
    if certificate.sha256 != fingerprint {
        return Err(changed());
    }
    let authority = Authority::stored(&pem, &text(build::CA_KEY)?);
    let authority =
        authority.map_err(|error| Failure::Refused(format!("Secret {name}: {error}")))?;
    Ok(Signer {
        certificate,
        authority,
        trusted: text(build::CA_CERTIFICATES)?,
    })
}

fn issue(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    (port, member): (TlsPort, Option<&str>),
    signer: &Signer,
) -> Result<Issued, Failure> {
    // A certificate must not outlive its CA.
    let end = u64::try_from(signer.certificate.not_after_ms).unwrap_or(0);
    let validity = validity(one.shared.outside.clock.unix_ms(), CERTIFICATE_DAYS, end)?;
    let issued = match member {
        Some(member) => {
            let names = build::certificate_names(cluster, member, port);
            let authority = &signer.authority;
            authority.issue(member, &names, Purpose::Member, validity)
        }
        None => (signer.authority).issue(USER, &[], Purpose::Client, validity),
    };
    issued.map_err(|error| Failure::Refused(error.to_string()))
}

/// So many days from now, for clocks that are a little behind too, and no longer than until `most_ms`.
pub(super) fn validity(now_ms: u64, days: u64, most_ms: u64) -> Result<Validity, Failure> {
    let at = |ms: u64| {
        let time = i64::try_from(ms).ok();
        let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.ok_or_else(|| Failure::Refused("the clock is beyond the calendar".into()))
    };
    Ok(Validity {
        not_before: at(now_ms.saturating_sub(SKEW_MS))?,
        not_after: at(now_ms.saturating_add(days * DAY_MS).min(most_ms))?,
    })
}

/// A new self-signed CA.
fn new_authority(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
) -> Result<Issued, Failure> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("{} {} authority {}", cluster.name, port.as_str(), &id[..8]);
    let validity = validity(one.shared.outside.clock.unix_ms(), AUTHORITY_DAYS, u64::MAX)?;
    let issued = Authority::new(&name, validity, None).and_then(|made| made.issued());
    issued.map_err(|error| Failure::Refused(error.to_string()))
}

/// The first CA; those that verify existing certificates are trusted as well.
async fn make_authority(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
) -> Result<Secret, Failure> {
    let issued = new_authority(one, cluster, port)?;
    let api: Api<Secret> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let of_name = ListParams::default().labels(&format!("{LABEL_CLUSTER}={}", cluster.name));
    let found = api.list(&of_name).await;
    let found = found.map_err(|error| failure("list", "secrets", &error))?;
    let suffix = member_certificate_name("", port);
    let mut trusted = vec![issued.certificate.clone()];
    // No CA is taken from a Secret that is not ours.
    let ours = |secret: &&Secret| {
        let owner = facts::owner(&secret.metadata, &cluster.name, &cluster.uid);
        is_certificate(&secret.metadata) && owner == Owner::Ours
    };
    for secret in found.items.iter().filter(ours) {
        if secret.name_any().ends_with(&suffix) {
            for old in authorities(secret) {
                if !trusted.contains(&old.pem()) {
                    trusted.push(old.pem());
                }
            }
        }
    }
    let content = build::AuthorityContent {
        certificate: issued.certificate,
        key: issued.key,
        trusted: trusted.concat(),
        next: None,
        rotated_for: one.rotation(port),
    };
    Ok(build::authority_secret(cluster, port, &content))
}

/// Executes a stage of a CA rotation.
async fn rotate(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
    (name, signs, stage): (&str, &str, &Rotation),
) -> Result<(), Failure> {
    let changed = || Failure::Changed(format!("Secret {name} holds something else by now"));
    let found = live(one, name).await?.ok_or_else(changed)?;
    let text = |key| build::secret_text(&found, key).ok_or_else(changed);
    let certificate = Certificate::first(&text(build::CERTIFICATE)?).map_err(|_| changed())?;
    if certificate.sha256 != signs {
        return Err(changed());
    }
    let others = |first: &[&Certificate]| {
        let own = |one: &Certificate| first.iter().any(|own| own.sha256 == one.sha256);
        let all = authorities(&found);
        let others = all.iter().filter(|one| !own(one));
        let all = first.iter().copied().chain(others);
        all.map(Certificate::pem).collect::<String>()
    };
    let kept = facts::annotation(&found.metadata, build::ANNOTATION_ROTATED);
    let next = text(build::NEXT_CERTIFICATE).and_then(|pem| {
        let read = Certificate::first(&pem).map_err(|_| changed())?;
        Ok((read, text(build::NEXT_KEY)?))
    });
    let content = match stage {
        Rotation::Prepare { asked } => {
            if next.is_ok() {
                return Err(changed());
            }
            let issued = new_authority(one, cluster, port)?;
            let read = Certificate::first(&issued.certificate).map_err(|_| changed())?;
            build::AuthorityContent {
                certificate: certificate.pem(),
                key: text(build::CA_KEY)?,
                trusted: others(&[&certificate, &read]),
                next: Some((issued.certificate, issued.key)),
                rotated_for: asked.clone(),
            }
        }
        Rotation::Switch { to } => {
            let (next, key) = next?;
            if next.sha256 != *to {
                return Err(changed());
            }
            build::AuthorityContent {
                certificate: next.pem(),
                key,
                trusted: others(&[&next]),
                next: None,
                rotated_for: kept,
            }
        }
        Rotation::Forget => build::AuthorityContent {
            certificate: certificate.pem(),
            key: text(build::CA_KEY)?,
            trusted: certificate.pem(),
            next: None,
            rotated_for: kept,
        },
    };
    let mut secret = build::authority_secret(cluster, port, &content);
    // Changes made by others in the meantime are not undone.
    secret.metadata.resource_version = found.resource_version();
    let ours = Owned::Controller(&cluster.uid);
    let client = &one.shared.client;
    apply(client, &one.key.0, &secret, ours).await.map(|_| ())
}

/// The CAs that are trusted now, PEM, as in a CA's Secret.
pub(super) async fn trusted(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
) -> Result<String, Failure> {
    let authority = authority_secret_name(&cluster.name, port);
    let from = live(one, &authority).await?;
    let trusted = from.and_then(|from| build::secret_text(&from, build::CA_CERTIFICATES));
    trusted.ok_or_else(|| Failure::Changed(format!("Secret {authority} is another by now")))
}

/// Writes the currently trusted CAs of a CA's Secret next to a certificate.
async fn trust(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    port: TlsPort,
    name: &str,
) -> Result<(), Failure> {
    let changed = |name: &str| Failure::Changed(format!("Secret {name} is another by now"));
    let trusted = trusted(one, cluster, port).await?;
    let found = live(one, name).await?.ok_or_else(|| changed(name))?;
    let text = |key| build::secret_text(&found, key).ok_or_else(|| changed(name));
    let member = facts::label(&found.metadata, LABEL_MEMBER);
    let mut secret = match member.as_deref() {
        Some(member) if found.type_.as_deref() == Some(build::POD_KEY) => {
            let certificate = build::secret_text(&found, build::CERTIFICATE);
            build::pod_key_secret(cluster, port, member, certificate.as_deref(), &trusted)
        }
        member => build::certificate_secret(
            cluster,
            port,
            member,
            &text(build::CERTIFICATE)?,
            &text(build::CERTIFICATE_KEY)?,
            &trusted,
        ),
    };
    // Its recorded inputs do not change: the certificate is not a new one.
    if let (Some(now), Some(new)) = (
        facts::annotation(&found.metadata, crate::crd::ANNOTATION_INPUTS),
        secret.metadata.annotations.as_mut(),
    ) {
        new.insert(crate::crd::ANNOTATION_INPUTS.to_owned(), now);
    }
    // A renewal in the meantime is not undone.
    secret.metadata.resource_version = found.resource_version();
    let ours = Owned::Controller(&cluster.uid);
    let client = &one.shared.client;
    apply(client, &one.key.0, &secret, ours).await.map(|_| ())
}

#[cfg(test)]
#[path = "certificates_test.rs"]
mod tests;
