//! A checkpoint whose connection ends while something is written for it.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::disk::{Disk as _, FileDisk};
use crate::persist::{Saver, ValuesTo};
use crate::server::member_runtime::tests::forming;

fn receiving(folder: &Path, right: &Arc<Semaphore>) -> Receiving {
    let disk = FileDisk::new(folder).expect("a directory");
    disk.create_directory("checkpoints").expect("a directory");
    let saver = Saver::new(Checkpoints::new(Arc::new(disk)), ValuesTo::Memory);
    let position = Position { index: 7, term: 2 };
    Receiving {
        checkpoint: saver.receive(position, b"meta", 0).expect("begun"),
        only: Arc::clone(right).try_acquire_owned().expect("the only one"),
    }
}

fn files(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder.join("checkpoints")).expect("a directory");
    files.count()
}

/// Found by reading: the right to receive ended with the connection, and what was written for it at that moment did not. Its
/// temporary file had the name of the next one's, so that it could remove it, or give it its final name unfinished.
#[test]
fn next_one_waits_for_what_is_still_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let (guard, _) = forming(folder.path());
    let local = guard.local();
    let received = receiving(&disk, &local.receiving);
    let (end, ended) = mpsc::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let written = disk_act(&local, move || {
            let _ = ended.recv();
            drop(received);
            Ok(())
        });
        let connection = timeout(Duration::from_millis(20), written).await;
        connection.expect_err("it is being written");
    });
    assert_eq!(files(&disk), 1, "the temporary file");
    assert!(local.receiving.try_acquire().is_err(), "another one began");
    drop(end);
    runtime.block_on(async { drop(local.receiving.acquire().await.expect("open")) });
    assert_eq!(files(&disk), 0, "it was removed before the next began");
}
