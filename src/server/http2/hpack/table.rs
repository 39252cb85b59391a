//! The two tables of HPACK's indices: the static one (RFC 7541, Appendix A), and the dynamic one of a connection, which
//! holds the fields that the client let it keep, within a size. Never decodes.

use std::collections::VecDeque;

use http::{HeaderName, HeaderValue};

use super::{Field, Name};

/// What RFC 7541 (4.1) and RFC 9113 (6.5.2) add to the bytes of a field's name and value.
const OVERHEAD: usize = 32;

/// A field in a table, or one that came.
#[derive(Clone)]
pub(super) struct Entry {
    /// `None` if HTTP/2 forbids it: a malformed request's field is in the table as well.
    pub(super) name: Option<Name>,
    /// As `name`.
    pub(super) value: Option<HeaderValue>,
    pub(super) name_bytes: usize,
    pub(super) value_bytes: usize,
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        self.name_bytes + self.value_bytes + OVERHEAD
    }

    pub(super) fn into_field(self) -> Option<Field> {
        let (name, value) = (self.name?, self.value?);
        Some(Field { name, value })
    }
}

/// Both tables of one direction of a connection, under one range of indices.
pub(super) struct Table {
    /// The newest is the first.
    entries: VecDeque<Entry>,
    bytes: usize,
    most_bytes: usize,
    changes: u64,
}

impl Table {
    pub(super) fn new(most_bytes: usize) -> Table {
        Table {
            entries: VecDeque::new(),
            bytes: 0,
            most_bytes,
            changes: 0,
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        match index.checked_sub(1)? {
            place if place < STATIC.len() => Some(&STATIC[place]),
            place => self.entries.get(place - STATIC.len()),
        }
    }

    /// One that is larger than the table empties it (RFC 7541, 4.4).
    pub(super) fn insert(&mut self, entry: Entry) {
        self.changes += 1;
        let bytes = entry.bytes();
        self.evict(self.most_bytes.saturating_sub(bytes));
        if bytes <= self.most_bytes {
            self.bytes += bytes;
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, most_bytes: usize) {
        self.changes += 1;
        self.most_bytes = most_bytes;
        self.evict(most_bytes);
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn evict(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes {
            let Some(oldest) = self.entries.pop_back() else {
                break;
            };
            self.bytes -= oldest.bytes();
        }
    }

    /// The bytes of the dynamic entries, and how many they are.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let sum: usize = self.entries.iter().map(Entry::bytes).sum();
        assert_eq!(self.bytes, sum);
        (sum, self.entries.len())
    }
}

const fn entry(name: Name, name_bytes: usize, value: &'static str) -> Entry {
    Entry {
        name: Some(name),
        value: Some(HeaderValue::from_static(value)),
        name_bytes,
        value_bytes: value.len(),
    }
}

const fn header(name: &'static str, value: &'static str) -> Entry {
    let header = Name::Header(HeaderName::from_static(name));
    entry(header, name.len(), value)
}

const METHOD: usize = ":method".len();
const PATH: usize = ":path".len();
const SCHEME: usize = ":scheme".len();
const STATUS: usize = ":status".len();

/// Index 1 is the first.
pub(super) static STATIC: [Entry; 61] = [
    entry(Name::Authority, ":authority".len(), ""),
    entry(Name::Method, METHOD, "GET"),
    entry(Name::Method, METHOD, "POST"),
    entry(Name::Path, PATH, "/"),
    entry(Name::Path, PATH, "/index.html"),
    entry(Name::Scheme, SCHEME, "http"),
    entry(Name::Scheme, SCHEME, "https"),
    entry(Name::Status, STATUS, "200"),
    entry(Name::Status, STATUS, "204"),
    entry(Name::Status, STATUS, "206"),
    entry(Name::Status, STATUS, "304"),
    entry(Name::Status, STATUS, "400"),
    entry(Name::Status, STATUS, "404"),
    entry(Name::Status, STATUS, "500"),
    header("accept-charset", ""),
    header("accept-encoding", "gzip, deflate"),
    header("accept-language", ""),
    header("accept-ranges", ""),
    header("accept", ""),
    header("access-control-allow-origin", ""),
    header("age", ""),
    header("allow", ""),
    header("authorization", ""),
    header("cache-control", ""),
    header("content-disposition", ""),
    header("content-encoding", ""),
    header("content-language", ""),
    header("content-length", ""),
    header("content-location", ""),
    header("content-range", ""),
    header("content-type", ""),
    header("cookie", ""),
    header("date", ""),
    header("etag", ""),
    header("expect", ""),
    header("expires", ""),
    header("from", ""),
    header("host", ""),
    header("if-match", ""),
    header("if-modified-since", ""),
    header("if-none-match", ""),
    header("if-range", ""),
    header("if-unmodified-since", ""),
    header("last-modified", ""),
    header("link", ""),
    header("location", ""),
    header("max-forwards", ""),
    header("proxy-authenticate", ""),
    header("proxy-authorization", ""),
    header("range", ""),
    header("referer", ""),
    header("refresh", ""),
    header("retry-after", ""),
    header("server", ""),
    header("set-cookie", ""),
    header("strict-transport-security", ""),
    header("transfer-encoding", ""),
    header("user-agent", ""),
    header("vary", ""),
    header("via", ""),
    header("www-authenticate", ""),
];
