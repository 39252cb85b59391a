//! I3: no step of the operator lowers the voters that serve below the quorum of the configuration
//! as it is, or as it is after the step. A voter that fell silent too recently for anyone to know
//! counts as serving.

use crate::opsim::harness::ground_truth::{ClusterTruth, Member};

use super::{BELIEVED_MS, History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    // A hibernated cluster is not meant to serve; an operator may have observed it a moment ago.
    let targets = history.targets(step.uid, step.now_ms, BELIEVED_MS);
    if !after.exists || before.voters.is_empty() || targets.contains(&0) {
        return None;
    }
    let serves = |(id, member): &(&u64, &Member)| {
        let known = member.reached || history.lately_lost(step.uid, **id, step.now_ms);
        known && !member.leaving
    };
    let count = |cluster: &ClusterTruth| cluster.voters.iter().filter(|m| serves(m)).count();
    let (served, serving) = (count(before), count(after));
    let lowered = serving < served || before.voters.len() != after.voters.len();
    (lowered && serving < after.quorum()).then(|| {
        format!(
            "{serving} of {} voters serve after it, {served} of {} did before",
            after.voters.len(),
            before.voters.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, step};
    use super::*;

    /// The time by which a silent voter is known to be silent.
    const LATER: u64 = 60_000;

    #[test]
    fn second_restart_is_detected() {
        let mut before = cluster(3);
        before.voters.entry(1).and_modify(|m| m.reached = false);
        let past = history(&cluster(3));
        let mut after = before.clone();
        after.voters.entry(2).and_modify(|m| m.leaving = true);
        assert!(deed(&step(&before, &after, LATER), &past).is_some());
        let lately = deed(&step(&before, &after, 5_000), &past);
        assert_eq!(
            lately, None,
            "the operator could not know that the first was gone"
        );
        let whole = cluster(3);
        let mut one_less = whole.clone();
        one_less.voters.entry(2).and_modify(|m| m.leaving = true);
        assert_eq!(deed(&step(&whole, &one_less, LATER), &past), None);
    }

    #[test]
    fn removal_below_quorum_is_detected() {
        let mut before = cluster(3);
        before.voters.entry(1).and_modify(|m| m.reached = false);
        let mut after = before.clone();
        after.voters.remove(&2);
        let past = history(&cluster(3));
        assert!(deed(&step(&before, &after, LATER), &past).is_some());
        let mut dead_removed = before.clone();
        dead_removed.voters.remove(&1);
        assert_eq!(deed(&step(&before, &dead_removed, LATER), &past), None);
    }
}
