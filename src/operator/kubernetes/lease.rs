//! One acting operator at a time, by a Lease. A change of holder raises the epoch
//! (`leaseTransitions`), which every membership call carries, so that a former holder's late call
//! is refused by the servers. Losing the Lease ends the process; it never acts without it.
//!
//! Expiry is counted on this machine's monotonic clock from when a change of the Lease was *seen*,
//! as client-go does: clocks of two nodes are never compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::operator::clock::Clock;

/// A holder that has not renewed for this long may be replaced.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for this long ends itself, well before it may be replaced.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two tries to acquire or renew.
const RETRY: Duration = Duration::from_secs(2);

/// What went wrong with the Lease.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another operator holds it now.
    #[error("the Lease {name} was taken by {holder}: this operator ends, another one acts")]
    Taken {
        /// The Lease.
        name: String,
        /// Who holds it.
        holder: String,
    },
    /// It could not be renewed in time.
    #[error("the Lease {name} could not be renewed for {} s: this operator ends before another acts", RENEW_DEADLINE.as_secs())]
    NotRenewed {
        /// The Lease.
        name: String,
        /// The last failure.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The right to act, while it lasts.
#[derive(Clone, Debug)]
pub struct Leadership {
    epoch: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Leadership {
    /// Holds no Lease: for tests and for tools that act alone.
    pub fn fixed(epoch: u64) -> Self {
        Self {
            epoch: Arc::new(AtomicU64::new(epoch)),
            seen: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The epoch that membership calls carry now.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Tells of an epoch that a cluster has recorded. If the Lease object was deleted and made
    /// anew, its count is behind; the next renewal raises it beyond what was seen.
    pub fn saw_epoch(&self, epoch: u64) {
        self.seen.fetch_max(epoch, Ordering::SeqCst);
    }
}

/// What to do with the Lease as it was just read.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    Create,
    /// Write it with ourselves as the holder and this count of transitions.
    Write {
        transitions: i32,
        acquired: bool,
    },
    Wait {
        holder: String,
    },
}

/// Since when the Lease has looked as it does, on this machine's monotonic clock.
#[derive(Debug)]
struct Watch {
    version: Option<String>,
    since: Duration,
}

impl Watch {
    fn see(&mut self, version: Option<&str>, now: Duration) {
        if self.version.as_deref() != version || version.is_none() {
            self.version = version.map(str::to_owned);
            self.since = now;
        }
    }
}

/// The candidate for one Lease.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    watch: Watch,
    leadership: Leadership,
    clock: Clock,
}

impl Candidate {
    /// A candidate with a name of its own (the pod's name and something random).
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        clock: Clock,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            watch: Watch {
                version: None,
                since: clock.monotonic(),
            },
            leadership: Leadership::fixed(0),
            clock,
        }
    }

    /// The right to act, which lasts while the Lease is held.
    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until the Lease is ours.
    pub async fn acquire(&mut self) -> Leadership {
        let mut told: Option<String> = None;
        loop {
            match self.attempt().await {
                Ok(None) => return self.leadership(),
                Ok(Some(holder)) => {
                    if told.as_ref() != Some(&holder) {
                        tracing::info!(lease = %self.name, %holder, "waiting: another operator acts");
                        told = Some(holder);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = %self.name, %error, "cannot acquire the Lease yet");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews for as long as that works; returns why it no longer does.
    pub async fn hold(&mut self) -> Error {
        let mut renewed = self.clock.now();
        loop {
            tokio::time::sleep(RETRY).await;
            let attempt = tokio::time::timeout(RETRY * 2, self.attempt()).await;
            match attempt {
                Ok(Ok(None)) => renewed = self.clock.now(),
                Ok(Ok(Some(holder))) => {
                    return Error::Taken {
                        name: self.name.clone(),
                        holder,
                    };
                }
                Ok(Err(source)) if renewed.elapsed() >= RENEW_DEADLINE => {
                    return Error::NotRenewed {
                        name: self.name.clone(),
                        source: Box::new(source),
                    };
                }
                Ok(Err(error)) => tracing::warn!(%error, "the Lease was not renewed this time"),
                Err(_) if renewed.elapsed() >= RENEW_DEADLINE => {
                    let source = kube::Error::Service("timed out".into());
                    return Error::NotRenewed {
                        name: self.name.clone(),
                        source: Box::new(source),
                    };
                }
                Err(_) => {}
            }
        }
    }

    /// Gives the Lease up, so that the next operator need not wait for its expiry.
    pub async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(self.identity.as_str()) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        let _ = self
            .api
            .replace(&self.name, &PostParams::default(), &lease)
            .await;
    }

    /// One try. `None`: it is ours; else who holds it.
    pub(crate) async fn attempt(&mut self) -> Result<Option<String>, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let now = self.clock.monotonic();
        let version = lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.as_deref());
        self.watch.see(version, now);
        let step = decide(
            lease.as_ref().and_then(|lease| lease.spec.as_ref()),
            lease.is_some(),
            &self.identity,
            now.saturating_sub(self.watch.since),
            self.leadership.seen.load(Ordering::SeqCst),
        );
        match step {
            Move::Wait { holder } => Ok(Some(holder)),
            Move::Create => {
                let lease = self.write(Lease::default(), 1, true);
                self.api.create(&PostParams::default(), &lease).await?;
                self.leadership.epoch.store(1, Ordering::SeqCst);
                Ok(None)
            }
            Move::Write {
                transitions,
                acquired,
            } => {
                let lease = self.write(lease.unwrap_or_default(), transitions, acquired);
                // The resource version travels with the object: a change since is a conflict.
                self.api
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await?;
                let epoch = u64::try_from(transitions).unwrap_or(0);
                self.leadership.epoch.store(epoch, Ordering::SeqCst);
                Ok(None)
            }
        }
    }

    fn write(&self, mut lease: Lease, transitions: i32, acquired: bool) -> Lease {
        let now = i64::try_from(self.clock.unix_ms()).unwrap_or(i64::MAX);
        let now = MicroTime(Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH));
        lease.metadata = ObjectMeta {
            name: Some(self.name.clone()),
            ..lease.metadata
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.lease_transitions = Some(transitions);
        spec.renew_time = Some(now.clone());
        if acquired {
            spec.acquire_time = Some(now);
        }
        lease
    }
}

/// `unchanged` is how long the Lease has looked as it does; `seen` the highest epoch that any
/// cluster has recorded.
fn decide(
    lease: Option<&LeaseSpec>,
    exists: bool,
    identity: &str,
    unchanged: Duration,
    seen: u64,
) -> Move {
    if !exists {
        return Move::Create;
    }
    let holder = lease
        .and_then(|lease| lease.holder_identity.as_deref())
        .unwrap_or_default();
    let transitions = lease
        .and_then(|lease| lease.lease_transitions)
        .unwrap_or(0)
        .max(0);
    let beyond_seen = i32::try_from(seen.saturating_add(1)).unwrap_or(i32::MAX);
    if holder == identity {
        let behind = u64::try_from(transitions).unwrap_or(0) < seen;
        let transitions = if behind { beyond_seen } else { transitions };
        return Move::Write {
            transitions,
            acquired: false,
        };
    }
    let duration = lease
        .and_then(|lease| lease.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(DURATION, Duration::from_secs);
    if holder.is_empty() || unchanged >= duration {
        let transitions = transitions.saturating_add(1).max(beyond_seen);
        return Move::Write {
            transitions,
            acquired: true,
        };
    }
    Move::Wait {
        holder: holder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_missing_lease_is_created_and_a_released_one_taken_at_once() {
        assert_eq!(decide(None, false, "a", Duration::ZERO, 0), Move::Create);
        assert_eq!(
            decide(Some(&held_by("", 4)), true, "a", Duration::ZERO, 0),
            Move::Write {
                transitions: 5,
                acquired: true
            }
        );
    }

    #[test]
    fn a_live_holder_is_waited_for_and_a_silent_one_replaced_under_a_new_epoch() {
        let lease = held_by("b", 4);
        assert_eq!(
            decide(Some(&lease), true, "a", 14 * SECOND, 0),
            Move::Wait { holder: "b".into() }
        );
        assert_eq!(
            decide(Some(&lease), true, "a", 15 * SECOND, 0),
            Move::Write {
                transitions: 5,
                acquired: true
            }
        );
    }

    #[test]
    fn the_holder_renews_under_the_same_epoch_however_late() {
        let lease = held_by("a", 4);
        assert_eq!(
            decide(Some(&lease), true, "a", 100 * SECOND, 4),
            Move::Write {
                transitions: 4,
                acquired: false
            }
        );
    }

    #[test]
    fn a_recreated_lease_catches_up_with_the_epoch_that_the_clusters_know() {
        let lease = held_by("a", 1);
        assert_eq!(
            decide(Some(&lease), true, "a", SECOND, 9),
            Move::Write {
                transitions: 10,
                acquired: false
            }
        );
    }

    #[test]
    fn expiry_is_counted_from_the_last_change_seen() {
        let start = SECOND;
        let mut watch = Watch {
            version: None,
            since: start,
        };
        watch.see(Some("1"), start);
        watch.see(Some("1"), start + 9 * SECOND);
        assert_eq!(watch.since, start);
        watch.see(Some("2"), start + 10 * SECOND);
        assert_eq!(watch.since, start + 10 * SECOND);
    }
}
