//! The manifest of a backup, its text, and the names of a backup's objects. Pure.
//!
//! The text is JSON for people to read, with a line behind it for its SHA-256 and, of an encrypted backup, one for its
//! signature with the user's key: so a bit that flipped is told from a manifest that somebody changed.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cipher::{AttemptKeys, Key};
use super::{Error, sha256};

/// The folder beside the backups in which the archive of the log is.
pub const ARCHIVE: &str = "archive";

/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

/// The last word of a backup: what it holds, and of which objects it consists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The format of this text.
    pub format: u32,
    /// The backup's name.
    pub id: String,
    /// The folder of its parts.
    pub attempt: String,
    /// When the member was asked.
    pub started: Timestamp,
    /// When everything was stored.
    pub completed: Timestamp,
    /// What it is a snapshot of.
    pub source: Origin,
    /// What it holds.
    pub snapshot: Snapshot,
    /// Of an encrypted backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// In order; the numbers in their names begin at 1.
    pub parts: Vec<Part>,
}

/// The member that gave a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Its endpoint.
    pub endpoint: String,
    /// ID of its cluster, as etcdctl prints it.
    pub cluster_id: String,
    /// Its own ID.
    pub member_id: String,
    /// The level of etcd that it speaks.
    pub version: String,
}

/// What a snapshot holds, read from itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Length of the database in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// Revision of the store.
    pub revision: i64,
    /// Revision of the last compaction, -1 without one.
    pub compact_revision: i64,
    /// etcd's `HashKV` at the revision.
    pub hash: u32,
    /// Last applied index of the log.
    pub raft_index: u64,
    /// Its term.
    pub raft_term: u64,
    /// Keys.
    pub keys: u64,
    /// Leases.
    pub leases: u64,
    /// Users.
    pub users: u64,
    /// Roles.
    pub roles: u64,
}

/// How a backup is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// The only one: `AES-256-GCM`.
    pub cipher: String,
    /// Name of the user's key.
    pub key_id: String,
    /// Random bytes of this attempt, in base64.
    pub salt: String,
}

/// The only cipher.
pub const CIPHER: &str = "AES-256-GCM";

/// An object that is a part of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Bytes of the database.
    pub size: u64,
    /// Bytes of the object.
    pub stored: u64,
    /// SHA-256 of the object.
    pub sha256: String,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// SHA-256 of the manifest that was verified.
    pub manifest: String,
    /// When it ended.
    pub at: Timestamp,
    /// Seconds from the first byte fetched to a member that answers: the measured time of a recovery.
    pub seconds: f64,
    /// What kept the backup from being restored; nothing if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Manifest {
    /// The keys of its attempt; `None` if it is not encrypted.
    ///
    /// # Errors
    /// If none of these keys encrypted it, or if keys were given and it is not encrypted.
    pub(super) fn keys(&self, keys: &[Key]) -> Result<Option<AttemptKeys>, Error> {
        keys_of(
            &format!("the backup {}", self.id),
            self.encryption.as_ref(),
            keys,
        )
    }

    /// Its text.
    ///
    /// # Errors
    /// None that occurs: JSON can hold every manifest.
    pub(super) fn seal(&self, keys: Option<&AttemptKeys>) -> Result<Vec<u8>, Error> {
        let signature = |text: &[u8]| keys.map(|keys| keys.sign(text));
        seal(&self.id, self, signature)
    }

    /// Reads a text; its signature is checked by [`Manifest::authenticate`].
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what was written, or newer than this version.
    pub(super) fn open(id: &str, bytes: &[u8]) -> Result<Manifest, Error> {
        let text = open(id, bytes)?.0;
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let broken = |error: serde_json::Error| {
            Error::damaged(id, format!("its manifest cannot be read: {error}"))
        };
        let Format { format } = serde_json::from_slice(text).map_err(broken)?;
        if format != FORMAT {
            return Err(Error::Unclear {
                id: id.to_owned(),
                what: format!(
                    "its format is {format} and this version reads {FORMAT}: use a newer quorate"
                ),
            });
        }
        let manifest: Manifest = serde_json::from_slice(text).map_err(broken)?;
        if manifest.id != id {
            let what = format!("its manifest is that of {}", manifest.id);
            return Err(Error::damaged(id, what));
        }
        Ok(manifest)
    }

    /// Whether the text was signed with the user's key, if the backup is encrypted.
    ///
    /// # Errors
    /// [`Error::Damaged`] if not.
    pub(super) fn authenticate(
        id: &str,
        bytes: &[u8],
        keys: Option<&AttemptKeys>,
    ) -> Result<(), Error> {
        let (text, signature) = open(id, bytes)?;
        match (keys, signature) {
            (None, _) => Ok(()),
            (Some(keys), Some(signature)) if keys.signed(text, signature) => Ok(()),
            (Some(_), _) => Err(Error::damaged(
                id,
                "its manifest was changed by somebody without the key",
            )),
        }
    }
}

impl Verification {
    /// Its text, signed if the backup is encrypted.
    pub(super) fn seal(&self, id: &str, keys: Option<&AttemptKeys>) -> Result<Vec<u8>, Error> {
        seal(id, self, |text| keys.map(|keys| keys.sign(text)))
    }

    /// Reads a text; with keys, one that is signed.
    pub(super) fn open(
        id: &str,
        bytes: &[u8],
        keys: Option<&AttemptKeys>,
    ) -> Result<Verification, Error> {
        Manifest::authenticate(id, bytes, keys)?;
        let broken = |error: serde_json::Error| Error::damaged(id, error.to_string());
        serde_json::from_slice(open(id, bytes)?.0).map_err(broken)
    }
}

/// The keys with which something was encrypted; `None` if it is not encrypted.
///
/// # Errors
/// If none of these keys encrypted it, or if keys were given and it is not encrypted.
pub(super) fn keys_of(
    what: &str,
    encryption: Option<&Encryption>,
    keys: &[Key],
) -> Result<Option<AttemptKeys>, Error> {
    let Some(encryption) = encryption else {
        if keys.is_empty() {
            return Ok(None);
        }
        return Err(Error::Key(format!(
            "{what} is not encrypted although a key was given: whoever can write to the store can have made it; to use it anyway, leave the key out"
        )));
    };
    if encryption.cipher != CIPHER {
        return Err(Error::Key(format!(
            "the cipher {:?} of {what} is not known to this version",
            encryption.cipher
        )));
    }
    let key = keys.iter().find(|key| key.id() == encryption.key_id);
    let key = key.ok_or_else(|| {
        let given: Vec<&str> = keys.iter().map(Key::id).collect();
        let given = match given.is_empty() {
            true => "no key was given".to_owned(),
            false => format!("{} was given", given.join(", ")),
        };
        Error::Key(format!(
            "{what} is encrypted with the key {}, and {given}: give its file with --key-file",
            encryption.key_id
        ))
    })?;
    let salt = BASE64_STANDARD.decode(&encryption.salt);
    let salt = salt.map_err(|_| Error::damaged(what, "its salt is no base64"))?;
    key.of_attempt(&salt).map(Some)
}

const SUM: &str = "sha256 ";
const SIGNATURE: &str = "hmac-sha256 ";

/// A value as text, with the lines behind it.
pub(super) fn seal(
    id: &str,
    value: &impl Serialize,
    signature: impl Fn(&[u8]) -> Option<String>,
) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec_pretty(value);
    let mut text = text.map_err(|error| Error::damaged(id, error.to_string()))?;
    text.push(b'\n');
    let mut lines = format!("{SUM}{}\n", sha256(&text));
    if let Some(signature) = signature(&text) {
        lines += &format!("{SIGNATURE}{signature}\n");
    }
    text.extend_from_slice(lines.as_bytes());
    Ok(text)
}

/// A text whose sum is right, and its signature.
pub(super) fn open<'a>(id: &str, bytes: &'a [u8]) -> Result<(&'a [u8], Option<&'a str>), Error> {
    let damaged = || Error::damaged(id, "its manifest is cut off or damaged");
    let end = bytes
        .windows(3)
        .rposition(|window| window == b"\n}\n")
        .ok_or_else(damaged)?
        + 3;
    let (text, rest) = bytes.split_at(end);
    let rest = std::str::from_utf8(rest).map_err(|_| damaged())?;
    let rest = rest.strip_suffix('\n').ok_or_else(damaged)?;
    let mut lines = rest.split('\n');
    let sum = lines.next().and_then(|line| line.strip_prefix(SUM));
    if sum != Some(sha256(text).as_str()) {
        return Err(damaged());
    }
    let signature = match lines.next() {
        None => None,
        Some(line) => Some(line.strip_prefix(SIGNATURE).ok_or_else(damaged)?),
    };
    match lines.next() {
        None => Ok((text, signature)),
        Some(_) => Err(damaged()),
    }
}

/// Refuses a name that cannot be a folder of every store.
///
/// # Errors
/// [`Error::Usage`] with the rule.
pub fn check_id(id: &str) -> Result<(), Error> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=128).contains(&id.len()) && id.bytes().all(letter);
    if id == ARCHIVE {
        return Err(Error::Usage(format!(
            "{ARCHIVE:?} cannot be a backup's name: it is the folder of the archive"
        )));
    }
    match fits && !id.starts_with('.') {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "{id:?} cannot be a backup's name: 1 to 128 letters, digits, '-', '_' and '.', not beginning with '.'"
        ))),
    }
}
