//! I5: a member that does not serve is removed before its replacement is admitted. A learner is
//! added only while every voter serves, as far as anybody can know.

use super::{History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let came = |id: &&u64| !before.learners.contains_key(id) && !before.voters.contains_key(id);
    let added = after.learners.keys().find(came)?;
    let silent = before
        .voters
        .iter()
        .find(|(id, member)| !member.reached && !history.lately_lost(step.uid, **id, step.now_ms));
    let (_, voter) = silent?;
    Some(format!(
        "learner {added:x} was added while {} did not serve",
        voter.name
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, member, step};
    use super::*;

    #[test]
    fn unhealthy_voter_blocks_additions() {
        let whole = cluster(3);
        let past = history(&whole);
        let mut before = whole.clone();
        before.voters.entry(1).and_modify(|m| m.reached = false);
        let mut after = before.clone();
        after.learners.extend([member(4)]);
        assert!(deed(&step(&before, &after, 60_000), &past).is_some());
        let mut grown = whole.clone();
        grown.learners.extend([member(4)]);
        assert_eq!(deed(&step(&whole, &grown, 60_000), &past), None);
    }
}
