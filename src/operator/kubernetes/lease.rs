//! One acting operator at a time, by a Lease. A change of holder raises the epoch
//! (`leaseTransitions`), which every call to a member carries, so that a former holder's late call
//! is refused by the servers. Losing the Lease ends the process; it never acts without it.
//!
//! The epoch follows only from the Lease and from this machine's clock: a new holder takes the seconds since 2024, or
//! one more than the last if that is more. So it keeps growing after a Lease was deleted, a second Lease for the same
//! clusters is ordered with the first, and no answer of a member changes it: one faulty member could exhaust it for
//! all.
//!
//! Expiry is counted on this machine's monotonic clock from when a change of the Lease was *seen*,
//! as client-go does: clocks of two nodes are never compared. A holder counts from before it *asked*
//! to renew, which is earlier, and stops acting the renew deadline after that; decision 030 has the
//! arithmetic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::{Api, Client};

use crate::mutants::mutant;
use crate::operator::clock::Clock;

/// Timeout of a request that changes something, so that none of a holder's is in flight when it can be replaced.
pub(crate) const REQUEST: Duration = Duration::from_secs(4);
/// The shortest time after which a holder that has not renewed may be replaced: no candidate takes less, whatever the Lease
/// says, since a holder relies on it.
const LEAST: Duration = Duration::from_secs(15);
/// 2024-01-01, in Unix seconds: epochs count from there, and so have room for 68 years.
const FIRST: u64 = 1_704_067_200;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// A holder that has not renewed for this long may be replaced.
    duration: Duration,
    /// A holder acts for this long after it sent its last successful renewal, and no longer.
    renew_deadline: Duration,
    /// Between two tries to acquire or renew.
    retry: Duration,
}

/// Why a holder could not rely on such times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseTimesError {
    /// No candidate waits for less, and after an hour nobody expects another operator.
    #[error("--lease-duration is {0} s: give 15 to 3600")]
    Duration(u64),
    /// What a holder sent last may be under way when another one acts.
    #[error(
        "--lease-renew-deadline is {renew} s: give at most {most}, five less than --lease-duration, as a request takes up to four"
    )]
    Late {
        /// As given.
        renew: u64,
        /// What would do.
        most: u64,
    },
    /// One failed renewal would end the operator.
    #[error("--lease-retry-period is {retry} s: give 1 to {most}, half of the renew deadline")]
    Rare {
        /// As given.
        retry: u64,
        /// What would do.
        most: u64,
    },
}

impl LeaseTimes {
    /// These times in seconds; by default the renew deadline is five less than the duration.
    ///
    /// # Errors
    /// A holder could be replaced while it still acts, or would end at one failed renewal: decision 030.
    pub fn new(duration: u64, renew: Option<u64>, retry: u64) -> Result<Self, LeaseTimesError> {
        if !(LEAST.as_secs()..=3600).contains(&duration) {
            return Err(LeaseTimesError::Duration(duration));
        }
        let most = duration - REQUEST.as_secs() - 1;
        let renew = renew.unwrap_or(most);
        if renew > most {
            return Err(LeaseTimesError::Late { renew, most });
        }
        let most = renew / 2;
        if retry == 0 || retry > most {
            return Err(LeaseTimesError::Rare { retry, most });
        }
        Ok(LeaseTimes {
            duration: Duration::from_secs(duration),
            renew_deadline: Duration::from_secs(renew),
            retry: Duration::from_secs(retry),
        })
    }
}

impl Default for LeaseTimes {
    fn default() -> Self {
        LeaseTimes {
            duration: LEAST,
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// What went wrong with the Lease.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another operator holds it now.
    #[error("the Lease {name} was taken by {holder}: this operator ends, another one acts")]
    Taken {
        /// The Lease.
        name: String,
        /// The holder.
        holder: String,
    },
    /// It could not be renewed in time.
    #[error("the Lease {name} could not be renewed for {} s: this operator ends before another acts", within.as_secs())]
    NotRenewed {
        /// The Lease.
        name: String,
        /// In which time.
        within: Duration,
        /// The last failure.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The right to act, while it lasts.
#[derive(Clone, Debug)]
pub struct Leadership {
    epoch: Arc<AtomicU64>,
    /// Until when it is valid, in milliseconds on this clock; `None`: without a Lease, forever.
    until: Option<(Clock, Arc<AtomicU64>)>,
    renew_deadline: Duration,
}

impl Leadership {
    /// Holds no Lease: for tests and for tools that act alone.
    pub fn fixed(epoch: u64) -> Self {
        Self {
            epoch: Arc::new(AtomicU64::new(epoch)),
            until: None,
            renew_deadline: Duration::ZERO,
        }
    }

    /// Has none until the Lease is held.
    fn by_lease(clock: Clock, renew_deadline: Duration) -> Self {
        Self {
            epoch: Arc::default(),
            until: Some((clock, Arc::default())),
            renew_deadline,
        }
    }

    /// The epoch that calls to members carry now.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whether an action may begin: the Lease was renewed recently. A process that was paused for a while detects it
    /// here, before it learns of its successor.
    pub fn may_act(&self) -> bool {
        mutant!(ActsWithoutLease) || !self.left().is_zero()
    }

    /// How long acts may still begin.
    fn left(&self) -> Duration {
        let Some((clock, until)) = &self.until else {
            return Duration::MAX;
        };
        let until = Duration::from_millis(until.load(Ordering::SeqCst));
        until.saturating_sub(clock.monotonic())
    }

    /// It was requested at this time, and acquired.
    fn acquired(&self, epoch: u64, asked: Duration) {
        self.epoch.store(epoch, Ordering::SeqCst);
        if let Some((_, until)) = &self.until {
            let end = (asked + self.renew_deadline).as_millis();
            let end = u64::try_from(end).unwrap_or(u64::MAX);
            until.fetch_max(end, Ordering::SeqCst);
        }
    }
}

/// The highest epoch that a holder can have by now, where clocks of nodes differ by less than a day.
pub(super) fn latest_epoch(unix_ms: u64) -> u64 {
    (unix_ms / 1000).saturating_sub(FIRST) + 86_400
}

/// A client by which nothing is changed without the right to act. `bound`: how long a change may
/// take, where requests take time.
pub(crate) fn fenced(client: Client, leadership: Leadership, bound: Option<Duration>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, leadership) = (client.clone(), leadership.clone());
        async move {
            if request.method() == http::Method::GET {
                return client.send(request).await;
            }
            if !leadership.may_act() {
                return Err(kube::Error::Service(NOT_RENEWED.into()));
            }
            let Some(bound) = bound else {
                return client.send(request).await;
            };
            // The time first: a process that was stopped must not send what it was about to.
            tokio::select! {
                biased;
                () = tokio::time::sleep(bound) => Err(kube::Error::Service("timed out".into())),
                answer = client.send(request) => answer,
            }
        }
    });
    Client::new(service, namespace)
}

/// Why nothing is done any more.
pub(super) const NOT_RENEWED: &str =
    "the Lease was not renewed in time: this operator does nothing more";

/// What to do with the Lease as it was just read.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    /// Write it, where there is none a new one, with ourselves as the holder and this count of transitions.
    Write {
        transitions: i32,
        acquired: bool,
    },
    Wait {
        holder: String,
    },
}

/// Since when the Lease has been unchanged, on this machine's monotonic clock.
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
    times: LeaseTimes,
}

impl Candidate {
    /// A candidate with a name of its own (the pod's name and something random).
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        clock: Clock,
        times: LeaseTimes,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            watch: Watch {
                version: None,
                since: clock.monotonic(),
            },
            leadership: Leadership::by_lease(clock.clone(), times.renew_deadline),
            clock,
            times,
        }
    }

    /// The right to act, which lasts while the Lease is held.
    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until the Lease is ours.
    pub async fn acquire(&mut self) -> Leadership {
        let mut reported: Option<String> = None;
        loop {
            match self.attempt().await {
                Ok(None) => return self.leadership(),
                Ok(Some(holder)) => {
                    if reported.as_ref() != Some(&holder) {
                        tracing::info!(lease = %self.name, %holder, "waiting for the Lease: another operator is active");
                        reported = Some(holder);
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = %self.name, %error, "cannot acquire the Lease yet");
                }
            }
            tokio::time::sleep(self.times.retry).await;
        }
    }

    /// Renews for as long as that works; returns why it no longer does.
    pub async fn hold(&mut self) -> Error {
        let mut last = kube::Error::Service("timed out".into());
        loop {
            let left = self.leadership.left();
            if left.is_zero() {
                return Error::NotRenewed {
                    name: self.name.clone(),
                    within: self.times.renew_deadline,
                    source: Box::new(last),
                };
            }
            tokio::time::sleep(self.times.retry.min(left)).await;
            let patience = (self.times.retry * 2).max(self.times.renew_deadline / 3);
            let bound = self.leadership.left().min(patience);
            match tokio::time::timeout(bound, self.attempt()).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(holder))) => {
                    return Error::Taken {
                        name: self.name.clone(),
                        holder,
                    };
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the Lease was not renewed this time");
                    last = error;
                }
                Err(_) => last = kube::Error::Service("timed out".into()),
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

    /// One attempt. `None`: it is ours; otherwise the holder.
    pub(crate) async fn attempt(&mut self) -> Result<Option<String>, kube::Error> {
        let asked = self.clock.monotonic();
        let lease = self.api.get_opt(&self.name).await?;
        let now = self.clock.monotonic();
        let version = lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.as_deref());
        self.watch.see(version, now);
        let step = decide(
            lease.as_ref().and_then(|lease| lease.spec.as_ref()),
            &self.identity,
            now.saturating_sub(self.watch.since),
            self.clock.unix_ms() / 1000,
        );
        let (transitions, acquired) = match step {
            Move::Wait { holder } => return Ok(Some(holder)),
            Move::Write {
                transitions,
                acquired,
            } => (transitions, acquired),
        };
        let is_there = lease.is_some();
        let lease = self.write(lease.unwrap_or_default(), transitions, acquired);
        let parameters = PostParams::default();
        if is_there {
            // The resource version travels with the object: a change since is a conflict.
            self.api.replace(&self.name, &parameters, &lease).await?;
        } else {
            self.api.create(&parameters, &lease).await?;
        }
        let epoch = u64::try_from(transitions).unwrap_or(0);
        self.leadership.acquired(epoch, asked);
        Ok(None)
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
        spec.lease_duration_seconds = i32::try_from(self.times.duration.as_secs()).ok();
        spec.lease_transitions = Some(transitions);
        spec.renew_time = Some(now.clone());
        if acquired {
            spec.acquire_time = Some(now);
        }
        lease
    }
}

/// `unchanged` is how long the Lease has been unchanged; `unix_s` the time by this machine's wall clock, which
/// determines only the order of new holders.
fn decide(lease: Option<&LeaseSpec>, identity: &str, unchanged: Duration, unix_s: u64) -> Move {
    let holder = lease
        .and_then(|lease| lease.holder_identity.as_deref())
        .unwrap_or_default();
    let transitions = lease
        .and_then(|lease| lease.lease_transitions)
        .unwrap_or(0)
        .max(0);
    if holder == identity {
        return Move::Write {
            transitions,
            acquired: false,
        };
    }
    // Independent of the Lease's fields: a holder relies on having this long.
    let duration = lease
        .and_then(|lease| lease.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(LEAST, Duration::from_secs)
        .max(LEAST);
    if holder.is_empty() || unchanged >= duration {
        let now = i32::try_from(unix_s.saturating_sub(FIRST)).unwrap_or(i32::MAX);
        return Move::Write {
            transitions: transitions.saturating_add(1).max(now),
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
    /// A hundred seconds after epochs begin.
    const NOW: u64 = FIRST + 100;

    fn taken(transitions: i32) -> Move {
        Move::Write {
            transitions,
            acquired: true,
        }
    }

    #[test]
    fn released_lease_is_taken_at_once() {
        assert_eq!(decide(None, "a", Duration::ZERO, NOW), taken(100));
        let released = held_by("", 400);
        assert_eq!(
            decide(Some(&released), "a", Duration::ZERO, NOW),
            taken(401)
        );
    }

    #[test]
    fn silent_lease_holder_is_replaced() {
        let mut lease = held_by("b", 4);
        let waits = || Move::Wait { holder: "b".into() };
        assert_eq!(decide(Some(&lease), "a", 14 * SECOND, NOW), waits());
        assert_eq!(decide(Some(&lease), "a", 15 * SECOND, NOW), taken(100));
        // A client that can write the Lease cannot have a holder replaced while it is still active.
        lease.lease_duration_seconds = Some(1);
        assert_eq!(decide(Some(&lease), "a", 14 * SECOND, NOW), waits());
    }

    #[test]
    fn lease_holder_keeps_its_epoch() {
        let lease = held_by("a", 4);
        let renewed = Move::Write {
            transitions: 4,
            acquired: false,
        };
        assert_eq!(decide(Some(&lease), "a", 100 * SECOND, NOW), renewed);
    }

    /// The epoch was raised above any value that a member reported: one that reported `u64::MAX` exhausted it, and from
    /// then on consecutive holders could not be distinguished, for any cluster.
    #[test]
    fn epochs_follow_lease_and_clock() {
        let before = held_by("b", 1_000);
        assert_eq!(decide(Some(&before), "a", 15 * SECOND, NOW), taken(1_001));
        // Deleted and created again, a good while later.
        assert_eq!(decide(None, "a", SECOND, FIRST + 5_000), taken(5_000));
        // A clock that is behind does not bring it back.
        let ahead = held_by("", 7_000);
        assert_eq!(decide(Some(&ahead), "a", SECOND, 0), taken(7_001));
    }

    /// A holder counted from when its renewal was answered, up to four seconds after it was sent, and checked the time
    /// only after an attempt had ended: it could act until twelve seconds after the answer, and a second_leader start eleven
    /// seconds after it.
    #[test]
    fn lease_holder_ends_before_its_successor() {
        let time = Arc::new(AtomicU64::new(1_000_000));
        let clock = Clock::simulated(time.clone());
        let times = LeaseTimes::default();
        let leadership = Leadership::by_lease(clock.clone(), times.renew_deadline);
        assert!(!leadership.may_act(), "it has not acquired the Lease yet");
        let asked = clock.monotonic();
        // The API server processes it three seconds later, and answers after one more.
        let taken = asked + 3 * SECOND;
        time.fetch_add(4_000, Ordering::SeqCst);
        leadership.acquired(7, asked);
        let mut last = None;
        for _ in 0..200 {
            time.fetch_add(100, Ordering::SeqCst);
            if leadership.may_act() {
                last = Some(clock.monotonic());
            }
        }
        let ended = last.expect("it acted") + REQUEST;
        // A second_leader that observed exactly at the renewal waits for this.
        assert!(ended < taken + times.duration, "{ended:?} after {taken:?}");
        assert!(
            ended < asked + times.duration,
            "whatever it took to be answered"
        );
    }

    /// The arithmetic of decision 030, for whatever times are given.
    #[test]
    fn times_leave_room_for_the_last_request() {
        for duration in 15..100 {
            let times = LeaseTimes::new(duration, None, 2).expect("room");
            assert!(times.renew_deadline + REQUEST < times.duration);
        }
        let default = LeaseTimes::new(15, None, 2).expect("the default");
        assert_eq!(default, LeaseTimes::default());
        for (duration, renew, retry, says) in [
            (14, None, 2, "give 15 to 3600"),
            (4_000_000_000, None, 2, "give 15 to 3600"),
            (15, Some(11), 2, "give at most 10"),
            (60, Some(8), 5, "give 1 to 4"),
            (15, None, 0, "give 1 to 5"),
        ] {
            let error = LeaseTimes::new(duration, renew, retry).expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
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
