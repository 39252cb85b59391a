//! The operator's clock: this machine's, or one set by a simulation.
//! Waits are measured on the monotonic reading; the wall clock is only compared with times that
//! the API server wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time; clones read the same one.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The monotonic reading counts from here.
    Machine(Instant),
    /// Unix milliseconds, monotonic; both readings are derived from them.
    Simulated(Arc<AtomicU64>),
}

impl Clock {
    /// This machine's clocks.
    #[must_use]
    pub fn machine() -> Self {
        Self(Source::Machine(Instant::now()))
    }

    /// A clock that is set from outside, in Unix milliseconds.
    #[must_use]
    pub fn simulated(unix_ms: Arc<AtomicU64>) -> Self {
        Self(Source::Simulated(unix_ms))
    }

    /// The wall clock, in Unix milliseconds.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        match &self.0 {
            Source::Machine(_) => {
                #[allow(clippy::disallowed_methods)]
                let now = SystemTime::now();
                let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Source::Simulated(unix_ms) => unix_ms.load(Ordering::SeqCst),
        }
    }

    /// The monotonic clock, from an arbitrary start.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::Machine(start) => start.elapsed(),
            Source::Simulated(unix_ms) => Duration::from_millis(unix_ms.load(Ordering::SeqCst)),
        }
    }

    /// This very moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment {
            at: self.monotonic(),
            clock: self.clone(),
        }
    }
}

/// A moment whose age can be queried.
#[derive(Clone, Debug)]
pub struct Moment {
    clock: Clock,
    at: Duration,
}

impl Moment {
    /// How long ago it was.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_only_when_it_is_set() {
        let time = Arc::new(AtomicU64::new(1_000));
        let clock = Clock::simulated(time.clone());
        let moment = clock.now();
        assert_eq!((clock.unix_ms(), moment.elapsed()), (1_000, Duration::ZERO));
        time.store(3_500, Ordering::SeqCst);
        assert_eq!(clock.unix_ms(), 3_500);
        assert_eq!(moment.elapsed(), Duration::from_millis(2_500));
    }
}
