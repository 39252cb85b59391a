//! Long work on a thread that serves clients, a slice a turn.
//!
//! Each of these threads runs its tasks in the order in which they became ready. A thousand
//! clients with a slice of a millisecond each would have everyone else wait for a second. So
//! whoever does long work waits for its turn before each slice, and there is one turn each time
//! that the thread has gone through all that was ready. Never used on threads that share tasks.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

thread_local! {
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
    /// Turns that were had on this thread.
    static HAD: Cell<u64> = const { Cell::new(0) };
}

/// Turns that others may have had before a turn that was not used is lost: whoever cannot work when
/// it is his turn must not save turns up.
const KEPT: u64 = 4096;

/// Returns when it is the caller's turn to work a slice on this thread.
pub(crate) async fn pass() {
    // However late: it works at once, and its host's part bounds what many do that had their turn.
    Place::default().stood().await;
}

/// Waits for a turn, which is over when the thread has gone round: the next one is woken after that.
async fn stand() -> u64 {
    let turn = TURN.with(Arc::clone);
    // It is never closed.
    let _held = turn.acquire().await;
    tokio::task::yield_now().await;
    HAD.set(HAD.get() + 1);
    HAD.get()
}

/// A place in the line for turns that is kept while its holder does something else.
///
/// Somebody stands there in the holder's stead, so that a holder who is not asked to go on, since its
/// client does not read or since it is not its host's turn, holds up nobody.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<JoinHandle<u64>>);

impl Place {
    /// Returns when it is the holder's turn. May be dropped and called again: the place is the same.
    pub(crate) async fn pass(&mut self) {
        // Nothing is the runtime's end.
        while self
            .stood()
            .await
            .is_none_or(|turn| HAD.get() - turn > KEPT)
        {}
    }

    /// Which turn it was.
    async fn stood(&mut self) -> Option<u64> {
        let stands = self.0.get_or_insert_with(|| tokio::spawn(stand()));
        let turn = stands.await;
        self.0 = None;
        turn.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(stands) = &self.0 {
            stands.abort();
        }
    }
}

/// Carries out a future whose steps take long, a step a turn: a TLS handshake.
pub(crate) async fn paced<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        pass().await;
        let step =
            std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context)));
        if let std::task::Poll::Ready(done) = step.await {
            return done;
        }
        // The step has left this task's waker where it waits: sleep until it is called.
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

    use super::{KEPT, Place, paced, pass};

    /// A full range, a TLS handshake or a look into history gave its thread away after each slice,
    /// to the next of a thousand such: a put waited for all of them.
    #[tokio::test(flavor = "current_thread")]
    async fn others_wait_for_one_slice_and_not_for_all() {
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

    /// A watch stream gave its place up with each event that it sent, and began at the end again: where
    /// many waited, a busy stream's new watcher never had its turn.
    #[tokio::test(flavor = "current_thread")]
    async fn a_place_is_kept_while_its_holder_does_something_else() {
        let mut place = Place::default();
        let others: Vec<_> = (0..10).map(|_| tokio::spawn(pass())).collect();
        let mut looks = 0;
        // Each look is dropped, as a stream does that has something to send.
        while place.pass().now_or_never().is_none() {
            looks += 1;
            assert!(looks < 100, "it never comes to its turn");
            tokio::task::yield_now().await;
        }
        for other in others {
            other.await.expect("its turn");
        }
    }

    /// A place held by a stream whose client does not read must not hold up the thread, and its
    /// turns must not gather: a thousand of them would be used at once.
    #[tokio::test(flavor = "current_thread")]
    async fn a_turn_that_is_not_used_is_lost_and_holds_up_nobody() {
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
    async fn a_paced_future_sleeps_until_it_is_woken() {
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
