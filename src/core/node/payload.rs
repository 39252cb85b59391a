//! The content of log entries. Formats and kinds are numbered from the first version: an entry of
//! an unknown one stops the server, since skipping it would make the replica diverge.

use bytes::Bytes;
use prost::Message as _;

use crate::raft::{Entry, EntryKind, Index, MemberId};
use crate::store::{AuthOperation, Command, DamagedValue, Operation};

use super::change::MembershipCommand;
use super::membership::{FORMAT, Membership};

/// The identity of a proposal: the member that received it, a number that this member has not used
/// at an earlier start, and a counter. The member's applier answers the request with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct RequestId {
    /// The member that received it.
    #[prost(uint64, tag = "1")]
    pub member: MemberId,
    /// That member's boot nonce.
    #[prost(fixed64, tag = "2")]
    pub boot_nonce: u64,
    /// Counts up from one.
    #[prost(uint64, tag = "3")]
    pub counter: u64,
}

/// The data of an entry. An entry without data only starts a leader's term.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LogPayload {
    /// [`FORMAT`] of the proposer.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The request that waits for it. Absent in what a leader proposes by itself.
    #[prost(message, optional, tag = "2")]
    pub request: Option<RequestId>,
    /// The command.
    #[prost(oneof = "PayloadBody", tags = "3, 4, 5")]
    pub body: Option<PayloadBody>,
}

/// The kinds of entries.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PayloadBody {
    /// A command of the store.
    #[prost(message, tag = "3")]
    Command(Command),
    /// A change of the membership. If it changes the configuration it is stored in a configuration
    /// entry, beside the change for the core.
    #[prost(message, tag = "4")]
    Membership(MembershipCommand),
    /// The leader has applied a change of the configuration.
    #[prost(message, tag = "5")]
    ConfigurationApplied(ConfigurationApplied),
}

/// Records that a leader had applied the configuration at an index before it appended this entry. A
/// member that has this entry on its disk also has the commit index of the change, so once this
/// entry is committed, a quorum of the new configuration knows the new configuration for good. Only
/// then is a change answered: if the caller then deletes the disk of a removed member, no remaining
/// member can still need its vote under the old configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ConfigurationApplied {
    /// The configuration index.
    #[prost(uint64, tag = "1")]
    pub configuration_index: Index,
}

/// An entry that this version cannot apply. The server must stop; a newer version may continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} cannot be applied: {why}; run the version that wrote it")]
pub struct UnknownEntry {
    /// The entry.
    pub index: u64,
    /// What is wrong.
    pub why: String,
}

/// Why an entry was not applied. The server must stop: what it would apply after it is another state than that of
/// other members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// This version cannot apply it.
    #[error(transparent)]
    Entry(#[from] UnknownEntry),
    /// It needs a value that this member cannot read. Once that is healed, it may be applied again.
    #[error("entry {index} needs a value that cannot be read: {value}")]
    Value {
        /// The entry.
        index: u64,
        /// The value.
        value: DamagedValue,
        /// A part of a transaction was carried out, and not taken back: it met a value that a checkpoint had moved to a
        /// file since the transaction began. It must not be applied again.
        half_done: bool,
    },
}

/// An entry as it may leave the members for good: without the letters of a simple token, which is valid for minutes.
/// Whoever applies it has the same state, and no token. Anything else stays as it is, byte by byte.
pub fn without_tokens(entry: Entry) -> Entry {
    let Ok(Some(mut payload)) = LogPayload::of(&entry) else {
        return entry;
    };
    let Some(PayloadBody::Command(command)) = &mut payload.body else {
        return entry;
    };
    let Some(Operation::Auth(auth)) = &mut command.operation else {
        return entry;
    };
    match &mut auth.operation {
        Some(AuthOperation::Authenticate(token)) if !token.token_prefix.is_empty() => {
            token.token_prefix.clear();
        }
        _ => return entry,
    }
    Entry {
        data: payload.encode_to_vec().into(),
        ..entry
    }
}

impl LogPayload {
    /// The encoded data of a store entry.
    pub fn command(request: Option<RequestId>, command: Command) -> Bytes {
        Self::encoded(request, PayloadBody::Command(command))
    }

    /// The encoded data of a membership entry.
    pub fn membership(request: Option<RequestId>, command: MembershipCommand) -> Bytes {
        Self::encoded(request, PayloadBody::Membership(command))
    }

    /// The encoded data of a leader's entry that settles a configuration.
    pub fn settle(configuration_index: Index) -> Bytes {
        let settle = ConfigurationApplied {
            configuration_index,
        };
        Self::encoded(None, PayloadBody::ConfigurationApplied(settle))
    }

    fn encoded(request: Option<RequestId>, body: PayloadBody) -> Bytes {
        let payload = Self {
            format: FORMAT,
            request,
            body: Some(body),
        };
        payload.encode_to_vec().into()
    }

    /// The payload of an entry; `None` for one that only starts a term.
    ///
    /// # Errors
    /// An unknown format or kind, or data that cannot be decoded.
    pub fn of(entry: &Entry) -> Result<Option<Self>, UnknownEntry> {
        let broken = |why: String| UnknownEntry {
            index: entry.index,
            why,
        };
        let kind = entry.checked_kind().map_err(|e| broken(e.to_string()))?;
        let data = match kind {
            EntryKind::Normal if entry.data.is_empty() => return Ok(None),
            EntryKind::Normal => entry.data.clone(),
            EntryKind::Configuration => {
                let decoded = entry.decode_configuration();
                decoded.map_err(|e| broken(e.to_string()))?.1
            }
        };
        let payload = Self::decode(data).map_err(|e| broken(e.to_string()))?;
        if payload.format == 0 || payload.format > FORMAT {
            return Err(broken(format!(
                "it is of format {}, this version knows up to {FORMAT}",
                payload.format
            )));
        }
        payload.check_kind(entry, kind).map_err(broken)?;
        Ok(Some(payload))
    }

    /// The kind that the core reads from an entry and the payload that the node reads must agree.
    fn check_kind(&self, entry: &Entry, kind: EntryKind) -> Result<(), String> {
        let body = self.body.as_ref().ok_or("it is of an unknown kind")?;
        let inner = match body {
            PayloadBody::ConfigurationApplied(_) => None,
            PayloadBody::Command(command) => {
                if command.operation.is_none() {
                    return Err("its command is of an unknown kind".to_owned());
                }
                None
            }
            PayloadBody::Membership(command) => {
                if command.body.is_none() {
                    return Err("its change of membership is of an unknown kind".to_owned());
                }
                Membership::configuration_change(command)
            }
        };
        let outer = match kind {
            EntryKind::Normal => None,
            EntryKind::Configuration => entry.decode_configuration().ok().map(|(c, _)| c),
        };
        if inner == outer {
            Ok(())
        } else {
            Err("its change of membership contradicts itself".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Authenticate;

    fn entry(operation: AuthOperation) -> Entry {
        let command = Command::from(Operation::Auth(operation.into()));
        Entry {
            term: 3,
            index: 9,
            kind: 0,
            data: LogPayload::command(None, command),
        }
    }

    /// An archive keeps entries for weeks, and whoever may read it must not be somebody else by that.
    #[test]
    fn no_token_leaves_the_members() {
        let token = |letters: &str| {
            entry(AuthOperation::Authenticate(Authenticate {
                user: "ann".to_owned(),
                revision: 4,
                token_prefix: letters.to_owned(),
                issued_ms: 7,
            }))
        };
        let left = without_tokens(token("qwertyuiopasdfgh"));
        assert_eq!(left, token(""));
        let text = String::from_utf8_lossy(&left.data).into_owned();
        assert!(text.contains("ann") && !text.contains("qwerty"), "{text}");
        let other = entry(AuthOperation::Enable(crate::store::AuthEnable {}));
        assert_eq!(without_tokens(other.clone()), other);
    }
}
