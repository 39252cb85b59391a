//! The operator's own metrics: what it counts while it works, and what is known of schedules of backups, of users and of roles.
//! Those of clusters are not kept here: a scrape finds them in the caches (`clusters`). Labels are bounded: steps, outcomes, and
//! of objects the names of schedules, users and roles, for as long as they exist.

pub(crate) mod clusters;
pub(crate) mod figures;
pub(crate) mod names;

use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Seconds of a reconcile: a cached reconcile takes milliseconds, one with a dial that times out seconds.
const RECONCILE_BUCKETS: [f64; 8] = [0.005, 0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0];

/// What is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// EtcdClusters.
    Cluster,
    /// Everything about backups, restores and followed clusters.
    Backup,
    /// EtcdUsers and EtcdRoles.
    Access,
}

impl Controller {
    fn labels(self) -> ReconcileLabels {
        let controller = match self {
            Controller::Cluster => "cluster",
            Controller::Backup => "backup",
            Controller::Access => "access",
        };
        ReconcileLabels { controller }
    }
}

/// What was reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
}

/// What a step was and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: String,
    outcome: &'static str,
}

/// A schedule of backups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScheduleLabels {
    namespace: String,
    schedule: String,
}

/// A user or a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccessLabels {
    namespace: String,
    kind: &'static str,
    object: String,
}

/// What is known of a schedule's backups: Unix seconds, and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupFigures {
    /// Whether the schedule is Ready.
    pub ready: Option<bool>,
    /// When the data of the newest good one were read.
    pub last_success: Option<i64>,
    /// When those of the newest verified one were read.
    pub last_verified: Option<i64>,
    /// How long it took to restore it.
    pub recovery_seconds: Option<i64>,
    /// Everything that was committed then is archived.
    pub archived: Option<i64>,
}

/// The metrics of a schedule, in the order of [`BackupFigures`].
const OF_SCHEDULES: [&names::Metric; 5] = [
    &names::SCHEDULE_READY,
    &names::SCHEDULE_SUCCESS,
    &names::SCHEDULE_VERIFIED,
    &names::SCHEDULE_RECOVERY,
    &names::SCHEDULE_ARCHIVED,
];

/// The operator's own figures.
#[derive(Clone, Debug)]
pub struct Metrics {
    errors: Family<ReconcileLabels, Counter>,
    seconds: Family<ReconcileLabels, Histogram, fn() -> Histogram>,
    steps: Family<StepLabels, Counter>,
    status_writes: Counter,
    leading: Gauge,
    /// By [`OF_SCHEDULES`].
    backups: [Family<ScheduleLabels, Gauge>; 5],
    access: [Family<AccessLabels, Gauge>; 1],
}

impl Metrics {
    /// Registers the figures.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            steps: Family::default(),
            status_writes: Counter::default(),
            leading: Gauge::default(),
            backups: Default::default(),
            access: Default::default(),
        };
        // No error is a figure as well: a rate needs a first value.
        for controller in [Controller::Cluster, Controller::Backup, Controller::Access] {
            drop(metrics.errors.get_or_create(&controller.labels()));
            drop(metrics.seconds.get_or_create(&controller.labels()));
        }
        register(registry, &names::LEADING, metrics.leading.clone());
        register(registry, &names::RECONCILE_ERRORS, metrics.errors.clone());
        register(registry, &names::RECONCILE_SECONDS, metrics.seconds.clone());
        register(registry, &names::STEPS, metrics.steps.clone());
        register(
            registry,
            &names::STATUS_WRITES,
            metrics.status_writes.clone(),
        );
        for (name, family) in OF_SCHEDULES.into_iter().zip(&metrics.backups) {
            register(registry, name, family.clone());
        }
        register(registry, &names::ACCESS_READY, metrics.access[0].clone());
        metrics
    }

    /// Counts a reconcile that took this many seconds.
    pub fn reconciled(&self, controller: Controller, failed: bool, seconds: f64) {
        let labels = controller.labels();
        if failed {
            self.errors.get_or_create(&labels).inc();
        }
        self.seconds.get_or_create(&labels).observe(seconds);
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

    /// Sets what is known of a schedule's backups; nothing of one that is gone.
    pub fn backups(&self, (namespace, schedule): (&str, &str), figures: BackupFigures) {
        let labels = ScheduleLabels {
            namespace: namespace.to_owned(),
            schedule: schedule.to_owned(),
        };
        let BackupFigures {
            ready,
            last_success,
            last_verified,
            recovery_seconds,
            archived,
        } = figures;
        let ready = ready.map(i64::from);
        let values = [
            ready,
            last_success,
            last_verified,
            recovery_seconds,
            archived,
        ];
        set_known(&self.backups, &labels, values);
    }

    /// Sets whether a user or a role is Ready; nothing of one that is gone, or of which that is not known yet.
    pub fn access(&self, kind: &'static str, (namespace, name): (&str, &str), ready: Option<bool>) {
        let labels = AccessLabels {
            namespace: namespace.to_owned(),
            kind,
            object: name.to_owned(),
        };
        set_known(&self.access, &labels, [ready.map(i64::from)]);
    }

    /// Sets whether this operator is active.
    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }
}

/// Registers a metric as the table describes it.
fn register(registry: &mut Registry, name: &names::Metric, metric: impl Metric) {
    registry.register(name.family(), name.help(), metric);
}

/// Sets each figure that is known, and removes the others.
fn set_known<L, const N: usize>(
    families: &[Family<L, Gauge>; N],
    labels: &L,
    values: [Option<i64>; N],
) where
    L: Clone + Eq + Hash,
{
    for (family, value) in families.iter().zip(values) {
        match value {
            Some(value) => {
                family.get_or_create(labels).set(value);
            }
            None => {
                family.remove(labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn encoded(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
        text
    }

    #[test]
    fn backups_are_reported_while_their_schedule_is_there() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let schedule = ("prod", "nightly");
        let figures = BackupFigures {
            ready: Some(false),
            last_success: Some(7),
            ..BackupFigures::default()
        };
        metrics.backups(schedule, figures);
        let text = encoded(&registry);
        for (name, value) in [("last_success_timestamp_seconds", 7), ("schedule_ready", 0)] {
            let line = format!(
                "quorate_backup_{name}{{namespace=\"prod\",schedule=\"nightly\"}} {value}\n"
            );
            assert!(text.contains(&line), "{text}");
        }
        assert!(!text.contains("quorate_backup_recovery_seconds{"), "{text}");
        metrics.backups(schedule, BackupFigures::default());
        let text = encoded(&registry);
        assert!(!text.contains("nightly"), "{text}");
    }

    /// A user and a role of one name are two.
    #[test]
    fn users_and_roles_are_reported_while_they_are_there() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let app = ("prod", "app");
        metrics.access("EtcdUser", app, Some(false));
        metrics.access("EtcdRole", app, Some(true));
        let text = encoded(&registry);
        for (kind, value) in [("EtcdUser", 0), ("EtcdRole", 1)] {
            let labels = format!("namespace=\"prod\",kind=\"{kind}\",object=\"app\"");
            let line = format!("quorate_access_ready{{{labels}}} {value}\n");
            assert!(text.contains(&line), "{text}");
        }
        metrics.access("EtcdUser", app, None);
        let text = encoded(&registry);
        assert!(!text.contains("EtcdUser"), "{text}");
        assert!(text.contains("EtcdRole"), "{text}");
    }

    #[test]
    fn reconciles_are_counted_from_zero() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let errors = |count: u64| {
            format!("quorate_reconcile_errors_total{{controller=\"cluster\"}} {count}\n")
        };
        assert!(encoded(&registry).contains(&errors(0)));
        metrics.reconciled(Controller::Cluster, false, 0.01);
        metrics.reconciled(Controller::Cluster, true, 4.0);
        let text = encoded(&registry);
        assert!(text.contains(&errors(1)), "{text}");
        let count = "quorate_reconcile_duration_seconds_count{controller=\"cluster\"} 2\n";
        assert!(text.contains(count), "{text}");
        assert!(text.contains("quorate_reconcile_errors_total{controller=\"backup\"} 0\n"));
    }

    /// The page is made of the table, and so is what is registered: each of these names, and no other.
    #[test]
    fn registered_metrics_are_those_of_the_table() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.step("Promote", "done");
        let all = BackupFigures {
            ready: Some(true),
            last_success: Some(1),
            last_verified: Some(1),
            recovery_seconds: Some(1),
            archived: Some(1),
        };
        metrics.backups(("prod", "nightly"), all);
        metrics.access("EtcdUser", ("prod", "app"), Some(true));
        let text = encoded(&registry);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let types: BTreeSet<String> = types.map(str::to_owned).collect();
        let ours = names::OPERATOR.metrics.iter().chain(names::BACKUPS.metrics);
        let ours = ours.chain(names::ACCESS.metrics);
        // That one is counted in a scrape.
        let ours = ours.filter(|metric| metric.name != names::UNREADABLE.name);
        let table = ours.map(|metric| format!("{} {}", metric.family(), metric.kind.as_str()));
        let table: BTreeSet<String> = table.collect();
        assert_eq!(types, table);
    }
}
