//! `follow`: brings a cluster the writes of another living one, etcd's or ours, at that one's revisions, and in the end
//! puts it in that one's place.
//!
//! First a standby gets a snapshot of the followed cluster ([`Seed`]). Once it has founded its cluster, that one takes no
//! writes but the steps that are read from the watch of the followed cluster ([`Follow`]). For the cutover the followed
//! cluster is closed to writes by its own alarm CORRUPT, under which it refuses every change of keys and leases and lets
//! no lease expire; what it wrote last is brought over, then clients write here. It stays closed: whoever still writes
//! there is refused instead of writing what nobody reads. `etcdctl alarm disarm` opens it again.
//!
//! Killed at any moment it loses and doubles nothing: the next one asks the cluster how far it is. Never changes a key of
//! the followed cluster, and never opens it again once the cluster here may have been told to take writes.

mod cutover;
mod open;
mod origin;
mod promote;
mod run;
mod seed;
mod target;
mod watch;

pub use origin::CLOSED;
pub use run::{Cutover, Ended, Follow};
pub use seed::Seed;

use super::Error;

/// What a cutover, or a promotion, has ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOver {
    /// The last revision of the followed cluster that is here.
    pub revision: i64,
    /// When it was about to be closed to writes, in Unix milliseconds; 0: it was lost.
    pub frozen_unix_ms: i64,
    /// When the cluster here took writes, by the same clock.
    pub writable_unix_ms: i64,
}

/// Why an attempt ended.
#[derive(Debug)]
enum Failed {
    /// Another one may succeed.
    Passing(String),
    /// The watch has lost what was written before this revision.
    Compacted(i64),
    /// None will.
    Final(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match error {
            Error::Source(why) => Failed::Passing(why),
            error @ Error::Snapshot { .. } => Failed::Passing(error.to_string()),
            error => Failed::Final(error),
        }
    }
}

/// Unix milliseconds.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
