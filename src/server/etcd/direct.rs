//! The KV calls of clients, answered without the router and gRPC's general machinery: a request that is one whole message
//! is decoded, handed to the service, and its answer encoded, in the task of its connection or of its stream. Whatever
//! else a client may send (compression, more than one message, a message that is too long or damaged) is given back for
//! the router, which refuses it as gRPC does. Never carries out a call itself: that is the service's.
//!
//! Why, and what it saves: docs/decisions/060-kv-calls-without-the-router.md

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};
use prost::Message;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::chunked_range;
use super::framing::{HEAD, Pieces, encoded, framed, is_one_message, may_become_one};
use super::{Services, message_limit};
use crate::server::listen::bodies::Metered;
use crate::server::listen::received::Received;
use crate::server::listen::serving::{Direct, GivenBack};
use crate::wire::etcd::kv_server::Kv;

/// The calls.
#[derive(Clone, Copy)]
enum Call {
    Range,
    Put,
    Txn,
    DeleteRange,
}

impl Call {
    fn of(path: &str) -> Option<Call> {
        Some(match path.strip_prefix("/etcdserverpb.KV/")? {
            "Range" => Call::Range,
            "Put" => Call::Put,
            "Txn" => Call::Txn,
            "DeleteRange" => Call::DeleteRange,
            _ => return None,
        })
    }
}

/// The KV service of this member.
pub(crate) struct DirectCalls {
    services: Services,
    /// The largest message in bytes.
    limit: usize,
}

impl DirectCalls {
    pub(crate) fn new(services: Services) -> Arc<DirectCalls> {
        let limit = message_limit(&services);
        Arc::new(DirectCalls { services, limit })
    }
}

impl Direct for DirectCalls {
    fn takes(&self, parts: &Parts) -> bool {
        Call::of(parts.uri.path()).is_some() && is_plain_grpc(parts)
    }

    fn answer(
        self: Arc<Self>,
        request: Request<Metered<Received>>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Body>, GivenBack>> + Send>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let given_back = |parts, body| Err(Box::new(Request::from_parts(parts, body)));
            let Some(call) = Call::of(parts.uri.path()) else {
                return given_back(parts, Body::new(body));
            };
            let message = match whole(body, self.limit).await {
                Ok(Came::Message(message)) => message,
                Ok(Came::Else(body)) => return given_back(parts, body),
                Err(refused) => return Ok(refused.into_http()),
            };
            let kv = &self.services;
            // Decoding may fail for as long as it is not known what the message is.
            let damaged = |parts, message: Bytes| given_back(parts, Body::from(framed(&message)));
            Ok(match call {
                Call::Range => match Message::decode(message.clone()) {
                    Ok(range) => {
                        let mut request = tonic_request(parts, range);
                        chunked_range::mark_call(request.extensions_mut());
                        ranged(kv.range(request).await)
                    }
                    Err(_) => return damaged(parts, message),
                },
                Call::Put => match Message::decode(message.clone()) {
                    Ok(put) => answered(kv.put(tonic_request(parts, put)).await),
                    Err(_) => return damaged(parts, message),
                },
                Call::Txn => match Message::decode(message.clone()) {
                    Ok(txn) => answered(kv.txn(tonic_request(parts, txn)).await),
                    Err(_) => return damaged(parts, message),
                },
                Call::DeleteRange => match Message::decode(message.clone()) {
                    Ok(delete) => answered(kv.delete_range(tonic_request(parts, delete)).await),
                    Err(_) => return damaged(parts, message),
                },
            })
        })
    }
}

/// A POST of protobuf messages that are not compressed.
fn is_plain_grpc(parts: &Parts) -> bool {
    let text = |name| parts.headers.get(name).map(HeaderValue::as_bytes);
    let kind = text(header::CONTENT_TYPE);
    let encoding = text(header::HeaderName::from_static("grpc-encoding"));
    parts.method == Method::POST
        && matches!(kind, Some(b"application/grpc" | b"application/grpc+proto"))
        && matches!(encoding, None | Some(b"identity"))
}

/// What came as the body of a request.
enum Came {
    /// One message, whole.
    Message(Bytes),
    /// Something else, with what was read of it in front.
    Else(Body),
}

/// Reads a body that is one message of at most `limit` bytes.
///
/// # Errors
/// The client did not send it in time, or too much is incomplete.
async fn whole(mut body: Metered<Received>, limit: usize) -> Result<Came, Status> {
    let mut came = Pieces::default();
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            break;
        };
        match frame.map_err(Status::from_error)?.into_data() {
            Ok(data) => came.push(data),
            Err(trailers) => {
                let first = Some(Frame::data(came.into_bytes()));
                let then = Some(trailers);
                return Ok(Came::Else(Body::new(Read { first, then, body })));
            }
        }
        // Whatever it is going to be, it is refused now, not when the rest of it has come.
        if came.len() > HEAD + limit || !may_become_one(came.head(), limit) {
            let first = Some(Frame::data(came.into_bytes()));
            let then = None;
            return Ok(Came::Else(Body::new(Read { first, then, body })));
        }
        // A client that sends many small frames must not keep its thread.
        tokio::task::consume_budget().await;
    }
    let came = came.into_bytes();
    Ok(match is_one_message(&came) {
        true => Came::Message(came.slice(HEAD..)),
        false => Came::Else(Body::from(came)),
    })
}

fn tonic_request<T>(parts: Parts, message: T) -> tonic::Request<T> {
    let metadata = MetadataMap::from_headers(parts.headers);
    tonic::Request::from_parts(metadata, parts.extensions, message)
}

/// The HTTP response of a call.
fn answered<T: Message>(result: Result<tonic::Response<T>, Status>) -> Response<Body> {
    match result {
        Ok(response) => succeeded(response.into_parts()),
        Err(status) => status.into_http(),
    }
}

/// The same of Range, whose response may be sent in pieces.
fn ranged(
    result: Result<tonic::Response<crate::wire::etcd::RangeResponse>, Status>,
) -> Response<Body> {
    match result {
        Ok(response) => {
            let (metadata, message, mut extensions) = response.into_parts();
            let long = chunked_range::long(&mut extensions);
            let response = succeeded((metadata, message, extensions));
            match long {
                None => response,
                Some(long) => response.map(|_empty| long),
            }
        }
        Err(status) => status.into_http(),
    }
}

fn succeeded<T: Message>(
    (metadata, message, _): (MetadataMap, T, http::Extensions),
) -> Response<Body> {
    let Some(data) = encoded(&message) else {
        let length = message.encoded_len();
        let text = format!("an answer of {length} bytes does not fit into one message");
        return Status::resource_exhausted(text).into_http();
    };
    let body = Sent {
        data: Some(data),
        ended: false,
    };
    let mut response = Response::new(Body::new(body));
    *response.headers_mut() = metadata.into_headers();
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A message and the status of success.
struct Sent {
    data: Option<Bytes>,
    ended: bool,
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// What was read of a body, and the rest of it.
struct Read {
    first: Option<Frame<Bytes>>,
    then: Option<Frame<Bytes>>,
    body: Metered<Received>,
}

impl hyper::body::Body for Read {
    type Data = Bytes;
    type Error = <Metered<Received> as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(frame) = self.first.take().or_else(|| self.then.take()) {
            return Poll::Ready(Some(Ok(frame)));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_calls_and_other_encodings_are_the_routers() {
        let parts = |path: &str, headers: &[(&'static str, &'static str)]| {
            let mut request = Request::builder().method("POST").uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            request.body(()).expect("a request").into_parts().0
        };
        let grpc = ("content-type", "application/grpc");
        let range = "/etcdserverpb.KV/Range";
        let taken = |parts: &Parts| Call::of(parts.uri.path()).is_some() && is_plain_grpc(parts);
        assert!(taken(&parts(range, &[grpc])));
        assert!(taken(&parts(range, &[grpc, ("grpc-encoding", "identity")])));
        assert!(!taken(&parts(range, &[grpc, ("grpc-encoding", "gzip")])));
        assert!(!taken(&parts(range, &[])));
        assert!(!taken(&parts(
            range,
            &[("content-type", "application/json")]
        )));
        assert!(!taken(&parts("/etcdserverpb.KV/Compact", &[grpc])));
        assert!(!taken(&parts("/etcdserverpb.KV/RangeStream", &[grpc])));
    }
}
