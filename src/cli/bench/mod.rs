//! `quorate bench`: load for any etcd v3 endpoint, measured at the client.
//!
//! Counts failures and never repeats a request. In a closed loop each client sends the next request as soon as it is
//! answered; with `--rate` requests are due at fixed times, and one that starts late is measured from when it was due,
//! so that a stalled server is not hidden (coordinated omission).

mod load;
mod summary;
#[cfg(test)]
mod tests;
#[cfg(feature = "versus")]
pub(super) mod versus;
mod watch;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use load::{Load, Pace};
use summary::Summary;
use watch::FanOut;
use work::{Keys, Mode, Work};

/// Load for any etcd v3 endpoint.
#[derive(Debug, Args)]
#[command(version, display_name = "quorate bench")]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Puts keys.
    Put(Plain),
    /// Gets single keys.
    Get(Reading),
    /// Lists keys of the whole key space, with their number.
    List(Listing),
    /// Puts and gets.
    Mixed(Mixed),
    /// Fills the key space, many keys per request.
    Fill(Filling),
    /// Watches one key with many watchers, and measures from each put to each event.
    Watch(Watching),
}

/// Which endpoints, how much load, how long.
#[derive(Debug, Args, Clone)]
struct Common {
    /// Client endpoints (http://host:port), comma-separated; connections are assigned round-robin.
    #[arg(long, value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    endpoints: Vec<String>,
    /// Total connections.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Total clients, each with one request at a time; assigned round-robin to the connections.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Threads that run the clients.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Measured requests; with --seconds as well, whichever ends first.
    #[arg(long)]
    total: Option<u64>,
    /// Measured seconds; 10 without --total.
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds of the same load before anything is measured.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Total requests per second, due at fixed times; without it each client sends the next request as soon as it is
    /// answered.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds after which a request counts as failed.
    #[arg(long, default_value_t = 30.0)]
    timeout: f64,
    /// Size of a key in bytes.
    #[arg(long, default_value_t = 32)]
    key_size: usize,
    /// Size of a value in bytes.
    #[arg(long, default_value_t = 256)]
    value_size: usize,
    /// Number of keys in the key space.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    key_space: u64,
    /// Prefix of the keys.
    #[arg(long, default_value = "bench/")]
    prefix: String,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON here; `-` prints it instead of the table.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Plain {
    #[command(flatten)]
    common: Common,
    /// Keys in order instead of random ones.
    #[arg(long)]
    sequential: bool,
}

#[derive(Debug, Args)]
struct Reading {
    #[command(flatten)]
    common: Common,
    /// Serializable reads: from the member's own state, without the leader.
    #[arg(long)]
    serializable: bool,
}

#[derive(Debug, Args)]
struct Listing {
    #[command(flatten)]
    common: Common,
    /// Keys per answer.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    /// Start at a random key instead of the first.
    #[arg(long)]
    random_start: bool,
    /// Serializable reads: from the member's own state, without the leader.
    #[arg(long)]
    serializable: bool,
}

#[derive(Debug, Args)]
struct Mixed {
    #[command(flatten)]
    common: Common,
    /// Percentage of gets.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: u32,
    /// Serializable reads: from the member's own state, without the leader.
    #[arg(long)]
    serializable: bool,
}

#[derive(Debug, Args)]
struct Filling {
    #[command(flatten)]
    common: Common,
    /// Keys per request; etcd allows 128 by default.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
}

#[derive(Debug, Args)]
struct Watching {
    #[command(flatten)]
    common: Common,
    /// Total watchers, assigned round-robin to streams.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    /// Total streams, assigned round-robin to the connections.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Streams beside them, each with a watcher of another key that is not written.
    #[arg(long, default_value_t = 0)]
    idle_streams: u32,
}

/// Runs the subcommand. The exit code is 0 only if no request failed.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    match run_benchmark(arguments.what) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quorate bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_benchmark(what: What) -> Result<bool, Error> {
    let (common, summary) = match what {
        What::Put(put) => {
            let mode = Mode::Put {
                sequential: put.sequential,
            };
            (put.common.clone(), put.common.load(mode)?.run()?)
        }
        What::Get(get) => {
            let mode = Mode::Get {
                serializable: get.serializable,
            };
            (get.common.clone(), get.common.load(mode)?.run()?)
        }
        What::List(list) => {
            let mode = Mode::List {
                limit: list.limit,
                random_start: list.random_start,
                serializable: list.serializable,
            };
            (list.common.clone(), list.common.load(mode)?.run()?)
        }
        What::Mixed(mixed) => {
            let mode = Mode::Mixed {
                reads: mixed.reads,
                serializable: mixed.serializable,
            };
            (mixed.common.clone(), mixed.common.load(mode)?.run()?)
        }
        What::Fill(fill) => {
            let mut load = fill.common.load(Mode::Fill { batch: fill.batch })?;
            // Each key once, all of them measured.
            load.warm_up = Duration::ZERO;
            load.total = Some(fill.common.key_space.div_ceil(fill.batch));
            load.seconds = None;
            (fill.common, load.run()?)
        }
        What::Watch(watch) => {
            let load = watch.common.load(Mode::Put { sequential: false })?;
            let fan_out = FanOut {
                watchers: watch.watchers as usize,
                streams: watch.streams as usize,
                idle: watch.idle_streams as usize,
                load,
            };
            (watch.common, fan_out.run()?)
        }
    };
    show(&common, &summary)?;
    Ok(summary.failed() == 0)
}

fn show(common: &Common, summary: &Summary) -> Result<(), Error> {
    let json =
        || serde_json::to_string_pretty(summary).map_err(|error| Error::Json(error.to_string()));
    match &common.json {
        Some(path) if path.as_os_str() == "-" => println!("{}", json()?),
        Some(path) => {
            print!("{summary}");
            std::fs::write(path, json()? + "\n")
                .map_err(|error| Error::Json(format!("{}: {error}", path.display())))?;
        }
        None => print!("{summary}"),
    }
    Ok(())
}

impl Common {
    /// The load that these arguments describe.
    fn load(&self, mode: Mode) -> Result<Load, Error> {
        let seconds = match (self.total, self.seconds) {
            (None, None) => Some(10.0),
            (_, seconds) => seconds,
        };
        let duration = |name: &'static str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                Error::Argument(format!("--{name}: {seconds} is no number of seconds"))
            })
        };
        let pace = match self.rate {
            None => Pace::Closed,
            Some(rate) if rate.is_finite() && rate > 0.0 => Pace::Rate(rate),
            Some(rate) => {
                return Err(Error::Argument(format!(
                    "--rate: {rate} requests a second cannot be kept"
                )));
            }
        };
        let endpoints: Vec<String> = self
            .endpoints
            .iter()
            .map(|endpoint| match endpoint.contains("://") {
                true => endpoint.clone(),
                false => format!("http://{endpoint}"),
            })
            .collect();
        if let Some(other) = endpoints.iter().find(|url| !url.starts_with("http://")) {
            return Err(Error::Argument(format!(
                "--endpoints: {other}: only http:// endpoints can be loaded, without TLS"
            )));
        }
        let keys = Keys::new(&self.prefix, self.key_size, self.key_space)?;
        Ok(Load {
            endpoints,
            connections: self.connections as usize,
            clients: self.clients as usize,
            threads: self.threads as usize,
            total: self.total,
            seconds: seconds.map(|s| duration("seconds", s)).transpose()?,
            warm_up: duration("warm-up", self.warm_up)?,
            pace,
            timeout: duration("timeout", self.timeout)?,
            work: Work::new(mode, keys, self.value_size, self.seed),
            seed: self.seed,
        })
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// An endpoint does not accept a connection.
    #[error("cannot connect to {endpoint}: {reason}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// A watch stream could not be set up.
    #[error("cannot watch: {0}")]
    Watch(String),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Json(String),
    /// A measured cluster does not work as it should.
    #[cfg(feature = "versus")]
    #[error("{0}")]
    Cluster(String),
    /// The system cannot create a thread, runtime, process or file.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
