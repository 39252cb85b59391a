//! When the core threads took proposals, logged, committed and applied entries: one note a batch, of the last few thousand
//! batches. Asked only for the few requests of which it is told where their time went, so those that are fast pay
//! nothing of their own.
//!
//! Never tells an entry's content, and never waits: a lock is held for one note or one search.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Batches that are remembered: of half a second at the highest rates that were measured.
const MOST: usize = 4096;

/// The notes of all core threads.
#[derive(Debug, Default)]
pub(in crate::server) struct Moments {
    /// By the number of a proposal: the task of consensus took it out of its inbox.
    pub(in crate::server) taken: Moment,
    /// By index: this member's log has it, synced.
    pub(in crate::server) logged: Moment,
    /// By index: this member knows that it is committed.
    pub(in crate::server) committed: Moment,
    /// By index: it is applied and published.
    pub(in crate::server) applied: Moment,
}

/// One kind of note: up to which number something had happened when.
#[derive(Debug, Default)]
pub(in crate::server) struct Moment(Mutex<VecDeque<(u64, Instant)>>);

impl Moment {
    /// Everything up to this number, and not noted before, has happened now.
    pub(in crate::server) fn note(&self, up_to: u64, now: Instant) {
        let mut notes = self.lock();
        // A log is cut off where another leader's differs.
        while notes.back().is_some_and(|(last, _)| *last >= up_to) {
            notes.pop_back();
        }
        push(&mut notes, up_to, now);
    }

    /// The same of numbers that do not come in order: what a later one has noted stays.
    pub(in crate::server) fn note_more(&self, up_to: u64, now: Instant) {
        let mut notes = self.lock();
        if notes.back().is_none_or(|(last, _)| *last < up_to) {
            push(&mut notes, up_to, now);
        }
    }

    /// When this one happened; `None`: it has not, or too long ago.
    pub(in crate::server) fn of(&self, number: u64) -> Option<Instant> {
        let notes = self.lock();
        let place = notes.partition_point(|(up_to, _)| *up_to < number);
        // The first note is of everything before it, too, unless some were forgotten.
        let forgotten = place == 0 && notes.len() == MOST;
        let note = notes.get(place).filter(|_| !forgotten);
        note.map(|(_, at)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest note; the oldest one makes room for it.
fn push(notes: &mut VecDeque<(u64, Instant)>, up_to: u64, now: Instant) {
    if notes.len() == MOST {
        notes.pop_front();
    }
    notes.push_back((up_to, now));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_number_has_the_time_of_its_batch() {
        let (moment, start) = (Moment::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        moment.note(3, at(1));
        moment.note(7, at(2));
        for (number, when) in [
            (1, Some(1)),
            (3, Some(1)),
            (4, Some(2)),
            (7, Some(2)),
            (8, None),
        ] {
            assert_eq!(moment.of(number), when.map(at), "{number}");
        }
        // The log was cut off after 3, and has 5 entries again.
        moment.note(5, at(9));
        assert_eq!(moment.of(3), Some(at(1)));
        assert_eq!(moment.of(4), Some(at(9)));
        assert_eq!(moment.of(7), None);
    }

    /// A large put has its number before small ones that are proposed before it.
    #[test]
    fn a_number_that_comes_late_changes_no_other() {
        let (moment, start) = (Moment::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        moment.note_more(10, at(1));
        moment.note_more(9, at(2));
        moment.note_more(11, at(400));
        assert_eq!(moment.of(10), Some(at(1)));
        assert_eq!(moment.of(11), Some(at(400)));
    }

    #[test]
    fn old_ones_are_forgotten_and_not_guessed() {
        let (moment, start) = (Moment::default(), Instant::now());
        for number in 1..=2 * MOST as u64 {
            moment.note(number, start + Duration::from_micros(number));
        }
        assert_eq!(moment.of(1), None);
        let last = 2 * MOST as u64;
        assert_eq!(moment.of(last), Some(start + Duration::from_micros(last)));
        let kept = moment.0.lock().expect("no panic").len();
        assert_eq!(kept, MOST);
    }
}
