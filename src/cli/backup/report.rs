//! `--result-file`: the end of a subcommand as one line of JSON, for the operator whose Job it runs in.

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
