//! The console's HTTP: the files of the page for everyone, and `/stream` for those who may look. Answers GET alone.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use super::stream::{self, Viewer};
use super::{Error, Request, STREAMS, Source, page};
use crate::operator::endpoint::{Cut, bearer};

/// Maximum length of a name in a query: that of a DNS subdomain.
const LONGEST_NAME: usize = 253;

struct Shared<S> {
    source: Arc<S>,
    streams: Arc<Semaphore>,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            streams: self.streams.clone(),
        }
    }
}

/// All of them.
pub(crate) fn routes<S: Source>(source: Arc<S>) -> Router {
    let shared = Shared {
        source,
        streams: Arc::new(Semaphore::new(STREAMS)),
    };
    page::routes()
        .route("/stream", get(open::<S>))
        .with_state(shared)
        .layer(map_response(page::guarded))
}

/// `GET /stream?namespace=NAMESPACE&of=NAMESPACE&cluster=NAME`. All are optional.
async fn open<S: Source>(State(shared): State<Shared<S>>, asked: HttpRequest) -> Response {
    let cut = asked.extensions().get::<Cut>().cloned().unwrap_or_default();
    let query = asked.uri().query().unwrap_or_default();
    let request = match request(query, asked.headers()) {
        Ok(request) => request,
        Err(error) => return refused(&error),
    };
    let sight = match shared.source.sight(&request).await {
        Ok(sight) => sight,
        Err(error) => return refused(&error),
    };
    // Only who may look takes a place from others.
    let Ok(place) = shared.streams.clone().try_acquire_owned() else {
        return refused(&Error::TooMany);
    };
    let viewer = Viewer {
        request,
        sight,
        place,
        cut,
    };
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, stream::body(shared.source, viewer)).into_response()
}

fn refused(error: &Error) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let mut response = (error.status(), kind, format!("{error}\n")).into_response();
    if matches!(error, Error::NoToken | Error::Unknown(_)) {
        let how = axum::http::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
    }
    response
}

fn request(query: &str, headers: &HeaderMap) -> Result<Request, Error> {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    let name = parameter(query, "cluster")?;
    Ok(Request {
        token: bearer(headers).map(str::to_owned),
        namespace: parameter(query, "namespace")?,
        cluster: parameter(query, "of")?.zip(name),
        host: text("host"),
        site: text("sec-fetch-site"),
    })
}

/// A name of Kubernetes, which needs no escaping; an empty one is none.
fn parameter(query: &str, name: &str) -> Result<Option<String>, Error> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if value.len() > LONGEST_NAME || !value.chars().all(fits) {
        let start = value.chars().take(LONGEST_NAME).collect();
        return Err(Error::Name(start));
    }
    Ok(Some(value.to_owned()))
}

#[cfg(test)]
#[path = "routes_test.rs"]
mod tests;
