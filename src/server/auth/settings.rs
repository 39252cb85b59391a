//! `--auth-token` and the flags that belong to it, parsed. Never reads the key files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::jwt;
use crate::server::flags::parse_duration;

/// bcrypt cost if none, or an impossible one, is given.
const DEFAULT_COST: u32 = 10;
/// Lifetime of tokens by default.
const DEFAULT_TTL: Duration = Duration::from_secs(300);

/// How users authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSettings {
    /// `--auth-token`.
    pub tokens: TokenSettings,
    /// How long a simple token lives after it was last used.
    pub token_ttl: Duration,
    /// bcrypt cost, from 4 to 31: the logarithm of the number of rounds.
    pub bcrypt_cost: u32,
    /// The name in a client's certificate is a user, for a request without a token.
    pub certificate_names: bool,
}

/// The kind of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSettings {
    /// None are issued.
    None,
    /// Random letters.
    Simple,
    /// Signed tokens.
    Jwt(JwtSettings),
}

/// How tokens are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// The method, by its name in the token's header.
    pub method: String,
    /// PEM file of the public key; `None`: the one in the private key.
    pub public_key: Option<PathBuf>,
    /// PEM file of the private key (any file for the HS methods); `None`: tokens of other members
    /// are accepted and none are issued.
    pub private_key: Option<PathBuf>,
    /// The lifetime of a token.
    pub ttl: Duration,
}

impl AuthSettings {
    /// Validates the flags. What is not fatal is added to `warnings`.
    pub(crate) fn new(
        token: &str,
        ttl_seconds: u64,
        cost: u64,
        certificate_names: bool,
        warnings: &mut Vec<String>,
    ) -> Result<AuthSettings, String> {
        let bcrypt_cost = match u32::try_from(cost) {
            Ok(cost @ 4..=31) => cost,
            _ => {
                warnings.push(format!(
                    "--bcrypt-cost {cost} is none from 4 to 31: {DEFAULT_COST} is used"
                ));
                DEFAULT_COST
            }
        };
        Ok(AuthSettings {
            tokens: tokens(token, warnings)?,
            token_ttl: match ttl_seconds {
                0 => DEFAULT_TTL,
                seconds => Duration::from_secs(seconds),
            },
            bcrypt_cost,
            certificate_names,
        })
    }
}

fn tokens(text: &str, warnings: &mut Vec<String>) -> Result<TokenSettings, String> {
    let mut parts = text.split(',');
    let kind = parts.next().unwrap_or_default();
    let mut options = BTreeMap::new();
    for part in parts {
        let (name, value) = part
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or_else(|| format!("--auth-token: {part:?} is no option: write name=value"))?;
        if options.insert(name, value).is_some() {
            return Err(format!("--auth-token: {name} is given twice"));
        }
    }
    match kind {
        "" => Ok(TokenSettings::None),
        "simple" => Ok(TokenSettings::Simple),
        "jwt" => signed(&mut options, warnings).map(TokenSettings::Jwt),
        other => Err(format!(
            "--auth-token {other:?} is not known: give simple, or jwt with its options"
        )),
    }
}

fn signed(
    options: &mut BTreeMap<&str, &str>,
    warnings: &mut Vec<String>,
) -> Result<JwtSettings, String> {
    let mut take = |name| options.remove(name).filter(|value| !value.is_empty());
    let method = take("sign-method").unwrap_or_default().to_owned();
    if !jwt::is_method(&method) {
        return Err(format!(
            "--auth-token jwt: sign-method {method:?} is not known: give one of {}",
            jwt::METHODS.join(", ")
        ));
    }
    let ttl = match take("ttl") {
        None => DEFAULT_TTL,
        Some(text) => parse_duration(text)
            .ok_or_else(|| format!("--auth-token jwt: ttl {text:?} is no duration such as 10m"))?,
    };
    let public_key = take("pub-key").map(PathBuf::from);
    let private_key = take("priv-key").map(PathBuf::from);
    let hmac = method.starts_with("HS");
    if private_key.is_none() && (hmac || public_key.is_none()) {
        let keys = if hmac {
            "priv-key"
        } else {
            "priv-key or pub-key"
        };
        return Err(format!("--auth-token jwt: give {keys} for {method}"));
    }
    for name in options.keys() {
        warnings.push(format!("--auth-token jwt: the option {name} is not known"));
    }
    Ok(JwtSettings {
        method,
        public_key,
        private_key,
        ttl,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> (Result<TokenSettings, String>, Vec<String>) {
        let mut warnings = Vec::new();
        let settings = AuthSettings::new(text, 300, 10, false, &mut warnings);
        (settings.map(|settings| settings.tokens), warnings)
    }

    #[test]
    fn token_kinds_are_parsed() {
        assert_eq!(judge("simple").0, Ok(TokenSettings::Simple));
        assert_eq!(judge("").0, Ok(TokenSettings::None));
        let (settings, warnings) =
            judge("jwt,pub-key=a.pub,priv-key=a.key,sign-method=RS256,ttl=10m,x=y");
        let expected = JwtSettings {
            method: "RS256".to_owned(),
            public_key: Some("a.pub".into()),
            private_key: Some("a.key".into()),
            ttl: Duration::from_secs(600),
        };
        assert_eq!(settings, Ok(TokenSettings::Jwt(expected)));
        assert_eq!(warnings, ["--auth-token jwt: the option x is not known"]);
    }

    #[test]
    fn impossible_settings_are_refused() {
        for (text, word) in [
            ("paseto", "simple, or jwt"),
            ("jwt", "RS256"),
            ("jwt,sign-method=none,priv-key=k", "RS256"),
            ("jwt,sign-method=RS256", "priv-key or pub-key"),
            ("jwt,sign-method=HS256,pub-key=k", "give priv-key"),
            ("jwt,sign-method=RS256,priv-key=k,ttl=soon", "duration"),
            ("jwt,sign-method", "name=value"),
            ("jwt,priv-key=a,priv-key=b", "twice"),
        ] {
            let refused = judge(text).0.expect_err(text);
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    #[test]
    fn invalid_costs_and_ttls_use_defaults() {
        let mut warnings = Vec::new();
        let settings = AuthSettings::new("simple", 0, 3, true, &mut warnings).expect("settings");
        assert_eq!(
            (settings.bcrypt_cost, settings.token_ttl.as_secs()),
            (10, 300)
        );
        assert_eq!(warnings.len(), 1);
    }
}
