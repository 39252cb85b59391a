//! Background maintenance, as far as it can be decided without a clock or a peer: when to compact,
//! which member's data is wrong, and whom to ask for a damaged value. Never acts: `member_runtime::maintenance` does.

pub(in crate::server) mod compaction_hashes;

pub(crate) mod compactor;
pub(crate) mod compared;
pub(crate) mod healing;
pub(crate) mod verdict;
