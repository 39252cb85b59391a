//! The operator's side of the authentication between operator and members: signs each call for one
//! start of one server, and rejects every answer that is not signed.
//!
//! Members of version 0.1.0 accept calls in an older format and sign nothing. They are
//! distinguished from servers without the key by what only a holder of the key can do: tell valid
//! proofs from invalid ones. Never retries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use http_body_util::Full;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::StdError;
use tower::{Service, ServiceExt as _};

use crate::mutants::mutant;

use super::auth::{Whole, gather};
use super::proof::{
    Call, Caller, FORM, FROM, Key, NONCE, OLD_PROOF, PROOF, Recipient, TIME, TO, text,
};
use crate::server::listen::quiet::printable;
use crate::server::process::clock;

/// Calls by which a member of 0.1.0 proves that it can distinguish valid proofs from invalid ones: a
/// server without the key guesses all of them right once in four thousand million times.
const ROUNDS: usize = 32;
/// Characters of an unsigned refusal that are shown.
const REASON: usize = 256;
/// An empty gRPC request, as that of a description may be.
const NOTHING: &[u8] = &[0; 5];

/// What is known of the server that answers.
#[derive(Clone, Debug, Default)]
enum Standing {
    /// Nothing.
    #[default]
    Unknown,
    /// It has authenticated as this one.
    Is(Author),
}

/// The authenticated author of an answer, to which calls that follow from the answer are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author(Option<Recipient>);

impl Author {
    /// The server with this signature; `None`: a member of 0.1.0, which does not sign.
    pub(in crate::server) fn of(signed: Option<Recipient>) -> Author {
        Author(signed)
    }

    /// Whether it signs. A member of version 0.1.0 does not.
    #[must_use]
    pub fn signs(&self) -> bool {
        self.0.is_some()
    }

    /// Its disk, as authenticated by the signature.
    #[must_use]
    pub fn disk_uuid(&self) -> Option<&str> {
        self.0.as_ref().map(|signer| signer.disk_uuid.as_str())
    }
}

/// The operator's side: adds the proof to each call, and verifies that of each answer.
#[derive(Debug)]
pub(in crate::server) struct Signed<S> {
    inner: Arc<Mutex<S>>,
    caller: Caller,
    key: Key,
    standing: Arc<Mutex<Standing>>,
    /// The server has signed before, so it cannot be a member of 0.1.0. A caller that knows that
    /// the server there was replaced creates a new client.
    has_signed: Arc<AtomicBool>,
    /// Calls are bound to this one; `None`: to the server that answers.
    only: Option<Author>,
}

impl<S> Clone for Signed<S> {
    /// The clone shares what is known of the server.
    fn clone(&self) -> Signed<S> {
        Signed {
            inner: Arc::clone(&self.inner),
            caller: self.caller,
            key: self.key.clone(),
            standing: Arc::clone(&self.standing),
            has_signed: Arc::clone(&self.has_signed),
            only: self.only.clone(),
        }
    }
}

/// A call before it is signed.
struct Unsigned {
    parts: http::request::Parts,
    body: Bytes,
}

/// The result of a call.
enum Outcome {
    /// The answer of this server.
    Proven(Whole, Recipient),
    /// An unsigned answer.
    Unproven(Whole),
}

impl<S> Signed<S> {
    /// Signs the operator's calls to `inner`.
    pub(in crate::server) fn new(inner: S, key: Key) -> Signed<S> {
        Self::of(Caller::Operator, inner, key)
    }

    /// Signs the calls of a backup to `inner`.
    pub(in crate::server) fn for_backups(inner: S, key: Key) -> Signed<S> {
        Self::of(Caller::Backup, inner, key)
    }

    /// Signs the calls of a restore to `inner`.
    pub(in crate::server) fn for_restores(inner: S, key: Key) -> Signed<S> {
        Self::of(Caller::Restore, inner, key)
    }

    /// Signs the calls of a following to `inner`.
    pub(in crate::server) fn for_follow(inner: S, key: Key) -> Signed<S> {
        Self::of(Caller::Follow, inner, key)
    }

    fn of(caller: Caller, inner: S, key: Key) -> Signed<S> {
        Signed {
            inner: Arc::new(Mutex::new(inner)),
            caller,
            key,
            standing: Arc::default(),
            has_signed: Arc::default(),
            only: None,
        }
    }

    /// The same transport, for calls that follow from an answer of this server: they are bound to
    /// it, without a description first.
    pub(in crate::server) fn only(&self, signer: Author) -> Signed<S> {
        Signed {
            only: Some(signer),
            ..self.clone()
        }
    }

    /// The author of the last description, if there was one.
    pub(in crate::server) fn signer(&self) -> Option<Author> {
        match self.standing() {
            Standing::Unknown => None,
            Standing::Is(signer) => Some(signer),
        }
    }

    fn standing(&self) -> Standing {
        let standing = self.standing.lock();
        standing.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stands(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}

impl<S> Signed<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone,
    S::Error: Into<StdError>,
{
    async fn answer(&self, call: Unsigned) -> Result<Whole, StdError> {
        let first = self.caller.first_call();
        if call.parts.uri.path() == first {
            return self.describe(&call).await;
        }
        if self.only.is_none() && self.signer().is_none() {
            let described = self.describe(&call.first_call(first)?).await?;
            if described.status().code() != Code::Ok {
                return Ok(described);
            }
        }
        match self.only.clone().or_else(|| self.signer()) {
            None => Err(unbelieved(None)),
            Some(Author(None)) => self.send_old(&call, &self.key).await,
            Some(Author(Some(to))) => match self.send(&call, Some(&to)).await? {
                Outcome::Proven(whole, from) => {
                    let same = from == to && whole.status().code() == Code::Ok;
                    if !same {
                        // It may have restarted: the next call describes it first.
                        self.stands(Standing::Unknown);
                    }
                    Ok(whole)
                }
                Outcome::Unproven(whole) => Err(unbelieved(Some(&whole))),
            },
        }
    }

    async fn describe(&self, call: &Unsigned) -> Result<Whole, StdError> {
        self.stands(Standing::Unknown);
        let whole = match self.send(call, None).await? {
            Outcome::Proven(whole, from) => {
                self.has_signed.store(true, Ordering::Release);
                self.stands(Standing::Is(Author(Some(from))));
                return Ok(whole);
            }
            Outcome::Unproven(whole) => whole,
        };
        let unknown = match self.caller {
            Caller::Operator => None,
            Caller::Backup => Some("the server there gives no backups"),
            Caller::Restore => Some("the server there takes no snapshots"),
            Caller::Follow => Some("the server there follows no cluster"),
        };
        if let Some(unknown) = unknown {
            return Err(match whole.status().code() {
                Code::Unimplemented => tonic::Status::unimplemented(format!(
                    "{unknown}: it is of an older version, or no member"
                ))
                .into(),
                _ => unbelieved(Some(&whole)),
            });
        }
        let refused = whole.status().code() == Code::Unauthenticated;
        // A downgrade to 0.1.0 is not accepted: an attacker that removes signatures would cause the
        // same.
        let signed_before = self.has_signed.load(Ordering::Acquire);
        if !refused || signed_before || whole.parts.headers.contains_key(FORM) {
            return Err(unbelieved(Some(&whole)));
        }
        match self.describe_old(call).await? {
            Some(old) => {
                self.stands(Standing::Is(Author(None)));
                Ok(old)
            }
            None => Err(tonic::Status::unauthenticated(
                "it does not distinguish valid proofs from invalid ones in the form of 0.1.0 either: \
                 it has another key than this cluster's operator, or none",
            )
            .into()),
        }
    }

    /// The answer of a member of 0.1.0, which refuses exactly the calls with invalid proofs. A
    /// server without the key can only guess which these are.
    async fn describe_old(&self, call: &Unsigned) -> Result<Option<Whole>, StdError> {
        let wrong = Key::new(uuid::Uuid::new_v4().simple().to_string().as_bytes());
        let bits = uuid::Uuid::new_v4().into_bytes();
        let right = (0..ROUNDS).map(|round| bits[round / 8] >> (round % 8) & 1 == 1);
        let right: Vec<bool> = right.collect();
        let calls = right.iter().map(|right| match right {
            true => self.send_old(call, &self.key),
            false => self.send_old(call, &wrong),
        });
        let answers = try_join_all(calls).await?;
        let mut believed = None;
        for (right, answer) in right.into_iter().zip(answers) {
            if right == (answer.status().code() == Code::Unauthenticated) {
                return Ok(None);
            }
            if right {
                believed = believed.or(Some(answer));
            }
        }
        Ok(believed)
    }

    async fn send(&self, call: &Unsigned, to: Option<&Recipient>) -> Result<Outcome, StdError> {
        let to = to.map(ToString::to_string).unwrap_or_default();
        let (path, time, nonce) = (call.parts.uri.path(), time(), nonce());
        let signed = Call {
            path,
            to: &to,
            time: &time,
            nonce: &nonce,
            body: &call.body,
        };
        let proof = text(self.key.of_call(signed));
        let headers = [(TIME, &time), (NONCE, &nonce), (PROOF, &proof), (TO, &to)];
        let whole = self.carry(call, &headers).await?;
        Ok(match whole.signer(&self.key, path, &nonce) {
            Some(from) => Outcome::Proven(whole, from),
            None if mutant!(UnsignedBelieved) => Outcome::Proven(whole, Recipient::default()),
            None => Outcome::Unproven(whole),
        })
    }

    /// Sends a call in the format of 0.1.0, with this key. Its answer is not signed.
    async fn send_old(&self, call: &Unsigned, key: &Key) -> Result<Whole, StdError> {
        let (time, nonce) = (time(), nonce());
        let signed = Call {
            path: call.parts.uri.path(),
            to: "",
            time: &time,
            nonce: &nonce,
            body: &call.body,
        };
        let proof = text(key.of_old_call(signed));
        let headers = [(TIME, &time), (NONCE, &nonce), (OLD_PROOF, &proof)];
        let mut whole = self.carry(call, &headers).await?;
        whole.parts.headers.remove(FROM);
        Ok(whole)
    }

    async fn carry(&self, call: &Unsigned, headers: &[(&str, &String)]) -> Result<Whole, StdError> {
        let mut request = http::Request::new(Body::new(Full::new(call.body.clone())));
        *request.method_mut() = call.parts.method.clone();
        *request.uri_mut() = call.parts.uri.clone();
        *request.version_mut() = call.parts.version;
        *request.headers_mut() = call.parts.headers.clone();
        *request.extensions_mut() = call.parts.extensions.clone();
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            let name: http::HeaderName = name.parse()?;
            request.headers_mut().insert(name, value.parse()?);
        }
        let inner = self.inner.lock();
        let inner = inner.unwrap_or_else(PoisonError::into_inner).clone();
        let response = inner.oneshot(request).await;
        Whole::of(response.map_err(Into::into)?, self.caller.answer_limit()).await
    }
}

impl Unsigned {
    /// A call without a recipient, to learn which server would answer this one.
    fn first_call(&self, path: &'static str) -> Result<Unsigned, StdError> {
        let mut parts = self.parts.clone();
        let mut uri = parts.uri.into_parts();
        uri.path_and_query = Some(http::uri::PathAndQuery::from_static(path));
        parts.uri = http::Uri::from_parts(uri)?;
        Ok(Unsigned {
            parts,
            body: Bytes::from_static(NOTHING),
        })
    }
}

pub(super) fn time() -> String {
    clock::unix_ms().to_string()
}

pub(super) fn nonce() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

const UNSIGNED: &str =
    "the answer is not signed with this cluster's operator key: it is not believed";

/// The error for an answer without proof of the key. A refusal of the call's proof is reported
/// nevertheless, since it helps if there are two keys, but it is no evidence.
fn unbelieved(whole: Option<&Whole>) -> StdError {
    let status = whole.map(Whole::status);
    let status = match status {
        Some(unsigned) if unsigned.code() == Code::Unauthenticated => {
            tonic::Status::unauthenticated(printable(unsigned.message(), REASON))
        }
        // Not with its code: that would be an answer.
        Some(unsigned) if unsigned.code() == Code::Unavailable => {
            let said = printable(unsigned.message(), REASON);
            tonic::Status::unknown(format!("{UNSIGNED}; it says: {said}"))
        }
        _ => tonic::Status::unknown(UNSIGNED),
    };
    status.into()
}

impl<S> Service<http::Request<Body>> for Signed<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<StdError>,
{
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// Each call waits until its own clone of the transport is ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let signed = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = gather(body, signed.caller.call_limit()).await?;
            let whole = signed.answer(Unsigned { parts, body }).await?;
            Ok(whole.into_response())
        })
    }
}

#[cfg(test)]
#[path = "signed_test.rs"]
pub(crate) mod tests;
