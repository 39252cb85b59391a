//! A host's part of a thread that serves clients, while other hosts want some of it as well. Pure:
//! the time and the duration of each step are arguments.
//!
//! Such a thread goes round and round through the tasks that have become ready. A thousand
//! connections of one host, each with a twentieth of a millisecond's work, make a round of fifty
//! milliseconds, and a client with one connection waits for all of them at each step of its
//! request. So where more than one host has work, each has a part of the round's time, and the rest
//! of its tasks wait for the next rounds in the order in which they came. A host that is alone has
//! all of it, and no time is left unused.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::hosts::Host;

/// The duration of a round in which each host uses its whole part.
const ROUND: Duration = Duration::from_micros(500);
/// How long a host counts as present after it had work.
const THERE: Duration = Duration::from_secs(10);
/// The smallest part of a host, however many there are: a round of a thousand hosts takes 50 ms, as
/// it would without parts.
const LEAST_PART: Duration = Duration::from_micros(50);
/// The most that a host has to pay back: a step may have been interrupted for a while.
const MOST_USED: Duration = Duration::from_millis(4);
/// The least expected duration of a step.
const LEAST: Duration = Duration::from_micros(1);

/// The host whose work is done in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) struct Line {
    /// Probes come from addresses that clients may have as well.
    pub(in crate::server) probes: bool,
    /// `None` is the host of all Unix sockets.
    pub(in crate::server) host: Option<Host>,
}

/// A task's place in its line.
#[derive(Debug)]
pub(in crate::server) struct Place {
    line: Line,
    /// It waits under this number, or it has waited and is called.
    number: Option<u64>,
}

impl Place {
    pub(in crate::server) fn new(line: Line) -> Place {
        Place { line, number: None }
    }

    pub(in crate::server) fn line(&self) -> Line {
        self.line
    }
}

/// The result of a round's end.
#[derive(Debug, Default)]
pub(in crate::server) struct Next {
    /// Tasks that may run.
    pub(in crate::server) called: Vec<Waker>,
    /// Hosts share the thread: there will be another round.
    pub(in crate::server) goes_on: bool,
}

/// The lines of a thread.
#[derive(Debug, Default)]
pub(in crate::server) struct Rounds {
    lines: BTreeMap<Line, Share>,
    /// The line that had work last, and when any other one had.
    last: Option<(Line, Instant)>,
    other: Option<Instant>,
    /// The number of tasks that ever waited.
    came: u64,
    /// A task goes round.
    going: bool,
}

#[derive(Debug, Default)]
struct Share {
    /// Time used in this round, and the excess of earlier rounds.
    used: Duration,
    /// The recent duration of a step.
    step: Duration,
    waiting: BTreeMap<u64, Waker>,
}

impl Rounds {
    /// Whether the task may run; otherwise it is woken when it may.
    pub(in crate::server) fn may(
        &mut self,
        place: &mut Place,
        waker: &Waker,
        now: Instant,
    ) -> Poll<()> {
        self.seen(place.line, now);
        if self.is_alone(now) {
            self.leave(place);
            place.number = None;
            return Poll::Ready(());
        }
        let part = self.part();
        let share = self.lines.entry(place.line).or_default();
        let number = match place.number {
            // It is called. The tasks before it may have taken longer than expected: then it is the
            // first to be called in the next round.
            Some(number) if !share.waiting.contains_key(&number) && share.used < part => {
                return Poll::Ready(());
            }
            Some(number) => number,
            None if share.waiting.is_empty() && share.used < part => return Poll::Ready(()),
            None => {
                self.came += 1;
                self.came
            }
        };
        place.number = Some(number);
        share.waiting.insert(number, waker.clone());
        Poll::Pending
    }

    /// A step was taken. Returns whether a task has to start going round.
    pub(in crate::server) fn used(&mut self, place: &mut Place, took: Duration) -> bool {
        place.number = None;
        let Some(share) = self.lines.get_mut(&place.line) else {
            return false;
        };
        share.used = (share.used + took).min(MOST_USED);
        share.step = match share.step.is_zero() {
            true => took,
            false => (share.step * 7 + took) / 8,
        };
        !std::mem::replace(&mut self.going, true)
    }

    /// Whether more than one host has had work lately.
    pub(in crate::server) fn is_shared(&self) -> bool {
        self.going
    }

    /// No task goes round any more, whatever is left to do: the thread's runtime may be replaced
    /// soon.
    pub(in crate::server) fn stopped(&mut self) {
        self.going = false;
    }

    /// The task is gone.
    pub(in crate::server) fn leave(&mut self, place: &Place) {
        if let Some(share) = self.lines.get_mut(&place.line)
            && let Some(number) = place.number
        {
            share.waiting.remove(&number);
        }
    }

    /// The next round begins.
    pub(in crate::server) fn next(&mut self, now: Instant) -> Next {
        let mut next = Next::default();
        if self.is_alone(now) {
            for (_, share) in std::mem::take(&mut self.lines) {
                next.called.extend(share.waiting.into_values());
            }
            self.going = false;
            return next;
        }
        let part = self.part();
        self.lines.retain(|_, share| {
            let quiet = share.used.is_zero() && share.waiting.is_empty();
            share.used = share.used.saturating_sub(part);
            let mut expected = share.used;
            while expected < part
                && let Some((_, waker)) = share.waiting.pop_first()
            {
                expected += share.step.max(LEAST);
                next.called.push(waker);
            }
            !quiet
        });
        self.going = !self.lines.is_empty();
        next.goes_on = self.going;
        next
    }

    /// A line's part of a round.
    fn part(&self) -> Duration {
        let lines = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        (ROUND / lines.max(1)).max(LEAST_PART)
    }

    fn seen(&mut self, line: Line, now: Instant) {
        match &mut self.last {
            Some((last, at)) if *last == line => *at = now,
            last => {
                self.other = last.map(|(_, at)| at);
                *last = Some((line, now));
            }
        }
    }

    /// Whether only one line has had work lately.
    fn is_alone(&self, now: Instant) -> bool {
        let ago = |at| now.saturating_duration_since(at);
        self.other.is_none_or(|at| ago(at) > THERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(50);

    fn of(last: u8) -> Place {
        let host = Some(Host::of([10, 0, 0, last].into()));
        let probes = false;
        Place::new(Line { probes, host })
    }

    /// Lets each of these tasks take a step if it may; returns how many did.
    fn steps(rounds: &mut Rounds, tasks: &mut [Place], now: Instant) -> usize {
        let mut taken = 0;
        for place in tasks {
            if rounds.may(place, Waker::noop(), now).is_ready() {
                rounds.used(place, STEP);
                taken += 1;
            }
        }
        taken
    }

    /// A thousand connections of one host made rounds of fifty milliseconds, and a client with one
    /// connection waited for one at each step of its request.
    #[test]
    fn busy_host_gets_its_share_of_a_round() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let mut many: Vec<Place> = (0..1000).map(|_| of(1)).collect();
        let mut one = [of(2)];
        // While it is alone it has all of it.
        assert_eq!(steps(&mut rounds, &mut many, now), 1000);
        assert_eq!(steps(&mut rounds, &mut one, now), 1);
        let mut all = 0;
        for round in 0..40 {
            let taken = steps(&mut rounds, &mut many, now);
            // A part is five steps; in the first round, where none waits, ten.
            assert!((1..=10).contains(&taken), "{taken} in round {round}");
            all += taken;
            assert_eq!(steps(&mut rounds, &mut one, now), 1, "in round {round}");
            assert!(rounds.next(now).goes_on);
        }
        assert!(all >= 40 * 5, "{all}");
    }

    /// After many short steps a step was expected to be short, and fifty long ones were called in
    /// one round.
    #[test]
    fn called_waiter_waits_behind_slow_ones() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let mut many: Vec<Place> = (0..250).map(|_| of(1)).collect();
        steps(&mut rounds, &mut [of(2)], now);
        let mut had = 0;
        for _ in 0..2000 {
            let mut took = Duration::ZERO;
            for (number, place) in many.iter_mut().enumerate() {
                if rounds.may(place, Waker::noop(), now).is_ready() {
                    let long = number >= 200;
                    let step = Duration::from_micros(if long { 2000 } else { 5 });
                    rounds.used(place, step);
                    took += step;
                    had += u32::from(long);
                }
            }
            assert!(took <= ROUND + Duration::from_millis(2), "{took:?}");
            rounds.next(now);
        }
        assert!(had > 50, "they go on: {had}");
    }

    #[test]
    fn waiters_are_called_in_order() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let mut tasks: Vec<Place> = (0..100).map(|_| of(1)).collect();
        steps(&mut rounds, &mut [of(2)], now);
        let mut had = vec![0; tasks.len()];
        for _ in 0..40 {
            for (place, had) in tasks.iter_mut().zip(&mut had) {
                if rounds.may(place, Waker::noop(), now).is_ready() {
                    rounds.used(place, STEP);
                    *had += 1;
                }
            }
            rounds.next(now);
        }
        let (least, most) = (had.iter().min(), had.iter().max());
        assert!(
            had.iter().all(|had| (1..=5).contains(had)),
            "{least:?} {most:?}"
        );
    }

    /// One step may take longer than a part: a large request. The excess is paid back.
    #[test]
    fn overuse_counts_against_later_rounds() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let (mut long, mut short) = (of(1), of(2));
        steps(&mut rounds, std::slice::from_mut(&mut short), now);
        assert!(rounds.may(&mut long, Waker::noop(), now).is_ready());
        rounds.used(&mut long, ROUND * 5);
        for round in 0..9 {
            assert_eq!(steps(&mut rounds, std::slice::from_mut(&mut short), now), 1);
            let may = rounds.may(&mut long, Waker::noop(), now);
            assert!(may.is_pending(), "in round {round}");
            rounds.next(now);
        }
        rounds.next(now);
        assert!(rounds.may(&mut long, Waker::noop(), now).is_ready());
    }

    /// Otherwise parts would be computed for all hosts that ever came, and rounds would run for no
    /// task.
    #[test]
    fn rounds_end_on_an_unshared_thread() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let (mut one, mut other) = (of(1), of(2));
        assert!(rounds.may(&mut one, Waker::noop(), now).is_ready());
        assert!(!rounds.used(&mut one, STEP), "it is alone");
        assert!(!rounds.is_shared());
        assert!(rounds.may(&mut other, Waker::noop(), now).is_ready());
        assert!(rounds.used(&mut other, STEP), "somebody has to go round");
        assert!(rounds.may(&mut one, Waker::noop(), now).is_ready());
        assert!(!rounds.used(&mut one, STEP), "somebody does already");
        assert!(rounds.is_shared());
        assert!(rounds.next(now).goes_on);
        assert!(!rounds.next(now).goes_on, "no task ran");
        assert!(!rounds.is_shared());
        let later = now + THERE * 2;
        assert!(rounds.may(&mut one, Waker::noop(), later).is_ready());
        assert!(!rounds.used(&mut one, STEP), "it is alone again");
    }

    #[test]
    fn dropped_waiter_is_not_called() {
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        steps(&mut rounds, &mut [of(2)], now);
        let mut tasks: Vec<Place> = (0..20).map(|_| of(1)).collect();
        steps(&mut rounds, &mut tasks, now);
        for place in &tasks {
            rounds.leave(place);
        }
        loop {
            let next = rounds.next(now);
            assert!(next.called.is_empty());
            if !next.goes_on {
                break;
            }
        }
    }

    /// Tasks that waited when the other host became idle waited for ever, behind those that did not
    /// wait.
    #[test]
    fn waiter_continues_once_its_host_is_alone() {
        let (mut rounds, mut now) = (Rounds::default(), Instant::now());
        let mut many: Vec<Place> = (0..1000).map(|_| of(1)).collect();
        steps(&mut rounds, &mut [of(2)], now);
        steps(&mut rounds, &mut many, now);
        assert!(rounds.next(now).goes_on);
        now += THERE * 2;
        assert_eq!(steps(&mut rounds, &mut many, now), 1000);
        assert!(!rounds.next(now).goes_on);
        assert_eq!(steps(&mut rounds, &mut many, now), 1000);
    }
}
