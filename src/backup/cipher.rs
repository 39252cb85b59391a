//! Encryption of a backup with the user's key: AES-256-GCM over each part, HMAC-SHA-256 over the manifest.
//!
//! Each attempt of a backup has random bytes of its own, from which and the user's key HKDF-SHA-256 derives its two
//! keys; so a part's number is a nonce that no key sees twice. Never stores a key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Error, hex};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// A user's key.
#[derive(Clone)]
pub struct Key {
    secret: [u8; KEY_BYTES],
    id: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Key({})", self.id)
    }
}

impl Key {
    /// From 32 bytes in base64, as `openssl rand -base64 32` prints them.
    ///
    /// # Errors
    /// If the text is anything else.
    pub fn parse(text: &str) -> Result<Key, Error> {
        let bytes = BASE64_STANDARD.decode(text.trim()).ok();
        let secret = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        let secret = secret.ok_or_else(|| {
            Error::Key(
                "a key is 32 random bytes in base64: make one with `openssl rand -base64 32`"
                    .to_owned(),
            )
        })?;
        let mut id = [0; 8];
        derive(&secret, &[], b"quorate backup: name of the key", &mut id)?;
        let id = hex(&id);
        Ok(Key { secret, id })
    }

    /// Its name, which tells nothing about the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The keys of one attempt of a backup, by its random bytes.
    pub(super) fn of_attempt(&self, salt: &[u8]) -> Result<AttemptKeys, Error> {
        let (mut parts, mut manifest) = ([0; KEY_BYTES], [0; KEY_BYTES]);
        derive(&self.secret, salt, b"quorate backup: parts", &mut parts)?;
        derive(
            &self.secret,
            salt,
            b"quorate backup: manifest",
            &mut manifest,
        )?;
        let unbound = UnboundKey::new(&AES_256_GCM, &parts).map_err(|_| unusable())?;
        Ok(AttemptKeys {
            parts: LessSafeKey::new(unbound),
            manifest: hmac::Key::new(hmac::HMAC_SHA256, &manifest),
        })
    }
}

/// The keys of one attempt of a backup.
pub(super) struct AttemptKeys {
    parts: LessSafeKey,
    manifest: hmac::Key,
}

impl AttemptKeys {
    /// Encrypts a part; its number is bound to it.
    pub(super) fn seal(&self, number: u32, mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let sealed = self
            .parts
            .seal_in_place_append_tag(nonce(number), Aad::empty(), &mut bytes);
        sealed.map_err(|_| unusable())?;
        Ok(bytes)
    }

    /// Decrypts a part; `None` if it is not what was encrypted under this number.
    pub(super) fn open(&self, number: u32, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let opened = self
            .parts
            .open_in_place(nonce(number), Aad::empty(), &mut bytes);
        let length = opened.ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }

    /// The signature of a manifest.
    pub(super) fn sign(&self, text: &[u8]) -> String {
        hex(hmac::sign(&self.manifest, text).as_ref())
    }

    /// Whether this is the signature of a manifest.
    pub(super) fn signed(&self, text: &[u8], signature: &str) -> bool {
        // One way to write it, so that no byte of a manifest can be another.
        let right = self.sign(text);
        verify_slices_are_equal(right.as_bytes(), signature.as_bytes()).is_ok()
    }
}

fn nonce(number: u32) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// A length for `hkdf`.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(secret: &[u8], salt: &[u8], purpose: &[u8], into: &mut [u8]) -> Result<(), Error> {
    let random = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let purpose = [purpose];
    let expanded = random.expand(&purpose, Length(into.len()));
    let filled = expanded.and_then(|expanded| expanded.fill(into));
    filled.map_err(|_| unusable())
}

fn unusable() -> Error {
    Error::Key("the cryptographic library refused the key".to_owned())
}
