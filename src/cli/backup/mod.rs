//! `quorate backup`: snapshots of a living cluster in an object store or a directory. Parses arguments, prints results;
//! `crate::backup` does the work.

mod archive;
mod fetch;
mod list;
mod prune;
mod report;
mod restore;
mod save;
mod source;
mod store;
mod survivor;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{USAGE, chain};
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup_plan::JobResult;
pub(super) use report::{Report, not_understood};
pub(super) use restore::TargetFlags;
pub(super) use source::MemberFlags;

/// Backups of a cluster, of etcd's or of ours, in an object store or a directory.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Save(Box<save::Arguments>),
    Archive(archive::Arguments),
    List(list::Arguments),
    Fetch(fetch::Arguments),
    Verify(verify::Arguments),
    Prune(prune::Arguments),
    Restore(Box<restore::Arguments>),
}

/// Runs the subcommand.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let (name, report) = arguments.command.reported();
    // It stores what it has before it ends.
    let graceful = name == "archive";
    let name = format!("quorate backup {name}");
    run_reported(&name, &report, graceful, arguments.command.run())
}

/// Runs something that reports how it ended. `graceful`: it heeds signals itself.
pub(super) fn run_reported(
    name: &str,
    report: &Report,
    graceful: bool,
    work: impl Future<Output = Result<Ended, Error>>,
) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = report.begin().and_then(|()| match graceful {
        true => runtime.block_on(work),
        false => runtime.block_on(until_signalled(work)),
    });
    // What still reads a file that has no name is not waited for.
    runtime.shutdown_background();
    match result {
        Ok(ended) => {
            // What was done stays done.
            if let Err(error) = report.write(ended.result.as_ref()) {
                eprintln!("{name}: {}", chain(&error));
                return ExitCode::FAILURE;
            }
            ended.code
        }
        Err(error) => {
            let text = printable(&chain(&error));
            eprintln!("{name}: {text}");
            if let Err(error) = report.write(Some(&report::failed(&error, text))) {
                eprintln!("{name}: {}", chain(&error));
            }
            match error {
                Error::Usage(_) => ExitCode::from(USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

impl Command {
    /// Its name, and where its end is reported.
    fn reported(&self) -> (&'static str, Report) {
        match self {
            Command::Save(it) => ("save", it.report.clone()),
            Command::Archive(it) => ("archive", it.report.clone()),
            Command::Verify(it) => ("verify", it.report.clone()),
            Command::Prune(it) => ("prune", it.report.clone()),
            Command::Restore(it) => ("restore", it.report.clone()),
            Command::List(_) => ("list", Report::default()),
            Command::Fetch(_) => ("fetch", Report::default()),
        }
    }

    async fn run(self) -> Result<Ended, Error> {
        match self {
            Command::Save(it) => Box::pin(save::run(*it)).await,
            Command::Archive(it) => Box::pin(archive::run(it)).await,
            Command::Verify(it) => Box::pin(verify::run(it)).await,
            Command::Prune(it) => prune::run(it).await,
            Command::Restore(it) => Box::pin(restore::run(*it)).await,
            Command::List(it) => list::run(it).await.map(Ended::unreported),
            Command::Fetch(it) => Box::pin(fetch::run(it)).await.map(Ended::unreported),
        }
    }
}

/// How a subcommand ended.
pub(super) struct Ended {
    pub(super) code: ExitCode,
    /// What `--result-file` holds.
    pub(super) result: Option<JobResult>,
}

impl Ended {
    fn unreported(code: ExitCode) -> Ended {
        Ended { code, result: None }
    }
}

/// Keys for reading backups that are encrypted.
#[derive(Debug, Args)]
struct Keys {
    /// File with a key of encrypted backups; may be given several times.
    #[arg(long = "key-file", value_name = "FILE")]
    key_files: Vec<PathBuf>,
}

impl Keys {
    fn read(&self) -> Result<Vec<Key>, Error> {
        self.key_files.iter().map(|file| read_key(file)).collect()
    }
}

fn read_key(file: &Path) -> Result<Key, Error> {
    let text = std::fs::read_to_string(file).map_err(|source| Error::File {
        path: file.to_owned(),
        source,
    })?;
    Key::parse(&text).map_err(|error| Error::Key(format!("{}: {error}", file.display())))
}

/// A text from a store, without what would control a terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Ends with the first signal, for what heeds it itself.
pub(super) fn signalled() -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let unusable = |error| Error::Usage(format!("no signals: {error}"));
    let mut stops = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(unusable)?;
    Ok(async move {
        tokio::select! {
            _ = stops.recv() => {}
            _ = interrupts.recv() => {}
        }
    })
}

/// Ends with the future, or with the first signal: what is dropped then removes its files and ends its member.
async fn until_signalled(
    future: impl Future<Output = Result<Ended, Error>>,
) -> Result<Ended, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let stops = signal(SignalKind::terminate());
    let mut stops = stops.map_err(|error| Error::Usage(format!("no signals: {error}")))?;
    tokio::select! {
        ended = future => ended,
        _ = tokio::signal::ctrl_c() => Err(Error::Interrupted("interrupted".to_owned())),
        _ = stops.recv() => Err(Error::Interrupted("terminated".to_owned())),
    }
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Error::Usage(error.to_string()))?;
    println!("{text}");
    Ok(())
}
