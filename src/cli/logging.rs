//! The log of the operator: one line per event on standard error, filtered by `RUST_LOG`. Never waits for its reader.

use tracing_subscriber::EnvFilter;

use crate::server::process::log_pipe::Pipe;

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For log collectors: one JSON object per line.
    Json,
}

/// Starts logging; `info` and up unless `RUST_LOG` is set.
pub(super) fn start(format: Format) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let pipe = Pipe::new(std::io::stderr(), format == Format::Json);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || pipe.clone());
    // A second start (in tests) keeps the first.
    let _ = match format {
        Format::Text => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().try_init(),
    };
}
