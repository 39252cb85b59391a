//! Membership: list, add as learner, promote, remove, update, and the requests that a learner refuses.

use crate::cluster::Answer;
use crate::process::eventually;
use crate::story::{Recorder, compare, compare_with};

/// Adds a learner through a member and names its ID and addresses.
fn add(recorder: &mut Recorder, at: usize, flags: &[&str]) -> usize {
    let new = recorder.cluster.prepare();
    let name = recorder.cluster.members[new].name.clone();
    let urls = format!("--peer-urls=http://{}", recorder.cluster.members[new].peer);
    let mut all = vec!["member", "add", &name, &urls];
    all.extend(flags);
    let answer = recorder.cluster.change(at, &all);
    recorder.introduce(new);
    // The other members are listed in the order of their IDs, which is random.
    let line = answer.stdout.lines().next().unwrap_or_default().to_owned();
    let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
    recorder.note(&format!("{} {line} {error}", answer.status));
    new
}

/// Records the members, sorted by name.
fn list(recorder: &mut Recorder, at: usize) {
    list_with(recorder, at, "--consistency=l");
}

fn list_with(recorder: &mut Recorder, at: usize, consistency: &str) {
    let printed = recorder.cluster.must(at, &["member", "list", consistency]);
    let mut lines: Vec<&str> = printed
        .lines()
        .map(|line| line.split_once(", ").map_or(line, |(_, rest)| rest))
        .collect();
    lines.sort_unstable();
    recorder.note(&lines.join("\n"));
}

fn note_last(recorder: &mut Recorder, at: usize, arguments: &[&str]) -> i32 {
    let answer = recorder.cluster.ctl(at, arguments, "");
    let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
    recorder.note(&format!(
        "{arguments:?} {} {}{error}",
        answer.status, answer.stdout
    ));
    answer.status
}

/// Retries until a learner has been promoted through a member.
fn promote(recorder: &mut Recorder, at: usize, id: &str) {
    let mut printed = String::new();
    let promoted = eventually(|| {
        let answer = recorder.cluster.ctl(at, &["member", "promote", id], "");
        printed = answer.stdout;
        let behind = answer.stderr.contains("in sync with leader");
        assert!(answer.status == 0 || behind, "{}", answer.stderr);
        answer.status == 0
    });
    assert!(promoted, "never in sync:\n{}", recorder.cluster.logs());
    recorder.note(&printed);
}

// Shows Cluster.MemberAdd, Cluster.MemberPromote, Cluster.MemberRemove, Cluster.MemberList: growth by learners, refusals, shrinking.
#[test]
fn growth_by_learners_as_in_etcd() {
    compare("growth_by_learners_as_in_etcd", 1, |recorder| {
        list(recorder, 0);
        recorder.cluster.must(0, &["put", "before", "growth"]);
        let learner = add(recorder, 0, &["--learner"]);
        let id = recorder.cluster.id(learner);
        list(recorder, 0);
        // It has not started, so it is not in sync; and a second learner is refused.
        note_last(recorder, 0, &["member", "promote", &id]);
        let surplus = [
            "member",
            "add",
            "mx",
            "--learner",
            "--peer-urls=http://127.0.0.1:1",
        ];
        note_last(recorder, 0, &surplus);
        let taken = format!(
            "--peer-urls=http://{}",
            recorder.cluster.members[learner].peer
        );
        let again = ["member", "add", "mx", "--learner", &taken];
        // etcd derives member IDs from addresses and the time in seconds: within the same second it reports that the
        // ID exists.
        let passed = eventually(|| {
            let answer = recorder.cluster.ctl(0, &again, "");
            !answer.stderr.contains("member ID already exist")
        });
        assert!(passed, "the ID still exists after a second");
        note_last(recorder, 0, &again);
        recorder.cluster.run(learner, "existing");
        let copied = eventually(|| {
            let arguments = ["get", "before", "--consistency=s", "--command-timeout=2s"];
            recorder.cluster.ctl(learner, &arguments, "").stdout == "before\ngrowth\n"
        });
        assert!(
            copied,
            "the learner has no data:\n{}",
            recorder.cluster.logs()
        );
        refusals(recorder, learner);
        promote(recorder, 0, &id);
        list(recorder, 0);
        recorder.cluster.wait_healthy(learner);
        note_last(recorder, 0, &["member", "promote", &id]);
        note_last(recorder, learner, &["put", "through", "the new one"]);
        note_last(recorder, 0, &["member", "promote", "abc"]);
        note_last(recorder, 0, &["member", "remove", "abc"]);
        let update = ["member", "update", "abc", "--peer-urls=http://127.0.0.1:1"];
        note_last(recorder, 0, &update);
        let third = add(recorder, learner, &["--learner"]);
        let third_id = recorder.cluster.id(third);
        recorder.cluster.run(third, "existing");
        promote(recorder, learner, &third_id);
        recorder.cluster.wait_healthy(third);
        list(recorder, third);
        note_last(recorder, 0, &["member", "remove", &third_id]);
        list(recorder, learner);
        note_last(recorder, 0, &["member", "remove", &third_id]);
        note_last(recorder, learner, &["get", "--prefix", "", "-w", "json"]);
    });
}

/// Records the first line and the error of `member add`, with a name for the new ID.
fn note_added(recorder: &mut Recorder, new: usize, answer: &Answer) {
    let line = answer.stdout.lines().next().unwrap_or_default().to_owned();
    if let Some(id) = line.split_whitespace().nth(1) {
        recorder.name(id.to_owned(), &format!("ID{new}"));
    }
    let member = &recorder.cluster.members[new];
    let (client, peer) = (member.client.clone(), member.peer.clone());
    recorder.name(client, &format!("CLIENT{new}"));
    recorder.name(peer, &format!("PEER{new}"));
    let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
    recorder.note(&format!("add {new}: {} {line} {error}", answer.status));
}

/// Records the member list of this member itself, sorted by name.
fn list_local(recorder: &mut Recorder, at: usize) {
    list_with(recorder, at, "--consistency=s");
}

/// A cluster grows by voters, as the guides for hosts describe: one member, then two, then three; then one is removed.
fn grow_by_voters(recorder: &mut Recorder) {
    recorder.cluster.must(0, &["put", "before", "growth"]);
    for new in [1, 2] {
        assert_eq!(recorder.cluster.prepare(), new);
        let url = format!("--peer-urls=http://{}", recorder.cluster.members[new].peer);
        let add = ["member", "add", &format!("m{new}"), &url];
        let answer = recorder.cluster.change(0, &add);
        note_added(recorder, new, &answer);
        list_local(recorder, 0);
        if new == 1 {
            // One of two voters: no request that needs a quorum is answered.
            for question in [&["get", "before"][..], &["member", "list"]] {
                let mut all = question.to_vec();
                all.push("--command-timeout=2s");
                note_last(recorder, 0, &all);
            }
            let third = ["member", "add", "mx", "--peer-urls=http://127.0.0.1:1"];
            note_last(recorder, 0, &third);
        }
        recorder.cluster.run(new, "existing");
        recorder.cluster.wait_healthy(new);
        list(recorder, new);
        let key = format!("through-{new}");
        note_last(recorder, new, &["put", &key, "1"]);
    }
    let id = recorder.cluster.id(0);
    recorder.name(id.clone(), "ID0");
    let remove = ["member", "remove", &id];
    let answer = recorder.cluster.change(1, &remove);
    recorder.note(&format!("{} {}", answer.status, answer.stdout));
    list(recorder, 2);
    note_last(recorder, 2, &["get", "--prefix", ""]);
}

// Shows Cluster.MemberAdd, Cluster.MemberRemove, Cluster.MemberList: growth from one member by voters, whose addition is answered before they start.
#[test]
fn a_cluster_grows_by_voters_as_in_etcd() {
    compare("a_cluster_grows_by_voters_as_in_etcd", 1, grow_by_voters);
}

#[test]
fn growth_by_voters_without_strict_check() {
    let test = "growth_by_voters_without_strict_check";
    compare_with(test, 1, &["--strict-reconfig-check=false"], |recorder| {
        recorder.cluster.must(0, &["put", "before", "growth"]);
        assert_eq!(recorder.cluster.prepare(), 1);
        let url = format!("--peer-urls=http://{}", recorder.cluster.members[1].peer);
        let answer = recorder.cluster.ctl(0, &["member", "add", "m1", &url], "");
        note_added(recorder, 1, &answer);
        list_local(recorder, 0);
        recorder.cluster.run(1, "existing");
        recorder.cluster.wait_healthy(1);
        list(recorder, 1);
    });
}

// Shows Cluster.MemberAdd: a voter is added to three members, which serve before it starts.
#[test]
fn a_fourth_voter_is_added_before_it_starts() {
    compare("a_fourth_voter_is_added_before_it_starts", 3, |recorder| {
        assert_eq!(recorder.cluster.prepare(), 3);
        let url = format!("--peer-urls=http://{}", recorder.cluster.members[3].peer);
        let add = ["member", "add", "m3", &url];
        let answer = recorder.cluster.change(0, &add);
        note_added(recorder, 3, &answer);
        list(recorder, 1);
        note_last(recorder, 2, &["put", "meanwhile", "1"]);
        recorder.cluster.run(3, "existing");
        recorder.cluster.wait_healthy(3);
        list(recorder, 3);
    });
}

/// The responses of a learner to requests that it refuses.
fn refusals(recorder: &mut Recorder, learner: usize) {
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
        // The client retries at other endpoints until its timeout, and there are none.
        all.push("--command-timeout=3s");
        note_last(recorder, learner, &all);
    }
    let status = &recorder.cluster.json(learner, &["endpoint", "status"])[0]["Status"];
    assert_eq!(status["isLearner"].as_bool(), Some(true), "{status}");
}

// Shows Cluster.MemberUpdate: a member moves to another peer URL.
#[test]
fn a_peer_url_can_be_changed() {
    compare("a_peer_url_can_be_changed", 3, |recorder| {
        let leader = recorder.cluster.leader();
        let other = (leader + 1) % 3;
        let id = recorder.cluster.id(other);
        let unused = crate::cluster::free_address();
        recorder.name(unused.clone(), "UNUSED");
        let answer = recorder.cluster.ctl(
            leader,
            &[
                "member",
                "update",
                &id,
                &format!("--peer-urls=http://{unused}"),
            ],
            "",
        );
        let error = answer.stderr.lines().last().unwrap_or_default().to_owned();
        let line = answer.stdout.replace(&id, "IT");
        recorder.note(&format!("{} {line}{error}", answer.status));
        let listed = recorder.cluster.must(leader, &["member", "list"]);
        assert!(listed.contains(&unused), "{listed}");
        // The cluster continues although the others cannot reach that member at the new URL.
        recorder.cluster.must(leader, &["put", "a", "1"]);
    });
}
