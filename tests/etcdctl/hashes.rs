//! The hash of the key space equals etcd's for the same history, before and after compactions.

use crate::cluster::Cluster;
use crate::process::eventually;
use crate::story::{Recorder, compare};

/// Records the hash at a revision (0: the newest), once all members return the same: `--physical` waits for one member
/// only, and if no key exists, etcd's hash includes data that the other members have not deleted yet.
fn note(recorder: &mut Recorder, revision: &str) {
    let mut hashes = Vec::new();
    let equal = eventually(|| {
        hashes = (0..recorder.cluster.members.len())
            .map(|at| hash_at(&recorder.cluster, at, revision))
            .collect::<Vec<String>>();
        hashes.windows(2).all(|pair| pair[0] == pair[1])
    });
    assert!(equal, "members differ: {hashes:?}");
    recorder.note(&format!("hash at {revision}: {}", hashes[0]));
}

fn hash_at(cluster: &Cluster, at: usize, revision: &str) -> String {
    let revision = format!("--rev={revision}");
    let answer = cluster.ctl(at, &["endpoint", "hashkv", &revision, "-w", "json"], "");
    if answer.status != 0 {
        return answer
            .stderr
            .lines()
            .last()
            .unwrap_or_default()
            .replace(&cluster.members[at].client, "");
    }
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    let hash = &json[0]["HashKV"];
    format!(
        "{} {} {}",
        hash["hash"], hash["compact_revision"], hash["hash_revision"]
    )
}

/// Waits until every member has applied what the first one has applied.
fn settle(recorder: &Recorder) {
    let revision = |at| {
        let status = recorder.cluster.json(at, &["endpoint", "status"]);
        status[0]["Status"]["header"]["revision"].as_i64()
    };
    let newest = revision(0);
    let equal = eventually(|| (0..recorder.cluster.members.len()).all(|at| revision(at) == newest));
    assert!(
        equal,
        "members do not catch up:\n{}",
        recorder.cluster.logs()
    );
}

// Shows Maintenance.HashKV: equal to etcd's for the same history, before and after compactions.
#[test]
fn hashes_are_etcds_for_the_same_history() {
    compare("hashes_are_etcds_for_the_same_history", 3, |recorder| {
        note(recorder, "0");
        let lease = recorder.cluster.must(0, &["lease", "grant", "600"]);
        assert!(lease.contains("granted"));
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", ""), ("gone", "x")] {
            recorder.cluster.must(0, &["put", key, value]);
        }
        let txn = "\nput d 1\nput e 1\ndel a\nput f 1\n\n\n";
        assert_eq!(recorder.cluster.ctl(1, &["txn"], txn).status, 0);
        recorder.cluster.must(2, &["del", "gone"]);
        recorder.cluster.must(2, &["del", "--prefix", "d"]);
        settle(recorder);
        for revision in 1..=12 {
            note(recorder, &revision.to_string());
        }
        // Compact at a put, at a delete, and when no key exists.
        for compaction in ["4", "8", "9"] {
            recorder
                .cluster
                .must(1, &["compaction", compaction, "--physical"]);
            recorder.cluster.must(1, &["put", "b", compaction]);
            settle(recorder);
            // At a compacted revision the hash stays what it was before the compaction.
            for revision in 1..=14 {
                note(recorder, &revision.to_string());
            }
        }
        recorder.cluster.must(0, &["del", "--from-key", ""]);
        settle(recorder);
        note(recorder, "0");
        recorder
            .cluster
            .must(1, &["compaction", "11", "--physical"]);
        settle(recorder);
        for revision in [10, 11, 12, 13, 14] {
            note(recorder, &revision.to_string());
        }
    });
}
