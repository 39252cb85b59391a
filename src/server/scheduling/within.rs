//! Time limits of requests that are nearly always answered long before: one timer of a thread for all of them. A timer
//! of the runtime for each would cost two system calls, one to set it and one to wake up for nothing.
//!
//! Never ends a request early, and up to [`LOOKS`] late; limits that are short against that have a timer of their own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// From one look for requests whose time is over to the next.
const LOOKS: Duration = Duration::from_millis(100);
/// Limits from here on may be exceeded by one look.
const LONG: Duration = Duration::from_secs(1);

thread_local! {
    static WAITING: Arc<Mutex<Waiting>> = Arc::default();
}

/// The time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time is over")]
pub(in crate::server) struct TimeIsOver;

/// What a future gives, if it does so within a limit.
///
/// # Errors
/// [`TimeIsOver`]; the future is dropped.
pub(in crate::server) async fn within<F: Future>(
    limit: Duration,
    future: F,
) -> Result<F::Output, TimeIsOver> {
    let mut future = pin!(future);
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        let deadline = deadline.get_or_insert_with(|| Deadline::new(Instant::now() + limit));
        match deadline.is_over(context) {
            true => Poll::Ready(Err(TimeIsOver)),
            false => Poll::Pending,
        }
    })
    .await
}

/// A moment that is hardly ever waited for.
pub(in crate::server) struct Deadline(Kind);

enum Kind {
    Soon(Pin<Box<Sleep>>),
    Later(Place),
}

impl Deadline {
    pub(in crate::server) fn new(at: Instant) -> Deadline {
        Deadline(match at.saturating_duration_since(Instant::now()) < LONG {
            true => Kind::Soon(Box::pin(sleep_until(at))),
            false => Kind::Later(Place::take(at)),
        })
    }

    /// Whether it has come; if not, the task of `context` is woken then.
    pub(in crate::server) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.0 {
            // Also for a task that has used up what it may do in a turn.
            Kind::Soon(sleep) => pin!(unconstrained(sleep.as_mut())).poll(context).is_ready(),
            Kind::Later(place) => place.is_over(context),
        }
    }
}

/// The requests that began to wait on one thread.
#[derive(Debug, Default)]
struct Waiting {
    requests: Slab<Request>,
    /// A task looks after them.
    kept: bool,
}

#[derive(Debug)]
struct Request {
    deadline: Instant,
    waker: Waker,
    over: bool,
}

/// A request among those of the thread on which it began to wait; its task may go on on another one.
struct Place {
    thread: Arc<Mutex<Waiting>>,
    key: usize,
}

impl Place {
    fn take(deadline: Instant) -> Place {
        let thread = WAITING.with(Arc::clone);
        let mut waiting = lock(&thread);
        let key = waiting.requests.insert(Request {
            deadline,
            waker: Waker::noop().clone(),
            over: false,
        });
        let kept = std::mem::replace(&mut waiting.kept, true);
        // A runtime that ends drops a task at once, which takes the lock.
        drop(waiting);
        if !kept {
            tokio::spawn(keep(Keeper::new(Arc::clone(&thread))));
        }
        Place { thread, key }
    }

    /// Whether its time is over; if not, the task of `context` is woken then.
    fn is_over(&self, context: &Context<'_>) -> bool {
        let mut waiting = lock(&self.thread);
        let request = &mut waiting.requests[self.key];
        let over = request.over;
        if !request.waker.will_wake(context.waker()) {
            let earlier = std::mem::replace(&mut request.waker, context.waker().clone());
            drop(waiting);
            drop(earlier);
        }
        over
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The waker is dropped without the lock: that may end a task which has a place, too.
        let request = lock(&self.thread).requests.try_remove(self.key);
        drop(request);
    }
}

/// Looks after the requests of a thread until there are none.
async fn keep(mut keeper: Keeper) {
    while !keeper.is_done {
        sleep(LOOKS).await;
        let over = keeper.look(Instant::now());
        over.into_iter().for_each(Waker::wake);
    }
}

/// The one that looks after them, until it is done or its runtime ends.
struct Keeper {
    thread: Arc<Mutex<Waiting>>,
    is_done: bool,
}

impl Keeper {
    fn new(thread: Arc<Mutex<Waiting>>) -> Keeper {
        Keeper {
            thread,
            is_done: false,
        }
    }

    /// Whom to wake. It is done when there are no requests.
    fn look(&mut self, now: Instant) -> Vec<Waker> {
        let mut waiting = lock(&self.thread);
        if waiting.requests.is_empty() {
            // Looks also pass over places that are free.
            waiting.requests = Slab::new();
            waiting.kept = false;
            self.is_done = true;
        }
        let requests = waiting.requests.iter_mut().map(|(_, request)| request);
        let over = requests.filter(|request| !request.over && request.deadline <= now);
        let woken = over.map(|request| {
            request.over = true;
            request.waker.clone()
        });
        woken.collect()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.is_done {
            lock(&self.thread).kept = false;
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Plain data: a panic elsewhere leaves it consistent.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Not short.
    const LIMIT: Duration = Duration::from_millis(1100);

    fn waiting() -> usize {
        WAITING.with(|thread| lock(thread).requests.len())
    }

    fn keeper() -> Keeper {
        Keeper::new(WAITING.with(Arc::clone))
    }

    #[tokio::test]
    async fn ends_when_its_time_is_over_and_not_before() {
        let limits = [20, 990, 1000, 1500].map(Duration::from_millis);
        let all = limits.map(|limit| async move {
            let began = Instant::now();
            assert_eq!(within(limit, pending::<()>()).await, Err(TimeIsOver));
            (limit, began.elapsed())
        });
        for (limit, took) in futures::future::join_all(all).await {
            assert!(took >= limit, "{limit:?}: {took:?}");
        }
        assert_eq!(waiting(), 0);
        sleep(2 * LOOKS).await;
        let kept = || WAITING.with(|thread| lock(thread).kept);
        assert!(!kept(), "nobody waits");
        let again = within(LIMIT, async {
            sleep(LOOKS / 2).await;
            assert!(kept());
        });
        assert_eq!(again.await, Ok(()));
    }

    #[tokio::test]
    async fn answer_in_time_is_passed_on_and_its_place_given_back() {
        assert_eq!(within(LIMIT, async { 1 }).await, Ok(1));
        let late = async {
            sleep(Duration::from_millis(1)).await;
            assert_eq!(waiting(), 1);
            2
        };
        assert_eq!(within(LIMIT, late).await, Ok(2));
        assert_eq!(waiting(), 0, "nothing is kept of what was answered");
        let mut dropped = Box::pin(within(LIMIT, pending::<()>()));
        assert!(futures::poll!(dropped.as_mut()).is_pending());
        assert_eq!(waiting(), 1);
        drop(dropped);
        assert_eq!(waiting(), 0);
    }

    /// Each has its own limit, whatever the others have.
    #[tokio::test]
    async fn only_those_are_woken_whose_time_is_over() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let places = [9, 3, 7, 3].map(|seconds| Place::take(at(seconds)));
        let (waker, woken) = counting_waker();
        let context = Context::from_waker(&waker);
        let over = || places.each_ref().map(|place| place.is_over(&context));
        assert_eq!(over(), [false; 4]);
        for (second, expected, wakes) in [
            (2, [false; 4], 0),
            (3, [false, true, false, true], 2),
            (6, [false, true, false, true], 2),
            (9, [true; 4], 4),
        ] {
            keeper().look(at(second)).into_iter().for_each(Waker::wake);
            assert_eq!((over(), woken()), (expected, wakes), "{second}");
        }
    }

    fn counting_waker() -> (Waker, impl Fn() -> usize) {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        (waker, move || count.0.load(Ordering::Relaxed))
    }

    /// A runtime may end while requests wait; the next one on this thread looks after its own.
    #[test]
    fn next_runtime_of_a_thread_begins_anew() {
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                tokio::spawn(within(Duration::from_secs(50), pending::<()>()));
                assert_eq!(within(LIMIT, pending::<()>()).await, Err(TimeIsOver));
            });
            assert_eq!(waiting(), 1);
            drop(runtime);
            assert_eq!(waiting(), 0);
        }
    }

    /// A task of a runtime with several threads is polled by any of them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn tasks_may_move_to_other_threads() {
        let tasks = (0..50).map(|_| {
            let work = async {
                for _ in 0..200 {
                    tokio::task::yield_now().await;
                }
                pending::<()>().await;
            };
            tokio::spawn(within(LIMIT, work))
        });
        for task in futures::future::join_all(tasks).await {
            assert_eq!(task.expect("no panic"), Err(TimeIsOver));
        }
    }
}
