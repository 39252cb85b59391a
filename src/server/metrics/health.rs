//! The checks of `/livez` and `/readyz`, under etcd's names: the last result of each, and how often it was what.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Text;

/// The checks, with the path that asks for them.
const CHECKS: [(&str, &str); 5] = [
    ("livez", "serializable_read"),
    ("readyz", "data_corruption"),
    ("readyz", "serializable_read"),
    ("readyz", "linearizable_read"),
    ("readyz", "non_learner"),
];

/// The counters: of each check how often it failed, how often not, and whether it last failed.
#[derive(Debug, Default)]
pub struct HealthChecks([[AtomicU64; 3]; CHECKS.len()]);

impl HealthChecks {
    /// A check was asked for.
    pub fn checked(&self, kind: &str, name: &str, succeeded: bool) {
        let place = CHECKS.iter().position(|check| *check == (kind, name));
        if let Some([failures, successes, last]) = place.and_then(|place| self.0.get(place)) {
            match succeeded {
                true => successes,
                false => failures,
            }
            .fetch_add(1, Relaxed);
            last.store(succeeded.into(), Relaxed);
        }
    }

    /// As in etcd, what nobody has asked for has no samples.
    pub(super) fn write(&self, text: &mut Text) {
        let labels = |(kind, name): (&str, &str)| format!("name=\"{name}\",type=\"{kind}\"");
        let asked = || {
            let all = CHECKS.into_iter().zip(&self.0);
            all.map(|(check, counts)| (check, counts.each_ref().map(|it| it.load(Relaxed))))
                .filter(|(_, [failures, successes, _])| failures + successes > 0)
        };
        let name = "etcd_server_healthcheck";
        let help = "Whether a check of /livez or /readyz last succeeded.";
        text.head(name, "gauge", help);
        for (check, [.., last]) in asked() {
            text.sample(name, &labels(check), last);
        }
        let name = "etcd_server_healthchecks_total";
        let help = "Checks of /livez and /readyz, by their result.";
        text.head(name, "counter", help);
        for (check, [failures, successes, _]) in asked() {
            for (status, number) in [("error", failures), ("success", successes)] {
                if number > 0 {
                    let labels = format!("{},status=\"{status}\"", labels(check));
                    text.sample(name, &labels, number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_told_once_they_were_asked_for() {
        let checks = HealthChecks::default();
        checks.checked("readyz", "non_learner", true);
        checks.checked("readyz", "non_learner", false);
        checks.checked("readyz", "non_learner", false);
        let mut text = Text::default();
        checks.write(&mut text);
        let text = text.finish();
        let samples: Vec<&str> = text.lines().filter(|it| !it.starts_with('#')).collect();
        let wanted = [
            r#"etcd_server_healthcheck{name="non_learner",type="readyz"} 0"#,
            r#"etcd_server_healthchecks_total{name="non_learner",type="readyz",status="error"} 2"#,
            r#"etcd_server_healthchecks_total{name="non_learner",type="readyz",status="success"} 1"#,
        ];
        assert_eq!(samples, wanted);
    }
}
