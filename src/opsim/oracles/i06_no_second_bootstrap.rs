//! I6: no member with an empty disk ever forms a cluster once one was formed: not after its status
//! reports it, and not after a PVC of it was joined. The next incarnation is judged by I16.

use super::Step;

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let formed = after.founded > before.founded;
    let has_identity = before.status["clusterID"].is_string() || before.founded > 0;
    (formed && has_identity && after.incarnation <= before.incarnation.max(1))
        .then(|| "a cluster was formed although there was one before".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, step};
    use super::*;

    #[test]
    fn second_bootstrap_is_detected() {
        let mut before = cluster(1);
        before.founded = 0;
        let mut after = before.clone();
        after.founded = 1;
        assert_eq!(deed(&step(&before, &after, 0)), None);
        before.status = serde_json::json!({"clusterID": "abc"}).into();
        assert!(deed(&step(&before, &after, 0)).is_some());
    }
}
