//! Which members' data is wrong, by their hashes at one revision. The majority is right; if there
//! is none, no member is named (etcd's rule). Sends no requests.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{KeyHash, Revision};

/// The response of one member to a request for its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashResponse {
    /// The member.
    pub member: u64,
    /// Its hash; `None` if it could not be asked or does not have that revision.
    pub hash: Option<Hashed>,
}

/// A hash and what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// CRC32C.
    pub hash: u32,
    /// The compacted revision: the hash covers the history after it.
    pub compacted: Revision,
    /// The last revision covered.
    pub revision: Revision,
}

impl From<KeyHash> for Hashed {
    fn from(hash: KeyHash) -> Hashed {
        Hashed {
            hash: hash.hash,
            compacted: hash.compact_revision,
            revision: hash.hash_revision,
        }
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Those that could be compared agree.
    Equal {
        /// The number of others compared.
        compared: usize,
        /// Members that could not be compared: no answer, or compacted at another revision.
        passed_over: Vec<u64>,
    },
    /// These differ from a majority of all members that is a majority of the voters as well.
    Wrong(Vec<u64>),
    /// They differ, and no majority agrees.
    Unclear,
}

/// Compares the others' responses with this member's hash. Learners are asked as in etcd, but do not
/// count for a majority: they have the data of some leader, and the learner of a wrong leader would
/// have a correct voter named.
pub(crate) fn judge(
    own: u64,
    hash: Hashed,
    responses: &[HashResponse],
    voters: &BTreeSet<u64>,
) -> Verdict {
    let mut groups: BTreeMap<u32, Vec<u64>> = BTreeMap::from([(hash.hash, vec![own])]);
    let mut passed_over = Vec::new();
    for response in responses {
        let same =
            |other: &Hashed| (other.compacted, other.revision) == (hash.compacted, hash.revision);
        match response.hash.filter(same) {
            Some(other) => groups.entry(other.hash).or_default().push(response.member),
            None => passed_over.push(response.member),
        }
    }
    if groups.len() == 1 {
        return Verdict::Equal {
            compared: responses.len() - passed_over.len(),
            passed_over,
        };
    }
    let quorum = responses.len().div_ceil(2) + 1;
    let votes = |group: &[u64]| group.iter().filter(|id| voters.contains(id)).count();
    let most = |group: &[u64]| group.len() >= quorum && votes(group) > voters.len() / 2;
    let right = groups.iter().find(|(_, group)| most(group));
    match right.map(|(right, _)| *right) {
        Some(right) => {
            groups.remove(&right);
            let mut wrong: Vec<u64> = groups.into_values().flatten().collect();
            wrong.sort_unstable();
            Verdict::Wrong(wrong)
        }
        None => Verdict::Unclear,
    }
}

/// The members by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sides {
    /// Members with the hash of a majority of the voters or, without one, of a majority of all;
    /// empty if there is neither.
    pub agree: Vec<u64>,
    /// Members with another hash.
    pub differ: Vec<u64>,
    /// Members without a hash at this revision.
    pub silent: Vec<u64>,
}

/// The same comparison member by member, for the operator. The voters' majority comes first: a
/// learner has the data of some leader, and that of a wrong leader would hide the majority. Where
/// voters are missing, learners show with which hash the next one agrees.
pub(crate) fn sides(
    own: u64,
    hash: Hashed,
    responses: &[HashResponse],
    voters: &BTreeSet<u64>,
) -> Sides {
    let of = |other: &Hashed| (other.compacted, other.revision) == (hash.compacted, hash.revision);
    let comparable = |response: &HashResponse| response.hash.filter(of).map(|hash| hash.hash);
    let mut hashes: Vec<(u64, u32)> = vec![(own, hash.hash)];
    let mut sides = Sides::default();
    for response in responses {
        match comparable(response) {
            Some(hash) => hashes.push((response.member, hash)),
            None => sides.silent.push(response.member),
        }
    }
    let votes = |hash: u32, (member, other): &(u64, u32)| *other == hash && voters.contains(member);
    let by_voters = |hash: u32| hashes.iter().filter(|one| votes(hash, one)).count();
    let by_all = |hash: u32| hashes.iter().filter(|(_, other)| *other == hash).count();
    let most = |hash: u32| by_voters(hash) > voters.len() / 2;
    let voted = hashes.iter().any(|(_, hash)| most(*hash));
    let right = |hash: u32| match voted {
        true => most(hash),
        false => by_all(hash) > responses.len().div_ceil(2),
    };
    for (member, hash) in &hashes {
        let side = match right(*hash) {
            true => &mut sides.agree,
            false => &mut sides.differ,
        };
        side.push(*member);
    }
    sides.agree.sort_unstable();
    sides.differ.sort_unstable();
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(hash: u32) -> Hashed {
        Hashed {
            hash,
            compacted: 5,
            revision: 9,
        }
    }

    fn response(member: u64, hash: u32) -> HashResponse {
        HashResponse {
            member,
            hash: Some(hashed(hash)),
        }
    }

    #[test]
    fn minority_hash_is_named() {
        let judged = judge(
            1,
            hashed(7),
            &[response(2, 7), response(3, 8)],
            &(1..=3).collect(),
        );
        assert_eq!(judged, Verdict::Wrong(vec![3]));
        let judged = judge(
            1,
            hashed(8),
            &[response(2, 7), response(3, 7)],
            &(1..=3).collect(),
        );
        assert_eq!(judged, Verdict::Wrong(vec![1]), "also the one that asks");
        let five = [
            response(2, 7),
            response(3, 8),
            response(4, 7),
            response(5, 9),
        ];
        assert_eq!(
            judge(1, hashed(7), &five, &(1..=5).collect()),
            Verdict::Wrong(vec![3, 5])
        );
    }

    #[test]
    fn without_a_majority_no_member_is_named() {
        let judged = judge(1, hashed(7), &[response(2, 8)], &(1..=2).collect());
        assert_eq!(judged, Verdict::Unclear);
        let silent = HashResponse {
            member: 3,
            hash: None,
        };
        let judged = judge(1, hashed(7), &[response(2, 8), silent], &(1..=3).collect());
        assert_eq!(judged, Verdict::Unclear, "one of three is no majority");
    }

    /// Of two voters one was named wrong because of the other and the learner that had its data
    /// from it.
    #[test]
    fn learner_makes_no_majority() {
        let judged = judge(
            1,
            hashed(7),
            &[response(2, 8), response(3, 7)],
            &(1..=2).collect(),
        );
        assert_eq!(judged, Verdict::Unclear);
    }

    #[test]
    fn incomparable_members_are_passed_over() {
        let mut compacted = response(2, 1);
        compacted.hash = compacted.hash.map(|hash| Hashed {
            compacted: 6,
            ..hash
        });
        let silent = HashResponse {
            member: 3,
            hash: None,
        };
        let judged = judge(
            1,
            hashed(7),
            &[compacted, silent, response(4, 7)],
            &(1..=4).collect(),
        );
        let equal = Verdict::Equal {
            compared: 1,
            passed_over: vec![2, 3],
        };
        assert_eq!(judged, equal);
    }

    #[test]
    fn every_member_is_on_one_side() {
        let silent = HashResponse {
            member: 4,
            hash: None,
        };
        let sides_of_five = sides(
            3,
            hashed(8),
            &[response(2, 7), response(1, 7), silent, response(5, 7)],
            &[1, 2, 3, 4, 5].into(),
        );
        assert_eq!(sides_of_five.agree, [1, 2, 5]);
        assert_eq!(
            (sides_of_five.differ, sides_of_five.silent),
            (vec![3], vec![4])
        );
        // Two of four, the silent one included, are no majority.
        let all = &[1, 2, 3, 4].into();
        let split = sides(1, hashed(7), &[response(2, 7), response(3, 8), silent], all);
        assert!(split.agree.is_empty());
        assert_eq!((split.differ, split.silent), (vec![1, 2, 3], vec![4]));
        // A learner of a wrong leader neither breaks the voters' majority nor forms one.
        let responses = [response(2, 7), response(3, 8), response(4, 8)];
        let learns = sides(1, hashed(7), &responses, &[1, 2, 3].into());
        assert_eq!((learns.agree, learns.differ), (vec![1, 2], vec![3, 4]));
        // Of two voters neither is a majority; with a learner one is.
        let two = sides(
            1,
            hashed(7),
            &[response(2, 8), response(3, 7)],
            &[1, 2].into(),
        );
        assert_eq!((two.agree, two.differ), (vec![1, 3], vec![2]));
    }
}
