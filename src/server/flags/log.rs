//! The flags of the log, validated: what is written, where to, and when a file of it is rotated.
//!
//! As in etcd the configuration of rotation counts only with `--enable-log-rotation`. Never opens a file.

use std::path::PathBuf;

use serde::Deserialize;

use super::Flags;

/// Bytes of etcd's megabyte.
const MEGABYTE: u64 = 1 << 20;
/// etcd's size of a file before it is rotated, also used for 0, in megabytes.
const MEGABYTES: u64 = 100;

/// The log's level, format and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least severe level that is written.
    pub level: tracing::Level,
    /// JSON, one object per line; otherwise plain text.
    pub json: bool,
    /// Each gets every line.
    pub outputs: Vec<Output>,
    /// When the one file among the outputs is rotated; `None`: never.
    pub rotation: Option<Rotation>,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// When a file of the log gets another name, and how many of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes that a file has at most, but for a longer line.
    pub most_bytes: u64,
    /// Days that a rotated file is kept; `None`: without end.
    pub days: Option<u32>,
    /// Rotated files that are kept; `None`: all.
    pub backups: Option<usize>,
    /// Their names have the time of this machine, not UTC.
    pub local_time: bool,
}

/// What `--log-rotation-config-json` has: etcd's names, of which all may be left out, and others are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    maxsize: i64,
    maxage: i64,
    maxbackups: i64,
    localtime: bool,
    compress: bool,
}

/// Validates them. The text of a refusal names the flag and the remedy.
pub(in crate::server) fn log(flags: &Flags, warnings: &mut Vec<String>) -> Result<Log, String> {
    let outputs = outputs(&flags.list("log-outputs"))?;
    let rotation = if flags.bool("enable-log-rotation") {
        Some(rotation(flags.text("log-rotation-config-json"), &outputs)?)
    } else {
        if flags.is_given("log-rotation-config-json") {
            warnings.push(
                "--log-rotation-config-json has no effect without --enable-log-rotation".to_owned(),
            );
        }
        None
    };
    let level = match flags.text("log-level") {
        "debug" => tracing::Level::DEBUG,
        "warn" => tracing::Level::WARN,
        "error" | "panic" | "fatal" => tracing::Level::ERROR,
        _ => tracing::Level::INFO,
    };
    Ok(Log {
        level,
        json: flags.text("log-format") == "json",
        outputs,
        rotation,
    })
}

fn outputs(names: &[&str]) -> Result<Vec<Output>, String> {
    if names.len() > 1 && names.contains(&"default") {
        return Err(
            "--log-outputs has \"default\" beside others: write stderr in its place".to_owned(),
        );
    }
    if names.contains(&"systemd/journal") {
        return Err("--log-outputs=systemd/journal is not supported: give stderr, which systemd writes to its journal".to_owned());
    }
    let mut outputs: Vec<Output> = Vec::new();
    for name in names {
        let output = match *name {
            "default" | "stderr" => Output::Stderr,
            "stdout" => Output::Stdout,
            path => Output::File(path.into()),
        };
        if outputs.contains(&output) {
            return Err(format!("--log-outputs has {name:?} twice: leave one out"));
        }
        outputs.push(output);
    }
    if outputs.is_empty() {
        outputs.push(Output::Stderr);
    }
    Ok(outputs)
}

fn rotation(json: &str, outputs: &[Output]) -> Result<Rotation, String> {
    let files = outputs
        .iter()
        .filter(|output| matches!(output, Output::File(_)));
    if files.count() != 1 {
        return Err(
            "--enable-log-rotation needs exactly one file among --log-outputs: give its path"
                .to_owned(),
        );
    }
    let refused = |why: &str| {
        Err(format!(
            "--log-rotation-config-json is {json:?}: {why}, as in {{\"maxsize\": 100, \"maxage\": 0, \"maxbackups\": 0, \"localtime\": false}}"
        ))
    };
    let given: Given = match serde_json::from_str(json) {
        Ok(given) => given,
        Err(error) => return refused(&format!("{error}; give an object of JSON")),
    };
    if given.compress {
        return refused(
            "files are not compressed; give \"compress\": false, and compress what has a time in its name",
        );
    }
    let (Ok(megabytes), Ok(days), Ok(backups)) = (
        u64::try_from(given.maxsize),
        u32::try_from(given.maxage),
        usize::try_from(given.maxbackups),
    ) else {
        return refused("numbers must be from 0 on");
    };
    let megabytes = if megabytes == 0 { MEGABYTES } else { megabytes };
    Ok(Rotation {
        most_bytes: megabytes.saturating_mul(MEGABYTE),
        days: Some(days).filter(|days| *days > 0),
        backups: Some(backups).filter(|backups| *backups > 0),
        local_time: given.localtime,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn parsed(arguments: &[&str]) -> (Result<Log, String>, Vec<String>) {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("known flags");
        let mut warnings = Vec::new();
        let log = log(&flags, &mut warnings);
        (log, warnings)
    }

    const FILE: &str = "--log-outputs=stderr,/var/log/etcd.log";

    #[test]
    fn outputs_are_those_of_etcd() {
        let of = |text: &str| parsed(&[text]).0.expect("accepted").outputs;
        let file = || Output::File("/var/log/etcd.log".into());
        assert_eq!(of("--log-outputs=default"), [Output::Stderr]);
        assert_eq!(of("--log-outputs="), [Output::Stderr]);
        assert_eq!(
            of("--log-outputs=stdout,stderr"),
            [Output::Stdout, Output::Stderr]
        );
        assert_eq!(of(FILE), [Output::Stderr, file()]);
        assert_eq!(parsed(&[FILE]).0.expect("accepted").rotation, None);
    }

    #[test]
    fn rotation_has_the_defaults_of_etcd() {
        let of = |json: &str| {
            let json = format!("--log-rotation-config-json={json}");
            let log = parsed(&[FILE, "--enable-log-rotation", &json]).0;
            log.expect("accepted").rotation
        };
        let rotation = Rotation {
            most_bytes: 100 << 20,
            days: None,
            backups: None,
            local_time: false,
        };
        let log = parsed(&[FILE, "--enable-log-rotation"]).0;
        assert_eq!(log.expect("accepted").rotation, Some(rotation));
        // etcd ignores names that it does not know.
        assert_eq!(of("{\"other\": 1}"), Some(rotation));
        let json =
            r#"{"maxsize": 7, "maxage": 2, "maxbackups": 3, "localtime": true, "compress": false}"#;
        let other = Rotation {
            most_bytes: 7 << 20,
            days: Some(2),
            backups: Some(3),
            local_time: true,
        };
        assert_eq!(of(json), Some(other));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let rotates = "--enable-log-rotation";
        for (arguments, text) in [
            (
                &["--log-outputs=default,/x"][..],
                "write stderr in its place",
            ),
            (&["--log-outputs=systemd/journal"], "give stderr"),
            (&["--log-outputs=/x,/x"], "twice: leave one out"),
            (&[rotates], "exactly one file among --log-outputs"),
            (
                &["--log-outputs=/x,/y", rotates],
                "exactly one file among --log-outputs",
            ),
            (
                &[FILE, rotates, "--log-rotation-config-json={"],
                "give an object of JSON",
            ),
            (
                &[
                    FILE,
                    rotates,
                    "--log-rotation-config-json={\"maxsize\": -1}",
                ],
                "numbers must be from 0 on",
            ),
            (
                &[
                    FILE,
                    rotates,
                    "--log-rotation-config-json={\"compress\": true}",
                ],
                "files are not compressed",
            ),
        ] {
            let refusal = parsed(arguments).0.expect_err("refused");
            assert!(refusal.contains(text), "{arguments:?}: {refusal}");
        }
    }

    #[test]
    fn rotation_that_is_off_is_told() {
        let (log, warnings) = parsed(&[FILE, "--log-rotation-config-json={}"]);
        assert_eq!(log.expect("accepted").rotation, None);
        assert_eq!(
            warnings,
            ["--log-rotation-config-json has no effect without --enable-log-rotation"]
        );
    }
}
