//! A file of the log, and its rotation by size, in the manner of etcd: what is full is renamed to a name with the time,
//! and of those the newest are kept.
//!
//! Lines that cannot be written are counted, and the next one that can is preceded by their number; standard error is
//! told once. Never ends the server: it runs on without a log.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::clock;
use super::{log_lines, log_pipe};
use crate::server::flags::log::Rotation;

/// The form of the time in a rotated file's name.
const TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The permissions of a file that is rotated, and of one that is not, as etcd has them.
const OWNERS_ALONE: u32 = 0o600;
const READABLE: u32 = 0o644;

/// Appends lines to a file.
#[derive(Debug)]
pub(in crate::server) struct LogFile {
    path: PathBuf,
    json: bool,
    rotation: Option<Rotation>,
    file: File,
    /// Counted only for rotation.
    bytes: u64,
    /// The last line was written only in part.
    cut: bool,
    left_out: u64,
    /// Standard error was told that something fails, and it has not worked since.
    complained: bool,
    now: fn() -> Duration,
}

impl LogFile {
    /// Opens the file, and makes it if it is missing; with rotation also its directory.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::server) fn open(
        path: PathBuf,
        json: bool,
        rotation: Option<Rotation>,
    ) -> io::Result<Self> {
        Self::open_at(path, json, rotation, clock::since_1970)
    }

    fn open_at(
        path: PathBuf,
        json: bool,
        rotation: Option<Rotation>,
        now: fn() -> Duration,
    ) -> io::Result<Self> {
        if rotation.is_some()
            && let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty())
        {
            fs::create_dir_all(directory)?;
        }
        let file = append_to(&path, rotation.is_some())?;
        let mut log = Self {
            bytes: file.metadata()?.len(),
            path,
            json,
            rotation,
            file,
            cut: false,
            left_out: 0,
            complained: false,
            now,
        };
        if let Err(error) = log.drop_old() {
            log.complain("cannot remove what was rotated", &error);
        }
        Ok(log)
    }

    fn line(&mut self, line: &[u8]) {
        let full = self.rotation.is_some_and(|rotation| {
            self.bytes > 0 && self.bytes + line.len() as u64 > rotation.most_bytes
        });
        // A file that cannot be rotated grows on.
        if full {
            self.make_way();
        }
        match self.append(line) {
            Ok(()) if full => {}
            Ok(()) => self.complained = false,
            Err(error) => {
                self.left_out += 1;
                self.complain("lines are left out", &error);
            }
        }
    }

    fn make_way(&mut self) {
        if let Err(error) = self.rotate() {
            return self.complain("cannot rotate it", &error);
        }
        if let Err(error) = self.drop_old() {
            self.complain("cannot remove what was rotated", &error);
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let mut whole = Vec::with_capacity(line.len());
        if self.cut {
            whole.push(b'\n');
        }
        if self.left_out > 0 {
            let first = log_lines::left_out(self.left_out, "the file took none", self.json);
            whole.extend_from_slice(first.as_bytes());
        }
        whole.extend_from_slice(line);
        let mut rest = &whole[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes += written as u64;
                    rest = &rest[written..];
                    self.cut = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.left_out = 0;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.free_name()?)?;
        self.file = append_to(&self.path, true)?;
        self.bytes = self.file.metadata()?.len();
        self.cut = false;
        Ok(())
    }

    /// A name with the time, and with a later one if another file has that.
    fn free_name(&self) -> io::Result<PathBuf> {
        let (before, after) = self.around_the_time();
        let mut time = (self.now)();
        loop {
            let mut name = before.clone();
            name.push(self.civil(time).strftime(TIME).to_string());
            name.push(&after);
            let path = self.path.with_file_name(name);
            if !path.try_exists()? {
                return Ok(path);
            }
            time += Duration::from_millis(1);
        }
    }

    /// What a rotated file's name has before the time and after it.
    fn around_the_time(&self) -> (OsString, OsString) {
        let mut before = self.path.file_stem().unwrap_or_default().to_owned();
        before.push("-");
        let mut after = OsString::new();
        if let Some(extension) = self.path.extension() {
            after.push(".");
            after.push(extension);
        }
        (before, after)
    }

    /// Removes rotated files beyond the number and the age that are kept.
    fn drop_old(&self) -> io::Result<()> {
        let Some(rotation) = self.rotation else {
            return Ok(());
        };
        if rotation.backups.is_none() && rotation.days.is_none() {
            return Ok(());
        }
        let days = rotation.days.map(|days| DAY * days);
        let oldest = days.map(|days| self.civil((self.now)().saturating_sub(days)));
        let mut rotated = self.rotated()?;
        rotated.sort_unstable_by(|one, other| other.cmp(one));
        for (number, (time, path)) in rotated.into_iter().enumerate() {
            let many = rotation.backups.is_some_and(|backups| number >= backups);
            if many || oldest.is_some_and(|oldest| time < oldest) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The rotated files that are there, with the time in their names.
    fn rotated(&self) -> io::Result<Vec<(DateTime, PathBuf)>> {
        let (before, after) = self.around_the_time();
        let (Some(before), Some(after)) = (before.to_str(), after.to_str()) else {
            return Ok(Vec::new());
        };
        let directory = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut found = Vec::new();
        for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let name = entry.file_name();
            let time = name.to_str().and_then(|name| name.strip_prefix(before));
            let time = time.and_then(|name| name.strip_suffix(after));
            if let Some(time) = time.and_then(|time| DateTime::strptime(TIME, time).ok()) {
                found.push((time, entry.path()));
            }
        }
        Ok(found)
    }

    fn civil(&self, since_1970: Duration) -> DateTime {
        let local = self.rotation.is_some_and(|rotation| rotation.local_time);
        let zone = if local {
            TimeZone::system()
        } else {
            TimeZone::UTC
        };
        // After the year 9999 it is that of 1970.
        let time = Timestamp::UNIX_EPOCH.checked_add(since_1970);
        zone.to_datetime(time.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn complain(&mut self, what: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            let path = self.path.display();
            log_pipe::last_word(
                io::stderr(),
                &format!("the log in {path}: {what}: {error}\n"),
            );
        }
    }
}

fn append_to(path: &Path, rotates: bool) -> io::Result<File> {
    let mode = if rotates { OWNERS_ALONE } else { READABLE };
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(mode).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// 2026-11-30 23:01:31.062 UTC.
    fn then() -> Duration {
        Duration::from_millis(1_796_079_691_062)
    }

    fn rotation(most_bytes: u64, days: Option<u32>, backups: Option<usize>) -> Option<Rotation> {
        Some(Rotation {
            most_bytes,
            days,
            backups,
            local_time: false,
        })
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn full_file_is_renamed_and_the_newest_are_kept() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("new/etcd.log");
        let mut log =
            LogFile::open_at(path.clone(), true, rotation(10, None, Some(2)), then).expect("open");
        for line in [
            "first\n",
            "two\n",
            "third\n",
            "longer than it may be\n",
            "e\n",
        ] {
            log.write_all(line.as_bytes()).expect("written");
        }
        let directory = home.path().join("new");
        assert_eq!(
            names(&directory),
            [
                "etcd-2026-11-30T23-01-31.063.log",
                "etcd-2026-11-30T23-01-31.064.log",
                "etcd.log"
            ],
            "the first one, .062, is gone"
        );
        let read = |name: &str| fs::read_to_string(directory.join(name)).expect("text");
        assert_eq!(read("etcd-2026-11-30T23-01-31.063.log"), "third\n");
        assert_eq!(
            read("etcd-2026-11-30T23-01-31.064.log"),
            "longer than it may be\n"
        );
        assert_eq!(read("etcd.log"), "e\n");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, OWNERS_ALONE);
        // What is there is appended to and counted.
        drop(log);
        let mut log =
            LogFile::open_at(path, true, rotation(10, None, Some(2)), then).expect("open");
        log.write_all(b"12345678\n").expect("written");
        assert_eq!(read("etcd.log"), "12345678\n");
    }

    /// Files of others in the same directory stay, whatever their age.
    #[test]
    fn rotated_files_go_by_their_age() {
        let home = tempfile::tempdir().expect("a directory");
        for name in [
            "etcd-2026-11-28T23-01-31.061.log",
            "etcd-2026-11-28T23-01-31.063.log",
            "etcd-2026-11-28T23-01-31.061.txt",
            "etcd-old.log",
            "other-2026-11-28T23-01-31.061.log",
        ] {
            fs::write(home.path().join(name), "text").expect("written");
        }
        let path = home.path().join("etcd.log");
        LogFile::open_at(path, true, rotation(10, Some(2), None), then).expect("open");
        assert_eq!(
            names(home.path()),
            [
                "etcd-2026-11-28T23-01-31.061.txt",
                "etcd-2026-11-28T23-01-31.063.log",
                "etcd-old.log",
                "etcd.log",
                "other-2026-11-28T23-01-31.061.log",
            ]
        );
    }

    /// A directory that is gone ends rotation, but no line is lost and the server goes on.
    #[test]
    fn file_that_cannot_be_rotated_grows_on() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("logs/etcd.log");
        let mut log = LogFile::open_at(path, true, rotation(4, None, None), then).expect("open");
        log.write_all(b"one\n").expect("written");
        fs::remove_dir_all(home.path().join("logs")).expect("removed");
        log.write_all(b"two\n").expect("written");
        assert!(log.complained);
        assert_eq!((log.bytes, log.left_out), (8, 0));
    }

    /// A file on a full disk: what is left out is told with the next line.
    #[test]
    fn lines_that_find_no_room_are_counted() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("etcd.log");
        let mut log = LogFile::open_at(path.clone(), true, None, then).expect("open");
        log.file = OpenOptions::new()
            .append(true)
            .open("/dev/full")
            .expect("a device");
        log.write_all(b"{}\n").expect("left out");
        log.write_all(b"{}\n").expect("left out");
        assert!(log.complained && log.left_out == 2);
        log.file = append_to(&path, false).expect("open");
        log.write_all(b"{}\n").expect("written");
        assert_eq!(
            fs::read_to_string(path).expect("text"),
            "{\"level\":\"warn\",\"msg\":\"2 lines of the log were left out: the file took none\"}\n{}\n"
        );
        assert!(!log.complained && log.left_out == 0);
    }
}
