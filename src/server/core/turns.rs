//! A worker with a queue of jobs, run in order: by its own thread, or by a caller that finds it idle and nothing queued. Jobs are
//! taken from the queue by whoever has the worker, so none overtakes another.
//!
//! Never has such a caller wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::queue::Queue;
use crate::mutants::mutant;

/// The worker and its queue; clones share both.
#[derive(Debug)]
pub(super) struct Turns<W, J> {
    jobs: Queue<J>,
    worker: Arc<Mutex<W>>,
}

impl<W, J> Clone for Turns<W, J> {
    fn clone(&self) -> Self {
        Turns {
            jobs: self.jobs.clone(),
            worker: Arc::clone(&self.worker),
        }
    }
}

impl<W, J> Turns<W, J> {
    /// A worker with the jobs of this queue.
    pub(super) fn new(worker: W, jobs: Queue<J>) -> Self {
        Turns {
            jobs,
            worker: Arc::new(Mutex::new(worker)),
        }
    }

    /// Waits up to `timeout` for jobs, and has them run; with none after the timeout. `None` once the queue is closed and
    /// drained, or after a panic: what it left half done must not be gone on with.
    pub(super) fn run_next<R>(
        &self,
        timeout: Duration,
        run: impl FnOnce(&mut W, Vec<J>) -> R,
    ) -> Option<R> {
        self.jobs.wait(timeout);
        let mut worker = self.worker.lock().ok()?;
        let jobs = self.jobs.take(Duration::ZERO)?;
        Some(run(&mut worker, jobs))
    }

    /// Queues a job of so many bytes for the worker's thread. A closed queue belongs to a worker that has ended.
    pub(super) fn queue(&self, bytes: usize, job: J) {
        let _ = self.jobs.push_always(bytes, job);
    }

    /// Has a job run now, or queues it if the worker is busy or has other jobs before it.
    pub(super) fn run_now(&self, bytes: usize, job: J, run: impl FnOnce(&mut W, Vec<J>)) {
        match self.worker.try_lock() {
            Ok(mut worker) if self.jobs.has_none() || mutant!(OvertakesQueue) => {
                run(&mut worker, vec![job]);
            }
            _ => self.queue(bytes, job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type List = Turns<Vec<u32>, u32>;

    fn idle() -> List {
        Turns::new(Vec::new(), Queue::new(usize::MAX))
    }

    fn add(list: &mut Vec<u32>, jobs: Vec<u32>) {
        list.extend(jobs);
    }

    fn now(list: &List, job: u32) {
        list.run_now(1, job, add);
    }

    fn done(list: &List) -> Vec<u32> {
        list.worker.lock().unwrap().clone()
    }

    #[test]
    fn idle_worker_is_run_by_whoever_has_a_job() {
        let list = idle();
        now(&list, 1);
        now(&list, 2);
        assert_eq!(done(&list), [1, 2]);
        assert!(list.jobs.has_none());
    }

    #[test]
    fn what_is_queued_comes_first() {
        let list = idle();
        list.queue(1, 1);
        now(&list, 2);
        assert!(done(&list).is_empty());
        assert_eq!(list.run_next(Duration::ZERO, add), Some(()));
        assert_eq!(done(&list), [1, 2]);
        now(&list, 3);
        assert_eq!(done(&list), [1, 2, 3]);
    }

    /// While it runs one, the next is queued, and nobody waits.
    #[test]
    fn busy_worker_is_not_waited_for() {
        let list = idle();
        let again = list.clone();
        list.queue(1, 1);
        list.run_next(Duration::ZERO, |all, jobs| {
            now(&again, 2);
            all.extend(jobs);
        });
        assert_eq!(done(&list), [1]);
        assert_eq!(list.jobs.take(Duration::ZERO), Some(vec![2]));
    }

    #[test]
    fn worker_ends_with_its_queue() {
        let list = idle();
        list.queue(1, 1);
        list.jobs.close();
        assert_eq!(
            list.run_next(Duration::ZERO, add),
            Some(()),
            "what was queued"
        );
        assert_eq!(list.run_next(Duration::from_secs(9), add), None);
    }

    #[test]
    fn nothing_goes_on_after_a_panic() {
        let list = idle();
        let panics = list.clone();
        let ended = std::thread::spawn(move || panics.run_now(1, 1, |_, _| panic!("of a job")));
        ended.join().unwrap_err();
        now(&list, 2);
        assert_eq!(list.run_next(Duration::ZERO, add), None);
    }

    /// Two threads, one that queues and runs at once, and the worker's own: every job once, in order.
    #[test]
    fn order_holds_between_two_threads() {
        const JOBS: u32 = 20_000;
        let list = idle();
        let thread = list.clone();
        let worker =
            std::thread::spawn(
                move || while thread.run_next(Duration::from_secs(1), add).is_some() {},
            );
        for job in 0..JOBS {
            match job % 3 {
                0 => list.queue(1, job),
                _ => now(&list, job),
            }
        }
        list.jobs.close();
        worker.join().unwrap();
        assert!(done(&list).into_iter().eq(0..JOBS));
    }
}
