//! Leases: grant, attach, time to live, keep-alive, list, revoke, expiry.

use crate::process::eventually;
use crate::story::{Teller, compare};

/// Grants a lease and lets `LEASE` and a number stand for its ID.
fn grant(teller: &mut Teller, at: usize, ttl: &str, number: usize) -> String {
    let said = teller.cluster.must(at, &["lease", "grant", ttl]);
    let id = said.split(' ').nth(1).unwrap_or_default().to_owned();
    teller.name(id.clone(), &format!("LEASE{number}"));
    let decimal = i64::from_str_radix(&id, 16)
        .expect("a lease ID")
        .to_string();
    teller.name(decimal, &format!("LEASE{number}"));
    teller.note(&said);
    id
}

// Shows Lease.LeaseGrant, Lease.LeaseRevoke, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseLeases: etcdctl's lease commands through every member.
#[test]
fn leases_are_etcds() {
    compare("leases_are_etcds", 1, |teller| {
        let id = grant(teller, 0, "600", 0);
        grant(teller, 0, "1", 1);
        for key in ["c", "a", "b"] {
            teller.at(0, &["put", key, "v", &format!("--lease={id}")]);
        }
        teller.at(0, &["get", "--prefix", "", "-w", "json"]);
        teller.at(0, &["put", "b", "without"]);
        teller.at(0, &["lease", "keep-alive", "--once", &id]);
        let said = teller
            .cluster
            .must(0, &["lease", "timetolive", &id, "--keys"]);
        let remaining = said
            .split("remaining(")
            .nth(1)
            .and_then(|rest| rest.split('s').next());
        let remaining: u64 = remaining
            .and_then(|text| text.parse().ok())
            .expect("a time");
        assert!((590..=600).contains(&remaining), "{said}");
        let keys = said.split("keys([").nth(1).unwrap_or_default();
        let keys = keys.trim().trim_end_matches("])");
        let mut keys: Vec<&str> = keys.split(' ').collect();
        keys.sort_unstable();
        teller.note(&format!("{keys:?}"));
        teller.at(0, &["lease", "timetolive", "123abc"]);
        teller.at(0, &["lease", "keep-alive", "--once", "123abc"]);
        teller.at(0, &["lease", "revoke", "123abc"]);
        teller.at(0, &["lease", "grant", "9000000001"]);
        teller.at(0, &["lease", "revoke", &id]);
        teller.at(0, &["lease", "revoke", &id]);
        teller.at(0, &["get", "--prefix", "", "-w", "json"]);
    });
}

// Shows Lease.LeaseGrant: expiry deletes the keys of the lease.
#[test]
fn expired_lease_deletes_its_keys() {
    compare("expired_lease_deletes_its_keys", 3, |teller| {
        let leader = teller.cluster.leader();
        let follower = (leader + 1) % 3;
        // Long enough for a few commands on a busy machine.
        let id = grant(teller, follower, "6", 0);
        let lease = format!("--lease={id}");
        teller.cluster.must(follower, &["put", "k1", "v", &lease]);
        teller.cluster.must(leader, &["put", "k2", "v", &lease]);
        for at in [follower, leader] {
            let listed = teller.cluster.must(at, &["lease", "list"]);
            teller.note(&listed);
            let kept = teller
                .cluster
                .must(at, &["lease", "keep-alive", "--once", &id]);
            teller.note(&kept);
        }
        let gone = eventually(|| {
            teller
                .cluster
                .must(follower, &["get", "--prefix", "k"])
                .is_empty()
        });
        assert!(gone, "the keys stayed:\n{}", teller.cluster.logs());
        let listed = teller.cluster.must(follower, &["lease", "list"]);
        teller.note(&listed);
        let get = teller
            .cluster
            .must(leader, &["get", "--prefix", "k", "-w", "json"]);
        teller.note(&get);
    });
}
