//! What the operator counts about itself. Labels are bounded: steps and outcomes, never names of
//! objects.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds of a pass: a cached pass takes milliseconds, one with a dial that times out seconds.
const PASS_BUCKETS: [f64; 8] = [0.005, 0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0];

/// How a pass ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PassLabels {
    outcome: &'static str,
}

/// What a step was and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: String,
    outcome: &'static str,
}

/// The operator's own figures.
#[derive(Clone, Debug)]
pub struct Metrics {
    passes: Family<PassLabels, Counter>,
    seconds: Histogram,
    steps: Family<StepLabels, Counter>,
    status_writes: Counter,
    leading: Gauge,
}

impl Metrics {
    /// Registers the figures.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            passes: Family::default(),
            seconds: Histogram::new(PASS_BUCKETS),
            steps: Family::default(),
            status_writes: Counter::default(),
            leading: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("quorate_operator");
        registry.register(
            "passes",
            "Reconcile passes by outcome",
            metrics.passes.clone(),
        );
        registry.register(
            "pass_seconds",
            "Duration of a pass",
            metrics.seconds.clone(),
        );
        registry.register(
            "steps",
            "Steps executed, by kind and outcome",
            metrics.steps.clone(),
        );
        registry.register(
            "status_writes",
            "Writes of a resource's status; none at rest",
            metrics.status_writes.clone(),
        );
        registry.register(
            "leading",
            "1 while this operator holds the Lease",
            metrics.leading.clone(),
        );
        metrics
    }

    /// Counts a pass that took this many seconds.
    pub fn pass(&self, outcome: &'static str, seconds: f64) {
        self.passes.get_or_create(&PassLabels { outcome }).inc();
        self.seconds.observe(seconds);
    }

    /// Counts an executed step.
    pub fn step(&self, step: &str, outcome: &'static str) {
        self.steps
            .get_or_create(&StepLabels {
                step: step.to_owned(),
                outcome,
            })
            .inc();
    }

    /// Counts a write of a status.
    pub fn status_write(&self) {
        self.status_writes.inc();
    }

    /// Says whether this operator acts.
    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }
}
