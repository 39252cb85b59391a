//! How the figures grow along one axis, everything else being the same: two fresh clusters at each point, and all of its
//! rounds before the next point. Never begins a point that the machine's memory cannot hold.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::super::Error;
use super::super::load::{Load, Pace};
use super::super::watch::FanOut;
use super::super::work::{Keys, Mode, Work};
use super::figures::{Better, Line, Side, table};
use super::run::{Run, without_failure};
use super::{Arguments, KEY_SIZE, PAGE, VALUE_SIZE};

/// Connections of one load at most: a client beyond them shares one.
const CONNECTIONS: usize = 100;
/// Bytes of values that one load writes at most, and that a filled key space has.
const MOST_BYTES: u64 = 256 << 20;
/// Events that one round delivers, about.
const EVENTS: u64 = 200_000;
/// Watchers of one stream.
const WATCHERS_A_STREAM: u64 = 100;
/// Bytes beside a key and its value that a member takes for it, for the estimate of what a point needs.
const BESIDE: u64 = 400;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Axis {
    /// Keys, with one member.
    Keys,
    /// Bytes of a value.
    Values,
    /// Clients.
    Clients,
    /// Watchers of one key.
    Watchers,
    /// Members.
    Members,
}

/// A figure at a point of an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    #[serde(flatten)]
    pub(super) line: Line,
    /// Where on the axis, in its own unit.
    pub(super) at: u64,
}

/// What a point is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    members: usize,
    keys: u64,
    value_bytes: usize,
    clients: usize,
    watchers: u64,
}

impl Axis {
    /// Where it is measured without `--points`.
    pub(super) fn points(self) -> Vec<u64> {
        match self {
            Axis::Keys => vec![10_000, 100_000, 1_000_000, 10_000_000],
            Axis::Values => vec![16, 256, 4 << 10, 64 << 10, 1 << 20],
            Axis::Clients => vec![1, 10, 100, 1_000, 10_000],
            Axis::Watchers => vec![1, 10, 100, 1_000, 10_000, 100_000],
            Axis::Members => vec![1, 3, 5, 7],
        }
    }

    /// The largest point that means something: etcd's limit of a request, and what fits the loopback addresses.
    fn most(self) -> u64 {
        match self {
            Axis::Keys => 100_000_000,
            Axis::Values => 1 << 20,
            Axis::Clients => 20_000,
            Axis::Watchers => 1_000_000,
            Axis::Members => 9,
        }
    }

    fn setting(self, at: u64) -> Result<Setting, Error> {
        if at == 0 || at > self.most() {
            return Err(Error::Argument(format!(
                "--points: {at} is not within 1 to {}",
                self.most()
            )));
        }
        // Bounded above.
        let size = usize::try_from(at).unwrap_or(usize::MAX);
        let usual = Setting {
            members: 3,
            keys: 10_000,
            value_bytes: VALUE_SIZE,
            clients: 100,
            watchers: 0,
        };
        Ok(match self {
            Axis::Keys => Setting {
                members: 1,
                keys: at,
                ..usual
            },
            Axis::Values => Setting {
                keys: usual.keys.min(MOST_BYTES / at),
                value_bytes: size,
                ..usual
            },
            Axis::Clients => Setting {
                clients: size,
                ..usual
            },
            Axis::Watchers => Setting {
                watchers: at,
                ..usual
            },
            Axis::Members => Setting {
                members: size,
                ..usual
            },
        })
    }
}

/// Measures every point; `save` gets what there is after each, since a later one may take an hour.
///
/// # Errors
/// A point is not possible here, or a cluster does not work.
pub(super) fn measure(
    arguments: &Arguments,
    axis: Axis,
    save: impl Fn(&[Point]) -> Result<(), Error>,
) -> Result<Vec<Point>, Error> {
    let points = match &arguments.points[..] {
        [] => axis.points(),
        given => given.to_vec(),
    };
    let settings = points.into_iter().map(|at| Ok((at, axis.setting(at)?)));
    let settings = settings.collect::<Result<Vec<_>, Error>>()?;
    let mut all = Vec::new();
    for (at, setting) in settings {
        println!("{axis:?}: {at}");
        fits(setting, available()?)?;
        let folder = arguments.dir.join(at.to_string());
        let lines = point(arguments, setting, &folder)?;
        // Its data are not needed, and the next point may need their space.
        std::fs::remove_dir_all(&folder)?;
        print!("{}", table(&lines));
        all.extend(lines.into_iter().map(|line| Point { line, at }));
        save(&all)?;
    }
    Ok(all)
}

/// Whether both clusters' data fit into so much memory, in bytes.
fn fits(setting: Setting, available: u64) -> Result<(), Error> {
    let key = (KEY_SIZE + setting.value_bytes) as u64 + BESIDE;
    let needed = 2 * setting.members as u64 * setting.keys * key;
    if needed <= available {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{} keys of both clusters take about {} MiB of memory, and {} are available: leave that point out with --points",
        setting.keys,
        needed >> 20,
        available >> 20
    )))
}

/// Bytes of memory that are not in use.
fn available() -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    words
        .map(|kibibytes| kibibytes << 10)
        .ok_or_else(|| Error::Cluster("/proc/meminfo has no MemAvailable".to_owned()))
}

fn point(arguments: &Arguments, setting: Setting, folder: &Path) -> Result<Vec<Line>, Error> {
    let mut run = Run::start(arguments, setting.members, folder)?;
    run.each_side("filling", 0, |run, side| fill(run, side, setting))?;
    for round in 0..arguments.rounds {
        run.each_side("loads", round, |run, side| loads(run, side, setting))?;
    }
    Ok(run.figures.lines())
}

fn fill(run: &mut Run<'_>, side: Side, setting: Setting) -> Result<(), Error> {
    let batch = (MOST_BYTES / 512 / setting.value_bytes as u64).clamp(1, 100);
    let filling = Load {
        clients: 16,
        connections: 4,
        warm_up: Duration::ZERO,
        seconds: None,
        total: Some(setting.keys.div_ceil(batch)),
        ..load(run, side, Mode::Fill { batch }, setting)?
    };
    without_failure(filling)
}

fn loads(run: &mut Run<'_>, side: Side, setting: Setting) -> Result<(), Error> {
    if setting.watchers > 0 {
        return watch(run, side, setting);
    }
    let modes = [
        ("put", Mode::Put { sequential: false }),
        (
            "get",
            Mode::Get {
                serializable: false,
            },
        ),
        (
            "list 500 with count",
            Mode::List {
                limit: PAGE,
                random_start: false,
                serializable: false,
            },
        ),
    ];
    // Pages of large values are a matter of their bytes alone.
    let lists = setting.value_bytes == VALUE_SIZE;
    for (name, mode) in modes.into_iter().take(if lists { 3 } else { 2 }) {
        let load = load(run, side, mode, setting)?;
        run.carry_out(side, name, load)?;
    }
    let seconds = run.cluster(side).restart()?;
    let lower = Better::Lower;
    run.figures.add(side, "restart", "s", lower, seconds);
    run.note_memory(side, "memory of a member")
}

/// One writer, whose events go to every watcher.
fn watch(run: &mut Run<'_>, side: Side, setting: Setting) -> Result<(), Error> {
    let streams = setting.watchers.div_ceil(WATCHERS_A_STREAM);
    let puts = (EVENTS / setting.watchers).clamp(3, 1_000);
    let load = Load {
        connections: CONNECTIONS.min(usize::try_from(streams).unwrap_or(CONNECTIONS)),
        clients: 1,
        total: Some(puts),
        warm_up: Duration::ZERO,
        ..load(run, side, Mode::Put { sequential: false }, setting)?
    };
    let fan_out = FanOut {
        watchers: usize::try_from(setting.watchers).unwrap_or(usize::MAX),
        streams: usize::try_from(streams).unwrap_or(usize::MAX),
        idle: 0,
        load,
    };
    let mut before = Ok((0.0, 0.0));
    let summary = fan_out.run_after(|| {
        let noted = run.note_memory(side, "memory of a member");
        before = noted.and_then(|()| run.cpu(side));
    })?;
    let (before, after) = (before?, run.cpu(side)?);
    let cpu = (after.0 - before.0, after.1 - before.1);
    run.note(side, "event to a watcher", 0, &summary, cpu);
    Ok(())
}

fn load(run: &mut Run<'_>, side: Side, mode: Mode, setting: Setting) -> Result<Load, Error> {
    let keys = Keys::new("growth/", KEY_SIZE, setting.keys)?;
    let most = MOST_BYTES / setting.value_bytes as u64;
    Ok(Load {
        endpoints: run.cluster(side).endpoints()?,
        connections: setting.clients.min(CONNECTIONS),
        clients: setting.clients,
        threads: 1,
        total: Some(run.arguments.total.min(most)),
        seconds: Some(run.seconds()?),
        warm_up: Duration::from_secs(1),
        pace: Pace::Closed,
        timeout: Duration::from_secs(30),
        work: Work::new(mode, keys, setting.value_bytes, 1),
        seed: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_changes_one_thing() {
        let usual = Axis::Members.setting(3).expect("within its bounds");
        for axis in Axis::value_variants() {
            for at in axis.points() {
                let setting = axis.setting(at).expect("within its bounds");
                let clients = setting.clients != usual.clients;
                let values = setting.value_bytes != usual.value_bytes;
                let watchers = setting.watchers != usual.watchers;
                let changed = [clients, values, watchers].map(usize::from);
                assert!(changed.iter().sum::<usize>() <= 1, "{axis:?} {at}");
                let bytes = setting.keys * setting.value_bytes as u64;
                assert!(*axis == Axis::Keys || bytes <= MOST_BYTES);
            }
            assert!(axis.setting(0).is_err());
            assert!(axis.setting(axis.most() + 1).is_err());
        }
    }

    #[test]
    fn a_point_that_does_not_fit_is_refused() {
        let setting = Axis::Keys.setting(10_000_000).expect("within its bounds");
        assert!(fits(setting, 24 << 30).is_ok());
        let error = fits(setting, 8 << 30).expect_err("too little");
        assert!(error.to_string().contains("--points"), "{error}");
    }

    #[test]
    fn a_point_is_a_line_and_its_place() {
        let point = Point {
            line: Line {
                name: "put".to_owned(),
                unit: "a second",
                ours: Some(2.0),
                etcd: Some(1.0),
                ratio: Some(2.0),
                spread: None,
                failed: 0,
            },
            at: 7,
        };
        let want = serde_json::json!({
            "name": "put", "unit": "a second", "ours": 2.0, "etcd": 1.0, "ratio": 2.0, "spread": null, "at": 7,
        });
        assert_eq!(serde_json::to_value(point).expect("serialises"), want);
    }
}
