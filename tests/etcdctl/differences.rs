//! Where Quorate answers otherwise than etcd on purpose: rows of docs/differences.md, measured on
//! both, so that the page says what is.

use std::path::Path;

use serde_json::Value;

use crate::cluster::{Cluster, Kind};
use crate::process::peers;
use crate::snapshots::revision;

/// The hash at a revision and the compacted revision that it goes from, or the refusal.
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

/// etcd's check for duplicates does not see how far an open end reaches.
#[test]
fn a_put_under_an_open_ended_delete_is_a_duplicate_here_alone() {
    let test = "a_put_under_an_open_ended_delete_is_a_duplicate_here_alone";
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
    // An end that is not open is seen by both.
    for cluster in [&ours, &theirs] {
        let closed = cluster.ctl(0, &["txn"], "\nput b 1\ndel a c\n\n\n");
        assert!(closed.stderr.contains("duplicate key given"), "{closed:?}");
    }
}

/// etcd keeps the hash that a compaction began with, for as long as it runs.
#[test]
fn the_hash_at_a_compacted_revision_is_each_its_own() {
    let test = "the_hash_at_a_compacted_revision_is_each_its_own";
    let Some(peers) = peers(test) else { return };
    let [mut ours, mut theirs] = both(&peers);
    let mut before = Vec::new();
    for cluster in [&ours, &theirs] {
        for number in 0..8 {
            let (key, value) = (format!("k{}", number % 2), number.to_string());
            cluster.must(0, &["put", &key, &value]);
        }
        assert_eq!(revision(cluster, 0), 9);
        before.push([5, 7].map(|at| hash(cluster, at).expect("a hash")));
        cluster.must(0, &["compaction", "5", "--physical"]);
    }
    assert_eq!(before[0], before[1]);
    let [first, _] = before[0];
    // etcd's is that from before; ours is that of what is left.
    assert_eq!(hash(&theirs, 5), Ok(first));
    let kept = hash(&ours, 5).expect("a hash");
    assert!(kept.1 == 5 && kept.0 != first.0, "{kept:?} {first:?}");
    assert_eq!(hash(&ours, 6), hash(&theirs, 6));
    for cluster in [&ours, &theirs] {
        cluster.must(0, &["compaction", "7", "--physical"]);
    }
    // etcd's goes on below the compacted revision, until it starts again.
    assert_eq!(hash(&theirs, 5), Ok(first));
    assert!(hash(&ours, 5).is_err_and(|said| said.contains("compacted")));
    let kept = hash(&ours, 7).expect("a hash");
    assert_eq!(hash(&theirs, 7).map(|(_, from)| from), Ok(5));
    for cluster in [&mut ours, &mut theirs] {
        cluster.stop(0);
        cluster.run(0, "new");
        cluster.wait_healthy(0);
        assert!(hash(cluster, 5).is_err_and(|said| said.contains("compacted")));
        assert_eq!(hash(cluster, 7), Ok(kept), "{:?}", cluster.kind);
    }
}

/// etcd finds the hash of that compaction when it is asked for the newest, which is named 0 too.
#[test]
fn a_compaction_at_revision_0_does_not_stop_the_hash_here() {
    let test = "a_compaction_at_revision_0_does_not_stop_the_hash_here";
    let Some(peers) = peers(test) else { return };
    let moved = both(&peers).map(|cluster| {
        cluster.must(0, &["compaction", "0", "--physical"]);
        let first = hash(&cluster, 0).expect("a hash");
        cluster.must(0, &["put", "k", "v"]);
        first != hash(&cluster, 0).expect("a hash")
    });
    assert_eq!(moved, [true, false], "ours and etcd's");
}

/// Many keys that share what they are sorted by.
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
    assert!(!theirs.is_sorted(), "etcd's sort is stable by now");
    theirs.sort();
    assert_eq!(ours, theirs);
}
