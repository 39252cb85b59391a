//! A snapshot arrives in pieces, across restarts of the server that receives it, and counts only once all of it was
//! checked.

use sha2::{Digest as _, Sha256};

use super::*;
use crate::bolt::HEAD_BYTES;
use crate::disk::Checkpoints;
use crate::node::{InitialMember, Membership};
use crate::persist::ValuesTo;
use crate::raft::Position;
use crate::snapshot::{Contents, export};
use crate::store::{Command, Operation, Put};

/// A database with so many keys, with the digest behind it that a saved snapshot has.
pub(in crate::server::member_runtime) fn database(keys: u64) -> Vec<u8> {
    let mut store = Store::default();
    for number in 1..=keys {
        let put = Put {
            key: format!("key-{number:04}").into(),
            value: vec![b'v'; 1000].into(),
            ..Put::default()
        };
        let command = Command {
            operation: Some(Operation::Put(put)),
            ..Command::default()
        };
        let at = Position {
            index: number + 1,
            term: 1,
        };
        store.apply(&command, at).expect("a put");
    }
    let member = InitialMember {
        name: "old".to_owned(),
        peer_urls: vec!["http://old:2380".to_owned()],
        ..InitialMember::default()
    };
    let contents = Contents {
        view: store.publish(),
        membership: Arc::new(Membership::bootstrap("", 0, "t", &[member]).expect("one member")),
        index: keys + 1,
        term: 1,
    };
    let mut bytes = vec![0; HEAD_BYTES];
    let exported = export(&contents, |more| {
        bytes.extend_from_slice(more);
        Ok(())
    });
    let (head, length) = exported.expect("a database");
    bytes[..head.len()].copy_from_slice(&head);
    assert_eq!(bytes.len() as u64, length);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// Its name, for the calls.
pub(in crate::server::member_runtime) fn name(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends what is missing.
pub(in crate::server::member_runtime) fn send(
    staging: &mut Staging,
    bytes: &[u8],
) -> Result<Checked> {
    let name = name(bytes);
    let mut at = staging.begin(&name, bytes.len() as u64, 0)?;
    while at < bytes.len() as u64 {
        let rest = &bytes[usize::try_from(at).expect("short")..];
        at = staging.write(&name, at, &rest[..rest.len().min(100_000)])?;
    }
    staging.finish(&name, None)
}

fn loaded(folder: &tempfile::TempDir) -> Staging {
    Staging::load(folder.path()).expect("readable")
}

fn saver(folder: &tempfile::TempDir, to_files: Option<usize>) -> Saver {
    let disk = FileDisk::new(folder.path()).expect("a directory");
    disk.create_directory("checkpoints").expect("a directory");
    let values = to_files.map_or(ValuesTo::Memory, ValuesTo::Files);
    Saver::new(Checkpoints::new(Arc::new(disk)), values)
}

#[test]
fn pieces_survive_a_restart_and_are_not_sent_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, mut staging) = (database(300), loaded(&folder));
    let (sha256, length) = (name(&bytes), bytes.len() as u64);
    assert_eq!(staging.begin(&sha256, length, 0).expect("room"), 0);
    assert_eq!(
        staging.write(&sha256, 0, &bytes[..70_000]).expect("stored"),
        70_000
    );
    let again = staging.write(&sha256, 10, &bytes[10..20]);
    assert_eq!(again.expect("repeated"), 70_000, "it changes nothing");
    for data in [Vec::new(), vec![0; 1 + (1 << 20)]] {
        let refused = staging.write(&sha256, 70_000, &data);
        let refused = refused.expect_err("no piece");
        assert!(matches!(refused, StagingError::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("1 to 1048576 bytes"));
    }
    for offset in [70_001, length] {
        let refused = staging.write(&sha256, offset, &bytes[..1]);
        assert!(matches!(
            refused,
            Err(StagingError::Range {
                received: 70_000,
                ..
            })
        ));
    }
    let early = staging.finish(&sha256, None);
    assert!(
        matches!(early, Err(StagingError::Range { .. })),
        "{early:?}"
    );
    let other = staging.write(&name(b"other"), 70_000, &bytes[..1]);
    assert!(matches!(other, Err(StagingError::Other(_))), "{other:?}");

    let mut staging = loaded(&folder);
    assert_eq!(
        staging.staged().expect("kept").progress(Instant::now()),
        (0, 0)
    );
    assert_eq!(staging.begin(&sha256, length, 0).expect("room"), 70_000);
    let checked = send(&mut staging, &bytes).expect("whole");
    assert_eq!((checked.revision, checked.keys), (301, 300));
    let (elapsed, resumed_at) = staging.staged().expect("here").progress(Instant::now());
    assert!(elapsed > 0 && resumed_at == 70_000);

    let mut staging = loaded(&folder);
    assert_eq!(staging.staged().expect("kept").checked(), Some(checked));
    let again = staging.finish(&sha256, Some(checked));
    assert_eq!(again.expect("the same"), checked);
    let saver = saver(&folder, None);
    let store = staging.import(1000, &saver).expect("its data");
    assert_eq!(store.publish().revision(), 1301);
    staging.discard().expect("deleted");
    assert!(loaded(&folder).staged().is_none());
    let directory = folder.path().join(DIRECTORY);
    assert!(!directory.exists());
    // Somebody else's file stays.
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("notes"), "").expect("written");
    assert!(loaded(&folder).staged().is_none());
    assert!(directory.join("notes").exists());
}

#[test]
fn what_is_not_whole_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(20);
    // Another content than announced, a digest behind the data that is another's, and no database at all.
    let mut flipped = bytes.clone();
    *flipped.last_mut().expect("long") ^= 1;
    let mut staging = loaded(&folder);
    let sha256 = name(&bytes);
    staging.begin(&sha256, bytes.len() as u64, 0).expect("room");
    staging.write(&sha256, 0, &flipped).expect("stored");
    let refused = staging.finish(&sha256, None);
    let refused = refused.expect_err("another content");
    assert!(refused.to_string().contains("was announced"), "{refused}");
    assert!(staging.staged().is_none());
    assert_eq!(problem(&staging), refused.to_string());
    staging.begin(&sha256, bytes.len() as u64, 0).expect("room");
    assert_eq!(problem(&staging), "", "it is announced again");
    for (wrong, why) in [
        (flipped, "ends with the SHA-256"),
        (vec![7; 4096], "cannot be restored"),
    ] {
        let refused = send(&mut staging, &wrong).expect_err("no snapshot");
        assert!(matches!(refused, StagingError::Unusable(_)));
        assert!(refused.to_string().contains(why), "{refused}");
        assert!(loaded(&folder).staged().is_none());
    }
    // A database without a digest is one from a data directory.
    let bare = &bytes[..bytes.len() - 32];
    assert_eq!(send(&mut staging, bare).expect("a database").keys, 20);
    // Another snapshot takes its place.
    let next = database(21);
    assert_eq!(send(&mut staging, &next).expect("another").keys, 21);
    for (sha256, length) in [("", 1), ("AB", 1), (&*name(&next), 0), (&"G".repeat(64), 1)] {
        let refused = staging.begin(sha256, length, 0);
        assert!(
            matches!(refused, Err(StagingError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert!(staging.staged().is_some(), "nothing was announced");
}

/// What is described of the last failure.
fn problem(staging: &Staging) -> String {
    lock(&staging.shown).problem.clone()
}

/// The manifest of a backup says what it holds: a cluster is never founded from something else.
#[test]
fn what_is_not_expected_is_dropped_and_never_recorded_as_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, mut staging) = (database(20), loaded(&folder));
    let sha256 = name(&bytes);
    let checked = send(&mut staging, &bytes).expect("whole");
    let others = [
        Checked {
            revision: checked.revision + 1,
            ..checked
        },
        Checked { keys: 0, ..checked },
        Checked { hash: 7, ..checked },
    ];
    for other in others {
        // One that is recorded as complete already, and one that is not.
        for _ in 0..2 {
            let refused = staging.finish(&sha256, Some(other));
            let refused = refused.expect_err("another was saved");
            assert!(matches!(refused, StagingError::Unusable(_)), "{refused}");
            assert!(refused.to_string().contains("were saved"), "{refused}");
            assert!(loaded(&folder).staged().is_none());
            staging.begin(&sha256, bytes.len() as u64, 0).expect("room");
            staging.write(&sha256, 0, &bytes).expect("stored");
        }
        let finished = staging.finish(&sha256, Some(checked));
        assert_eq!(finished.expect("what was saved"), checked);
    }
}

/// The first checkpoint takes as much again as the snapshot.
#[test]
fn there_is_room_for_the_founding_or_nothing_is_received() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = FileDisk::new(folder.path()).expect("a directory");
    let free = disk.free_bytes().expect("measured");
    let mut staging = loaded(&folder);
    let refused = staging.begin(&name(b"large"), free / 5 * 3, 0);
    let refused = refused.expect_err("it has room for one of two");
    let StagingError::Space { needed, free } = &refused else {
        panic!("{refused}");
    };
    assert!(refused.to_string().contains("enlarge the volume by"));
    assert!(needed > free);
    assert_eq!(problem(&staging), refused.to_string());
    assert!(staging.staged().is_none());
}

/// A record that says nothing must not pass for a standby without a snapshot, which may found an empty cluster; nor may
/// it end every start.
#[test]
fn damaged_record_is_a_snapshot_that_only_another_one_replaces() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(1);
    let sha256 = name(&bytes);
    send(&mut loaded(&folder), &bytes).expect("whole");
    let file = |name: &str| folder.path().join(DIRECTORY).join(name);
    let record = fs::read(file(RECORD)).expect("a record");
    let broken = || fs::write(file(RECORD), &record[1..]).expect("written");
    let cut = || {
        let snapshot = File::options().write(true).open(file(SNAPSHOT));
        snapshot.expect("it is there").set_len(10).expect("cut");
    };
    for (damage, words) in [(&broken as &dyn Fn(), "expected"), (&cut, "10 bytes of")] {
        damage();
        let mut staging = loaded(&folder);
        let staged = staging.staged().expect("it is no empty standby");
        assert!(staged.is_damaged() && staged.checked().is_none());
        let problem_then = problem(&staging);
        assert!(problem_then.contains(words), "{problem_then}");
        let refused = staging.finish(&sha256, None).expect_err("damaged");
        assert!(matches!(refused, StagingError::Other(_)), "{refused}");
        assert_eq!(problem(&staging), problem_then);
        send(&mut staging, &bytes).expect("it is sent again");
        assert_eq!(problem(&staging), "");
        assert!(loaded(&folder).staged().expect("kept").checked().is_some());
    }
    // Without a record nothing was announced durably.
    fs::remove_file(file(RECORD)).expect("deleted");
    assert!(loaded(&folder).staged().is_none());
}

/// No checkpoint names the file yet: what an attempt has left goes with the next one.
#[test]
fn values_are_read_from_the_file_that_they_were_placed_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, mut staging) = (database(20), loaded(&folder));
    let checked = send(&mut staging, &bytes).expect("whole");
    let saver = saver(&folder, Some(64));
    let files = || saver.checkpoints().values().list().expect("listed");
    for number in [1, 2] {
        let store = staging.import(0, &saver).expect("its data");
        assert_eq!(files(), [number]);
        let hash = store.publish().hash_kv(0).expect("readable");
        assert_eq!(hash.hash, checked.hash);
    }
}

#[test]
fn without_an_open_file_nothing_is_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, mut staging) = (database(1), loaded(&folder));
    let (sha256, length) = (name(&bytes), bytes.len() as u64);
    staging.begin(&sha256, length, 0).expect("room");
    staging.file = None;
    let refused = staging.write(&sha256, 0, &bytes);
    assert!(matches!(refused, Err(StagingError::Closed)), "{refused:?}");
    send(&mut staging, &bytes).expect("another announcement opens it");
}
