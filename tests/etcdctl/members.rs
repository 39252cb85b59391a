//! Membership: list, add as learner, promote, remove, update, and what a learner refuses.

use crate::cluster::Answer;
use crate::process::eventually;
use crate::story::{Teller, compare, compare_with};

/// Adds a learner through a member and gives it names.
fn add(teller: &mut Teller, at: usize, flags: &[&str]) -> usize {
    let new = teller.cluster.prepare();
    let name = teller.cluster.members[new].name.clone();
    let urls = format!("--peer-urls=http://{}", teller.cluster.members[new].peer);
    let mut all = vec!["member", "add", &name, &urls];
    all.extend(flags);
    let said = teller.cluster.change(at, &all);
    teller.introduce(new);
    // The names of the others come in the order of their IDs, which is chance.
    let line = said.stdout.lines().next().unwrap_or_default().to_owned();
    let error = said.stderr.lines().last().unwrap_or_default().to_owned();
    teller.note(&format!("{} {line} {error}", said.status));
    new
}

/// Notes the members in the order of their names.
fn list(teller: &mut Teller, at: usize) {
    list_with(teller, at, "--consistency=l");
}

fn list_with(teller: &mut Teller, at: usize, consistency: &str) {
    let said = teller.cluster.must(at, &["member", "list", consistency]);
    let mut lines: Vec<&str> = said
        .lines()
        .map(|line| line.split_once(", ").map_or(line, |(_, rest)| rest))
        .collect();
    lines.sort_unstable();
    teller.note(&lines.join("\n"));
}

fn note_last(teller: &mut Teller, at: usize, arguments: &[&str]) -> i32 {
    let said = teller.cluster.ctl(at, arguments, "");
    let error = said.stderr.lines().last().unwrap_or_default().to_owned();
    teller.note(&format!(
        "{arguments:?} {} {}{error}",
        said.status, said.stdout
    ));
    said.status
}

/// Waits until a learner has been promoted through a member.
fn promote(teller: &mut Teller, at: usize, id: &str) {
    let mut said = String::new();
    let promoted = eventually(|| {
        let answer = teller.cluster.ctl(at, &["member", "promote", id], "");
        said = answer.stdout;
        let behind = answer.stderr.contains("in sync with leader");
        assert!(answer.status == 0 || behind, "{}", answer.stderr);
        answer.status == 0
    });
    assert!(promoted, "never in sync:\n{}", teller.cluster.logs());
    teller.note(&said);
}

// Shows Cluster.MemberAdd, Cluster.MemberPromote, Cluster.MemberRemove, Cluster.MemberList: growth by learners, refusals, shrinking.
#[test]
fn growth_by_learners_as_in_etcd() {
    compare("growth_by_learners_as_in_etcd", 1, |teller| {
        list(teller, 0);
        teller.cluster.must(0, &["put", "before", "growth"]);
        let learner = add(teller, 0, &["--learner"]);
        let id = teller.cluster.id(learner);
        list(teller, 0);
        // It has not started, so it is not in sync; and one learner at a time is enough.
        note_last(teller, 0, &["member", "promote", &id]);
        let surplus = [
            "member",
            "add",
            "mx",
            "--learner",
            "--peer-urls=http://127.0.0.1:1",
        ];
        note_last(teller, 0, &surplus);
        let taken = format!(
            "--peer-urls=http://{}",
            teller.cluster.members[learner].peer
        );
        let again = ["member", "add", "mx", "--learner", &taken];
        // etcd makes IDs of addresses and the second: within the same one it is the ID that it
        // finds taken.
        let passed = eventually(|| {
            let answer = teller.cluster.ctl(0, &again, "");
            !answer.stderr.contains("member ID already exist")
        });
        assert!(passed, "the ID is taken for good");
        note_last(teller, 0, &again);
        teller.cluster.run(learner, "existing");
        let copied = eventually(|| {
            let arguments = ["get", "before", "--consistency=s", "--command-timeout=2s"];
            teller.cluster.ctl(learner, &arguments, "").stdout == "before\ngrowth\n"
        });
        assert!(
            copied,
            "the learner has no data:\n{}",
            teller.cluster.logs()
        );
        refusals(teller, learner);
        promote(teller, 0, &id);
        list(teller, 0);
        teller.cluster.wait_healthy(learner);
        note_last(teller, 0, &["member", "promote", &id]);
        note_last(teller, learner, &["put", "through", "the new one"]);
        note_last(teller, 0, &["member", "promote", "abc"]);
        note_last(teller, 0, &["member", "remove", "abc"]);
        let update = ["member", "update", "abc", "--peer-urls=http://127.0.0.1:1"];
        note_last(teller, 0, &update);
        let third = add(teller, learner, &["--learner"]);
        let third_id = teller.cluster.id(third);
        teller.cluster.run(third, "existing");
        promote(teller, learner, &third_id);
        teller.cluster.wait_healthy(third);
        list(teller, third);
        note_last(teller, 0, &["member", "remove", &third_id]);
        list(teller, learner);
        note_last(teller, 0, &["member", "remove", &third_id]);
        note_last(teller, learner, &["get", "--prefix", "", "-w", "json"]);
    });
}

/// The first line and the error that `member add` gave, with a name for the new ID.
fn note_added(teller: &mut Teller, new: usize, said: &Answer) {
    let line = said.stdout.lines().next().unwrap_or_default().to_owned();
    if let Some(id) = line.split_whitespace().nth(1) {
        teller.name(id.to_owned(), &format!("ID{new}"));
    }
    let member = &teller.cluster.members[new];
    let (client, peer) = (member.client.clone(), member.peer.clone());
    teller.name(client, &format!("CLIENT{new}"));
    teller.name(peer, &format!("PEER{new}"));
    let error = said.stderr.lines().last().unwrap_or_default().to_owned();
    teller.note(&format!("add {new}: {} {line} {error}", said.status));
}

/// Records this member's own member list, sorted by name.
fn list_local(teller: &mut Teller, at: usize) {
    list_with(teller, at, "--consistency=s");
}

/// A cluster grows by voters, as every guide for hosts does it: one member, then two, then three,
/// then one goes.
fn grow_by_voters(teller: &mut Teller) {
    teller.cluster.must(0, &["put", "before", "growth"]);
    for new in [1, 2] {
        assert_eq!(teller.cluster.prepare(), new);
        let url = format!("--peer-urls=http://{}", teller.cluster.members[new].peer);
        let add = ["member", "add", &format!("m{new}"), &url];
        let said = teller.cluster.change(0, &add);
        note_added(teller, new, &said);
        list_local(teller, 0);
        if new == 1 {
            // One of two: nothing that needs a quorum is answered.
            for question in [&["get", "before"][..], &["member", "list"]] {
                let mut all = question.to_vec();
                all.push("--command-timeout=2s");
                note_last(teller, 0, &all);
            }
            let third = ["member", "add", "mx", "--peer-urls=http://127.0.0.1:1"];
            note_last(teller, 0, &third);
        }
        teller.cluster.run(new, "existing");
        teller.cluster.wait_healthy(new);
        list(teller, new);
        let key = format!("through-{new}");
        note_last(teller, new, &["put", &key, "1"]);
    }
    let id = teller.cluster.id(0);
    teller.name(id.clone(), "ID0");
    let remove = ["member", "remove", &id];
    let said = teller.cluster.change(1, &remove);
    teller.note(&format!("{} {}", said.status, said.stdout));
    list(teller, 2);
    note_last(teller, 2, &["get", "--prefix", ""]);
}

// Shows Cluster.MemberAdd, Cluster.MemberRemove, Cluster.MemberList: growth from one member by voters, which are answered before they start.
#[test]
fn a_cluster_grows_by_voters_as_in_etcd() {
    compare("a_cluster_grows_by_voters_as_in_etcd", 1, grow_by_voters);
}

#[test]
fn growth_by_voters_without_strict_check() {
    let test = "growth_by_voters_without_strict_check";
    compare_with(test, 1, &["--strict-reconfig-check=false"], |teller| {
        teller.cluster.must(0, &["put", "before", "growth"]);
        assert_eq!(teller.cluster.prepare(), 1);
        let url = format!("--peer-urls=http://{}", teller.cluster.members[1].peer);
        let said = teller.cluster.ctl(0, &["member", "add", "m1", &url], "");
        note_added(teller, 1, &said);
        list_local(teller, 0);
        teller.cluster.run(1, "existing");
        teller.cluster.wait_healthy(1);
        list(teller, 1);
    });
}

// Shows Cluster.MemberAdd: a voter joins three, and the others go on before it starts.
#[test]
fn a_fourth_voter_is_added_before_it_starts() {
    compare("a_fourth_voter_is_added_before_it_starts", 3, |teller| {
        assert_eq!(teller.cluster.prepare(), 3);
        let url = format!("--peer-urls=http://{}", teller.cluster.members[3].peer);
        let add = ["member", "add", "m3", &url];
        let said = teller.cluster.change(0, &add);
        note_added(teller, 3, &said);
        list(teller, 1);
        note_last(teller, 2, &["put", "meanwhile", "1"]);
        teller.cluster.run(3, "existing");
        teller.cluster.wait_healthy(3);
        list(teller, 3);
    });
}

/// What a learner answers to everything.
fn refusals(teller: &mut Teller, learner: usize) {
    for arguments in [
        &["put", "a", "1"][..],
        &["get", "before"],
        &["get", "before", "--consistency=s", "-w", "json"],
        &["del", "before"],
        &["lease", "grant", "10"],
        &["lease", "list"],
        &["lease", "timetolive", "abc"],
        &["member", "list"],
        &["compaction", "1"],
        &["endpoint", "hashkv"],
        &["alarm", "list"],
        &["move-leader", "abc"],
        &["watch", "before", "--rev=1"],
    ] {
        let mut all = arguments.to_vec();
        // The client tries another endpoint for as long as it may, and there is none.
        all.push("--command-timeout=3s");
        note_last(teller, learner, &all);
    }
    let status = &teller.cluster.json(learner, &["endpoint", "status"])[0]["Status"];
    assert_eq!(status["isLearner"].as_bool(), Some(true), "{status}");
}

// Shows Cluster.MemberUpdate: a member moves to another peer URL.
#[test]
fn a_peer_url_can_be_changed() {
    compare("a_peer_url_can_be_changed", 3, |teller| {
        let leader = teller.cluster.leader();
        let other = (leader + 1) % 3;
        let id = teller.cluster.id(other);
        let unused = crate::cluster::free_address();
        teller.name(unused.clone(), "UNUSED");
        let said = teller.cluster.ctl(
            leader,
            &[
                "member",
                "update",
                &id,
                &format!("--peer-urls=http://{unused}"),
            ],
            "",
        );
        let error = said.stderr.lines().last().unwrap_or_default().to_owned();
        let line = said.stdout.replace(&id, "IT");
        teller.note(&format!("{} {line}{error}", said.status));
        let listed = teller.cluster.must(leader, &["member", "list"]);
        assert!(listed.contains(&unused), "{listed}");
        // It continues without that member being reachable by others again.
        teller.cluster.must(leader, &["put", "a", "1"]);
    });
}
