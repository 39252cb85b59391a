//! Runs reconciles: one at a time for a cluster, several clusters at once, again when something changed or the
//! reconcile requested it. On a stop signal running reconciles finish their step.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::operator::held::Told;
use crate::operator::queue::{Ended, Queue};

/// A cluster: namespace and name.
pub type Key = (String, String);

/// Runs reconciles until `stop` resolves, and then until those under way have ended. `told` is what members tell of their
/// clusters.
pub async fn run<P, F>(
    (mut triggers, mut told): (
        mpsc::UnboundedReceiver<Key>,
        mpsc::UnboundedReceiver<(Key, Told)>,
    ),
    concurrency: usize,
    stop: impl Future<Output = ()>,
    reconcile: P,
) where
    P: Fn(Key) -> F,
    F: Future<Output = Ended> + Send + 'static,
{
    let start = Instant::now();
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut queue: Queue<Key> = Queue::new();
    let mut running: JoinSet<(Key, Ended)> = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        while queue.running() < concurrency {
            let Some(key) = queue.take(now_ms()) else {
                break;
            };
            let future = reconcile(key.clone());
            running.spawn(async move { (key, future.await) });
        }
        let wait_ms = queue.next_due().map(|due| due.saturating_sub(now_ms()));
        // A full house waits for an end, not for the clock.
        let wait_ms = wait_ms.filter(|_| queue.running() < concurrency);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = running.join_next() => {
                // A reconcile never panics in release (abort); in a test it fails the test here.
                let (key, ended) = ended.expect("reconciles do not panic");
                queue.ended(&key, ended, now_ms());
            }
            Some(key) = triggers.recv() => queue.trigger(key, now_ms()),
            Some((key, told)) = told.recv() => queue.told(key, told, now_ms()),
            () = sleep(wait_ms) => {}
        }
    }
    while running.join_next().await.is_some() {}
}

/// Sleeps for this many milliseconds, or forever.
async fn sleep(wait_ms: Option<u64>) {
    match wait_ms {
        Some(wait_ms) => tokio::time::sleep(Duration::from_millis(wait_ms.max(1))).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn key(name: &str) -> Key {
        ("default".into(), name.into())
    }

    #[tokio::test]
    async fn a_failing_cluster_does_not_stop_the_others() {
        let (trigger, triggers) = mpsc::unbounded_channel();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let written = log.clone();
        let reconciles = tokio::spawn(async move {
            let reconciling = move |key: Key| {
                let log = written.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    log.lock().expect("unpoisoned").push(key.1.clone());
                    if key.1 == "bad" {
                        Ended::Failed
                    } else {
                        Ended::After(50)
                    }
                }
            };
            let told = mpsc::unbounded_channel().1;
            run(
                (triggers, told),
                2,
                async { drop(stopped.await) },
                reconciling,
            )
            .await;
        });
        trigger.send(key("bad")).expect("the loop listens");
        trigger.send(key("good")).expect("the loop listens");
        tokio::time::sleep(Duration::from_millis(800)).await;
        let seen = log.lock().expect("unpoisoned").clone();
        assert!(
            seen.iter().filter(|name| *name == "good").count() >= 3,
            "{seen:?}"
        );
        assert_eq!(
            seen.iter().filter(|name| *name == "bad").count(),
            1,
            "{seen:?}"
        );
        trigger.send(key("good")).expect("the loop listens");
        tokio::time::sleep(Duration::from_millis(80)).await;
        let before = log.lock().expect("unpoisoned").len();
        stop.send(()).expect("the loop listens");
        reconciles.await.expect("ended");
        assert!(
            log.lock().expect("unpoisoned").len() > before,
            "a reconcile was under way"
        );
    }
}
