//! put, get, del, txn and compaction through every member, with their errors.

use crate::story::{Recorder, compare};

/// Reads all keys with every option of etcdctl get.
fn read(recorder: &mut Recorder, at: usize) {
    for arguments in [
        &["get", "a"][..],
        &["get", "missing"],
        &["get", "a", "d"],
        &["get", "--prefix", "a"],
        &["get", "--prefix", ""],
        &["get", "--from-key", "b"],
        &["get", "--prefix", "a", "--limit=2"],
        &["get", "--prefix", "a", "--limit=2", "-w", "json"],
        &["get", "--prefix", "a", "--keys-only", "-w", "json"],
        &["get", "--prefix", "a", "--count-only", "-w", "json"],
        &[
            "get",
            "--prefix",
            "a",
            "--count-only",
            "--limit=1",
            "-w",
            "json",
        ],
        &["get", "--prefix", "a", "--rev=4", "-w", "json"],
        &["get", "--prefix", "a", "--rev=99"],
        &["get", "--prefix", "a", "--consistency=s", "-w", "json"],
        &["get", "--prefix", "", "--print-value-only"],
        &["get", "--prefix", "", "--order=DESCEND"],
        &["get", "--prefix", "", "--sort-by=VERSION", "--limit=3"],
        &[
            "get",
            "--prefix",
            "",
            "--sort-by=VERSION",
            "--order=ASCEND",
            "--limit=3",
        ],
        &["get", "--prefix", "", "--sort-by=VALUE", "--order=DESCEND"],
        &["get", "--prefix", "", "--sort-by=CREATE", "--order=DESCEND"],
        &[
            "get",
            "--prefix",
            "",
            "--sort-by=MODIFY",
            "--order=DESCEND",
            "--keys-only",
        ],
        &[
            "get",
            "--prefix",
            "",
            "--sort-by=VALUE",
            "--keys-only",
            "-w",
            "json",
        ],
        &["get", "--prefix", "", "-w", "fields"],
    ] {
        recorder.at(at, arguments);
    }
}

// Shows KV.Put, KV.Range, KV.DeleteRange: etcdctl's put, get and del with their options and errors.
#[test]
fn puts_gets_and_deletes_are_etcds() {
    compare("puts_gets_and_deletes_are_etcds", 1, |recorder| {
        recorder.at(0, &["get", "--prefix", "", "-w", "json"]);
        for (key, value) in [("a", "1"), ("a1", "x"), ("a2", "y"), ("b", "2"), ("a", "3")] {
            recorder.at(0, &["put", key, value, "-w", "json"]);
        }
        recorder.at(0, &["put", "a", "4", "--prev-kv", "-w", "json"]);
        recorder.at(
            0,
            &["put", "a", "--ignore-value", "--prev-kv", "-w", "json"],
        );
        recorder.at(0, &["put", "a", "5", "--ignore-lease"]);
        recorder.at(0, &["put", "missing", "--ignore-value"]);
        recorder.at(0, &["put", "missing", "5", "--ignore-lease"]);
        recorder.at(0, &["put", "a", "5", "--lease=123"]);
        recorder.at(0, &["put", "", "5"]);
        recorder.at(0, &["put", "--", "-dash", "-value"]);
        read(recorder, 0);
        recorder.at(0, &["del", "missing", "-w", "json"]);
        recorder.at(0, &["del", "a1", "--prev-kv", "-w", "json"]);
        recorder.at(0, &["del", "--prefix", "a", "--prev-kv"]);
        recorder.at(0, &["del", "--from-key", "b"]);
        recorder.at(0, &["del", "x", "z", "-w", "json"]);
        recorder.at(0, &["get", "--prefix", "", "--rev=5", "-w", "json"]);
    });
}

// Shows KV.Put, KV.Range, KV.DeleteRange: every member answers, linearizable and serializable.
#[test]
fn every_member_answers_as_etcds_do() {
    compare("every_member_answers_as_etcds_do", 3, |recorder| {
        let leader = recorder.cluster.leader();
        let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
        // Roles identify the members, because the two clusters may have different leaders.
        let members = [leader, one, other];
        for (role, at) in ["leader", "follower", "other follower"].iter().zip(members) {
            recorder.note(role);
            for (key, value) in [("a", "1"), ("a1", role), ("a2", "y"), ("b", "2")] {
                answer(recorder, at, &["put", key, value, "-w", "json"]);
            }
            for arguments in [
                &["get", "--prefix", "a", "-w", "json"][..],
                &["get", "--prefix", "a", "--limit=1", "-w", "json"],
                &["get", "--prefix", "a", "--rev=99"],
                &["put", "missing", "--ignore-value"],
                &["del", "a1", "--prev-kv", "-w", "json"],
                &["compaction", "99"],
                &["compaction", "3"],
            ] {
                answer(recorder, at, arguments);
            }
            // A write that one member acknowledged is read at every member.
            for at in members {
                answer(recorder, at, &["get", "--prefix", "", "-w", "json"]);
            }
        }
    });
}

/// Records etcdctl's output and error, without naming the member.
fn answer(recorder: &mut Recorder, at: usize, arguments: &[&str]) {
    let answer = recorder.cluster.ctl(at, arguments, "");
    let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
    recorder.note(&format!(
        "{arguments:?}\n{}\n{}{error}",
        answer.status, answer.stdout
    ));
}

// Shows KV.Txn: etcdctl's txn, compares, both branches, errors.
#[test]
fn transactions_are_etcds() {
    compare("transactions_are_etcds", 1, |recorder| {
        recorder.at(0, &["put", "a", "1"]);
        recorder.at(0, &["put", "b", "2"]);
        for input in [
            "val(\"a\") = \"1\"\n\nput a 2\nget a\n\nget b\n\n",
            "val(\"a\") = \"1\"\n\nput a 3\n\nget b\ndel b\n\n",
            "mod(\"a\") > \"1\"\nver(\"a\") = \"2\"\n\nput c 1\nget --prefix a\ndel b\n\nget a\n\n",
            "create(\"missing\") = \"0\"\n\nput missing x\n\nget missing\n\n",
            "val(\"nothing\") != \"1\"\n\nget a\n\nput nothing here\n\n",
            "\nput a 1\nput a 2\n\n\n",
            "\ndel a\nput a 2\n\n\n",
            "\ndel --prefix a\nput a2 2\n\n\n",
            "\nput x 1 --lease=77\n\n\n",
            "\nput new 1\nget --rev=99 a\n\n\n",
            "\nget new\nget --prefix a --limit=1\n\n\n",
        ] {
            recorder.with_input(0, &["txn"], input);
            recorder.with_input(0, &["txn", "-w", "json"], input);
        }
        let many: String = (0..129)
            .map(|number| format!("put k{number} v\n"))
            .collect();
        recorder.with_input(0, &["txn", "-w", "json"], &format!("\n{many}\n\n"));
        recorder.at(0, &["get", "--prefix", "", "-w", "json"]);
    });
}

// Shows KV.Compact: errors below and above the allowed revisions, and the revisions that stay readable.
#[test]
fn compaction_is_etcds() {
    compare("compaction_is_etcds", 1, |recorder| {
        recorder.at(0, &["compaction", "2"]);
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")] {
            recorder.at(0, &["put", key, value]);
        }
        recorder.at(0, &["del", "b"]);
        for revision in ["99", "0", "4", "4", "3", "6", "-1"] {
            recorder.at(0, &["compaction", "--", revision]);
            for at in ["2", "3", "4", "5", "6"] {
                let revision = format!("--rev={at}");
                recorder.at(0, &["get", "--prefix", "", &revision, "-w", "json"]);
            }
        }
        recorder.at(0, &["compaction", "6", "--physical"]);
    });
}
