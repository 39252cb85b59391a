//! Reads data directories written by earlier releases, byte for byte.
//!
//! `write_format_1` below wrote `tests/data/disk-format-1`, and documents its content. When a format changes, add a
//! directory and a test; never rewrite an old directory.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate::disk::{
    DataDirectory, FileDisk, Identity, LogOptions, Phase, Position, create_member, open_member,
};
use quorate::raft::{ConfigurationChange, Entry, HardState};

const OPTIONS: LogOptions = LogOptions {
    segment_bytes: 4096,
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/disk-format-1")
}

fn at(index: u64, term: u64) -> Position {
    Position { index, term }
}

fn entries() -> Vec<Entry> {
    let mut entries: Vec<_> = (2..=9)
        .map(|index| Entry::normal(1, index, vec![index as u8; 300]))
        .collect();
    let change = ConfigurationChange::AddLearner(12);
    entries.push(Entry::configuration_change(2, 10, change, "who".into()));
    entries.push(Entry::normal(2, 11, ""));
    entries
}

/// Run with `WRITE_GOLDEN=1`, after removing the directory, to write it.
#[test]
fn write_format_1() {
    let root = golden();
    if std::env::var_os("WRITE_GOLDEN").is_none() || root.exists() {
        return;
    }
    let mut directory = DataDirectory::open(Arc::new(FileDisk::new(&root).unwrap())).unwrap();
    let mut identity = Identity::standby(*b"golden disk 0001", "golden-0");
    directory.store_identity(identity.clone()).unwrap();
    let first = Some((at(1, 1), &b"first meta"[..], vec![b"first".to_vec()]));
    let state = HardState {
        term: 1,
        vote: 0,
        commit: 1,
    };
    let mut files = create_member(&directory, first, state, OPTIONS).unwrap();
    identity.set_phase(Phase::Member);
    (identity.cluster_id, identity.member_id) = (77, 11);
    identity.cluster_uid = "uid".to_owned();
    identity.peer_pins.insert(12, vec![12; 16]);
    directory.store_identity(identity).unwrap();
    // The suffix is replaced, so a reader has to respect the order of the batches.
    files.log.append(None, &entries()[..6]).unwrap();
    files
        .log
        .append(None, &[Entry::normal(1, 8, "replaced")])
        .unwrap();
    let state = HardState {
        term: 2,
        vote: 11,
        commit: 7,
    };
    files.log.append(Some(&state), &[]).unwrap();
    files.log.append(None, &entries()[6..]).unwrap();
    let chunks = [vec![0; 600], b"second".to_vec()];
    files
        .checkpoints
        .write(at(6, 1), b"second meta", chunks)
        .unwrap();
}

#[test]
fn a_format_1_directory_is_read() {
    let temporary = tempfile::tempdir().unwrap();
    copy(&golden(), temporary.path());
    let disk = Arc::new(FileDisk::new(temporary.path()).unwrap());
    let directory = DataDirectory::open(disk).unwrap();
    let identity = directory.identity().unwrap();
    assert_eq!(identity.uuid(), *b"golden disk 0001");
    assert_eq!(
        (identity.phase(), identity.name.as_str()),
        (Phase::Member, "golden-0")
    );
    assert_eq!((identity.cluster_id, identity.member_id), (77, 11));
    assert_eq!(identity.peer_pins[&12], [12; 16]);
    let mut files = open_member(&directory, OPTIONS).unwrap();
    let found = files.checkpoint.unwrap();
    assert_eq!((found.position, found.received), (at(6, 1), false));
    let mut reader = files.checkpoints.open(found.position).unwrap();
    assert_eq!(&reader.meta()[..], b"second meta");
    assert_eq!(reader.next_chunk().unwrap().unwrap().len(), 600);
    assert_eq!(&reader.next_chunk().unwrap().unwrap()[..], b"second");
    assert!(reader.next_chunk().unwrap().is_none());
    assert_eq!(
        files.log.hard_state(),
        HardState {
            term: 2,
            vote: 11,
            commit: 7
        }
    );
    assert_eq!(files.log.tail(0, u64::MAX).unwrap(), entries());
    files
        .log
        .append(None, &[Entry::normal(2, 12, "more")])
        .unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
