//! I15: a cluster that is to be restored, or to follow another one, starts with its snapshot, and no other cluster starts
//! with one; it follows exactly if that was asked for.

use super::Step;

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let after = step.after;
    if after.founded <= step.before.founded || !after.exists {
        return None;
    }
    // The next incarnation is judged by I16.
    if after.incarnation > 1 {
        return None;
    }
    let wanted = after.restores || after.follows;
    match (wanted, after.founded_from) {
        (true, 0) => Some("a cluster that is to start with data was formed empty".to_owned()),
        (false, 1..) => Some("a cluster was formed from a snapshot that nobody named".to_owned()),
        _ if after.follows != (after.founded_following > 0) => {
            Some("a cluster follows another one without being asked to, or does not".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, step};
    use super::*;

    #[test]
    fn missing_and_unwanted_data_are_detected() {
        let mut before = cluster(1);
        before.founded = 0;
        let mut after = cluster(1);
        assert_eq!(deed(&step(&before, &after, 0)), None);
        after.founded_from = 1;
        assert!(deed(&step(&before, &after, 0)).is_some());
        after.restores = true;
        assert_eq!(deed(&step(&before, &after, 0)), None);
        after.founded_from = 0;
        assert!(deed(&step(&before, &after, 0)).is_some());
    }

    #[test]
    fn following_is_as_asked_for() {
        let mut before = cluster(1);
        before.founded = 0;
        let mut after = cluster(1);
        (after.follows, after.founded_from, after.founded_following) = (true, 1, 1);
        assert_eq!(deed(&step(&before, &after, 0)), None);
        after.founded_following = 0;
        assert!(deed(&step(&before, &after, 0)).is_some());
        (after.follows, after.restores, after.founded_following) = (false, true, 1);
        assert!(deed(&step(&before, &after, 0)).is_some());
    }
}
