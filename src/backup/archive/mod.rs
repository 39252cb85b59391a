//! The archive: committed entries of a cluster's log behind its backups, so that a restore can stop at any moment.
//!
//! ```text
//! PREFIX/archive/CLUSTERID/FIRST-LAST   the entries FIRST to LAST
//! ```
//!
//! An object is written only if there is none of its name, and holds what a quorum has committed: whoever reads an entry,
//! and from whichever member, it is the same one. So ranges may overlap, and several archivers do no harm. Never keeps the
//! log of a member from being compacted, never interprets an entry when it stores it, and never passes over a hole.

mod chain;
mod collector;
mod merge;
mod moment;
mod names;
mod objects;
mod replay;
mod retention;
mod run;
mod segment;

#[cfg(test)]
mod tests;

pub use moment::Moment;
pub use objects::{Archived, Overview};
pub use replay::{At, Reached};
pub(super) use replay::{Source, file};
pub use retention::{Horizon, prunable};
pub use run::{Archive, Ended};
