//! The operator's own metrics. Labels are bounded: steps and outcomes, and of objects only the names of Secrets with
//! certificates, of schedules of backups and of clusters that follow others, for as long as they exist.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds of a reconcile: a cached reconcile takes milliseconds, one with a dial that times out seconds.
const RECONCILE_BUCKETS: [f64; 8] = [0.005, 0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0];

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    outcome: &'static str,
}

/// What a step was and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: String,
    outcome: &'static str,
}

/// A Secret with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    namespace: String,
    cluster: String,
    secret: String,
}

/// A schedule of backups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScheduleLabels {
    namespace: String,
    schedule: String,
}

/// What is known of a schedule's backups: Unix seconds, and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupFigures {
    /// When the data of the newest good one were read.
    pub last_success: Option<i64>,
    /// When those of the newest verified one were read.
    pub last_verified: Option<i64>,
    /// How long it took to restore it.
    pub recovery_seconds: Option<i64>,
    /// Everything that was committed then is archived.
    pub archived: Option<i64>,
}

/// A cluster that follows another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    namespace: String,
    cluster: String,
}

/// How far a cluster is behind the one that it follows; nothing while it follows none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowFigures {
    /// Revisions that are not applied yet.
    pub lag_revisions: Option<i64>,
    /// For how many seconds it has not had everything.
    pub lag_seconds: Option<i64>,
}

/// The exported Secrets, by namespace and cluster.
type ExportedSecrets = BTreeMap<(String, String), BTreeSet<String>>;

/// The operator's own figures.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    seconds: Histogram,
    steps: Family<StepLabels, Counter>,
    status_writes: Counter,
    leading: Gauge,
    certificates: Family<CertificateLabels, Gauge>,
    exported: Arc<Mutex<ExportedSecrets>>,
    /// Of the newest good backup, the newest verified one, its restore, and the archive.
    backups: [Family<ScheduleLabels, Gauge>; 4],
    /// How far behind, in revisions and in seconds.
    follows: [Family<ClusterLabels, Gauge>; 2],
}

impl Metrics {
    /// Registers the figures.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            seconds: Histogram::new(RECONCILE_BUCKETS),
            steps: Family::default(),
            status_writes: Counter::default(),
            leading: Gauge::default(),
            certificates: Family::default(),
            exported: Arc::default(),
            backups: Default::default(),
            follows: Default::default(),
        };
        let [success, verified, recovery, archived] = &metrics.backups;
        for (name, help, gauge) in [
            (
                "quorate_backup_last_success_timestamp_seconds",
                "Unix time of the data in a schedule's newest good backup",
                success,
            ),
            (
                "quorate_backup_last_verified_timestamp_seconds",
                "Unix time of the data in its newest verified backup",
                verified,
            ),
            (
                "quorate_backup_recovery_seconds",
                "Seconds that the restore of that one took",
                recovery,
            ),
            (
                "quorate_backup_archived_timestamp_seconds",
                "Unix time up to which everything committed is in the archive, to half a minute",
                archived,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        let [revisions, seconds] = &metrics.follows;
        registry.register(
            "quorate_follow_lag_revisions",
            "Revisions of the followed cluster that are not applied yet; absent after the cutover",
            revisions.clone(),
        );
        registry.register(
            "quorate_follow_lag_seconds",
            "Seconds for which not everything of the followed cluster is known to be applied; 0 below ten",
            seconds.clone(),
        );
        registry.register(
            "quorate_certificate_expiry_seconds",
            "Unix time at which the certificate in a Secret ends",
            metrics.certificates.clone(),
        );
        let registry = registry.sub_registry_with_prefix("quorate_operator");
        registry.register(
            "passes",
            "Reconciles by outcome",
            metrics.reconciles.clone(),
        );
        registry.register(
            "pass_seconds",
            "Duration of a reconcile",
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

    /// Counts a reconcile that took this many seconds.
    pub fn reconciled(&self, outcome: &'static str, seconds: f64) {
        self.reconciles
            .get_or_create(&ReconcileLabels { outcome })
            .inc();
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

    /// Sets the expiry of a cluster's certificates, by Secret, in Unix seconds: exactly these.
    pub fn certificates(&self, (namespace, cluster): (&str, &str), ends: &BTreeMap<String, i64>) {
        let labels = |secret: &String| CertificateLabels {
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            secret: secret.clone(),
        };
        let mut exported = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), cluster.to_owned());
        let now = ends.keys().cloned().collect::<BTreeSet<_>>();
        let before = if now.is_empty() {
            exported.remove(&key)
        } else {
            exported.insert(key, now)
        };
        for gone in before
            .iter()
            .flatten()
            .filter(|one| !ends.contains_key(*one))
        {
            self.certificates.remove(&labels(gone));
        }
        for (secret, end) in ends {
            self.certificates.get_or_create(&labels(secret)).set(*end);
        }
    }

    /// Sets what is known of a schedule's backups; nothing of one that is gone.
    pub fn backups(&self, (namespace, schedule): (&str, &str), figures: BackupFigures) {
        let labels = ScheduleLabels {
            namespace: namespace.to_owned(),
            schedule: schedule.to_owned(),
        };
        let BackupFigures {
            last_success,
            last_verified,
            recovery_seconds,
            archived,
        } = figures;
        let values = [last_success, last_verified, recovery_seconds, archived];
        set_known(&self.backups, &labels, values);
    }

    /// Sets how far behind a cluster is; nothing of one that follows none.
    pub fn follows(&self, (namespace, cluster): (&str, &str), figures: FollowFigures) {
        let labels = ClusterLabels {
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
        };
        let values = [figures.lag_revisions, figures.lag_seconds];
        set_known(&self.follows, &labels, values);
    }

    /// Sets whether this operator is active.
    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }
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
            last_success: Some(7),
            ..BackupFigures::default()
        };
        metrics.backups(schedule, figures);
        let line = "quorate_backup_last_success_timestamp_seconds{namespace=\"prod\",schedule=\"nightly\"} 7";
        let text = encoded(&registry);
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("quorate_backup_recovery_seconds{"), "{text}");
        metrics.backups(schedule, BackupFigures::default());
        let text = encoded(&registry);
        assert!(!text.contains("nightly"), "{text}");
    }

    #[test]
    fn lag_is_reported_while_a_cluster_follows() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let figures = FollowFigures {
            lag_revisions: Some(12),
            lag_seconds: Some(0),
        };
        metrics.follows(("prod", "demo"), figures);
        let text = encoded(&registry);
        for (name, value) in [("revisions", 12), ("seconds", 0)] {
            let line =
                format!("quorate_follow_lag_{name}{{namespace=\"prod\",cluster=\"demo\"}} {value}");
            assert!(text.contains(&line), "{text}");
        }
        metrics.follows(("prod", "demo"), FollowFigures::default());
        assert!(!encoded(&registry).contains("demo"));
    }

    #[test]
    fn certificates_are_reported_while_present() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let encoded = || encoded(&registry);
        let two = BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 6)]);
        metrics.certificates(("prod", "demo"), &two);
        let line = "quorate_certificate_expiry_seconds{namespace=\"prod\",cluster=\"demo\",secret=\"a\"} 5";
        assert!(encoded().contains(line), "{}", encoded());
        metrics.certificates(("prod", "demo"), &BTreeMap::from([("b".to_owned(), 7)]));
        assert!(!encoded().contains(line) && encoded().contains("secret=\"b\"} 7"));
        metrics.certificates(("prod", "demo"), &BTreeMap::new());
        assert!(!encoded().contains("secret="), "{}", encoded());
    }
}
