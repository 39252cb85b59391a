//! `quorate-versus`, for `make bench` and in no release: a build of Quorate and real etcd on the same machine in the same run, three
//! members each, the same flags, the same clients, real disk. Both clusters run all the time and
//! only one is driven at a time, in turn and each first in every other round; a ratio is formed
//! within a round, so that a busy machine slows both of its sides. With `--axis`, the same at several sizes.
//!
//! Never prints a ratio where a request failed.

mod cluster;
mod figures;
mod growth;
mod run;
mod syncs;
mod tool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use super::super::refuse;
use super::Error;
use super::load::{Load, Pace};
use super::work::{Keys, Mode, Work};
use figures::{Better, Line, Side, table};
use growth::Axis;
use run::Run;

/// Members of a cluster, where their number is not what is measured.
const MEMBERS: usize = 3;
/// Bytes of a key and of a value, where they are not what is measured.
const KEY_SIZE: usize = 32;
const VALUE_SIZE: usize = 256;
/// Keys that puts and gets of the first part choose from.
const SMALL: u64 = 100_000;
/// Clients and connections of the loads with many clients.
const MANY: (usize, usize) = (1_000, 100);
/// Keys of one page.
const PAGE: i64 = 500;

/// Compares a build of Quorate with real etcd: three members each on this machine, in turn.
#[derive(Debug, Parser)]
#[command(name = "quorate-versus", version, about)]
struct Arguments {
    /// Real etcd.
    #[arg(long)]
    etcd: PathBuf,
    /// etcd's own load generator; its figures are left out without it.
    #[arg(long)]
    benchmark: Option<PathBuf>,
    /// The binary to measure.
    #[arg(long)]
    quorate: PathBuf,
    /// Alternated rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Keys of the large key space.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    keys: u64,
    /// Duration in seconds of each load that is not limited by requests.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Puts and gets of each load with many clients.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    total: u64,
    /// Cores that the members run on, as `taskset` reads them, such as 0; this process keeps the cores it was started
    /// on.
    #[arg(long)]
    members_on: Option<String>,
    /// Measure how figures grow along this axis, instead of the comparison at one size.
    #[arg(long)]
    axis: Option<Axis>,
    /// Points of the axis, comma-separated, in its own unit; without it, as far as its figures are documented.
    #[arg(long, value_delimiter = ',', requires = "axis")]
    points: Vec<u64>,
    /// An empty directory on the disk to measure; removed at the end.
    #[arg(long)]
    dir: PathBuf,
    /// Write the figures as JSON here.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the binary with these arguments. The exit code is 0 only if no request failed.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match compare(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quorate-versus: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints, writes. True if no request failed.
fn compare(arguments: &Arguments) -> Result<bool, Error> {
    let occupied = std::fs::read_dir(&arguments.dir).is_ok_and(|mut files| files.next().is_some());
    if occupied {
        return Err(Error::Argument(format!(
            "--dir: {} is not empty",
            arguments.dir.display()
        )));
    }
    let result = measured(arguments);
    // The data of a finished run is not needed, whatever the result.
    let _ = std::fs::remove_dir_all(&arguments.dir);
    let failed = result?;
    if let Some(path) = &arguments.json {
        println!("figures are in {}", path.display());
    }
    Ok(failed == 0)
}

/// Measures what was asked for, prints and writes it. Returns how many requests failed.
fn measured(arguments: &Arguments) -> Result<u64, Error> {
    let Some(axis) = arguments.axis else {
        let lines = measure(arguments)?;
        print!("{}", table(&lines));
        save(arguments, &lines)?;
        return Ok(lines.iter().map(|line| line.failed).sum());
    };
    let points = growth::measure(arguments, axis, |points| save(arguments, points))?;
    Ok(points.iter().map(|point| point.line.failed).sum())
}

fn save<T: Serialize>(arguments: &Arguments, figures: &[T]) -> Result<(), Error> {
    let Some(path) = &arguments.json else {
        return Ok(());
    };
    let json = serde_json::to_string_pretty(figures).map_err(|e| Error::Json(e.to_string()))?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, json + "\n")
        .map_err(|error| Error::Json(format!("{}: {error}", path.display())))
}

/// The comparison at one size.
fn measure(arguments: &Arguments) -> Result<Vec<Line>, Error> {
    let quorate = arguments.quorate.as_path();
    println!(
        "{} and {}, {} rounds, {} keys; above 1 ours is better",
        quorate.display(),
        arguments.etcd.display(),
        arguments.rounds,
        arguments.keys
    );
    let mut run = Run::start(arguments, MEMBERS, &arguments.dir)?;
    run.each_side("filling", 0, |run, side| run.fill(side, "small/", SMALL))?;
    for round in 0..arguments.rounds {
        run.each_side("puts and gets", round, Run::small_round)?;
        run.note_sync(syncs::seconds_a_sync(&arguments.dir)?);
        run.each_side("at a fixed rate", round, Run::steady_round)?;
    }
    let keys = arguments.keys;
    run.each_side("filling", 0, |run, side| run.fill(side, "large/", keys))?;
    for round in 0..arguments.rounds {
        run.each_side("many keys", round, Run::large_round)?;
    }
    let mut lines = run.figures.lines();
    for what in ["put", "get"] {
        lines.extend(run.figures.bound(&format!("{what}, {}", clients(true))));
    }
    lines.extend(run.sync_bound(&format!("put, {}", clients(false))));
    Ok(lines)
}

impl Run<'_> {
    fn load(
        &mut self,
        side: Side,
        mode: Mode,
        prefix: &str,
        count: u64,
        (many, pace): (bool, Pace),
    ) -> Result<Load, Error> {
        let (clients, connections) = if many { MANY } else { (1, 1) };
        let arguments = self.arguments;
        let seconds = self.seconds()?;
        Ok(Load {
            endpoints: self.cluster(side).endpoints()?,
            connections,
            clients,
            threads: 1,
            total: many.then_some(arguments.total),
            seconds: (!many).then_some(seconds),
            warm_up: Duration::from_secs(1),
            pace,
            timeout: Duration::from_secs(30),
            work: Work::new(mode, Keys::new(prefix, KEY_SIZE, count)?, VALUE_SIZE, 1),
            seed: 1,
        })
    }

    /// Writes each key of a key space once.
    fn fill(&mut self, side: Side, prefix: &str, count: u64) -> Result<(), Error> {
        let batch = 100;
        let pace = (true, Pace::Closed);
        let mut load = self.load(side, Mode::Fill { batch }, prefix, count, pace)?;
        (load.clients, load.connections) = (16, 4);
        load.warm_up = Duration::ZERO;
        load.total = Some(count.div_ceil(batch));
        run::without_failure(load)
    }

    fn small_round(&mut self, side: Side) -> Result<(), Error> {
        let put = Mode::Put { sequential: false };
        let get = Mode::Get {
            serializable: false,
        };
        for many in [false, true] {
            self.measure(side, "put", put, "small/", SMALL, (many, Pace::Closed))?;
            self.measure(side, "get", get, "small/", SMALL, (many, Pace::Closed))?;
        }
        let Some(benchmark) = &self.arguments.benchmark else {
            return Ok(());
        };
        for many in [false, true] {
            self.by_tool(side, benchmark, "put", many)?;
            self.by_tool(side, benchmark, "range", many)?;
        }
        Ok(())
    }

    /// Both sides at half of the rate that etcd has reached with as many clients so far: what a request costs when
    /// neither side decides how many there are, and how long it takes when requests do not wait for each other.
    fn steady_round(&mut self, side: Side) -> Result<(), Error> {
        let put = Mode::Put { sequential: false };
        let get = Mode::Get {
            serializable: false,
        };
        for many in [false, true] {
            for (what, mode) in [("put", put), ("get", get)] {
                let most = format!("{what}, {}", clients(many));
                let Some(most) = self.figures.median(Side::Etcd, &most) else {
                    continue;
                };
                let pace = Pace::Rate(most / 2.0);
                let what = format!("{what} at half of etcd's rate");
                self.measure(side, &what, mode, "small/", SMALL, (many, pace))?;
            }
        }
        Ok(())
    }

    fn large_round(&mut self, side: Side) -> Result<(), Error> {
        let list = Mode::List {
            limit: PAGE,
            random_start: false,
            serializable: false,
        };
        let keys = self.arguments.keys;
        let name = format!("list {PAGE} of {keys} with count");
        self.measure(side, &name, list, "large/", keys, (false, Pace::Closed))?;
        let seconds = self.cluster(side).restart()?;
        let name = format!("restart of a follower with {keys} keys");
        self.figures.add(side, &name, "s", Better::Lower, seconds);
        let seconds = self.cluster(side).restart_all()?;
        let name = format!("restart of all members with {keys} keys");
        self.figures.add(side, &name, "s", Better::Lower, seconds);
        self.note_memory(side, &format!("memory of a member with {keys} keys"))
    }

    /// One load by this program: throughput, p99, server CPU.
    fn measure(
        &mut self,
        side: Side,
        what: &str,
        mode: Mode,
        prefix: &str,
        count: u64,
        (many, pace): (bool, Pace),
    ) -> Result<(), Error> {
        let load = self.load(side, mode, prefix, count, (many, pace))?;
        self.carry_out(side, &format!("{what}, {}", clients(many)), load)
    }

    /// One load by etcd's own tool.
    fn by_tool(
        &mut self,
        side: Side,
        benchmark: &Path,
        what: &str,
        many: bool,
    ) -> Result<(), Error> {
        let (number, connections) = if many { MANY } else { (1, 1) };
        let total = if many {
            self.arguments.total / 2
        } else {
            // Fewer do not give a 99th percentile.
            (self.arguments.total / 50).max(500)
        };
        let mut command = Command::new(benchmark);
        command
            .arg(what)
            .arg(format!(
                "--endpoints={}",
                self.cluster(side).endpoints()?.join(",")
            ))
            .arg(format!("--clients={number}"))
            .arg(format!("--conns={connections}"))
            .arg(format!("--total={total}"));
        match what {
            "put" => command
                .arg(format!("--key-size={KEY_SIZE}"))
                .arg(format!("--val-size={VALUE_SIZE}"))
                .arg(format!("--key-space-size={SMALL}")),
            _ => command.arg(format!("small/{:026}", 0)),
        };
        let output = command.output().map_err(|error| {
            Error::Cluster(format!("cannot start {}: {error}", benchmark.display()))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Cluster(format!(
                "{}: {text}{words}",
                benchmark.display()
            )));
        }
        let report = tool::read(&text).map_err(Error::Cluster)?;
        let name = format!("etcd's benchmark: {what}, {}", clients(many));
        let values = [
            (name.clone(), "a second", Better::Higher, report.per_second),
            (format!("{name}, p99"), "ms", Better::Lower, report.p99_ms),
        ];
        for (name, unit, better, value) in values {
            self.figures.add(side, &name, unit, better, value);
            self.figures.failed(&name, unit, better, report.failed);
        }
        Ok(())
    }
}

fn clients(many: bool) -> String {
    if many {
        format!("{} clients", MANY.0)
    } else {
        "1 client".to_owned()
    }
}
