//! What was measured: latencies in a histogram, failures by their text. As a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

/// Different failures that are counted separately; the rest is counted together.
const KINDS: usize = 20;
/// Percentiles of the table.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

/// Latencies in microseconds, three digits each, and failures.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    latencies: Histogram<u64>,
    failures: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        // Bounds and digits are constants that the histogram accepts; it grows beyond them.
        let mut latencies = Histogram::new_with_bounds(1, 60_000_000, 3)
            .expect("1 < 60,000,000 and 3 digits are allowed");
        latencies.auto(true);
        Tally {
            latencies,
            failures: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Counts one answer, or one failure.
    pub(super) fn record(&mut self, latency: Duration, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                // It grows by itself, and no latency is beyond what it can hold.
                self.latencies.saturating_record(micros.max(1));
            }
            Err(text) => self.fail(text, 1),
        }
    }

    /// Counts failures.
    pub(super) fn fail(&mut self, text: String, times: u64) {
        let known = self.failures.contains_key(&text) || self.failures.len() < KINDS;
        let text = if known { text } else { "others".to_owned() };
        *self.failures.entry(text).or_default() += times;
    }

    /// Adds the counts of another one.
    pub(super) fn add(&mut self, other: Tally) {
        // Bounds differ only where one has grown, and this one grows as well.
        let _ = self.latencies.add(other.latencies);
        for (text, times) in other.failures {
            self.fail(text, times);
        }
    }

    /// Answers.
    pub(super) fn answered(&self) -> u64 {
        self.latencies.len()
    }

    /// Failures.
    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Maximum latency in milliseconds of this percentage of answers.
    pub(super) fn milliseconds(&self, percentile: f64) -> f64 {
        self.latencies.value_at_percentile(percentile) as f64 / 1000.0
    }
}

/// The result of one load.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    /// What was done, in words.
    pub(super) what: String,
    /// The unit that is measured.
    pub(super) unit: &'static str,
    /// From the end of the warm-up to the last answer.
    pub(super) elapsed: Duration,
    /// What was counted.
    pub(super) tally: Tally,
}

impl Summary {
    /// Answers a second.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.tally.answered() as f64 / seconds
        } else {
            0.0
        }
    }

    /// Failures.
    pub(super) fn failed(&self) -> u64 {
        self.tally.failed()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(f, "{}", self.what)?;
        writeln!(
            f,
            "  {} {} in {:.2} s: {:.1} a second, {} failed",
            tally.answered(),
            self.unit,
            self.elapsed.as_secs_f64(),
            self.rate(),
            tally.failed()
        )?;
        if tally.answered() > 0 {
            write!(
                f,
                "  latency in ms: mean {:.3}",
                tally.latencies.mean() / 1000.0
            )?;
            for percentile in PERCENTILES {
                let name = if percentile == 100.0 {
                    "max".to_owned()
                } else {
                    format!("p{percentile}")
                };
                write!(f, ", {name} {:.3}", tally.milliseconds(percentile))?;
            }
            writeln!(f)?;
        }
        for (text, times) in &tally.failures {
            writeln!(f, "  failed {times} times: {text}")?;
        }
        Ok(())
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tally = &self.tally;
        let latency: BTreeMap<String, f64> = PERCENTILES
            .iter()
            .map(|percentile| (format!("p{percentile}"), tally.milliseconds(*percentile)))
            .chain([("mean".to_owned(), tally.latencies.mean() / 1000.0)])
            .collect();
        let mut fields = serializer.serialize_struct("Summary", 8)?;
        fields.serialize_field("what", &self.what)?;
        fields.serialize_field("unit", self.unit)?;
        fields.serialize_field("seconds", &self.elapsed.as_secs_f64())?;
        fields.serialize_field("answered", &tally.answered())?;
        fields.serialize_field("failed", &tally.failed())?;
        fields.serialize_field("per_second", &self.rate())?;
        fields.serialize_field("latency_ms", &latency)?;
        fields.serialize_field("failures", &tally.failures)?;
        fields.end()
    }
}
