//! Snapshots of Quorate that etcd's tools save, verify and restore: real etcd starts from them with the same keys,
//! history, hashes and leases.

use std::path::Path;

use serde_json::Value;

use crate::cluster::{Answer, Cluster, Kind};
use crate::process::{eventually, finish, peers};

/// Runs etcdutl.
pub(crate) fn util(peers: &Path, arguments: &[&str]) -> Answer {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let output = finish(&peers.join("etcdutl"), &arguments, "");
    Answer {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs etcdutl, expects it to succeed, and parses what it prints.
pub(crate) fn util_json(peers: &Path, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["-w", "json"]);
    let answer = util(peers, &all);
    assert_eq!(answer.status, 0, "etcdutl {arguments:?}: {answer:?}");
    serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Saves a snapshot of one member.
pub(crate) fn save(cluster: &Cluster, at: usize, name: &str) -> String {
    let file = cluster.path(name).display().to_string();
    let printed = cluster.must(at, &["snapshot", "save", &file]);
    assert!(printed.contains("Snapshot saved"), "{printed}");
    file
}

/// Creates a history: overwrites, deletions, transactions, leases, large values and a compaction at a deletion.
pub(crate) fn live(cluster: &Cluster) {
    for ttl in ["600", "1200"] {
        cluster.must(0, &["lease", "grant", ttl]);
    }
    let leases = cluster.json(0, &["lease", "list"]);
    let first = leases["leases"][0]["id"].as_i64().expect("a lease");
    let lease = format!("--lease={first:x}");
    for number in 0..12 {
        let key = format!("k{}", number % 5);
        cluster.must(0, &["put", &key, &number.to_string()]);
    }
    cluster.must(0, &["put", "leased", "v", &lease]);
    cluster.must(0, &["put", "k1", "leased too", &lease]);
    let txn = "\nput t1 1\nput t2 2\ndel k3\nput t3 3\n\n\n";
    assert_eq!(cluster.ctl(0, &["txn"], txn).status, 0);
    for (key, size) in [("large", 1_500_000), ("page", 4_000), ("pages", 9_000)] {
        let value = "x".repeat(size);
        assert_eq!(cluster.ctl(0, &["put", key], &value).status, 0);
    }
    cluster.must(0, &["del", "t2"]);
    let revision = revision(cluster, 0).to_string();
    cluster.must(0, &["compaction", &revision, "--physical"]);
    for (key, value) in [("k1", "after"), ("new", "1"), ("new", "2"), ("gone", "x")] {
        cluster.must(0, &["put", key, value]);
    }
    cluster.must(0, &["del", "gone"]);
}

/// The revision of a member's store.
pub(crate) fn revision(cluster: &Cluster, at: usize) -> i64 {
    let status = cluster.json(at, &["endpoint", "status"]);
    let header = &status[0]["Status"]["header"];
    header["revision"].as_i64().expect("a revision")
}

/// Everything that a snapshot has to preserve, as text.
pub(crate) fn facts(cluster: &Cluster, at: usize) -> Vec<String> {
    let newest = revision(cluster, at);
    let mut facts = vec![format!("revision {newest}")];
    let hash = cluster.json(at, &["endpoint", "hashkv"]);
    let compacted = hash[0]["HashKV"]["compact_revision"].as_i64();
    for revision in (1..=newest).rev().take(8) {
        let hashed = compacted != Some(revision);
        let revision = format!("--rev={revision}");
        let keys = cluster.ctl(at, &["get", "--prefix", "", &revision, "-w", "json"], "");
        facts.push(match serde_json::from_str::<Value>(&keys.stdout) {
            Ok(keys) => format!("{revision} {} {:?}", keys["count"], short(&keys["kvs"])),
            Err(_) => keys.stderr.lines().last().unwrap_or_default().to_owned(),
        });
        // At the compacted revision, etcd returns the hash from before the compaction.
        if !hashed {
            continue;
        }
        let hash = cluster.ctl(at, &["endpoint", "hashkv", &revision, "-w", "json"], "");
        let hash: Value = serde_json::from_str(&hash.stdout).unwrap_or_default();
        facts.push(format!("hash {} {}", revision, hash_of(&hash[0]["HashKV"])));
    }
    let leases = cluster.json(at, &["lease", "list"]);
    let mut ids: Vec<i64> = leases["leases"]
        .as_array()
        .map(|all| {
            all.iter()
                .filter_map(|lease| lease["id"].as_i64())
                .collect()
        })
        .unwrap_or_default();
    ids.sort_unstable();
    for id in ids {
        let id = format!("{id:x}");
        let times = cluster.json(at, &["lease", "timetolive", &id, "--keys"]);
        let mut keys: Vec<String> = times["keys"]
            .as_array()
            .map(|keys| keys.iter().map(ToString::to_string).collect())
            .unwrap_or_default();
        keys.sort();
        facts.push(format!("lease {id} {} {keys:?}", times["granted-ttl"]));
    }
    facts
}

/// Keys as text, with long values replaced by their length.
fn short(kvs: &Value) -> Vec<String> {
    let kvs = kvs.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |kv: &Value| {
        let mut kv = kv.clone();
        let length = kv["value"].as_str().map_or(0, str::len);
        if length > 100 {
            kv["value"] = length.into();
        }
        kv.to_string()
    };
    kvs.iter().map(text).collect()
}

fn hash_of(hash: &Value) -> String {
    let field = |name: &str, other: &str| match hash[name].is_null() {
        true => hash[other].clone(),
        false => hash[name].clone(),
    };
    format!(
        "{} {} {}",
        field("hash", "hash"),
        field("compact_revision", "compactRevision"),
        field("hash_revision", "hashRevision")
    )
}

/// Asserts that the file and the member have the same hash at the same revision.
fn same_hash(peers: &Path, cluster: &Cluster, at: usize, file: &str) {
    // etcdutl writes to the file that it reads.
    let copy = format!("{file}.copy");
    std::fs::copy(file, &copy).expect("a copy");
    let printed = util_json(peers, &["hashkv", &copy]);
    let served = cluster.json(at, &["endpoint", "hashkv"]);
    assert_eq!(hash_of(&printed), hash_of(&served[0]["HashKV"]));
}

/// Starts a cluster of real etcd of this size from a snapshot.
pub(crate) fn etcd_from(peers: &Path, file: &str, size: usize, more: &[&str]) -> Cluster {
    let mut cluster = Cluster::blank(Kind::Etcd, peers, size);
    for number in 0..size {
        let flags = cluster.restore_flags(number);
        let mut arguments = vec!["snapshot", "restore", file];
        arguments.extend(flags.iter().map(String::as_str));
        arguments.extend(more);
        let restored = util(peers, &arguments);
        assert_eq!(restored.status, 0, "{restored:?}");
    }
    for number in 0..size {
        cluster.run(number, "new");
    }
    for number in 0..size {
        cluster.wait_healthy(number);
    }
    cluster
}

// Shows Maintenance.Snapshot: etcdutl accepts it and real etcd starts from it.
#[test]
fn etcd_starts_from_our_snapshot() {
    let Some(peers) = peers("etcd_starts_from_our_snapshot") else {
        return;
    };
    let ours = Cluster::start(Kind::Quorate, &peers, 1);
    live(&ours);
    let file = save(&ours, 0, "one.db");
    let before = facts(&ours, 0);
    let status = util_json(&peers, &["snapshot", "status", &file]);
    assert_eq!(status["revision"].as_i64(), Some(revision(&ours, 0)));
    let keys = ours.json(0, &["get", "--prefix", "", "--keys-only"]);
    assert_eq!(status["totalKey"].as_i64(), keys["count"].as_i64());
    let length = std::fs::metadata(&file).expect("a file").len();
    assert_eq!(status["totalSize"].as_u64(), Some(length - 32), "{status}");
    assert_eq!(status["version"].as_str(), Some("3.7.0"), "{status}");
    // A second snapshot of the same state is equal, except for the consistent index that etcd keeps in it.
    let again = save(&ours, 0, "two.db");
    let status = util_json(&peers, &["snapshot", "status", &again]);
    assert_eq!(status["totalSize"].as_u64(), Some(length - 32), "{status}");
    same_hash(&peers, &ours, 0, &again);
    let theirs = etcd_from(&peers, &file, 1, &[]);
    assert_eq!(facts(&theirs, 0), before, "etcd's on the left");
    // The restored cluster accepts writes.
    let next = revision(&ours, 0) + 1;
    theirs.must(0, &["put", "next", "1"]);
    assert_eq!(revision(&theirs, 0), next);
    let deleted = theirs.must(0, &["del", "--prefix", ""]);
    assert_eq!(
        deleted.trim(),
        (keys["count"].as_i64().unwrap_or(0) + 1).to_string()
    );
}

// Shows Maintenance.Snapshot: from a learner.
#[test]
fn etcd_starts_from_a_learners_snapshot() {
    let Some(peers) = peers("etcd_starts_from_a_learners_snapshot") else {
        return;
    };
    let mut ours = Cluster::start(Kind::Quorate, &peers, 1);
    let learner = ours.prepare();
    let peer = format!("--peer-urls=http://{}", ours.members[learner].peer);
    let name = ours.members[learner].name.clone();
    ours.must(0, &["member", "add", &name, "--learner", &peer]);
    ours.run(learner, "existing");
    live(&ours);
    let newest = revision(&ours, 0);
    let caught_up = eventually(|| {
        let status = ours.ctl(learner, &["endpoint", "status", "-w", "json"], "");
        let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        status[0]["Status"]["header"]["revision"].as_i64() == Some(newest)
    });
    assert!(caught_up, "the learner lags:\n{}", ours.logs());
    let file = save(&ours, learner, "learner.db");
    let before = facts(&ours, 0);
    let theirs = etcd_from(&peers, &file, 3, &[]);
    for at in 0..3 {
        let same = eventually(|| revision(&theirs, at) == newest);
        assert!(same, "etcd's member {at} lags");
        assert_eq!(facts(&theirs, at), before, "etcd's on the left");
    }
    let members = theirs.must(0, &["member", "list"]);
    assert_eq!(members.lines().count(), 3, "{members}");
}

#[test]
fn an_empty_store_makes_a_snapshot_too() {
    let Some(peers) = peers("an_empty_store_makes_a_snapshot_too") else {
        return;
    };
    let ours = Cluster::start(Kind::Quorate, &peers, 1);
    let file = save(&ours, 0, "empty.db");
    let status = util_json(&peers, &["snapshot", "status", &file]);
    assert_eq!(status["totalKey"].as_i64(), Some(0), "{status}");
    same_hash(&peers, &ours, 0, &file);
    let theirs = etcd_from(&peers, &file, 1, &[]);
    assert_eq!(facts(&theirs, 0), facts(&ours, 0));
    // All keys are compacted away: the revision is known from the compaction alone.
    ours.must(0, &["put", "a", "1"]);
    ours.must(0, &["del", "a"]);
    ours.must(0, &["compaction", "3", "--physical"]);
    let file = save(&ours, 0, "nothing.db");
    let theirs = etcd_from(&peers, &file, 1, &[]);
    assert_eq!(facts(&theirs, 0), facts(&ours, 0));
}
