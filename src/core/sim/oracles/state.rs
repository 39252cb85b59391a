//! Equal states: machines that stand at the same index are equal, to the last byte, whatever
//! their servers' flags are and however they got there; and so are the hashes that `HashKV` returns
//! of one revision after one compaction.

use std::collections::BTreeMap;

use crate::mutants::mutant;
use crate::raft::Index;
use crate::sim::network::HostId;
use crate::store::{KeyHash, Revision};

use super::{Verdict, Violation};

/// The hash of the state at some indexes and revisions, by whoever was there first.
#[derive(Debug, Default)]
pub(in crate::sim) struct States {
    hashes: BTreeMap<Index, (HostId, u64)>,
    keys: BTreeMap<(Revision, Revision), (HostId, u32)>,
}

impl States {
    /// A host's machine stands at an index with this hash.
    pub(in crate::sim) fn stands(&mut self, host: HostId, index: Index, hash: u64) -> Verdict {
        let (first, known) = *self.hashes.entry(index).or_insert((host, hash));
        if known == hash || mutant!(BlindStates) {
            return Ok(());
        }
        Err(Violation::new(
            "equal states",
            format!("hosts {first} and {host} differ at index {index}"),
        ))
    }

    /// The hash at the last index that was compared.
    pub(in crate::sim) fn newest(&self) -> u64 {
        let newest = self.hashes.last_key_value();
        newest.map_or(0, |(_, (_, hash))| *hash)
    }

    /// A host reports the hash of its keys at a revision.
    pub(in crate::sim) fn reports(&mut self, host: HostId, reported: KeyHash) -> Verdict {
        let place = (reported.hash_revision, reported.compact_revision);
        let (first, known) = *self.keys.entry(place).or_insert((host, reported.hash));
        if known == reported.hash || mutant!(BlindHashes) {
            return Ok(());
        }
        Err(Violation::new(
            "equal states",
            format!(
                "hosts {first} and {host} report different hashes of revision {} compacted at {}",
                place.0, place.1
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_different_states_at_one_index() {
        let mut states = States::default();
        assert_eq!(states.stands(0, 5, 1), Ok(()));
        assert_eq!(states.stands(1, 6, 2), Ok(()));
        assert_eq!(states.stands(1, 5, 1), Ok(()));
        assert!(states.stands(2, 5, 3).is_err());
    }

    #[test]
    fn detects_different_hashes_at_one_revision() {
        let key_hash = |hash, compact_revision| KeyHash {
            hash,
            compact_revision,
            hash_revision: 7,
            revision: 9,
        };
        let mut states = States::default();
        assert_eq!(states.reports(0, key_hash(1, 3)), Ok(()));
        assert_eq!(states.reports(1, key_hash(2, 4)), Ok(()));
        assert_eq!(states.reports(1, key_hash(1, 3)), Ok(()));
        assert!(states.reports(2, key_hash(2, 3)).is_err());
    }
}
