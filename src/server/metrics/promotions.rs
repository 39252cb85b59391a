//! Promotions of learners by calls to this member, under etcd's names: those that succeeded, and those that failed by the reason.
//!
//! Reasons are texts without names or numbers, so their number is bounded. A promotion is rare: a lock costs nothing here.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Text;

/// The counters.
#[derive(Debug, Default)]
pub struct Promotions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    succeeded: u64,
    failed: BTreeMap<&'static str, u64>,
}

impl Promotions {
    /// A call has ended.
    pub fn ended(&self, outcome: Result<(), &'static str>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => counts.succeeded += 1,
            Err(reason) => *counts.failed.entry(reason).or_default() += 1,
        }
    }

    /// As in etcd, a reason that did not occur has no sample.
    pub(super) fn write(&self, text: &mut Text) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.single(
            "etcd_server_learner_promote_successes",
            "counter",
            "Learners that were promoted by a call to this member.",
            counts.succeeded,
        );
        let name = "etcd_server_learner_promote_failures";
        let help = "Calls to this member that did not promote a learner, by the reason.";
        text.head(name, "counter", help);
        for (reason, number) in &counts.failed {
            text.sample(name, &format!("Reason=\"{reason}\""), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_their_reason() {
        let promotions = Promotions::default();
        promotions.ended(Err("no leader"));
        promotions.ended(Ok(()));
        promotions.ended(Err("no leader"));
        let mut text = Text::default();
        promotions.write(&mut text);
        let text = text.finish();
        let samples: Vec<&str> = text.lines().filter(|it| !it.starts_with('#')).collect();
        let wanted = [
            "etcd_server_learner_promote_successes 1",
            "etcd_server_learner_promote_failures{Reason=\"no leader\"} 2",
        ];
        assert_eq!(samples, wanted);
    }
}
