//! The agenda of a run: what happens when, in virtual microseconds. What is due at the same time
//! happens in the order in which it was put down. Never asks a real clock.

use std::collections::BTreeMap;

/// Virtual time in microseconds since the start of the run.
pub(super) type Micros = u64;

/// One millisecond.
pub(super) const MILLISECOND: Micros = 1_000;
/// One second.
pub(super) const SECOND: Micros = 1_000_000;

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
    fn events_come_in_the_order_of_their_time_and_then_of_their_writing() {
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
