//! I11: exactly one disruption budget is over each pod of a member that was not let go. One that counts
//! keeps at least a quorum of the voters available at every moment, so it is raised before a voter
//! comes, and is lowered only when the pods of all who were removed are gone.

use super::{Of, Step};

pub(super) fn moment(of: &Of<'_>) -> Option<String> {
    let cluster = of.cluster;
    if !cluster.exists {
        return None;
    }
    if let Some((pod, over)) = &cluster.budgets.wrong {
        return Some(format!("{over} disruption budgets are over {pod}"));
    }
    let least = cluster.budgets.least?;
    let voters = cluster.voters.len();
    (voters > 0 && least < cluster.quorum())
        .then(|| format!("evictions may leave {least} of {voters} voters available"))
}

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let (before, after) = (step.before.budgets.least?, &step.after.budgets);
    let lowered = step.after.exists && after.least.is_some_and(|least| least < before);
    let mut pods = after.pods.iter().filter(|_| lowered);
    let left = pods.find(|name| step.after.removed.contains(*name))?;
    Some(format!(
        "the disruption budget was lowered, and the pod of {left} is still there"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of, step};
    use super::*;

    #[test]
    fn fewer_than_a_quorum_and_none_or_two_budgets_are_seen() {
        let mut three = cluster(3);
        three.budgets.least = Some(2);
        assert_eq!(moment(&of(&three, 0)), None);
        let mut four = cluster(4);
        four.budgets.least = Some(2);
        assert!(moment(&of(&four, 0)).is_some());
        for over in [0, 2] {
            three.budgets.wrong = Some(("demo-1-0".into(), over));
            assert!(moment(&of(&three, 0)).is_some());
        }
    }

    #[test]
    fn a_budget_that_is_lowered_too_early_is_seen() {
        let mut before = cluster(3);
        before.budgets.least = Some(3);
        before.removed.insert("demo-4".into());
        before.budgets.pods.insert("demo-4".into());
        let mut after = before.clone();
        after.budgets.least = Some(2);
        assert!(deed(&step(&before, &after, 0)).is_some());
        after.budgets.pods.clear();
        assert_eq!(deed(&step(&before, &after, 0)), None);
        assert_eq!(deed(&step(&before, &before, 0)), None);
    }
}
