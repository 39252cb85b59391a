//! Compares tokens with another implementation, the crate `jsonwebtoken`: each accepts the other's,
//! and both reject forged and expired ones. `tests/etcdctl/auth_requests.rs` does the same with
//! real etcd, if that was built.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use x509_parser::asn1_rs::{Any, DerParser, FromDer as _, Sequence, SequenceIterator};

use super::tests::{alice, pair, pem};
use super::*;

#[derive(Serialize, Deserialize)]
struct Claims {
    username: String,
    revision: u64,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<u64>,
}

/// A key pair, for this implementation and for the crate.
struct Both {
    method: &'static str,
    private: String,
    public: String,
    ours: Jwt,
    theirs: Theirs,
}

struct Theirs {
    algorithm: Algorithm,
    signing: EncodingKey,
    checking: DecodingKey,
}

impl Both {
    /// `None` for a method that the crate does not have.
    fn new(method: &'static str) -> Option<Both> {
        let algorithm: Algorithm = method.parse().ok()?;
        let (private, public) = match method.starts_with("HS") {
            true => ("a secret of both".to_owned(), String::new()),
            false => pair(method),
        };
        Some(Both {
            ours: ours(method, &private, &public),
            theirs: Theirs::of(algorithm, private.as_bytes(), public.as_bytes()),
            method,
            private,
            public,
        })
    }

    fn all() -> impl Iterator<Item = Both> {
        METHODS.iter().filter_map(|method| Both::new(method))
    }

    /// The user of a token, which must be the same for both.
    fn check(&self, token: &str, what: &str) -> Option<Actor> {
        let ours = self.ours.check(token, now());
        let theirs = self.theirs.check(token);
        assert_eq!(ours, theirs, "{}: {what}: {token}", self.method);
        ours
    }
}

impl Theirs {
    fn of(algorithm: Algorithm, private: &[u8], public: &[u8]) -> Theirs {
        use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512};
        let (signing, checking) = match algorithm {
            HS256 | HS384 | HS512 => (
                Ok(EncodingKey::from_secret(private)),
                Ok(DecodingKey::from_secret(private)),
            ),
            ES256 | ES384 => (
                EncodingKey::from_ec_pem(private),
                DecodingKey::from_ec_pem(public),
            ),
            EdDSA => (
                EncodingKey::from_ed_pem(private),
                DecodingKey::from_ed_pem(public),
            ),
            _ => (
                EncodingKey::from_rsa_pem(private),
                DecodingKey::from_rsa_pem(public),
            ),
        };
        Theirs {
            algorithm,
            signing: signing.expect("a private key"),
            checking: checking.expect("a public key"),
        }
    }

    fn sign(&self, claims: &Claims) -> String {
        let head = Header::new(self.algorithm);
        jsonwebtoken::encode(&head, claims, &self.signing).expect("signed")
    }

    fn check(&self, token: &str) -> Option<Actor> {
        let mut rules = Validation::new(self.algorithm);
        rules.leeway = 0;
        rules.validate_nbf = true;
        let read = jsonwebtoken::decode::<Claims>(token, &self.checking, &rules).ok()?;
        Some(Actor {
            user: read.claims.username,
            revision: read.claims.revision,
        })
    }
}

fn ours(method: &str, private: &str, public: &str) -> Jwt {
    let settings = JwtSettings {
        method: method.to_owned(),
        private_key: None,
        public_key: None,
        ttl: Duration::from_secs(300),
    };
    let public = (!public.is_empty()).then_some(public.as_bytes());
    Jwt::of(&settings, Some(private.as_bytes()), public).expect(method)
}

/// The crate uses the system's clock.
fn now() -> Duration {
    Duration::from_secs(jsonwebtoken::get_current_timestamp())
}

fn claims() -> Claims {
    Claims {
        username: "alice".to_owned(),
        revision: 7,
        exp: now().as_secs() + 300,
        nbf: None,
    }
}

#[test]
fn jsonwebtoken_lacks_one_method_of_etcds() {
    let missing = METHODS
        .iter()
        .filter(|one| one.parse::<Algorithm>().is_err());
    assert_eq!(missing.collect::<Vec<_>>(), [&"ES512"]);
}

/// As `openssl ecparam -genkey` writes it: the parameters first, then a SEC 1 key.
fn as_sec1(pkcs8: &str) -> String {
    let (_, der) = blocks(pkcs8.as_bytes()).remove(0);
    let (_, whole) = Sequence::from_der(&der).expect("PKCS 8");
    let mut parts = SequenceIterator::<Any<'_>, DerParser>::new(&whole.content);
    let key = parts.nth(2).expect("three parts").expect("the key").data;
    let prime256v1 = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    pem("EC PARAMETERS", prime256v1) + &pem("EC PRIVATE KEY", key)
}

/// The reasons for which tokens are not read and written by the crate. If this fails, fewer may
/// remain.
#[test]
fn jsonwebtoken_reads_less_of_keys() {
    let (private, public) = pair("ES256");
    let sec1 = as_sec1(&private);
    assert!(EncodingKey::from_ec_pem(sec1.as_bytes()).is_err());
    let token = ours("ES256", &sec1, &public).sign(&alice(), now());
    let token = token.expect("a token");
    assert_eq!(
        ours("ES256", &private, "").check(&token, now()),
        Some(alice())
    );

    let pair = rcgen::KeyPair::from_pem(&private).expect("a pair");
    let parameters = rcgen::CertificateParams::default();
    let certificate = parameters.self_signed(&pair).expect("signed").pem();
    assert_eq!(
        ours("ES256", &private, &certificate).check(&token, now()),
        Some(alice())
    );
}

#[test]
fn jwt_tokens_verify_in_both_implementations() {
    for both in Both::all() {
        let token = both.ours.sign(&alice(), now()).expect("a token");
        assert_eq!(both.check(&token, "ours"), Some(alice()));
        let token = both.theirs.sign(&claims());
        assert_eq!(both.check(&token, "theirs"), Some(alice()));
    }
}

#[test]
fn stale_tokens_are_refused_by_both() {
    for both in Both::all() {
        let over = now() - Duration::from_secs(301);
        let token = both.ours.sign(&alice(), over).expect("a token");
        assert_eq!(both.check(&token, "over"), None);
        let early = Claims {
            nbf: Some(now().as_secs() + 100),
            ..claims()
        };
        assert_eq!(both.check(&both.theirs.sign(&early), "not yet"), None);
    }
}

#[test]
fn forged_tokens_are_refused_by_both() {
    for both in Both::all() {
        let token = both.ours.sign(&alice(), now()).expect("a token");
        for (what, forged) in forgeries(&both, &token) {
            assert_eq!(both.check(&forged, what), None);
        }
    }
}

/// Forgeries of a valid token by an attacker without the private key.
fn forgeries(both: &Both, token: &str) -> Vec<(&'static str, String)> {
    let (signed, signature) = token.rsplit_once('.').expect("a signature");
    let (head, body) = signed.split_once('.').expect("claims");
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let root = claims_of_root();
    let stranger = Both::new(both.method).expect("the same method");
    let stranger = match both.method.starts_with("HS") {
        true => ours(both.method, "another secret", ""),
        false => stranger.ours,
    };
    let mut forged = vec![
        (
            "other claims",
            format!("{head}.{}.{signature}", encode(&root)),
        ),
        ("no signature", format!("{head}.{body}.")),
        ("a longer signature", format!("{signed}.{signature}AA")),
        (
            "a stranger's key",
            stranger.sign(&alice(), now()).expect("a token"),
        ),
    ];
    for alg in ["none", "None", "HS1", "", "rs256"] {
        let head = encode(&format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#));
        forged.push(("another method", format!("{head}.{body}.{signature}")));
        forged.push(("no method", format!("{head}.{}.", encode(&root))));
    }
    // The public key used as an HMAC secret, for verifiers that trust the token's own method.
    if !both.public.is_empty() {
        for method in ["HS256", "HS384", "HS512"] {
            let confused = ours(method, &both.public, "");
            let token = confused.sign(&alice(), now()).expect("a token");
            forged.push(("the public key as a secret", token));
        }
    }
    forged.extend(of_siblings(both));
    forged.extend(flipped(signed, signature));
    forged
}

fn claims_of_root() -> String {
    let mut root = claims();
    root.username = "root".to_owned();
    serde_json::to_string(&root).expect("JSON")
}

/// With the same key, but another method of its family.
fn of_siblings(both: &Both) -> Vec<(&'static str, String)> {
    let (own, family) = (both.method, &both.method[..2]);
    let rsa = ["RS", "PS"].contains(&family);
    let siblings = METHODS.iter().filter(|other| {
        let same = match rsa {
            true => other.starts_with("RS") || other.starts_with("PS"),
            false => family == "HS" && other.starts_with("HS"),
        };
        same && **other != own
    });
    let signed = siblings.map(|other| {
        let jwt = ours(other, &both.private, &both.public);
        let token = jwt.sign(&alice(), now()).expect("a token");
        ("another method of the family", token)
    });
    signed.collect()
}

/// One bit of the signature is flipped, at sixteen places.
fn flipped(signed: &str, signature: &str) -> Vec<(&'static str, String)> {
    let whole = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    let places = (0..whole.len()).step_by(whole.len().div_ceil(16));
    let damaged = places.map(|at| {
        let mut other = whole.clone();
        other[at] ^= 1 << (at % 8);
        let other = URL_SAFE_NO_PAD.encode(other);
        ("a flipped bit", format!("{signed}.{other}"))
    });
    damaged.collect()
}
