//! The cutover: compares both clusters, closes the followed one to writes, brings over what it wrote last, and lets
//! clients write here. Whatever fails before the last step opens the followed cluster again, once the cluster here has
//! said that this attempt will not end the following; after the last step was sent, nothing does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::origin::{Alarms, attempt};
use super::run::Follower;
use super::{CutOver, Failed, now_ms};
use crate::backup::Error;
use crate::store::{Follow as Step, FollowClose, FollowFinish, Revision};

/// For so long the followed cluster is closed before it is opened again.
const CLOSED: Duration = Duration::from_secs(60);
/// It is closed while no more revisions than these are missing: what was written since the watch was asked.
const FEW: Revision = 1_000;
/// For so long the last step is repeated.
const LAST: Duration = Duration::from_secs(300);
/// Between two attempts of it.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a compaction there may come between the two hashes.
const COMPARISONS: u32 = 5;

impl Follower<'_, '_> {
    /// Compares first, and the next time that everything is here, cuts over. `None`: not yet.
    pub(super) async fn cut_over(&mut self) -> Result<Option<CutOver>, Failed> {
        self.check_alarms().await?;
        if !self.compared {
            self.follow_users(false).await?;
            self.compare().await?;
            self.compared = true;
            self.watch.awake();
            return Ok(None);
        }
        // The member that is watched may be behind the others.
        if self.origin.revision().await? > self.reached + FEW {
            return Ok(None);
        }
        let (attempt, frozen_unix_ms) = (attempt(), now_ms());
        self.memory.closed.set(Some(attempt));
        let closed = timeout(CLOSED, self.close(attempt, frozen_unix_ms)).await;
        let late = || {
            let seconds = CLOSED.as_secs();
            let why = format!("the followed cluster could not be left within {seconds} s");
            Err(Failed::Passing(why))
        };
        let last = match closed.unwrap_or_else(|_| late()) {
            Ok(last) => last,
            Err(failed) => {
                self.give_up(attempt).await;
                return Err(failed);
            }
        };
        self.memory.closed.set(None);
        self.finish(last).await?;
        Ok(Some(CutOver {
            revision: last.revision,
            frozen_unix_ms,
            writable_unix_ms: now_ms(),
        }))
    }

    async fn check_alarms(&self) -> Result<Alarms, Failed> {
        let alarms = self.origin.alarms().await?;
        match alarms.corrupt {
            false => Ok(alarms),
            true => Err(Failed::Final(Error::Follow(
                "the alarm CORRUPT is raised at the followed cluster: find out which of its members is right, and disarm it, before its data are taken over".to_owned(),
            ))),
        }
    }

    /// Whether both have the same keys, with the same history, at the revision that is reached here.
    async fn compare(&mut self) -> Result<(), Failed> {
        for _ in 0..COMPARISONS {
            let revision = self.reached;
            let Some((there, compacted)) = self.hash_there(revision).await? else {
                continue;
            };
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

    /// Its hash at a revision. Where it is at that one the newest is asked for: at the revision of its last compaction etcd
    /// gives the hash from before that, or none.
    async fn hash_there(&self, revision: Revision) -> Result<Option<(u32, Revision)>, Failed> {
        let (hash, compacted, at) = self.origin.hash(0).await?;
        if at == revision {
            return Ok(Some((hash, compacted)));
        }
        if !self.origin.is_readable(revision).await? {
            return Ok(None);
        }
        let (hash, compacted, _) = self.origin.hash(revision).await?;
        Ok(Some((hash, compacted)))
    }

    /// Closes the followed cluster, and brings over everything that it has. First it is said here, then done: whoever
    /// finds it said opens it again.
    async fn close(&mut self, attempt: u64, unix_ms: i64) -> Result<FollowFinish, Failed> {
        let step = Step {
            close: Some(FollowClose { attempt, unix_ms }),
            ..self.step()
        };
        self.advance(&step).await?;
        let revision = self.origin.close(attempt).await?;
        self.drain(revision).await?;
        self.follow_users(true).await?;
        let (leases, at) = self.follow_leases().await?;
        let alarms = self.check_alarms().await?;
        let is_last = self.origin.revision().await? == revision && at == revision;
        if !is_last || !alarms.complete.contains(&attempt) {
            let why = "the followed cluster took writes though it was closed: somebody has disarmed its alarms, or its version does not heed them";
            return Err(Failed::Passing(why.to_owned()));
        }
        // Users may be changed also in a closed cluster.
        let auth_revision = self.origin.auth_revision().await?.max(1);
        let here = self.target.connect().await?;
        let all = here.leases.iter().copied().collect::<BTreeSet<_>>() == leases;
        if !all || here.auth_revision != auth_revision || here.revision != revision {
            let why = "not all leases and users of the followed cluster are here";
            return Err(Failed::Passing(why.to_owned()));
        }
        Ok(FollowFinish {
            attempt,
            revision,
            leases: leases.len() as u64,
            auth_revision,
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

    /// The last step. It may have been applied though its answer was lost, so it is repeated until the cluster here says
    /// that it follows none any more, or that another attempt has begun.
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
                    "{why}; the followed cluster stays closed to writes until this is started again"
                ))));
            }
            sleep(PAUSE).await;
            match self.target.connect().await.map(|it| it.following) {
                Ok(None) => return Ok(()),
                Ok(Some(it)) if it.attempt != last.attempt => {
                    // This step is refused for good, and its alarms are there.
                    self.memory.closed.set(Some(last.attempt));
                    return Err(Failed::Passing(
                        "another process leaves the followed cluster".to_owned(),
                    ));
                }
                _ => {}
            }
        }
    }
}
