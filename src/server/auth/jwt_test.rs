//! Each method with keys in each format, and forgeries.

use std::time::Duration;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine as _;

use super::*;

const NOW: Duration = Duration::from_secs(1_000_000);

pub(super) fn alice() -> Actor {
    Actor {
        user: "alice".to_owned(),
        revision: 7,
    }
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(der)
    )
}

/// Files of a key pair: private and public.
pub(super) fn pair(method: &str) -> (String, String) {
    let algorithm = match method {
        "ES256" => &rcgen::PKCS_ECDSA_P256_SHA256,
        "ES384" => &rcgen::PKCS_ECDSA_P384_SHA384,
        "ES512" => &rcgen::PKCS_ECDSA_P521_SHA512,
        "EdDSA" => &rcgen::PKCS_ED25519,
        _ => {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a pair");
            let private: Pkcs8V1Der<'_> = pair.as_der().expect("its form");
            let public = aws_lc_rs::signature::KeyPair::public_key(&pair);
            return (
                pem("PRIVATE KEY", private.as_ref()),
                pem("RSA PUBLIC KEY", public.as_ref()),
            );
        }
    };
    let pair = rcgen::KeyPair::generate_for(algorithm).expect("a pair");
    (pair.serialize_pem(), pair.public_key_pem())
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(method: &str) -> Files {
        let files = Files(tempfile::tempdir().expect("a directory"));
        let (private, public) = match method.starts_with("HS") {
            true => ("secret".to_owned(), String::new()),
            false => pair(method),
        };
        std::fs::write(files.0.path().join("private"), private).expect("written");
        std::fs::write(files.0.path().join("public"), public).expect("written");
        files
    }

    fn open(&self, method: &str, private: bool, public: bool) -> Result<Jwt, JwtError> {
        let path = |name: &str, given: bool| given.then(|| self.0.path().join(name));
        Jwt::open(&JwtSettings {
            method: method.to_owned(),
            private_key: path("private", private),
            public_key: path("public", public),
            ttl: Duration::from_secs(60),
        })
    }
}

#[test]
fn every_member_accepts_the_others_tokens() {
    for method in METHODS {
        let files = Files::new(method);
        let signer = files.open(method, true, false).expect(method);
        let token = signer.sign(&alice(), NOW).expect(method);
        assert_eq!(signer.check(&token, NOW), Some(alice()), "{method}");
        let later = NOW + Duration::from_secs(59);
        assert_eq!(signer.check(&token, later), Some(alice()), "{method}");
        let over = NOW + Duration::from_secs(60);
        assert_eq!(signer.check(&token, over), None, "{method}");
        if method.starts_with("HS") {
            assert!(files.open(method, false, true).is_err());
            continue;
        }
        let both = files.open(method, true, true).expect(method);
        assert!(both.sign(&alice(), NOW).is_some());
        let reader = files.open(method, false, true).expect(method);
        assert_eq!(reader.check(&token, NOW), Some(alice()), "{method}");
        assert_eq!(reader.sign(&alice(), NOW), None, "{method}");
        let stranger = Files::new(method).open(method, true, false).expect(method);
        assert_eq!(stranger.check(&token, NOW), None, "{method}");
    }
}

#[test]
fn forged_tokens_are_refused() {
    let files = Files::new("HS256");
    let jwt = files.open("HS256", true, false).expect("a signer");
    let token = jwt.sign(&alice(), NOW).expect("a token");
    let (signed, signature) = token.rsplit_once('.').expect("a signature");
    let (head, claims) = signed.split_once('.').expect("claims");
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let root = URL_SAFE_NO_PAD.encode(r#"{"username":"root","revision":7,"exp":9999999999}"#);
    for forged in [
        String::new(),
        "x.y.z".to_owned(),
        format!("{none}.{root}."),
        format!("{none}.{claims}.{signature}"),
        format!("{head}.{root}.{signature}"),
        format!("{head}.{claims}."),
        format!("{signed}.{signature}x"),
        signed.to_owned(),
    ] {
        assert_eq!(jwt.check(&forged, NOW), None, "{forged}");
    }
    // The same file for another method of the family.
    let other = files.open("HS512", true, false).expect("a signer");
    assert_eq!(other.check(&token, NOW), None);
}

/// Of the claims, only the expiry and the start may be missing.
#[test]
fn token_without_claims_is_refused() {
    let files = Files::new("HS256");
    let jwt = files.open("HS256", true, false).expect("a signer");
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let sign = |claims: &str| {
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let key = Private::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, b"secret")));
        let signature = key.sign(jwt.family, signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    };
    let whole = r#"{"username":"alice","revision":7,"exp":1000001}"#;
    assert_eq!(jwt.check(&sign(whole), NOW), Some(alice()));
    let endless = r#"{"username":"alice","revision":7}"#;
    assert_eq!(jwt.check(&sign(endless), NOW), Some(alice()));
    for claims in [
        r#"{"revision":7,"exp":1000001}"#,
        r#"{"username":"alice","exp":1000001}"#,
        r#"{"username":"alice","revision":"7","exp":1000001}"#,
        r#"{"username":"alice","revision":7,"exp":1000000}"#,
        r#"{"username":"alice","revision":7,"exp":"never"}"#,
        r#"{"username":"alice","revision":7,"nbf":1000001}"#,
        "[]",
        "",
    ] {
        assert_eq!(jwt.check(&sign(claims), NOW), None, "{claims}");
    }
}

#[test]
fn mismatched_jwt_keys_are_refused() {
    let (one, two) = (Files::new("ES256"), Files::new("ES256"));
    let stray = two.0.path().join("public");
    std::fs::copy(stray, one.0.path().join("public")).expect("copied");
    let refused = one.open("ES256", true, true);
    assert!(matches!(refused, Err(JwtError::Mismatch)), "{refused:?}");
    for method in ["RS256", "ES384", "EdDSA"] {
        let refused = one.open(method, true, false);
        assert!(matches!(refused, Err(JwtError::Key { .. })), "{refused:?}");
    }
    std::fs::remove_file(one.0.path().join("private")).expect("removed");
    let refused = one.open("ES256", true, false);
    assert!(matches!(refused, Err(JwtError::Read { .. })), "{refused:?}");
}
