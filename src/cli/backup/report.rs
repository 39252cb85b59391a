//! `--result-file`: the end of a subcommand as one line of JSON, for the operator whose Job it runs in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::printable;
use crate::backup::Error;
use crate::backup::manifest::Manifest;
use crate::backup_plan::{FailureClass, JobResult, Saved};

/// Where the end is reported.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Report {
    /// Also write the result into this file, as one line of JSON of at most 4 KiB, success or not.
    #[arg(long, value_name = "FILE")]
    result_file: Option<PathBuf>,
}

impl Report {
    pub(super) fn write(&self, result: Option<&JobResult>) -> Result<(), Error> {
        let (Some(file), Some(result)) = (&self.result_file, result) else {
            return Ok(());
        };
        put(file, &format!("{}\n", result.line()))
    }

    /// Whether somebody reads it.
    pub(super) fn is_asked_for(&self) -> bool {
        self.result_file.is_some()
    }

    /// That of an earlier run would pass for this one's, if this one is killed.
    pub(super) fn begin(&self) -> Result<(), Error> {
        match &self.result_file {
            Some(file) => put(file, ""),
            None => Ok(()),
        }
    }
}

fn put(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(|source| Error::File {
        path: file.to_owned(),
        source,
    })
}

/// Reports that this version does not understand a call, where its result is waited for: an operator of another version
/// runs this image, and would find an exit code alone.
pub(in crate::cli) fn not_understood(arguments: &[OsString], why: &str) {
    let Some(file) = result_file(arguments) else {
        return;
    };
    let why = why.lines().find(|line| !line.trim().is_empty());
    let message = format!(
        "quorate {} does not understand this call: {}; run an image of the operator's own version",
        env!("CARGO_PKG_VERSION"),
        why.unwrap_or_default().trim_start_matches("error: ")
    );
    let result = JobResult::Failed {
        // Says nothing of the store.
        class: FailureClass::Other,
        message: printable(&message),
    };
    if let Err(error) = put(&file, &format!("{}\n", result.line())) {
        eprintln!("quorate: {}", super::chain(&error));
    }
}

/// Where a result is wanted, read without the parser, which has refused the call.
fn result_file(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter().map(|it| it.to_string_lossy());
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--result-file") {
            Some("") => return arguments.next().map(|file| PathBuf::from(&*file)),
            Some(file) if file.len() > 1 && file.starts_with('=') => {
                return Some(PathBuf::from(&file[1..]));
            }
            _ => {}
        }
    }
    None
}

/// What there is to know of data that were restored: on standard error, where it is not taken for the result.
pub(super) fn print_notes(name: &str, notes: &[String]) {
    for note in notes {
        eprintln!("{name}: note: {}", printable(note));
    }
}

/// The report of an error, with its text.
pub(super) fn failed(error: &Error, message: String) -> JobResult {
    JobResult::Failed {
        class: class(error),
        message,
    }
}

fn class(error: &Error) -> FailureClass {
    match error {
        Error::Usage(_) => FailureClass::Settings,
        Error::Store { .. } if error.refuses_credentials() => FailureClass::Credentials,
        Error::Store { .. } => FailureClass::Store,
        Error::NotFound { .. } | Error::NothingThere { .. } => FailureClass::NotFound,
        Error::Moment(_) => FailureClass::NotFound,
        // A person has to look at both clusters.
        Error::Damaged { .. } | Error::Archive(_) | Error::Follow(_) => FailureClass::Damaged,
        Error::Key(_) => FailureClass::Key,
        Error::Target(_) => FailureClass::Target,
        Error::TargetFull(_) => FailureClass::TargetFull,
        Error::Source(_) | Error::Snapshot { .. } => FailureClass::Source,
        Error::File { .. } | Error::Interrupted(_) | Error::Member(_) | Error::Unclear { .. } => {
            FailureClass::Other
        }
    }
}

/// The report of a backup that is stored.
pub(super) fn saved(manifest: &Manifest) -> JobResult {
    let snapshot = &manifest.snapshot;
    JobResult::Saved(Box::new(Saved {
        id: manifest.id.clone(),
        started: manifest.started,
        completed: manifest.completed,
        cluster_id: manifest.source.cluster_id.clone(),
        member_id: manifest.source.member_id.clone(),
        revision: snapshot.revision,
        raft_index: snapshot.raft_index,
        raft_term: snapshot.raft_term,
        hash: snapshot.hash,
        keys: snapshot.keys,
        size: snapshot.size,
        stored: manifest.parts.iter().map(|part| part.stored).sum(),
        key_id: manifest.encryption.as_ref().map(|it| it.key_id.clone()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Job of an older image ended with 2, and its resource said that it had ended without a result.
    #[test]
    fn call_of_another_version_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("result");
        let given = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let joined = format!("quorate backup --result-file={} --new", file.display());
        let apart = format!("quorate backup --result-file {} --new", file.display());
        for call in [joined, apart] {
            not_understood(
                &given(&call),
                "\nerror: unexpected argument '--new' found\n\nUsage: ...",
            );
            let line = std::fs::read_to_string(&file).expect("a result");
            let Some(JobResult::Failed { class, message }) = JobResult::read(&line) else {
                panic!("{line}");
            };
            assert_eq!(class, FailureClass::Other);
            let version = env!("CARGO_PKG_VERSION");
            let begin = format!(
                "quorate {version} does not understand this call: unexpected argument '--new' found;"
            );
            assert!(message.starts_with(&begin), "{message}");
            std::fs::remove_file(&file).expect("removed");
        }
        for call in [
            "quorate backup --new",
            "quorate backup --result-file",
            "quorate --result-file=",
        ] {
            not_understood(&given(call), "error: no");
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            0
        );
    }
}
