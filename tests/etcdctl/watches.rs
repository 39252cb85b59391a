//! Watches: from now, from a revision, with previous values, through followers, and at compacted revisions.

use crate::story::{Recorder, compare};

/// Watches until `lines` lines have arrived, or etcdctl exits, and records its output.
fn watch(recorder: &mut Recorder, at: usize, arguments: &[&str], lines: usize) {
    let mut all = vec!["watch"];
    all.extend(arguments);
    let running = recorder.cluster.follow(at, &all);
    let printed = running.wait_for(&format!("{lines} lines of {all:?}"), |output| {
        output.matches('\n').count() >= lines
    });
    recorder.note(&format!("{all:?}\n{printed}"));
}

// Shows Watch.Watch: history from a revision, compacted starts, previous values.
#[test]
fn history_is_watched_as_in_etcd() {
    compare("history_is_watched_as_in_etcd", 3, |recorder| {
        let leader = recorder.cluster.leader();
        let follower = (leader + 1) % 3;
        let put = |recorder: &Recorder, key: &str, value: &str| {
            recorder.cluster.must(follower, &["put", key, value]);
        };
        for (key, value) in [("a", "1"), ("a", "2"), ("b", "1"), ("ab", "1")] {
            put(recorder, key, value);
        }
        recorder.cluster.must(leader, &["del", "--prefix", "a"]);
        put(recorder, "a", "3");
        for at in [leader, follower] {
            watch(recorder, at, &["a", "--rev=2"], 12);
            watch(recorder, at, &["a", "--rev=3"], 9);
            watch(recorder, at, &["--prefix", "a", "--rev=3", "--prev-kv"], 21);
            watch(recorder, at, &["a", "b", "--rev=2"], 18);
            watch(recorder, at, &["--prefix", "", "--rev=7", "-w", "json"], 1);
        }
        recorder.cluster.must(follower, &["compaction", "6"]);
        for at in [leader, follower] {
            // The linearizable read waits until this member has applied the compaction; before that it would accept
            // the watches below.
            recorder.cluster.must(at, &["get", "a"]);
            watch(recorder, at, &["--prefix", "a", "--rev=6", "--prev-kv"], 9);
            let answer = recorder.cluster.ctl(at, &["watch", "a", "--rev=5"], "");
            let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
            recorder.note(&format!("{} {}{error}", answer.status, answer.stdout));
        }
    });
}

// Shows Watch.Watch: every member sends the events.
#[test]
fn events_are_watched_through_every_member() {
    compare("events_are_watched_through_every_member", 3, |recorder| {
        let watches: Vec<_> = (0..3)
            .map(|at| {
                // They start at a revision after the store's current one, so that no write can precede them.
                recorder
                    .cluster
                    .follow(at, &["watch", "--prefix", "k", "--rev=2", "--prev-kv"])
            })
            .collect();
        let others: Vec<_> = (0..3)
            .map(|at| recorder.cluster.follow(at, &["watch", "other", "--rev=2"]))
            .collect();
        for round in 0..5 {
            for at in 0..3 {
                let value = format!("{round}.{at}");
                recorder.cluster.must(at, &["put", "k1", &value]);
            }
            recorder.cluster.must(round % 3, &["del", "k1"]);
        }
        recorder.cluster.must(0, &["put", "other", "x"]);
        for watch in &watches {
            // A put prints 3 lines, with the previous value 5; a delete 2, and 4.
            let lines = 5 * (3 + 5 + 5 + 4);
            let printed =
                watch.wait_for("all events", |output| output.matches('\n').count() >= lines);
            recorder.note(&printed);
        }
        for watch in &others {
            let printed = watch.wait_for("one event", |output| output.matches('\n').count() >= 3);
            recorder.note(&printed);
        }
    });
}

// Shows Watch.Watch: several watchers on one stream.
#[test]
fn one_etcdctl_can_watch_much() {
    compare("one_etcdctl_can_watch_much", 1, |recorder| {
        let running = recorder
            .cluster
            .follow(0, &["watch", "--prefix", "k", "--rev=2"]);
        let ops: String = (0..100)
            .map(|number| format!("put k{number:03} v\n"))
            .collect();
        for _ in 0..10 {
            let answer = recorder.cluster.ctl(0, &["txn"], &format!("\n{ops}\n\n"));
            assert_eq!(answer.status, 0, "{answer:?}");
        }
        let lines = 3 * 100 * 10;
        let printed =
            running.wait_for("all events", |output| output.matches('\n').count() >= lines);
        recorder.note(&printed);
    });
}
