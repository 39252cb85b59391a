//! Leases: grant, attach, time to live, keep-alive, list, revoke, expiry.

use crate::process::eventually;
use crate::story::{Recorder, compare};

/// Grants a lease, and replaces its ID by `LEASE` and a number in the transcript.
fn grant(recorder: &mut Recorder, at: usize, ttl: &str, number: usize) -> String {
    let printed = recorder.cluster.must(at, &["lease", "grant", ttl]);
    let id = printed.split(' ').nth(1).unwrap_or_default().to_owned();
    recorder.name(id.clone(), &format!("LEASE{number}"));
    let decimal = i64::from_str_radix(&id, 16)
        .expect("a lease ID")
        .to_string();
    recorder.name(decimal, &format!("LEASE{number}"));
    recorder.note(&printed);
    id
}

// Shows Lease.LeaseGrant, Lease.LeaseRevoke, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseLeases: etcdctl's lease commands through every member.
#[test]
fn leases_are_etcds() {
    compare("leases_are_etcds", 1, |recorder| {
        let id = grant(recorder, 0, "600", 0);
        grant(recorder, 0, "1", 1);
        for key in ["c", "a", "b"] {
            recorder.at(0, &["put", key, "v", &format!("--lease={id}")]);
        }
        recorder.at(0, &["get", "--prefix", "", "-w", "json"]);
        recorder.at(0, &["put", "b", "without"]);
        recorder.at(0, &["lease", "keep-alive", "--once", &id]);
        let printed = recorder
            .cluster
            .must(0, &["lease", "timetolive", &id, "--keys"]);
        let remaining = printed
            .split("remaining(")
            .nth(1)
            .and_then(|rest| rest.split('s').next());
        let remaining: u64 = remaining
            .and_then(|text| text.parse().ok())
            .expect("a time");
        assert!((590..=600).contains(&remaining), "{printed}");
        let keys = printed.split("keys([").nth(1).unwrap_or_default();
        let keys = keys.trim().trim_end_matches("])");
        let mut keys: Vec<&str> = keys.split(' ').collect();
        keys.sort_unstable();
        recorder.note(&format!("{keys:?}"));
        recorder.at(0, &["lease", "timetolive", "123abc"]);
        recorder.at(0, &["lease", "keep-alive", "--once", "123abc"]);
        recorder.at(0, &["lease", "revoke", "123abc"]);
        recorder.at(0, &["lease", "grant", "9000000001"]);
        recorder.at(0, &["lease", "revoke", &id]);
        recorder.at(0, &["lease", "revoke", &id]);
        recorder.at(0, &["get", "--prefix", "", "-w", "json"]);
    });
}

// Shows Lease.LeaseGrant: expiry deletes the keys of the lease.
#[test]
fn expired_lease_deletes_its_keys() {
    compare("expired_lease_deletes_its_keys", 3, |recorder| {
        let leader = recorder.cluster.leader();
        let follower = (leader + 1) % 3;
        // Long enough for a few commands on a busy machine.
        let id = grant(recorder, follower, "6", 0);
        let lease = format!("--lease={id}");
        recorder.cluster.must(follower, &["put", "k1", "v", &lease]);
        recorder.cluster.must(leader, &["put", "k2", "v", &lease]);
        for at in [follower, leader] {
            let listed = recorder.cluster.must(at, &["lease", "list"]);
            recorder.note(&listed);
            let kept = recorder
                .cluster
                .must(at, &["lease", "keep-alive", "--once", &id]);
            recorder.note(&kept);
        }
        let gone = eventually(|| {
            recorder
                .cluster
                .must(follower, &["get", "--prefix", "k"])
                .is_empty()
        });
        assert!(gone, "the keys stayed:\n{}", recorder.cluster.logs());
        let listed = recorder.cluster.must(follower, &["lease", "list"]);
        recorder.note(&listed);
        let get = recorder
            .cluster
            .must(leader, &["get", "--prefix", "k", "-w", "json"]);
        recorder.note(&get);
    });
}
