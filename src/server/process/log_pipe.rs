//! The destination of log lines: standard error or output, without waiting for the reader.
//!
//! A pipe that is not read is full after 64 KiB, and a thread that writes to it blocks: one that
//! serves clients, possibly for ever, for lines that any host can cause. So a line for which there
//! is no room is dropped, and the next line that has room is preceded by the number of dropped
//! ones. Never keeps a line in memory.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::log_lines;

/// A pipe that is writable has this much room: no write of this size or less blocks.
const ROOM: usize = libc::PIPE_BUF;
/// Time for a reader that was only busy; no time is given to one that did not read the last line.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same for the reason of the end.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Log lines to one destination; clones share it.
#[derive(Debug)]
pub(crate) struct Pipe<W>(Arc<Mutex<State<W>>>);

#[derive(Debug)]
struct State<W> {
    to: W,
    json: bool,
    left_out: u64,
    /// The last line was written only in part.
    cut: bool,
    /// Time for a reader that was only busy.
    patience: Duration,
}

impl<W> Clone for Pipe<W> {
    fn clone(&self) -> Self {
        Pipe(Arc::clone(&self.0))
    }
}

impl<W: Write + AsFd> Pipe<W> {
    /// Log lines to `to`, as JSON objects or plain text.
    pub(crate) fn new(to: W, json: bool) -> Pipe<W> {
        Pipe(Arc::new(Mutex::new(State {
            to,
            json,
            left_out: 0,
            cut: false,
            patience: PATIENCE,
        })))
    }
}

/// Writes the last line, for which a reader gets a second: the process ends next, and must not wait
/// longer.
pub(crate) fn last_word(to: impl Write + AsFd, line: &str) {
    let pipe = Pipe::new(to, false);
    let mut state = pipe.0.lock().unwrap_or_else(PoisonError::into_inner);
    state.patience = LAST_PATIENCE;
    // If the reader has closed the pipe, the line is lost; the process ends either way.
    let _ = state.line(line.as_bytes());
}

/// Whether the destination can take the reason of the end.
pub(crate) fn hears_last_words(to: &impl AsFd) -> bool {
    has_room(to, LAST_PATIENCE)
}

impl<W: Write + AsFd> State<W> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let patience = match self.left_out {
            0 => self.patience,
            _ => Duration::ZERO,
        };
        if !has_room(&self.to, patience) {
            self.left_out += 1;
            return Ok(());
        }
        let mut head = String::new();
        if std::mem::take(&mut self.cut) {
            head.push('\n');
        }
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            head += &log_lines::left_out(left_out, "the output was not read", self.json);
        }
        // The room found is used up by the first piece; each further one checks for its own.
        let whole = [head.as_bytes(), line].concat();
        for (number, piece) in whole.chunks(ROOM).enumerate() {
            if number > 0 && !has_room(&self.to, self.patience) {
                (self.cut, self.left_out) = (true, 1);
                break;
            }
            self.to.write_all(piece)?;
        }
        Ok(())
    }
}

impl<W: Write + AsFd> Write for Pipe<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.line(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.to.flush()
    }
}

/// Whether a write of [`ROOM`] bytes does not block. Files and terminals always count as writable;
/// if the kernel does not know, the write is tried.
#[expect(
    unsafe_code,
    reason = "poll has no safe wrapper in the standard library"
)]
fn has_room(to: &impl AsFd, patience: Duration) -> bool {
    let mut asked = libc::pollfd {
        fd: to.as_fd().as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
        // SAFETY: `asked` is one pollfd that outlives the call, and its descriptor is borrowed.
        let answered = unsafe { libc::poll(&raw mut asked, 1, left) };
        // A signal interrupted the call, which does not mean that there is no room.
        let interrupted =
            answered < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !interrupted {
            return answered != 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::Pipe;

    /// A supervisor that did not read standard error blocked the threads that served clients, as
    /// soon as foreign hosts had caused 64 KiB of warnings.
    #[test]
    fn unread_log_pipe_blocks_nothing() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut log = Pipe::new(writer, false);
        let line = format!("{}\n", "x".repeat(99));
        for _ in 0..10_000 {
            log.write_all(line.as_bytes()).expect("written or left out");
        }
        let mut read = vec![0; 1 << 20];
        let length = reader.read(&mut read).expect("what there was room for");
        let kept = read[..length].iter().filter(|byte| **byte == b'\n').count();
        assert!(kept >= 10 && length % 100 == 0, "{kept} whole lines");
        log.write_all(b"later\n").expect("written");
        drop(log);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        let words = format!("WARN {} lines of the log were left out", 10_000 - kept);
        assert!(
            rest.starts_with(&words) && rest.ends_with("\nlater\n"),
            "{rest}"
        );
    }

    #[test]
    fn dropped_lines_are_reported_in_log_format() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut log = Pipe::new(writer, true);
        {
            let mut state = log.0.lock().expect("whole");
            // A reader that is not scheduled for a moment is waited for.
            (state.left_out, state.patience) = (3, std::time::Duration::from_secs(60));
        }
        log.write_all(b"{}\n").expect("written");
        // A line longer than the pipe's capacity is written completely nevertheless, while it is
        // read.
        let long = format!("{{\"msg\":\"{}\"}}\n", "x".repeat(200_000));
        let sent = long.clone();
        let writes = std::thread::spawn(move || log.write_all(sent.as_bytes()));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        writes.join().expect("ends").expect("written");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        assert_eq!(lines.len(), 3);
        let line: serde_json::Value = serde_json::from_str(lines[0]).expect("JSON");
        assert_eq!(line["level"], "warn");
        assert_eq!((lines[1], lines[2]), ("{}\n", &*long));
    }
}
