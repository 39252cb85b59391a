//! Long work on a thread that serves clients, one slice per turn.
//!
//! Each of these threads runs its tasks in the order in which they became ready. A thousand clients
//! with a slice of a millisecond each would make all others wait for a second. So a task with long
//! work waits for its turn before each slice, and each host has one turn each time that the thread
//! has gone through all that was ready. Never used on threads that share tasks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::rounds::Line;

thread_local! {
    /// The line of the present task.
    static WHOSE: Cell<Option<Line>> = const { Cell::new(None) };
    /// The lines in which a task waits.
    static TURNS: RefCell<BTreeMap<Option<Line>, Weak<Turns>>> = RefCell::default();
}

/// The turns of one host: a crowd of another one is no reason to wait.
#[derive(Debug)]
struct Turns {
    turn: Semaphore,
    /// Turns taken.
    had: AtomicU64,
}

/// Turns of others after which an unused turn is lost: a task that cannot work when it is its turn
/// must not save turns up.
const KEPT: u64 = 4096;

/// Polls a task of this line: if it waits for turns, it waits in that line.
pub(in crate::server) fn of<T>(line: Line, poll: impl FnOnce() -> T) -> T {
    /// Restored even if the task panics.
    struct Before(Option<Line>);
    impl Drop for Before {
        fn drop(&mut self) {
            WHOSE.set(self.0);
        }
    }
    let _before = Before(WHOSE.replace(Some(line)));
    poll()
}

/// The turns of the present task.
fn own() -> Arc<Turns> {
    TURNS.with_borrow_mut(|all| {
        let whose = WHOSE.get();
        if let Some(turns) = all.get(&whose).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Turns {
            turn: Semaphore::new(1),
            had: AtomicU64::new(0),
        });
        all.insert(whose, Arc::downgrade(&turns));
        turns
    })
}

/// Returns when it is the caller's turn to work a slice on this thread.
pub(crate) async fn pass() {
    // However late: it works at once, and its host's part limits the work of many that had their
    // turn.
    Place::default().stood().await;
}

/// Waits for a turn, which is over when the thread has gone round: the next one is woken after
/// that.
async fn stand(turns: Arc<Turns>) -> u64 {
    // It is never closed.
    let _held = turns.turn.acquire().await;
    tokio::task::yield_now().await;
    turns.had.fetch_add(1, Relaxed) + 1
}

/// A place in the line for turns that is kept while its holder does something else.
///
/// Another task stands there for the holder, so that a holder that is not polled, since its client
/// does not read or since it is not its host's turn, delays no other.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<(Arc<Turns>, JoinHandle<u64>)>);

impl Place {
    /// Returns when it is the holder's turn. May be dropped and called again: the place is the
    /// same.
    pub(crate) async fn pass(&mut self) {
        // `None` means that the runtime ends.
        while self.stood().await.is_none_or(|others| others > KEPT) {}
    }

    /// How many turns others have had since.
    async fn stood(&mut self) -> Option<u64> {
        let (turns, stands) = self.0.get_or_insert_with(|| {
            let turns = own();
            (Arc::clone(&turns), tokio::spawn(stand(turns)))
        });
        let turn = stands.await;
        let had = turns.had.load(Relaxed);
        self.0 = None;
        Some(had - turn.ok()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((_, stands)) = &self.0 {
            stands.abort();
        }
    }
}

/// Carries out a future with long steps, one step per turn: a TLS handshake.
pub(crate) async fn paced<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        pass().await;
        let step =
            std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context)));
        if let std::task::Poll::Ready(done) = step.await {
            return done;
        }
        // The step has registered this task's waker: sleep until it is called.
        let mut asleep = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut asleep, true) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use futures::FutureExt as _;

    use super::{KEPT, Line, Place, TURNS, of, paced, pass};
    use crate::server::scheduling::hosts::Host;

    /// A full range, a TLS handshake or a read of history yielded its thread after each slice, to
    /// the next of a thousand others: a put waited for all of them.
    #[tokio::test(flavor = "current_thread")]
    async fn others_wait_for_one_slice_only() {
        let slices = Rc::new(Cell::new(0));
        let local = tokio::task::LocalSet::new();
        for _ in 0..200 {
            let slices = Rc::clone(&slices);
            local.spawn_local(async move {
                for _ in 0..10 {
                    pass().await;
                    slices.set(slices.get() + 1);
                }
            });
        }
        local
            .run_until(async {
                for round in 1..100 {
                    tokio::task::yield_now().await;
                    assert!(slices.get() <= 4 * round, "{} after {round}", slices.get());
                }
            })
            .await;
        local.await;
        assert_eq!(slices.get(), 2000, "each has had all its turns");
    }

    /// A thousand TLS handshakes, or lists, of one host were ahead of the only one of another host.
    #[tokio::test(flavor = "current_thread")]
    async fn one_host_cannot_crowd_out_another() {
        let line = |last: u8| Line {
            probes: false,
            host: Some(Host::of([10, 0, 0, last].into())),
        };
        let passes = |last: u8, times: u32| {
            let mut passes = Box::pin(async move {
                for _ in 0..times {
                    pass().await;
                }
            });
            std::future::poll_fn(move |context| of(line(last), || passes.as_mut().poll(context)))
        };
        let crowd: Vec<_> = (0..1000).map(|_| tokio::spawn(passes(1, 10))).collect();
        tokio::task::yield_now().await;
        passes(2, 20).await;
        let waits = crowd.iter().filter(|one| !one.is_finished()).count();
        assert_eq!(
            waits, 1000,
            "he has had his turns, and none of them all of his"
        );
        for one in crowd {
            one.await.expect("its turns");
        }
        passes(3, 1).await;
        let lines = TURNS.with_borrow(std::collections::BTreeMap::len);
        assert!(lines <= 2, "{lines} lines are left without a task");
    }

    /// A watch stream gave up its place with each event that it sent, and started at the end again:
    /// while many waited, a busy stream's new watcher never had its turn.
    #[tokio::test(flavor = "current_thread")]
    async fn place_is_kept_while_its_holder_waits() {
        let mut place = Place::default();
        let others: Vec<_> = (0..10).map(|_| tokio::spawn(pass())).collect();
        let mut attempts = 0;
        // Each attempt is dropped, as by a stream that has something to send.
        while place.pass().now_or_never().is_none() {
            attempts += 1;
            assert!(attempts < 100, "it never comes to its turn");
            tokio::task::yield_now().await;
        }
        for other in others {
            other.await.expect("its turn");
        }
    }

    /// A place held by a stream whose client does not read must not delay the thread, and its turns
    /// must not accumulate: a thousand of them would be used at once.
    #[tokio::test(flavor = "current_thread")]
    async fn unused_turn_is_lost() {
        let mut place = Place::default();
        assert!(place.pass().now_or_never().is_none(), "it stands in line");
        for _ in 0..=2 * KEPT {
            pass().await;
        }
        assert!(place.pass().now_or_never().is_none(), "too late");
        place.pass().await;
        drop(place);
        pass().await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn paced_future_sleeps_until_woken() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waits = tokio::spawn(paced(receiver));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!waits.is_finished());
        sender.send(7).expect("it waits");
        assert_eq!(waits.await.expect("ends"), Ok(7));
    }
}
