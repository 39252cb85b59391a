//! `quorate-versus`, for `make bench` and in no release: a build of Quorate and real etcd on the same machine in the same run, three
//! members each, the same flags, the same clients, real disk. Both clusters run all the time and
//! only one is driven at a time, in turn and each first in every other round; a ratio is formed
//! within a round, so that a busy machine slows both of its sides.
//!
//! Never prints a ratio where a request failed.

mod cluster;
mod figures;
mod tool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;

use super::super::refuse;
use super::Error;
use super::load::{Load, Pace};
use super::summary::Summary;
use super::work::{Keys, Mode, Work};
use cluster::Cluster;
use figures::{Better, Figures, Side, table};

/// Bytes of a key and of a value, in every load.
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
    /// An empty directory on the disk to measure; removed at the end.
    #[arg(long)]
    dir: PathBuf,
    /// Write the figures as JSON here.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A run under way.
struct Run<'a> {
    arguments: &'a Arguments,
    figures: Figures,
    /// Ours, then etcd's.
    clusters: [Cluster; 2],
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
    let result = measure(arguments);
    // The data of a finished run is not needed, whatever the result.
    let _ = std::fs::remove_dir_all(&arguments.dir);
    let lines = result?.lines();
    print!("{}", table(&lines));
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&lines).map_err(|e| Error::Json(e.to_string()))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, json + "\n")
            .map_err(|error| Error::Json(format!("{}: {error}", path.display())))?;
        println!("figures are in {}", path.display());
    }
    Ok(lines.iter().all(|line| line.failed == 0))
}

fn measure(arguments: &Arguments) -> Result<Figures, Error> {
    let quorate = arguments.quorate.as_path();
    println!(
        "{} and {}, {} rounds, {} keys; above 1 ours is better",
        quorate.display(),
        arguments.etcd.display(),
        arguments.rounds,
        arguments.keys
    );
    let start = |side, program| {
        let cores = arguments.members_on.as_deref();
        Cluster::start(side, program, cores, &arguments.dir)
    };
    let clusters = [
        start(Side::Ours, quorate)?,
        start(Side::Etcd, &arguments.etcd)?,
    ];
    let mut run = Run {
        arguments,
        figures: Figures::default(),
        clusters,
    };
    run.each_side("filling", 0, |run, side| run.fill(side, "small/", SMALL))?;
    for round in 0..arguments.rounds {
        run.each_side("puts and gets", round, Run::small_round)?;
        run.each_side("at a fixed rate", round, Run::steady_round)?;
    }
    let keys = arguments.keys;
    run.each_side("filling", 0, |run, side| run.fill(side, "large/", keys))?;
    for round in 0..arguments.rounds {
        run.each_side("many keys", round, Run::large_round)?;
    }
    Ok(run.figures)
}

impl Run<'_> {
    fn each_side(
        &mut self,
        what: &str,
        round: u32,
        mut part: impl FnMut(&mut Self, Side) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut order = [Side::Ours, Side::Etcd];
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            println!(
                "round {} of {}: {what}, {side:?}",
                round + 1,
                self.arguments.rounds
            );
            part(self, side)?;
        }
        Ok(())
    }

    fn cluster(&mut self, side: Side) -> &mut Cluster {
        &mut self.clusters[usize::from(side == Side::Etcd)]
    }

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
        let seconds = Duration::try_from_secs_f64(arguments.seconds).map_err(|_| {
            Error::Argument(format!(
                "--seconds: {} is no number of seconds",
                arguments.seconds
            ))
        })?;
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
        let summary = load.run()?;
        match summary.failed() {
            0 => Ok(()),
            failed => Err(Error::Cluster(format!(
                "{failed} requests failed:\n{summary}"
            ))),
        }
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
        let name = format!("restart with {keys} keys");
        self.figures.add(side, &name, "s", Better::Lower, seconds);
        let (all, anonymous) = self.cluster(side).memory()?;
        let name = format!("memory of a member with {keys} keys");
        self.figures.add(side, &name, "MiB", Better::Lower, all);
        let name = format!("{name}, without mapped files");
        self.figures
            .add(side, &name, "MiB", Better::Lower, anonymous);
        Ok(())
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
        let mut load = self.load(side, mode, prefix, count, (many, pace))?;
        // The CPU time of a warm-up could not be separated from that of the load.
        let warm = Load {
            seconds: Some(std::mem::take(&mut load.warm_up)),
            total: None,
            warm_up: Duration::ZERO,
            ..load.clone()
        };
        let warm = warm.run()?;
        let before = (self.cluster(side).cpu()?, cluster::own_cpu()?);
        let summary = load.run()?;
        let after = (self.cluster(side).cpu()?, cluster::own_cpu()?);
        let cpu = (after.0 - before.0, after.1 - before.1);
        let name = format!("{what}, {}", clients(many));
        self.note(side, &name, &warm, &summary, cpu);
        Ok(())
    }

    /// `cpu`: seconds of the members, and of this process.
    fn note(&mut self, side: Side, name: &str, warm: &Summary, summary: &Summary, cpu: (f64, f64)) {
        let answered = summary.tally.answered().max(1) as f64;
        let failed = warm.failed() + summary.failed();
        let values = [
            (name.to_owned(), "a second", Better::Higher, summary.rate()),
            (
                format!("{name}, p99"),
                "ms",
                Better::Lower,
                summary.tally.milliseconds(99.0),
            ),
            (
                format!("{name}, slowest"),
                "ms",
                Better::Lower,
                summary.tally.milliseconds(100.0),
            ),
            (
                format!("{name}, server CPU"),
                "us each",
                Better::Lower,
                cpu.0 * 1e6 / answered,
            ),
            (
                format!("{name}, client CPU"),
                "us each",
                Better::Lower,
                cpu.1 * 1e6 / answered,
            ),
        ];
        for (name, unit, better, value) in values {
            self.figures.add(side, &name, unit, better, value);
            self.figures.failed(&name, unit, better, failed);
        }
        if failed > 0 {
            print!("{summary}");
        }
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
