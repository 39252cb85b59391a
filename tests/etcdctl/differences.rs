//! Deliberate differences from etcd: tests of rows in docs/differences.md, run against both servers, so that the page
//! is correct.

use std::path::Path;

use serde_json::Value;

use crate::cluster::{Cluster, Kind};
use crate::process::peers;
use crate::snapshots::revision;

/// The hash at a revision and the compacted revision that it starts from, or the error.
fn hash(cluster: &Cluster, revision: i64) -> Result<(u64, i64), String> {
    let revision = format!("--rev={revision}");
    let answer = cluster.ctl(0, &["endpoint", "hashkv", &revision, "-w", "json"], "");
    if answer.status != 0 {
        return Err(answer.stderr);
    }
    let json: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    let hash = &json[0]["HashKV"];
    let (value, compacted) = (&hash["hash"], &hash["compact_revision"]);
    Ok((
        value.as_u64().unwrap_or_else(|| panic!("no hash: {json}")),
        compacted.as_i64().unwrap_or_default(),
    ))
}

fn both(peers: &Path) -> [Cluster; 2] {
    [Kind::Quorate, Kind::Etcd].map(|kind| Cluster::start(kind, peers, 1))
}

/// etcd's check for duplicate keys does not detect an overlap with an open-ended range.
#[test]
fn put_under_open_ended_delete_is_a_duplicate() {
    let test = "put_under_open_ended_delete_is_a_duplicate";
    let Some(peers) = peers(test) else { return };
    let [ours, theirs] = both(&peers);
    for (txn, left) in [
        ("\nput b 1\ndel a --from-key\n\n\n", ""),
        ("\ndel a --from-key\nput b 2\n\n\n", "b\n2\n"),
    ] {
        let refused = ours.ctl(0, &["txn"], txn);
        assert!(
            refused.stderr.contains("duplicate key given"),
            "{refused:?}"
        );
        let taken = theirs.ctl(0, &["txn"], txn);
        assert_eq!(taken.status, 0, "{taken:?}");
        assert_eq!(theirs.must(0, &["get", "b"]), left, "in its order: {txn}");
    }
    // With a closed range, both detect the overlap.
    for cluster in [&ours, &theirs] {
        let closed = cluster.ctl(0, &["txn"], "\nput b 1\ndel a c\n\n\n");
        assert!(closed.stderr.contains("duplicate key given"), "{closed:?}");
    }
}

/// Found by comparing `HashKV` at one revision before and after a compaction at that revision: ours returned the hash
/// of the remaining data, which cannot be compared with the earlier one. Now both keep the earlier hash until they
/// restart.
#[test]
fn hash_at_the_compact_revision_stays() {
    let test = "hash_at_the_compact_revision_stays";
    let Some(peers) = peers(test) else { return };
    let [mut ours, mut theirs] = both(&peers);
    let hashes = [&ours, &theirs].map(|cluster| {
        for number in 0..8 {
            let (key, value) = (format!("k{}", number % 2), number.to_string());
            cluster.must(0, &["put", &key, &value]);
        }
        cluster.must(0, &["del", "k1"]);
        assert_eq!(revision(cluster, 0), 10);
        let before = [5, 7, 10].map(|at| hash(cluster, at).expect("a hash"));
        // A revision in the middle, one whose key has been overwritten since, and that of a tombstone.
        let mut after = Vec::new();
        for at in ["5", "7", "10"] {
            cluster.must(0, &["compaction", at, "--physical"]);
            after.extend([5, 7, 10].map(|at| hash(cluster, at)));
        }
        // Equal to the hashes before the compactions, whichever compaction came last.
        assert!([0, 3, 6].iter().all(|at| after[*at] == Ok(before[0])));
        assert_eq!(after[4].as_ref().map(|hash| hash.1), Ok(5));
        assert_eq!(after[4], after[7]);
        assert_eq!(after[8].as_ref().map(|hash| hash.1), Ok(7));
        (before, after)
    });
    assert_eq!(hashes[0], hashes[1]);
    // Only at compacted revisions: at others below the last compaction there is no hash.
    for cluster in [&ours, &theirs] {
        for at in [4, 6, 9] {
            assert!(hash(cluster, at).is_err_and(|error| error.contains("compacted")));
        }
    }
    // etcd loses them when it stops. Ours replays its log, and with it the compactions since its last checkpoint.
    for cluster in [&mut ours, &mut theirs] {
        cluster.stop(0);
        cluster.run(0, "new");
        cluster.wait_healthy(0);
    }
    assert_eq!(hash(&ours, 7), hashes[0].1[4]);
    assert!(hash(&theirs, 7).is_err_and(|error| error.contains("compacted")));
    assert_eq!(hash(&theirs, 10).map(|(_, from)| from), Ok(10));
}

/// For the newest revision, which is requested as 0, etcd returns the hash of a compaction at 0.
#[test]
fn compaction_at_0_keeps_the_hash() {
    let test = "compaction_at_0_keeps_the_hash";
    let Some(peers) = peers(test) else { return };
    let moved = both(&peers).map(|cluster| {
        cluster.must(0, &["compaction", "0", "--physical"]);
        let first = hash(&cluster, 0).expect("a hash");
        cluster.must(0, &["put", "k", "v"]);
        first != hash(&cluster, 0).expect("a hash")
    });
    assert_eq!(moved, [true, false], "ours and etcd's");
}

/// Many keys with equal values of the sort target.
#[test]
fn ties_in_a_sort_are_in_the_order_of_keys_here() {
    let test = "ties_in_a_sort_are_in_the_order_of_keys_here";
    let Some(peers) = peers(test) else { return };
    let [ours, theirs] = both(&peers);
    let puts: String = (0..60)
        .map(|number| format!("put k{number:02} {}\n", number * 7 % 3))
        .collect();
    let sorted = |cluster: &Cluster| {
        assert_eq!(cluster.ctl(0, &["txn"], &format!("\n{puts}\n\n")).status, 0);
        let all = ["get", "--prefix", "k", "--sort-by=VALUE", "--order=ASCEND"];
        let text = cluster.must(0, &all);
        let lines: Vec<&str> = text.lines().collect();
        let pair = |pair: &[&str]| (pair[1].to_owned(), pair[0].to_owned());
        lines.chunks(2).map(pair).collect::<Vec<(String, String)>>()
    };
    let (ours, mut theirs) = (sorted(&ours), sorted(&theirs));
    assert!(ours.is_sorted(), "{ours:?}");
    let values = |all: &[(String, String)]| all.iter().map(|(value, _)| value.clone()).collect();
    let (own, other): (Vec<String>, Vec<String>) = (values(&ours), values(&theirs));
    assert_eq!(own, other);
    assert!(!theirs.is_sorted(), "etcd's sort has become stable");
    theirs.sort();
    assert_eq!(ours, theirs);
}
