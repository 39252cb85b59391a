//! Wall time, for what needs it outside of consensus: freshness of proofs, etcd's member IDs. Never
//! used for replicated state or for time-outs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970; zero if the clock is set to an earlier time.
pub(crate) fn since_1970() -> Duration {
    #[allow(clippy::disallowed_methods)]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in milliseconds.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}
