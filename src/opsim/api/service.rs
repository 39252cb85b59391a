//! The API server as a `tower` service, so that a real `kube::Client` talks to it, and the hook
//! that sees every request of it.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};

use super::delete::Delete;
use super::kinds::{self, Kind, Target};
use super::object;
use super::refusal::Refusal;
use super::selector::{Selector, field_selector_fits};
use super::server::{ApiServer, Key};
use super::write::{Part, Patch, Writer};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// What changes in a collection.
    Watch,
    /// A new object (POST).
    Create,
    /// A whole object (PUT).
    Update,
    /// A part of an object, or an applied configuration.
    Patch,
    /// The end of an object.
    Delete,
}

impl Verb {
    /// Whether it changes anything.
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Update | Self::Patch | Self::Delete
        )
    }
}

/// A request, as the interceptor sees it before it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who asks: the name that its client was made with.
    pub actor: String,
    /// What for.
    pub verb: Verb,
    /// Of which kind.
    pub kind: Kind,
    /// Empty: of all namespaces, or of a kind without.
    pub namespace: String,
    /// Empty: the collection. For a creation the name in the body.
    pub name: String,
    /// Such as `status`; empty: the object itself.
    pub subresource: String,
    /// How many requests this actor has made, this one included.
    pub request: u64,
    /// How many writes it has asked for, this one included; `None`: this is none.
    pub write: Option<u64>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is carried out.
    Pass,
    /// It is refused with this answer, and nothing is changed.
    Refuse(Refusal),
    /// It is carried out, and its caller sees a broken connection.
    LoseReply,
    /// Its caller sees a broken connection, and nothing is changed.
    Unreachable,
    /// Its caller ends here: nothing is changed, and its future never completes.
    CrashBefore,
    /// Its caller ends here: it is carried out, and its future never completes.
    CrashAfter,
}

/// Sees every request that comes through a client. A closure from a call to a verdict is one.
pub trait Interceptor: Send {
    /// Chooses what becomes of a request.
    fn before(&mut self, call: &Call) -> Verdict;

    /// Is notified of a write that was carried out, whatever its caller sees of it. `changed`: it
    /// made a new version of something; applying what is there already does not.
    fn after(&mut self, call: &Call, changed: bool) {
        let _ = (call, changed);
    }
}

impl<F: FnMut(&Call) -> Verdict + Send> Interceptor for F {
    fn before(&mut self, call: &Call) -> Verdict {
        self(call)
    }
}

/// An API server that several clients and a harness share, on one thread.
#[derive(Clone)]
pub struct SharedApiServer {
    server: Arc<Mutex<ApiServer>>,
    hook: Arc<Mutex<Hook>>,
}

#[derive(Default)]
struct Hook {
    interceptor: Option<Box<dyn Interceptor>>,
    /// Requests and writes by actor.
    counts: std::collections::BTreeMap<String, (u64, u64)>,
}

impl fmt::Debug for SharedApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedApiServer").finish_non_exhaustive()
    }
}

impl SharedApiServer {
    /// Shares a server.
    pub fn new(server: ApiServer) -> Self {
        Self {
            server: Arc::new(Mutex::new(server)),
            hook: Arc::default(),
        }
    }

    /// The server itself. Not to be held while a client's future is polled.
    pub fn lock(&self) -> MutexGuard<'_, ApiServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every request of every client seen by this from now on.
    pub fn intercept(&self, interceptor: impl Interceptor + 'static) {
        self.hook().interceptor = Some(Box::new(interceptor));
    }

    fn hook(&self) -> MutexGuard<'_, Hook> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A service for one actor, for a client or for layers around it.
    pub fn service(&self, actor: &str) -> Connection {
        Connection {
            shared: self.clone(),
            actor: actor.to_owned(),
        }
    }

    /// A client for one actor. Must be called on a tokio runtime (the client keeps a task there).
    pub fn client(&self, actor: &str, namespace: &str) -> kube::Client {
        kube::Client::new(self.service(actor), namespace)
    }

    /// Carries a request out as a client's request, past the hook.
    fn serve(&self, actor: &str, asked: Asked) -> Outcome {
        let call = asked.call(actor, &mut self.hook());
        let verdict = self.with_interceptor(|hook| hook.before(&call));
        let verdict = verdict.unwrap_or(Verdict::Pass);
        match verdict {
            Verdict::Pass => Outcome::Responded(self.execute_call(actor, &call, asked)),
            Verdict::Refuse(refusal) => Outcome::Responded(Err(refusal)),
            Verdict::Unreachable => Outcome::Broken,
            Verdict::CrashBefore => Outcome::Never,
            Verdict::LoseReply => {
                let _ = self.execute_call(actor, &call, asked);
                Outcome::Broken
            }
            Verdict::CrashAfter => {
                let _ = self.execute_call(actor, &call, asked);
                Outcome::Never
            }
        }
    }

    /// Calls the interceptor without any lock held, for it may look at the server.
    fn with_interceptor<T>(&self, call: impl FnOnce(&mut dyn Interceptor) -> T) -> Option<T> {
        let mut interceptor = self.hook().interceptor.take()?;
        let out = call(&mut *interceptor);
        let mut hook = self.hook();
        if hook.interceptor.is_none() {
            hook.interceptor = Some(interceptor);
        }
        Some(out)
    }

    fn execute_call(&self, actor: &str, call: &Call, asked: Asked) -> Result<ApiResponse, Refusal> {
        if asked.verb == Verb::Watch {
            return super::watch::start(self, &asked.target, &asked.query).map(ApiResponse::Stream);
        }
        let mut server = self.lock();
        let before = server.revision();
        let answer = server.handle(actor, asked);
        let answer = answer.map_err(|refusal| server.note(refusal));
        let changed = server.revision() != before;
        drop(server);
        if call.write.is_some() {
            self.with_interceptor(|hook| hook.after(call, changed));
        }
        answer.map(|(code, value)| ApiResponse::Object(code, value))
    }
}

enum Outcome {
    Responded(Result<ApiResponse, Refusal>),
    Broken,
    Never,
}

enum ApiResponse {
    Object(u16, Arc<Value>),
    Stream(Reply),
}

/// A request that was read.
struct Asked {
    target: Target,
    verb: Verb,
    query: Query,
    content_type: String,
    body: Value,
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    fn read(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (unescape(key), unescape(value))
                })
                .collect(),
        )
    }

    /// A parameter; empty where it is absent.
    pub(super) fn get(&self, key: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map_or("", |(_, value)| value)
    }
}

/// Undoes the escapes of a form.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().unwrap_or(0), digit().unwrap_or(0));
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Asked {
    fn read(parts: &http::request::Parts, body: &[u8]) -> Result<Self, Refusal> {
        let Some(target) = kinds::target(parts.uri.path()) else {
            if kinds::is_newer(parts.uri.path()) {
                // Without a name, which only an object that is not there has.
                let text = "the server could not find the requested resource";
                return Err(Refusal::new(404, "NotFound", text));
            }
            let text = format!("{} {}", parts.method, parts.uri.path());
            return Err(Refusal::not_modelled(text));
        };
        let query = Query::read(parts.uri.query().unwrap_or_default());
        let verb = match (parts.method.clone(), target.name.is_empty()) {
            (Method::GET, true) if query.get("watch") == "true" => Verb::Watch,
            (Method::GET, true) => Verb::List,
            (Method::GET, false) => Verb::Get,
            (Method::POST, _) => Verb::Create,
            (Method::PUT, false) => Verb::Update,
            (Method::PATCH, false) => Verb::Patch,
            (Method::DELETE, false) => Verb::Delete,
            (method, _) => {
                let text = format!("{method} of {}", parts.uri.path());
                return Err(Refusal::not_modelled(text));
            }
        };
        let body = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(body)
                .map_err(|error| Refusal::bad_request(format!("the body: {error}")))?,
        };
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        Ok(Self {
            target,
            verb,
            query,
            content_type: content_type.unwrap_or_default().to_owned(),
            body,
        })
    }

    fn call(&self, actor: &str, hook: &mut Hook) -> Call {
        let counts = hook.counts.entry(actor.to_owned()).or_default();
        counts.0 += 1;
        let write = self.verb.is_write().then(|| {
            counts.1 += 1;
            counts.1
        });
        let name = match self.target.name.as_str() {
            "" => object::name(&self.body),
            name => name,
        };
        Call {
            actor: actor.to_owned(),
            verb: self.verb,
            kind: self.target.kind,
            namespace: self.target.namespace.clone(),
            name: name.to_owned(),
            subresource: self.target.subresource.clone(),
            request: counts.0,
            write,
        }
    }
}

impl ApiServer {
    /// Carries out a request that was read: its status and body.
    fn handle(&mut self, actor: &str, asked: Asked) -> Result<(u16, Arc<Value>), Refusal> {
        let Asked {
            target,
            verb,
            query,
            content_type,
            mut body,
        } = asked;
        let Target {
            kind,
            namespace,
            name,
            subresource,
        } = target;
        if (kind, verb, subresource.as_str()) == (Kind::Pod, Verb::Patch, "resize")
            && content_type == "application/strategic-merge-patch+json"
        {
            let dry_run = query.get("dryRun") == "All";
            let resized = self.resize(actor, (&namespace, &name), (&body, dry_run));
            return Ok((200, resized?));
        }
        let answers = (kind, verb) == (Kind::PodCertificateRequest, Verb::Patch)
            && subresource == "status"
            && content_type == "application/merge-patch+json";
        if answers && query.get("dryRun") == "All" {
            let id = (namespace.as_str(), name.as_str());
            let tried = self.try_patch(kind, Part::Status, id, body)?;
            return Ok((200, Arc::new(tried)));
        }
        if !query.get("dryRun").is_empty() {
            return Err(Refusal::not_modelled("a dry run"));
        }
        let manager = match query.get("fieldManager") {
            "" => actor.to_owned(),
            manager => manager.to_owned(),
        };
        let writer = Writer {
            actor,
            manager: &manager,
        };
        let id = (namespace.as_str(), name.as_str());
        if (kind, verb, subresource.as_str()) == (Kind::Pod, Verb::Create, "eviction") {
            let evicted = self.evict(actor, id, &body["deleteOptions"]);
            return evicted.map(|()| (201, Arc::new(success())));
        }
        let part = match subresource.as_str() {
            "" => Part::Main,
            "status" if kind.facts().status => Part::Status,
            _ => {
                return Err(Refusal::not_modelled(format!(
                    "{} {subresource}",
                    kind.plural()
                )));
            }
        };
        match verb {
            Verb::Get => {
                let found = self.get(kind, id.0, id.1);
                let found = found.ok_or_else(|| Refusal::not_found(kind, id.1))?;
                Ok((200, found))
            }
            Verb::List => Ok((200, Arc::new(self.page(kind, &namespace, &query)?))),
            Verb::Watch => Err(Refusal::internal("a watch is no single answer")),
            Verb::Create => {
                if part != Part::Main {
                    return Err(Refusal::not_modelled("creating a subresource"));
                }
                in_namespace(kind, &namespace, &mut body)?;
                let created = self.create_as(writer, kind, body, super::apply::Operation::Update);
                Ok((201, created?))
            }
            Verb::Update => {
                in_namespace(kind, &namespace, &mut body)?;
                if object::name(&body) != name {
                    let text = "the name of the object does not match the name on the URL";
                    return Err(Refusal::bad_request(text));
                }
                Ok((200, self.replace_as(writer, kind, part, body)?))
            }
            Verb::Patch => {
                let patch = read_patch(&content_type, &query, body)?;
                let there = self.get(kind, id.0, id.1).is_some();
                let patched = self.patch_as(writer, kind, part, id, patch)?;
                Ok((if there { 200 } else { 201 }, patched))
            }
            Verb::Delete => {
                let last = self.delete(actor, kind, id, &Delete::read(&body)?)?;
                if self.get(kind, id.0, id.1).is_some() {
                    return Ok((200, last));
                }
                let mut answer = success();
                answer["details"] = json!({"name": name, "kind": kind.plural(),
                    "group": kind.facts().group, "uid": object::uid(&last)});
                Ok((200, Arc::new(answer)))
            }
        }
    }

    /// A list, or a page of it. Pages continue after a key, on the newest state.
    fn page(&self, kind: Kind, namespace: &str, query: &Query) -> Result<Value, Refusal> {
        let selector = Selector::parse(query.get("labelSelector"))?;
        let fields = query.get("fieldSelector");
        let limit: usize = query.get("limit").parse().unwrap_or(0);
        let start: std::ops::Bound<Key> = match query.get("continue") {
            "" => std::ops::Bound::Unbounded,
            token => match token.split_once('/') {
                Some((namespace, name)) => {
                    std::ops::Bound::Excluded((namespace.to_owned(), name.to_owned()))
                }
                None => return Err(Refusal::bad_request("the continue token cannot be read")),
            },
        };
        let mut items = Vec::new();
        let mut next = String::new();
        for ((in_namespace, _), stored) in self.after(kind, start) {
            let object = &stored.object;
            let wanted = (namespace.is_empty() || namespace == in_namespace)
                && selector.fits(object)
                && field_selector_fits(fields, object)?;
            if !wanted {
                continue;
            }
            if limit > 0 && items.len() == limit {
                let last: &Value = items.last().unwrap_or(&Value::Null);
                next = format!("{}/{}", object::namespace(last), object::name(last));
                break;
            }
            items.push((**object).clone());
        }
        let mut meta = json!({"resourceVersion": self.revision().to_string()});
        if !next.is_empty() {
            meta["continue"] = json!(next);
        }
        Ok(
            json!({"apiVersion": kind.api_version(), "kind": format!("{}List", kind.name()),
            "metadata": meta, "items": items}),
        )
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}

fn in_namespace(kind: Kind, namespace: &str, body: &mut Value) -> Result<(), Refusal> {
    super::validate::shape_of(kind, body)?;
    if !kind.is_namespaced() {
        return Ok(());
    }
    object::default(body, &["metadata", "namespace"], json!(namespace));
    if object::namespace(body) == namespace {
        return Ok(());
    }
    let text =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(Refusal::bad_request(text))
}

fn read_patch(content_type: &str, query: &Query, body: Value) -> Result<Patch, Refusal> {
    match content_type {
        "application/merge-patch+json" => Ok(Patch::Merge(body)),
        "application/apply-patch+yaml" => {
            if query.get("fieldManager").is_empty() {
                let text = "fieldManager is required for apply patch";
                return Err(Refusal::bad_request(text));
            }
            Ok(Patch::Apply {
                body,
                force: query.get("force") == "true",
            })
        }
        other => Err(Refusal::not_modelled(format!(
            "a patch of the type {other:?}"
        ))),
    }
}

/// The body of an answer.
pub type Reply = UnsyncBoxBody<Bytes, Broken>;

/// One actor's connection.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: SharedApiServer,
    actor: String,
}

/// What a broken connection looks like.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the simulated API server broke")]
pub struct Broken;

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<Reply>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Reply>, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (shared, actor) = (self.shared.clone(), self.actor.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
            let asked = match Asked::read(&parts, &body) {
                Ok(asked) => asked,
                Err(refusal) => return Ok(refused(&shared.lock().note(refusal))),
            };
            match shared.serve(&actor, asked) {
                Outcome::Responded(Ok(ApiResponse::Object(code, value))) => {
                    Ok(answer(code, &value))
                }
                Outcome::Responded(Ok(ApiResponse::Stream(body))) => Ok(Response::new(body)),
                Outcome::Responded(Err(refusal)) => Ok(refused(&refusal)),
                Outcome::Broken => Err(Broken),
                Outcome::Never => std::future::pending().await,
            }
        })
    }
}

fn refused(refusal: &Refusal) -> Response<Reply> {
    answer(refusal.code, &refusal.status())
}

fn answer(code: u16, value: &Value) -> Response<Reply> {
    let body = Full::new(Bytes::from(value.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let kind = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}
