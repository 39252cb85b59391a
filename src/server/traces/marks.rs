//! What a unary call notes of itself while it runs: when it began to wait for what. Kept beside the task that carries it
//! out, so whoever waits on its behalf can note it without knowing of calls.
//!
//! Takes the time as an argument, allocates nothing, and never reads a clock where no call is carried out.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    /// Of the call that the task carries out.
    static MARKS: RefCell<Marks>;
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) enum Wait {
    /// Its turn, where only some may work at a time.
    #[default]
    Turn,
    /// The leader's confirmation that it leads, and until what was committed then is applied here.
    ReadIndex,
    /// The leader's answer about a lease.
    Lease,
    /// Its entry, until it is applied.
    Proposal,
}

/// Waits that are noted of one call; further ones are not.
const MOST: usize = 4;
/// Of a wait that has not ended.
const OPEN: u32 = u32::MAX;

/// One wait, in microseconds since the call began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    wait: Wait,
    from: u32,
    to: u32,
    /// Of the proposal or the read; 0: it has none.
    number: u64,
    /// The index of the entry; 0: not known.
    index: u64,
}

/// One wait of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Waited {
    pub(in crate::server) wait: Wait,
    pub(in crate::server) from: Instant,
    pub(in crate::server) to: Instant,
    /// The number of its proposal or its read.
    pub(in crate::server) number: u64,
    /// The index of its entry, if that was applied.
    pub(in crate::server) index: Option<u64>,
}

/// The notes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Marks {
    began: Instant,
    marks: [Mark; MOST],
    count: usize,
}

impl Marks {
    /// Of a call that begins now.
    pub(in crate::server) fn new(began: Instant) -> Marks {
        Marks {
            began,
            marks: [Mark::default(); MOST],
            count: 0,
        }
    }

    /// It begins to wait; for its proposal or its read, that has this number, which is otherwise 0.
    pub(in crate::server) fn begin(&mut self, wait: Wait, number: u64, now: Instant) {
        let from = self.since(now);
        if let Some(mark) = self.marks.get_mut(self.count) {
            *mark = Mark {
                wait,
                from,
                to: OPEN,
                number,
                index: 0,
            };
        }
        // Beyond the last place, so that its end is not taken for that of another one.
        self.count = (self.count + 1).min(MOST + 1);
    }

    /// What it last began to wait for has come.
    pub(in crate::server) fn end(&mut self, now: Instant) {
        let to = self.since(now);
        if let Some(mark) = self.last() {
            mark.to = to;
        }
    }

    fn last(&mut self) -> Option<&mut Mark> {
        let last = self.count.checked_sub(1)?;
        self.marks.get_mut(last)
    }

    /// Its proposal, which it last began to wait for, is the entry at this index and was applied.
    pub(in crate::server) fn applied(&mut self, index: u64, now: Instant) {
        self.end(now);
        if let Some(mark) = self.last() {
            mark.index = index;
        }
    }

    /// The number of its last proposal, or else of its last read; 0: it had none.
    pub(in crate::server) fn number(&self) -> u64 {
        let of = |wait| {
            let noted = self.marks.iter().take(self.count).rev();
            let mut numbers = noted.filter(move |mark| mark.wait == wait);
            numbers.next().map(|mark| mark.number)
        };
        of(Wait::Proposal)
            .or_else(|| of(Wait::ReadIndex))
            .unwrap_or(0)
    }

    /// When the call began.
    pub(in crate::server) fn began(&self) -> Instant {
        self.began
    }

    /// Its waits in order, those that have not ended until `end`.
    pub(in crate::server) fn waits(&self, end: Instant) -> impl Iterator<Item = Waited> + '_ {
        let at = |micros: u32| self.began + Duration::from_micros(micros.into());
        let noted = self.marks.iter().take(self.count);
        noted.map(move |mark| {
            let to = if mark.to == OPEN { end } else { at(mark.to) };
            Waited {
                wait: mark.wait,
                from: at(mark.from),
                to: to.max(at(mark.from)),
                number: mark.number,
                index: Some(mark.index).filter(|index| *index > 0),
            }
        })
    }

    fn since(&self, now: Instant) -> u32 {
        let micros = now.saturating_duration_since(self.began).as_micros();
        u32::try_from(micros).unwrap_or(OPEN - 1).min(OPEN - 1)
    }
}

/// Carries out a call with a place for its notes, which can be taken from the future afterwards.
pub(in crate::server) fn scope<F: Future>(
    began: Instant,
    call: F,
) -> TaskLocalFuture<RefCell<Marks>, F> {
    MARKS.scope(RefCell::new(Marks::new(began)), call)
}

/// Notes something of the call that this task carries out, if it carries out one.
pub(in crate::server) fn note(of: impl FnOnce(&mut Marks)) {
    // An error means that there is no call: background work waits, too.
    let _ = MARKS.try_with(|marks| of(&mut marks.borrow_mut()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_are_told_in_order_and_open_ones_last_until_the_end() {
        let began = Instant::now();
        let mut marks = Marks::new(began);
        assert_eq!(marks.number(), 0);
        marks.begin(Wait::Proposal, 5, began + MS);
        marks.applied(77, began + 3 * MS);
        marks.begin(Wait::ReadIndex, 6, began + 4 * MS);
        let waited = |wait, from, to, number, index| Waited {
            wait,
            from: began + from * MS,
            to: began + to * MS,
            number,
            index,
        };
        let waits: Vec<_> = marks.waits(began + 9 * MS).collect();
        let want = [
            waited(Wait::Proposal, 1, 3, 5, Some(77)),
            waited(Wait::ReadIndex, 4, 9, 6, None),
        ];
        assert_eq!((waits.as_slice(), marks.number()), (want.as_slice(), 5));
    }

    #[test]
    fn waits_beyond_the_last_place_change_no_other() {
        let began = Instant::now();
        let mut marks = Marks::new(began);
        for _ in 0..MOST {
            marks.begin(Wait::Turn, 0, began);
            marks.end(began + MS);
        }
        let before: Vec<_> = marks.waits(began).collect();
        for _ in 0..3 {
            marks.begin(Wait::Lease, 0, began + 5 * MS);
            marks.end(began + 6 * MS);
        }
        let after: Vec<_> = marks.waits(began).collect();
        assert_eq!((after.len(), after), (MOST, before));
    }

    #[tokio::test]
    async fn notes_of_a_call_that_is_given_up_are_kept() {
        let began = Instant::now();
        let call = async {
            note(|marks| marks.begin(Wait::Lease, 0, began));
            std::future::pending::<()>().await;
        };
        let mut call = pin!(scope(began, call));
        let timed = tokio::time::timeout(MS, call.as_mut()).await;
        assert!(timed.is_err());
        let marks = call.as_mut().take_value().expect("its notes").into_inner();
        assert_eq!(marks.waits(began).count(), 1);
        note(|_| panic!("no call is carried out here"));
    }
}
