//! Checkpoints with files of values: restored after any crash, sent as those of a member without such files, and
//! rid of what nobody needs.

mod merge_cost;
mod merged;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::disk::double::{Faults, Keep, MemoryDisk};
use crate::disk::{CheckpointInfo, Disk as _};
use crate::node::{ApplyError, InitialMember, LogPayload, Membership, StateMachine};
use crate::raft::Entry;
use crate::store::{
    Compact, DamagedValue, DeleteRange, Healed, KeyValue, Op, Operation, Put, Range, Rebuild, Row,
    Store, Txn, View,
};

struct Member {
    disk: MemoryDisk,
    saver: Saver,
    machine: StateMachine,
}

fn founded() -> StateMachine {
    let first = InitialMember {
        name: "a".to_owned(),
        peer_urls: vec!["http://a:2380".to_owned()],
        ..InitialMember::default()
    };
    StateMachine::founded(Membership::bootstrap("", 0, "", &[first]).unwrap())
}

fn saver(disk: &MemoryDisk, to_files: Option<usize>) -> Saver {
    let values = to_files.map_or(ValuesTo::Memory, ValuesTo::Files);
    Saver::new(Checkpoints::new(Arc::new(disk.clone())), values)
}

impl Member {
    fn new(to_files: Option<usize>) -> Self {
        let disk = MemoryDisk::new();
        disk.create_directory("checkpoints").unwrap();
        Member {
            saver: saver(&disk, to_files),
            machine: founded(),
            disk,
        }
    }

    fn apply(&mut self, operation: Operation) {
        let data = LogPayload::command(None, operation.into());
        let entry = Entry::normal(self.machine.term(), self.machine.index() + 1, data);
        self.machine.apply(&entry).unwrap();
    }

    fn put(&mut self, key: &str, value: &str) {
        self.apply(Operation::Put(Put {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..Put::default()
        }));
    }

    fn save(&mut self) -> Result<CheckpointInfo, Error> {
        self.saver.save(self.machine.checkpoint(), || ())
    }

    fn hash(&self) -> u64 {
        self.machine.hash().unwrap()
    }

    fn restored(&self, info: &CheckpointInfo) -> StateMachine {
        restore(self.saver.checkpoints(), info.position, (1, 1), || ()).unwrap()
    }

    fn value_files(&self) -> Vec<u64> {
        self.saver.checkpoints().values().list().unwrap()
    }
}

#[test]
fn machine_with_files_is_restored_after_a_crash() {
    let mut member = Member::new(Some(4));
    for round in 0..5 {
        member.put("small", "s");
        member.put("key", &format!("value {round}"));
        member.put(&format!("other {round}"), "value that stays");
        let info = member.save().unwrap();
        member.disk.crash(Keep::Seeded(round));
        let restored = member.restored(&info);
        assert_eq!(
            restored.hash().unwrap(),
            member.machine_of_memory(round).hash().unwrap()
        );
        member.saver = saver(&member.disk, Some(4));
        member.saver.drop_unused().unwrap();
        member.machine = restored;
    }
    assert!(member.value_files().len() > 2);
}

impl Member {
    /// The same writes on a member that has no disk.
    fn machine_of_memory(&self, rounds: u64) -> StateMachine {
        let mut other = Member::new(None);
        for round in 0..=rounds {
            other.put("small", "s");
            other.put("key", &format!("value {round}"));
            other.put(&format!("other {round}"), "value that stays");
        }
        other.machine
    }
}

/// Equal states are sent as equal bytes, whatever a member has on its disk: a receiver needs no file of the sender's.
#[test]
fn stream_is_that_of_a_member_without_files() {
    let mut sent = Vec::new();
    for to_files in [Some(1), None] {
        let mut member = Member::new(to_files);
        for number in 0..300 {
            member.put(&format!("key {number}"), &"value ".repeat(number * 7));
        }
        member.save().unwrap();
        // A second one, in which all values are in files already.
        let info = member.save().unwrap();
        assert_eq!(member.value_files().is_empty(), to_files.is_none());
        let mut whole = WholeCheckpoint::open(member.saver.checkpoints(), info.position).unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = whole.next_chunk().unwrap() {
            bytes.extend_from_slice(&chunk);
        }
        assert!(whole.next_chunk().unwrap().is_none(), "it stays at its end");
        sent.push(bytes);
    }
    assert!(sent[0].len() > 200_000);
    assert!(sent[0] == sent[1], "the streams differ");
}

fn chunks_of(member: &Member, info: &CheckpointInfo) -> (bytes::Bytes, Vec<bytes::Bytes>) {
    let mut whole = WholeCheckpoint::open(member.saver.checkpoints(), info.position).unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = whole.next_chunk().unwrap() {
        chunks.push(chunk);
    }
    (whole.meta().clone(), chunks)
}

/// A member of 1 GiB that joined a cluster with 8 GiB of data had all of it in memory until its first own checkpoint.
#[test]
fn received_values_go_to_a_file_as_they_come() {
    let mut sender = Member::new(None);
    for number in 0..300 {
        sender.put(&format!("key {number}"), &"value ".repeat(number * 7));
    }
    let sent = sender.save().unwrap();
    let (meta, chunks) = chunks_of(&sender, &sent);
    assert!(chunks.len() > 1);
    for to_files in [Some(64), None] {
        let receiver = Member::new(to_files);
        let received = receiver.saver.receive(sent.position, &meta, 0);
        let mut received = received.unwrap();
        for chunk in &chunks {
            received.chunk(chunk).unwrap();
            // What is being received is not taken for unused.
            receiver.saver.drop_unused().unwrap();
        }
        assert_eq!(received.chunks(), chunks.len() as u64);
        let info = received.finish().unwrap();
        receiver.saver.drop_unused().unwrap();
        receiver.disk.crash(Keep::Nothing);
        assert!(info.received);
        let reader = receiver.saver.checkpoints().open(info.position).unwrap();
        assert!(reader.info().received);
        assert_eq!(reader.files().is_empty(), to_files.is_none());
        assert_eq!(info.bytes < 100_000, to_files.is_some(), "{info:?}");
        assert_eq!(receiver.restored(&info).hash().unwrap(), sender.hash());
        let (_, again) = chunks_of(&receiver, &info);
        assert!(again.concat() == chunks.concat(), "it is sent as it came");
    }
}

/// What comes from a peer may be anything: an error, and nothing is left on the disk.
#[test]
fn stream_that_is_none_is_refused_and_leaves_nothing() {
    let mut sender = Member::new(Some(1));
    sender.put("key", "value");
    let sent = sender.save().unwrap();
    let mut reader = sender.saver.checkpoints().open(sent.position).unwrap();
    let (meta, placed) = (reader.meta().clone(), reader.next_chunk().unwrap().unwrap());
    let (_, whole) = chunks_of(&sender, &sent);
    let receiver = Member::new(Some(1));
    let begin = || receiver.saver.receive(sent.position, &meta, 0).unwrap();
    let error = begin().chunk(&placed).unwrap_err();
    assert!(error.to_string().contains("of another member"), "{error}");
    let mut short = begin();
    short.chunk(&whole[0][..whole[0].len() - 1]).unwrap();
    let error = short.finish().unwrap_err();
    assert!(error.to_string().contains("ends early"), "{error}");
    assert_eq!(receiver.value_files(), [0; 0]);
    assert_eq!(receiver.saver.checkpoints().list().unwrap(), []);
    assert_eq!(receiver.saver.checkpoints().passing_bytes().unwrap(), 0);
}

/// The sender determines how much there is: the log keeps what it needs.
#[test]
fn received_values_leave_room_for_the_log() {
    let mut sender = Member::new(None);
    for number in 0..40 {
        sender.put(&format!("key {number}"), &"value ".repeat(20_000));
    }
    let sent = sender.save().unwrap();
    let (meta, chunks) = chunks_of(&sender, &sent);
    let receiver = Member::new(Some(64));
    receiver.disk.set_faults(Faults {
        capacity: Some(3 << 20),
        ..Faults::default()
    });
    let mut received = receiver.saver.receive(sent.position, &meta, 2 << 20);
    let received = received.as_mut().unwrap();
    let refused = chunks.iter().find_map(|chunk| received.chunk(chunk).err());
    let refused = refused.expect("there is no room for all of it");
    assert_eq!(refused.class(), Class::DiskFull, "{refused}");
    assert!(receiver.disk.free_bytes().unwrap() >= 2 << 20);
}

/// A store of these values, those of four bytes and more in a file of this saver.
fn placed(saver: &Saver, values: &[String]) -> Store {
    let mut rebuild = Rebuild::new(-1);
    let mut placed = saver.place().unwrap();
    for (revision, value) in (2..).zip(values) {
        let kv = KeyValue {
            key: format!("key {revision}").into(),
            value: value.clone().into(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            ..KeyValue::default()
        };
        let row = Row {
            main: revision,
            sub: 0,
            tombstone: false,
            kv,
        };
        let put = |value: &[u8]| {
            let put = placed.put(value);
            put.map_err(|error| store::Error::Checkpoint(error.to_string()))
        };
        rebuild.placed_row(&row, put).unwrap();
    }
    let store = rebuild.finish(0).unwrap();
    let unfinished = saver.to_files().is_some();
    assert_eq!(store.publish().hash_kv(0).is_err(), unfinished);
    placed.finish().unwrap();
    store
}

/// A cluster was founded from a backup with all values in memory.
#[test]
fn placed_values_are_those_of_the_first_checkpoint() {
    let values: Vec<String> = (0..300).map(|number| "value ".repeat(number)).collect();
    let mut hashes = Vec::new();
    for to_files in [Some(4), None] {
        let mut member = Member::new(to_files);
        let store = placed(&member.saver, &values);
        // Nobody takes the file for unused before a checkpoint names it.
        member.saver.drop_unused().unwrap();
        let membership = Membership::clone(founded().membership());
        member.machine = StateMachine::restored(membership, store);
        hashes.push(member.hash());
        let info = member.save().unwrap();
        assert_eq!(member.value_files().len(), usize::from(to_files.is_some()));
        member.disk.crash(Keep::Nothing);
        let restored = member.restored(&info);
        hashes.push(restored.hash().unwrap());
        let view = restored.view();
        let moved = view.move_values(4, (&BTreeSet::new(), 0), |_| Ok::<u64, DamagedValue>(0));
        assert_eq!(moved.unwrap().is_empty(), to_files.is_some());
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn values_that_find_no_room_leave_nothing() {
    let member = Member::new(Some(4));
    member.disk.set_faults(Faults {
        capacity: Some(3 << 20),
        ..Faults::default()
    });
    let mut placed = member.saver.place().unwrap();
    assert!(placed.put(b"s").unwrap().is_none(), "it stays in memory");
    assert_eq!(member.value_files(), [0; 0]);
    let refused = (0..5).find_map(|_| placed.put(&[7; 1 << 20]).err());
    assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::StorageFull);
    drop(placed);
    assert_eq!(member.value_files(), [0; 0]);
}

/// On a full volume the older checkpoint is given up, and with it the values that only it needs.
#[test]
fn room_is_made_of_values_of_the_older_checkpoint() {
    let mut member = Member::new(Some(1));
    member.put("key", &"old".repeat(1000));
    member.save().unwrap();
    member.put("key", "new");
    let revision = member.machine.view().revision();
    member.apply(Operation::Compact(Compact { revision }));
    let newer = member.save().unwrap();
    // What was compacted just now is still known to watchers, and so its file is open.
    member.machine = member.restored(&newer);
    assert_eq!(member.value_files(), [1, 2]);
    let free = member.disk.free_bytes().unwrap();
    assert!(member.saver.checkpoints().make_room(0).unwrap());
    assert_eq!(member.value_files(), [2]);
    assert!(member.disk.free_bytes().unwrap() > free + 3000);
}

/// A file that is being written takes the place of others, as a checkpoint in progress does: it does not raise NOSPACE.
#[test]
fn values_in_progress_take_no_room() {
    let mut member = Member::new(Some(1));
    member.put("key", "value");
    member.save().unwrap();
    let checkpoints = member.saver.checkpoints();
    assert_eq!(checkpoints.passing_bytes().unwrap(), 0);
    let mut writer = checkpoints.values().begin().unwrap();
    writer.put(&[7; 2 << 20]).unwrap();
    assert!(checkpoints.passing_bytes().unwrap() > 2 << 20);
    drop(writer);
    assert_eq!(checkpoints.passing_bytes().unwrap(), 0);
}

/// A version before files of values was said to read a disk with one, while a checkpoint on it was damaged.
#[test]
fn disk_with_files_is_told_beside_a_damaged_checkpoint() {
    let mut member = Member::new(Some(1));
    member.put("key", "value");
    let info = member.save().unwrap();
    let at = info.position;
    let name = format!("checkpoints/{:016x}-{:016x}.checkpoint", at.index, at.term);
    member.disk.flip_bit(&name, 9, 1).unwrap();
    let next = saver(&member.disk, None);
    next.drop_unused().unwrap();
    assert_eq!(next.checkpoints().readable_since(), "0.2.0");
    assert_eq!(next.checkpoints().values().list().unwrap(), [1]);
}

/// Two checkpoints are kept, and a start falls back on the older one if the newer is damaged: what only the older one
/// needs must be there.
#[test]
fn older_checkpoint_keeps_its_values() {
    let mut member = Member::new(Some(1));
    member.put("key", "old value");
    let older = member.save().unwrap();
    let hash = member.hash();
    member.put("key", "new value");
    let revision = member.machine.view().revision();
    member.apply(Operation::Compact(Compact { revision }));
    let newer = member.save().unwrap();
    // What was compacted just now is still known to watchers, and so its file is open.
    member.machine = member.restored(&newer);
    member.saver.drop_unused().unwrap();
    assert_eq!(member.restored(&older).hash().unwrap(), hash);
    for round in 0..3 {
        member.put("another", &format!("{round}"));
        member.save().unwrap();
    }
    assert!(
        !member.value_files().contains(&1),
        "{:?}",
        member.value_files()
    );
}

/// On a full volume all was deleted and compacted, and the file of the values stayed: the records of the newest puts, which are
/// kept for watchers, had it open, and no write came any more that would have pushed them out.
#[test]
fn file_of_compacted_values_goes_once_all_is_reclaimed() {
    let mut member = Member::new(Some(1));
    member.put("key", "old value");
    // More than are kept: the old value is not in the log any more, but what the compacted revision replaces.
    (0..20).for_each(|_| member.put("another", ""));
    member.put("last", "old value");
    member.save().unwrap();
    member.apply(Operation::DeleteRange(DeleteRange {
        key: "key".into(),
        range_end: "m".into(),
        ..DeleteRange::default()
    }));
    let revision = member.machine.view().revision();
    member.apply(Operation::Compact(Compact { revision }));
    member.machine.reclaim(usize::MAX);
    for _ in 0..2 {
        member.put("another", "");
        member.save().unwrap();
    }
    assert_eq!(member.value_files(), [1], "watchers may be behind");
    member.machine.reclaim_all(usize::MAX);
    member.put("another", "");
    member.save().unwrap();
    assert_eq!(member.value_files(), [0; 0]);
}

/// The disk was full, or the sync failed: no value may be read from a file that is not whole, nor be gone.
#[test]
fn failed_file_leaves_values_in_memory() {
    let mut member = Member::new(Some(1));
    member.put("key", "value");
    for fail in 1..6 {
        member.disk.set_faults(Faults {
            fail_sync: Some(fail),
            ..Faults::default()
        });
        let saved = member.save();
        let struck = member.disk.tripped();
        member.disk.set_faults(Faults::default());
        let range = Range {
            key: "key".into(),
            ..Range::default()
        };
        let found = member.machine.view().range(&range).unwrap();
        assert_eq!(found.kvs[0].value, "value", "after a failed sync {fail}");
        if !struck {
            saved.unwrap();
            return;
        }
        assert!(matches!(saved, Err(Error::Disk(disk::Error::Sync { .. }))));
        // As after a crash: the next process knows only what was durable.
        let number = member.value_files();
        assert!(number.len() <= 1, "{number:?}");
    }
    panic!("every sync failed");
}

impl Member {
    /// Flips a bit of this value in its file, and says where it is. The file has it once.
    fn damage(&self, file: u64, value: &str) -> (u64, u64) {
        let name = format!("values/{file:016x}.values");
        let bytes = self.disk.contents(&name).unwrap();
        let at = bytes.windows(value.len());
        let at = at.enumerate().find(|(_, it)| *it == value.as_bytes());
        let at = at.unwrap().0 as u64;
        self.disk.flip_bit(&name, at, 1).unwrap();
        // Behind checksum and length.
        (file, at - 8)
    }

    fn read(&self, key: &str) -> Result<bytes::Bytes, store::Error> {
        let range = Range {
            key: key.to_owned().into(),
            ..Range::default()
        };
        let found = self.machine.view().range(&range)?;
        Ok(found.kvs[0].value.clone())
    }

    /// Heals what was found damaged, by this member's values.
    fn heal_from(&self, other: &Member) -> usize {
        let values = self.saver.checkpoints().values();
        let damaged = values.damaged().into_keys().collect();
        let view = self.machine.view();
        let lost = view.lost_values(&damaged);
        for lost in &lost {
            let row = other.machine.view();
            let row = row.row_at(&lost.key_value().key, lost.revision());
            assert_eq!(view.heal(lost, &row.unwrap().unwrap()), Healed::Taken);
            values.forget(lost.place());
        }
        lost.len()
    }
}

/// Four values of which one is needed, so that its file is worn; and a member that has the same in memory.
fn worn() -> (Member, Member) {
    let mut members = [Member::new(Some(4)), Member::new(None)];
    for member in &mut members {
        for key in ["a", "b", "c", "d"] {
            member.put(key, &format!("first value of {key}"));
        }
        member.save().unwrap();
        for key in ["a", "b", "c"] {
            member.put(key, &format!("second value of {key}"));
        }
        let revision = member.machine.view().revision();
        member.apply(Operation::Compact(Compact { revision }));
        // Learns which files are worn.
        member.save().unwrap();
    }
    members.into()
}

/// A checkpoint that empties a worn file met a damaged value there, and its member stopped.
#[test]
fn checkpoint_leaves_a_damaged_value_where_it_is() {
    let (mut member, _) = worn();
    let place = member.damage(1, "first value of d");
    member.put("e", "another value");
    let info = member.save().unwrap();
    let damaged = member.saver.checkpoints().values().damaged();
    assert!(damaged.into_keys().eq([place]));
    member.machine = member.restored(&info);
    assert_eq!(member.read("e").unwrap(), "another value");
    let error = member.read("d").unwrap_err().to_string();
    assert!(error.contains("is damaged at offset"), "{error}");
}

/// Until it was written again, a restart read the damaged place; and the file that has it was needed for ever.
#[test]
fn healed_value_is_written_by_the_next_checkpoint() {
    let (mut member, other) = worn();
    member.damage(1, "first value of d");
    member.read("d").unwrap_err();
    assert_eq!(member.heal_from(&other), 1);
    assert_eq!(member.read("d").unwrap(), "first value of d");
    assert_eq!(member.hash(), other.hash());
    for round in 0..2 {
        member.put("round", &format!("value {round}"));
        let info = member.save().unwrap();
        let reader = member.saver.checkpoints().open(info.position).unwrap();
        assert!(!reader.files().contains(&1), "{:?}", reader.files());
        member.machine = member.restored(&info);
        assert_eq!(member.read("d").unwrap(), "first value of d");
    }
    member.saver.drop_unused().unwrap();
    assert!(!member.value_files().contains(&1));
}

/// A checkpoint that was being written when a value was healed may name the damaged place, and the next one does not.
#[test]
fn value_is_healed_while_a_checkpoint_is_written() {
    let (mut member, other) = worn();
    member.damage(1, "first value of d");
    member.read("d").unwrap_err();
    member.put("e", "another value");
    let checkpoint = member.machine.checkpoint();
    let heals = || _ = member.heal_from(&other);
    member.saver.save(checkpoint, heals).unwrap();
    assert_eq!(member.read("d").unwrap(), "first value of d");
    member.put("f", "yet another value");
    let info = member.save().unwrap();
    member.machine = member.restored(&info);
    assert_eq!(member.read("d").unwrap(), "first value of d");
    assert_eq!(member.read("e").unwrap(), "another value");
}

/// In a cluster in which nothing was written the newest checkpoint named the damaged place for ever, and after 64 MiB of such
/// values no more were healed.
#[test]
fn healed_value_is_written_without_an_entry() {
    let (mut member, other) = worn();
    member.damage(1, "first value of d");
    let begun = member.saver.begun();
    assert_eq!(member.saver.written(), begun);
    member.read("d").unwrap_err();
    assert_eq!(member.heal_from(&other), 1);
    let before = member.saver.checkpoints().list().unwrap();
    let info = member.save().unwrap();
    assert_eq!(member.saver.checkpoints().list().unwrap(), before);
    assert_eq!(info.position, before[0], "over the one of the same index");
    assert_eq!(
        (member.saver.begun(), member.saver.written()),
        (begun + 1, begun + 1)
    );
    member.disk.crash(Keep::Nothing);
    member.machine = member.restored(&info);
    assert_eq!(member.read("d").unwrap(), "first value of d");
    let (_, chunks) = chunks_of(&member, &info);
    assert!(!chunks.is_empty(), "it can be sent");
}

/// A value that was damaged and then deleted is asked of nobody, and the newest checkpoint names it: that one could not be sent
/// to a member that lags behind, and nobody took another one.
#[test]
fn damage_that_only_a_checkpoint_names_is_known() {
    let (mut member, _) = worn();
    let place = member.damage(1, "first value of d");
    member.put("d", "second value of d");
    let revision = member.machine.view().revision();
    member.apply(Operation::Compact(Compact { revision }));
    let older = member.saver.checkpoints().list().unwrap()[0];
    // No revision of it is remembered for watchers, and nobody has the file open.
    let chunks: Vec<_> = member.machine.checkpoint().chunks.collect();
    let meta = member.machine.checkpoint().meta;
    member.machine = StateMachine::restore(1, 1, meta, &chunks).unwrap();
    let mut whole = WholeCheckpoint::open(member.saver.checkpoints(), older).unwrap();
    let failed = loop {
        match whole.next_chunk() {
            Ok(chunk) => assert!(chunk.is_some(), "it is sent with the damage"),
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Value(_)), "{failed}");
    drop(whole);
    let damaged = member.saver.checkpoints().values().damaged();
    let damaged: BTreeSet<_> = damaged.into_keys().collect();
    assert_eq!(damaged, BTreeSet::from([place]));
    assert!(member.machine.view().lost_values(&damaged).is_empty());
    assert!(member.saver.checkpoints().newest_names(place.0));
    let info = member.save().unwrap();
    assert!(!member.saver.checkpoints().newest_names(place.0));
    chunks_of(&member, &info);
}

/// With the gate off again each value goes back into the checkpoint: without one there is none, and once it is healed it
/// can be written.
#[test]
fn complete_checkpoint_waits_for_a_damaged_value() {
    let (mut member, other) = worn();
    member.damage(1, "first value of d");
    member.saver = Saver::new(member.saver.checkpoints().clone(), ValuesTo::Memory);
    let checkpoint = member.machine.checkpoint();
    let again = checkpoint.again();
    let failed = member.saver.save(checkpoint, || ()).unwrap_err();
    assert!(matches!(failed, Error::Value(_)), "{failed}");
    assert_eq!(member.heal_from(&other), 1);
    member.saver.save(again, || ()).unwrap();
}

/// An entry that could not be applied for want of a value is applied once that is healed.
#[test]
fn entry_is_applied_again() {
    let (mut member, mut other) = worn();
    member.damage(1, "first value of d");
    member.is_applied_again(&mut other, Operation::Put(shown("d")));
}

/// A transaction that had written before it met the value stopped its member, and at each start the log had it again: what
/// it wrote would have been there twice.
#[test]
fn transaction_that_meets_a_damaged_value_is_applied_again() {
    let whole = Range {
        key: "a".into(),
        range_end: "z".into(),
        ..Range::default()
    };
    let delete = DeleteRange {
        key: "d".into(),
        prev_kv: true,
        ..DeleteRange::default()
    };
    let nested = Txn {
        success: vec![
            Op::Put(hidden("f")).into(),
            Op::DeleteRange(delete.clone()).into(),
        ],
        ..Txn::default()
    };
    let older = Range {
        key: "d".into(),
        revision: 8,
        ..Range::default()
    };
    let met = [
        Op::Put(shown("d")),
        Op::DeleteRange(delete),
        Op::Range(whole),
        Op::Range(older),
        Op::Txn(nested),
    ];
    for op in met {
        let (mut member, mut other) = worn();
        member.damage(1, "first value of d");
        let success = vec![
            Op::Put(hidden("e")).into(),
            Op::Put(hidden("a")).into(),
            op.into(),
        ];
        let txn = Txn {
            success,
            ..Txn::default()
        };
        member.is_applied_again(&mut other, Operation::Txn(txn));
    }
}

fn hidden(key: &str) -> Put {
    Put {
        key: key.to_owned().into(),
        value: "new".into(),
        ..Put::default()
    }
}

fn shown(key: &str) -> Put {
    Put {
        prev_kv: true,
        ..hidden(key)
    }
}

impl Member {
    /// Applies what needs a damaged value, which fails, then heals that, and applies it again: all as at the other member.
    fn is_applied_again(&mut self, other: &mut Member, operation: Operation) {
        let data = LogPayload::command(None, operation.into());
        let entry = Entry::normal(self.machine.term(), self.machine.index() + 1, data);
        let before = self.machine.view();
        let failed = self.machine.apply(&entry).unwrap_err();
        assert!(matches!(failed, ApplyError::Value { .. }), "{failed}");
        let now = self.machine.view();
        let of = |view: &View| (view.revision(), view.db_size());
        assert_eq!(of(&now), of(&before), "{entry:?}");
        assert_eq!(self.heal_from(other), 1);
        let applied = self.machine.apply(&entry).unwrap();
        assert_eq!(applied, other.machine.apply(&entry).unwrap());
        assert_eq!(self.hash(), other.hash());
    }
}

/// With the gate off again, the next checkpoint is complete by itself, and after the one behind it no file is left.
#[test]
fn values_come_back_into_the_checkpoint() {
    let mut member = Member::new(Some(1));
    member.put("key", "value");
    let info = member.save().unwrap();
    assert_eq!(member.saver.checkpoints().readable_since(), "0.2.0");
    member.machine = member.restored(&info);
    member.saver = saver(&member.disk, None);
    for round in 0..2 {
        member.put("round", &format!("{round}"));
        let info = member.save().unwrap();
        let reader = member.saver.checkpoints().open(info.position).unwrap();
        assert_eq!(reader.files(), [0; 0]);
    }
    assert_eq!(member.value_files(), [0; 0]);
    assert_eq!(member.saver.checkpoints().readable_since(), "0.1.0");
    let found = member.machine.view().range(&Range {
        key: "key".into(),
        ..Range::default()
    });
    assert_eq!(
        found.unwrap().kvs[0].value,
        "value",
        "open files stay readable"
    );
}

/// A checkpoint whose file of values is gone or damaged at its head is a damaged checkpoint: a start takes the older
/// one if the log makes up for it, or refuses.
#[test]
fn missing_file_is_damage_of_its_checkpoint() {
    let mut member = Member::new(Some(1));
    member.put("key", "value");
    let info = member.save().unwrap();
    let checkpoints = member.saver.checkpoints();
    checkpoints.verify(info.position).unwrap();
    member
        .disk
        .flip_bit("values/0000000000000001.values", 3, 1)
        .unwrap();
    let error = checkpoints.verify(info.position).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt, "{error}");
    member
        .disk
        .remove("values/0000000000000001.values")
        .unwrap();
    let error = checkpoints.verify(info.position).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt, "{error}");
    let error = restore(checkpoints, info.position, (1, 1), || ()).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt, "{error}");
}

/// A member of a cluster that is being updated keeps its values where the release before can read them. What has them in
/// files already goes on with it.
#[test]
fn values_go_to_files_once_that_is_allowed() {
    let mut member = Member::new(None);
    let awaiting = |disk: &MemoryDisk| {
        let checkpoints = Checkpoints::new(Arc::new(disk.clone()));
        Saver::new(checkpoints, ValuesTo::FilesOnceAllowed(4))
    };
    member.saver = awaiting(&member.disk);
    member.put("key", "value");
    member.save().unwrap();
    assert_eq!(member.saver.to_files(), None);
    assert_eq!(member.value_files(), [0; 0]);
    assert_eq!(member.saver.checkpoints().readable_since(), "0.1.0");

    member.saver.allow_files(true);
    assert_eq!(member.saver.to_files(), Some(4));
    member.saver.allow_files(false);
    member.put("another", "value");
    member.save().unwrap();
    assert_eq!(member.value_files(), [0; 0], "taken back");

    member.saver.allow_files(true);
    member.put("other", "value");
    member.save().unwrap();
    assert_eq!(member.value_files().len(), 1);
    assert_eq!(member.saver.checkpoints().readable_since(), "0.2.0");

    let next = awaiting(&member.disk);
    next.drop_unused().unwrap();
    assert_eq!(next.to_files(), Some(4), "after a start");
    let never = saver(&member.disk, None);
    never.drop_unused().unwrap();
    assert_eq!(never.to_files(), None);
}
