//! Alarms: activated by a full store or by hand, what they refuse, and how they are disarmed.

use crate::process::eventually;
use crate::story::{Recorder, compare, compare_with};

/// Puts keys until the quota is exceeded.
fn fill(recorder: &Recorder) {
    let value = "v".repeat(8_000);
    let full = (0..200).any(|number| {
        let key = format!("full{number}");
        recorder.cluster.ctl(0, &["put", &key, &value], "").status != 0
    });
    assert!(
        full,
        "the quota does not hold:\n{}",
        recorder.cluster.logs()
    );
}

/// Waits until a member's status has errors, or has none; records them.
fn note_errors(recorder: &mut Recorder, member: usize, some: bool) {
    let mut errors = String::new();
    let reported = eventually(|| {
        let status = recorder.cluster.json(member, &["endpoint", "status"]);
        let list = &status[0]["Status"]["errors"];
        errors = list.to_string();
        list.as_array().is_some_and(|list| !list.is_empty()) == some
    });
    assert!(reported, "{errors}\n{}", recorder.cluster.logs());
    recorder.note(&errors);
}

/// Names the IDs in the decimal form that alarms have.
fn name_decimals(recorder: &mut Recorder) {
    for number in 0..recorder.cluster.members.len() {
        let id = recorder.cluster.id(number);
        let decimal = u64::from_str_radix(&id, 16).expect("an ID").to_string();
        recorder.name(decimal, &format!("DECIMAL{number}"));
    }
}

/// Frees space: deletes, compacts and defragments.
fn empty(recorder: &mut Recorder) {
    recorder.cluster.must(0, &["del", "full", "--prefix"]);
    let status = recorder.cluster.json(0, &["endpoint", "status"]);
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    recorder
        .cluster
        .must(0, &["compaction", "--physical", &revision]);
    for member in 0..recorder.cluster.members.len() {
        let done = recorder.cluster.must(member, &["defrag"]);
        let done = done.split('[').next().unwrap_or_default().to_owned();
        recorder.note(&done);
    }
}

#[test]
fn a_full_store_takes_deletes_and_nothing_else() {
    let test = "a_full_store_takes_deletes_and_nothing_else";
    compare_with(test, 1, &["--quota-backend-bytes=262144"], |recorder| {
        name_decimals(recorder);
        recorder.at(0, &["put", "a", "1"]);
        recorder.at(0, &["lease", "grant", "600", "--lease-id=7"]);
        fill(recorder);
        recorder.at(0, &["alarm", "list"]);
        note_errors(recorder, 0, true);
        recorder.at(0, &["put", "small", "x"]);
        recorder.at(0, &["lease", "grant", "600"]);
        recorder.with_input(0, &["txn"], "\nput b 1\n\n\n");
        recorder.with_input(0, &["txn"], "value(\"a\") = \"1\"\n\nget a\n\nput b 1\n\n");
        recorder.with_input(0, &["txn"], "value(\"a\") = \"1\"\n\nget a\ndel a\n\n\n");
        recorder.at(0, &["get", "a", "--print-value-only"]);
        let health = recorder.cluster.ctl(0, &["endpoint", "health"], "");
        let printed = format!("{}{}", health.stdout, health.stderr);
        recorder.note(&format!(
            "{} {}",
            health.status,
            printed.contains("NOSPACE")
        ));
        empty(recorder);
        // Free space alone does not disarm the alarm.
        recorder.at(0, &["put", "small", "x"]);
        recorder.at(0, &["alarm", "disarm"]);
        recorder.at(0, &["alarm", "list"]);
        note_errors(recorder, 0, false);
        recorder.at(0, &["put", "small", "x"]);
    });
}

#[test]
fn every_member_refuses_under_nospace() {
    let test = "every_member_refuses_under_nospace";
    compare_with(test, 3, &["--quota-backend-bytes=262144"], |recorder| {
        fill(recorder);
        for member in 0..3 {
            let refused = eventually(|| {
                let put = recorder.cluster.ctl(member, &["put", "small", "x"], "");
                put.stderr.contains("database space exceeded")
            });
            assert!(refused, "member {member}:\n{}", recorder.cluster.logs());
            // How many members have raised it by now depends on time.
            let status = recorder.cluster.json(member, &["endpoint", "status"]);
            let errors = status[0]["Status"]["errors"].to_string();
            assert!(errors.contains("alarm:NOSPACE"), "{errors}");
        }
        empty(recorder);
        recorder.cluster.must(1, &["alarm", "disarm"]);
        for member in 0..3 {
            let taken = eventually(|| {
                let put = recorder.cluster.ctl(member, &["put", "small", "x"], "");
                put.status == 0
            });
            assert!(taken, "member {member}:\n{}", recorder.cluster.logs());
        }
        let list = recorder.cluster.must(2, &["alarm", "list"]);
        recorder.note(&list);
    });
}

#[test]
fn disarming_nothing_is_no_error() {
    compare("disarming_nothing_is_no_error", 1, |recorder| {
        recorder.at(0, &["alarm", "list"]);
        recorder.at(0, &["alarm", "disarm"]);
        recorder.at(0, &["alarm", "list", "-w", "json"]);
    });
}
