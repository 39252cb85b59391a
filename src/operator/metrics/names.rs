//! Every metric of the operator: name, type, labels and meaning, in one table. What counts, what is encoded and the page
//! `docs/operator-metrics.md` read it here, so that none of them can say anything else. Holds no figure.

use std::fmt::Write as _;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
    /// Always 1: what it says is in its labels.
    Info,
}

/// One metric.
#[derive(Debug)]
pub(crate) struct Metric {
    /// The name as a query has it; a histogram's samples add `_bucket`, `_sum` and `_count`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Names of its labels, in their order.
    pub(crate) labels: &'static [&'static str],
    help: &'static str,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

impl Metric {
    /// The name without what the exposition format adds to it by its type.
    pub(crate) fn family(&self) -> &'static str {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name.strip_suffix(end).unwrap_or(self.name)
    }

    /// What it means: a sentence without its full stop, on one line.
    pub(crate) fn help(&self) -> &'static str {
        self.help.trim_start()
    }
}

/// Metrics of one subject.
pub(crate) struct Group {
    title: &'static str,
    about: &'static str,
    pub(crate) metrics: &'static [&'static Metric],
}

macro_rules! metrics {
    ($($group:ident $title:literal: $about:literal { $($(#[doc = $help:literal])+ $id:ident $kind:ident $name:literal [$($label:literal),*];)+ })+) => {
        $($(
            $(#[doc = $help])+
            pub(crate) const $id: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: concat!($($help),+),
            };
        )+
        pub(crate) const $group: Group = Group {
            title: $title,
            about: $about,
            metrics: &[$(&$id),+],
        };
        )+
        /// All of them.
        pub(crate) const GROUPS: &[&Group] = &[$(&$group),+];
    };
}

// The text of a metric is one line.
metrics! {
    OPERATOR "The operator": "Of each replica. At rest nothing grows but the number of reconciles." {
        /// 1 while this replica holds the Lease, and acts
        LEADING Gauge "quorate_operator_leading" [];
        /// Reconciles that ended with an error, by what was reconciled: cluster, backup (everything about backups, restores and followed clusters), or access (users and roles)
        RECONCILE_ERRORS Counter "quorate_reconcile_errors_total" ["controller"];
        /// Seconds of a reconcile, by the same
        RECONCILE_SECONDS Histogram "quorate_reconcile_duration_seconds" ["controller"];
        /// Steps that were executed, by kind and outcome: done, overtaken (what it was decided on had changed), refused (only a person can resolve it) or failed (it is retried)
        STEPS Counter "quorate_operator_steps_total" ["step", "outcome"];
        /// Writes of a cluster's status; none at rest
        STATUS_WRITES Counter "quorate_operator_status_writes_total" [];
        /// EtcdClusters that cannot be read, because they are not what their definition says; nothing is done for them
        UNREADABLE Gauge "quorate_clusters_unreadable" [];
    }
    CLUSTERS "Clusters": "Of every EtcdCluster, by its status as the operator last wrote it; served by the active replica alone. What the status does not say is absent, and not 0." {
        /// The version that its voters run at least, and its ID in hexadecimal; empty where unknown
        INFO Info "quorate_cluster_info" ["namespace", "name", "version", "cluster_id"];
        /// Voters that are wanted (`spec.replicas`)
        WANTED Gauge "quorate_cluster_spec_replicas" ["namespace", "name"];
        /// 1 while `spec.paused` is set
        PAUSED Gauge "quorate_cluster_spec_paused" ["namespace", "name"];
        /// Generation of the resource
        GENERATION Gauge "quorate_cluster_metadata_generation" ["namespace", "name"];
        /// Generation that the status was computed from
        OBSERVED_GENERATION Gauge "quorate_cluster_status_observed_generation" ["namespace", "name"];
        /// Voters in the cluster's own member list
        VOTERS Gauge "quorate_cluster_status_replicas" ["namespace", "name"];
        /// Voters that answer linearizable reads
        READY Gauge "quorate_cluster_status_replicas_ready" ["namespace", "name"];
        /// Voters that run the current spec
        UPDATED Gauge "quorate_cluster_status_replicas_updated" ["namespace", "name"];
        /// 1 for the status of each condition (True, False, Unknown), 0 for the two others
        CONDITION Gauge "quorate_cluster_status_condition" ["namespace", "name", "type", "status"];
        /// 1 for the reason of each condition; that of Ready comes nearest to a phase
        REASON Gauge "quorate_cluster_status_condition_reason" ["namespace", "name", "type", "reason"];
        /// Members by role (Voter, Learner, Standby, Leaving) and health (Healthy, Unhealthy, Unknown); 0 is given of voters alone
        MEMBERS Gauge "quorate_cluster_members" ["namespace", "name", "role", "health"];
        /// How many more healthy voters may fail before the quorum is lost; absent while no leader with a quorum is seen
        TOLERATED Gauge "quorate_cluster_failures_tolerated" ["namespace", "name"];
        /// Evictions that the PodDisruptionBudget allows now; absent with `disruption.policy: Gate`, under which the operator lets members leave one by one
        ALLOWED Gauge "quorate_cluster_disruptions_allowed" ["namespace", "name"];
        /// Log entries that a learner has not received yet
        LAG Gauge "quorate_cluster_member_lag_entries" ["namespace", "name", "member"];
        /// Unix time at which the step in hand began, with its state (Acting, Waiting) and reason; absent at rest
        STEP_STARTED Gauge "quorate_cluster_step_started_timestamp_seconds" ["namespace", "name", "step", "state", "reason"];
        /// Unix time since when a write has been failing; absent while none fails
        FAILING_SINCE Gauge "quorate_cluster_failing_since_timestamp_seconds" ["namespace", "name"];
        /// Unix time at which the certificate in a Secret ends
        CERTIFICATE_ENDS Gauge "quorate_cluster_certificate_not_after_timestamp_seconds" ["namespace", "name", "secret", "port"];
        /// Unix time of the data in the cluster's newest good backup
        LAST_BACKUP Gauge "quorate_cluster_backup_last_success_timestamp_seconds" ["namespace", "name"];
        /// Unix time of the data in its newest verified backup
        LAST_VERIFIED Gauge "quorate_cluster_backup_last_verified_timestamp_seconds" ["namespace", "name"];
        /// Seconds that the verification of that one, a restore, took
        RECOVERY_SECONDS Gauge "quorate_cluster_backup_recovery_seconds" ["namespace", "name"];
        /// Unix time up to which everything committed is in the archive, to half a minute
        ARCHIVED Gauge "quorate_cluster_backup_archived_timestamp_seconds" ["namespace", "name"];
        /// 1 for the phase of a cluster that follows another one (Seeding, Following, Frozen, CutOver), 0 for the others
        FOLLOW_PHASE Gauge "quorate_cluster_follow_phase" ["namespace", "name", "phase"];
        /// Revisions of the followed cluster that are not applied yet; absent after the cutover
        FOLLOW_REVISIONS Gauge "quorate_cluster_follow_lag_revisions" ["namespace", "name"];
        /// Seconds for which not everything of the followed cluster is known to be applied; 0 below ten
        FOLLOW_SECONDS Gauge "quorate_cluster_follow_lag_seconds" ["namespace", "name"];
    }
    BACKUPS "Schedules of backups": "Of every EtcdBackupSchedule; served by the active replica alone." {
        /// 1 while the condition Ready of the schedule is True, 0 while it is False
        SCHEDULE_READY Gauge "quorate_backup_schedule_ready" ["namespace", "schedule"];
        /// Unix time of the data in a schedule's newest good backup
        SCHEDULE_SUCCESS Gauge "quorate_backup_last_success_timestamp_seconds" ["namespace", "schedule"];
        /// Unix time of the data in its newest verified backup
        SCHEDULE_VERIFIED Gauge "quorate_backup_last_verified_timestamp_seconds" ["namespace", "schedule"];
        /// Seconds that the restore of that one took
        SCHEDULE_RECOVERY Gauge "quorate_backup_recovery_seconds" ["namespace", "schedule"];
        /// Unix time up to which everything committed is in the archive, to half a minute; absent while nothing is to be archived
        SCHEDULE_ARCHIVED Gauge "quorate_backup_archived_timestamp_seconds" ["namespace", "schedule"];
    }
    ACCESS "Users and roles": "Of every EtcdUser and EtcdRole; served by the active replica alone." {
        /// 1 while the condition Ready of the resource is True, 0 while it is False, or the resource cannot be read
        ACCESS_READY Gauge "quorate_access_ready" ["namespace", "kind", "object"];
    }
}

/// The reference of the metrics as a Markdown page.
pub(crate) fn page() -> String {
    let mut text = String::from(
        "# Metrics of the operator\n\nGenerated by `quorate generate metrics`. The operator serves them at `/metrics` on port 8080. How they are scraped, and what to alert on: [Monitoring](tasks/monitor.md).\n",
    );
    for Group {
        title,
        about,
        metrics,
    } in GROUPS
    {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n{about}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"
        );
        for metric in *metrics {
            let labels = metric.labels.iter().map(|label| format!("`{label}`"));
            let labels: Vec<String> = labels.collect();
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {}. |",
                metric.name,
                metric.kind.as_str(),
                labels.join(", "),
                metric.help()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names by the rules of Prometheus, each once, with a text, and no label that a message or an object of many could
    /// fill.
    #[test]
    fn names_follow_the_rules() {
        let all = GROUPS.iter().flat_map(|group| group.metrics);
        let mut seen = BTreeSet::new();
        for metric in all {
            let name = metric.name;
            assert!(seen.insert(name), "{name} twice");
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.starts_with("quorate_") && name.chars().all(fits));
            let total = name.ends_with("_total");
            assert_eq!(total, metric.kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), metric.kind == Kind::Info, "{name}");
            // A name that is a time says so.
            let time = metric.help().starts_with("Unix time");
            assert_eq!(name.ends_with("_timestamp_seconds"), time, "{name}");
            assert!(!metric.help().ends_with('.'), "{name}");
            for label in metric.labels {
                let free = ["message", "uid", "summary", "instance", "cluster", "job"];
                assert!(!free.contains(label), "{name}: {label}");
            }
        }
        assert!(seen.len() > 30, "{}", seen.len());
    }
}
