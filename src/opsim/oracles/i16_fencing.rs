//! I16: no act of recovery without its fencing. The next incarnation of a cluster is formed only where an EtcdRecovery
//! asks for it, while there is no quorum and no server of the incarnation before runs but the survivor's, and never empty.
//! No operator deletes the volume of a former member, nor stops one while there is a quorum, unless the user has named it and the
//! others are one.

use super::Step;

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let lost = before.former_volumes.difference(&after.former_volumes);
    if let Some(member) = lost.into_iter().next()
        && after.exists
    {
        return Some(format!(
            "the volume of {member} was deleted, which was a member before the recovery"
        ));
    }
    let mut stopped = after.asleep.difference(&before.asleep);
    if let Some(member) = stopped.next()
        && before.quorate
        && after.target > 0
        && before.target > 0
    {
        let named = before.fenced.contains(member) || after.fenced.contains(member);
        let voters = after.voters.values();
        let stopped = voters.filter(|voter| after.asleep.contains(&voter.name));
        let rest = after.voters.len() - stopped.count();
        if !named || rest < after.voters.len() / 2 + 1 {
            return Some(format!("{member} was stopped while there was a quorum"));
        }
    }
    if after.incarnation <= before.incarnation || before.incarnation == 0 {
        return None;
    }
    if before.quorate {
        return Some("a next incarnation was formed while there was a quorum".to_owned());
    }
    if after.founded_from <= before.founded_from {
        return Some("a next incarnation was formed empty".to_owned());
    }
    let Some(survivor) = before.recoveries.get(&before.incarnation) else {
        return Some("a next incarnation was formed that nobody has asked for".to_owned());
    };
    let mut runs = after.former_running.iter();
    let other = runs.find(|member| survivor.as_ref() != Some(*member))?;
    Some(format!(
        "a next incarnation was formed while {other} of the one before runs"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, step};
    use super::*;

    #[test]
    fn unfenced_and_unasked_incarnations_are_detected() {
        let mut before = cluster(3);
        (before.incarnation, before.quorate) = (1, false);
        before.recoveries.insert(1, Some("demo-2".into()));
        let mut after = cluster(1);
        after.incarnation = 2;
        after.founded_from = 1;
        after.former_running.insert("demo-2".into());
        assert_eq!(deed(&step(&before, &after, 0)), None);
        let found = |change: &dyn Fn(&mut _, &mut _)| {
            let (mut before, mut after) = (before.clone(), after.clone());
            change(&mut before, &mut after);
            deed(&step(&before, &after, 0)).is_some()
        };
        type Truth = crate::opsim::harness::ground_truth::ClusterTruth;
        assert!(found(
            &|before: &mut Truth, _: &mut Truth| before.quorate = true
        ));
        assert!(found(&|before: &mut Truth, _: &mut Truth| before
            .recoveries
            .clear()));
        assert!(found(&|_: &mut Truth, after: &mut Truth| after
            .founded_from =
            0));
        assert!(found(&|_: &mut Truth, after: &mut Truth| {
            after.former_running.insert("demo-3".into());
        }));
        assert!(found(&|before: &mut Truth, after: &mut Truth| {
            (before.quorate, after.incarnation) = (true, 1);
            after.asleep.insert("demo-1".into());
        }));
        // Whom the user names may be stopped, and of three no second one.
        let names = |before: &mut Truth, after: &mut Truth, names: [&str; 2]| {
            *after = cluster(3);
            (before.quorate, before.incarnation, after.incarnation) = (true, 1, 1);
            after.fenced = names.map(str::to_owned).into();
            after.asleep = after.fenced.clone();
        };
        assert!(!found(&|before: &mut Truth, after: &mut Truth| {
            names(before, after, ["demo-1", "demo-1"]);
        }));
        assert!(found(&|before: &mut Truth, after: &mut Truth| {
            names(before, after, ["demo-1", "demo-2"]);
        }));
        assert!(found(&|before: &mut Truth, _: &mut Truth| {
            before.former_volumes.insert("demo-1".into());
        }));
    }
}
