//! When proposals that wait are moved on, appended by a leader or forwarded by a follower. Each batch wakes some ten threads
//! on three members and costs a sync on each, so where many clients propose they are moved on a few at a time, and
//! not one by one: at half of what etcd can do that is a quarter of all processor time.
//!
//! Pure. Never holds what comes alone, and nothing for longer than [`SPACE`] after the batch before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// From one batch to the next, where proposals come faster than that. Short beside what a client waits under such a load.
const SPACE: Duration = Duration::from_millis(3);
/// So many wait for no others.
const MANY: usize = 64;
/// Fewer than this came together lately: nothing would be saved.
const FEW: usize = 8;
/// Batches that are remembered.
const REMEMBERED: usize = 16;

/// The batches of one member.
#[derive(Debug, Default)]
pub(super) struct Spacing {
    last: Option<Instant>,
    /// Sizes of the last ones.
    sizes: VecDeque<usize>,
}

impl Spacing {
    /// Whether so many that wait are held, for [`Self::more`] to come.
    pub(super) fn holds(&self, now: Instant, waiting: usize) -> bool {
        waiting > 0 && self.more(now, waiting).is_some()
    }

    /// So many were moved on, which counts as a batch.
    pub(super) fn moved(&mut self, now: Instant, number: usize) {
        if number == 0 {
            return;
        }
        self.last = Some(now);
        self.sizes.push_back(number);
        if self.sizes.len() > REMEMBERED {
            self.sizes.pop_front();
        }
    }

    /// While so many are held: how many more may come without being looked at, and until when. `None`: each is to be
    /// looked at.
    pub(super) fn more(&self, now: Instant, held: usize) -> Option<(usize, Instant)> {
        let due = self.last? + SPACE;
        let more = self.enough().checked_sub(held + 1)?;
        (now < due).then_some((more, due))
    }

    /// As many as came together lately: those of clients that propose again once they are answered are all there then.
    fn enough(&self) -> usize {
        match self.sizes.iter().copied().max() {
            Some(most) if most >= FEW => most.min(MANY),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves on what comes, by (millisecond, how many); the sizes of the batches.
    fn batches(arrivals: &[(u64, usize)], until: u64) -> Vec<(u64, usize)> {
        let (mut spacing, begun) = (Spacing::default(), Instant::now());
        let (mut waiting, mut done) = (0, Vec::new());
        for at in 0..until {
            let came = arrivals.iter().filter(|(when, _)| *when == at);
            waiting += came.map(|(_, number)| number).sum::<usize>();
            let now = begun + Duration::from_millis(at);
            if waiting > 0 && !spacing.holds(now, waiting) {
                spacing.moved(now, waiting);
                done.push((at, std::mem::take(&mut waiting)));
            }
        }
        done
    }

    /// The one that makes it enough is looked at at once, and whatever is there when the time has come.
    #[test]
    fn others_of_a_flow_come_unnoticed() {
        let (mut spacing, begun) = (Spacing::default(), Instant::now());
        assert_eq!(spacing.more(begun, 0), None, "nothing came yet");
        spacing.moved(begun, 20);
        let due = begun + SPACE;
        assert_eq!(spacing.more(begun, 0), Some((19, due)));
        let later = begun + Duration::from_millis(1);
        assert_eq!(spacing.more(later, 15), Some((4, due)));
        assert_eq!(spacing.more(later, 19), Some((0, due)), "the next one");
        assert_eq!(spacing.more(later, 20), None);
        assert_eq!(spacing.more(due, 5), None);
    }

    #[test]
    fn those_of_few_are_noticed() {
        let (mut spacing, begun) = (Spacing::default(), Instant::now());
        spacing.moved(begun, FEW - 1);
        assert_eq!(spacing.more(begun, 0), None);
    }

    #[test]
    fn one_client_never_waits() {
        let arrivals: Vec<_> = (0..50).map(|at| (at, 1)).collect();
        assert_eq!(batches(&arrivals, 50), arrivals);
    }

    #[test]
    fn few_clients_never_wait() {
        let arrivals: Vec<_> = (0..50).map(|at| (at, FEW - 1)).collect();
        assert_eq!(batches(&arrivals, 50), arrivals);
    }

    #[test]
    fn many_that_come_one_by_one_are_moved_on_together() {
        let mut arrivals = vec![(0, 20)];
        arrivals.extend((1..40).map(|at| (at, 4)));
        let batches = batches(&arrivals, 40);
        assert_eq!(batches[..4], [(0, 20), (3, 12), (6, 12), (9, 12)]);
        let moved: usize = batches.iter().map(|(_, size)| size).sum();
        assert_eq!(moved, 20 + 4 * 39);
    }

    /// Sixteen clients that each propose again a millisecond later: holding would only make them wait.
    #[test]
    fn clients_that_all_wait_are_not_held() {
        let arrivals: Vec<_> = (0..30).map(|at| (at, 16)).collect();
        assert_eq!(batches(&arrivals, 30), arrivals);
    }

    #[test]
    fn burst_is_forgotten() {
        let mut arrivals = vec![(0, 30)];
        arrivals.extend((1..200).map(|at| (at, 1)));
        let batches = batches(&arrivals, 200);
        assert_eq!(batches[1], (3, 3));
        assert_eq!(batches.last(), Some(&(199, 1)), "and none is held any more");
        let held = batches.iter().filter(|(_, size)| *size > 1).count();
        assert_eq!(held, 1 + REMEMBERED);
    }

    #[test]
    fn what_comes_after_a_pause_waits_for_nothing() {
        let arrivals = [(0, 30), (10, 1), (20, 2)];
        assert_eq!(batches(&arrivals, 30), arrivals);
    }
}
