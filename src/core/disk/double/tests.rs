//! The double itself: what it must lose, keep and refuse.

use super::*;

#[test]
fn only_synced_sectors_and_names_survive() {
    let disk = MemoryDisk::new();
    let file = disk.create("a").unwrap();
    file.write_at(0, &[1; 1024]).unwrap();
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    file.write_at(512, &[2; 1024]).unwrap();
    disk.create("b").unwrap().sync().unwrap();
    let fork = disk.fork();
    fork.crash(Keep::Nothing);
    assert_eq!(fork.contents("a").unwrap(), [1; 1024]);
    assert!(fork.contents("b").is_err());
    disk.crash(Keep::Everything);
    assert_eq!(disk.contents("a").unwrap()[512..], [2; 1024]);
    assert!(disk.contents("b").is_ok());
}

#[test]
fn seeds_tear_writes_differently() {
    let disk = MemoryDisk::new();
    let file = disk.create("a").unwrap();
    file.write_at(0, &[0; 4096]).unwrap();
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    file.write_at(0, &[1; 4096]).unwrap();
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let fork = disk.fork();
        fork.crash(Keep::Seeded(seed));
        let bytes = fork.contents("a").unwrap();
        assert!(
            bytes
                .chunks(SECTOR)
                .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
        );
        outcomes.insert(bytes);
    }
    assert!(outcomes.len() > 16, "{} outcomes", outcomes.len());
}

#[test]
fn rename_is_atomic_across_crashes() {
    let disk = MemoryDisk::new();
    disk.plant("old", b"old");
    let file = disk.create("new").unwrap();
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    disk.rename("new", "old").unwrap();
    for seed in 0..16 {
        let fork = disk.fork();
        fork.crash(Keep::Seeded(seed));
        let both = (fork.contents("old").unwrap(), fork.contents("new").is_ok());
        assert!(
            both == (b"old".to_vec(), true) || both == (b"new".to_vec(), false),
            "{both:?}"
        );
    }
}

#[test]
fn failed_sync_is_read_but_not_durable() {
    let disk = MemoryDisk::new();
    let file = disk.create("a").unwrap();
    disk.sync_directory("").unwrap();
    disk.set_faults(Faults {
        fail_sync: Some(1),
        ..Faults::default()
    });
    file.write_at(0, b"x").unwrap();
    assert!(file.sync().is_err());
    assert!(file.sync().is_ok(), "Linux forgets");
    disk.crash_process();
    assert_eq!(disk.contents("a").unwrap(), b"x");
    disk.crash(Keep::Nothing);
    assert_ne!(disk.contents("a").unwrap(), b"x");
}

#[test]
fn handles_and_locks_end_with_the_process() {
    let disk = MemoryDisk::new();
    let lock = disk.lock("lock").unwrap();
    assert_eq!(
        disk.lock("lock").unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    let file = disk.create("a").unwrap();
    disk.crash(Keep::Everything);
    assert!(file.write_at(0, b"x").is_err());
    let _second = disk.lock("lock").unwrap();
    drop(lock);
    assert!(
        disk.lock("lock").is_err(),
        "a dead process's lock freed a living one"
    );
}

#[test]
fn misdirected_write_lands_elsewhere() {
    let disk = MemoryDisk::new();
    disk.plant("a", &[1; 1024]);
    disk.plant("b", &[2; 1024]);
    disk.misdirect(("a", 1), ("b", 0)).unwrap();
    disk.crash(Keep::Nothing);
    let sectors = |name: &str| {
        let bytes = disk.contents(name).unwrap();
        [bytes[0], bytes[511], bytes[512], bytes[1023]]
    };
    assert_eq!((sectors("a"), sectors("b")), ([1, 1, 0, 0], [1, 1, 2, 2]));
    assert_eq!(disk.files(), ["a", "b"]);
    assert!(disk.misdirect(("a", 2), ("b", 0)).is_err());
}

#[test]
fn full_disk_is_an_error() {
    let disk = MemoryDisk::new();
    disk.plant("a", &[1; 1000]);
    disk.set_faults(Faults {
        capacity: Some(disk.bytes() + 10),
        ..Faults::default()
    });
    let file = disk.open("a").unwrap();
    file.write_at(990, &[0; 20]).unwrap();
    assert!(!disk.filled());
    let error = file.write_at(1000, &[0; 20]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(disk.filled() && disk.tripped());
}
