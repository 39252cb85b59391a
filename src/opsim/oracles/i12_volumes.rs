//! I12: no volume of a member that voted is deleted before its successor votes, whatever the
//! evidence against it was. A smaller size needs no successor.

use super::{BELIEVED_MS, History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    if !before.exists || !after.exists {
        return None;
    }
    let wanted = history.targets(step.uid, step.now_ms, BELIEVED_MS);
    let voters = after.voters.len();
    if wanted.iter().min().is_none_or(|least| voters >= *least) {
        return None;
    }
    let mut deleted = before.volumes.difference(&after.volumes);
    let member = deleted.find(|member| history.voted(step.uid, member))?;
    Some(format!(
        "the volume of {member}, which voted, was deleted while {voters} vote of {wanted:?} that are wanted"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, step};
    use super::*;

    #[test]
    fn volume_outlives_its_member() {
        let whole = cluster(3);
        let past = history(&whole);
        let mut before = whole.clone();
        before.voters.remove(&2);
        let mut after = before.clone();
        after.volumes.remove("demo-2");
        assert!(deed(&step(&before, &after, 60_000), &past).is_some());
        // Its successor votes.
        let back = [super::super::fixture::member(4)];
        before.voters.extend(back.clone());
        after.voters.extend(back);
        assert_eq!(deed(&step(&before, &after, 60_000), &past), None);
    }

    #[test]
    fn surplus_and_never_voted_leave_at_once() {
        let mut before = cluster(2);
        before.target = 3;
        before.volumes.insert("demo-3".into());
        let past = history(&before);
        let mut after = before.clone();
        after.volumes.remove("demo-3");
        assert_eq!(deed(&step(&before, &after, 60_000), &past), None);
        let mut shrunk = cluster(2);
        shrunk.target = 1;
        let past = history(&shrunk);
        shrunk.voters.remove(&2);
        let mut after = shrunk.clone();
        after.volumes.remove("demo-2");
        assert_eq!(deed(&step(&shrunk, &after, 60_000), &past), None);
    }
}
