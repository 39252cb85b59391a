//! The agenda of a run: what happens when, in virtual microseconds. What is due at the same time
//! happens in the order in which it was put down. Never asks a real clock.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Virtual time in microseconds since the start of the run.
pub(super) type Micros = u64;

/// One millisecond.
pub(super) const MILLISECOND: Micros = 1_000;
/// One second.
pub(super) const SECOND: Micros = 1_000_000;

/// How fast a true clock runs: seconds counted in a million seconds.
pub(super) const TRUE_RATE: u64 = 1_000_000;

/// A server's own monotonic clock: it began at some time of its own, and runs a little fast or
/// slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalClock {
    offset_ms: u64,
    /// Seconds counted in a million seconds.
    rate: u64,
}

impl LocalClock {
    /// A clock that counts at most so many seconds in a million too many or too few.
    pub(super) fn draw(random: &mut Xoshiro256PlusPlus, skew: u64) -> Self {
        Self {
            offset_ms: random.random_range(0..100_000),
            rate: random.random_range(TRUE_RATE - skew..=TRUE_RATE + skew),
        }
    }

    /// What it shows, in milliseconds.
    pub(super) fn read(self, now: Micros) -> u64 {
        self.offset_ms + now * self.rate / TRUE_RATE / MILLISECOND
    }

    /// The true time in which it counts a span.
    pub(super) fn takes(self, span: Micros) -> Micros {
        span * TRUE_RATE / self.rate
    }
}

/// Events by time.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    now: Micros,
    written: u64,
    entries: BTreeMap<(Micros, u64), E>,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            written: 0,
            entries: BTreeMap::new(),
        }
    }

    /// The time of the event that was taken last.
    pub(super) fn now(&self) -> Micros {
        self.now
    }

    /// Puts an event down for `after` microseconds from now.
    pub(super) fn after(&mut self, after: Micros, event: E) {
        self.written += 1;
        self.entries
            .insert((self.now.saturating_add(after), self.written), event);
    }

    /// Takes the next event and moves the clock to it.
    pub(super) fn take(&mut self) -> Option<E> {
        let ((time, _), event) = self.entries.pop_first()?;
        self.now = time;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_clock_reads_ahead_and_fires_early() {
        let fast = LocalClock {
            offset_ms: 7,
            rate: 1_050_000,
        };
        assert_eq!(fast.read(2 * SECOND), 2_107);
        assert_eq!(fast.takes(1_050_000), SECOND);
    }

    #[test]
    fn events_are_ordered_by_time_then_write() {
        let mut agenda = Agenda::new();
        agenda.after(20, 'c');
        agenda.after(10, 'a');
        agenda.after(10, 'b');
        assert_eq!(agenda.take(), Some('a'));
        assert_eq!(agenda.now(), 10);
        agenda.after(0, 'x');
        assert_eq!(agenda.take(), Some('b'));
        assert_eq!(agenda.take(), Some('x'));
        assert_eq!((agenda.take(), agenda.now()), (Some('c'), 20));
        assert_eq!(agenda.take(), None);
    }
}
