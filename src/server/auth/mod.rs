//! How clients prove who they are: passwords, tokens and the names in their certificates.
//!
//! Never decides what anyone may do: that is the store's, where it is replicated.

mod bcrypt_paced;
pub(crate) mod certificate;
pub(crate) mod jwt;
pub(crate) mod password;
pub(crate) mod settings;
pub(crate) mod simple;

use jwt::{Jwt, JwtError};
use settings::{AuthSettings, TokenSettings};

/// Who makes tokens for users.
#[derive(Debug)]
pub(crate) enum Issuer {
    /// Nobody: users are known by their certificates alone.
    Nobody,
    /// Random letters that every member keeps in memory.
    Simple,
    /// Signed texts that nobody keeps.
    Jwt(Box<Jwt>),
}

impl Issuer {
    /// Reads what the settings name.
    pub(crate) fn open(settings: &AuthSettings) -> Result<Issuer, JwtError> {
        Ok(match &settings.tokens {
            TokenSettings::Nobody => Issuer::Nobody,
            TokenSettings::Simple => Issuer::Simple,
            TokenSettings::Jwt(settings) => Issuer::Jwt(Box::new(Jwt::open(settings)?)),
        })
    }
}
