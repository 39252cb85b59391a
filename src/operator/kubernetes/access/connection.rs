//! The Secrets of a user: the one with the password, where that is the user's own, and the connection Secret that the
//! operator writes. Passwords and keys are in nothing that is printed, logged or planned with.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::Accesses;
use super::client_signer::ClientSigner;
use super::observe::{secret_name, user_name};
use crate::access_plan::{CertificateInUse, ConnectionFacts, PasswordFacts};
use crate::build::{self, ConnectionContent};
use crate::crd::access::{EtcdUser, EtcdUserSpec};
use crate::crd::{ANNOTATION_PASSWORD_MADE, TlsPort, ValidatedCluster, authority_secret_name};
use crate::operator::kubernetes::certificates::MOST_CHAIN_BYTES;
use crate::operator::kubernetes::objects::{Owned, apply, failure};
use crate::operator::platform::Failure;
use crate::server::tls::certificates::Chain;

/// The longest password that bcrypt takes, in bytes.
const LONGEST: usize = 72;
/// How long the CA has to hold for another certificate.
const LEAST_MS: i64 = 86_400_000;
/// Random bytes of a password of the operator's: 32 letters.
const RANDOM: usize = 24;

/// What was read of the Secrets of a user.
pub(super) struct Secrets {
    /// The password that the user should have, or why there is none.
    password: Result<String, String>,
    connection: Option<Secret>,
    /// The cluster, with its CAs and who signs for clients; where the cluster was reached.
    cluster: Option<(ValidatedCluster, Option<String>, Option<ClientSigner>)>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

impl Secrets {
    /// The password that the user should have.
    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref().ok()
    }

    pub(super) fn password_facts(&self, spec: &EtcdUserSpec) -> PasswordFacts {
        match (&spec.password, &self.password) {
            (None, _) => PasswordFacts::NotAsked,
            (Some(_), Err(why)) => PasswordFacts::Missing(why.clone()),
            (Some(asked), Ok(_)) => PasswordFacts::There {
                made_ms: match asked.secret_ref {
                    Some(_) => None,
                    None => self
                        .made()
                        .and_then(|at| u64::try_from(at.as_millisecond()).ok()),
                },
            },
        }
    }

    fn made(&self) -> Option<Timestamp> {
        made(self.connection.as_ref())
    }

    /// The password for the connection Secret: while the user's own is missing, the one that is in it stays.
    fn password_to_keep(&self, user: &EtcdUser) -> Option<String> {
        user.spec.password.as_ref()?;
        let known = self.password().map(str::to_owned);
        known.or_else(|| self.text(build::PASSWORD))
    }

    /// Nothing was read.
    pub(super) fn unread() -> Secrets {
        Secrets {
            password: Err("it was not read".into()),
            connection: None,
            cluster: None,
        }
    }

    /// The connection Secret of a cluster that does not answer: nothing is written over it.
    pub(super) fn unknown_connection(&self) -> ConnectionFacts {
        ConnectionFacts {
            exists: self.connection.is_some(),
            is_current: true,
            certificate: self.certificate(|_| true, None),
        }
    }

    /// The certificate in the connection Secret, if its key fits.
    fn certificate(
        &self,
        fits: impl Fn(&Chain) -> bool,
        signer: Option<&ClientSigner>,
    ) -> Option<CertificateInUse> {
        let connection = self.connection.as_ref()?;
        let certificate = build::secret_text(connection, build::CERTIFICATE)?;
        let key = build::secret_text(connection, build::CERTIFICATE_KEY)?;
        if certificate.len() > MOST_CHAIN_BYTES {
            return None;
        }
        let chain = Chain::read(&certificate).ok()?;
        let ms = |at: i64| u64::try_from(at).unwrap_or(0);
        chain.fits(&key).then(|| CertificateInUse {
            fits: fits(&chain),
            is_longest: signer
                .is_some_and(|signer| chain.leaf.not_after_ms >= signer.certificate.not_after_ms),
            not_before_ms: ms(chain.leaf.not_before_ms),
            not_after_ms: ms(chain.leaf.not_after_ms),
        })
    }

    /// Whether the CA lasts for another while: what it signs ends with it.
    pub(super) fn signs_long_enough(&self, now: Timestamp) -> Result<(), String> {
        let signer = self
            .cluster
            .as_ref()
            .and_then(|(_, _, signer)| signer.as_ref());
        let ends = signer.map(|signer| signer.certificate.not_after_ms);
        match ends.is_some_and(|ends| ends < now.as_millisecond() + LEAST_MS) {
            true => Err("the CA of the cluster's client port expires within a day: see the cluster's condition TLSReady".into()),
            false => Ok(()),
        }
    }

    /// Of the connection Secret.
    fn text(&self, key: &str) -> Option<String> {
        build::secret_text(self.connection.as_ref()?, key)
    }
}

impl Accesses {
    /// Reads both Secrets.
    pub(super) async fn read_secrets(&self, user: &EtcdUser) -> Result<Secrets, Failure> {
        let namespace = user.namespace().unwrap_or_default();
        let name = secret_name(user);
        let found = self.live::<Secret>(&namespace, &name).await?;
        let connection = found.filter(|secret| is_of(secret, user));
        let own = user.spec.password.as_ref();
        let own = own.and_then(|password| password.secret_ref.as_ref());
        let password = match own {
            Some(own) => {
                let secret = self.live::<Secret>(&namespace, &own.name).await?;
                password(secret.as_ref(), &own.name, &own.key)
            }
            None => made_password(connection.as_ref(), &name),
        };
        Ok(Secrets {
            password,
            connection,
            cluster: None,
        })
    }

    /// Compares the connection Secret with what it should hold.
    pub(super) async fn connection_facts(
        &self,
        user: &EtcdUser,
        (cluster, certificates): (ValidatedCluster, bool),
        secrets: &mut Secrets,
    ) -> Result<ConnectionFacts, Failure> {
        let authorities = self.authorities(&cluster).await?;
        let signer = match user.spec.certificate {
            Some(_) if certificates => Some(self.signer(&cluster).await?),
            _ => None,
        };
        let name = user_name(user);
        let signs = |chain: &Chain| {
            let signs =
                |signer: &ClientSigner| chain.may_dial(std::slice::from_ref(&signer.certificate));
            chain.leaf.common_name == name && signer.as_ref().is_some_and(signs)
        };
        let certificate = secrets.certificate(signs, signer.as_ref());
        let is_current = {
            let pair = (
                secrets.text(build::CERTIFICATE),
                secrets.text(build::CERTIFICATE_KEY),
            );
            let pair = (pair.0.as_deref()).zip(pair.1.as_deref());
            let password = secrets.password_to_keep(user);
            let wanted = build::connection_data(ConnectionContent {
                cluster: &cluster,
                user: &name,
                secret: &secret_name(user),
                asked: user.spec.connection.as_ref(),
                authorities: authorities.as_deref(),
                password: password.as_deref(),
                certificate: pair.filter(|_| user.spec.certificate.is_some()),
            });
            // Whatever somebody else has put beside it is left alone.
            let same = |key: &&str| secrets.text(key) == wanted.get(*key).cloned();
            build::CONNECTION_KEYS.iter().all(same)
        };
        secrets.cluster = Some((cluster, authorities, signer));
        Ok(ConnectionFacts {
            exists: secrets.connection.is_some(),
            is_current,
            certificate,
        })
    }

    /// The CAs by which clients know the members; none without TLS.
    async fn authorities(&self, cluster: &ValidatedCluster) -> Result<Option<String>, Failure> {
        let Some(tls) = &cluster.spec.tls else {
            return Ok(None);
        };
        let secret = match tls.user_secrets(&cluster.name, TlsPort::Client) {
            Some((_, trusted)) => trusted,
            None => authority_secret_name(&cluster.name, TlsPort::Client),
        };
        let found = self.live::<Secret>(&cluster.namespace, &secret).await?;
        let text = found.and_then(|it| build::secret_text(&it, build::CA_CERTIFICATES));
        let missing =
            || Failure::Retry(format!("Secret {secret} has no {}", build::CA_CERTIFICATES));
        text.ok_or_else(missing).map(Some)
    }

    /// Who signs for clients of a cluster whose certificates the operator issues.
    async fn signer(&self, cluster: &ValidatedCluster) -> Result<ClientSigner, Failure> {
        let name = authority_secret_name(&cluster.name, TlsPort::Client);
        let found = self.live::<Secret>(&cluster.namespace, &name).await?;
        ClientSigner::of(found.as_ref(), &cluster.uid)
    }

    /// Writes the connection Secret.
    pub(super) async fn write_connection(
        &self,
        user: &EtcdUser,
        secrets: &Secrets,
        (new_password, new_certificate): (bool, bool),
    ) -> Result<(), Failure> {
        let reached = secrets.cluster.as_ref();
        let (cluster, authorities, signer) =
            reached.ok_or_else(|| Failure::Changed("the cluster does not answer".into()))?;
        let name = user_name(user);
        let made = match new_password {
            true => Some(Timestamp::to_string(&self.seconds())),
            false => secrets.made().map(|made| made.to_string()),
        };
        let password = match new_password {
            true => Some(new_password_text()?),
            false => secrets.password_to_keep(user),
        };
        let kept = || {
            secrets
                .text(build::CERTIFICATE)
                .zip(secrets.text(build::CERTIFICATE_KEY))
        };
        let certificate = match (&user.spec.certificate, signer) {
            (Some(asked), Some(signer)) if new_certificate => {
                let days = u64::try_from(asked.validity_days).unwrap_or(1);
                let issued = signer.issue(&name, days, self.shared.outside.clock.unix_ms())?;
                Some((issued.certificate, issued.key))
            }
            (Some(_), _) => kept(),
            (None, _) => None,
        };
        let pair = certificate.as_ref();
        let content = ConnectionContent {
            cluster,
            user: &name,
            secret: &secret_name(user),
            asked: user.spec.connection.as_ref(),
            authorities: authorities.as_deref(),
            password: password.as_deref(),
            certificate: pair.map(|(certificate, key)| (certificate.as_str(), key.as_str())),
        };
        let uid = user.uid().unwrap_or_default();
        let owner = (user.name_any(), owner(user));
        let own = user
            .spec
            .password
            .as_ref()
            .is_some_and(|it| it.secret_ref.is_some());
        let made = made.filter(|_| password.is_some() && !own);
        let secret = build::connection_secret(content, (&owner.0, owner.1), made);
        let applied = self.apply_connection(&secret, &uid).await?;
        let before = secrets
            .connection
            .as_ref()
            .and_then(ResourceExt::resource_version);
        match before.is_some() && before == applied.resource_version() {
            // Looked at again in a while, and not at once.
            true => Err(Failure::Retry(format!(
                "Secret {} does not become what it should be: who else writes it?",
                applied.name_any()
            ))),
            false => Ok(()),
        }
    }

    /// Applies the Secret, without those of our keys that it has no longer: somebody else may have written them too.
    async fn apply_connection(&self, secret: &Secret, uid: &str) -> Result<Secret, Failure> {
        let client = &self.shared.client;
        let namespace = secret.namespace().unwrap_or_default();
        let applied = apply(client, &namespace, secret, Owned::Controller(uid)).await?;
        let has = |of: &Secret, key: &str| of.data.iter().any(|data| data.contains_key(key));
        let left = build::CONNECTION_KEYS.iter();
        let left = left.filter(|key| has(&applied, key) && !has(secret, key));
        let left: Map<String, Value> = left.map(|key| ((*key).to_owned(), Value::Null)).collect();
        if left.is_empty() {
            return Ok(applied);
        }
        let name = applied.name_any();
        let change = Patch::Merge(json!({
            "metadata": {"uid": applied.uid(), "resourceVersion": applied.resource_version()},
            "data": left,
        }));
        let parameters = PatchParams::default();
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let changed = api.patch(&name, &parameters, &change);
        changed
            .await
            .map_err(|error| failure("change", &name, &error))
    }

    fn seconds(&self) -> Timestamp {
        let ms = self.shared.outside.clock.unix_ms();
        let seconds = i64::try_from(ms / 1000).unwrap_or(0);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    }
}

/// What a Secret holds under a key, if it can be a password.
fn password(secret: Option<&Secret>, name: &str, key: &str) -> Result<String, String> {
    let secret = secret.ok_or_else(|| format!("there is no Secret {name} with the password"))?;
    let text = build::secret_text(secret, key)
        .ok_or_else(|| format!("Secret {name} has no text under the key {key}"))?;
    match is_fit(&text) {
        true => Ok(text),
        false => Err(format!(
            "Secret {name}: what is under {key} is no password of 1 to {LONGEST} bytes"
        )),
    }
}

/// The password that the operator has made. One of the user's own, of before, is none: nobody knows how old it is.
fn made_password(connection: Option<&Secret>, name: &str) -> Result<String, String> {
    let text = connection.and_then(|it| build::secret_text(it, build::PASSWORD));
    let text = text.filter(|text| is_fit(text) && made(connection).is_some());
    text.ok_or_else(|| format!("Secret {name} has no password of the operator's yet"))
}

/// When the operator made the password in the connection Secret.
fn made(connection: Option<&Secret>) -> Option<Timestamp> {
    let made = connection?.annotations().get(ANNOTATION_PASSWORD_MADE)?;
    made.parse().ok()
}

fn is_fit(password: &str) -> bool {
    (1..=LONGEST).contains(&password.len())
}

fn new_password_text() -> Result<String, Failure> {
    use base64::Engine as _;
    let mut bytes = [0; RANDOM];
    let filled = aws_lc_rs::rand::fill(&mut bytes);
    filled.map_err(|_| Failure::Retry("there is no randomness for a password".into()))?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

fn is_of(secret: &Secret, user: &EtcdUser) -> bool {
    let mut owners = secret.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == user.uid().as_ref())
}

fn owner(user: &EtcdUser) -> OwnerReference {
    OwnerReference {
        api_version: EtcdUser::api_version(&()).into_owned(),
        kind: EtcdUser::kind(&()).into_owned(),
        name: user.name_any(),
        uid: user.uid().unwrap_or_default(),
        controller: Some(true),
        // It would need rights on the resource's finalizers where an API server checks that.
        block_owner_deletion: None,
    }
}
