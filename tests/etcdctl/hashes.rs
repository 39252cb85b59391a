//! The hash of the key space is etcd's for the same history, before and after compactions.

use crate::cluster::Cluster;
use crate::process::eventually;
use crate::story::{Teller, compare};

/// Records the hash at a revision (0: now), once all members return the same: `--physical` waits for only one of them,
/// and where no key exists etcd's hash includes data that the others have not deleted yet.
fn note(teller: &mut Teller, revision: &str) {
    let mut hashes = Vec::new();
    let equal = eventually(|| {
        hashes = (0..teller.cluster.members.len())
            .map(|at| said(&teller.cluster, at, revision))
            .collect::<Vec<String>>();
        hashes.windows(2).all(|pair| pair[0] == pair[1])
    });
    assert!(equal, "members differ: {hashes:?}");
    teller.note(&format!("hash at {revision}: {}", hashes[0]));
}

fn said(cluster: &Cluster, at: usize, revision: &str) -> String {
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

/// Waits until every member has applied what the first has.
fn settle(teller: &Teller) {
    let revision = |at| {
        let status = teller.cluster.json(at, &["endpoint", "status"]);
        status[0]["Status"]["header"]["revision"].as_i64()
    };
    let newest = revision(0);
    let equal = eventually(|| (0..teller.cluster.members.len()).all(|at| revision(at) == newest));
    assert!(equal, "members do not catch up:\n{}", teller.cluster.logs());
}

// Shows Maintenance.HashKV: equal to etcd's for the same history, before and after compactions.
#[test]
fn hashes_are_etcds_for_the_same_history() {
    compare("hashes_are_etcds_for_the_same_history", 3, |teller| {
        note(teller, "0");
        let lease = teller.cluster.must(0, &["lease", "grant", "600"]);
        assert!(lease.contains("granted"));
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", ""), ("gone", "x")] {
            teller.cluster.must(0, &["put", key, value]);
        }
        let txn = "\nput d 1\nput e 1\ndel a\nput f 1\n\n\n";
        assert_eq!(teller.cluster.ctl(1, &["txn"], txn).status, 0);
        teller.cluster.must(2, &["del", "gone"]);
        teller.cluster.must(2, &["del", "--prefix", "d"]);
        settle(teller);
        for revision in 1..=12 {
            note(teller, &revision.to_string());
        }
        // Compact on a put, then on a delete, then let nothing live.
        for compaction in ["4", "8", "9"] {
            teller
                .cluster
                .must(1, &["compaction", compaction, "--physical"]);
            teller.cluster.must(1, &["put", "b", compaction]);
            settle(teller);
            // At the revision of a compaction the hash stays what it was before that.
            for revision in 1..=14 {
                note(teller, &revision.to_string());
            }
        }
        teller.cluster.must(0, &["del", "--from-key", ""]);
        settle(teller);
        note(teller, "0");
        teller.cluster.must(1, &["compaction", "11", "--physical"]);
        settle(teller);
        for revision in [10, 11, 12, 13, 14] {
            note(teller, &revision.to_string());
        }
    });
}
