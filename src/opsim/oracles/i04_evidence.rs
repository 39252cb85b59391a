//! I4: a voter is removed only if it is dead by evidence (its disk is gone or was exchanged, its
//! PVC is gone, it was out of reach for as long as the spec demands, or the alarm CORRUPT names
//! it and its data differs from that of most voters), or surplus, or asked
//! for: by its name, or because its node goes away and `nodeReplacement` is RemoveFirst.

use super::{BELIEVED_MS, History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let gone = before
        .voters
        .iter()
        .filter(|(id, _)| !after.voters.contains_key(id));
    for (id, member) in gone {
        let targets = history.targets(step.uid, step.now_ms, BELIEVED_MS);
        // In hibernation everybody stays a member.
        let mut awake = targets.iter().filter(|target| **target > 0);
        let surplus = awake.any(|target| before.voters.len() > *target);
        let asked = before.replace.contains(&member.name) && surplus;
        let disk_gone = member.held.is_none() || member.taken.is_some() || !member.claimed;
        let away = history
            .unreached_for(step.uid, *id, step.now_ms)
            .unwrap_or(u64::MAX);
        // The leader's count may have begun a moment earlier.
        let long_away = before.unhealthy_ms > 0 && away + 5_000 >= before.unhealthy_ms;
        let lost = long_away && !member.reached;
        let named = before.alarms.contains(&format!("CORRUPT {id:x}"));
        let corrupt = named && before.differs(*id);
        let leaves = history.may_leave(step.uid, *id, step.now_ms);
        if !(surplus || asked || disk_gone || lost || corrupt || leaves) {
            return Some(format!(
                "{} was removed, which was out of reach for {} s and is not surplus: {} voters, {:?} wanted",
                member.name,
                away / 1000,
                before.voters.len(),
                targets
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, step};
    use super::*;
    use crate::opsim::harness::ground_truth::ClusterTruth;

    #[test]
    fn live_voter_is_not_removed() {
        let before = cluster(3);
        let past = history(&before);
        let mut after = before.clone();
        after.voters.remove(&2);
        assert!(deed(&step(&before, &after, 10_000), &past).is_some());
        let mut silent = before.clone();
        silent.voters.entry(2).and_modify(|m| m.reached = false);
        assert!(deed(&step(&silent, &after, 300_000), &past).is_some());
        assert_eq!(deed(&step(&silent, &after, 600_000), &past), None);
        let mut lost = before.clone();
        lost.voters.entry(2).and_modify(|m| m.held = None);
        assert_eq!(deed(&step(&lost, &after, 10_000), &past), None);
    }

    /// This path of a drain was not known here, so nothing ever judged it: a run with RemoveFirst
    /// could only fail, and none was made.
    #[test]
    fn drain_removes_first_only_if_asked() {
        let mut drained = cluster(3);
        drained.voters.entry(2).and_modify(|m| m.node_goes = true);
        let mut after = drained.clone();
        after.voters.remove(&2);
        let broken =
            |before: &ClusterTruth, now| deed(&step(before, &after, now), &history(before));
        assert!(broken(&drained, 10).is_some(), "it was to be added first");
        drained.remove_first = true;
        assert_eq!(broken(&drained, 10), None);
        let late = BELIEVED_MS + 1;
        assert!(broken(&drained, late).is_some(), "the drain was long ago");
        drained.voters.entry(2).and_modify(|m| m.node_goes = false);
        assert!(broken(&drained, 10).is_some(), "its node stays");
    }

    /// The one voter in contact that may go for what it holds.
    #[test]
    fn named_corrupt_voter_may_be_removed() {
        let mut before = cluster(3);
        before.voters.entry(2).and_modify(|m| m.data = Some(7));
        let mut after = before.clone();
        after.voters.remove(&2);
        let broken = |before: &ClusterTruth| deed(&step(before, &after, 10), &history(before));
        assert!(broken(&before).is_some(), "no alarm names it");
        before.alarms = vec!["CORRUPT 2".to_owned()];
        assert_eq!(broken(&before), None);
        before.voters.entry(2).and_modify(|m| m.data = Some(0));
        assert!(broken(&before).is_some(), "its data is equal");
        before.voters.entry(2).and_modify(|m| m.data = Some(7));
        before.voters.entry(1).and_modify(|m| m.data = Some(8));
        assert!(broken(&before).is_some(), "no majority agrees");
    }

    #[test]
    fn surplus_voter_may_be_removed() {
        let mut before = cluster(3);
        before.target = 1;
        let mut after = before.clone();
        after.voters.remove(&2);
        assert_eq!(deed(&step(&before, &after, 10), &history(&before)), None);
    }
}
