//! Clusters whose members tell when they change: one call of each member, held there until its description is another
//! one. The first that ends is its cluster's change; what it is, a reconcile asks anew. Decides nothing about a cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _, select_all};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::clock::Clock;
use crate::mutants::mutant;
use crate::server::operator_api::held_call::{Answer, HeldCall};

/// The shortest wait for a change. The longest is twice that: each member has its own, so that they do not answer all at
/// once.
const WAIT: Duration = Duration::from_secs(300);
/// A call that ends within this, and tells of no change, was not held.
const BRIEF: Duration = Duration::from_secs(10);

/// An answer that was not read and came so long before the end of the wait, or later, tells of no change: had there been one, the
/// next call is answered at once.
const NEAR: Duration = Duration::from_secs(1);

/// How a call is made that a member holds.
pub(crate) type Hold =
    Arc<dyn Fn(Arc<HeldCall>) -> BoxFuture<'static, Result<Answer, std::io::Error>> + Send + Sync>;

/// Over the network.
pub(crate) fn network() -> Hold {
    Arc::new(|call| async move { call.answer().await }.boxed())
}

/// What the end of a call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The member has changed, or is not reached any more.
    Changed,
    /// Nothing, for the member holds no call.
    Nothing,
}

/// The digests of a cluster's members, by address.
pub(crate) type Digests = BTreeMap<String, u64>;

/// What is asked of [`Held`].
pub(crate) enum Asked<K> {
    /// From now on this cluster's change from these digests is told by whichever of these calls ends first.
    Hold(K, Digests, Vec<BoxFuture<'static, Told>>),
    /// It is told by none.
    Release(K),
}

/// The way to ask, once somebody listens.
#[derive(Debug)]
pub(crate) struct Asker<K>(OnceLock<UnboundedSender<Asked<K>>>);

impl<K> Default for Asker<K> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<K> Asker<K> {
    pub(crate) fn to(&self, listener: UnboundedSender<Asked<K>>) {
        let _ = self.0.set(listener);
    }

    /// Whether somebody listens.
    pub(crate) fn ask(&self, asked: Asked<K>) -> bool {
        self.0.get().is_some_and(|to| to.send(asked).is_ok())
    }
}

/// The calls under way, and the cluster of each.
pub(crate) struct Held<K> {
    calls: FuturesUnordered<Abortable<BoxFuture<'static, (K, Told)>>>,
    of: BTreeMap<K, (Digests, AbortHandle)>,
}

impl<K: Ord + Clone + Send + 'static> Held<K> {
    pub(crate) fn new() -> Self {
        Self {
            calls: FuturesUnordered::new(),
            of: BTreeMap::new(),
        }
    }

    /// Calls that are replaced or released end without a word; those that wait for the same change stay.
    pub(crate) fn take(&mut self, asked: Asked<K>) {
        let (key, digests, calls) = match asked {
            Asked::Hold(key, digests, calls) => (key, digests, calls),
            Asked::Release(_) if mutant!(ReleaseForgotten) => return,
            Asked::Release(key) => (key, Digests::new(), Vec::new()),
        };
        if let Some((before, abort)) = self.of.remove(&key) {
            if before == digests && !calls.is_empty() {
                self.of.insert(key, (before, abort));
                return;
            }
            abort.abort();
        }
        if calls.is_empty() {
            return;
        }
        let (abort, registration) = AbortHandle::new_pair();
        self.of.insert(key.clone(), (digests, abort));
        let first = select_all(calls).map(|(told, ..)| (key, told)).boxed();
        self.calls.push(Abortable::new(first, registration));
    }

    /// A cluster of which a call has ended.
    pub(crate) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<(K, Told)> {
        loop {
            match self.calls.poll_next_unpin(context) {
                Poll::Ready(Some(Ok((key, told)))) => {
                    self.of.remove(&key);
                    if !mutant!(HeldEndsUnheard) {
                        return Poll::Ready((key, told));
                    }
                }
                Poll::Ready(Some(Err(_aborted))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Holds what is asked for, and passes on what is told, as long as both sides are there.
pub(crate) async fn run<K: Ord + Clone + Send + 'static>(
    mut asked: UnboundedReceiver<Asked<K>>,
    tell: impl Fn((K, Told)),
) {
    let mut held = Held::new();
    loop {
        tokio::select! {
            asked = asked.recv() => match asked {
                Some(asked) => held.take(asked),
                None => return,
            },
            told = std::future::poll_fn(|context| held.poll_told(context)) => tell(told),
        }
    }
}

/// Ends once a member's description is another one than the call has, the member is not reached any more, or it holds no
/// call.
pub(crate) async fn until_told(hold: Hold, call: Arc<HeldCall>, clock: Clock) -> Told {
    loop {
        let asked = clock.monotonic();
        let answer = hold(call.clone()).await;
        let after = clock.monotonic().saturating_sub(asked);
        match answer {
            Ok(Answer::Digest(digest)) if digest != call.digest => return Told::Changed,
            Ok(Answer::Unread) if after + NEAR < call.wait && !mutant!(UnreadUnheard) => {
                return Told::Changed;
            }
            Ok(_) | Err(_) if after < BRIEF => return Told::Nothing,
            Ok(_) => {}
            Err(_) => return Told::Changed,
        }
    }
}

/// A member's wait: some have a shorter one than others.
pub(super) fn wait_of(address: &str) -> Duration {
    let sum = address.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    WAIT + Duration::from_millis(sum % u64::try_from(WAIT.as_millis()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::plan;
    use crate::server::operator_api::auth::Key;
    use crate::server::operator_api::digest;

    /// Of what is to be told, it is told at once; of what is not, never.
    const SOON: Duration = Duration::from_millis(500);

    fn call() -> (oneshot::Sender<()>, BoxFuture<'static, Told>) {
        let (end, ended) = oneshot::channel::<()>();
        (end, ended.map(|_| Told::Changed).boxed())
    }

    /// Calls of a cluster whose members have this digest.
    fn hold<K>(key: K, digest: u64, calls: Vec<BoxFuture<'static, Told>>) -> Asked<K> {
        Asked::Hold(key, [("10.0.0.1:2380".to_owned(), digest)].into(), calls)
    }

    async fn changed(held: &mut Held<&'static str>) -> Option<&'static str> {
        let next = std::future::poll_fn(|context| held.poll_told(context));
        let next = tokio::time::timeout(SOON, next).await.ok()?;
        assert_eq!(next.1, Told::Changed);
        Some(next.0)
    }

    #[tokio::test]
    async fn a_cluster_is_told_of_by_its_first_member() {
        let (ask, asked) = mpsc::unbounded_channel();
        let (tell, mut told) = mpsc::unbounded_channel();
        tokio::spawn(run(asked, move |told: (&'static str, Told)| {
            let _ = tell.send(told.0);
        }));
        let asker = Asker::default();
        assert!(!asker.ask(Asked::Release("a")), "nobody listens");
        asker.to(ask);
        let ((one, of_one), (two, of_two)) = (call(), call());
        let (other, of_other) = call();
        assert!(asker.ask(hold("a", 1, vec![of_one, of_two])));
        assert!(asker.ask(hold("b", 1, vec![of_other])));
        drop(two);
        let first = tokio::time::timeout(SOON, told.recv()).await;
        assert_eq!(first.expect("its member has changed"), Some("a"));
        // Only once: the other call of the cluster has ended with it.
        drop(one);
        drop(other);
        let second = tokio::time::timeout(SOON, told.recv()).await;
        assert_eq!(second.expect("its member has changed"), Some("b"));
        assert!(tokio::time::timeout(SOON, told.recv()).await.is_err());
    }

    #[tokio::test]
    async fn replaced_calls_tell_nothing() {
        let mut held = Held::new();
        let (before, of_before) = call();
        let (after, of_after) = call();
        held.take(hold("a", 1, vec![of_before]));
        held.take(hold("a", 2, vec![of_after]));
        drop(before);
        assert_eq!(changed(&mut held).await, None, "another one counts by now");
        drop(after);
        assert_eq!(changed(&mut held).await, Some("a"));
        assert!(held.of.is_empty() && held.calls.is_empty());
    }

    /// A look that has found nothing makes no new connection.
    #[tokio::test]
    async fn calls_for_the_same_change_stay() {
        let mut held = Held::new();
        let (before, of_before) = call();
        let (after, of_after) = call();
        held.take(hold("a", 1, vec![of_before]));
        held.take(hold("a", 1, vec![of_after]));
        assert!(after.is_closed(), "it was not needed");
        assert_eq!(changed(&mut held).await, None);
        drop(before);
        assert_eq!(changed(&mut held).await, Some("a"));
    }

    /// What a call tells that ends so, so long after it was made.
    async fn told(seconds: u64, answer: Result<Answer, ()>) -> Option<Told> {
        let time = Arc::new(AtomicU64::new(0));
        let (clock, calls) = (Clock::simulated(time.clone()), AtomicU64::new(0));
        let hold: Hold = Arc::new(move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) > 0 {
                return std::future::pending().boxed();
            }
            time.fetch_add(seconds * 1000, Ordering::SeqCst);
            let failed = |()| std::io::Error::other("it is gone");
            std::future::ready(answer.map_err(failed)).boxed()
        });
        let call = HeldCall {
            address: "10.0.0.1:2380".into(),
            key: Key::new(b"0123456789abcdef"),
            secure: None,
            digest: 7,
            wait: WAIT,
        };
        until_told(hold, Arc::new(call), clock).now_or_never()
    }

    #[tokio::test]
    async fn ends_of_calls_are_told_apart() {
        assert_eq!(told(0, Ok(Answer::Digest(8))).await, Some(Told::Changed));
        assert_eq!(told(400, Ok(Answer::Digest(8))).await, Some(Told::Changed));
        assert_eq!(
            told(400, Ok(Answer::Digest(7))).await,
            None,
            "the wait was over: it waits again"
        );
        assert_eq!(
            told(0, Ok(Answer::Digest(7))).await,
            Some(Told::Nothing),
            "it holds others"
        );
        let unread = Ok(Answer::Unread);
        assert_eq!(told(3, unread).await, Some(Told::Changed));
        assert_eq!(told(290, unread).await, Some(Told::Changed));
        assert_eq!(told(300, unread).await, None, "the wait was over");
        assert_eq!(told(20, Err(())).await, Some(Told::Changed), "it ended");
        assert_eq!(
            told(0, Err(())).await,
            Some(Told::Nothing),
            "it takes no calls"
        );
    }

    /// A cluster that is deleted: its members end, and its calls with them.
    #[tokio::test]
    async fn released_calls_tell_nothing() {
        let mut held = Held::new();
        let (end, released) = call();
        held.take(hold("a", 1, vec![released]));
        held.take(Asked::Release("a"));
        drop(end);
        assert_eq!(changed(&mut held).await, None);
        assert!(held.of.is_empty() && held.calls.is_empty());
    }

    #[test]
    fn waits_differ_and_are_bounded() {
        let waits: Vec<_> = (0..50)
            .map(|n| wait_of(&format!("10.0.0.{n}:2380")))
            .collect();
        assert!(waits.iter().all(|wait| (WAIT..2 * WAIT).contains(wait)));
        let mut sorted = waits.clone();
        sorted.sort();
        sorted.dedup();
        assert!(sorted.len() > 40, "{waits:?}");
    }

    /// Between these ages a rule judges otherwise and no digest would be another one.
    #[test]
    fn ages_count_where_the_rules_count_them() {
        assert_eq!(u64::try_from(digest::CONTACT_MS), Ok(plan::CONTACT_MS));
        assert_eq!(digest::SYNC_MS, plan::SYNC_MS);
    }
}
