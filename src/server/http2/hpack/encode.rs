//! Encodes fields of ours without a state: no table to keep in step, so that a block can be made anywhere, and once for
//! all connections. Never uses the client's table, and never Huffman's code: a response has few fields, and short ones.

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The index of `:status` in the static table.
const STATUS: usize = 8;

/// Says at the beginning of a block how large the table is from there on: 0 to a client that offers one, as it is not
/// used (RFC 7541, 4.2).
pub(in crate::server::http2) fn put_size_update(out: &mut BytesMut, bytes: usize) {
    put_integer(out, 0x20, 5, bytes);
}

/// `:status`, which begins the fields of a response.
pub(in crate::server::http2) fn put_status(out: &mut BytesMut, status: StatusCode) {
    let whole = match status.as_u16() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            put_integer(out, 0x00, 4, STATUS);
            put_string(out, status.as_str().as_bytes());
            return;
        }
    };
    put_integer(out, 0x80, 7, whole);
}

/// One field: of no table, and by no proxy either if its value is sensitive (RFC 7541, 6.2.3).
pub(in crate::server::http2) fn put_field(
    out: &mut BytesMut,
    name: &HeaderName,
    value: &HeaderValue,
) {
    let kind = if value.is_sensitive() { 0x10 } else { 0x00 };
    let name = name.as_str();
    let index = static_name(name).unwrap_or(0);
    put_integer(out, kind, 4, index);
    if index == 0 {
        put_string(out, name.as_bytes());
    }
    put_string(out, value.as_bytes());
}

/// All of them, in the order of the map.
pub(in crate::server::http2) fn put_fields(out: &mut BytesMut, fields: &HeaderMap) {
    for (name, value) in fields {
        put_field(out, name, value);
    }
}

fn put_string(out: &mut BytesMut, string: &[u8]) {
    put_integer(out, 0x00, 7, string.len());
    out.put_slice(string);
}

/// One that begins in the last bits of a byte, whose first bits are `kind` (RFC 7541, 5.1).
fn put_integer(out: &mut BytesMut, kind: u8, prefix: u32, value: usize) {
    let most = (1 << prefix) - 1;
    if value < most {
        out.put_u8(kind | value as u8);
        return;
    }
    out.put_u8(kind | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.put_u8(left as u8 | 0x80);
        left >>= 7;
    }
    out.put_u8(left as u8);
}

/// The index of a header's name in the static table; a test compares them.
fn static_name(name: &str) -> Option<usize> {
    Some(match name {
        "accept-charset" => 15,
        "accept-encoding" => 16,
        "accept-language" => 17,
        "accept-ranges" => 18,
        "accept" => 19,
        "access-control-allow-origin" => 20,
        "age" => 21,
        "allow" => 22,
        "authorization" => 23,
        "cache-control" => 24,
        "content-disposition" => 25,
        "content-encoding" => 26,
        "content-language" => 27,
        "content-length" => 28,
        "content-location" => 29,
        "content-range" => 30,
        "content-type" => 31,
        "cookie" => 32,
        "date" => 33,
        "etag" => 34,
        "expect" => 35,
        "expires" => 36,
        "from" => 37,
        "host" => 38,
        "if-match" => 39,
        "if-modified-since" => 40,
        "if-none-match" => 41,
        "if-range" => 42,
        "if-unmodified-since" => 43,
        "last-modified" => 44,
        "link" => 45,
        "location" => 46,
        "max-forwards" => 47,
        "proxy-authenticate" => 48,
        "proxy-authorization" => 49,
        "range" => 50,
        "referer" => 51,
        "refresh" => 52,
        "retry-after" => 53,
        "server" => 54,
        "set-cookie" => 55,
        "strict-transport-security" => 56,
        "transfer-encoding" => 57,
        "user-agent" => 58,
        "vary" => 59,
        "via" => 60,
        "www-authenticate" => 61,
        _ => return None,
    })
}
