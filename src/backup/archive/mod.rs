//! The archive: committed entries of a cluster's log behind its backups, so that a restore can stop at any moment.
//!
//! ```text
//! PREFIX/archive/CLUSTERID/FIRST-LAST   the entries FIRST to LAST
//! PREFIX/archive/CLUSTERID/idle         as of when the last one is everything, while nothing is written
//! ```
//!
//! An object with entries is written only if there is none of its name, and holds what a quorum has committed: whoever
//! reads an entry, and from whichever member, it is the same one. So ranges may overlap, and several archivers do no harm.
//! Never keeps the log of a member from being compacted, never interprets an entry when it stores it, and never passes over
//! a hole without saying so.

mod attempt;
mod chain;
mod collector;
mod idle;
mod merge;
mod moment;
mod names;
mod objects;
mod replay;
mod resume;
mod retention;
mod run;
mod segment;

#[cfg(test)]
mod idle_test;
#[cfg(test)]
mod objects_test;
#[cfg(test)]
mod replay_test;
#[cfg(test)]
mod tests;

pub use moment::Moment;
pub use objects::{Archived, Overview};
pub use replay::{At, Reached};
pub(super) use replay::{Source, file};
pub use retention::{Horizon, prunable};
pub use run::{Archive, Ended};
