//! The proofs with which operator and members authenticate to each other by a shared key: an
//! HMAC-SHA256 over a call, and one over its answer.
//!
//! That of a call covers method, recipient, time, nonce and the body's bytes as sent; that of an
//! answer covers method, the call's nonce, the signer, the gRPC status and the body's bytes. Bytes
//! are covered as bytes, so members and operators of different versions agree. Pure: reads no
//! clock, opens no file, and never prints a key.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Unix milliseconds at which the call was made.
pub(in crate::server) const TIME: &str = "quorate-time";
/// Never repeated.
pub(in crate::server) const NONCE: &str = "quorate-nonce";
/// The recipient of the call, one start of one server: see [`Recipient`]. Absent: any.
pub(in crate::server) const TO: &str = "quorate-to";
/// The HMAC of the call.
pub(in crate::server) const PROOF: &str = "quorate-call-proof";
/// The HMAC of a call in the format of version 0.1.0.
pub(in crate::server) const OLD_PROOF: &str = "quorate-proof";
/// The server that answers, and its start.
pub(in crate::server) const FROM: &str = "quorate-from";
/// The HMAC of the answer.
pub(in crate::server) const RESPONSE_PROOF: &str = "quorate-answer-proof";
/// The format of proofs that a server accepts, sent with a refusal; 0.1.0 does not send it.
pub(in crate::server) const FORM: &str = "quorate-form";
/// The format of this version.
pub(in crate::server) const NEWEST: &str = "2";
/// The operator's one method that changes nothing, and so needs no recipient.
pub(in crate::server) const DESCRIBE: &str = "/quorate.v1.Member/Describe";
/// That of a backup.
const STANDING: &str = "/quorate.v1.Backup/Standing";
/// That of a restore.
const PROSPECT: &str = "/quorate.v1.Restore/Prospect";

/// That of whoever brings the writes of a followed cluster.
const POSITION: &str = "/quorate.v1.Follow/Position";

/// Prefix of the data under an HMAC, so that one for a call cannot be used for an answer. That of
/// 0.1.0 begins with the method, and so with a slash.
const CALL: &str = "quorate call 2";
const RESPONSE: &str = "quorate answer 2";
/// The data under the HMAC that is the key of backups.
const BACKUPS: &[u8] = b"quorate backup key 1";
/// The same of the key of restores.
const RESTORES: &[u8] = b"quorate restore key 1";
/// The same of the key of a following.
const FOLLOWS: &[u8] = b"quorate follow key 1";
/// Largest call, in bytes: any host may send that much before its proof is checked.
pub(super) const CALL_LIMIT: usize = 64 << 10;
/// That of a restore, which carries a piece of a snapshot.
const RESTORE_LIMIT: usize = CALL_LIMIT + (1 << 20);
/// That of a following, which carries all that was written at one revision.
const FOLLOW_LIMIT: usize = CALL_LIMIT + (16 << 20);
/// Largest answer, in bytes.
const ANSWER_LIMIT: usize = 4 << 20;
/// That to a backup, which may be one entry of the log.
const BACKUP_ANSWER_LIMIT: usize = 49 << 20;
/// That to a following, which may be the IDs of millions of leases.
const FOLLOW_ANSWER_LIMIT: usize = 64 << 20;

/// The key that operator and members share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<[u8]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Who calls a member, which decides the service and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Caller {
    /// The operator.
    Operator,
    /// A backup of the cluster, with a key that fits [`STANDING`]'s service alone.
    Backup,
    /// A restore of a cluster that is to be founded, with a key that fits [`PROSPECT`]'s service alone.
    Restore,
    /// Whoever brings the writes of a followed cluster, with a key that fits [`POSITION`]'s service alone.
    Follow,
}

impl Caller {
    /// This caller's key, where the operator's is known.
    pub(in crate::server) fn key(self, operators: &Key) -> Key {
        match self {
            Caller::Operator => operators.clone(),
            Caller::Backup => operators.for_backups(),
            Caller::Restore => operators.for_restores(),
            Caller::Follow => operators.for_follow(),
        }
    }

    /// The method that needs no recipient.
    pub(in crate::server) fn first_call(self) -> &'static str {
        match self {
            Caller::Operator => DESCRIBE,
            Caller::Backup => STANDING,
            Caller::Restore => PROSPECT,
            Caller::Follow => POSITION,
        }
    }

    /// Bytes of its largest call.
    pub(in crate::server) fn call_limit(self) -> usize {
        match self {
            Caller::Operator | Caller::Backup => CALL_LIMIT,
            Caller::Restore => RESTORE_LIMIT,
            Caller::Follow => FOLLOW_LIMIT,
        }
    }

    /// Bytes of the largest answer to it.
    pub(in crate::server) fn answer_limit(self) -> usize {
        match self {
            Caller::Operator | Caller::Restore => ANSWER_LIMIT,
            Caller::Backup => BACKUP_ANSWER_LIMIT,
            Caller::Follow => FOLLOW_ANSWER_LIMIT,
        }
    }
}

/// One start of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipient {
    /// Its disk.
    pub disk_uuid: String,
    /// Its start, as a text that no other start has.
    pub boot: String,
}

impl std::fmt::Display for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.disk_uuid, self.boot)
    }
}

impl Recipient {
    /// Parses the output of its `Display`.
    pub(in crate::server) fn read(text: &str) -> Option<Recipient> {
        let (disk_uuid, boot) = text.split_once('/')?;
        Some(Recipient {
            disk_uuid: disk_uuid.to_owned(),
            boot: boot.to_owned(),
        })
    }
}

/// The data covered by the proof of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Call<'a> {
    pub(in crate::server) path: &'a str,
    /// Empty: any recipient.
    pub(in crate::server) to: &'a str,
    pub(in crate::server) time: &'a str,
    pub(in crate::server) nonce: &'a str,
    pub(in crate::server) body: &'a [u8],
}

/// The data covered by the proof of a response.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Response<'a> {
    pub(in crate::server) path: &'a str,
    /// The call's.
    pub(in crate::server) nonce: &'a str,
    pub(in crate::server) from: &'a str,
    /// gRPC's code and message as sent.
    pub(in crate::server) code: &'a [u8],
    pub(in crate::server) message: &'a [u8],
    pub(in crate::server) body: &'a [u8],
}

impl Key {
    /// A key of these bytes; surrounding whitespace is ignored.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Key {
        Key(bytes.trim_ascii().into())
    }

    /// The key of backups, as text: it follows from the operator's, which does not follow from it.
    #[must_use]
    pub fn for_backups(&self) -> Key {
        self.derived(BACKUPS)
    }

    /// The key of restores, as text: it follows from the operator's in the same way.
    #[must_use]
    pub fn for_restores(&self) -> Key {
        self.derived(RESTORES)
    }

    /// The key of a following, as text: it follows from the operator's in the same way.
    #[must_use]
    pub fn for_follow(&self) -> Key {
        self.derived(FOLLOWS)
    }

    fn derived(&self, label: &[u8]) -> Key {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(label);
        Key::new(text(mac).as_bytes())
    }

    /// Its bytes, to be kept in a Secret.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its length in bytes.
    pub(in crate::server) fn length(&self) -> usize {
        self.0.len()
    }

    pub(in crate::server) fn of_call(&self, call: Call<'_>) -> Hmac<Sha256> {
        let parts = [CALL, call.path, call.to, call.time, call.nonce];
        self.mac(&parts.map(str::as_bytes), call.body)
    }

    pub(in crate::server) fn of_response(&self, answer: Response<'_>) -> Hmac<Sha256> {
        let Response {
            path, nonce, from, ..
        } = answer;
        let texts = [RESPONSE, path, nonce, from].map(str::as_bytes);
        let [kind, path, nonce, from] = texts;
        let parts = [kind, path, nonce, from, answer.code, answer.message];
        self.mac(&parts, answer.body)
    }

    /// In the format of version 0.1.0: without a recipient.
    pub(in crate::server) fn of_old_call(&self, call: Call<'_>) -> Hmac<Sha256> {
        let parts = [call.path, call.time, call.nonce];
        self.mac(&parts.map(str::as_bytes), call.body)
    }

    fn mac(&self, parts: &[&[u8]], body: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.update(body);
        mac
    }
}

/// The proof as sent.
pub(in crate::server) fn text(mac: Hmac<Sha256>) -> String {
    let bytes = mac.finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this text is that proof.
pub(in crate::server) fn fits(mac: Hmac<Sha256>, text: &str) -> bool {
    unhex(text).is_some_and(|proof| mac.verify_slice(&proof).is_ok())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call<'static> {
        Call {
            path: "/quorate.v1.Member/Retire",
            to: "6f1c/17",
            time: "1763820000000",
            nonce: "00112233445566778899aabbccddeeff",
            body: b"\0\0\0\0\0",
        }
    }

    fn key() -> Key {
        Key::new(b"0123456789abcdef0123456789abcdef\n")
    }

    /// The format of members of 0.1.0: computed by Python's hmac over that version's parts.
    #[test]
    fn proof_format_of_0_1_0_is_fixed() {
        let proof = text(key().of_old_call(call()));
        assert_eq!(
            proof,
            "8e8aed7d47700ec139dd12ae583939320f50388e9b624c2227ebbd46e22ab71f"
        );
        let elsewhere = Call {
            to: "x/1",
            ..call()
        };
        assert!(fits(key().of_old_call(elsewhere), &proof), "it names none");
    }

    #[test]
    fn current_proof_format_is_fixed() {
        let proof = text(key().of_call(call()));
        assert_eq!(
            proof,
            "fef5c89d301144c7c5f3b7451f992adf4f051cef00bb4158dbb37c3a63ed4e05"
        );
        let answer = Response {
            path: call().path,
            nonce: call().nonce,
            from: call().to,
            code: b"0",
            message: b"",
            body: b"\0\0\0\0\x02\x08\x01",
        };
        assert_eq!(
            text(key().of_response(answer)),
            "713a12e5d3f0285855a91b2a4567dca743b3c0829b7fa2fa94934b9c600b9e05"
        );
        assert!(!fits(
            key().of_call(call()),
            &text(key().of_response(answer))
        ));
    }

    /// Computed by Python's hmac: Secrets hold it, so it stays what it is.
    #[test]
    fn key_of_backups_is_fixed_and_another_one() {
        let derived = key().for_backups();
        assert_eq!(
            derived.bytes(),
            b"f775d05f88e5a92b4dd4d2b362cb46de1c3b90ecd182bc215f3579cfb284a0b8"
        );
        assert_ne!(derived, key());
        assert!(!fits(key().of_call(call()), &text(derived.of_call(call()))));
    }

    /// The same of the key of restores.
    #[test]
    fn key_of_restores_is_fixed_and_another_one() {
        let derived = key().for_restores();
        assert_eq!(
            derived.bytes(),
            b"2e835df7e32e83b7fc11ed5d0d2ef01563e27c4a6762db03bd55cd173406d541"
        );
        for other in [key(), key().for_backups()] {
            assert_ne!(derived, other);
            assert!(!fits(other.of_call(call()), &text(derived.of_call(call()))));
        }
    }

    #[test]
    fn recipient_round_trips() {
        let recipient = Recipient {
            disk_uuid: "6f1c".to_owned(),
            boot: "17".to_owned(),
        };
        assert_eq!(Recipient::read(&recipient.to_string()), Some(recipient));
        assert_eq!(Recipient::read("6f1c"), None);
    }
}
