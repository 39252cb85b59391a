//! I13: a member that serves is not let go while a Service still sends clients to it: it is removed, and
//! its pod is deleted or given to drains, only once no EndpointSlice names it as ready, or half a
//! minute after it was asked to send its clients away.

use super::Step;

/// So long Kubernetes has to stop sending clients.
const BOUND_MS: u64 = 30_000;

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let (before, after) = (step.before, step.after);
    if !before.exists || !after.exists || after.target == 0 {
        return None;
    }
    let gone = |id: &u64| !after.voters.contains_key(id) && !after.learners.contains_key(id);
    let mut let_go = before.voters.iter().filter(|(id, was)| {
        let now = after.voters.get(*id);
        let pod =
            now.is_some_and(|now| now.leaving && !was.leaving || now.released && !was.released);
        // One that serves no client has none to lose.
        was.reached && !was.leaving && (gone(id) || pod)
    });
    let (_, member) = let_go.find(|(_, member)| {
        let due = member
            .retired_ms
            .is_some_and(|at| at + BOUND_MS <= step.now_ms);
        member.routed && !due
    })?;
    Some(format!(
        "{} was let go, and a Service sends clients to it, asked to leave at {:?}",
        member.name, member.retired_ms
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, step};
    use super::*;

    #[test]
    fn member_leaves_once_no_endpoint_names_it() {
        let mut before = cluster(3);
        let mut after = before.clone();
        after.voters.remove(&2);
        assert_eq!(
            deed(&step(&before, &after, 60_000)),
            None,
            "no client connects to it"
        );
        before.voters.entry(2).and_modify(|m| m.routed = true);
        assert!(deed(&step(&before, &after, 60_000)).is_some());
        before
            .voters
            .entry(2)
            .and_modify(|m| m.retired_ms = Some(40_000));
        assert!(deed(&step(&before, &after, 60_000)).is_some());
        assert_eq!(deed(&step(&before, &after, 70_000)), None, "long enough");
    }

    #[test]
    fn pdb_counts_pods_that_serve() {
        let mut before = cluster(3);
        before.voters.entry(2).and_modify(|m| m.routed = true);
        let mut deleted = before.clone();
        deleted.voters.entry(2).and_modify(|m| m.leaving = true);
        assert!(deed(&step(&before, &deleted, 60_000)).is_some());
        let mut released = before.clone();
        released.voters.entry(2).and_modify(|m| m.released = true);
        assert!(deed(&step(&before, &released, 60_000)).is_some());
        before.voters.entry(2).and_modify(|m| m.reached = false);
        assert_eq!(deed(&step(&before, &deleted, 60_000)), None);
    }
}
