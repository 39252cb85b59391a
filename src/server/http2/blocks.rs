//! The header blocks of responses. Two of them make up nearly all of what gRPC sends, the head of a success and its
//! trailers: each is one entry of the client's table and one byte from the second response on. Everything else is
//! sent without that table. Pure.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::hpack::{put_fields, put_size_update, put_status};

/// The size of a table on which a client has not remarked, in bytes: room for two entries.
const TABLE: u32 = 4096;
/// The first index of the dynamic table (RFC 7541, section 2.3.3).
const DYNAMIC: u8 = 62;
/// `:status: 200`, by its index.
const OK: u8 = 0x88;
/// A field by its index.
const INDEXED: u8 = 0x80;
/// A field that becomes an entry of the table.
const INSERTED: u8 = 0x40;
/// The index of `content-type` in the static table.
const CONTENT_TYPE: u8 = 31;

const GRPC: &str = "application/grpc";
const GRPC_STATUS: &str = "grpc-status";

/// Writes blocks for one client, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The entries of the client's table that this server made: the places, from the first, of the head and the trailers.
    entries: u8,
    head: Option<u8>,
    trailers: Option<u8>,
    /// The client's table may be too small: it is emptied with the next block, and not used any more.
    plain: Option<Emptied>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    Due,
    Done,
}

impl Blocks {
    /// The client's setting for its table.
    pub(super) fn table_size(&mut self, bytes: u32) {
        if bytes < TABLE {
            self.plain = Some(Emptied::Due);
        }
    }

    /// The block before the body of a response.
    pub(super) fn head(&mut self, out: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
        self.empty_if_due(out);
        let known = status == StatusCode::OK && is_only(headers, &header::CONTENT_TYPE, GRPC);
        if !known || self.plain.is_some() {
            put_status(out, status);
            put_fields(out, headers);
            return;
        }
        out.put_u8(OK);
        match self.head {
            Some(entry) => out.put_u8(INDEXED | self.index(entry)),
            None => {
                out.put_u8(INSERTED | CONTENT_TYPE);
                put_text(out, GRPC);
                self.head = Some(self.inserted());
            }
        }
    }

    /// The block after the body.
    pub(super) fn trailers(&mut self, out: &mut BytesMut, trailers: &HeaderMap) {
        self.empty_if_due(out);
        let status = header::HeaderName::from_static(GRPC_STATUS);
        if !is_only(trailers, &status, "0") || self.plain.is_some() {
            put_fields(out, trailers);
            return;
        }
        match self.trailers {
            Some(entry) => out.put_u8(INDEXED | self.index(entry)),
            None => {
                out.put_u8(INSERTED);
                put_text(out, GRPC_STATUS);
                put_text(out, "0");
                self.trailers = Some(self.inserted());
            }
        }
    }

    /// The client's table may be used no more: it is emptied at the beginning of the first block from then on.
    fn empty_if_due(&mut self, out: &mut BytesMut) {
        if self.plain == Some(Emptied::Due) {
            put_size_update(out, 0);
            self.plain = Some(Emptied::Done);
        }
    }

    fn inserted(&mut self) -> u8 {
        self.entries += 1;
        self.entries
    }

    /// The newest entry has the lowest index.
    fn index(&self, entry: u8) -> u8 {
        DYNAMIC + self.entries - entry
    }
}

fn is_only(headers: &HeaderMap, name: &header::HeaderName, value: &str) -> bool {
    headers.len() == 1
        && headers
            .get(name)
            .map(HeaderValue::as_bytes)
            .is_some_and(|found| found == value.as_bytes())
}

/// A string of less than 127 bytes, as it is.
fn put_text(out: &mut BytesMut, text: &str) {
    out.put_u8(u8::try_from(text.len()).unwrap_or_default());
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::hpack::{Decoder, Field, Name};
    use super::*;

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        decoder.decode(block, &mut fields).expect("a block");
        let text = |Field { name, value }| {
            let name = match name {
                Name::Header(name) => name.to_string(),
                other => format!("{other:?}"),
            };
            (name, value.to_str().expect("text").to_owned())
        };
        fields.into_iter().map(text).collect()
    }

    fn map(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )])
    }

    /// What a client reads of three responses, of which the second one fails.
    fn conversation(blocks: &mut Blocks) -> Vec<usize> {
        let mut decoder = Decoder::new(4096, 1 << 14);
        let mut lengths = Vec::new();
        let grpc = map("content-type", GRPC);
        for status in ["0", "14", "0"] {
            let mut out = BytesMut::new();
            blocks.head(&mut out, StatusCode::OK, &grpc);
            let expected = [("Status", "200"), ("content-type", GRPC)];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(fields(&mut decoder, &out), expected);
            lengths.push(out.len());
            out.clear();
            blocks.trailers(&mut out, &map(GRPC_STATUS, status));
            let expected = [(GRPC_STATUS.to_owned(), status.to_owned())];
            assert_eq!(fields(&mut decoder, &out), expected);
            lengths.push(out.len());
        }
        lengths
    }

    #[test]
    fn success_is_three_bytes_from_the_second_on() {
        let lengths = conversation(&mut Blocks::default());
        assert_eq!(lengths, [19, 15, 2, 16, 2, 1]);
    }

    #[test]
    fn a_small_table_is_not_used() {
        let mut blocks = Blocks::default();
        let mut out = BytesMut::new();
        blocks.head(&mut out, StatusCode::OK, &map("content-type", GRPC));
        blocks.table_size(100);
        out.clear();
        blocks.trailers(&mut out, &map(GRPC_STATUS, "0"));
        assert_eq!(out[0], 0x20, "the table is emptied first");
        blocks.table_size(4096);
        conversation(&mut blocks);
    }
}
