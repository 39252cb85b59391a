//! A snapshot arrives in pieces, across restarts of the server that receives it, and counts only once all of it was
//! checked.

use sha2::{Digest as _, Sha256};

use super::*;
use crate::bolt::HEAD_BYTES;
use crate::node::{InitialMember, Membership};
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
    let mut at = staging.begin(&name, bytes.len() as u64)?;
    while at < bytes.len() as u64 {
        let rest = &bytes[usize::try_from(at).expect("short")..];
        at = staging.write(&name, at, &rest[..rest.len().min(100_000)])?;
    }
    staging.finish(&name)
}

fn loaded(folder: &tempfile::TempDir) -> Staging {
    Staging::load(folder.path()).expect("readable")
}

#[test]
fn pieces_survive_a_restart_and_are_not_sent_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, mut staging) = (database(300), loaded(&folder));
    let (sha256, length) = (name(&bytes), bytes.len() as u64);
    assert_eq!(staging.begin(&sha256, length).expect("room"), 0);
    assert_eq!(
        staging.write(&sha256, 0, &bytes[..70_000]).expect("stored"),
        70_000
    );
    let again = staging.write(&sha256, 10, &bytes[10..20]);
    assert_eq!(again.expect("repeated"), 70_000, "it changes nothing");
    for (offset, data) in [
        (70_001, &bytes[..1]),
        (70_000, &[][..]),
        (length, &bytes[..1]),
    ] {
        let refused = staging.write(&sha256, offset, data);
        assert!(matches!(
            refused,
            Err(StagingError::Range {
                received: 70_000,
                ..
            })
        ));
    }
    let early = staging.finish(&sha256);
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
    assert_eq!(staging.begin(&sha256, length).expect("room"), 70_000);
    let checked = send(&mut staging, &bytes).expect("whole");
    assert_eq!((checked.revision, checked.keys), (301, 300));
    let (elapsed, resumed_at) = staging.staged().expect("here").progress(Instant::now());
    assert!(elapsed > 0 && resumed_at == 70_000);

    let mut staging = loaded(&folder);
    assert_eq!(staging.staged().expect("kept").checked(), Some(checked));
    assert_eq!(staging.finish(&sha256).expect("the same"), checked);
    let store = staging.import(1000).expect("its data");
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
    staging.begin(&sha256, bytes.len() as u64).expect("room");
    staging.write(&sha256, 0, &flipped).expect("stored");
    let refused = staging.finish(&sha256).expect_err("another content");
    assert!(refused.to_string().contains("was announced"), "{refused}");
    assert!(staging.staged().is_none());
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
        let refused = staging.begin(sha256, length);
        assert!(
            matches!(refused, Err(StagingError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert!(staging.staged().is_some(), "nothing was announced");
}

/// A record that says nothing must not pass for a standby without a snapshot, which may found an empty cluster.
#[test]
fn damaged_record_is_no_empty_standby() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(1);
    send(&mut loaded(&folder), &bytes).expect("whole");
    let file = |name: &str| folder.path().join(DIRECTORY).join(name);
    let record = fs::read(file(RECORD)).expect("a record");
    fs::write(file(RECORD), &record[1..]).expect("written");
    let refused = Staging::load(folder.path()).expect_err("damaged");
    assert!(matches!(refused, StagingError::Damaged { .. }), "{refused}");
    fs::write(file(RECORD), record).expect("written");
    let snapshot = File::options().write(true).open(file(SNAPSHOT));
    snapshot.expect("it is there").set_len(10).expect("cut");
    let refused = Staging::load(folder.path()).expect_err("damaged");
    assert!(matches!(refused, StagingError::Damaged { .. }), "{refused}");
    // Without a record nothing was announced durably.
    fs::remove_file(file(RECORD)).expect("deleted");
    assert!(loaded(&folder).staged().is_none());
}
