//! What a majority of voters has agreed on. Knows sets and numbers, nothing of the protocol.

use crate::mutants::mutant;
use std::collections::{BTreeMap, BTreeSet};

use super::types::{Index, MemberId};

/// The outcome of a vote so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteResult {
    /// A majority granted.
    Won,
    /// A majority can no longer be reached.
    Lost,
    /// Still open.
    Pending,
}

/// The largest index that a majority of `voters` has reached; zero for no voters, so that nothing is committed without
/// agreement (paper §5.3, §5.4).
pub(super) fn reached(voters: &BTreeSet<MemberId>, at: impl Fn(MemberId) -> Index) -> Index {
    let mut indexes: Vec<Index> = voters.iter().map(|id| at(*id)).collect();
    indexes.sort_unstable();
    // Of n sorted ascending, the one at (n - 1) / 2 is reached by a majority of n.
    indexes
        .get(indexes.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0)
}

/// Whether those that are among them are a majority of `voters`.
pub(super) fn is_quorum(voters: &BTreeSet<MemberId>, among: impl Fn(MemberId) -> bool) -> bool {
    reached(voters, |id| Index::from(among(id))) > 0
}

/// Counts the votes of `voters`; others are ignored.
pub(super) fn vote_result(
    voters: &BTreeSet<MemberId>,
    votes: &BTreeMap<MemberId, bool>,
) -> VoteResult {
    let quorum = voters.len() / 2 + 1;
    let counts = |id: &MemberId| voters.contains(id) || mutant!(CountLearnersVote);
    let yes = votes
        .iter()
        .filter(|(id, granted)| **granted && counts(id))
        .count();
    let no = voters
        .iter()
        .filter(|id| votes.get(id) == Some(&false))
        .count();
    if yes >= quorum {
        VoteResult::Won
    } else if voters.len() - no < quorum {
        VoteResult::Lost
    } else {
        VoteResult::Pending
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_cases() {
        let acked = BTreeMap::from([(1, 10), (2, 7), (3, 3), (4, 1)]);
        let at = |voters: &[u64]| {
            let voters: BTreeSet<u64> = voters.iter().copied().collect();
            reached(&voters, |id| acked.get(&id).copied().unwrap_or(0))
        };
        assert_eq!(at(&[]), 0);
        assert_eq!(at(&[1]), 10);
        assert_eq!(at(&[1, 2]), 7);
        assert_eq!(at(&[1, 2, 3]), 7);
        assert_eq!(at(&[1, 2, 3, 4]), 3);
        assert_eq!(
            at(&[1, 8, 9]),
            0,
            "voters that never answered count as zero"
        );
        assert_eq!(
            vote_result(&BTreeSet::new(), &BTreeMap::from([(1, true)])),
            VoteResult::Lost
        );
    }

    proptest! {
        #![proptest_config(crate::raft::tests::same_cases(2_000))]

        /// The definition, by counting: the largest index that more than half have reached.
        #[test]
        fn reached_is_the_largest_index_a_majority_has(
            acked in proptest::collection::btree_map(1u64..9, 0u64..12, 1..9)
        ) {
            let voters: BTreeSet<u64> = acked.keys().copied().collect();
            let got = reached(&voters, |id| acked[&id]);
            let holders = |index| acked.values().filter(|at| **at >= index).count();
            let naive = (0..12).rev().find(|i| holders(*i) > voters.len() / 2).unwrap_or(0);
            prop_assert_eq!(got, naive);
        }

        /// A decided election stays so whatever the remaining voters answer, an open one can go either way, and
        /// non-voters never matter.
        #[test]
        fn removal_votes_decide_when_final(
            voters in proptest::collection::btree_set(1u64..8, 1..8),
            votes in proptest::collection::btree_map(1u64..12, any::<bool>(), 0..10),
        ) {
            let with = |rest: bool| {
                let mut all = votes.clone();
                for id in &voters {
                    all.entry(*id).or_insert(rest);
                }
                vote_result(&voters, &all)
            };
            let got = vote_result(&voters, &votes);
            let expected = match (with(true), with(false)) {
                (VoteResult::Won, VoteResult::Won) => VoteResult::Won,
                (VoteResult::Lost, VoteResult::Lost) => VoteResult::Lost,
                _ => VoteResult::Pending,
            };
            prop_assert_eq!(got, expected);
            let mut own = votes.clone();
            own.retain(|id, _| voters.contains(id));
            prop_assert_eq!(vote_result(&voters, &own), got);
        }
    }
}
