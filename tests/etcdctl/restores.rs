//! `quorate restore`: clusters that start from a snapshot of real etcd or of Quorate have the same keys, history,
//! hashes, leases, alarms and users. Invalid snapshots are refused.

use std::path::{Path, PathBuf};

use crate::cluster::{Answer, Cluster, Kind};
use crate::process::{eventually, finish, peers};
use crate::snapshots::{facts, live, revision, save, util};

/// Runs `quorate restore`.
fn restore(file: &str, flags: &[String]) -> Answer {
    let mut arguments = vec!["restore".to_owned(), file.to_owned()];
    arguments.extend(flags.iter().cloned());
    let output = finish(Path::new(env!("CARGO_BIN_EXE_quorate")), &arguments, "");
    Answer {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Starts a cluster of ours from a snapshot.
fn ours_from(peers: &Path, file: &str, size: usize, more: &[&str]) -> Cluster {
    let mut cluster = Cluster::blank(Kind::Quorate, peers, size);
    for number in 0..size {
        let mut flags = cluster.restore_flags(number);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let restored = restore(file, &flags);
        assert_eq!(restored.status, 0, "{restored:?}");
    }
    run_all(&mut cluster);
    cluster
}

fn run_all(cluster: &mut Cluster) {
    for number in 0..cluster.members.len() {
        cluster.run(number, "new");
    }
    for number in 0..cluster.members.len() {
        cluster.wait_healthy(number);
    }
}

/// Waits until a member has applied a revision.
fn reach(cluster: &Cluster, at: usize, newest: i64) {
    let reached = eventually(|| revision(cluster, at) == newest);
    assert!(reached, "member {at} lags:\n{}", cluster.logs());
}

// Shows Maintenance.Snapshot: three members start from a snapshot of etcd.
#[test]
fn three_members_start_from_etcds_snapshot() {
    let Some(peers) = peers("three_members_start_from_etcds_snapshot") else {
        return;
    };
    // The snapshot contains a learner and a removed member, which are not in the restored cluster.
    let mut theirs = Cluster::start(Kind::Etcd, &peers, 1);
    let learner = theirs.prepare();
    let peer = format!("--peer-urls=http://{}", theirs.members[learner].peer);
    let name = theirs.members[learner].name.clone();
    theirs.must(0, &["member", "add", &name, "--learner", &peer]);
    theirs.run(learner, "existing");
    live(&theirs);
    let newest = revision(&theirs, 0);
    let caught_up = eventually(|| {
        let status = theirs.ctl(learner, &["endpoint", "status", "-w", "json"], "");
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap_or_default();
        status[0]["Status"]["header"]["revision"].as_i64() == Some(newest)
    });
    assert!(caught_up, "the learner lags:\n{}", theirs.logs());
    let before = facts(&theirs, 0);
    let file = save(&theirs, learner, "etcd.db");
    let mut ours = ours_from(&peers, &file, 3, &[]);
    for at in 0..3 {
        reach(&ours, at, newest);
        assert_eq!(facts(&ours, at), before, "ours on the left");
    }
    let members = ours.must(0, &["member", "list"]);
    assert_eq!(members.lines().count(), 3, "{members}");
    // The cluster serves, also after every member was killed.
    ours.must(1, &["put", "next", "1"]);
    ours.must(2, &["compaction", &newest.to_string(), "--physical"]);
    for at in 0..3 {
        ours.stop(at);
    }
    run_all(&mut ours);
    for at in 0..3 {
        reach(&ours, at, newest + 1);
        assert_eq!(ours.must(at, &["get", "next"]), "next\n1\n");
    }
    // A new member receives the restored state from the others.
    let joiner = ours.prepare();
    let peer = format!("--peer-urls=http://{}", ours.members[joiner].peer);
    let name = ours.members[joiner].name.clone();
    let added = ours.change(0, &["member", "add", &name, &peer]);
    assert_eq!(added.status, 0, "{added:?}");
    ours.run(joiner, "existing");
    ours.wait_healthy(joiner);
    reach(&ours, joiner, newest + 1);
    assert_eq!(facts(&ours, joiner), facts(&ours, 0));
}

/// The case in which etcd's members would continue with different data.
#[test]
fn different_snapshots_make_different_clusters() {
    let test = "different_snapshots_make_different_clusters";
    let Some(peers) = peers(test) else { return };
    let source = Cluster::start(Kind::Quorate, &peers, 1);
    source.must(0, &["put", "k", "1"]);
    let (one, same) = (save(&source, 0, "one.db"), save(&source, 0, "same.db"));
    source.must(0, &["put", "k", "2"]);
    let other = save(&source, 0, "other.db");
    let blank = Cluster::blank(Kind::Quorate, &peers, 3);
    let clusters: Vec<String> = [one, same, other]
        .iter()
        .enumerate()
        .map(|(number, file)| {
            let restored = restore(file, &blank.restore_flags(number));
            let id = restored.stdout.split("of cluster ").nth(1);
            let id = id.and_then(|rest| rest.split(',').next());
            id.unwrap_or_else(|| panic!("{restored:?}")).to_owned()
        })
        .collect();
    assert_eq!(clusters[0], clusters[1], "the same data, saved twice");
    assert_ne!(clusters[0], clusters[2], "other data");
}

#[test]
fn snapshots_move_to_etcd_and_back() {
    let Some(peers) = peers("snapshots_move_to_etcd_and_back") else {
        return;
    };
    let first = Cluster::start(Kind::Quorate, &peers, 1);
    live(&first);
    let before = facts(&first, 0);
    let second = ours_from(&peers, &save(&first, 0, "first.db"), 1, &[]);
    assert_eq!(facts(&second, 0), before);
    let file = save(&second, 0, "second.db");
    let answer = util(&peers, &["snapshot", "status", &file]);
    assert_eq!(answer.status, 0, "{answer:?}");
    let third = ours_from(&peers, &file, 1, &[]);
    assert_eq!(facts(&third, 0), before);
}

#[test]
fn a_raised_revision_is_etcds() {
    let Some(peers) = peers("a_raised_revision_is_etcds") else {
        return;
    };
    let theirs = Cluster::start(Kind::Etcd, &peers, 1);
    for value in ["1", "2", "3"] {
        theirs.must(0, &["put", "k", value]);
    }
    let file = save(&theirs, 0, "etcd.db");
    let raise = ["--bump-revision=1000", "--mark-compacted"];
    let ours = ours_from(&peers, &file, 1, &raise);
    let mut etcd = Cluster::blank(Kind::Etcd, &peers, 1);
    let flags = etcd.restore_flags(0);
    let mut arguments = vec!["snapshot", "restore", &file];
    arguments.extend(flags.iter().map(String::as_str));
    arguments.extend(raise);
    assert_eq!(util(&peers, &arguments).status, 0);
    run_all(&mut etcd);
    for ask in [
        &["get", "k", "-w", "fields"][..],
        &["get", "k", "--rev=3"],
        &["get", "k", "--rev=1004", "--print-value-only"],
        &["put", "k", "4"],
        &["get", "k", "--rev=1004", "--print-value-only"],
        &["get", "k", "--rev=1005", "--print-value-only"],
        &["get", "k", "--rev=1003", "--print-value-only"],
        &["compaction", "1004"],
    ] {
        let own = |answer: Answer| {
            let lines: Vec<String> = format!("{}\n{}", answer.stdout, answer.stderr)
                .lines()
                .filter(|line| !line.contains("ID\"") && !line.contains("RaftTerm"))
                .map(|line| line.split("error\":").last().unwrap_or(line).to_owned())
                .collect();
            (answer.status, lines)
        };
        let (mine, real) = (own(ours.ctl(0, ask, "")), own(etcd.ctl(0, ask, "")));
        assert_eq!(mine, real, "{ask:?}: ours on the left");
    }
    assert_eq!(revision(&ours, 0), revision(&etcd, 0));
}

/// The error names the reason, and no files remain.
#[test]
fn invalid_snapshots_are_refused() {
    let Some(peers) = peers("invalid_snapshots_are_refused") else {
        return;
    };
    let theirs = Cluster::start(Kind::Etcd, &peers, 1);
    theirs.must(0, &["put", "k", "v"]);
    let file = save(&theirs, 0, "etcd.db");
    let whole = std::fs::read(&file).expect("a snapshot");
    let variant = |name: &str, bytes: &[u8]| {
        let path = theirs.path(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let body = &whole[..whole.len() - 32];
    let cut = variant("cut.db", &whole[..whole.len() / 2]);
    let no_digest = variant("bare.db", body);
    let blank = Cluster::blank(Kind::Quorate, &peers, 1);
    let flags = blank.restore_flags(0);
    let data = blank.path("m0");
    let refused = |file: &str, more: &[&str], want: &str| {
        let mut all = flags.clone();
        all.extend(more.iter().map(|flag| (*flag).to_owned()));
        let answer = restore(file, &all);
        assert_ne!(answer.status, 0, "{want}: {answer:?}");
        assert!(answer.stderr.contains(want), "{want}: {answer:?}");
        assert!(!data.exists(), "{want}: something was left behind");
    };
    let skip = "--skip-hash-check";
    refused(&cut, &[], "does not end with a digest");
    refused(&cut, &[skip], "it is cut off");
    refused(
        &variant("odd.db", &whole[..whole.len() - 512]),
        &[],
        "is damaged: its SHA-256",
    );
    refused(
        &variant("flipped.db", &flipped),
        &[],
        "is damaged: its SHA-256",
    );
    refused(&no_digest, &[], "--skip-hash-check");
    refused(
        &variant("empty.db", b""),
        &[skip],
        "no database file of etcd",
    );
    refused(
        &variant("text.db", &b"hello ".repeat(9_000)),
        &[skip],
        "no database file of etcd",
    );
    refused(
        &theirs.path("none.db").display().to_string(),
        &[],
        "cannot read the snapshot",
    );
    refused(&file, &["--wal-dir=/tmp/wal"], "--wal-dir");
    refused(&file, &["--bump-revision=5"], "go together");
    refused(&file, &["--mark-compacted"], "go together");
    refused(&file, &["--unknown"], "--unknown");

    let elsewhere = format!("--data-dir={}", blank.path("other").display());
    let stranger = [
        "--name=stranger".to_owned(),
        elsewhere,
        "--initial-cluster=a=http://127.0.0.1:1".to_owned(),
    ];
    let answer = restore(&file, &stranger);
    assert!(
        answer.stderr.contains("does not name this member"),
        "{answer:?}"
    );
    assert_eq!(answer.status, 2, "{answer:?}");

    // A copy of a database file in a data directory has no digest; it is accepted with --skip-hash-check.
    let mut with_skip = flags.clone();
    with_skip.push(skip.to_owned());
    let restored = restore(&no_digest, &with_skip);
    assert_eq!(restored.status, 0, "{restored:?}");
    assert!(
        restored.stdout.contains("revision 2: 1 keys"),
        "{restored:?}"
    );
    let again = restore(&file, &flags);
    assert!(again.stderr.contains("is not empty"), "{again:?}");
    let names = |path: &PathBuf| {
        let names = std::fs::read_dir(path).expect("a directory");
        let mut names: Vec<String> = names
            .map(|name| {
                name.expect("a name")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&data), ["checkpoints", "identity", "log"]);
}
