//! Proof that a `quorate.v1` call comes from the operator: an HMAC-SHA256 over the call.
//!
//! Three headers: `quorate-time` (Unix milliseconds), `quorate-nonce` (hexadecimal) and
//! `quorate-proof` (hexadecimal HMAC over path, time, nonce and the body's bytes as sent). The
//! body is covered as bytes, so members and operators of different versions agree. Never logs
//! the key, and never lets a call through that it could not check.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tonic::body::Body;
use tower::Service;

use super::clock;

/// A proof is fresh for this long, in milliseconds, in both directions of clock skew.
pub const FRESH_MS: u64 = 60_000;
/// Nonces remembered at most; beyond it calls are refused rather than nonces forgotten.
const NONCES: usize = 100_000;
/// Between two looks at the key's file, in milliseconds.
const LOOK_MS: u64 = 1000;
/// Largest request of `quorate.v1`, in bytes.
const BODY_LIMIT: usize = 1 << 20;

const TIME: &str = "quorate-time";
const NONCE: &str = "quorate-nonce";
const PROOF: &str = "quorate-proof";

/// The key that operator and members share.
#[derive(Clone)]
pub struct Key(Arc<[u8]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the operator's secret {path}: {source}")]
    Read {
        /// The file of `--operator-secret-file`.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The key would be too easy to guess.
    #[error("the operator's secret {0} must hold at least 16 bytes")]
    Short(String),
}

impl Key {
    /// A key of these bytes; blanks and line ends around them do not count.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Key {
        Key(bytes.trim_ascii().into())
    }

    /// Reads `--operator-secret-file`.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| KeyError::Read {
            path: name.clone(),
            source,
        })?;
        let key = Key::new(&bytes);
        if key.0.len() < 16 {
            return Err(KeyError::Short(name));
        }
        Ok(key)
    }

    fn mac(&self, path: &str, time: &str, nonce: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        for part in [path.as_bytes(), time.as_bytes(), nonce.as_bytes()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.update(body);
        mac
    }

    fn sign(&self, path: &str, time: &str, nonce: &str, body: &[u8]) -> String {
        hex(&self.mac(path, time, nonce, body).finalize().into_bytes())
    }
}

/// The nonces seen while their proofs were fresh.
#[derive(Debug, Default)]
struct Nonces {
    seen: HashSet<String>,
    order: VecDeque<(u64, String)>,
}

impl Nonces {
    /// Remembers a nonce; false when it was seen before or no more can be remembered.
    fn admit(&mut self, now_ms: u64, nonce: &str) -> bool {
        // A proof may come from a clock that is ahead, so it stays valid for twice the time.
        while let Some((time, _)) = self.order.front() {
            if time + 2 * FRESH_MS >= now_ms {
                break;
            }
            if let Some((_, old)) = self.order.pop_front() {
                self.seen.remove(&old);
            }
        }
        if self.seen.len() >= NONCES || !self.seen.insert(nonce.to_owned()) {
            return false;
        }
        self.order.push_back((now_ms, nonce.to_owned()));
        true
    }
}

/// Checks proofs.
#[derive(Clone, Debug)]
pub struct Verifier {
    key: Arc<Mutex<Option<Known>>>,
    nonces: Arc<Mutex<Nonces>>,
}

/// The key, and where a newer one would be.
#[derive(Debug)]
struct Known {
    key: Key,
    file: Option<PathBuf>,
    /// When the file was last looked at because a proof did not fit.
    looked_ms: u64,
}

impl Verifier {
    /// Without a key every call is refused. `file` is read again when a proof does not fit the
    /// key, once a second at most: the operator's Secret may have been made anew, and a mounted
    /// one changes with it.
    #[must_use]
    pub fn new(key: Option<Key>, file: Option<PathBuf>) -> Verifier {
        let known = key.map(|key| Known {
            key,
            file,
            looked_ms: 0,
        });
        Verifier {
            key: Arc::new(Mutex::new(known)),
            nonces: Arc::default(),
        }
    }

    fn key(&self) -> Option<Key> {
        let known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|known| known.key.clone())
    }

    /// Another key than the known one, if the file holds one by now.
    fn newer(&self, now_ms: u64) -> Option<Key> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_mut()?;
        if now_ms < known.looked_ms + LOOK_MS {
            return None;
        }
        known.looked_ms = now_ms;
        match Key::read(known.file.as_deref()?) {
            Ok(key) if key.0 != known.key.0 => {
                tracing::info!("the operator's secret has changed");
                known.key = key.clone();
                Some(key)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!("{error}; the key that it held before stays in force");
                None
            }
        }
    }

    fn check(
        &self,
        now_ms: u64,
        path: &str,
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let key = self.key().ok_or(
            "this server knows no operator: start it with --operator-secret-file to be operated",
        )?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(time), Some(nonce), Some(proof)) = (text(TIME), text(NONCE), text(PROOF)) else {
            return Err("the call carries no proof of the operator's key");
        };
        let proof = unhex(proof).ok_or("the proof is not hexadecimal")?;
        let fits = |key: &Key| {
            let mac = key.mac(path, time, nonce, body);
            mac.verify_slice(&proof).is_ok()
        };
        if !fits(&key) && !self.newer(now_ms).is_some_and(|key| fits(&key)) {
            return Err("the proof was not made with this cluster's operator key");
        }
        let sent: u64 = time.parse().map_err(|_| "the proof's time is no number")?;
        if sent.abs_diff(now_ms) > FRESH_MS {
            return Err("the proof is older than 60 s: compare the clocks of operator and member");
        }
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if !nonces.admit(now_ms, nonce) {
            return Err("the proof was used before");
        }
        Ok(())
    }
}

/// The member's side: lets only proven calls through to `S`.
#[derive(Clone, Debug)]
pub struct Verified<S> {
    inner: S,
    verifier: Verifier,
}

impl<S> Verified<S> {
    /// Guards a service.
    pub fn new(inner: S, verifier: Verifier) -> Verified<S> {
        Verified { inner, verifier }
    }
}

impl<S: tonic::server::NamedService> tonic::server::NamedService for Verified<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Verified<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let verifier = self.verifier.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let checked = match gather(body).await {
                Ok(body) => verifier
                    .check(clock::unix_ms(), parts.uri.path(), &parts.headers, &body)
                    .map(|()| body)
                    .map_err(tonic::Status::unauthenticated),
                Err(status) => Err(status),
            };
            match checked {
                Ok(body) => {
                    let body = Body::new(axum::body::Body::from(body));
                    inner.call(http::Request::from_parts(parts, body)).await
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

/// The operator's side: adds the proof to each call.
#[derive(Clone, Debug)]
pub struct Signed<S> {
    inner: S,
    key: Key,
}

impl<S> Signed<S> {
    /// Signs what goes to `inner`.
    pub fn new(inner: S, key: Key) -> Signed<S> {
        Signed { inner, key }
    }
}

impl<S> Service<http::Request<Body>> for Signed<S>
where
    S: Service<http::Request<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<tonic::codegen::StdError>,
{
    type Response = S::Response;
    type Error = tonic::codegen::StdError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let key = self.key.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = gather(body).await?;
            let time = clock::unix_ms().to_string();
            let nonce = uuid::Uuid::new_v4().simple().to_string();
            let proof = key.sign(parts.uri.path(), &time, &nonce, &body);
            for (name, value) in [(TIME, time), (NONCE, nonce), (PROOF, proof)] {
                parts.headers.insert(name, value.parse()?);
            }
            let body = Body::new(axum::body::Body::from(body));
            let request = http::Request::from_parts(parts, body);
            inner.call(request).await.map_err(Into::into)
        })
    }
}

async fn gather(body: Body) -> Result<Bytes, tonic::Status> {
    axum::body::to_bytes(axum::body::Body::new(body), BODY_LIMIT)
        .await
        .map_err(|error| tonic::Status::invalid_argument(format!("cannot read the call: {error}")))
}

/// What [`super::decoders`] asks: whether a call holds with this time, nonce and proof, or with the
/// right proof in its place.
pub(super) fn judge(
    sealed: bool,
    [time, nonce, proof]: [&str; 3],
    body: &[u8],
) -> Result<(), &'static str> {
    const PATH: &str = "/path";
    let key = Key::new(b"a key of sixteen bytes");
    let mut headers = http::HeaderMap::new();
    let right = key.sign(PATH, time, nonce, body);
    let proof = if sealed { &right } else { proof };
    for (name, value) in [(TIME, time), (NONCE, nonce), (PROOF, proof)] {
        if let Ok(value) = http::HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    Verifier::new(Some(key), None).check(1_000_000, PATH, &headers, body)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/quorate.v1.Member/Remove";

    fn headers(key: &Key, time: u64, nonce: &str, body: &[u8]) -> http::HeaderMap {
        let time = time.to_string();
        let proof = key.sign(PATH, &time, nonce, body);
        let mut headers = http::HeaderMap::new();
        for (name, value) in [(TIME, time.as_str()), (NONCE, nonce), (PROOF, &proof)] {
            headers.insert(name, value.parse().expect("ASCII"));
        }
        headers
    }

    #[test]
    fn a_fresh_proof_passes_once() {
        let key = Key::new(b"0123456789abcdef\n");
        let verifier = Verifier::new(Some(key.clone()), None);
        let headers = headers(&key, 1_000_000, "a", b"body");
        assert_eq!(verifier.check(1_000_500, PATH, &headers, b"body"), Ok(()));
        let again = verifier.check(1_000_600, PATH, &headers, b"body");
        assert_eq!(again, Err("the proof was used before"));
        // It is still refused at the end of its life, when the nonce could have been forgotten.
        assert!(verifier.check(1_060_000, PATH, &headers, b"body").is_err());
    }

    #[test]
    fn other_bytes_other_method_other_key_and_old_time_are_refused() {
        let key = Key::new(b"0123456789abcdef");
        let verifier = Verifier::new(Some(key.clone()), None);
        let good = headers(&key, 1_000_000, "a", b"body");
        let check = |now, path, headers: &http::HeaderMap, body: &[u8]| {
            verifier.check(now, path, headers, body).is_err()
        };
        assert!(check(1_000_000, PATH, &good, b"another"));
        assert!(check(
            1_000_000,
            "/quorate.v1.Member/Promote",
            &good,
            b"body"
        ));
        assert!(check(1_060_001, PATH, &good, b"body"));
        let other = headers(&Key::new(b"fedcba9876543210"), 1_000_000, "b", b"body");
        assert!(check(1_000_000, PATH, &other, b"body"));
        assert!(check(1_000_000, PATH, &http::HeaderMap::new(), b"body"));
        // None of these used the nonce up.
        assert_eq!(verifier.check(1_000_000, PATH, &good, b"body"), Ok(()));
    }

    #[test]
    fn a_server_without_a_key_refuses_everything() {
        let key = Key::new(b"0123456789abcdef");
        let headers = headers(&key, 5, "a", b"");
        let verifier = Verifier::new(None, None);
        assert!(verifier.check(5, PATH, &headers, b"").is_err());
    }

    #[test]
    fn a_secret_made_anew_is_taken_over_and_the_old_key_ends() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("key");
        std::fs::write(&file, "0123456789abcdef").expect("written");
        let old = Key::read(&file).expect("a key");
        let verifier = Verifier::new(Some(old.clone()), Some(file.clone()));
        let new = Key::new(b"fedcba9876543210");
        let check = |key: &Key, now: u64| {
            let headers = headers(key, now, &now.to_string(), b"");
            verifier.check(now, PATH, &headers, b"").is_ok()
        };
        assert!(check(&old, 10_000));
        assert!(!check(&new, 10_001), "the file does not hold it yet");
        std::fs::write(&file, "fedcba9876543210\n").expect("written");
        assert!(!check(&new, 10_500), "looked at once a second");
        assert!(check(&new, 11_001));
        assert!(!check(&old, 12_002), "the old key is of no use any more");
        // A file that cannot be used changes nothing.
        std::fs::write(&file, "short").expect("written");
        assert!(!check(&old, 13_003));
        assert!(check(&new, 13_004));
    }
}
