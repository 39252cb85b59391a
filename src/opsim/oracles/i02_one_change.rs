//! I2: at most one voter change is in flight, and a learner is no voter. One learner at a time; two
//! only where a lone voter is to become three or more, so that two voters stand alone for a moment.

use super::{BELIEVED_MS, History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let added = after.learners.len() > before.learners.len();
    let targets = history.targets(step.uid, step.now_ms, BELIEVED_MS);
    let by_two = before.voters.len() == 1 && targets.iter().any(|target| *target >= 3);
    let most = if by_two { 2 } else { 1 };
    if added && after.learners.len() > most {
        return Some(format!(
            "{} learners beside {} voters",
            after.learners.len(),
            after.voters.len()
        ));
    }
    let came = |id: &&u64| !before.voters.contains_key(id);
    let went = |id: &&u64| !after.voters.contains_key(id);
    let changed =
        after.voters.keys().filter(came).count() + before.voters.keys().filter(went).count();
    (changed > 1 && !before.voters.is_empty())
        .then(|| format!("{changed} voters changed by one write"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, member, step};
    use super::*;

    #[test]
    fn one_learner_at_a_time() {
        let mut before = cluster(3);
        before.learners.extend([member(4)]);
        let mut after = before.clone();
        after.learners.extend([member(5)]);
        let past = history(&before);
        assert!(deed(&step(&before, &after, 10), &past).is_some());
        let mut one = cluster(1);
        one.target = 3;
        one.learners.extend([member(4)]);
        let mut two = one.clone();
        two.learners.extend([member(5)]);
        let past = history(&one);
        assert_eq!(deed(&step(&one, &two, 10), &past), None);
        let mut three = two.clone();
        three.learners.extend([member(6)]);
        assert!(deed(&step(&two, &three, 10), &past).is_some());
    }

    #[test]
    fn two_voters_never_change_at_once() {
        let (before, after) = (cluster(3), cluster(5));
        assert!(deed(&step(&before, &after, 10), &history(&before)).is_some());
    }
}
