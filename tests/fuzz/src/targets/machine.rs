//! Input of a member's state machine: snapshots sent by a leader, and entries of the log. None may cause a panic,
//! because the entry would be applied again at the next start.

use bytes::Bytes;
use prost::Message as _;

use quorate::node::{CheckpointMeta, LogPayload, Membership, MembershipCommand, StateMachine};
use quorate::raft::{Entry, EntryKind, Message};
use quorate::store::{Command, Operation, Put};

use super::choice;

/// A snapshot: its length, its metadata, and the stream of its chunks.
pub(crate) fn state(bytes: &[u8]) {
    let Some((mode, rest)) = choice(bytes) else {
        return;
    };
    let length = usize::from(mode).min(rest.len());
    let (meta, stream) = rest.split_at(length);
    let Ok(meta) = CheckpointMeta::read(meta) else {
        return;
    };
    let Ok(mut machine) = StateMachine::restore(1, 1, meta, [stream]) else {
        return;
    };
    restored_is_the_same(&machine);
    machine.reclaim(100);
    let put = Operation::Put(Put {
        key: "key".into(),
        ..Put::default()
    });
    // At the greatest index no further entry is possible.
    let Some(index) = machine.index().checked_add(1) else {
        return;
    };
    let entry = Entry::normal(machine.term(), index, LogPayload::command(None, put.into()));
    let _ = machine.apply(&entry);
}

/// A sequence of entries, each with a kind and a length before it.
pub(crate) fn entries(bytes: &[u8]) {
    let mut machine = StateMachine::founded(Membership::default());
    let mut rest = bytes;
    while rest.len() >= 3 {
        let length = usize::from(u16::from_le_bytes([rest[0], rest[1]])).min(rest.len() - 3);
        let (kind, data) = (rest[2], Bytes::copy_from_slice(&rest[3..3 + length]));
        rest = &rest[3 + length..];
        let index = machine.index() + 1;
        let entry = match kind % 4 {
            // As it is in the log.
            0 => Entry::normal(1, index, data),
            1 => Entry {
                kind: EntryKind::Configuration as i32,
                ..Entry::normal(1, index, data)
            },
            2 => match Command::decode(data) {
                Ok(command) => Entry::normal(1, index, LogPayload::command(None, command)),
                Err(_) => continue,
            },
            _ => match MembershipCommand::decode(data.clone()) {
                Ok(command) => {
                    let change = Membership::configuration_change(&command);
                    let data = LogPayload::membership(None, command);
                    match change {
                        Some(change) => Entry::configuration_change(1, index, change, data),
                        None => Entry::normal(1, index, data),
                    }
                }
                Err(_) => {
                    message(data);
                    continue;
                }
            },
        };
        if machine.apply(&entry).is_err() {
            // A member stops at such an entry.
            break;
        }
        machine.part();
        machine.reclaim(10);
    }
    restored_is_the_same(&machine);
}

fn message(data: Bytes) {
    if let Ok(message) = Message::decode(data) {
        let again = Message::decode(Bytes::from(message.encode_to_vec()));
        assert_eq!(again.as_ref(), Ok(&message));
    }
}

/// A machine restored from another's checkpoint returns the same responses.
fn restored_is_the_same(machine: &StateMachine) {
    let checkpoint = machine.checkpoint();
    let chunks: Vec<Bytes> = checkpoint.chunks.collect();
    let again = StateMachine::restore(1, 1, checkpoint.meta, &chunks).unwrap();
    assert_eq!(again.hash(), machine.hash());
    assert_eq!(again.membership(), machine.membership());
    let views = (machine.view(), again.view());
    assert_eq!(views.0.hash_kv(0), views.1.hash_kv(0));
    assert_eq!(views.0.db_size(), views.1.db_size());
}
