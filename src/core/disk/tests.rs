//! The data directory as a whole, on the double and on real files.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::double::{Faults, Keep, MemoryDisk};
use super::*;
use crate::raft::{Entry, HardState};

const UUID: [u8; 16] = *b"0123456789abcdef";
const SMALL: LogOptions = LogOptions {
    segment_bytes: 8192,
};

fn at(index: u64, term: u64) -> Position {
    Position { index, term }
}

fn member(directory: &mut DataDirectory, first: Option<Position>) -> MemberFiles {
    directory
        .store_identity(Identity::standby(UUID, "m-0"))
        .unwrap();
    let first = first.map(|at| (at, &b"meta"[..], vec![b"chunk".to_vec()]));
    let hard_state = HardState {
        term: 1,
        vote: 0,
        commit: 1,
    };
    let files = create_member(directory, first, hard_state, SMALL).unwrap();
    let mut identity = directory.identity().unwrap().clone();
    identity.set_phase(Phase::Member);
    identity.member_id = 7;
    identity.cluster_id = 9;
    identity.peer_pins.insert(8, vec![1; 16]);
    directory.store_identity(identity).unwrap();
    files
}

fn entries(term: u64, range: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    range
        .map(|index| Entry::normal(term, index, format!("entry {index}")))
        .collect()
}

#[test]
fn member_runs_on_real_files() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("deep/er");
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&root).unwrap());
    let mut directory = DataDirectory::open(disk.clone()).unwrap();
    assert!(disk.free_bytes().unwrap() > 0);
    let error = DataDirectory::open(disk.clone()).unwrap_err();
    assert_eq!(error.class(), Class::InUse);
    assert!(
        error.to_string().contains("in use by another process"),
        "{error}"
    );
    let mut files = member(&mut directory, Some(at(1, 1)));
    for index in 2..=200 {
        files.log.append(None, &entries(1, index..=index)).unwrap();
        if files.log.wants_segment() {
            files
                .log
                .preparer()
                .prepare(&mut |_| ControlFlow::Continue(()))
                .unwrap();
        }
    }
    files
        .checkpoints
        .write(at(150, 1), b"later", ["x"])
        .unwrap();
    assert_eq!(files.checkpoints.prune(at(150, 1)).unwrap(), at(1, 1));
    drop((files, directory));
    let mut directory = DataDirectory::open(disk.clone()).unwrap();
    let mut files = open_member(&directory, SMALL).unwrap();
    assert_eq!(files.checkpoint.unwrap().position, at(150, 1));
    assert_eq!(files.log.tail(0, u64::MAX).unwrap(), entries(1, 2..=200));
    files.log.drop_before(151).unwrap();
    assert!(files.log.reader().first_index() > 100);
    assert_eq!(
        files.log.read(151, 201, u64::MAX).unwrap(),
        entries(1, 151..=200)
    );
    let refused = create_member(
        &directory,
        None::<FirstCheckpoint<'_>>,
        HardState::default(),
        SMALL,
    )
    .unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
    let mut other = directory.identity().unwrap().clone();
    other.member_id = 1;
    assert!(
        directory.store_identity(other).is_err(),
        "a member changed its ID"
    );
    let mut other = directory.identity().unwrap().clone();
    other.disk_uuid = vec![1; 16];
    assert!(
        directory.store_identity(other).is_err(),
        "a disk changed its UUID"
    );
}

/// `kubeadm reset` removes the member and empties the directory while the server still runs. The server then wrote its
/// reserve and its identity there, and the next `kubeadm join` refused a directory that was not empty.
#[test]
fn emptied_directory_stays_empty() {
    let disk = MemoryDisk::new();
    let mut directory = DataDirectory::open(Arc::new(disk.clone())).unwrap();
    member(&mut directory, None);
    let reserve = Reserve::new(Arc::new(disk.clone()));
    assert!(reserve.keep(1000, 0).unwrap());
    for name in disk.files() {
        disk.remove(&name).unwrap();
    }
    assert!(!reserve.keep(1000, 0).unwrap());
    let mut identity = directory.identity().unwrap().clone();
    identity.peer_pins.clear();
    let error = directory.store_identity(identity.clone()).unwrap_err();
    assert_eq!(error.class(), Class::Identity, "{error}");
    identity.set_phase(Phase::Removed);
    directory.store_identity(identity).unwrap();
    assert_eq!(
        directory.identity().unwrap().phase(),
        Phase::Removed,
        "the server knows it all the same"
    );
    assert_eq!(disk.files(), Vec::<String>::new());
}

#[test]
fn foreign_and_headless_directories_are_refused() {
    let disk = MemoryDisk::new();
    disk.plant("member/wal/0.wal", b"etcd");
    let error = DataDirectory::open(Arc::new(disk)).unwrap_err();
    assert_eq!(error.class(), Class::ForeignDisk);
    assert!(error.to_string().contains("etcd"), "{error}");
    let disk = MemoryDisk::new();
    disk.plant("holiday.jpg", b"sea");
    let error = DataDirectory::open(Arc::new(disk)).unwrap_err();
    assert_eq!(error.class(), Class::ForeignDisk);
    assert!(error.to_string().contains("holiday.jpg"), "{error}");
    let disk = MemoryDisk::new();
    member(
        &mut DataDirectory::open(Arc::new(disk.clone())).unwrap(),
        None,
    );
    disk.remove("identity").unwrap();
    let error = DataDirectory::open(Arc::new(disk)).unwrap_err();
    assert_eq!(error.class(), Class::Identity);
    let disk = MemoryDisk::new();
    disk.plant("lost+found/x", b"");
    assert!(DataDirectory::open(Arc::new(disk)).is_ok());
}

#[test]
fn damaged_or_newer_identity_is_refused() {
    let disk = MemoryDisk::new();
    let mut directory = DataDirectory::open(Arc::new(disk.clone())).unwrap();
    directory
        .store_identity(Identity::standby(UUID, "m-0"))
        .unwrap();
    drop(directory);
    let bytes = disk.contents("identity").unwrap();
    for offset in 0..bytes.len() as u64 {
        let fork = disk.fork();
        fork.flip_bit("identity", offset, 3).unwrap();
        let error = DataDirectory::open(Arc::new(fork)).unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{offset}: {error}");
    }
}

/// Stopped at any sync or write, creation of a new member is complete or can be repeated; once it is in the identity,
/// it is complete.
#[test]
fn interrupted_creation_is_finished() {
    let mut finished = 0;
    for (stop, write) in (1..40).flat_map(|stop| [(stop, false), (stop, true)]) {
        let disk = MemoryDisk::new();
        let mut faults = Faults::default();
        *(if write {
            &mut faults.stop_at_write
        } else {
            &mut faults.stop_at_sync
        }) = Some(stop);
        disk.set_faults(faults);
        let done = std::panic::catch_unwind(|| {
            member(
                &mut DataDirectory::open(Arc::new(disk.clone())).unwrap(),
                Some(at(1, 1)),
            )
        });
        for seed in 0..8 {
            let fork = disk.fork();
            fork.crash(Keep::Seeded(seed));
            let mut directory = DataDirectory::open(Arc::new(fork)).unwrap();
            let phase = directory.identity().map(Identity::phase);
            assert!(done.is_err() || phase == Some(Phase::Member));
            if phase != Some(Phase::Member) {
                member(&mut directory, Some(at(1, 1)));
            } else {
                finished += 1;
            }
            let files = open_member(&directory, SMALL).unwrap();
            assert_eq!(files.checkpoint.unwrap().position, at(1, 1));
            assert_eq!(files.log.hard_state().term, 1);
        }
    }
    assert!(finished > 8);
}

/// The installation of a received snapshot, stopped anywhere: the member starts either from
/// what it had or from the snapshot, never from a log with a hole.
#[test]
fn interrupted_install_is_finished_or_dropped() {
    let disk = MemoryDisk::new();
    let mut directory = DataDirectory::open(Arc::new(disk.clone())).unwrap();
    let mut files = member(&mut directory, Some(at(1, 1)));
    files.log.append(None, &entries(1, 2..=9)).unwrap();
    drop((files, directory));
    disk.crash(Keep::Nothing);
    let (mut old, mut new) = (0, 0);
    for (stop, kind) in (1..24).flat_map(|stop| [(stop, 0), (stop, 1), (stop, 2)]) {
        let fork = disk.fork();
        let directory = DataDirectory::open(Arc::new(fork.clone())).unwrap();
        let mut files = open_member(&directory, SMALL).unwrap();
        let mut faults = Faults::default();
        *[
            &mut faults.stop_at_sync,
            &mut faults.stop_at_write,
            &mut faults.fail_sync,
        ][kind] = Some(stop);
        fork.set_faults(faults);
        let mut install = || {
            let mut writer = files.checkpoints.begin(at(50, 3), b"new", true)?;
            writer.chunk(b"state")?;
            writer.finish()?;
            files.log.reset(at(50, 3))?;
            files.log.append(
                Some(&HardState {
                    term: 3,
                    vote: 0,
                    commit: 50,
                }),
                &entries(3, 51..=52),
            )
        };
        let done = install().is_ok();
        drop((files, directory));
        for seed in 0..8 {
            let after = fork.fork();
            if kind == 2 {
                // The machine stays up; the restarted process relies on what it reads, and then
                // power is lost.
                after.crash_process();
                let directory = DataDirectory::open(Arc::new(after.clone())).unwrap();
                drop(open_member(&directory, SMALL).unwrap());
            }
            after.crash(Keep::Seeded(seed));
            let directory = DataDirectory::open(Arc::new(after)).unwrap();
            let files = open_member(&directory, SMALL)
                .unwrap_or_else(|error| panic!("stop {stop} kind {kind} seed {seed}: {error}"));
            let start = files.checkpoint.unwrap().position;
            let last = files.log.shape().last();
            match start.index {
                1 => {
                    assert!(!done && last == 9);
                    old += 1;
                }
                50 => {
                    assert!(last == 52 || (!done && last == 50), "{last}");
                    new += 1;
                }
                other => panic!("starts from {other}"),
            }
        }
    }
    assert!(old > 20 && new > 20, "{old} old, {new} new");
}

/// A start that skipped a damaged newest checkpoint still counted it: the server refused to start if its header was
/// damaged; if only its data was, the member sent it to others, and kept it instead of the intact one when the next was
/// written. Found by the simulator's bit rot, whose own tracking of checkpoints had differed from the server's.
#[test]
fn skipped_damaged_checkpoint_does_not_count() {
    for offset in [20, 60] {
        let disk = MemoryDisk::new();
        let mut directory = DataDirectory::open(Arc::new(disk.clone())).unwrap();
        let mut files = member(&mut directory, Some(at(1, 1)));
        files.log.append(None, &entries(1, 2..=9)).unwrap();
        files.checkpoints.write(at(6, 1), b"meta", ["x"]).unwrap();
        drop((files, directory));
        let name = disk.files().into_iter().find(|name| name.contains("0006-"));
        disk.flip_bit(&name.unwrap(), offset, 3).unwrap();
        let directory = DataDirectory::open(Arc::new(disk)).unwrap();
        let files = open_member(&directory, SMALL).unwrap();
        assert_eq!(files.checkpoint.unwrap().position, at(1, 1));
        assert_eq!(files.discarded, [at(6, 1)]);
        let known = files.checkpoints.known().unwrap();
        assert_eq!(known.len(), 1);
        files.checkpoints.write(at(8, 1), b"meta", ["x"]).unwrap();
        assert_eq!(files.checkpoints.prune(at(8, 1)).unwrap(), at(1, 1));
    }
}

#[test]
fn log_behind_its_checkpoint_is_lost() {
    let disk = MemoryDisk::new();
    let mut directory = DataDirectory::open(Arc::new(disk.clone())).unwrap();
    let mut files = member(&mut directory, Some(at(1, 1)));
    files.log.append(None, &entries(1, 2..=9)).unwrap();
    files.checkpoints.write(at(12, 1), b"", ["x"]).unwrap();
    drop((files, directory));
    disk.crash(Keep::Nothing);
    let directory = DataDirectory::open(Arc::new(disk)).unwrap();
    let error = open_member(&directory, SMALL).unwrap_err();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains("log lost"), "{error}");
}

#[test]
fn exit_codes_and_names_are_fixed() {
    let all = [
        (Class::Corrupt, 20, "corrupt"),
        (Class::ForeignDisk, 21, "foreign_disk"),
        (Class::DiskFull, 22, "disk_full"),
        (Class::Fsync, 23, "fsync"),
        (Class::Identity, 24, "identity"),
        (Class::InUse, 25, "in_use"),
        (Class::Io, 26, "io"),
        (Class::Bug, 27, "bug"),
        (Class::TooNew, 28, "too_new"),
        (Class::Stray, 29, "stray_file"),
        (Class::Copied, 30, "copied_disk"),
    ];
    for (class, code, name) in all {
        assert_eq!((class.exit_code(), class.name()), (code, name));
    }
}

/// The version that members report as able to read their disks follows the formats: change both together.
#[test]
fn disk_formats_are_documented() {
    let formats = [
        super::checkpoint::FORMAT,
        super::identity::FORMAT,
        super::log::SEGMENT_FORMAT,
        super::starts::FORMAT,
    ];
    assert_eq!((formats, super::READABLE_SINCE), ([1, 1, 1, 1], "0.1.0"));
    let with_values = [super::checkpoint::FORMAT_VALUES, super::values::FORMAT];
    assert_eq!(
        (with_values, super::VALUES_READABLE_SINCE),
        ([2, 1], "0.2.0")
    );
}

/// The tree was still called 0.1.0 when what it wrote could be read by 0.2.0 and later only. So a way back to 0.1.0 was
/// taken for one to the same version, which reads every disk, and not refused.
#[test]
fn this_version_reads_what_it_writes() {
    let parsed = |version: &str| -> Vec<u64> {
        let numbers = version.split('-').next().unwrap().split('.');
        numbers.map(|number| number.parse().unwrap()).collect()
    };
    let own = parsed(env!("CARGO_PKG_VERSION"));
    for since in [super::READABLE_SINCE, super::VALUES_READABLE_SINCE] {
        assert!(parsed(since) <= own, "readable since {since}");
    }
}

/// Names and contents of all files.
fn contents(directory: &std::path::Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn stopped_member_is_read_and_not_changed() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("data");
    assert!(matches!(open_stopped(&root), Err(Error::Io { .. })));
    assert!(!root.exists(), "a look creates nothing");
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&root).unwrap());
    assert!(matches!(open_stopped(&root), Ok(Stopped::Empty(None))));
    let mut directory = DataDirectory::open(disk).unwrap();
    assert!(matches!(open_stopped(&root), Err(Error::InUse { .. })));
    let mut files = member(&mut directory, Some(at(1, 1)));
    files.log.append(None, &entries(1, 2..=4)).unwrap();
    drop((files, directory));
    std::fs::write(root.join("log/left.tmp"), b"unfinished").unwrap();
    let before = contents(&root);
    let Ok(Stopped::Member(stopped)) = open_stopped(&root) else {
        panic!("a member");
    };
    assert_eq!(stopped.log.last(), at(4, 1));
    assert_eq!(stopped.checkpoint.position, at(1, 1));
    assert_eq!(stopped.hard_state.commit, 1);
    let read = stopped.log.read(2, 5, u64::MAX).unwrap();
    assert_eq!(read, entries(1, 2..=4));
    // No server starts while it is read.
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&root).unwrap());
    let second = DataDirectory::open(disk.clone());
    assert!(matches!(second, Err(Error::InUse { .. })));
    drop(stopped);
    assert_eq!(contents(&root), before);

    // What a leader sent, and the log that should follow was not begun.
    let checkpoints = Checkpoints::new(disk);
    let mut received = checkpoints.begin(at(9, 2), b"meta", true).unwrap();
    received.chunk(b"chunk").unwrap();
    received.finish().unwrap();
    let before = contents(&root);
    let Ok(Stopped::Member(stopped)) = open_stopped(&root) else {
        panic!("a member");
    };
    assert_eq!(stopped.log.last(), at(9, 2));
    assert_eq!(stopped.checkpoint.position, at(9, 2));
    assert_eq!(contents(&root), before);
    drop(stopped);

    for path in std::fs::read_dir(root.join("checkpoints")).unwrap() {
        std::fs::remove_file(path.unwrap().path()).unwrap();
    }
    assert!(matches!(open_stopped(&root), Err(Error::Corrupt { .. })));
    std::fs::remove_dir_all(root.join("log")).unwrap();
    assert!(matches!(open_stopped(&root), Err(Error::Corrupt { .. })));
}

/// A recovery asks which member's disk was written last: neither a start nor a vote may pass for a write.
#[test]
fn time_of_the_last_entry_survives_starts_and_votes() {
    const THEN: i64 = 1_700_000_000_000;
    let temporary = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(temporary.path().join("data")).unwrap());
    let mut directory = DataDirectory::open(disk).unwrap();
    let mut files = member(&mut directory, None);
    files.log.append(None, &entries(1, 1..=1)).unwrap();
    let segments = std::fs::read_dir(temporary.path().join("data/log")).unwrap();
    for segment in segments {
        let mut options = std::fs::File::options();
        let file = options.write(true).open(segment.unwrap().path()).unwrap();
        let then = std::time::Duration::from_millis(THEN.unsigned_abs());
        file.set_modified(std::time::UNIX_EPOCH + then).unwrap();
    }
    for term in 2..5 {
        drop(files);
        files = open_member(&directory, SMALL).unwrap();
        assert_eq!(files.log.reader().grown_ms(), Some(THEN));
        let voted = HardState {
            term,
            vote: 7,
            commit: 1,
        };
        files.log.append(Some(&voted), &[]).unwrap();
        assert_eq!(files.log.reader().grown_ms(), Some(THEN));
    }
    files.log.append(None, &entries(4, 2..=2)).unwrap();
    assert!(files.log.reader().grown_ms() > Some(THEN));
}
