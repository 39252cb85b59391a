//! How long requests take by their kind and whether they succeeded, under the name that etcd has since 3.7. Of streams no
//! such time is told.

use std::time::Duration;

use super::client::Method;
use super::{DISK_BUCKETS, Histogram, Text};

/// The kinds, in etcd's words.
const KINDS: [(Method, &str); 7] = [
    (Method::Range, "Range"),
    (Method::Put, "Put"),
    (Method::DeleteRange, "DeleteRange"),
    (Method::Txn, "Txn"),
    (Method::Compact, "Compaction"),
    (Method::LeaseGrant, "LeaseGrant"),
    (Method::LeaseRevoke, "LeaseRevoke"),
];

/// The times: of each kind those that failed, and those that did not.
#[derive(Debug)]
pub(super) struct RequestTimes([[Histogram; 2]; KINDS.len()]);

impl Default for RequestTimes {
    fn default() -> Self {
        RequestTimes(KINDS.map(|_| [false, true].map(|_| Histogram::new(DISK_BUCKETS))))
    }
}

impl RequestTimes {
    pub(super) fn handled(&self, method: Method, success: bool, took: Duration) {
        let kind = KINDS.iter().position(|(known, _)| *known == method);
        if let Some(times) = kind.and_then(|kind| self.0.get(kind)) {
            times[usize::from(success)].observe(took);
        }
    }

    /// As in etcd, what has not happened has no samples.
    pub(super) fn write(&self, text: &mut Text) {
        let name = "etcd_server_request_duration_seconds";
        let help = "Seconds that requests took, by kind and whether they succeeded.";
        text.head(name, "histogram", help);
        for ((_, kind), times) in KINDS.iter().zip(&self.0) {
            for (success, times) in [false, true].iter().zip(times) {
                if !times.is_empty() {
                    let labels = format!("success=\"{success}\",type=\"{kind}\"");
                    times.write(text, name, &labels);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_of_what_happened() {
        let times = RequestTimes::default();
        times.handled(Method::Compact, false, Duration::from_millis(3));
        times.handled(Method::Watch, true, Duration::from_secs(1));
        let mut text = Text::default();
        times.write(&mut text);
        let text = text.finish();
        let counts: Vec<&str> = text.lines().filter(|it| it.contains("_count")).collect();
        let compact =
            "etcd_server_request_duration_seconds_count{success=\"false\",type=\"Compaction\"} 1";
        assert_eq!(counts, [compact]);
    }
}
