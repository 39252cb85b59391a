//! How clients authenticate: passwords, tokens and the names in their certificates.
//!
//! Never decides permissions: the store does, where they are replicated.

mod bcrypt_paced;
pub(crate) mod certificate;
pub(crate) mod jwt;
pub(crate) mod password;
pub(crate) mod settings;
pub(crate) mod simple;

use jwt::{Jwt, JwtError};
use settings::{AuthSettings, TokenSettings};

/// How tokens are issued.
#[derive(Debug)]
pub(crate) enum Issuer {
    /// No tokens: users authenticate with certificates alone.
    None,
    /// Random letters that every member keeps in memory.
    Simple,
    /// Signed tokens, which are not stored.
    Jwt(Box<Jwt>),
}

impl Issuer {
    /// Opens the kind of tokens in the settings.
    pub(crate) fn open(settings: &AuthSettings) -> Result<Issuer, JwtError> {
        Ok(match &settings.tokens {
            TokenSettings::None => Issuer::None,
            TokenSettings::Simple => Issuer::Simple,
            TokenSettings::Jwt(settings) => Issuer::Jwt(Box::new(Jwt::open(settings)?)),
        })
    }
}
