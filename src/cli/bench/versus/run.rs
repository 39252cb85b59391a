//! A run under way: two clusters of which one is driven at a time, and what was measured of them. Knows no load of its
//! own.

use std::path::Path;
use std::time::Duration;

use super::super::Error;
use super::super::load::Load;
use super::super::summary::Summary;
use super::Arguments;
use super::cluster::{self, Cluster};
use super::figures::{Better, Figures, Line, Side};

/// Two clusters, and what was measured of them.
pub(super) struct Run<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) figures: Figures,
    /// Seconds that the disk took to keep an entry, one value a round.
    syncs: Vec<f64>,
    /// Ours, then etcd's.
    clusters: [Cluster; 2],
}

impl<'a> Run<'a> {
    /// Starts both clusters with empty disks below `folder`, of so many members each.
    ///
    /// # Errors
    /// A member does not serve.
    pub(super) fn start(
        arguments: &'a Arguments,
        members: usize,
        folder: &Path,
    ) -> Result<Self, Error> {
        let start = |side, program| {
            let cores = arguments.members_on.as_deref();
            Cluster::start(side, program, cores, members, folder)
        };
        Ok(Run {
            arguments,
            figures: Figures::default(),
            syncs: Vec::new(),
            clusters: [
                start(Side::Ours, &arguments.quorate)?,
                start(Side::Etcd, &arguments.etcd)?,
            ],
        })
    }

    /// One part of a round with each side, the first in every other round.
    pub(super) fn each_side(
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

    pub(super) fn cluster(&mut self, side: Side) -> &mut Cluster {
        &mut self.clusters[usize::from(side == Side::Etcd)]
    }

    /// `--seconds`.
    pub(super) fn seconds(&self) -> Result<Duration, Error> {
        let seconds = self.arguments.seconds;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Error::Argument(format!("--seconds: {seconds} is no number of seconds")))
    }

    /// One load by this program: throughput, p99, CPU of the members and of the client.
    pub(super) fn carry_out(
        &mut self,
        side: Side,
        name: &str,
        mut load: Load,
    ) -> Result<(), Error> {
        // The CPU time of a warm-up could not be separated from that of the load.
        let warm = Load {
            seconds: Some(std::mem::take(&mut load.warm_up)),
            total: None,
            warm_up: Duration::ZERO,
            ..load.clone()
        };
        let warm = warm.run()?;
        let before = self.cpu(side)?;
        let summary = load.run()?;
        let after = self.cpu(side)?;
        let cpu = (after.0 - before.0, after.1 - before.1);
        self.note(side, name, warm.failed(), &summary, cpu);
        Ok(())
    }

    /// Seconds of CPU that the members of a side have used, and this process.
    pub(super) fn cpu(&mut self, side: Side) -> Result<(f64, f64), Error> {
        Ok((self.cluster(side).cpu()?, cluster::own_cpu()?))
    }

    /// What a load showed. `failed`: requests that failed before it; `cpu`: seconds of the members, and of this process.
    pub(super) fn note(
        &mut self,
        side: Side,
        name: &str,
        failed: u64,
        summary: &Summary,
        cpu: (f64, f64),
    ) {
        let answered = summary.tally.answered().max(1) as f64;
        let failed = failed + summary.failed();
        let (tally, share) = (&summary.tally, 100.0 * cpu.1 / (cpu.0 + cpu.1));
        let values = [
            ("", "a second", Better::Higher, summary.rate()),
            (", p99", "ms", Better::Lower, tally.milliseconds(99.0)),
            (", slowest", "ms", Better::Lower, tally.milliseconds(100.0)),
            (
                ", server CPU",
                "us each",
                Better::Lower,
                cpu.0 * 1e6 / answered,
            ),
            (
                ", client CPU",
                "us each",
                Better::Neither,
                cpu.1 * 1e6 / answered,
            ),
            (", client's share of the CPU", "%", Better::Neither, share),
        ];
        for (what, unit, better, value) in values {
            let name = format!("{name}{what}");
            self.figures.add(side, &name, unit, better, value);
            self.figures.failed(&name, unit, better, failed);
        }
        if failed > 0 {
            print!("{summary}");
        }
    }

    /// The disk took so many seconds to keep an entry, in this round.
    pub(super) fn note_sync(&mut self, seconds: f64) {
        self.syncs.push(seconds);
    }

    /// The largest ratio that the rate of one client's puts can show on this disk.
    pub(super) fn sync_bound(&self, name: &str) -> Option<Line> {
        self.figures.sync_bound(name, &self.syncs)
    }

    /// What an average member holds, as a figure.
    pub(super) fn note_memory(&mut self, side: Side, name: &str) -> Result<(), Error> {
        let (all, anonymous) = self.cluster(side).memory()?;
        self.figures.add(side, name, "MiB", Better::Lower, all);
        let name = format!("{name}, without mapped files");
        let lower = Better::Lower;
        self.figures.add(side, &name, "MiB", lower, anonymous);
        Ok(())
    }
}

/// A load of which no request may fail.
///
/// # Errors
/// A request failed.
pub(super) fn without_failure(load: Load) -> Result<(), Error> {
    let summary = load.run()?;
    match summary.failed() {
        0 => Ok(()),
        failed => Err(Error::Cluster(format!(
            "{failed} requests failed:\n{summary}"
        ))),
    }
}
