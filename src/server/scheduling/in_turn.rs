//! The tasks of a connection: each runs when it is its host's turn, and all of them yield their
//! core to the raft thread while that one waits for it.
//!
//! Only for tasks of threads that serve clients, which never move to another thread. Never looks at
//! what a task does, and never interrupts one.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use hyper::rt::Executor;

use super::rounds::{Line, Next, Place, Rounds};
use super::turns;
use crate::server::core::queue::Oldest;

/// How long the raft thread's inbox may wait before its core is assumed to be the one of this
/// thread, and the shortest interval between two yields. If it were shorter, a member under full
/// load would have smaller batches in its log: with a tenth of it a thousand clients made a fifth
/// fewer puts.
const PATIENT: Duration = Duration::from_millis(1);
/// The same while hosts share the thread: one of them may be saturating it, and each request of the
/// others waits for the raft thread once.
const SHARED_PATIENT: Duration = Duration::from_micros(200);

thread_local! {
    static ROUNDS: RefCell<Rounds> = RefCell::default();
    /// When the core was last yielded.
    static GAVE: RefCell<Option<Instant>> = const { RefCell::new(None) };
}

/// Spawns the tasks of a connection on behalf of its host.
#[derive(Clone, Debug)]
pub(crate) struct ByHost {
    pub(in crate::server) line: Line,
    /// The raft thread's inbox.
    pub(in crate::server) inbox: Oldest,
}

impl ByHost {
    pub(in crate::server) fn task<F>(&self, task: F) -> InTurn<F> {
        InTurn {
            place: Place::new(self.line),
            inbox: self.inbox.clone(),
            task: Box::pin(task),
        }
    }
}

impl<F> Executor<F> for ByHost
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.task(task));
    }
}

/// A task that runs when it is its host's turn.
#[derive(Debug)]
pub(in crate::server) struct InTurn<F> {
    place: Place,
    inbox: Oldest,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begin = Instant::now();
        let place = &mut self.place;
        let may = with(|rounds| rounds.may(place, context.waker(), begin));
        ready!(may.unwrap_or(Poll::Ready(())));
        let line = self.place.line();
        let polled = turns::of(line, || self.task.as_mut().poll(context));
        let end = Instant::now();
        let place = &mut self.place;
        if with(|rounds| rounds.used(place, end - begin)) == Some(true) {
            tokio::spawn(go_round());
        }
        give_way(self.inbox.age(end), end);
        polled
    }
}

impl<F> Drop for InTurn<F> {
    fn drop(&mut self) {
        let _ = with(|rounds| rounds.leave(&self.place));
    }
}

/// `None` while the thread is ending.
fn with<T>(act: impl FnOnce(&mut Rounds) -> T) -> Option<T> {
    let acted = ROUNDS.try_with(|rounds| Some(act(&mut *rounds.try_borrow_mut().ok()?)));
    acted.ok().flatten()
}

/// Goes round with the thread for as long as hosts share it: after everything that was ready, and
/// everything that the sockets had when they were last polled.
async fn go_round() {
    let _ends = Ends;
    loop {
        tokio::task::yield_now().await;
        let Next { called, goes_on } =
            with(|rounds| rounds.next(Instant::now())).unwrap_or_default();
        // Outside of the borrow: a waker may call anything.
        called.into_iter().for_each(Waker::wake);
        if !goes_on {
            return;
        }
    }
}

/// Lets the next waiting task start the rounds again, also if this runtime ends in the middle.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = with(Rounds::stopped);
    }
}

/// Yields the core to a waiting thread. A kernel decides whether another thread should run when a
/// thread is woken, and then not until the next tick, 4 ms later: a thread that had just run when
/// it was woken waits for that. Done rarely, since it costs a turn, and the raft thread may be busy
/// on another core as well.
fn give_way(waited: Duration, now: Instant) {
    let patience = match with(|rounds| rounds.is_shared()) {
        Some(true) => SHARED_PATIENT,
        _ => PATIENT,
    };
    if waited < patience {
        return;
    }
    let due = GAVE.try_with(|gave| {
        let mut gave = gave.borrow_mut();
        let due = gave.is_none_or(|at| now.saturating_duration_since(at) >= patience);
        if due {
            *gave = Some(now);
        }
        due
    });
    if due == Ok(true) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;
    use crate::server::core::queue::Queue;
    use crate::server::scheduling::hosts::Host;

    /// A step that takes time.
    fn work() {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
    }

    /// The one task of a host was polled again only after the two hundred of another one.
    #[tokio::test(flavor = "current_thread")]
    async fn hosts_share_rounds_fairly() {
        let inbox = Queue::<u8>::new(1).oldest();
        let by = |last: u8| ByHost {
            line: Line {
                probes: false,
                host: Some(Host::of([10, 0, 0, last].into())),
            },
            inbox: inbox.clone(),
        };
        let steps = Arc::new(AtomicU32::new(0));
        for _ in 0..200 {
            let steps = Arc::clone(&steps);
            by(1).execute(async move {
                loop {
                    work();
                    steps.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                }
            });
        }
        let seen = Arc::clone(&steps);
        let passes = by(2).task(async move {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            // The first rounds are of a host that was alone.
            let before = seen.load(Relaxed);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            seen.load(Relaxed) - before
        });
        let meanwhile = tokio::spawn(passes).await.expect("ended");
        assert!(meanwhile <= 50 * 20, "{meanwhile} steps in fifty passes");
        assert!(meanwhile >= 1, "the other host goes on: {meanwhile} steps");
    }

    /// A task that is dropped while it waits keeps no place.
    #[tokio::test(flavor = "current_thread")]
    async fn ended_waiters_block_no_other() {
        let inbox = Queue::<u8>::new(1).oldest();
        let by = |last: u8| ByHost {
            line: Line {
                probes: false,
                host: Some(Host::of([10, 0, 0, last].into())),
            },
            inbox: inbox.clone(),
        };
        let done = Rc::new(Cell::new(0));
        let local = tokio::task::LocalSet::new();
        for number in 0..100_u8 {
            let done = Rc::clone(&done);
            let task = by(number % 2).task(async move {
                for _ in 0..3 {
                    work();
                    tokio::task::yield_now().await;
                }
                done.set(done.get() + 1);
            });
            let handle = local.spawn_local(task);
            if number % 10 == 3 {
                local.spawn_local(async move {
                    tokio::task::yield_now().await;
                    handle.abort();
                });
            }
        }
        local.await;
        assert_eq!(done.get(), 90);
    }
}
