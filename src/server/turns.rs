//! Long work on a thread that serves clients, a slice a turn.
//!
//! Each of these threads runs its tasks in the order in which they became ready. A thousand
//! clients with a slice of a millisecond each would have everyone else wait for a second. So
//! whoever does long work waits for its turn before each slice, and there is one turn each time
//! that the thread has gone through all that was ready. Never used on threads that share tasks.

use std::sync::Arc;

use tokio::sync::Semaphore;

thread_local! {
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Returns when it is the caller's turn to work a slice on this thread.
pub(crate) async fn pass() {
    let turn = TURN.with(Arc::clone);
    // It is never closed. Held until the thread has gone round: the next one is woken after that.
    let _held = turn.acquire().await;
    tokio::task::yield_now().await;
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

    use super::{paced, pass};

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
