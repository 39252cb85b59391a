//! Equal states: machines that stand at the same index are equal, to the last byte, whatever
//! their servers' flags are and however they got there.

use std::collections::BTreeMap;

use crate::raft::Index;
use crate::sim::network::HostId;

use super::{Verdict, Violation};

/// The hash of the state at some indexes, by whoever was there first.
#[derive(Debug, Default)]
pub(in crate::sim) struct States {
    hashes: BTreeMap<Index, (HostId, u64)>,
}

impl States {
    /// A host's machine stands at an index with this hash.
    pub(in crate::sim) fn stands(&mut self, host: HostId, index: Index, hash: u64) -> Verdict {
        let (first, known) = *self.hashes.entry(index).or_insert((host, hash));
        if known == hash {
            return Ok(());
        }
        Err(Violation::new(
            "equal states",
            format!("hosts {first} and {host} differ at index {index}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_differ_at_one_index_are_seen() {
        let mut states = States::default();
        assert_eq!(states.stands(0, 5, 1), Ok(()));
        assert_eq!(states.stands(1, 6, 2), Ok(()));
        assert_eq!(states.stands(1, 5, 1), Ok(()));
        assert!(states.stands(2, 5, 3).is_err());
    }
}
