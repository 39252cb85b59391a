//! Signed tokens (RFC 7519) with the claims that etcd writes: `username`, `revision`, `exp`. The
//! method is the one in the flags; the method in a token is only compared with it.
//!
//! Signatures are aws-lc's. Never stores a token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RsaEncoding, RsaKeyPair,
    UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls_pki_types::CertificateDer;

use super::settings::JwtSettings;
use crate::store::Actor;

/// The methods that can be configured.
pub(crate) const METHODS: &[&str] = &[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256",
    "HS384", "HS512", "EdDSA",
];

/// Why tokens cannot be signed or checked. Each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JwtError {
    /// A key file that cannot be read.
    #[error("--auth-token jwt: cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A key file that does not contain such a key.
    #[error("--auth-token jwt: {} holds no {what} for {method}: give one in PEM", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// A private or a public key.
        what: &'static str,
        /// The method.
        method: String,
    },
    /// Keys of different pairs.
    #[error("--auth-token jwt: pub-key is not the public key of priv-key: give one pair")]
    Mismatch,
    /// The settings lack the method or the key.
    #[error("--auth-token jwt: sign-method or key is missing")]
    Incomplete,
}

/// Signs and checks tokens.
#[derive(Debug)]
pub(crate) struct Jwt {
    method: String,
    family: Family,
    /// `None`: tokens of other members are checked and none are issued.
    private: Option<Private>,
    public: Public,
    ttl: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    Hmac(hmac::Algorithm),
    Rsa(&'static dyn RsaEncoding, &'static dyn VerificationAlgorithm),
    Ecdsa(
        &'static EcdsaSigningAlgorithm,
        &'static dyn VerificationAlgorithm,
    ),
    Ed25519,
}

#[derive(Debug)]
enum Private {
    Hmac(Box<hmac::Key>),
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

#[derive(Debug)]
enum Public {
    Hmac(Box<hmac::Key>),
    Other(Vec<u8>),
}

pub(crate) fn is_method(name: &str) -> bool {
    family(name).is_some()
}

fn family(name: &str) -> Option<Family> {
    use Family::{Ecdsa, Ed25519, Hmac, Rsa};
    Some(match name {
        "HS256" => Hmac(hmac::HMAC_SHA256),
        "HS384" => Hmac(hmac::HMAC_SHA384),
        "HS512" => Hmac(hmac::HMAC_SHA512),
        "RS256" => Rsa(
            &signature::RSA_PKCS1_SHA256,
            &signature::RSA_PKCS1_2048_8192_SHA256,
        ),
        "RS384" => Rsa(
            &signature::RSA_PKCS1_SHA384,
            &signature::RSA_PKCS1_2048_8192_SHA384,
        ),
        "RS512" => Rsa(
            &signature::RSA_PKCS1_SHA512,
            &signature::RSA_PKCS1_2048_8192_SHA512,
        ),
        "PS256" => Rsa(
            &signature::RSA_PSS_SHA256,
            &signature::RSA_PSS_2048_8192_SHA256,
        ),
        "PS384" => Rsa(
            &signature::RSA_PSS_SHA384,
            &signature::RSA_PSS_2048_8192_SHA384,
        ),
        "PS512" => Rsa(
            &signature::RSA_PSS_SHA512,
            &signature::RSA_PSS_2048_8192_SHA512,
        ),
        "ES256" => Ecdsa(
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            &signature::ECDSA_P256_SHA256_FIXED,
        ),
        "ES384" => Ecdsa(
            &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            &signature::ECDSA_P384_SHA384_FIXED,
        ),
        "ES512" => Ecdsa(
            &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
            &signature::ECDSA_P521_SHA512_FIXED,
        ),
        "EdDSA" => Ed25519,
        _ => return None,
    })
}

impl Jwt {
    /// Reads the keys and checks that they form a pair.
    pub(crate) fn open(settings: &JwtSettings) -> Result<Jwt, JwtError> {
        let private = settings.private_key.as_deref().map(read).transpose()?;
        // A shared secret is its own public key.
        let shared = private.is_some() && settings.method.starts_with("HS");
        let public = settings.public_key.as_deref().filter(|_| !shared);
        let public = public.map(read).transpose()?;
        Self::of(settings, private.as_deref(), public.as_deref())
    }

    /// The same with the content of the key files.
    pub(crate) fn of(
        settings: &JwtSettings,
        private: Option<&[u8]>,
        public: Option<&[u8]>,
    ) -> Result<Jwt, JwtError> {
        let method = settings.method.clone();
        let family = family(&method).ok_or(JwtError::Incomplete)?;
        let wrong = |path: &Option<PathBuf>, what| JwtError::Key {
            path: path.clone().unwrap_or_default(),
            what,
            method: method.clone(),
        };
        let private = match private {
            None => None,
            Some(file) => {
                let key = Private::parse(family, file);
                Some(key.ok_or_else(|| wrong(&settings.private_key, "private key"))?)
            }
        };
        let public = match (&private, public) {
            (Some(Private::Hmac(key)), _) => Public::Hmac(key.clone()),
            (_, Some(file)) => {
                let key = public_key(file);
                Public::Other(key.ok_or_else(|| wrong(&settings.public_key, "public key"))?)
            }
            (Some(private), None) => Public::Other(private.public()),
            (None, None) => return Err(JwtError::Incomplete),
        };
        let jwt = Jwt {
            family,
            private,
            public,
            ttl: settings.ttl,
            method,
        };
        if let (Some(private), Public::Other(_)) = (&jwt.private, &jwt.public) {
            let probe = private.sign(family, b"probe").ok_or(JwtError::Incomplete)?;
            if !jwt.verifies(b"probe", &probe) {
                return Err(JwtError::Mismatch);
            }
        }
        Ok(jwt)
    }

    /// A token with this header and these claims, whatever they are, and a valid signature.
    pub(crate) fn sealed(&self, head: &[u8], claims: &[u8]) -> Option<String> {
        let private = self.private.as_ref()?;
        let mut token = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(head),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = private.sign(self.family, token.as_bytes())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Some(token)
    }

    /// A token for a user at an auth revision. `None` without a private key.
    pub(crate) fn sign(&self, actor: &Actor, now: Duration) -> Option<String> {
        let head = serde_json::json!({ "alg": self.method, "typ": "JWT" });
        let claims = serde_json::json!({
            "exp": (now + self.ttl).as_secs(),
            "revision": actor.revision,
            "username": actor.user,
        });
        self.sealed(head.to_string().as_bytes(), claims.to_string().as_bytes())
    }

    /// The user of a token, if it is valid now.
    pub(crate) fn check(&self, token: &str, now: Duration) -> Option<Actor> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let json = |text: &str| -> Option<serde_json::Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
        };
        if json(head)?["alg"].as_str()? != self.method {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if !self.verifies(signed.as_bytes(), &signature) {
            return None;
        }
        let claims = json(claims)?;
        let time = |name: &str| match &claims[name] {
            serde_json::Value::Null => Some(None),
            time => time.as_f64().map(Some),
        };
        let now = now.as_secs_f64();
        if time("exp")?.is_some_and(|end| now >= end)
            || time("nbf")?.is_some_and(|start| now < start)
        {
            return None;
        }
        let revision = claims["revision"].as_f64()?;
        Some(Actor {
            user: claims["username"].as_str()?.to_owned(),
            revision: revision as u64,
        })
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.family, &self.public) {
            (Family::Hmac(_), Public::Hmac(key)) => {
                return hmac::verify(key, message, signature).is_ok();
            }
            (Family::Rsa(_, algorithm) | Family::Ecdsa(_, algorithm), _) => algorithm,
            (Family::Ed25519, _) => &signature::ED25519,
            (Family::Hmac(_), Public::Other(_)) => return false,
        };
        match &self.public {
            Public::Hmac(_) => false,
            Public::Other(key) => UnparsedPublicKey::new(algorithm, key)
                .verify(message, signature)
                .is_ok(),
        }
    }
}

impl Private {
    fn parse(family: Family, file: &[u8]) -> Option<Private> {
        if let Family::Hmac(algorithm) = family {
            let key = hmac::Key::new(algorithm, file);
            return (!file.is_empty()).then_some(Private::Hmac(Box::new(key)));
        }
        let (label, der) = blocks(file)
            .into_iter()
            .find(|(label, _)| label != "EC PARAMETERS")?;
        match (family, label.as_str()) {
            (Family::Rsa(..), "PRIVATE KEY") => RsaKeyPair::from_pkcs8(&der).ok().map(Private::Rsa),
            (Family::Rsa(..), "RSA PRIVATE KEY") => {
                RsaKeyPair::from_der(&der).ok().map(Private::Rsa)
            }
            (Family::Ecdsa(algorithm, _), "PRIVATE KEY" | "EC PRIVATE KEY") => {
                let pair = EcdsaKeyPair::from_private_key_der(algorithm, &der);
                pair.ok().map(Private::Ecdsa)
            }
            (Family::Ed25519, "PRIVATE KEY") => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
                .ok()
                .map(Private::Ed25519),
            _ => None,
        }
    }

    fn sign(&self, family: Family, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        Some(match self {
            Private::Hmac(key) => hmac::sign(key, message).as_ref().to_vec(),
            Private::Rsa(pair) => {
                let Family::Rsa(encoding, _) = family else {
                    return None;
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).ok()?;
                signature
            }
            Private::Ecdsa(pair) => pair.sign(&random, message).ok()?.as_ref().to_vec(),
            Private::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        })
    }

    fn public(&self) -> Vec<u8> {
        use aws_lc_rs::signature::KeyPair as _;
        match self {
            Private::Hmac(_) => Vec::new(),
            Private::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Private::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
            Private::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }
}

/// A public key in PEM: on its own, or in a certificate.
fn public_key(file: &[u8]) -> Option<Vec<u8>> {
    let (label, der) = blocks(file).into_iter().next()?;
    match label.as_str() {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => Some(der),
        "CERTIFICATE" => {
            let der = CertificateDer::from(der);
            let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
            Some(certificate.subject_public_key_info().to_vec())
        }
        _ => None,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, JwtError> {
    std::fs::read(path).map_err(|source| JwtError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The blocks of a PEM file with their labels.
fn blocks(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = String::from_utf8_lossy(file);
    let mut blocks = Vec::new();
    let mut rest = &*text;
    while let Some((_, behind)) = rest.split_once("-----BEGIN ") {
        let Some((label, behind)) = behind.split_once("-----") else {
            break;
        };
        let Some((body, behind)) = behind.split_once("-----END ") else {
            break;
        };
        let body: String = body.split_whitespace().collect();
        if let Ok(der) = STANDARD.decode(body) {
            blocks.push((label.to_owned(), der));
        }
        rest = behind;
    }
    blocks
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;

#[cfg(test)]
#[path = "jwt_oracle_test.rs"]
mod oracle;
