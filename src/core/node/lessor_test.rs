//! When leases expire, when their TTL is checkpointed, and when a renewal has to wait.

use super::*;

fn lessor(leases: &[(LeaseId, i64)]) -> Lessor {
    let mut lessor = Lessor::default();
    let all = leases.iter().map(|(id, ttl)| LeaseInfo {
        id: *id,
        ttl: *ttl,
        remaining: 0,
    });
    lessor.note(0, &LeaseEvent::Reset(all.collect()));
    lessor
}

#[test]
fn new_leader_extends_leases() {
    let mut lessor = lessor(&[(1, 2)]);
    assert_eq!(lessor.times(0, 1), None, "a follower does not know");
    lessor.lead(10_000, 1000);
    assert!(lessor.expired(12_999, 1000).is_empty());
    assert_eq!(lessor.expired(13_000, 1000), [1]);
}

#[test]
fn renewed_lease_runs_its_full_ttl() {
    let mut lessor = lessor(&[(1, 2)]);
    lessor.lead(0, 0);
    let Renewal::Renewed(times) = lessor.renew(1500, 1) else {
        panic!("it is there");
    };
    assert_eq!((times.granted, times.remaining), (2, 2));
    assert!(lessor.expired(2000, 1000).is_empty());
    assert_eq!(lessor.times(2600, 1).unwrap().remaining, 0);
    assert_eq!(lessor.expired(3500, 1000), [1]);
    assert_eq!(lessor.renew(3500, 1), Renewal::Gone, "it is ending");
    assert_eq!(lessor.renew(3500, 2), Renewal::Gone, "there is none");
}

#[test]
fn failed_lease_revoke_is_proposed_again() {
    let mut lessor = lessor(&[(1, 1)]);
    lessor.lead(0, 0);
    assert_eq!(lessor.expired(1000, 500), [1]);
    assert!(lessor.expired(1400, 500).is_empty());
    assert_eq!(lessor.expired(1500, 500), [1]);
    lessor.note(1600, &LeaseEvent::Ended(1));
    assert!(lessor.expired(9000, 500).is_empty());
    assert_eq!(lessor.times(9000, 1), None);
}

#[test]
fn lease_revocation_is_rate_limited() {
    let leases: Vec<(LeaseId, i64)> = (1..=2500).map(|id| (id, 1)).collect();
    let mut lessor = lessor(&leases);
    lessor.lead(0, 0);
    let mut ended = 0;
    for now in (1000..2000).step_by(100) {
        ended += lessor.expired(now, 60_000).len();
    }
    assert_eq!(
        ended,
        1000 + 900,
        "a second's worth at once, then a tenth each time"
    );
    for now in (2000..3000).step_by(100) {
        ended += lessor.expired(now, 60_000).len();
    }
    assert_eq!(ended, 2500);
}

#[test]
fn granted_lease_is_armed_at_once() {
    let mut lessor = lessor(&[]);
    lessor.lead(0, 1000);
    lessor.note(500, &LeaseEvent::Granted(7, 3));
    assert_eq!(lessor.times(500, 7).unwrap().remaining, 3);
    assert_eq!(lessor.expired(3500, 1000), [7]);
    lessor.follow();
    assert!(lessor.expired(9500, 1000).is_empty());
}

const EVERY: u64 = 300_000;

fn noting(leases: &[(LeaseId, i64)]) -> Lessor {
    let mut noting = Lessor::new(EVERY);
    noting.granted = lessor(leases).granted;
    noting.lead(0, 0);
    noting
}

fn remains(id: LeaseId, remaining: i64) -> LeaseRemains {
    LeaseRemains { id, remaining }
}

#[test]
fn long_leases_are_checkpointed() {
    let mut lessor = noting(&[(1, 300), (2, 1000)]);
    assert!(lessor.notes(EVERY - 1).is_empty());
    assert_eq!(lessor.notes(EVERY), [remains(2, 700)], "300 s is not long");
    lessor.note(EVERY + 500, &LeaseEvent::Noted(2, 700));
    assert!(
        lessor.notes(2 * EVERY).is_empty(),
        "counted from the last note"
    );
    assert_eq!(lessor.notes(2 * EVERY + 500), [remains(2, 400)]);
    lessor.note(2 * EVERY + 600, &LeaseEvent::Noted(2, 400));
    lessor.lead(10_000_000, 1000);
    let times = lessor.times(10_000_000, 2).expect("the lease");
    assert_eq!(times.remaining, 401, "a new leader goes by the note");
}

#[test]
fn lease_checkpoints_come_in_batches() {
    let leases: Vec<(LeaseId, i64)> = (1..=1500).map(|id| (id, 1000)).collect();
    let mut lessor = noting(&leases);
    assert_eq!(lessor.notes(EVERY).len(), 1000);
    assert_eq!(lessor.notes(EVERY).len(), 500);
    assert!(lessor.notes(EVERY).is_empty());
}

#[test]
fn renewal_waits_for_the_checkpoint_clearing() {
    let mut lessor = noting(&[(1, 1000)]);
    assert_eq!(lessor.notes(EVERY), [remains(1, 700)]);
    // Not applied yet, but it will be after the renewal.
    assert_eq!(lessor.renew(EVERY + 10, 1), Renewal::Wait);
    assert_eq!(lessor.renew(EVERY + 20, 1), Renewal::Wait);
    assert_eq!(lessor.take_clearings(), [remains(1, 0)], "proposed once");
    lessor.note(EVERY + 30, &LeaseEvent::Noted(1, 700));
    assert_eq!(lessor.renew(EVERY + 40, 1), Renewal::Wait);
    assert!(lessor.take_clearings().is_empty());
    lessor.note(EVERY + 50, &LeaseEvent::Noted(1, 0));
    let renewed = LeaseTimes {
        granted: 1000,
        remaining: 1000,
    };
    assert_eq!(lessor.renew(EVERY + 60, 1), Renewal::Renewed(renewed));
    assert_eq!(lessor.renew(EVERY + 70, 1), Renewal::Renewed(renewed));
    lessor.lead(EVERY + 80, 0);
    assert_eq!(lessor.times(EVERY + 80, 1), Some(renewed));
}

#[test]
fn unproposed_clearing_is_repeated() {
    let mut lessor = noting(&[(1, 1000)]);
    lessor.note(1, &LeaseEvent::Noted(1, 700));
    assert_eq!(lessor.renew(2, 1), Renewal::Wait);
    let clear = lessor.take_clearings();
    lessor.unproposed(&clear);
    assert_eq!(lessor.renew(3, 1), Renewal::Wait);
    assert_eq!(lessor.take_clearings(), clear);
    lessor.note(4, &LeaseEvent::Ended(1));
    assert_eq!(lessor.renew(5, 1), Renewal::Gone);
}

#[test]
fn renewed_leases_are_not_checkpointed() {
    let mut lessor = noting(&[(1, 1000)]);
    assert!(matches!(lessor.renew(EVERY, 1), Renewal::Renewed(_)));
    assert!(lessor.notes(EVERY).is_empty());
    assert_eq!(lessor.notes(2 * EVERY), [remains(1, 700)]);
}

/// In a cluster that follows another one, that one's leases expire: here none does, and none is checkpointed.
#[test]
fn held_leases_wait_for_the_next_reset() {
    let mut lessor = noting(&[(1, 1000)]);
    lessor.note(1, &LeaseEvent::Held);
    assert!(lessor.notes(2 * EVERY).is_empty());
    assert!(lessor.expired(2_000_000, 100).is_empty());
    // Also under the next leader.
    lessor.lead(2_000_000, 0);
    assert!(lessor.expired(4_000_000, 100).is_empty());
    let lease = LeaseInfo {
        id: 1,
        ttl: 1000,
        remaining: 0,
    };
    lessor.note(4_000_000, &LeaseEvent::Reset(vec![lease]));
    assert!(lessor.expired(4_999_999, 100).is_empty());
    assert_eq!(lessor.expired(5_000_000, 100), [1]);
}
