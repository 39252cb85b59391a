//! A cluster that is founded from a snapshot has its data, wherever the founding was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::Happening;
use super::super::restore::described;
use super::super::staging::tests::{database, name, send};
use super::super::start::{RunningServer, start};
use super::*;
use crate::server::HostFacts;
use crate::server::flags::Flags;
use crate::server::flags::config::Config;
use crate::server::tls::ports::PortSecurity;
use crate::store::DamagedValue;

const BUMP: u64 = 1000;

fn standby(folder: &Path) -> RunningServer {
    standby_with(folder, "ValuesOnDisk=false")
}

fn standby_with(folder: &Path, gates: &str) -> RunningServer {
    let secret = folder.join("secret");
    std::fs::write(&secret, "0123456789abcdef").expect("written");
    let arguments = [
        "--name=one".to_owned(),
        format!("--data-dir={}", folder.join("data").display()),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--initial-advertise-peer-urls=http://127.0.0.1:1".to_owned(),
        "--await-membership".to_owned(),
        "--cluster-uid=uid".to_owned(),
        format!("--feature-gates={gates}"),
        format!("--operator-secret-file={}", secret.display()),
    ];
    let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("flags");
    let config = Config::from_flags(&flags, HostFacts::default()).expect("valid");
    let (_handle, guard) = start(&config, Box::new(PortSecurity::default), 8).expect("starts");
    guard
}

fn founding(snapshot: Option<&[u8]>) -> Founding {
    Founding {
        cluster_uid: "uid".to_owned(),
        incarnation: 1,
        nonce: "nonce".to_owned(),
        claim_uid: "claim".to_owned(),
        snapshot: snapshot.map(|bytes| BootstrapSnapshot {
            sha256: name(bytes),
            bump_revision: BUMP,
            follow: false,
        }),
    }
}

fn ask(guard: &RunningServer, founding: Founding) -> Result<Who, Status> {
    let (answer, answered) = oneshot::channel();
    let asked = Happening::Bootstrap(Box::new(founding), answer);
    guard.local().happenings.send(asked).expect("it runs");
    answered.blocking_recv().expect("an answer")
}

fn stage(guard: &RunningServer, bytes: &[u8]) {
    let staging = Arc::clone(&guard.local().staging);
    send(&mut staging.blocking_lock(), bytes).expect("whole");
}

/// The revision and the keys that it serves.
fn serves(guard: &RunningServer) -> (i64, u64) {
    let began = Instant::now();
    loop {
        let published = guard.local().handle.published();
        if published.membership.cluster_id != 0 {
            return (published.view.revision(), published.view.key_count());
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it does not run");
        std::thread::yield_now();
    }
}

/// Killed when the first checkpoint was written and the identity file was not: what is there goes before the next attempt
/// writes, so that a volume with room for one is enough.
#[test]
fn values_of_an_earlier_attempt_go_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(30);
    let guard = standby_with(folder.path(), "ValuesOnDisk=true");
    stage(&guard, &bytes);
    let local = guard.local();
    let values = || std::fs::read_dir(folder.path().join("data/values")).map_or(0, Iterator::count);
    let saver = local.new_saver();
    let staging = Arc::clone(&local.staging);
    let store = staging.blocking_lock().import(BUMP, &saver).expect("read");
    let who = founding(None).who(&local.config.advertise_peer_urls);
    let membership = local.alone(&who, "uid", 1).expect("one member");
    let machine = StateMachine::restored(membership, store);
    let files = open::create(&local.files(), Some(&machine), &saver, local.log_options());
    drop((files.expect("files"), machine, saver));
    assert_eq!(values(), 1);
    let next = local.new_saver();
    let placed = next.place().expect("it begins");
    assert_eq!(values(), 0, "before anything is written");
    drop((placed, local));
    ask(&guard, founding(Some(&bytes))).expect("founded");
    assert_eq!(serves(&guard), (31 + BUMP.cast_signed(), 30));
    assert_eq!(values(), 1);
}

/// Killed when the files were whole and the identity file was not written: a standby as before, which founds the cluster
/// from the snapshot and from nothing that was left.
#[test]
fn crash_before_the_identity_leaves_a_standby_with_its_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(30);
    let guard = standby(folder.path());
    stage(&guard, &bytes);
    let local = guard.local();
    let who = founding(None).who(&local.config.advertise_peer_urls);
    let membership = local.alone(&who, "uid", 1).expect("one member");
    let machine = StateMachine::founded(membership);
    let (saver, options) = (local.new_saver(), local.log_options());
    let files = open::create(&local.files(), Some(&machine), &saver, options);
    drop(files.expect("files"));
    drop(local);
    drop(guard);

    let guard = standby(folder.path());
    assert_eq!(guard.local().identity().phase(), disk::Phase::Standby);
    let refused = ask(&guard, founding(None)).expect_err("it holds a snapshot");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("names no snapshot"), "{refused}");
    let other = ask(&guard, founding(Some(b"other"))).expect_err("another");
    assert_eq!(other.code(), tonic::Code::FailedPrecondition);
    assert_eq!(guard.local().identity().bootstrap_nonce, "");
    let founded = ask(&guard, founding(Some(&bytes))).expect("founded");
    assert_eq!(founded, who);
    let identity = guard.local().identity();
    assert_eq!(identity.phase(), disk::Phase::Member);
    assert_eq!(identity.bootstrap_nonce, "nonce");
    assert_eq!(serves(&guard), (31 + BUMP.cast_signed(), 30));
    drop(guard);

    // What a crash after the identity file leaves is deleted, and counts for nothing.
    let staged = folder.path().join("data/staged");
    assert!(!staged.exists());
    std::fs::create_dir(&staged).expect("a directory");
    std::fs::write(staged.join("record"), "{").expect("written");
    let guard = standby(folder.path());
    assert_eq!(serves(&guard), (31 + BUMP.cast_signed(), 30));
    assert!(!staged.exists());
}

/// A member of 1 GiB that was founded from a backup of 8 GiB had all of it in memory until its first own checkpoint.
#[test]
fn values_of_the_snapshot_go_to_a_file_and_never_into_memory() {
    for (gates, files) in [("ValuesOnDisk=true", 1), ("ValuesOnDisk=false", 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = database(30);
        let guard = standby_with(folder.path(), gates);
        stage(&guard, &bytes);
        let values = folder.path().join("data/values");
        let there = || std::fs::read_dir(&values).map_or(0, Iterator::count);
        assert_eq!(there(), 0, "a check writes none");
        ask(&guard, founding(Some(&bytes))).expect("founded");
        assert_eq!(serves(&guard), (31 + BUMP.cast_signed(), 30));
        assert_eq!(there(), files, "{gates}");
        let view = Arc::clone(&guard.local().handle.published().view);
        let in_memory = view.move_values(64, (&BTreeSet::new(), 0), |value| {
            assert_eq!(value, [b'v'; 1000]);
            Ok::<u64, DamagedValue>(0)
        });
        let in_memory = in_memory.expect("every value is readable");
        assert_eq!(in_memory.is_empty(), files == 1, "{gates}");
        let rows = view.rows().collect::<Result<Vec<_>, _>>();
        let rows = rows.expect("every value is readable");
        assert_eq!(rows.len(), 30);
        assert!(rows.iter().all(|row| row.kv.value == [b'v'; 1000][..]));
    }
}

/// A version that knows no snapshots was told to found a cluster, and was replaced before it had.
#[test]
fn founding_of_an_older_version_does_not_start_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(3);
    let guard = standby(folder.path());
    stage(&guard, &bytes);
    let local = guard.local();
    let who = founding(None).who(&local.config.advertise_peer_urls);
    local
        .change_identity(|identity| founding(None).record(&who, identity))
        .expect("stored");
    drop(local);
    drop(guard);

    let mut guard = standby(folder.path());
    let stop = guard.local().runtime.clone().block_on(guard.stopped());
    assert_eq!(stop.class, "identity", "{}", stop.message);
    assert_eq!(guard.local().identity().phase(), disk::Phase::Standby);
    drop(guard);
    // Without the snapshot it is the founding of an empty cluster that was interrupted.
    std::fs::remove_dir_all(folder.path().join("data/staged")).expect("deleted");
    assert_eq!(serves(&standby(folder.path())), (1, 0));
}

/// A shell on the volume was the only way out of a damaged record.
#[test]
fn damaged_snapshot_founds_nothing_and_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(3);
    let guard = standby(folder.path());
    stage(&guard, &bytes);
    drop(guard);
    std::fs::write(folder.path().join("data/staged/record"), "{").expect("written");

    let guard = standby(folder.path());
    let described = described(&guard.local()).expect("it is described");
    assert!(!described.complete);
    assert!(described.problem.contains("sent again"), "{described:?}");
    for snapshot in [None, Some(&bytes[..])] {
        let refused = ask(&guard, founding(snapshot)).expect_err("nothing is founded");
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().contains("cannot be used"), "{refused}");
        assert_eq!(guard.local().identity().bootstrap_nonce, "");
    }
    stage(&guard, &bytes);
    ask(&guard, founding(Some(&bytes))).expect("founded");
    assert_eq!(serves(&guard), (4 + BUMP.cast_signed(), 3));
}

/// The operator waits 5 s for an answer, and a founding may take longer: it is described why it failed.
#[test]
fn failed_founding_is_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = database(3);
    let guard = standby(folder.path());
    stage(&guard, &bytes);
    let file = folder.path().join("data/staged/snapshot");
    let mut damaged = bytes.clone();
    damaged[5000] ^= 1;
    std::fs::write(&file, damaged).expect("written");
    let refused = ask(&guard, founding(Some(&bytes))).expect_err("another content");
    let told = described(&guard.local()).expect("it is described");
    assert!(told.problem.contains(refused.message()), "{told:?}");
    assert!(told.problem.contains("send it again"), "{told:?}");
    assert_eq!((&*told.sha256, told.complete), ("", false));
    stage(&guard, &bytes);
    assert_eq!(described(&guard.local()).expect("it is here").problem, "");
}
