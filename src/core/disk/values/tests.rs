//! Files of values: readable after any crash once they are finished, gone before that, and no damage is read.

use std::sync::Arc;

use super::*;
use crate::disk::double::{Faults, Keep, MemoryDisk};

fn files(disk: &MemoryDisk) -> ValueFiles {
    ValueFiles::new(Arc::new(disk.clone()))
}

fn written(disk: &MemoryDisk) -> (ValueReader, Vec<(u64, Vec<u8>)>) {
    let mut writer = files(disk).begin().unwrap();
    let values: Vec<Vec<u8>> = vec![b"first".to_vec(), Vec::new(), vec![3; 5000]];
    let places = values.into_iter().map(|value| {
        let offset = writer.put(&value).unwrap();
        (offset, value)
    });
    let places = places.collect();
    (writer.finish().unwrap(), places)
}

fn check(reader: &ValueReader, places: &[(u64, Vec<u8>)]) {
    for (offset, value) in places {
        let read = reader.read(*offset, value.len() as u32).unwrap();
        assert_eq!(read, *value);
    }
}

#[test]
fn finished_file_survives_a_crash() {
    for seed in 0..50 {
        let disk = MemoryDisk::new();
        let (reader, places) = written(&disk);
        check(&reader, &places);
        let keep = match seed {
            0 => Keep::Nothing,
            seed => Keep::Seeded(seed),
        };
        disk.crash(keep);
        check(&files(&disk).open(1).unwrap(), &places);
    }
}

#[test]
fn unfinished_file_is_gone_and_no_number_is_used_twice() {
    let disk = MemoryDisk::new();
    let files = files(&disk);
    let mut writer = files.begin().unwrap();
    writer.put(b"value").unwrap();
    drop(writer);
    assert_eq!(files.list().unwrap(), [0; 0]);
    assert_eq!(files.begin().unwrap().number(), 2, "none is used twice");
    files.open(7).unwrap_err();
    assert_eq!(files.begin().unwrap().number(), 8, "a checkpoint names 7");
    files.are_used(&BTreeSet::from([3, 20]));
    assert_eq!(files.begin().unwrap().number(), 21);
}

/// A value in memory may be in a file that no checkpoint names yet, as after one that found no room.
#[test]
fn file_that_is_open_is_kept() {
    let disk = MemoryDisk::new();
    let files = files(&disk);
    assert!(!files.are_there());
    let mut writer = files.begin().unwrap();
    let offset = writer.put(b"value").unwrap();
    assert!(files.closed().unwrap().is_empty());
    let reader = writer.finish().unwrap();
    let again = files.open(1).unwrap();
    drop(reader);
    assert!(files.closed().unwrap().is_empty());
    assert_eq!(again.read(offset, 5).unwrap(), "value");
    assert_eq!(files.list().unwrap(), [1]);
    assert_eq!(
        files.bytes_beside(&BTreeSet::new()).unwrap(),
        again.length()
    );
    assert_eq!(files.bytes_beside(&BTreeSet::from([1])).unwrap(), 0);
    assert!(files.are_there());
    drop(again);
    assert_eq!(files.closed().unwrap(), BTreeSet::from([1]));
    files.remove(&[1]).unwrap();
    assert_eq!(files.list().unwrap(), [0; 0]);
    assert!(!files.are_there());
}

/// A start that found a shorter file did not look at the older checkpoint.
#[test]
fn file_that_lost_its_end_is_damaged() {
    let disk = MemoryDisk::new();
    let (reader, places) = written(&disk);
    let length = reader.length();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let name = "values/0000000000000001.values";
    let mut bytes = vec![0; length as usize];
    let file = shared.open(name).unwrap();
    crate::disk::device::read_exact(&*file, 0, &mut bytes).unwrap();
    for short in 0..bytes.len() {
        shared.remove(name).unwrap();
        let file = shared.create(name).unwrap();
        file.write_at(0, &bytes[..short]).unwrap();
        let error = files(&disk).open(1).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{short}: {error}");
    }
    let file = shared.open(name).unwrap();
    file.write_at(0, &bytes).unwrap();
    check(&files(&disk).open(1).unwrap(), &places);
    file.write_at(length, b"more").unwrap();
    let error = files(&disk).open(1).unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
}

#[test]
fn every_flipped_bit_is_detected() {
    let disk = MemoryDisk::new();
    let (reader, places) = written(&disk);
    for at in 0..reader.length() {
        for bit in 0..8 {
            let name = "values/0000000000000001.values";
            disk.flip_bit(name, at, bit).unwrap();
            let open = files(&disk).open(1);
            let found = match open {
                Err(error) => Some(error),
                Ok(reader) => places
                    .iter()
                    .find_map(|(offset, value)| reader.read(*offset, value.len() as u32).err()),
            };
            let error = found.unwrap_or_else(|| panic!("bit {bit} of byte {at}"));
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            disk.flip_bit(name, at, bit).unwrap();
        }
    }
    check(&files(&disk).open(1).unwrap(), &places);
}

#[test]
fn value_of_another_place_or_file_is_refused() {
    let disk = MemoryDisk::new();
    let (reader, places) = written(&disk);
    let (offset, value) = &places[0];
    let length = value.len() as u32;
    assert!(reader.read(offset + 1, length).is_err());
    assert!(reader.read(*offset, length - 1).is_err());
    assert!(reader.read(reader.length() - 2, length).is_err());
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let name = |number: u64| format!("values/{number:016x}.values");
    disk.rename(&name(1), &name(2)).unwrap();
    let renamed = ValueFiles::new(Arc::clone(&disk)).open(2).unwrap_err();
    assert!(renamed.to_string().contains("renamed"), "{renamed}");
    let missing = ValueFiles::new(disk).open(1).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
}

#[test]
fn neighbours_are_read_together() {
    let disk = MemoryDisk::new();
    let mut writer = files(&disk).begin().unwrap();
    let value = |number: usize| vec![number as u8; number * number % 90_000];
    let put = |number: usize| {
        let offset = writer.put(&value(number)).unwrap();
        (offset, value(number).len() as u32)
    };
    let places: Vec<(u64, u32)> = (0..400).map(put).collect();
    let reader = writer.finish().unwrap();
    for step in [1, 2, 7, 150] {
        let some: Vec<(u64, u32)> = places.iter().copied().step_by(step).collect();
        let mut found = Vec::new();
        let before = disk.counts().reads;
        let each = |number: usize, read: bytes::Bytes| {
            assert!(read == value(number * step), "{number}");
            found.push(number);
        };
        reader.read_many(&some, each).unwrap();
        assert!(found.iter().copied().eq(0..some.len()));
        let reads = disk.counts().reads - before;
        assert!(step > 1 || reads < 60, "{reads} reads of 400 values");
    }
    let (offset, _) = places[350];
    let name = "values/0000000000000001.values";
    disk.flip_bit(name, offset + 20, 3).unwrap();
    let mut before = 0;
    let failed = reader.read_many(&places, |number, _| before = number + 1);
    let (at, error) = failed.unwrap_err();
    assert_eq!((at, before), (offset, 350), "{error}");
}

/// Whoever heals values learns where they are damaged from those who read them.
#[test]
fn damaged_places_are_known_until_they_are_forgotten() {
    let disk = MemoryDisk::new();
    let files = files(&disk);
    let mut writer = files.begin().unwrap();
    let places: Vec<(u64, u32)> = (0..3)
        .map(|number| (writer.put(&[number; 100]).unwrap(), 100))
        .collect();
    let reader = writer.finish().unwrap();
    let name = "values/0000000000000001.values";
    disk.flip_bit(name, places[1].0 + 20, 3).unwrap();
    reader.read(places[0].0, 100).unwrap();
    assert!(files.damaged().is_empty());
    reader.read(places[1].0, 100).unwrap_err();
    reader.read_many(&places, |_, _| ()).unwrap_err();
    let damaged = files.damaged();
    let text = &damaged[&(1, places[1].0)];
    assert!(text.contains("is damaged at offset"), "{text}");
    assert_eq!(damaged.len(), 1);
    let most = Duration::from_millis(1);
    assert!(!files.wait_until_healed((1, places[1].0), most));
    let waits = files.clone();
    let place = (1, places[1].0);
    let waited =
        std::thread::spawn(move || waits.wait_until_healed(place, Duration::from_secs(60)));
    files.forget(place);
    assert!(waited.join().unwrap());
    assert!(files.damaged().is_empty());
    // What cannot be read together is read one by one: the first of them is the one that is named.
    disk.set_faults(Faults {
        unreadable: Some("values".to_owned()),
        ..Faults::default()
    });
    reader.read_many(&places, |_, _| ()).unwrap_err();
    assert!(files.damaged().into_keys().eq([(1, places[0].0)]));
    drop(reader);
    assert_eq!(files.damaged().len(), 1, "a checkpoint may name it");
}

#[test]
fn newer_format_and_strays_are_named() {
    let disk = MemoryDisk::new();
    drop(written(&disk));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let name = "values/0000000000000001.values";
    let file = shared.open(name).unwrap();
    let mut newer = head(1);
    newer[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let sum = crc32c::crc32c(&newer[8..20]);
    newer[20..].copy_from_slice(&sum.to_le_bytes());
    file.write_at(0, &newer).unwrap();
    let error = files(&disk).open(1).unwrap_err();
    assert!(matches!(error, Error::TooNew { found: 2, .. }), "{error}");
    shared.create("values/notes").unwrap();
    let error = files(&disk).list().unwrap_err();
    assert!(matches!(error, Error::Stray { .. }), "{error}");
}

#[test]
fn failed_write_leaves_nothing() {
    let disk = MemoryDisk::new();
    for fail in 1..=3 {
        disk.set_faults(Faults {
            fail_sync: Some(fail),
            ..Faults::default()
        });
        let mut writer = match files(&disk).begin() {
            Ok(writer) => writer,
            Err(error) => panic!("{error}"),
        };
        writer.put(&[1; 100]).unwrap();
        let finished = writer.finish();
        let synced = disk.counts().syncs;
        if fail <= synced {
            assert!(matches!(finished, Err(Error::Sync { .. })), "sync {fail}");
            assert_eq!(files(&disk).list().unwrap(), [0; 0]);
        }
        disk.set_faults(Faults::default());
        let left = files(&disk).list().unwrap();
        files(&disk).remove(&left).unwrap();
    }
}
