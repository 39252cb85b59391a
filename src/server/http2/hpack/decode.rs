//! Decodes a client's blocks of fields with the table that they share. Never looks at which fields are there, and never
//! keeps more than the table, whose size is bounded.

use http::{HeaderName, HeaderValue};

use super::table::{Entry, Table};
use super::{Field, HpackError, Name, huffman};

/// The size that a table begins with, whatever the settings say: the client may write before it has read them, and
/// changes the size by an update in a block (RFC 7541, 4.2).
const FIRST_TABLE_BYTES: usize = 4096;
/// The room for decoded strings that a connection keeps between blocks.
pub(super) const KEPT_BYTES: usize = 1024;

/// What has come of a block that could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server::http2) enum Decoded {
    /// Its fields.
    Whole,
    /// More bytes than a list may have, counted as RFC 9113 (6.5.2) does; no fields.
    TooLong,
    /// A name or a value that HTTP/2 forbids (RFC 9113, 8.2.1), which is an error of the stream; no fields.
    Malformed,
}

/// Decodes the blocks of a connection, in the order in which they came, and every one of them.
pub(in crate::server::http2) struct Decoder {
    pub(super) table: Table,
    most_table_bytes: usize,
    most_list_bytes: usize,
    pub(super) strings: Strings,
}

/// Room for the decoded name and value of a field.
#[derive(Default)]
pub(super) struct Strings {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Strings {
    fn shrink(&mut self) {
        for room in [&mut self.name, &mut self.value] {
            room.clear();
            room.shrink_to(KEPT_BYTES);
        }
    }
}

impl Decoder {
    /// `most_table_bytes` is SETTINGS_HEADER_TABLE_SIZE, `most_list_bytes` SETTINGS_MAX_HEADER_LIST_SIZE.
    pub(in crate::server::http2) fn new(
        most_table_bytes: usize,
        most_list_bytes: usize,
    ) -> Decoder {
        Decoder {
            table: Table::new(FIRST_TABLE_BYTES),
            most_table_bytes,
            most_list_bytes,
            strings: Strings::default(),
        }
    }

    /// Appends the fields of a whole block, of its HEADERS and CONTINUATION frames. Whatever comes of it except an
    /// error, the table is that of the client.
    ///
    /// # Errors
    ///
    /// COMPRESSION_ERROR, after which no other block can be decoded.
    pub(in crate::server::http2) fn decode(
        &mut self,
        block: &[u8],
        fields: &mut Vec<Field>,
    ) -> Result<Decoded, HpackError> {
        let before = fields.len();
        let mut block = Block { left: block };
        self.update_sizes(&mut block)?;
        let mut list = List {
            fields,
            left: Some(self.most_list_bytes),
            malformed: false,
        };
        while let Some(first) = block.peek() {
            self.field(first, &mut block, &mut list)?;
        }
        let decoded = list.outcome();
        if decoded != Decoded::Whole {
            fields.truncate(before);
        }
        self.strings.shrink();
        Ok(decoded)
    }

    /// How often the table has changed. If that is equal before and after a block, the same block again has the same
    /// fields.
    pub(in crate::server::http2) fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// More than the two that RFC 7541 (4.2) asks for do no harm.
    fn update_sizes(&mut self, block: &mut Block<'_>) -> Result<(), HpackError> {
        while block.peek().is_some_and(|first| first & 0xe0 == 0x20) {
            let bytes = block.integer(5)?;
            if bytes > self.most_table_bytes {
                return Err(HpackError::TableSize);
            }
            self.table.resize(bytes);
        }
        Ok(())
    }

    /// By its first byte (RFC 7541, 6).
    fn field(
        &mut self,
        first: u8,
        block: &mut Block<'_>,
        list: &mut List<'_>,
    ) -> Result<(), HpackError> {
        match first {
            0x80.. => {
                let index = block.integer(7)?;
                let entry = self.table.get(index).ok_or(HpackError::Index)?;
                list.add(entry.clone());
            }
            0x40..0x80 => {
                let entry = self.literal(6, block)?;
                list.add(entry.clone());
                self.table.insert(entry);
            }
            0x20..0x40 => return Err(HpackError::LateTableSize),
            0x10..0x20 => {
                let mut entry = self.literal(4, block)?;
                if let Some(value) = &mut entry.value {
                    value.set_sensitive(true);
                }
                list.add(entry);
            }
            0x00..0x10 => list.add(self.literal(4, block)?),
        }
        Ok(())
    }

    fn literal(&mut self, prefix: u32, block: &mut Block<'_>) -> Result<Entry, HpackError> {
        let (name, name_bytes) = match block.integer(prefix)? {
            0 => {
                let name = block.string(&mut self.strings.name)?;
                (name_of(name), name.len())
            }
            index => {
                let named = self.table.get(index).ok_or(HpackError::Index)?;
                (named.name.clone(), named.name_bytes)
            }
        };
        let value = block.string(&mut self.strings.value)?;
        Ok(Entry {
            name,
            name_bytes,
            // RFC 9113 forbids spaces around it; they pass, as gRPC's metadata may have them and etcd takes them.
            value: HeaderValue::from_bytes(value).ok(),
            value_bytes: value.len(),
        })
    }
}

fn name_of(name: &[u8]) -> Option<Name> {
    Some(match name {
        [b':', own @ ..] => match own {
            b"authority" => Name::Authority,
            b"method" => Name::Method,
            b"path" => Name::Path,
            b"scheme" => Name::Scheme,
            b"protocol" => Name::Protocol,
            b"status" => Name::Status,
            _ => return None,
        },
        header => Name::Header(HeaderName::from_lowercase(header).ok()?),
    })
}

/// The fields of a block, as far as a list may have them.
struct List<'a> {
    fields: &'a mut Vec<Field>,
    /// The bytes that it may still have; `None` once it has too many.
    left: Option<usize>,
    malformed: bool,
}

impl List<'_> {
    fn add(&mut self, entry: Entry) {
        self.left = self.left.and_then(|left| left.checked_sub(entry.bytes()));
        match entry.into_field() {
            None => self.malformed = true,
            Some(field) if self.left.is_some() => self.fields.push(field),
            Some(_) => {}
        }
    }

    fn outcome(&self) -> Decoded {
        match self.left {
            _ if self.malformed => Decoded::Malformed,
            None => Decoded::TooLong,
            Some(_) => Decoded::Whole,
        }
    }
}

/// What is left of a block.
struct Block<'a> {
    left: &'a [u8],
}

impl<'a> Block<'a> {
    fn peek(&self) -> Option<u8> {
        self.left.first().copied()
    }

    fn byte(&mut self) -> Result<u8, HpackError> {
        let (first, left) = self.left.split_first().ok_or(HpackError::Truncated)?;
        self.left = left;
        Ok(*first)
    }

    /// One that begins in the last bits of a byte (RFC 7541, 5.1).
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        // Beyond 28 bits is no index, no string that is taken, and no size of a table.
        const MOST_MORE_BYTES: u32 = 4;
        let most = (1 << prefix) - 1;
        let first = usize::from(self.byte()?) & most;
        if first < most {
            return Ok(first);
        }
        let mut value = most;
        for place in 0..MOST_MORE_BYTES {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HpackError::Integer)
    }

    /// One that is plain is not copied (RFC 7541, 5.2).
    fn string<'s>(&mut self, room: &'s mut Vec<u8>) -> Result<&'s [u8], HpackError>
    where
        'a: 's,
    {
        let coded = self.peek().is_some_and(|first| first & 0x80 != 0);
        let bytes = self.integer(7)?;
        let (string, left) = self
            .left
            .split_at_checked(bytes)
            .ok_or(HpackError::Truncated)?;
        self.left = left;
        if !coded {
            return Ok(string);
        }
        room.clear();
        huffman::decode(string, room)?;
        Ok(room)
    }
}
