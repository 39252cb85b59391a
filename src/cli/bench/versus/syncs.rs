//! How long a disk takes to keep what one put writes: no server can acknowledge a put in less. Knows no server.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use super::super::Error;

/// Bytes of an entry with a key and a value of the usual sizes.
const ENTRY: usize = 512;
/// So many are written for a measurement, one after the other.
const WRITES: usize = 500;

/// Seconds from the write of one entry until it is synced: the mean of some hundred, one after the other, into a file
/// that has its size already, as a log's segment has. The file is below `folder` while this takes.
///
/// # Errors
/// The file cannot be written.
pub(super) fn seconds_a_sync(folder: &Path) -> Result<f64, Error> {
    mean_of(WRITES, folder)
}

fn mean_of(writes: usize, folder: &Path) -> Result<f64, Error> {
    let path = folder.join("syncs");
    let seconds = measured(writes, &path);
    // If the file could not be made, that is the error to report.
    let _ = std::fs::remove_file(&path);
    seconds
}

fn measured(writes: usize, path: &Path) -> Result<f64, Error> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(&vec![0; ENTRY * writes], 0)?;
    file.sync_all()?;
    let entry = [7; ENTRY];
    let began = Instant::now();
    for number in 0..writes {
        file.write_all_at(&entry, (number * ENTRY) as u64)?;
        file.sync_data()?;
    }
    Ok(began.elapsed().as_secs_f64() / writes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_take_time_and_leave_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let seconds = mean_of(5, folder.path()).expect("the file is written");
        assert!(seconds > 0.0 && seconds < 1.0, "{seconds}");
        let left = std::fs::read_dir(folder.path()).expect("it is there");
        assert_eq!(left.count(), 0);
    }
}
