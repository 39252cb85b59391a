//! Alarms: raised by a full store or by hand, what they refuse, and how they end.

use crate::process::eventually;
use crate::story::{Teller, compare, compare_with};

/// Puts until the quota is used up.
fn fill(teller: &Teller) {
    let value = "v".repeat(8_000);
    let full = (0..200).any(|number| {
        let key = format!("full{number}");
        teller.cluster.ctl(0, &["put", &key, &value], "").status != 0
    });
    assert!(full, "the quota does not hold:\n{}", teller.cluster.logs());
}

/// Waits until a member's status has an error, or none any more; records it.
fn note_errors(teller: &mut Teller, member: usize, some: bool) {
    let mut errors = String::new();
    let told = eventually(|| {
        let status = teller.cluster.json(member, &["endpoint", "status"]);
        let list = &status[0]["Status"]["errors"];
        errors = list.to_string();
        list.as_array().is_some_and(|list| !list.is_empty()) == some
    });
    assert!(told, "{errors}\n{}", teller.cluster.logs());
    teller.note(&errors);
}

/// IDs as the alarms write them.
fn name_decimals(teller: &mut Teller) {
    for number in 0..teller.cluster.members.len() {
        let id = teller.cluster.id(number);
        let decimal = u64::from_str_radix(&id, 16).expect("an ID").to_string();
        teller.name(decimal, &format!("DECIMAL{number}"));
    }
}

/// Makes space: deletes, forgets the past and, for etcd, gives its file back.
fn empty(teller: &mut Teller) {
    teller.cluster.must(0, &["del", "full", "--prefix"]);
    let status = teller.cluster.json(0, &["endpoint", "status"]);
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    teller
        .cluster
        .must(0, &["compaction", "--physical", &revision]);
    for member in 0..teller.cluster.members.len() {
        let done = teller.cluster.must(member, &["defrag"]);
        let done = done.split('[').next().unwrap_or_default().to_owned();
        teller.note(&done);
    }
}

#[test]
fn a_full_store_takes_deletes_and_nothing_else() {
    let test = "a_full_store_takes_deletes_and_nothing_else";
    compare_with(test, 1, &["--quota-backend-bytes=262144"], |teller| {
        name_decimals(teller);
        teller.at(0, &["put", "a", "1"]);
        teller.at(0, &["lease", "grant", "600", "--lease-id=7"]);
        fill(teller);
        teller.at(0, &["alarm", "list"]);
        note_errors(teller, 0, true);
        teller.at(0, &["put", "small", "x"]);
        teller.at(0, &["lease", "grant", "600"]);
        teller.with_input(0, &["txn"], "\nput b 1\n\n\n");
        teller.with_input(0, &["txn"], "value(\"a\") = \"1\"\n\nget a\n\nput b 1\n\n");
        teller.with_input(0, &["txn"], "value(\"a\") = \"1\"\n\nget a\ndel a\n\n\n");
        teller.at(0, &["get", "a", "--print-value-only"]);
        let health = teller.cluster.ctl(0, &["endpoint", "health"], "");
        let told = format!("{}{}", health.stdout, health.stderr);
        teller.note(&format!("{} {}", health.status, told.contains("NOSPACE")));
        empty(teller);
        // Space alone ends no alarm.
        teller.at(0, &["put", "small", "x"]);
        teller.at(0, &["alarm", "disarm"]);
        teller.at(0, &["alarm", "list"]);
        note_errors(teller, 0, false);
        teller.at(0, &["put", "small", "x"]);
    });
}

#[test]
fn every_member_refuses_under_nospace() {
    let test = "every_member_refuses_under_nospace";
    compare_with(test, 3, &["--quota-backend-bytes=262144"], |teller| {
        fill(teller);
        for member in 0..3 {
            let refused = eventually(|| {
                let put = teller.cluster.ctl(member, &["put", "small", "x"], "");
                put.stderr.contains("database space exceeded")
            });
            assert!(refused, "member {member}:\n{}", teller.cluster.logs());
            // Which members raise it is a matter of time.
            let status = teller.cluster.json(member, &["endpoint", "status"]);
            let errors = status[0]["Status"]["errors"].to_string();
            assert!(errors.contains("alarm:NOSPACE"), "{errors}");
        }
        empty(teller);
        teller.cluster.must(1, &["alarm", "disarm"]);
        for member in 0..3 {
            let taken = eventually(|| {
                let put = teller.cluster.ctl(member, &["put", "small", "x"], "");
                put.status == 0
            });
            assert!(taken, "member {member}:\n{}", teller.cluster.logs());
        }
        let list = teller.cluster.must(2, &["alarm", "list"]);
        teller.note(&list);
    });
}

#[test]
fn disarming_nothing_is_no_error() {
    compare("disarming_nothing_is_no_error", 1, |teller| {
        teller.at(0, &["alarm", "list"]);
        teller.at(0, &["alarm", "disarm"]);
        teller.at(0, &["alarm", "list", "-w", "json"]);
    });
}
