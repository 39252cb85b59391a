//! The cutover: compares both clusters, closes the followed one to writes, brings over what it wrote last, and lets
//! clients write here. Whatever fails before the last step opens the followed cluster again; after it, nothing does.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::run::{Follower, Gate};
use super::{CutOver, Failed, now_ms};
use crate::backup::Error;
use crate::store::{Follow as Step, FollowFinish, FollowedLease, Revision};

/// For so long the followed cluster is closed before it is opened again.
const CLOSED: Duration = Duration::from_secs(60);
/// For so long the last step is repeated.
const LAST: Duration = Duration::from_secs(300);
/// Between two attempts of it.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a compaction there may come between the two hashes.
const COMPARISONS: u32 = 5;

impl Follower<'_, '_> {
    pub(super) async fn cut_over(&mut self) -> Result<CutOver, Failed> {
        let position = self.target.connect().await?;
        let frozen = position.following.map_or(0, |it| it.frozen_unix_ms);
        // What this has not closed is closed for a reason.
        if frozen == 0 && self.origin.is_closed().await? {
            return Err(Failed::Final(Error::Follow(
                "the alarm CORRUPT is raised at the followed cluster: find out which of its members is right, and disarm it, before its data are taken over".to_owned(),
            )));
        }
        self.follow_users().await?;
        self.compare().await?;
        let frozen_unix_ms = now_ms();
        // First said, then done: whoever finds it said goes on with it.
        self.note_frozen(frozen_unix_ms).await?;
        self.gate.set(Gate::Closed);
        let last = match timeout(CLOSED, self.close()).await {
            Ok(Ok(last)) => last,
            failed => return Err(self.open_again(failed.ok()).await),
        };
        self.gate.set(Gate::Left);
        let revision = last.revision;
        self.finish(last).await?;
        Ok(CutOver {
            revision,
            frozen_unix_ms,
            writable_unix_ms: now_ms(),
        })
    }

    async fn note_frozen(&mut self, frozen_unix_ms: i64) -> Result<(), Failed> {
        let step = Step {
            frozen_unix_ms,
            ..self.step()
        };
        self.advance(&step).await
    }

    /// Whether both have the same keys, with the same history, at the revision that is reached here.
    async fn compare(&mut self) -> Result<(), Failed> {
        for _ in 0..COMPARISONS {
            let revision = self.reached;
            let (there, compacted) = self.origin.hash(revision).await?;
            if compacted > self.compacted {
                self.compact(compacted).await?;
                continue;
            }
            let (here, compacted_here) = self.target.hash(revision).await?;
            if compacted.max(-1) != compacted_here.max(-1) {
                continue;
            }
            return match there == here {
                true => Ok(()),
                false => Err(Failed::Final(Error::Follow(format!(
                    "the data differ: at revision {revision} the followed cluster's have the hash {there}, and {here} here; it was not closed. Delete this EtcdCluster with its volumes and create it again"
                )))),
            };
        }
        let why = "the followed cluster was compacted between each two hashes".to_owned();
        Err(Failed::Passing(why))
    }

    /// Closes the followed cluster, and brings over everything that it has.
    async fn close(&mut self) -> Result<FollowFinish, Failed> {
        let revision = self.origin.close().await?;
        self.drain(revision).await?;
        let auth = self.changed_users(true).await?;
        let (there, _) = self.origin.leases().await?;
        Ok(FollowFinish {
            revision,
            leases: self.all_leases(&there).await?,
            auth,
        })
    }

    async fn drain(&mut self, last: Revision) -> Result<(), Failed> {
        while self.reached < last {
            let arrived = self.watch.next().await?;
            self.take(arrived).await?;
        }
        match self.reached == last {
            true => Ok(()),
            false => Err(Failed::Passing(format!(
                "the followed cluster ended at revision {last}, and {} is here",
                self.reached
            ))),
        }
    }

    /// Every lease of there, those that are here with the time that they have here.
    async fn all_leases(&self, there: &[i64]) -> Result<Vec<FollowedLease>, Failed> {
        let mut leases = self.granted(there).await?;
        let here = there.iter().copied().filter(|id| self.leases.contains(id));
        leases.extend(here.map(|id| FollowedLease { id, ttl: 0 }));
        Ok(leases)
    }

    async fn open_again(&mut self, failed: Option<Result<FollowFinish, Failed>>) -> Failed {
        let failed = match failed {
            Some(Err(failed)) => failed,
            _ => Failed::Passing(format!(
                "the followed cluster could not be left within {} s",
                CLOSED.as_secs()
            )),
        };
        // If it cannot be opened now, it is when this process ends.
        if self.origin.open().await.is_ok() {
            self.gate.set(Gate::Open);
            // The time of the next attempt counts.
            let _ = self.note_frozen(-1).await;
        }
        failed
    }

    /// The last step. It may have been applied though its answer was lost, so it is repeated until the cluster here says
    /// that it follows none any more.
    async fn finish(&mut self, last: FollowFinish) -> Result<(), Failed> {
        let step = Step {
            finish: Some(last),
            ..self.step()
        };
        let began = Instant::now();
        loop {
            let why = match self.advance(&step).await {
                Ok(()) => return Ok(()),
                Err(Failed::Passing(why)) => why,
                Err(failed) => return Err(failed),
            };
            if began.elapsed() > LAST {
                return Err(Failed::Final(Error::Follow(format!(
                    "{why}; the followed cluster stays closed to writes: this is to be started again, or `etcdctl alarm disarm` opens it, and only if this cluster is deleted"
                ))));
            }
            sleep(PAUSE).await;
            if let Ok(position) = self.target.connect().await
                && position.following.is_none()
            {
                return Ok(());
            }
        }
    }
}
