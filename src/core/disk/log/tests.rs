//! The log against the crash-testing disk: a scripted workload stopped at every write and every
//! sync, torn by many seeds; damage of each kind; retention and reads.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::*;
use crate::disk::directory::{CHECKPOINTS, LOG};
use crate::disk::double::{Faults, Keep, MemoryDisk};
use crate::disk::error::Class;

const UUID: [u8; 16] = [7; 16];
const SMALL: LogOptions = LogOptions {
    segment_bytes: 4096,
};

fn memory() -> MemoryDisk {
    let disk = MemoryDisk::new();
    for directory in [LOG, CHECKPOINTS] {
        disk.create_directory(directory).unwrap();
    }
    disk
}

fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn create(disk: &MemoryDisk) -> Log {
    create_with(disk, SMALL)
}

fn create_with(disk: &MemoryDisk, options: LogOptions) -> Log {
    Log::create(
        shared(disk),
        UUID,
        HardState::default(),
        Position::default(),
        options,
    )
    .unwrap()
}

fn segments_of(mib: u64) -> LogOptions {
    LogOptions {
        segment_bytes: mib << 20,
    }
}

fn open(disk: &MemoryDisk) -> Result<Log> {
    crate::disk::frame::remove_temporaries(disk, LOG)?;
    Log::open(shared(disk), UUID, SMALL)
}

fn state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

fn entry(index: u64, term: u64, size: usize) -> Entry {
    // Zeros on purpose: values must not look like sectors that were never written.
    let fill = if index.is_multiple_of(2) {
        0
    } else {
        index as u8
    };
    Entry::normal(term, index, vec![fill; size])
}

fn all(log: &Log) -> Vec<Entry> {
    log.tail(0, u64::MAX).unwrap()
}

/// Index, term and length of each entry: enough to compare, short enough to read.
fn brief(log: &Log) -> Vec<(u64, u64, usize)> {
    all(log)
        .iter()
        .map(|entry| (entry.index, entry.term, entry.data.len()))
        .collect()
}

/// One call of the workload.
#[derive(Clone, Debug)]
enum Act {
    Append(Option<HardState>, Vec<Entry>),
    Prepare,
    DropBefore(u64),
    Reset(Position),
    Reopen,
}

/// Elections, appends of many sizes, an overwritten suffix, segment changes, a dropped prefix, a
/// restart and an installed snapshot.
fn script() -> Vec<Act> {
    let run = |term, range: std::ops::Range<u64>, size| {
        range
            .map(|index| entry(index, term, size))
            .collect::<Vec<_>>()
    };
    vec![
        Act::Append(Some(state(1, 3, 0)), vec![]),
        Act::Append(None, run(1, 1..2, 0)),
        Act::Append(Some(state(1, 3, 1)), run(1, 2..5, 100)),
        Act::Append(None, run(1, 5..8, 700)),
        Act::Prepare,
        Act::Append(Some(state(2, 0, 3)), vec![]),
        Act::Append(Some(state(2, 5, 3)), vec![]),
        Act::Append(None, run(2, 6..8, 300)),
        Act::Append(None, run(2, 8..9, 9000)),
        Act::Append(Some(state(2, 5, 8)), run(2, 9..12, 30)),
        Act::DropBefore(8),
        Act::Append(Some(state(3, 0, 8)), run(3, 10..14, 400)),
        Act::Reopen,
        Act::Append(None, run(3, 14..16, 600)),
        Act::Append(Some(state(4, 2, 9)), run(4, 12..13, 1)),
        Act::Reset(Position { index: 40, term: 4 }),
        Act::Append(Some(state(4, 2, 40)), run(4, 41..44, 511)),
        Act::Append(None, run(4, 44..45, 1022)),
    ]
}

/// What must be on the disk: the state after the last acknowledged act, or after the act that
/// was under way.
#[derive(Clone, Debug, Default)]
struct Expected {
    floor: Position,
    entries: Vec<Entry>,
    state: HardState,
}

impl Expected {
    fn act(&mut self, act: &Act) {
        match act {
            Act::Append(state, entries) => {
                self.state = state.unwrap_or(self.state);
                if let Some(first) = entries.first() {
                    self.entries.retain(|entry| entry.index < first.index);
                    self.entries.extend_from_slice(entries);
                }
            }
            Act::Reset(floor) => {
                self.floor = *floor;
                self.entries.clear();
            }
            Act::Prepare | Act::DropBefore(_) | Act::Reopen => {}
        }
    }

    /// Every expected entry from `from` on, in order, and nothing else.
    fn matches(&self, log: &Log, from: u64) -> bool {
        let wanted: Vec<_> = self.entries.iter().filter(|e| e.index >= from).collect();
        let found = all(log);
        let found: Vec<_> = found.iter().filter(|e| e.index >= from).collect();
        let hard = log.hard_state();
        wanted == found
            && (hard.term, hard.vote) == (self.state.term, self.state.vote)
            && (self.entries.is_empty() || log.shape().floor() < from.max(self.floor.index + 1))
    }
}

fn run_act(disk: &MemoryDisk, log: &mut Log, act: &Act) -> Result<()> {
    match act {
        Act::Append(state, entries) => log.append(state.as_ref(), entries),
        Act::Prepare => log.preparer().prepare(&mut |_| ControlFlow::Continue(())),
        Act::DropBefore(index) => log.drop_before(*index),
        Act::Reset(floor) => log.reset(*floor),
        Act::Reopen => open(disk).map(|opened| *log = opened),
    }
}

/// Runs the script on `disk` until an error; returns how many acts were acknowledged.
fn run_script(disk: &MemoryDisk, log: &mut Log) -> (usize, Option<Error>) {
    for (done, act) in script().iter().enumerate() {
        if let Err(error) = run_act(disk, log, act) {
            return (done, Some(error));
        }
    }
    (script().len(), None)
}

/// After a crash in act number `acked`: everything acknowledged exists, complete and in order.
fn check_after_crash(disk: &MemoryDisk, acked: usize, case: &str) -> Log {
    let script = script();
    let mut before = Expected::default();
    script[..acked].iter().for_each(|act| before.act(act));
    let mut after = before.clone();
    if let Some(act) = script.get(acked) {
        after.act(act);
    }
    let dropped = script[..script.len().min(acked + 1)]
        .iter()
        .fold(1, |from, act| match act {
            Act::DropBefore(index) => *index,
            _ => from,
        });
    let log = open(disk).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(
        before.matches(&log, dropped) || after.matches(&log, dropped),
        "{case}: {:?} {:?}, expected {before:?} or {after:?}",
        log.hard_state(),
        all(&log)
            .iter()
            .map(|e| (e.index, e.term))
            .collect::<Vec<_>>(),
    );
    log
}

fn totals() -> (u64, u64) {
    let disk = memory();
    let mut log = create(&disk);
    disk.set_faults(Faults::default());
    let (done, error) = run_script(&disk, &mut log);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(done, script().len());
    (disk.counts().writes, disk.counts().syncs)
}

fn keeps() -> Vec<Keep> {
    [Keep::Nothing, Keep::Everything]
        .into_iter()
        .chain((0..40).map(Keep::Seeded))
        .collect()
}

/// The log's own syncs share the disk with those of the next segment's zeros: those of a whole segment at once made
/// writes wait 30 ms once per 64 MiB.
#[test]
fn zeros_are_synced_piece_by_piece() {
    let disk = memory();
    let log = create_with(&disk, segments_of(20));
    let before = disk.counts().syncs;
    let mut pauses = Vec::new();
    let mut pause = |done: u64| {
        pauses.push((done >> 20, disk.counts().syncs - before));
        ControlFlow::Continue(())
    };
    log.preparer().prepare(&mut pause).unwrap();
    let expected: Vec<_> = (1..20).map(|mib| (mib, mib)).collect();
    assert_eq!(pauses, expected, "after each MiB but the last");
    assert!(log.preparer().is_ready());
}

/// A process that ends does not wait for what it will not use.
#[test]
fn preparation_can_be_ended() {
    let disk = memory();
    let log = create_with(&disk, segments_of(20));
    let files = || disk.list(LOG).unwrap().len();
    let before = files();
    let mut pause = |done: u64| match done >> 20 {
        3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    log.preparer().prepare(&mut pause).unwrap();
    assert!(!log.preparer().is_ready());
    assert_eq!(files(), before);
}

/// What has not been prepared once the log needs it is written while its clients wait.
#[test]
fn preparation_keeps_pace_with_the_log() {
    let disk = memory();
    let mut log = create_with(&disk, segments_of(1));
    let state = state(1, 0, 0);
    // KiB of zeros that are enough.
    let enough = |log: &Log| {
        let is_ahead = |kib: &u64| log.preparer().is_ahead(kib << 10);
        (0..=1024).step_by(64).find(is_ahead)
    };
    let mut seen = Vec::new();
    for index in 1..=9 {
        let entry = entry(index, 1, 128 << 10);
        log.append(Some(&state), &[entry]).unwrap();
        seen.push((log.wants_segment(), enough(&log)));
    }
    let expected = [
        (false, Some(0)),
        (true, Some(64)),
        (true, Some(320)),
        (true, Some(576)),
        (true, Some(832)),
        (true, None),
        (true, None),
    ];
    assert_eq!(seen[..7], expected, "the eighth does not fit");
    assert_eq!(seen[7], (false, Some(0)), "of the next segment");
}

#[test]
fn crash_at_every_write_loses_nothing() {
    let (writes, syncs) = totals();
    assert!(writes > 20 && syncs > 20, "{writes} writes, {syncs} syncs");
    let stops = (1..=syncs)
        .map(|n| Faults {
            stop_at_sync: Some(n),
            ..Faults::default()
        })
        .chain((1..=writes).map(|n| Faults {
            stop_at_write: Some(n),
            ..Faults::default()
        }));
    let mut torn = 0;
    for faults in stops {
        let disk = memory();
        let mut log = create(&disk);
        disk.set_faults(faults.clone());
        let (acked, error) = run_script(&disk, &mut log);
        assert!(error.is_some(), "{faults:?} did not stop the script");
        drop(log);
        for keep in keeps() {
            let fork = disk.fork();
            fork.crash(keep);
            let case = format!("{faults:?} {keep:?} in act {acked}");
            let mut log = check_after_crash(&fork, acked, &case);
            torn += u32::from(log.was_torn());
            // And it goes on: a second crash right away loses nothing either.
            let last = log.shape().last();
            let term = log.hard_state().term.max(1);
            let more = entry(last + 1, term.max(log.shape().last_term()), 600);
            log.append(
                Some(&state(term, log.hard_state().vote, 0)),
                std::slice::from_ref(&more),
            )
            .unwrap_or_else(|error| panic!("{case}: {error}"));
            fork.crash(Keep::Nothing);
            let log = open(&fork).unwrap_or_else(|error| panic!("{case}, again: {error}"));
            assert_eq!(all(&log).last(), Some(&more), "{case}");
        }
    }
    assert!(
        torn > 50,
        "only {torn} torn tails: the test does not reach what it is for"
    );
}

#[test]
fn crash_while_opening_loses_nothing() {
    let disk = memory();
    let mut log = create(&disk);
    assert!(run_script(&disk, &mut log).1.is_none());
    let acked = script().len();
    for stop in 1..40 {
        for write in [false, true] {
            let fork = disk.fork();
            fork.crash(Keep::Nothing);
            let mut faults = Faults::default();
            *(if write {
                &mut faults.stop_at_write
            } else {
                &mut faults.stop_at_sync
            }) = Some(stop);
            fork.set_faults(faults);
            if open(&fork).is_ok() {
                continue;
            }
            for keep in keeps() {
                let again = fork.fork();
                again.crash(keep);
                check_after_crash(
                    &again,
                    acked,
                    &format!("opening, stop {stop} {write} {keep:?}"),
                );
            }
        }
    }
}

#[test]
fn failed_sync_is_final_until_a_restart() {
    let (_, syncs) = totals();
    for n in 1..=syncs {
        let disk = memory();
        let mut log = create(&disk);
        disk.set_faults(Faults {
            fail_sync: Some(n),
            ..Faults::default()
        });
        let (acked, error) = run_script(&disk, &mut log);
        let error = error.unwrap();
        assert_eq!(error.class(), Class::Fsync, "sync {n}: {error}");
        if !matches!(script()[acked], Act::Reopen | Act::Prepare) {
            let again = log.append(Some(&state(9, 0, 0)), &[]);
            assert!(matches!(again, Err(Error::Failed { .. })), "sync {n}");
        }
        // The process restarts and reads pages that never reached the disk; the data that it uses must survive the
        // following power loss.
        disk.crash_process();
        let log = check_after_crash(&disk, acked, &format!("failed sync {n}"));
        let seen = brief(&log);
        disk.crash(Keep::Nothing);
        let log = open(&disk).unwrap_or_else(|error| panic!("sync {n}: {error}"));
        // Dropped segments may come back; nothing else may.
        let found: Vec<_> = brief(&log).into_iter().filter(|e| e.0 >= 8).collect();
        let seen: Vec<_> = seen.into_iter().filter(|e| e.0 >= 8).collect();
        assert_eq!(found, seen, "sync {n}");
    }
}

/// A log of three segments with synced batches in each.
fn full_disk() -> (MemoryDisk, Vec<Entry>) {
    let disk = memory();
    let mut log = create(&disk);
    log.append(Some(&state(1, 1, 0)), &[]).unwrap();
    for index in 1..=14 {
        log.append(None, &[entry(index, 1, 700)]).unwrap();
    }
    assert!(log.segments().len() >= 3, "{:?}", log.segments());
    let entries = all(&log);
    disk.crash(Keep::Nothing);
    (disk, entries)
}

/// Every single flipped bit of written data is an error that names the file and a position near it; none is ever
/// treated as a torn tail.
#[test]
fn flipped_bits_are_refused() {
    let (disk, entries) = full_disk();
    let names = disk.list(LOG).unwrap();
    for name in names.iter().map(|name| format!("{LOG}/{name}")) {
        let bytes = disk.contents(&name).unwrap();
        let used: BTreeSet<usize> = (0..bytes.len())
            .step_by(SECTOR)
            .filter(|at| bytes[*at..at + SECTOR].iter().any(|byte| *byte != 0))
            .collect();
        for sector in used {
            for offset in [0, 1, 9, 60, 300, 511] {
                let fork = disk.fork();
                let at = (sector + offset) as u64;
                fork.flip_bit(&name, at, (sector / SECTOR) as u8).unwrap();
                match open(&fork) {
                    Ok(log) => {
                        // Only bytes of a head's unused rest mean nothing.
                        assert!(sector == 0 && offset >= 96, "{name} at {at} went unnoticed");
                        assert_eq!(all(&log), entries);
                    }
                    Err(Error::Corrupt { file, .. }) => assert!(file.ends_with(&name), "{file}"),
                    Err(Error::TooNew { .. } | Error::Foreign { .. }) => assert_eq!(sector, 0),
                    Err(other) => panic!("{name} at {at}: {other}"),
                }
            }
        }
    }
}

/// A lost sector is a torn tail in the very last batch alone.
#[test]
fn zeroed_sectors_mid_log_are_refused() {
    let (disk, entries) = full_disk();
    let names = disk.list(LOG).unwrap();
    let (mut refused, mut torn) = (0, 0);
    for name in names.iter().map(|name| format!("{LOG}/{name}")) {
        let bytes = disk.contents(&name).unwrap();
        for sector in 0..bytes.len() / SECTOR {
            if bytes[sector * SECTOR..][..SECTOR]
                .iter()
                .all(|byte| *byte == 0)
            {
                continue;
            }
            let fork = disk.fork();
            fork.zero_sector(&name, sector as u64).unwrap();
            match open(&fork) {
                Err(error) => {
                    assert_eq!(error.class(), Class::Corrupt, "{error}");
                    refused += 1;
                }
                Ok(log) => {
                    assert!(log.was_torn());
                    assert_eq!(all(&log), entries[..entries.len() - 1]);
                    torn += 1;
                }
            }
        }
    }
    assert_eq!(torn, 2, "the last batch has two sectors");
    assert!(refused > 20);
}

#[test]
fn missing_segment_is_refused() {
    let (disk, _) = full_disk();
    let names = disk.list(LOG).unwrap();
    let middle = format!("{LOG}/{}", names[1]);
    disk.remove(&middle).unwrap();
    let error = open(&disk).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let empty = memory();
    let error = open(&empty).unwrap_err();
    assert!(error.to_string().contains("the log is gone"), "{error}");
}

#[test]
fn foreign_and_newer_segments_are_refused() {
    let (disk, _) = full_disk();
    let error = Log::open(shared(&disk), [8; 16], SMALL).unwrap_err();
    assert_eq!(error.class(), Class::ForeignDisk);
    let name = format!("{LOG}/{}", disk.list(LOG).unwrap()[0]);
    let mut bytes = disk.contents(&name).unwrap();
    bytes[8] = 2;
    disk.plant(&name, &bytes);
    let error = open(&disk).unwrap_err();
    assert_eq!(
        error.class(),
        Class::Corrupt,
        "a number that rotted: {error}"
    );
    let sum = segment::checksum(2, &bytes[16..16 + segment::FIELDS]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    disk.plant(&name, &bytes);
    let error = open(&disk).unwrap_err();
    assert_eq!(error.class(), Class::TooNew);
    assert!(
        matches!(
            error,
            Error::TooNew {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn full_disk_stops_the_log_and_loses_nothing() {
    let disk = memory();
    let mut log = create(&disk);
    log.append(Some(&state(1, 0, 0)), &[]).unwrap();
    disk.set_faults(Faults {
        capacity: Some(3 * 4096 - 100),
        ..Faults::default()
    });
    let mut written = 0;
    let error = loop {
        match log.append(None, &[entry(written + 1, 1, 900)]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), Class::DiskFull);
    assert!(written > 2, "{written}");
    assert!(matches!(
        log.append(None, &[entry(written + 1, 1, 1)]),
        Err(Error::Failed { .. })
    ));
    disk.crash(Keep::Nothing);
    assert_eq!(all(&open(&disk).unwrap()).len() as u64, written);
}

#[test]
fn unreadable_segments_are_errors() {
    let (disk, _) = full_disk();
    let log = open(&disk).unwrap();
    disk.set_faults(Faults {
        unreadable: Some(".log".to_owned()),
        ..Faults::default()
    });
    assert_eq!(log.read(1, 3, 1).unwrap_err().class(), Class::Io);
    assert_eq!(open(&disk).unwrap_err().class(), Class::Io);
}

#[test]
fn log_reads_are_bounded() {
    let (disk, entries) = full_disk();
    let log = open(&disk).unwrap();
    let reader = log.reader();
    assert_eq!(reader.read(1, 15, u64::MAX).unwrap(), entries);
    assert_eq!(reader.read(3, 9, 0).unwrap(), entries[2..3]);
    assert_eq!(
        reader.read(3, 9, 2 * entries[0].cost()).unwrap(),
        entries[2..4]
    );
    assert_eq!(reader.read(3, 5, u64::MAX).unwrap(), entries[2..4]);
    assert!(matches!(
        reader.read(14, 16, u64::MAX),
        Err(Error::NotInLog { .. })
    ));
    assert!(matches!(
        reader.read(0, 2, u64::MAX),
        Err(Error::NotInLog { .. })
    ));
}

/// A start reads the newest entries alone, whatever else lies behind the checkpoint.
#[test]
fn tail_ends_with_the_log_and_is_within_its_limit() {
    let disk = memory();
    let mut log = create(&disk);
    for first in [1, 4, 7] {
        let batch: Vec<Entry> = (first..first + 3).map(|at| entry(at, 1, 100)).collect();
        log.append(Some(&state(1, 0, 0)), &batch).unwrap();
    }
    // A new leader replaced the middle of the second batch and what came after it.
    log.append(Some(&state(2, 0, 0)), &[entry(5, 2, 200), entry(6, 2, 300)])
        .unwrap();
    let log = open(&disk).unwrap();
    let indexes = |after: u64, bytes: u64| -> Vec<(u64, u64)> {
        let tail = log.tail(after, bytes).unwrap();
        tail.iter().map(|entry| (entry.index, entry.term)).collect()
    };
    let last = entry(6, 2, 300).cost();
    let two = last + entry(5, 2, 200).cost();
    let three = two + entry(4, 1, 100).cost();
    assert_eq!(indexes(0, last - 1), []);
    assert_eq!(indexes(0, last), [(6, 2)]);
    assert_eq!(indexes(0, two), [(5, 2), (6, 2)]);
    assert_eq!(indexes(0, three), [(4, 1), (5, 2), (6, 2)]);
    assert_eq!(indexes(3, u64::MAX), [(4, 1), (5, 2), (6, 2)]);
    assert_eq!(indexes(4, u64::MAX), [(5, 2), (6, 2)]);
    assert_eq!(indexes(6, u64::MAX), []);
    assert_eq!(indexes(0, u64::MAX).len(), 6);
    assert_eq!(indexes(u64::MAX, u64::MAX), []);
}

/// A leader replaced entries on both sides of a change of segments, and those before it were dropped: what is left of its
/// batch begins in the middle.
#[test]
fn tail_begins_behind_what_was_dropped() {
    let disk = memory();
    let mut log = create(&disk);
    let batch = |range: std::ops::RangeInclusive<u64>, term, size| -> Vec<Entry> {
        range.map(|index| entry(index, term, size)).collect()
    };
    let mut first = 1;
    // Until the next segment has begun.
    while log.segments().len() == 1 {
        log.append(Some(&state(1, 0, 0)), &batch(first..=first, 1, 100))
            .unwrap();
        first += 1;
    }
    let begun = log.segments()[1].1.index + 1;
    log.append(Some(&state(2, 0, 0)), &batch(begun - 2..=begun + 1, 2, 10))
        .unwrap();
    log.drop_before(begun).unwrap();
    assert_eq!(log.segments().len(), 1);
    assert!(log.reader().first_index() > begun - 2);
    let tail = log.tail(0, u64::MAX).unwrap();
    let ends = [tail.first(), tail.last()].map(|entry| entry.unwrap().index);
    assert_eq!(ends, [log.reader().first_index(), begun + 1]);
}

#[test]
fn dropped_segments_are_gone() {
    let (disk, entries) = full_disk();
    let mut log = open(&disk).unwrap();
    let (before, bytes) = (log.segments().len(), log.disk_bytes());
    log.drop_before(9).unwrap();
    assert!(log.segments().len() < before && log.disk_bytes() < bytes);
    assert!(log.reader().first_index() <= 9);
    assert_eq!(log.read(9, 15, u64::MAX).unwrap(), entries[8..]);
    assert!(matches!(log.read(1, 3, 1), Err(Error::NotInLog { .. })));
    disk.crash(Keep::Nothing);
    let log = open(&disk).unwrap();
    assert_eq!(log.read(9, 15, u64::MAX).unwrap(), entries[8..]);
    assert_eq!(log.shape().term(8), Some(1));
}

/// The removal of a segment whose sync failed never reaches the disk; the removal of the next one
/// does. After a power loss the first is back and the second is not: no hole in the log.
#[test]
fn reappearing_dropped_segments_are_ignored() {
    let (disk, entries) = full_disk();
    let mut log = open(&disk).unwrap();
    disk.set_faults(Faults {
        fail_sync: Some(1),
        ..Faults::default()
    });
    assert_eq!(log.drop_before(5).unwrap_err().class(), Class::Fsync);
    disk.crash_process();
    let mut log = open(&disk).unwrap();
    assert!(log.reader().first_index() > 1);
    log.drop_before(9).unwrap();
    disk.crash(Keep::Nothing);
    assert!(
        disk.list(LOG).unwrap()[0].starts_with("0000000000000001"),
        "it did not come back"
    );
    let log = open(&disk).unwrap();
    assert_eq!(log.read(9, 15, u64::MAX).unwrap(), entries[8..]);
}

#[test]
fn hard_state_never_goes_back() {
    let disk = memory();
    let mut log = create(&disk);
    log.append(Some(&state(3, 2, 0)), &[entry(1, 3, 5)])
        .unwrap();
    let refused = |log: &mut Log, hard: Option<HardState>, entries: &[Entry]| {
        let error = log.append(hard.as_ref(), entries).unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
    };
    refused(&mut log, Some(state(2, 0, 0)), &[]);
    refused(&mut log, Some(state(3, 1, 0)), &[]);
    refused(&mut log, Some(state(3, 0, 0)), &[]);
    refused(&mut log, None, &[entry(3, 3, 1)]);
    refused(&mut log, None, &[entry(0, 3, 1)]);
    refused(&mut log, None, &[entry(2, 2, 1)]);
    refused(&mut log, None, &[entry(2, 4, 1)]);
    refused(&mut log, None, &[entry(2, 3, 1), entry(4, 3, 1)]);
    // None of them left a trace.
    log.append(Some(&state(4, 1, 1)), &[entry(2, 4, 1)])
        .unwrap();
    assert_eq!(log.hard_state(), state(4, 1, 1));
}

#[test]
fn commit_hint_alone_costs_no_write() {
    let disk = memory();
    let mut log = create(&disk);
    log.append(Some(&state(1, 1, 0)), &[entry(1, 1, 1)])
        .unwrap();
    disk.set_faults(Faults::default());
    log.append(Some(&state(1, 1, 1)), &[]).unwrap();
    assert_eq!(disk.counts().syncs + disk.counts().writes, 0);
    log.append(Some(&state(1, 1, 1)), &[entry(2, 1, 1)])
        .unwrap();
    assert_eq!(
        (disk.counts().writes, disk.counts().syncs),
        (1, 1),
        "one write, one sync"
    );
    disk.crash(Keep::Nothing);
    assert_eq!(open(&disk).unwrap().hard_state(), state(1, 1, 1));
}

/// A disk that lies about syncs must make these tests fail: they can.
#[test]
fn simulated_disk_can_lose_synced_writes() {
    let disk = memory();
    let mut log = create(&disk);
    disk.set_faults(Faults {
        lying_syncs: true,
        ..Faults::default()
    });
    log.append(Some(&state(1, 1, 0)), &[entry(1, 1, 1)])
        .unwrap();
    disk.crash(Keep::Nothing);
    assert!(
        all(&open(&disk).unwrap()).is_empty(),
        "the double lost nothing"
    );
}
