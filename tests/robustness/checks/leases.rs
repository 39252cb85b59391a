//! A lease expires only after its TTL, counted from the time when its grant or its last acknowledged renewal was
//! requested; all its keys are deleted with it; and an expired lease is not renewed. The time of the expiry is when a
//! watcher first received the deletions, which is after the expiry itself: a lease that seems to have expired early
//! here did expire early.

use std::collections::BTreeMap;

use super::log::Log;
use super::{Found, Looked};
use crate::history::{Act, History, Nanos, Outcome, Request};

const SECOND: Nanos = 1_000_000_000;
/// Members count in whole milliseconds.
const SLACK: Nanos = 2_000_000;

/// The recorded operations on a lease.
#[derive(Debug, Default)]
struct Lease {
    /// (when a renewal was requested, when it was acknowledged, until when it is valid)
    renewed: Vec<(Nanos, Nanos, Nanos)>,
    /// The first time that a client requested its revocation.
    revoked: Option<Nanos>,
    /// When a client requested it and when it received "lease not found".
    missed: Vec<(Nanos, Nanos)>,
}

/// Checks all leases.
pub(crate) fn check(history: &History, log: &Log, looked: &mut Looked, found: &mut Found) {
    let leases = leases(history);
    let ends = ends(log);
    for (id, lease) in &leases {
        let revoked = lease.revoked.unwrap_or(Nanos::MAX);
        if let Some(seen) = ends.get(id)
            && revoked > *seen
        {
            looked.leases_expired += 1;
            for (asked, _, until) in &lease.renewed {
                if asked < seen && seen + SLACK < *until {
                    let early = (until - seen) / 1_000_000;
                    let text = format!("lease {id} ended {early} ms early: {lease:?}");
                    found.add("leases: never early", text);
                } else if asked > seen {
                    let text = format!("lease {id} ended at {seen}: {lease:?}");
                    found.add("leases: what has ended is not renewed", text);
                }
            }
        }
        for (asked, reported) in &lease.missed {
            let granted = lease.renewed.first().is_some_and(|first| first.1 < *asked);
            let holds = lease
                .renewed
                .iter()
                .any(|(_, answered, until)| answered < asked && reported + SLACK < *until);
            if granted && holds && revoked > *reported {
                let text = format!("lease {id} was reported expired at {reported}: {lease:?}");
                found.add("leases: never early", text);
            }
        }
    }
    for rest in &history.rest {
        for id in rest.leases.iter().filter(|id| ends.contains_key(id)) {
            let text = format!("{} still has lease {id}, which has ended", rest.member);
            found.add("leases: an end is an end", text);
        }
    }
}

fn leases(history: &History) -> BTreeMap<i64, Lease> {
    let mut leases: BTreeMap<i64, Lease> = BTreeMap::new();
    for operation in &history.operations {
        let (began, ended) = (operation.began, operation.ended);
        match (&operation.request, &operation.outcome) {
            (Request::Grant { id, .. } | Request::KeepAlive { id }, Outcome::Done { ttl, .. }) => {
                let lease = leases.entry(*id).or_default();
                match u64::try_from(*ttl) {
                    Ok(ttl) if ttl > 0 => {
                        let until = began + ttl * SECOND;
                        lease.renewed.push((began, ended, until));
                    }
                    _ => lease.missed.push((began, ended)),
                }
            }
            (Request::Revoke { id }, outcome) => {
                let lease = leases.entry(*id).or_default();
                match outcome {
                    Outcome::Refused { code, .. } if code == "no lease" => {
                        lease.missed.push((began, ended));
                    }
                    Outcome::Refused { .. } => {}
                    Outcome::Done { .. } | Outcome::Unknown { .. } => {
                        let first = lease.revoked.unwrap_or(began);
                        lease.revoked = Some(first.min(began));
                    }
                }
            }
            (Request::Txn { then, .. }, Outcome::Refused { code, .. }) if code == "no lease" => {
                for act in then {
                    if let Act::Put { lease, .. } = act {
                        leases
                            .entry(*lease)
                            .or_default()
                            .missed
                            .push((began, ended));
                    }
                }
            }
            _ => {}
        }
    }
    leases
}

/// When the deletion of each lease's keys was first received. The clients of this run delete no keys with a lease, so
/// a deletion means the end of the lease.
fn ends(log: &Log) -> BTreeMap<i64, Nanos> {
    let mut ends = BTreeMap::new();
    for (revision, events) in &log.changes {
        for event in events.iter().filter(|event| event.deleted) {
            let before = log.at(&event.kv.key, revision - 1);
            if let Some(lease) = before.map(|kv| kv.lease).filter(|lease| *lease != 0) {
                ends.entry(lease).or_insert(log.seen[revision]);
            }
        }
    }
    ends
}
