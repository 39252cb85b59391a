//! Checkpoints: complete or absent after any crash, damage is found, the choice at start.

use std::sync::Arc;

use super::*;
use crate::disk::double::{Faults, Keep, MemoryDisk};
use crate::raft::Entry;

fn memory() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(CHECKPOINTS).unwrap();
    disk
}

fn checkpoints(disk: &MemoryDisk) -> Checkpoints {
    Checkpoints::new(Arc::new(disk.clone()))
}

fn at(index: u64) -> Position {
    Position { index, term: 2 }
}

fn chunks() -> Vec<Vec<u8>> {
    vec![vec![1; 700], vec![], vec![0; 5000], b"end".to_vec()]
}

/// The log after entry 5 of term 2, up to `last`.
fn shape(last: u64) -> LogShape {
    let mut shape = LogShape::new(5, 2);
    for index in 6..=last {
        shape.append(&Entry::normal(2, index, Vec::new())).unwrap();
    }
    shape
}

#[test]
fn checkpoint_round_trips() {
    let disk = memory();
    let info = checkpoints(&disk).write(at(9), b"meta", chunks()).unwrap();
    let mut reader = checkpoints(&disk).open(at(9)).unwrap();
    assert_eq!(reader.info(), info);
    assert_eq!(&reader.meta()[..], b"meta");
    let read: Vec<_> = reader
        .by_ref()
        .map(|chunk| chunk.unwrap().to_vec())
        .collect();
    assert_eq!(read, chunks());
    let mut writer = checkpoints(&disk).begin(at(10), b"", true).unwrap();
    writer.chunk(b"x").unwrap();
    assert_eq!(writer.chunks(), 1);
    assert!(writer.finish().unwrap().received);
    assert!(checkpoints(&disk).verify(at(10)).unwrap().received);
}

/// A checkpoint from another member was written until the volume was full, however long its sender
/// went on, and the log found no room meanwhile: that ends a server.
#[test]
fn received_checkpoint_leaves_log_space() {
    let disk = memory();
    let kept = checkpoints(&disk).write(at(8), b"", chunks()).unwrap();
    let before = disk.bytes();
    let (capacity, spare) = (before + (16 << 20), 4 << 20);
    disk.set_faults(Faults {
        capacity: Some(capacity),
        ..Faults::default()
    });
    let writer = checkpoints(&disk).begin(at(9), b"meta", true).unwrap();
    let mut writer = writer.leaving(spare);
    let chunk = vec![7; 1 << 20];
    let error = (0..1000)
        .find_map(|_| writer.chunk(&chunk).err())
        .expect("it does not fit");
    assert_eq!(error.class(), crate::disk::Class::DiskFull);
    let text = error.to_string();
    assert!(
        text.contains("for the log") && text.contains("enlarge the volume"),
        "{text}"
    );
    assert!(disk.free_bytes().unwrap() >= spare, "{text}");
    drop(writer);
    assert_eq!(disk.bytes(), before, "it is gone");
    assert_eq!(checkpoints(&disk).verify(at(8)).unwrap(), kept);
    // One that fits is whole.
    let writer = checkpoints(&disk).begin(at(9), b"meta", true).unwrap();
    let mut writer = writer.leaving(spare);
    (0..10).for_each(|_| writer.chunk(&chunk).unwrap());
    writer.finish().unwrap();
}

#[test]
fn unfinished_checkpoint_leaves_nothing() {
    let disk = memory();
    let mut writer = checkpoints(&disk).begin(at(9), b"meta", false).unwrap();
    writer.chunk(&[3; 2000]).unwrap();
    drop(writer);
    assert!(disk.list(CHECKPOINTS).unwrap().is_empty());
}

/// Stopped anywhere, torn anyhow: a checkpoint is whole or not there, and the one before it is
/// untouched.
#[test]
fn crash_leaves_a_whole_checkpoint_or_none() {
    let disk = memory();
    checkpoints(&disk).write(at(6), b"old", chunks()).unwrap();
    let (mut whole, mut absent) = (0, 0);
    for stop in 1..12 {
        for write in [false, true] {
            let fork = disk.fork();
            let mut faults = Faults::default();
            *(if write {
                &mut faults.stop_at_write
            } else {
                &mut faults.stop_at_sync
            }) = Some(stop);
            fork.set_faults(faults);
            let acknowledged = checkpoints(&fork).write(at(9), b"new", chunks()).is_ok();
            for seed in 0..20 {
                let after = fork.fork();
                after.crash(Keep::Seeded(seed));
                frame::remove_temporaries(&after, CHECKPOINTS).unwrap();
                for named in checkpoints(&after).list().unwrap() {
                    let whole = checkpoints(&after).verify(named);
                    assert!(whole.is_ok(), "stop {stop} {write} seed {seed}: {whole:?}");
                }
                let chosen = checkpoints(&after).select(&shape(9)).unwrap().unwrap();
                if chosen.position == at(9) {
                    whole += 1;
                } else {
                    assert_eq!(chosen.position, at(6));
                    assert!(!acknowledged, "stop {stop} {write} seed {seed}");
                    absent += 1;
                }
            }
        }
    }
    assert!(whole > 20 && absent > 20, "{whole} whole, {absent} absent");
}

#[test]
fn every_flipped_bit_is_detected() {
    let disk = memory();
    let info = checkpoints(&disk).write(at(9), b"meta", chunks()).unwrap();
    for offset in 0..info.bytes {
        let fork = disk.fork();
        fork.flip_bit(&name(at(9)), offset, offset as u8).unwrap();
        let error = checkpoints(&fork).verify(at(9)).unwrap_err();
        assert!(
            matches!(error, Error::Corrupt { .. } | Error::TooNew { .. }),
            "{offset}: {error}"
        );
    }
}

#[test]
fn wrong_file_length_is_detected() {
    let disk = memory();
    checkpoints(&disk).write(at(9), b"meta", chunks()).unwrap();
    let bytes = disk.contents(&name(at(9))).unwrap();
    for length in (0..bytes.len()).step_by(97) {
        disk.plant(&name(at(9)), &bytes[..length]);
        assert!(
            matches!(checkpoints(&disk).verify(at(9)), Err(Error::Corrupt { .. })),
            "{length}"
        );
    }
    disk.plant(&name(at(9)), &[&bytes[..], &[0]].concat());
    assert!(matches!(
        checkpoints(&disk).verify(at(9)),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn damaged_newest_checkpoint_needs_the_log() {
    let disk = memory();
    checkpoints(&disk).write(at(6), b"", chunks()).unwrap();
    checkpoints(&disk).write(at(9), b"", chunks()).unwrap();
    assert_eq!(
        checkpoints(&disk)
            .select(&shape(9))
            .unwrap()
            .unwrap()
            .position,
        at(9)
    );
    disk.flip_bit(&name(at(9)), 300, 1).unwrap();
    assert_eq!(
        checkpoints(&disk)
            .select(&shape(9))
            .unwrap()
            .unwrap()
            .position,
        at(6)
    );
    let error = checkpoints(&disk).select(&shape(8)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the older checkpoint and the log do not cover it"),
        "{error}"
    );
    let gone = LogShape::new(7, 2);
    assert!(checkpoints(&disk).select(&gone).is_err());
    disk.flip_bit(&name(at(6)), 300, 1).unwrap();
    assert!(checkpoints(&disk).select(&shape(9)).is_err());
}

#[test]
fn two_checkpoints_are_kept() {
    let disk = memory();
    for index in [6, 7, 8] {
        checkpoints(&disk).write(at(index), b"", chunks()).unwrap();
    }
    assert_eq!(checkpoints(&disk).prune(at(8)).unwrap(), at(7));
    assert_eq!(checkpoints(&disk).list().unwrap(), [at(8), at(7)]);
    // An open one stays readable when it is removed.
    let reader = checkpoints(&disk).open(at(7)).unwrap();
    checkpoints(&disk).write(at(9), b"", chunks()).unwrap();
    assert_eq!(checkpoints(&disk).prune(at(9)).unwrap(), at(8));
    assert_eq!(
        reader
            .map(|chunk| chunk.unwrap().to_vec())
            .collect::<Vec<_>>(),
        chunks()
    );
}

#[test]
fn full_disk_keeps_the_old_file() {
    let disk = memory();
    checkpoints(&disk).write(at(6), b"", chunks()).unwrap();
    disk.set_faults(Faults {
        capacity: Some(8000),
        ..Faults::default()
    });
    let error = checkpoints(&disk).write(at(9), b"", chunks()).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(checkpoints(&disk).list().unwrap(), [at(6)]);
}

/// While one thread looked which files were unused, another one finished a checkpoint with its file: the file was neither
/// named when the checkpoints were read nor open when it was listed, and was removed.
#[test]
fn file_that_is_finished_meanwhile_is_kept() {
    let disk = memory();
    let checkpoints = checkpoints(&disk);
    let unused = checkpoints.values().begin().unwrap().finish().unwrap();
    let number = unused.number();
    drop(unused);
    let file = checkpoints.values().begin().unwrap();
    let named = file.number();
    let mut writer = checkpoints
        .begin_with(at(6), (b"", &[named]), true)
        .unwrap();
    writer.chunk(b"chunk").unwrap();
    let file = file.finish().unwrap();
    let closed = checkpoints.values().closed().unwrap();
    writer.finish().unwrap();
    drop(file);
    checkpoints.drop_unnamed(&closed).unwrap();
    assert_eq!(
        checkpoints.values().list().unwrap(),
        [named],
        "{number} is unused"
    );
    checkpoints.verify(at(6)).unwrap();
}

/// A member with 2Gi of keys on a volume of 8Gi wrote a checkpoint, as it does every so often. What it
/// had written so far counted as space that was lost, and all of the cluster's writes were refused.
#[test]
fn checkpoint_in_progress_takes_no_room() {
    let disk = memory();
    let passing = || checkpoints(&disk).passing_bytes().unwrap();
    let size = |name: &str| disk.open(name).unwrap().length().unwrap();
    let write = |index| checkpoints(&disk).write(at(index), b"", chunks()).unwrap();
    write(6);
    write(9);
    assert_eq!(passing(), 0, "two are kept");
    let unfinished = disk.create(&format!("{}.tmp", name(at(12)))).unwrap();
    unfinished.write_at(0, &[1; 512]).unwrap();
    assert_eq!(passing(), 512, "it is being written");
    disk.remove(&format!("{}.tmp", name(at(12)))).unwrap();
    write(12);
    assert_eq!(passing(), size(&name(at(6))), "the oldest goes");
    checkpoints(&disk).prune(at(12)).unwrap();
    assert_eq!(passing(), 0);
}

#[test]
fn kept_bytes_are_those_of_two_checkpoints_and_of_values() {
    let disk = memory();
    let kept = || checkpoints(&disk).kept_bytes().unwrap();
    let size = |index| disk.open(&name(at(index))).unwrap().length().unwrap();
    let write = |index| checkpoints(&disk).write(at(index), b"", chunks()).unwrap();
    assert_eq!(kept(), 0);
    write(6);
    assert_eq!(kept(), size(6));
    write(9);
    write(12);
    assert_eq!(kept(), size(9) + size(12), "the oldest goes");
}
