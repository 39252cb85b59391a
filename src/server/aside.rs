//! Work that takes long by its nature, on threads beside those that serve clients: a few at a
//! time, and a few that wait.
//!
//! Those who wait take turns by who they are, and when too many wait, the last of whoever has
//! most of them is refused. So somebody who asks a thousand times at once waits for himself, and
//! whoever asks once is next. Never knows what the work is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tonic::Status;

use crate::wire::error::EtcdError;

/// A kind of work.
#[derive(Debug)]
pub(crate) struct Aside {
    /// What it is called in metrics.
    pub(crate) name: &'static str,
    most_waiting: usize,
    line: Mutex<Line>,
    /// How often it was refused.
    pub(crate) refused: AtomicU64,
}

#[derive(Debug)]
struct Line {
    free: usize,
    waiting: usize,
    queues: BTreeMap<String, VecDeque<oneshot::Sender<Place>>>,
    /// Whose turn it is next; each of the queues once.
    order: VecDeque<String>,
}

/// The right to work; somebody else's when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Aside>);

impl Aside {
    /// So many at a time, and so many that wait.
    pub(crate) fn new(name: &'static str, at_a_time: usize, most_waiting: usize) -> Arc<Aside> {
        Arc::new(Aside {
            name,
            most_waiting,
            line: Mutex::new(Line {
                free: at_a_time.max(1),
                waiting: 0,
                queues: BTreeMap::new(),
                order: VecDeque::new(),
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// Does the work on a thread of its own when it is `who`'s turn; etcd's "too many requests"
    /// where too many wait. A caller who goes away gives up his place in the line, and what has
    /// begun goes on and counts until it ends.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        who: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let place = self.place(who).await?;
        let working = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        working
            .await
            .map_err(|error| Status::internal(error.to_string()))
    }

    /// Waits for the right to work.
    pub(crate) async fn place(self: &Arc<Self>, who: &str) -> Result<Place, Status> {
        let waits = {
            let mut line = self.lock();
            if line.free > 0 {
                line.free -= 1;
                return Ok(Place(Arc::clone(self)));
            }
            let (sender, waits) = oneshot::channel();
            line.join(who, sender);
            if line.waiting > self.most_waiting {
                line.sweep();
            }
            if line.waiting > self.most_waiting {
                line.turn_away();
            }
            waits
        };
        waits.await.map_err(|_turned_away| {
            self.refused.fetch_add(1, Relaxed);
            EtcdError::TooManyRequests.into()
        })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // Plain data: a panic elsewhere leaves it usable.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn join(&mut self, who: &str, sender: oneshot::Sender<Place>) {
        self.waiting += 1;
        if let Some(queue) = self.queues.get_mut(who) {
            queue.push_back(sender);
            return;
        }
        self.queues.insert(who.to_owned(), VecDeque::from([sender]));
        self.order.push_back(who.to_owned());
    }

    /// The next in line.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let who = self.order.pop_front()?;
        let queue = self.queues.get_mut(&who)?;
        let next = queue.pop_front();
        self.waiting -= usize::from(next.is_some());
        if queue.is_empty() {
            self.queues.remove(&who);
        } else {
            self.order.push_back(who);
        }
        next
    }

    /// Forgets those who went away.
    fn sweep(&mut self) {
        self.queues.retain(|_, queue| {
            queue.retain(|sender| !sender.is_closed());
            !queue.is_empty()
        });
        self.waiting = self.queues.values().map(VecDeque::len).sum();
        let queues = &self.queues;
        self.order.retain(|who| queues.contains_key(who));
    }

    /// Refuses the last of whoever has most in the line.
    fn turn_away(&mut self) {
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let Some(who) = longest.map(|(who, _)| who.clone()) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&who) else {
            return;
        };
        // Dropped: that is the refusal.
        self.waiting -= usize::from(queue.pop_back().is_some());
        if queue.is_empty() {
            self.queues.remove(&who);
            self.order.retain(|other| *other != who);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let aside = Arc::clone(&self.0);
        let next = {
            let mut line = aside.lock();
            loop {
                match line.next() {
                    Some(sender) if sender.is_closed() => {}
                    Some(sender) => break Some(sender),
                    None if line.queues.is_empty() => {
                        line.free += 1;
                        break None;
                    }
                    None => {}
                }
            }
        };
        if let Some(sender) = next {
            // If he goes away at this moment, the place comes back and is dropped again.
            drop(sender.send(Place(aside)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures::FutureExt as _;
    use tonic::Code;

    use super::Aside;

    #[tokio::test]
    async fn turns_go_round_by_who_asks() {
        let aside = Aside::new("test", 1, 10);
        let place = aside.place("crowd").await.expect("free");
        let mut crowd: Vec<_> = (0..4).map(|_| Box::pin(aside.place("crowd"))).collect();
        for waits in &mut crowd {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let mut one = Box::pin(aside.place("one"));
        assert!(one.as_mut().now_or_never().is_none());
        drop(place);
        let first = crowd.remove(0).await.expect("next");
        drop(crowd.remove(0));
        drop(first);
        let one = one.await.expect("before the rest of the crowd");
        drop(one);
        for waits in crowd {
            drop(waits.await.expect("after it"));
        }
        assert_eq!(aside.waiting(), 0);
        aside.place("one").await.expect("free");
    }

    /// Every call could ask for a hash or a password's comparison, and all of them waited: whoever
    /// asked rightly waited behind a thousand of them.
    #[tokio::test]
    async fn who_has_most_in_the_line_is_refused() {
        let aside = Aside::new("test", 1, 4);
        let place = aside.place("crowd").await.expect("free");
        let mut crowd: Vec<_> = (0..4).map(|_| Box::pin(aside.place("crowd"))).collect();
        for waits in &mut crowd {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let refused = aside.place("crowd").now_or_never().expect("at once");
        assert_eq!(refused.expect_err("full").code(), Code::ResourceExhausted);
        let mut one = Box::pin(aside.place("one"));
        assert!(one.as_mut().now_or_never().is_none(), "it has a place");
        let last = crowd.pop().expect("four").now_or_never().expect("at once");
        assert!(last.is_err(), "in the last one's place");
        // Whoever went away makes room without anybody being refused.
        drop(crowd.pop());
        let mut two = Box::pin(aside.place("two"));
        assert!(two.as_mut().now_or_never().is_none());
        assert!(crowd[1].as_mut().now_or_never().is_none());
        drop(place);
        drop(crowd.remove(0).await.expect("its turn"));
        drop(one.await.expect("its turn"));
        drop(two.await.expect("its turn"));
    }

    /// The bound was the caller's and not the work's: whoever asked for a password's comparison
    /// and went away left it running, and asked again.
    #[tokio::test]
    async fn work_whose_caller_is_gone_still_counts() {
        let aside = Aside::new("test", 1, 100);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        for _ in 0..20 {
            let (running, most, ends) = (running.clone(), most.clone(), ends.clone());
            let work = move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                let _ = ends.lock().expect("whole").recv();
                running.fetch_sub(1, SeqCst);
            };
            let mut asked = Box::pin(aside.run("one", work));
            assert!(asked.as_mut().now_or_never().is_none());
        }
        drop(end);
        aside.run("two", || ()).await.expect("its turn");
        assert_eq!(most.load(SeqCst), 1);
    }
}
