//! The heads of requests: from the fields of a block to a method, a URI and headers, by the rules of RFC 9113, section
//! 8. A block that is, byte for byte, the one before, and that meant the same then, is not decoded again: clients send
//! the same block for most of their requests. Pure.

use std::sync::Arc;

use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri, header};

use super::hpack::{Decoded, Decoder, Field, HpackError, Name};

/// What a request begins with.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// The length of its body, where it is stated.
    pub(super) length: Option<u64>,
}

/// What a block is.
pub(super) enum Block {
    Request(Arc<RequestHead>),
    Trailers(HeaderMap),
    /// More than this server accepts (status 431).
    TooLong,
    /// Against the rules: an error of its stream.
    Malformed,
}

/// Reads the blocks of a connection, in order.
pub(super) struct Heads {
    decoder: Decoder,
    /// The last request's block, and what it meant at that state of the decoder's table.
    last: Option<(Box<[u8]>, u64, Arc<RequestHead>)>,
    fields: Vec<Field>,
}

/// The decoder's table, in bytes: the protocol's initial value, which is never raised.
const TABLE: usize = 4096;
/// The longest block that is remembered, in bytes.
const REMEMBERED: usize = 1024;

impl Heads {
    /// Accepts heads of at most so many bytes.
    pub(super) fn new(most: usize) -> Heads {
        Heads {
            decoder: Decoder::new(TABLE, most),
            last: None,
            fields: Vec::new(),
        }
    }

    /// Reads the block of a request.
    pub(super) fn request(&mut self, block: &[u8]) -> Result<Block, HpackError> {
        let before = self.decoder.changes();
        if let Some((known, at, head)) = &self.last
            && *at == before
            && **known == *block
        {
            return Ok(Block::Request(Arc::clone(head)));
        }
        let read = self.read(block, request)?;
        if let Block::Request(head) = &read
            && block.len() <= REMEMBERED
            && self.decoder.changes() == before
        {
            self.last = Some((block.into(), before, Arc::clone(head)));
        }
        Ok(read)
    }

    /// Reads the block after a request's body.
    pub(super) fn trailers(&mut self, block: &[u8]) -> Result<Block, HpackError> {
        self.read(block, trailers)
    }

    fn read(
        &mut self,
        block: &[u8],
        made: fn(&mut Vec<Field>) -> Option<Block>,
    ) -> Result<Block, HpackError> {
        self.fields.clear();
        let decoded = self.decoder.decode(block, &mut self.fields)?;
        Ok(match decoded {
            Decoded::Whole => made(&mut self.fields).unwrap_or(Block::Malformed),
            Decoded::TooLong => Block::TooLong,
            Decoded::Malformed => Block::Malformed,
        })
    }
}

/// The pseudo-headers of a request, each at most once.
#[derive(Default)]
struct Pseudo {
    method: Option<HeaderValue>,
    scheme: Option<HeaderValue>,
    path: Option<HeaderValue>,
    authority: Option<HeaderValue>,
}

impl Pseudo {
    /// `None` if it is not one of a request, or comes twice.
    fn take(&mut self, name: &Name, value: HeaderValue) -> Option<()> {
        let place = match name {
            Name::Method => &mut self.method,
            Name::Scheme => &mut self.scheme,
            Name::Path => &mut self.path,
            Name::Authority => &mut self.authority,
            Name::Status | Name::Protocol | Name::Header(_) => return None,
        };
        place.replace(value).is_none().then_some(())
    }

    fn uri(&self) -> Option<Uri> {
        let path = self.path.as_ref().filter(|path| !path.is_empty())?;
        let mut parts = Parts::default();
        parts.path_and_query = Some(PathAndQuery::try_from(path.as_bytes()).ok()?);
        let scheme = Scheme::try_from(self.scheme.as_ref()?.as_bytes()).ok()?;
        if let Some(authority) = &self.authority {
            // A URI has both or neither.
            parts.authority = Some(Authority::try_from(authority.as_bytes()).ok()?);
            parts.scheme = Some(scheme);
        }
        Uri::from_parts(parts).ok()
    }
}

fn request(fields: &mut Vec<Field>) -> Option<Block> {
    let mut pseudo = Pseudo::default();
    let mut headers = HeaderMap::with_capacity(fields.len());
    for Field { name, value } in fields.drain(..) {
        match name {
            Name::Header(name) if is_allowed(&name, &value) => {
                headers.append(name, value);
            }
            Name::Header(_) => return None,
            // All of them come first.
            _ if !headers.is_empty() => return None,
            name => pseudo.take(&name, value)?,
        }
    }
    join_cookies(&mut headers);
    let method = Method::from_bytes(pseudo.method.as_ref()?.as_bytes()).ok()?;
    let uri = pseudo.uri()?;
    let length = match headers.get(header::CONTENT_LENGTH) {
        Some(length) => Some(length.to_str().ok()?.parse().ok()?),
        None => None,
    };
    Some(Block::Request(Arc::new(RequestHead {
        method,
        uri,
        headers,
        length,
    })))
}

fn trailers(fields: &mut Vec<Field>) -> Option<Block> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for Field { name, value } in fields.drain(..) {
        match name {
            Name::Header(name) if is_allowed(&name, &value) => headers.append(name, value),
            _ => return None,
        };
    }
    Some(Block::Trailers(headers))
}

/// Whether HTTP/2 has this header: none that concerns a single connection (RFC 9113, section 8.2.2).
fn is_allowed(name: &http::HeaderName, value: &HeaderValue) -> bool {
    match *name {
        header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE => false,
        header::TE => value == "trailers",
        _ => !matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}

/// A client may send each cookie in a field of its own (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies = headers.get_all(header::COOKIE);
    if cookies.iter().nth(1).is_none() {
        return;
    }
    let all: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&'static str, &'static str)]) -> Option<Block> {
        let mut fields = fields
            .iter()
            .map(|(name, value)| Field {
                name: match *name {
                    ":method" => Name::Method,
                    ":path" => Name::Path,
                    ":scheme" => Name::Scheme,
                    ":authority" => Name::Authority,
                    ":status" => Name::Status,
                    other => Name::Header(http::HeaderName::from_static(other)),
                },
                value: HeaderValue::from_static(value),
            })
            .collect();
        request(&mut fields)
    }

    const BASE: [(&str, &str); 4] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/etcdserverpb.KV/Put"),
        (":authority", "127.0.0.1:2379"),
    ];

    #[test]
    fn a_request_has_a_method_a_uri_and_headers() {
        let fields = [&BASE[..], &[("te", "trailers"), ("content-length", "7")]].concat();
        let Some(Block::Request(head)) = read(&fields) else {
            panic!("it is refused");
        };
        assert_eq!((head.method.as_str(), head.length), ("POST", Some(7)));
        assert_eq!(head.uri, "http://127.0.0.1:2379/etcdserverpb.KV/Put");
        assert_eq!(head.headers["te"], "trailers");
        assert!(read(&BASE[..3]).is_some(), "the authority may be missing");
    }

    #[test]
    fn what_the_protocol_forbids_is_malformed() {
        let with = |more: &[(&'static str, &'static str)]| [&BASE[..], more].concat();
        for fields in [
            with(&[(":path", "/twice")]),
            with(&[(":status", "200")]),
            with(&[("te", "gzip")]),
            with(&[("connection", "close")]),
            with(&[("upgrade", "websocket")]),
            with(&[("transfer-encoding", "chunked")]),
            with(&[("keep-alive", "1")]),
            with(&[("proxy-connection", "close")]),
            with(&[("content-length", "many")]),
            vec![BASE[0], BASE[1], BASE[3]],
            vec![BASE[1], BASE[2], BASE[3]],
            vec![BASE[0], BASE[2], BASE[3]],
            vec![BASE[0], BASE[1], (":path", "")],
            vec![BASE[0], ("a", "header"), BASE[1], BASE[2]],
        ] {
            assert!(read(&fields).is_none(), "{fields:?}");
        }
    }

    #[test]
    fn cookies_become_one_header() {
        let fields = [&BASE[..], &[("cookie", "a=1"), ("cookie", "b=2")]].concat();
        let Some(Block::Request(head)) = read(&fields) else {
            panic!("it is refused");
        };
        assert_eq!(head.headers["cookie"], "a=1; b=2");
    }
}
