//! An object of an archive as bytes and back. Pure.
//!
//! A head for people to read (JSON, with its SHA-256 and, of an encrypted one, its signature, as a manifest has them), then
//! the entries: compressed, encrypted with the user's key, with their SHA-256 in the head.

use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::names::{Range, folder};
use crate::backup::cipher::{AttemptKeys, Key};
use crate::backup::manifest::{CIPHER, Encryption, Part, keys_of, open, seal};
use crate::backup::{Error, part};
use crate::snapshot::replay::Entry;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// What an object begins with; the length of the head follows in four bytes.
const MAGIC: &[u8; 8] = b"quorate\n";
/// Bytes in front of the head.
const FRONT: usize = MAGIC.len() + 4;
/// Longest head with what is in front of it, in bytes.
pub(super) const MOST_HEAD: usize = 64 << 10;
/// Marks in a head at most.
const MOST_MARKS: usize = 256;
/// The only part.
const NUMBER: u32 = 1;

/// Entries of a log, with what is known of the time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    /// Term of the entry before the first one.
    pub term_before: u64,
    /// In order, without a hole, at least one.
    pub entries: Vec<Entry>,
    /// In order of the index.
    pub marks: Vec<Mark>,
}

/// What is known of an entry's time, by an archiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// The entry: one of the object's, or the one before them.
    pub index: u64,
    /// It was committed by then, in Unix milliseconds.
    pub known_ms: i64,
    /// Everything that was committed then is at or before it; absent if that is not known of any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_ms: Option<i64>,
}

/// The head of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    format: u32,
    cluster_id: String,
    first: u64,
    last: u64,
    term_before: u64,
    /// See [`Segment::marks`].
    pub marks: Vec<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encryption: Option<Encryption>,
    body: Part,
}

impl Segment {
    /// Its entries.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn range(&self) -> Result<Range, Error> {
        let ends = (self.entries.first()).zip(self.entries.last());
        let range = ends.and_then(|(first, last)| Range::new(first.index, last.index));
        range.ok_or_else(|| Error::Archive("no entries are to be stored".to_owned()))
    }

    /// The term at an index: of one of the entries, or of the one before them.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        let first = self.entries.first()?.index;
        if index + 1 == first {
            return Some(self.term_before);
        }
        let at = usize::try_from(index.checked_sub(first)?).ok()?;
        self.entries.get(at).map(|entry| entry.term)
    }

    /// Whether another one holds the same entries behind the same one, whatever it knows of the time.
    pub(super) fn holds_the_same(&self, other: &Segment) -> bool {
        self.term_before == other.term_before && self.entries == other.entries
    }

    /// The object. `key` with 32 random bytes encrypts it.
    pub(super) fn encode(
        &self,
        cluster_id: u64,
        key: Option<(&Key, [u8; 32])>,
    ) -> Result<Vec<u8>, Error> {
        let range = self.range()?;
        let keys = key.map(|(key, salt)| key.of_attempt(&salt)).transpose()?;
        let mut body = Vec::new();
        for entry in &self.entries {
            // A vector grows, so encoding into it cannot fail.
            let _ = entry.encode_length_delimited(&mut body);
        }
        let (part, body) = part::pack(NUMBER, &body, keys.as_ref())?;
        let head = Head {
            format: FORMAT,
            cluster_id: folder(cluster_id),
            first: range.first,
            last: range.last,
            term_before: self.term_before,
            marks: thinned(&self.marks),
            encryption: key.map(|(key, salt)| Encryption {
                cipher: CIPHER.to_owned(),
                key_id: key.id().to_owned(),
                salt: BASE64_STANDARD.encode(salt),
            }),
            body: part,
        };
        let sign = |text: &[u8]| keys.as_ref().map(|keys| keys.sign(text));
        let head = seal(&range.name(), &head, sign)?;
        let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
        let mut object = MAGIC.to_vec();
        object.extend_from_slice(&length.to_be_bytes());
        object.extend_from_slice(&head);
        object.extend_from_slice(&body);
        Ok(object)
    }

    /// Reads an object, which was found under a name.
    ///
    /// # Errors
    /// [`Error::Archive`] if it is not what was stored, [`Error::Key`] if the keys do not fit.
    pub(super) fn decode(
        (cluster_id, range): (u64, Range),
        object: &[u8],
        keys: &[Key],
    ) -> Result<Segment, Error> {
        let (head, keys, end) = read_head((cluster_id, range), object, keys)?;
        let broken = |what: String| damaged(cluster_id, range, &what);
        let body = object.get(end..).unwrap_or_default().to_vec();
        let body = part::unpack(NUMBER, &head.body, body, keys.as_ref());
        let mut body = bytes::Bytes::from(body.map_err(broken)?);
        let mut entries: Vec<Entry> = Vec::new();
        let (mut index, mut term) = (range.first, head.term_before);
        while !body.is_empty() {
            let entry = Entry::decode_length_delimited(&mut body);
            let entry = entry.map_err(|error| broken(error.to_string()))?;
            if entry.index != index || entry.term < term {
                let (found, of) = (entry.index, entry.term);
                return Err(broken(format!(
                    "entry {found} of term {of} is in the place of entry {index}, behind term {term}"
                )));
            }
            (index, term) = (index + 1, entry.term);
            entries.push(entry);
        }
        if index != range.last + 1 {
            return Err(broken(format!("it ends before entry {index}")));
        }
        Ok(Segment {
            term_before: head.term_before,
            entries,
            marks: head.marks,
        })
    }
}

/// The head of an object, of which the first [`MOST_HEAD`] bytes are enough.
///
/// # Errors
/// As [`Segment::decode`].
pub(super) fn head(place: (u64, Range), object: &[u8], keys: &[Key]) -> Result<Head, Error> {
    read_head(place, object, keys).map(|(head, _, _)| head)
}

/// The head, its keys, and where it ends.
fn read_head(
    (cluster_id, range): (u64, Range),
    object: &[u8],
    keys: &[Key],
) -> Result<(Head, Option<AttemptKeys>, usize), Error> {
    let broken = |what: &str| damaged(cluster_id, range, what);
    let cut = || broken("its head is cut off or damaged");
    let front = object.strip_prefix(MAGIC).ok_or_else(cut)?;
    let length = front.first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?;
    if length > MOST_HEAD - FRONT {
        return Err(cut());
    }
    let end = FRONT + length;
    let text = object.get(FRONT..end).ok_or_else(cut)?;
    let (text, signature) = open("", text).map_err(|_| cut())?;
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable = |error: serde_json::Error| broken(&error.to_string());
    let Format { format } = serde_json::from_slice(text).map_err(unreadable)?;
    if format != FORMAT {
        return Err(Error::Unclear {
            id: name(cluster_id, range),
            what: format!(
                "its format is {format} and this version reads {FORMAT}: use a newer quorate"
            ),
        });
    }
    let head: Head = serde_json::from_slice(text).map_err(unreadable)?;
    let named = (folder(cluster_id), range.first, range.last);
    if (head.cluster_id.clone(), head.first, head.last) != named {
        return Err(broken(&format!(
            "it holds entries {} to {} of the cluster {}",
            head.first, head.last, head.cluster_id
        )));
    }
    let known = keys_of(&name(cluster_id, range), head.encryption.as_ref(), keys)?;
    let signed = match (&known, signature) {
        (None, _) => true,
        (Some(keys), Some(signature)) => keys.signed(text, signature),
        (Some(_), None) => false,
    };
    match signed {
        true => Ok((head, known, end)),
        false => Err(broken("it was changed by somebody without the key")),
    }
}

/// Marks that fit: every second one goes, but never the last.
fn thinned(marks: &[Mark]) -> Vec<Mark> {
    let mut marks = marks.to_vec();
    while marks.len() > MOST_MARKS {
        let last = marks.len() - 1;
        let mut at = 0;
        marks.retain(|_| {
            at += 1;
            at % 2 == 0 || at > last
        });
    }
    marks
}

fn name(cluster_id: u64, range: Range) -> String {
    format!("archive/{}/{}", folder(cluster_id), range.name())
}

/// An object is not what was stored.
pub(super) fn damaged(cluster_id: u64, range: Range, what: &str) -> Error {
    let name = name(cluster_id, range);
    Error::Archive(format!(
        "{name} is not what was stored: {what}; a restore to a moment behind it needs a newer backup"
    ))
}
