//! Which voter is removed first when there are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::action::AlarmKind;
use super::alarms;
use super::situation::Situation;

/// Our voters in the order in which they would be removed: unhealthy, named by the alarm CORRUPT, already retiring, on
/// a drained node, named in `replaceMembers` or on a volume that is not wanted, on the most crowded node, outdated, not leading, highest number.
/// (Learners go before any voter.)
pub(super) fn voters_in_order<'s>(s: &'s Situation<'_>) -> Vec<&'s str> {
    let mut crowd: BTreeMap<&str, usize> = BTreeMap::new();
    for name in s.voters.keys() {
        if let Some(node) = node_of(s, name) {
            *crowd.entry(node).or_default() += 1;
        }
    }
    // The user's decision about which data is wrong is not overruled.
    let corrupt = match alarms::decided(s) {
        Some(_) => BTreeSet::new(),
        None => alarms::raised(s, AlarmKind::Corrupt),
    };
    let mut names: Vec<&str> = s
        .voters
        .iter()
        .filter(|(_, seat)| seat.ours)
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_by_key(|name| {
        let healthy = s.voters.get(*name).is_some_and(|seat| seat.healthy());
        let node = node_of(s, name);
        let gone = node.is_some_and(|node| !s.o.nodes.contains_key(node));
        let leaving = s.leaves(name).is_some() || gone && !s.o.nodes.is_empty();
        let crowded = node.and_then(|node| crowd.get(node)).copied().unwrap_or(0);
        let leads = s.view.is_some_and(|(leader, _)| leader == *name);
        let number = crate::crd::member_number(&s.cluster.name, name);
        (
            healthy,
            !corrupt.contains(&s.voters.get(*name).map_or(0, |seat| seat.view.id)),
            !s.retires(name),
            !leaving,
            !(s.to_replace(name) || s.unfit(name).is_some()),
            Reverse(crowded),
            s.updated(name),
            leads,
            Reverse(number),
        )
    });
    names
}

/// The voter that takes over from `leader`: healthy, in sync, not next to be removed, most up to date.
pub(super) fn successor<'s>(s: &'s Situation<'_>, leader: &str) -> Option<(&'s str, u64)> {
    let order = voters_in_order(s);
    let place = |name: &str| order.iter().position(|n| *n == name);
    let heirs = s
        .voters
        .iter()
        .filter(|(name, seat)| *name != leader && seat.healthy());
    heirs
        .max_by_key(|(name, seat)| (place(name), seat.view.match_index))
        .map(|(name, seat)| (name.as_str(), seat.view.id))
}

fn node_of<'s>(s: &'s Situation<'_>, name: &str) -> Option<&'s str> {
    s.o.pods.get(name).and_then(|pod| pod.node.as_deref())
}
