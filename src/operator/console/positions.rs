//! How far each member's log and data are, by the members' own descriptions: what a status does not have because it would
//! be written anew with every look. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::plan::Description;

/// Where one member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Position {
    pub(crate) term: u64,
    /// Index of the last entry of its log.
    pub(crate) last_index: u64,
    pub(crate) applied_index: u64,
    /// Up to where the leader knows that its log is the leader's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) match_index: Option<u64>,
    /// Entries of the leader's log beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lag_entries: Option<u64>,
    pub(crate) revision: i64,
    /// Bytes of the data, as they count for its quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_bytes: Option<u64>,
}

/// Those of the members that answered, by name.
pub(crate) fn positions(
    descriptions: &BTreeMap<String, Description>,
) -> BTreeMap<String, Position> {
    let mut leaders = descriptions.values().filter(|one| one.leads);
    let leader = leaders.next();
    let position = |description: &Description| {
        let followed = leader.filter(|leader| leader.member_id != description.member_id);
        let matched = followed.and_then(|leader| match_index(leader, description.member_id));
        let ends = followed.map(|leader| leader.last_index);
        Position {
            term: description.term,
            last_index: description.last_index,
            applied_index: description.applied,
            match_index: matched,
            lag_entries: ends.zip(matched).map(|(end, at)| end.saturating_sub(at)),
            revision: description.revision,
            data_bytes: description.space.as_ref().map(|space| space.used),
        }
    };
    let all = descriptions.iter();
    all.map(|(name, one)| (name.clone(), position(one)))
        .collect()
}

fn match_index(leader: &Description, member: u64) -> Option<u64> {
    let mut views = leader.members.iter();
    let view = views.find(|view| view.id == member && member != 0)?;
    Some(view.match_index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MemberView, Space};

    #[test]
    fn lag_is_what_the_leader_knows_of_the_others() {
        let view = |id, match_index| MemberView {
            id,
            match_index,
            ..MemberView::default()
        };
        let member = |id, last_index| Description {
            member_id: id,
            last_index,
            applied: last_index,
            ..Description::default()
        };
        let leader = Description {
            leads: true,
            members: vec![view(1, 100), view(2, 90)],
            space: Some(Space {
                used: 4_096,
                ..Space::default()
            }),
            ..member(1, 100)
        };
        let all = [
            ("a", leader.clone()),
            ("b", member(2, 95)),
            ("c", member(3, 7)),
        ];
        let all: BTreeMap<String, Description> = all.map(|(n, d)| (n.to_owned(), d)).into();
        let found = positions(&all);
        assert_eq!(
            (found["a"].lag_entries, found["a"].match_index),
            (None, None)
        );
        assert_eq!(found["a"].data_bytes, Some(4_096));
        assert_eq!(
            (found["b"].lag_entries, found["b"].match_index),
            (Some(10), Some(90))
        );
        // The leader does not list it.
        assert_eq!(found["c"].lag_entries, None);
        let alone = positions(&BTreeMap::from([("b".to_owned(), member(2, 95))]));
        assert_eq!(alone["b"].lag_entries, None);
    }
}
