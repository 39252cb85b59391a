//! Why the process ends, in a form that an operator can read: fixed exit codes and one JSON line in
//! the termination message. Never decides to end it, and never waits for a reader.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use super::log_pipe::last_word;

/// The settings are wrong: nothing was touched.
pub const USAGE: u8 = 2;
/// A port cannot be listened on, or a certificate cannot be used.
pub const LISTEN: u8 = 3;
/// Any other reason without a class.
pub const OTHER: u8 = 1;

/// The end of the process, with its reason. Classes of the disk have their own codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Exit code; 0 only for a requested stop.
    pub code: u8,
    /// Stable identifier for programs: `usage`, `listen`, `corrupt`, `disk_full`, ...
    pub class: &'static str,
    /// The reason and the remedy, as text.
    pub message: String,
}

impl Stop {
    /// Wrong settings.
    #[must_use]
    pub fn usage(message: impl ToString) -> Stop {
        Stop {
            code: USAGE,
            class: "usage",
            message: message.to_string(),
        }
    }

    /// A port or a certificate that cannot be used.
    #[must_use]
    pub fn listen(message: impl ToString) -> Stop {
        Stop {
            code: LISTEN,
            class: "listen",
            message: message.to_string(),
        }
    }

    /// The JSON line of the termination message.
    #[must_use]
    pub fn line(&self) -> String {
        let line = serde_json::json!({
            "class": self.class,
            "exitCode": self.code,
            "message": self.message,
        });
        format!("{line}\n")
    }

    /// Writes the reason to the termination message and to standard error, and returns the exit
    /// code.
    pub fn report(&self, termination_message: Option<&Path>) -> ExitCode {
        self.report_to(std::io::stderr(), termination_message)
    }

    fn report_to(&self, to: impl Write + AsFd, termination_message: Option<&Path>) -> ExitCode {
        // First to the file, which needs no reader.
        let written = termination_message.map(|path| (path, std::fs::write(path, self.line())));
        let mut text = format!("quorate server: {}\n", self.message);
        if let Some((path, Err(error))) = written {
            text += &format!("quorate server: cannot write {}: {error}\n", path.display());
        }
        last_word(to, &text);
        ExitCode::from(self.code)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::Stop;
    use crate::server::process::log_pipe::Pipe;

    #[test]
    fn termination_message_is_one_json_line() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("message");
        Stop::listen("port \"1\"\nis taken").report(Some(&path));
        let text = std::fs::read_to_string(&path).expect("written");
        assert_eq!(text.lines().count(), 1);
        let json: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!(
            (&json["class"], &json["exitCode"]),
            (&"listen".into(), &3.into())
        );
    }

    /// A supervisor that did not read standard error kept a server from ending: its cluster had
    /// lost the member, and it was not restarted.
    #[test]
    fn hung_log_reader_delays_no_exit() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let stop = Stop::listen("the port is taken");
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("message");
        let (ended, end) = std::sync::mpsc::channel();
        let (reported, full) = (stop.clone(), writer.try_clone().expect("another end"));
        let message = path.clone();
        let mut log = Pipe::new(writer, false);
        for _ in 0..2000 {
            let line = [&[b'x'; 99][..], b"\n"].concat();
            log.write_all(&line).expect("written or left out");
        }
        std::thread::spawn(move || {
            reported.report_to(full, Some(&message));
            ended.send(()).expect("somebody waits");
        });
        end.recv_timeout(std::time::Duration::from_secs(60))
            .expect("it ends without a reader");
        let written = std::fs::read_to_string(&path).expect("written");
        assert_eq!(written, stop.line());
        // A reader receives the reason.
        let (mut other, writer_too) = std::io::pipe().expect("a pipe");
        stop.report_to(writer_too, None);
        let mut text = String::new();
        other.read_to_string(&mut text).expect("text");
        assert_eq!(text, "quorate server: the port is taken\n");
        drop(reader);
    }
}
