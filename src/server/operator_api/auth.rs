//! The member's side of the authentication between operator and members: accepts only calls with a
//! valid proof, and signs its answers.
//!
//! Any host that reaches the peer port can begin a call, so little is read and kept before the
//! proof is checked: without the right headers not even the body, and no large one on a connection
//! that has carried no call with a valid proof yet. Never logs the key, and never accepts a call
//! that it could not verify.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::StdError;
use tower::Service;

use crate::mutants::mutant;

use super::proof::{
    CALL_LIMIT, Call, Caller, FORM, FROM, NEWEST, NONCE, OLD_PROOF, PROOF, RESPONSE_PROOF,
    Response, TIME, TO, fits, text,
};
pub use super::proof::{Key, Recipient};
use crate::server::process::clock;

/// How long a proof is valid, in milliseconds, in both directions of clock skew.
pub const FRESH_MS: u64 = 60_000;
/// Nonces remembered at most; beyond that, calls are refused so that no nonce is forgotten.
const NONCES: usize = 100_000;
/// Interval between two checks of the key file, in milliseconds.
const CHECK_MS: u64 = 1000;
/// Time for the body of a call.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Time for a large one, which a slow link carries as well: 35 KiB a second.
const LARGE_BODY_TIME: Duration = Duration::from_secs(30);
/// Large bodies that are read at once: each takes a megabyte before its proof is checked.
const LARGE_BODIES: usize = 8;

/// The body is not here.
const LATE: &str = "the rest of the call did not arrive in time: repeat it";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the operator's secret {path}: {source}")]
    Read {
        /// The file of `--operator-secret-file`.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The key is too short, and so easy to guess.
    #[error("the operator's secret {0} must hold at least 16 bytes")]
    Short(String),
}

impl Key {
    /// Reads `--operator-secret-file`.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| KeyError::Read {
            path: name.clone(),
            source,
        })?;
        let key = Key::new(&bytes);
        if key.length() < 16 {
            return Err(KeyError::Short(name));
        }
        Ok(key)
    }
}

/// The nonces of proofs that are still fresh.
#[derive(Debug, Default)]
struct Nonces {
    seen: HashSet<String>,
    order: VecDeque<(u64, String)>,
}

impl Nonces {
    /// Remembers a nonce; false if it was seen before or no more can be remembered.
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

/// Verifies proofs.
#[derive(Clone, Debug)]
pub struct Verifier {
    key: Arc<Mutex<Option<Known>>>,
    nonces: Arc<Mutex<Nonces>>,
    own: Arc<str>,
    caller: Caller,
    /// Time for a small body.
    body_time: Duration,
    /// `None`: all bodies are small.
    large: Option<LargeBodies>,
}

/// What bounds the large bodies.
#[derive(Clone, Debug)]
struct LargeBodies {
    /// One for each that is read.
    places: Arc<Semaphore>,
    /// For each, with the time that it waits for a place.
    time: Duration,
}

/// The key, and the file that may contain a newer one.
#[derive(Debug)]
struct Known {
    key: Key,
    file: Option<PathBuf>,
    /// When the file was last checked because a proof did not match.
    checked_ms: u64,
}

/// A call with its proof, from its headers.
#[derive(Clone, Copy, Debug)]
struct SignedCall<'a> {
    path: &'a str,
    to: &'a str,
    time: &'a str,
    nonce: &'a str,
    proof: &'a str,
}

impl<'a> SignedCall<'a> {
    fn read(path: &'a str, headers: &'a http::HeaderMap) -> Result<SignedCall<'a>, &'static str> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(time), Some(nonce), Some(proof)) = (text(TIME), text(NONCE), text(PROOF)) else {
            return Err(match headers.contains_key(OLD_PROOF) {
                true => {
                    "the call is signed in the form of version 0.1.0, which names no recipient: \
                     update the operator before its members"
                }
                false => "the call carries no proof of the operator's key",
            });
        };
        let to = text(TO).unwrap_or_default();
        Ok(SignedCall {
            path,
            to,
            time,
            nonce,
            proof,
        })
    }

    fn call<'b>(&self, body: &'b [u8]) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            path: self.path,
            to: self.to,
            time: self.time,
            nonce: self.nonce,
            body,
        }
    }
}

/// A call made with the key.
#[derive(Debug)]
struct Proven {
    /// The key that signs the answer.
    key: Key,
    /// Whether it is addressed to this server and not a repetition.
    admitted: Result<(), (Code, &'static str)>,
}

impl Verifier {
    /// Without a key every call is refused. `file` is read again when a proof does not match the
    /// key, once a second at most: the operator's Secret may have been recreated, and a mounted
    /// Secret changes with it. `own` is the recipient of calls.
    #[must_use]
    pub fn new(key: Option<Key>, file: Option<PathBuf>, own: &Recipient) -> Verifier {
        let known = key.map(|key| Known {
            key,
            file,
            checked_ms: 0,
        });
        Verifier {
            key: Arc::new(Mutex::new(known)),
            nonces: Arc::default(),
            own: own.to_string().into(),
            caller: Caller::Operator,
            body_time: BODY_TIME,
            large: None,
        }
    }

    /// The same of the key of backups, which follows from the operator's and changes with it.
    #[must_use]
    pub(in crate::server) fn for_backups(&self) -> Verifier {
        Verifier {
            // Others than the operator's: a holder of this key cannot use those up.
            nonces: Arc::default(),
            caller: Caller::Backup,
            ..self.clone()
        }
    }

    /// The same of the key of restores.
    #[must_use]
    pub(in crate::server) fn for_restores(&self) -> Verifier {
        self.with_large_bodies(Caller::Restore, LARGE_BODIES)
    }

    /// The same of the key of a following: one at a time is at work.
    #[must_use]
    pub(in crate::server) fn for_follow(&self) -> Verifier {
        self.with_large_bodies(Caller::Follow, 2)
    }

    fn with_large_bodies(&self, caller: Caller, at_once: usize) -> Verifier {
        Verifier {
            nonces: Arc::default(),
            caller,
            large: Some(LargeBodies {
                places: Arc::new(Semaphore::new(at_once)),
                time: LARGE_BODY_TIME,
            }),
            ..self.clone()
        }
    }

    /// The body of a call, which nobody has proven yet. `known`: another call on its connection was proven.
    async fn body(&self, body: Body, known: bool) -> Result<Bytes, (Code, &'static str)> {
        let Some(LargeBodies { places, time }) = &self.large else {
            return self
                .small_body(body, "the call exceeds the size limit")
                .await;
        };
        if !known {
            // A stranger costs no more than at the other services, and takes none of the places.
            let why = "the call is too large for the first one on a connection: ask Prospect or Position first, and repeat";
            let read = self.small_body(body, why).await;
            return read.map_err(|(_, why)| (Code::Unavailable, why));
        }
        let read = async {
            let _one = places.acquire().await?;
            gather(body, self.caller.call_limit()).await
        };
        match timeout(*time, read).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err((Code::Unauthenticated, "the call exceeds the size limit")),
            Err(_) => Err((Code::Unavailable, LATE)),
        }
    }

    /// `large` says what is wrong with one that is not small.
    async fn small_body(
        &self,
        body: Body,
        large: &'static str,
    ) -> Result<Bytes, (Code, &'static str)> {
        match timeout(self.body_time, gather(body, CALL_LIMIT)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err((Code::Unauthenticated, large)),
            Err(_) => Err((Code::Unavailable, LATE)),
        }
    }

    fn key(&self) -> Option<Key> {
        let known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|known| known.key.clone())
    }

    /// A key other than the known one, if the file contains one by now.
    fn newer(&self, now_ms: u64) -> Option<Key> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_mut()?;
        if now_ms < known.checked_ms + CHECK_MS {
            return None;
        }
        known.checked_ms = now_ms;
        match Key::read(known.file.as_deref()?) {
            Ok(key) if key != known.key => {
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
        signed_call: SignedCall<'_>,
        body: &[u8],
    ) -> Result<Proven, &'static str> {
        let key = self.key().ok_or(
            "this server knows no operator: start it with --operator-secret-file to be operated",
        )?;
        let call = signed_call.call(body);
        let is_right = |key: &Key| fits(key.of_call(call), signed_call.proof);
        let key = self.caller.key(&key);
        let key = match is_right(&key) {
            true => key,
            false => self
                .newer(now_ms)
                .map(|operators| self.caller.key(&operators))
                .filter(is_right)
                .ok_or("the proof was not made with this cluster's operator key")?,
        };
        let admitted = self.admit(now_ms, signed_call);
        Ok(Proven { key, admitted })
    }

    /// Whether a call with a valid proof may be carried out.
    fn admit(&self, now_ms: u64, signed_call: SignedCall<'_>) -> Result<(), (Code, &'static str)> {
        let refused = |why| Err((Code::Unauthenticated, why));
        let Ok(sent) = signed_call.time.parse::<u64>() else {
            return refused("the proof's time is no number");
        };
        if sent.abs_diff(now_ms) > FRESH_MS {
            return refused(
                "the proof is older than 60 s: compare the clocks of operator and member",
            );
        }
        if signed_call.to.is_empty() && signed_call.path != self.caller.first_call() {
            return refused("the call names no recipient: it is for whoever captures it");
        }
        let elsewhere = !signed_call.to.is_empty() && *signed_call.to != *self.own;
        if elsewhere && !mutant!(AnyRecipient) {
            // The caller has the cluster's key, so the operator should describe the member again.
            return Err((
                Code::FailedPrecondition,
                "the call is for another server, or for this one before it was started again",
            ));
        }
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        match nonces.admit(now_ms, signed_call.nonce) {
            true => Ok(()),
            false => refused("the proof was used before"),
        }
    }
}

/// Called at each call with a valid proof on a connection.
#[derive(Clone)]
pub(crate) struct OnProof {
    act: Arc<dyn Fn() + Send + Sync>,
    proven: Arc<AtomicBool>,
}

impl OnProof {
    /// Calls `act` then.
    pub(crate) fn new(act: impl Fn() + Send + Sync + 'static) -> OnProof {
        OnProof {
            act: Arc::new(act),
            proven: Arc::default(),
        }
    }

    fn prove(&self) {
        self.proven.store(true, Ordering::Release);
        (self.act)();
    }

    /// Whether there was such a call on the connection.
    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }
}

/// The member's side: passes only calls with a valid proof to `S`.
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
            let signed_call = match SignedCall::read(parts.uri.path(), &parts.headers) {
                Ok(signed_call) => signed_call,
                Err(why) => return Ok(unproven(Code::Unauthenticated, why)),
            };
            let on_proof = parts.extensions.get::<OnProof>();
            let known = on_proof.is_some_and(OnProof::is_proven);
            let body = match verifier.body(body, known).await {
                Ok(body) => body,
                Err((code, why)) => return Ok(unproven(code, why)),
            };
            let Proven { key, admitted } =
                match verifier.check(clock::unix_ms(), signed_call, &body) {
                    Ok(proven) => proven,
                    Err(why) => return Ok(unproven(Code::Unauthenticated, why)),
                };
            let (path, nonce) = (signed_call.path.to_owned(), signed_call.nonce.to_owned());
            let response = match admitted {
                Err((code, why)) => tonic::Status::new(code, why).into_http(),
                Ok(()) => {
                    if let Some(on_proof) = on_proof {
                        on_proof.prove();
                    }
                    let body = Body::new(Full::new(body));
                    inner.call(http::Request::from_parts(parts, body)).await?
                }
            };
            Ok(match Whole::of(response, usize::MAX).await {
                Ok(answer) => answer.signed(&key, &path, &nonce, &verifier.own),
                Err(error) => tonic::Status::internal(error.to_string()).into_http(),
            })
        })
    }
}

/// The refusal of a call without a valid proof. It is not signed: the key signs nothing for callers
/// that do not have it.
fn unproven(code: Code, why: &'static str) -> http::Response<Body> {
    let mut response: http::Response<Body> = tonic::Status::new(code, why).into_http();
    let form = http::HeaderValue::from_static(NEWEST);
    response.headers_mut().insert(FORM, form);
    response
}

/// A complete answer.
#[derive(Debug)]
pub(in crate::server) struct Whole {
    pub(in crate::server) parts: http::response::Parts,
    body: Bytes,
    trailers: Option<http::HeaderMap>,
}

impl Whole {
    pub(in crate::server) async fn of(
        response: http::Response<Body>,
        limit: usize,
    ) -> Result<Whole, StdError> {
        let (parts, body) = response.into_parts();
        let collected = Limited::new(body, limit).collect().await?;
        let trailers = collected.trailers().cloned();
        Ok(Whole {
            parts,
            body: collected.to_bytes(),
            trailers,
        })
    }

    fn covered<'a>(&'a self, path: &'a str, nonce: &'a str, from: &'a str) -> Response<'a> {
        let of = |name: &str| {
            let last = self.trailers.as_ref().and_then(|all| all.get(name));
            let value = last.or_else(|| self.parts.headers.get(name));
            value.map_or(&b""[..], http::HeaderValue::as_bytes)
        };
        Response {
            path,
            nonce,
            from,
            code: of("grpc-status"),
            message: of("grpc-message"),
            body: &self.body,
        }
    }

    fn signed(mut self, key: &Key, path: &str, nonce: &str, own: &str) -> http::Response<Body> {
        let proof = text(key.of_response(self.covered(path, nonce, own)));
        for (name, value) in [(RESPONSE_PROOF, proof.as_str()), (FROM, own)] {
            // Hexadecimal digits, a UUID and a number.
            if let Ok(value) = http::HeaderValue::from_str(value) {
                self.parts.headers.insert(name, value);
            }
        }
        self.into_response()
    }

    /// The server that signed the answer with the key, if it is signed.
    pub(in crate::server) fn signer(
        &self,
        key: &Key,
        path: &str,
        nonce: &str,
    ) -> Option<Recipient> {
        // A gRPC client reads the status in the headers first, and the signature covers only one.
        let twice = |name: &str| {
            let last = self.trailers.as_ref();
            last.is_some_and(|last| last.contains_key(name))
                && self.parts.headers.contains_key(name)
        };
        if twice("grpc-status") || twice("grpc-message") {
            return None;
        }
        let text = |name: &str| self.parts.headers.get(name)?.to_str().ok();
        let (from, proof) = (text(FROM)?, text(RESPONSE_PROOF)?);
        let right = fits(key.of_response(self.covered(path, nonce, from)), proof);
        Recipient::read(from).filter(|_| right)
    }

    /// The gRPC status of the answer.
    pub(in crate::server) fn status(&self) -> tonic::Status {
        let last = self.trailers.as_ref();
        let status = last.and_then(tonic::Status::from_header_map);
        let first = || tonic::Status::from_header_map(&self.parts.headers);
        status
            .or_else(first)
            .unwrap_or_else(|| tonic::Status::unknown("it is no answer of gRPC"))
    }

    pub(in crate::server) fn into_response(self) -> http::Response<Body> {
        let body = match (self.body.is_empty(), self.trailers) {
            (true, None) => Body::empty(),
            (_, trailers) => {
                let last = async move { trailers.map(Ok) };
                Body::new(Full::new(self.body).with_trailers(last))
            }
        };
        http::Response::from_parts(self.parts, body)
    }
}

/// The complete body of a call, if it is not larger than `limit`.
pub(in crate::server) async fn gather(body: Body, limit: usize) -> Result<Bytes, StdError> {
    Ok(Limited::new(body, limit).collect().await?.to_bytes())
}

/// For [`crate::server::decoders`]: whether a call is accepted with this time, nonce and proof, or
/// with a valid proof in its place.
pub(in crate::server) fn judge(
    sealed: bool,
    [time, nonce, proof]: [&str; 3],
    body: &[u8],
) -> Result<(), &'static str> {
    let key = Key::new(b"a key of sixteen bytes");
    let own = Recipient {
        disk_uuid: "disk".to_owned(),
        boot: "1".to_owned(),
    };
    let own_text = own.to_string();
    let call = Call {
        path: "/path",
        to: &own_text,
        time,
        nonce,
        body,
    };
    let right = text(key.of_call(call));
    let proof = if sealed { &right } else { proof };
    let mut headers = http::HeaderMap::new();
    let all = [(TIME, time), (NONCE, nonce), (TO, call.to), (PROOF, proof)];
    for (name, value) in all {
        if let Ok(value) = http::HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let signed_call = SignedCall::read(call.path, &headers)?;
    let checked = Verifier::new(Some(key), None, &own).check(1_000_000, signed_call, body)?;
    checked.admitted.map_err(|(_, why)| why)
}

#[cfg(test)]
#[path = "auth_test.rs"]
mod tests;
