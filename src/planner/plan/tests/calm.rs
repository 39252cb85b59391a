//! Which clusters are looked at every five minutes, if the platform is told of changes.

use super::script::rested;
use crate::crd::EtcdClusterSpec;
use crate::plan::{Archived, Comparison, Observed, plan};

/// Whether a cluster of three at rest is calm after this change.
fn is_calm(change: impl FnOnce(&mut Observed)) -> bool {
    let mut observed = rested(3).observe();
    change(&mut observed);
    let plan = plan(&observed);
    assert!(!plan.calm || plan.steps.is_empty(), "{plan}");
    plan.calm
}

fn spec(observed: &mut Observed) -> &mut EtcdClusterSpec {
    let cluster = observed.cluster.as_mut();
    &mut cluster.expect("it is valid").spec
}

#[test]
fn a_cluster_at_rest_is_calm() {
    assert!(is_calm(|_| {}));
    assert!(is_calm(|it| it.now_ms += 1));
}

/// A status that says something new with each reconcile would be written each time. The simulation, whose clusters at rest
/// are reconciled every five minutes, would have to wait for that long at the end of each scenario to see it.
#[test]
fn status_at_rest_does_not_change_with_time() {
    let mut observed = rested(3).observe();
    let first = plan(&observed).status;
    observed.now_ms += 60_000;
    assert_eq!(plan(&observed).status, first);
}

#[test]
fn what_changes_without_events_is_not_calm() {
    let described = |change: fn(&mut crate::plan::Description)| {
        is_calm(|it| it.descriptions.values_mut().for_each(change))
    };
    assert!(!described(|it| it.alarms = vec!["NOSPACE 1".into()]));
    assert!(!described(|it| it.comparisons = vec![Comparison::default()]));
    let archived = |it: &mut crate::plan::Description| {
        it.archived = Some(Archived {
            location: "s3://backups/demo".into(),
            as_of_ms: 1,
            index: 1,
        });
    };
    assert!(!described(archived));
    assert!(!described(|it| it.retiring_ms = Some(5)));
    assert!(!described(|it| it.leads = false), "no leader");
    assert!(!is_calm(|it| drop(it.descriptions.pop_first())));
    assert!(!is_calm(|it| drop(it.pods.pop_first())));
    assert!(!is_calm(|it| it.denied = ["endpointslices".into()].into()));
    assert!(!is_calm(|it| it.held = true));
    assert!(!is_calm(|it| it.deleting = true));
    assert!(!is_calm(|it| spec(it).paused = true), "it is noted");
    assert!(!is_calm(|it| spec(it).replicas = 5));
    let grows = serde_json::json!({"max": "100Gi"});
    let grows = serde_json::from_value(grows).expect("autogrow");
    assert!(!is_calm(|it| spec(it).storage.autogrow = Some(grows)));
}
