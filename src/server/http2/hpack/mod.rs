//! HPACK (RFC 7541): what a client's block of fields says, and blocks of our own. Never reads or writes a socket, never
//! judges a request: which fields one needs, and in which order, is known above.
//!
//! Names and values become typed here, once: a field that the table keeps is a count of references from then on.

mod decode;
mod encode;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

use http::{HeaderName, HeaderValue};

pub(in crate::server::http2) use decode::{Decoded, Decoder};
pub(in crate::server::http2) use encode::{put_fields, put_size_update, put_status};

/// The name of a field: HTTP/2's own (RFC 9113, 8.3; `:protocol` is RFC 8441's), or a header's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server::http2) enum Name {
    Authority,
    Method,
    Path,
    Scheme,
    Protocol,
    Status,
    Header(HeaderName),
}

/// A line of a list of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server::http2) struct Field {
    pub(in crate::server::http2) name: Name,
    pub(in crate::server::http2) value: HeaderValue,
}

/// Why a block cannot be decoded. The two tables would differ from then on, so it ends the connection with
/// COMPRESSION_ERROR (RFC 9113, 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server::http2) enum HpackError {
    /// It ends within a field.
    #[error("a block of fields ends within a field")]
    Truncated,
    /// Of neither table.
    #[error("an index that no entry of the tables has")]
    Index,
    /// Of more bytes than any that is meant.
    #[error("an integer of too many bytes")]
    Integer,
    /// Of a code that is not complete, is padded wrongly, or holds the end of a string.
    #[error("a string that is not in Huffman's code")]
    Huffman,
    /// Beyond what our settings allow.
    #[error("a table larger than the settings allow")]
    TableSize,
    /// After a field.
    #[error("a size of the table that does not begin its block")]
    LateTableSize,
}
