//! [`Disk`] on the operating system's files. Never caches what is in them, and never tries a write
//! or a sync again.
//!
//! Only a file that cannot be opened because the process, or the machine, has too many open is
//! tried again for a while: nothing has happened by then, and connections end. A directory that is
//! synced again and again stays open, so that a sync needs no descriptor that is free.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use super::device::{Disk, DiskFile, DiskLock};

/// A data directory of the file system.
#[derive(Clone, Debug)]
pub struct FileDisk {
    root: PathBuf,
    /// Directories that have been synced.
    directories: Arc<Mutex<BTreeMap<String, Arc<File>>>>,
}

/// Times that an open is tried while there are too many open files, and the time in between.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

impl FileDisk {
    /// The disk whose names are relative to `root`. Creates `root`, readable by its owner only,
    /// and makes its name durable.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let disk = Self {
            root: root.into(),
            directories: Arc::default(),
        };
        create_directories(&disk.root)?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.root.clone()
        } else {
            self.root.join(name)
        }
    }
}

impl Disk for FileDisk {
    fn create_directory(&self, directory: &str) -> io::Result<()> {
        create_directories(&self.path(directory))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = patiently(|| options.open(self.path(name)))?;
        Ok(Arc::new(OpenFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = patiently(|| options.open(self.path(name)))?;
        Ok(Arc::new(OpenFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in patiently(|| fs::read_dir(self.path(directory)))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let open = {
            let mut directories = self
                .directories
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match directories.get(directory) {
                Some(open) => Arc::clone(open),
                None => {
                    let open = Arc::new(patiently(|| File::open(self.path(directory)))?);
                    directories.insert(directory.to_owned(), Arc::clone(&open));
                    open
                }
            }
        };
        open.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn DiskLock>> {
        let path = self.path(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(HeldLock(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(volume(&self.root)?.0)
    }

    fn total_bytes(&self) -> io::Result<u64> {
        Ok(volume(&self.root)?.1)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.path(name))?;
        allocate(&file, bytes)
    }

    fn describe(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

#[derive(Debug)]
pub(super) struct OpenFile(pub(super) File);

impl DiskFile for OpenFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_ahead(&self, offset: u64, length: u64) {
        read_ahead(&self.0, offset, length);
    }

    fn modified_ms(&self) -> Option<i64> {
        let modified = self.0.metadata().ok()?.modified().ok()?;
        let since = modified.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    }

    fn set_modified_ms(&self, ms: i64) {
        let since = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        // Some file systems have no times.
        let _ = self.0.set_modified(UNIX_EPOCH + since);
    }
}

/// Opens something, again and again while there are too many open files.
#[allow(
    clippy::disallowed_methods,
    reason = "no event reports when a descriptor is free again"
)]
fn patiently<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            other => return other,
        }
    }
    open()
}

/// The lock is held as long as the file is open.
#[derive(Debug)]
pub(super) struct HeldLock(#[expect(dead_code, reason = "held, not read")] pub(super) File);

impl DiskLock for HeldLock {}

/// Creates `path` and what is missing above it, each readable by the owner only, and syncs each
/// parent, so that a power loss cannot lose a directory whose files were synced.
fn create_directories(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_directories(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) if !path.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
        _ => {}
    }
    sync_directory(parent)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A hint: whoever reads later waits for the disk if it was not heard.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "posix_fadvise has no wrapper in the standard library"
)]
fn read_ahead(file: &File, offset: u64, length: u64) {
    use std::os::fd::AsRawFd;
    let (Ok(offset), Ok(length)) = (libc::off_t::try_from(offset), libc::off_t::try_from(length))
    else {
        return;
    };
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    let _ =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, length, libc::POSIX_FADV_WILLNEED) };
}

#[cfg(not(target_os = "linux"))]
fn read_ahead(_: &File, _: u64, _: u64) {}

/// Takes up space without writing it, where the file system can; else by writing zeros.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "fallocate has no safe wrapper in the standard library"
)]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor belongs to `file`, which outlives the call; no memory is passed.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {}
        _ => return Err(error),
    }
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(n).unwrap_or(zeros.len())], at)?;
        at += n;
    }
    Ok(())
}

/// Bytes of a volume: free for this process, and all.
#[expect(
    unsafe_code,
    reason = "statvfs has no safe wrapper in the standard library"
)]
#[expect(
    clippy::useless_conversion,
    reason = "the fields are narrower on 32-bit machines"
)]
fn volume(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a NUL-terminated string and `stat` is a writable statvfs; both outlive
    // the call. All-zero bytes are a valid statvfs, so `assume_init` holds in any case.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat.assume_init()
    };
    let unit = u64::from(stat.f_frsize);
    Ok((
        u64::from(stat.f_bavail).saturating_mul(unit),
        u64::from(stat.f_blocks).saturating_mul(unit),
    ))
}
