//! Watches: from now, from a revision, with keys as they were, through followers, compacted.

use crate::story::{Teller, compare};

/// Watches until `lines` lines have arrived, or etcdctl exits, and records its output.
fn watch(teller: &mut Teller, at: usize, arguments: &[&str], lines: usize) {
    let mut all = vec!["watch"];
    all.extend(arguments);
    let running = teller.cluster.follow(at, &all);
    let said = running.wait_for(&format!("{lines} lines of {all:?}"), |output| {
        output.matches('\n').count() >= lines
    });
    teller.note(&format!("{all:?}\n{said}"));
}

// Shows Watch.Watch: history from a revision, compacted starts, previous values.
#[test]
fn history_is_watched_as_in_etcd() {
    compare("history_is_watched_as_in_etcd", 3, |teller| {
        let leader = teller.cluster.leader();
        let follower = (leader + 1) % 3;
        let put = |teller: &Teller, key: &str, value: &str| {
            teller.cluster.must(follower, &["put", key, value]);
        };
        for (key, value) in [("a", "1"), ("a", "2"), ("b", "1"), ("ab", "1")] {
            put(teller, key, value);
        }
        teller.cluster.must(leader, &["del", "--prefix", "a"]);
        put(teller, "a", "3");
        for at in [leader, follower] {
            watch(teller, at, &["a", "--rev=2"], 12);
            watch(teller, at, &["a", "--rev=3"], 9);
            watch(teller, at, &["--prefix", "a", "--rev=3", "--prev-kv"], 21);
            watch(teller, at, &["a", "b", "--rev=2"], 18);
            watch(teller, at, &["--prefix", "", "--rev=7", "-w", "json"], 1);
        }
        teller.cluster.must(follower, &["compaction", "6"]);
        for at in [leader, follower] {
            // A member that has not applied the compaction yet would answer the requests below.
            teller.cluster.must(at, &["get", "a"]);
            watch(teller, at, &["--prefix", "a", "--rev=6", "--prev-kv"], 9);
            let said = teller.cluster.ctl(at, &["watch", "a", "--rev=5"], "");
            let error = said.stderr.lines().last().unwrap_or_default().to_owned();
            teller.note(&format!("{} {}{error}", said.status, said.stdout));
        }
    });
}

// Shows Watch.Watch: every member shows what happens.
#[test]
fn what_happens_is_watched_through_every_member() {
    compare(
        "what_happens_is_watched_through_every_member",
        3,
        |teller| {
            let watches: Vec<_> = (0..3)
                .map(|at| {
                    // Starts in the future of an empty store, so that no write can come before it.
                    teller
                        .cluster
                        .follow(at, &["watch", "--prefix", "k", "--rev=2", "--prev-kv"])
                })
                .collect();
            let others: Vec<_> = (0..3)
                .map(|at| teller.cluster.follow(at, &["watch", "other", "--rev=2"]))
                .collect();
            for round in 0..5 {
                for at in 0..3 {
                    let value = format!("{round}.{at}");
                    teller.cluster.must(at, &["put", "k1", &value]);
                }
                teller.cluster.must(round % 3, &["del", "k1"]);
            }
            teller.cluster.must(0, &["put", "other", "x"]);
            for watch in &watches {
                // A put shows 3 lines, with the key before it 5; a delete 2, and 4.
                let lines = 5 * (3 + 5 + 5 + 4);
                let said =
                    watch.wait_for("all events", |output| output.matches('\n').count() >= lines);
                teller.note(&said);
            }
            for watch in &others {
                let said = watch.wait_for("one event", |output| output.matches('\n').count() >= 3);
                teller.note(&said);
            }
        },
    );
}

// Shows Watch.Watch: several watchers on one stream.
#[test]
fn one_etcdctl_can_watch_much() {
    compare("one_etcdctl_can_watch_much", 1, |teller| {
        let running = teller
            .cluster
            .follow(0, &["watch", "--prefix", "k", "--rev=2"]);
        let ops: String = (0..100)
            .map(|number| format!("put k{number:03} v\n"))
            .collect();
        for _ in 0..10 {
            let said = teller.cluster.ctl(0, &["txn"], &format!("\n{ops}\n\n"));
            assert_eq!(said.status, 0, "{said:?}");
        }
        let lines = 3 * 100 * 10;
        let said = running.wait_for("all events", |output| output.matches('\n').count() >= lines);
        teller.note(&said);
    });
}
