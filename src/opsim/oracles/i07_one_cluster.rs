//! I7: one cluster ID for one UID of a resource and one incarnation.

use super::Of;

pub(super) fn moment(of: &Of<'_>) -> Option<String> {
    let (founded, incarnation) = (of.cluster.founded, of.cluster.incarnation.max(1));
    let more = u64::try_from(founded).is_ok_and(|founded| founded > incarnation);
    more.then(|| format!("{founded} clusters were formed for incarnation {incarnation}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of};
    use super::*;

    #[test]
    fn second_cluster_is_detected() {
        let mut one = cluster(3);
        assert_eq!(moment(&of(&one, 0)), None);
        one.founded = 2;
        assert!(moment(&of(&one, 0)).is_some());
    }
}
