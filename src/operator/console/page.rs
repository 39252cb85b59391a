//! The page: files of this folder, as they are. No data are in them, so that they need no token, and nothing is loaded
//! from elsewhere. Its policy lets the browser run and load these files alone.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;

/// Nothing inline, nothing from elsewhere, no frame around it, no form that is sent anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Of every answer of the console.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    // A page of another version would not understand the documents.
    (header::CACHE_CONTROL, "no-store"),
];

/// The files: path, type and content.
const FILES: [(&str, &str, &str); 5] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    (
        "/console.css",
        "text/css; charset=utf-8",
        include_str!("page/console.css"),
    ),
    (
        "/console.js",
        "text/javascript; charset=utf-8",
        include_str!("page/console.js"),
    ),
    (
        "/show.js",
        "text/javascript; charset=utf-8",
        include_str!("page/show.js"),
    ),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// The routes of the files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |routes, file| {
        let (path, kind, text) = file;
        let answer = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
        routes.route(path, get(answer))
    })
}

/// Adds the headers.
pub(super) async fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy forbids these, and a browser would show a page without them.
    #[test]
    fn nothing_is_inline_or_from_elsewhere() {
        for (path, _, text) in FILES {
            for word in [
                "http://",
                "https://",
                "//cdn",
                "style=\"",
                "onclick=",
                "innerHTML",
                "eval(",
            ] {
                let names = text.matches("http://www.w3.org/").count();
                let found = text.matches(word).count();
                let allowed = if word == "http://" { names } else { 0 };
                assert_eq!(found, allowed, "{path}: {word}");
            }
        }
        let (_, _, html) = FILES[0];
        for script in html.split("<script").skip(1) {
            assert!(script.starts_with(" src="), "{script}");
        }
        assert!(!html.contains("<style"));
        for (path, _, _) in &FILES[1..] {
            let name = path.trim_start_matches('/');
            let used = FILES.iter().any(|(_, _, text)| text.contains(name));
            assert!(used, "{name} is used nowhere");
        }
    }
}
