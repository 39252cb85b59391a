//! The operator's own metrics. Labels are bounded: steps and outcomes, and of objects only the names of Secrets with
//! certificates, for as long as they exist.

use std::collections::{BTreeMap, BTreeSet};
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
        };
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

    /// Sets whether this operator is active.
    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_reported_while_present() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let encoded = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
            text
        };
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
