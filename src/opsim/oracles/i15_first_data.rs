//! I15: a cluster that is to be restored starts with its snapshot, and no other cluster starts with one.

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
    match (after.restores, after.founded_from) {
        (true, 0) => Some("a cluster that is to be restored was formed empty".to_owned()),
        (false, 1..) => Some("a cluster was formed from a snapshot that nobody named".to_owned()),
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
}
