//! The log of the process: its outputs, each of which gets every line that the level lets through.
//!
//! Never chooses what is logged, but for the lower levels of libraries, which would drown our lines.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::exit::{self, Stop};
use super::log_file::LogFile;
use super::log_lines;
use super::log_pipe::Pipe;
use crate::server::flags::log::{Log, Output};

/// Logs from here on.
pub(in crate::server) fn log_to(log: &Log) -> Result<(), Stop> {
    let level = LevelFilter::from_level(log.level);
    // Of libraries warnings only.
    let filter = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("quorate", level);
    let outputs = LogOutputs::open(log)?;
    let writer = BoxMakeWriter::new(move || outputs.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    // Only tests run two servers in one process; the first one's log is used by both.
    let _ = match log.json {
        true => registry
            .with(lines.event_format(log_lines::Json))
            .try_init(),
        false => registry.with(lines).try_init(),
    };
    Ok(())
}

/// All the outputs of the log; clones share them.
#[derive(Clone)]
struct LogOutputs(Arc<Mutex<Vec<Box<dyn Write + Send>>>>);

impl LogOutputs {
    fn open(log: &Log) -> Result<Self, Stop> {
        let open = |output: &Output| -> Result<Box<dyn Write + Send>, Stop> {
            Ok(match output {
                Output::Stderr => Box::new(Pipe::new(io::stderr(), log.json)),
                Output::Stdout => Box::new(Pipe::new(io::stdout(), log.json)),
                Output::File(path) => Box::new(
                    LogFile::open(path.clone(), log.json, log.rotation)
                        .map_err(|error| no_log_file(path, &error))?,
                ),
            })
        };
        let outputs: Result<_, Stop> = log.outputs.iter().map(open).collect();
        Ok(Self(Arc::new(Mutex::new(outputs?))))
    }
}

fn no_log_file(path: &Path, error: &io::Error) -> Stop {
    Stop {
        code: exit::OTHER,
        class: "io",
        message: format!(
            "cannot append to {}: {error}: give another path with --log-outputs, or stderr",
            path.display()
        ),
    }
}

impl Write for LogOutputs {
    /// One that fails does not keep a line from the others.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = Ok(line.len());
        for output in outputs.iter_mut() {
            if let Err(error) = output.write_all(line) {
                written = Err(error);
            }
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
