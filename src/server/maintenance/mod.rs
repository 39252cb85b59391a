//! Maintenance in the background, as far as it can be decided without a clock or a peer: when history
//! is compacted, and which member's data is wrong. Never acts: `member_runtime::maintenance` does.

pub(in crate::server) mod compaction_hashes;

pub(crate) mod compactor;
pub(crate) mod compared;
pub(crate) mod verdict;
