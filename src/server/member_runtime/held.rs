//! Descriptions that are held until they change: a caller says which one it has, and is answered when its digest is another
//! one. Looks twice a second, so that nothing that a description is made of has to tell of a change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::server::operator_api::digest::digest;
use crate::wire::member as proto;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(600);
/// Calls that are held at once: operators that replace each other, and some that are gone and not known to be.
const MOST: usize = 16;

/// The calls that are held.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

/// One of them, until it is answered or its caller is gone.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Held {
    /// The description once its digest is not the known one, or when the wait is over.
    pub(super) async fn describe(
        &self,
        request: &proto::DescribeRequest,
        describe: impl Fn() -> proto::DescribeResponse,
    ) -> proto::DescribeResponse {
        let began = Instant::now();
        let wait = Duration::from_millis(request.wait_ms).min(LONGEST);
        let known = request.known_digest;
        let holds = known != 0 && !request.linearizable;
        let place = holds.then(|| self.place()).flatten();
        loop {
            let mut description = describe();
            description.digest = digest(&description);
            let left = wait.saturating_sub(began.elapsed());
            if place.is_none() || description.digest != known || left.is_zero() {
                return description;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    fn place(&self) -> Option<Place<'_>> {
        let place = Place(&self.0);
        // It is left again where it is one too many.
        (self.0.fetch_add(1, Ordering::SeqCst) < MOST).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicI64;

    use super::*;

    fn asked(known_digest: u64, wait_ms: u64) -> proto::DescribeRequest {
        proto::DescribeRequest {
            known_digest,
            wait_ms,
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn an_answer_waits_for_a_change() {
        let held = Held::default();
        let (ready, revision) = (Mutex::new(false), AtomicI64::new(0));
        let describe = || proto::DescribeResponse {
            ready: *ready.lock().expect("free"),
            // It changes all the time, and is no change.
            revision: revision.fetch_add(1, Ordering::SeqCst),
            ..Default::default()
        };
        let first = held.describe(&asked(0, 60_000), describe).await;
        assert_ne!(first.digest, 0);
        let other = held
            .describe(&asked(first.digest ^ 1, 60_000), describe)
            .await;
        assert_eq!(other.digest, first.digest, "at once: it has another one");
        let call = asked(first.digest, 7_000);
        let mut waiting = std::pin::pin!(held.describe(&call, describe));
        let soon = tokio::time::timeout(2 * LOOK, &mut waiting).await;
        assert!(soon.is_err(), "nothing has changed");
        *ready.lock().expect("free") = true;
        let soon = tokio::time::timeout(4 * LOOK, &mut waiting).await;
        let changed = soon.expect("it has changed");
        assert!(changed.ready && changed.digest != first.digest);
    }

    #[tokio::test]
    async fn too_many_calls_are_answered_at_once() {
        let held = Held::default();
        let describe = proto::DescribeResponse::default;
        let digest = digest(&describe());
        let places: Vec<_> = (0..MOST)
            .map(|_| held.place().expect("one is left"))
            .collect();
        let call = asked(digest, 60_000);
        let answer = tokio::time::timeout(LOOK, held.describe(&call, describe)).await;
        assert_eq!(answer.expect("at once").digest, digest);
        drop(places);
        assert_eq!(held.0.load(Ordering::SeqCst), 0);
        let short = tokio::time::timeout(LOOK / 2, held.describe(&call, describe)).await;
        assert!(short.is_err(), "there is a place");
        assert_eq!(held.0.load(Ordering::SeqCst), 0, "its caller is gone");
    }
}
