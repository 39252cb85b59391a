//! Why the process ends, in a form that an operator can read: fixed exit codes and one JSON
//! line in the termination message. Never decides to end it.

use std::path::Path;
use std::process::ExitCode;

/// The settings are wrong: nothing was touched.
pub const USAGE: u8 = 2;
/// A port cannot be listened on, or a certificate cannot be used.
pub const LISTEN: u8 = 3;
/// Anything without a class of its own.
pub const OTHER: u8 = 1;

/// The end of the process, with its evidence. Classes of the disk have codes of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Exit code; 0 only for a stop that was asked for.
    pub code: u8,
    /// Stable word for programs: `usage`, `listen`, `corrupt`, `disk_full`, ...
    pub class: &'static str,
    /// What happened and what to do, for people.
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

    /// Says why on standard error and in the termination message, and gives the exit code.
    pub fn report(&self, termination_message: Option<&Path>) -> ExitCode {
        eprintln!("quorate server: {}", self.message);
        if let Some(path) = termination_message
            && let Err(error) = std::fs::write(path, self.line())
        {
            eprintln!("quorate server: cannot write {}: {error}", path.display());
        }
        ExitCode::from(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;

    #[test]
    fn the_termination_message_is_one_json_line() {
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
}
