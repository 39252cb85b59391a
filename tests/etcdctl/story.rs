//! A story is a sequence of etcdctl commands, recorded as a transcript. The transcripts of Quorate and of real etcd
//! must be equal.

use std::thread;

use crate::cluster::{Answer, Cluster, Kind};
use crate::process::peers;

/// Runs a story against a cluster and records the transcript.
pub(crate) struct Recorder {
    pub(crate) cluster: Cluster,
    transcript: Vec<String>,
    /// Texts that differ between two runs, and the names that replace them in the transcript.
    names: Vec<(String, String)>,
}

/// Runs a story on both clusters and compares the transcripts.
pub(crate) fn compare(test: &str, size: usize, story: impl Fn(&mut Recorder) + Sync) {
    compare_with(test, size, &[], story);
}

/// The same with additional flags for every member.
pub(crate) fn compare_with(
    test: &str,
    size: usize,
    extra: &[&str],
    story: impl Fn(&mut Recorder) + Sync,
) {
    let Some(peers) = peers(test) else { return };
    let extra: Vec<String> = extra.iter().map(|flag| (*flag).to_owned()).collect();
    let run = |kind| {
        let mut recorder = Recorder::new(Cluster::start_with(kind, &peers, size, &extra));
        story(&mut recorder);
        recorder
    };
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run(Kind::Etcd));
        let ours = run(ours());
        (
            ours,
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    for (ours, theirs) in ours.transcript.iter().zip(&theirs.transcript) {
        assert_eq!(ours, theirs, "ours on the left, etcd's on the right");
    }
    assert_eq!(ours.transcript.len(), theirs.transcript.len());
}

/// With `STORIES_SELF_TEST=1` both clusters are real etcd, which checks the stories themselves.
pub(crate) fn ours() -> Kind {
    match std::env::var("STORIES_SELF_TEST") {
        Ok(value) if value == "1" => Kind::Etcd,
        _ => Kind::Quorate,
    }
}

impl Recorder {
    fn new(cluster: Cluster) -> Recorder {
        let mut recorder = Recorder {
            cluster,
            transcript: Vec::new(),
            names: Vec::new(),
        };
        for number in 0..recorder.cluster.members.len() {
            recorder.introduce(number);
        }
        recorder
    }

    /// Names a member's ID and addresses.
    pub(crate) fn introduce(&mut self, number: usize) {
        let member = &self.cluster.members[number];
        let (client, peer) = (member.client.clone(), member.peer.clone());
        self.name(client, &format!("CLIENT{number}"));
        self.name(peer, &format!("PEER{number}"));
        let list = self.cluster.must(0, &["member", "list"]);
        if list.contains(&format!("http://{}", self.cluster.members[number].peer)) {
            let id = self.cluster.id(number);
            self.name(id, &format!("ID{number}"));
        }
    }

    /// Replaces a text by a name in the transcript from here on.
    pub(crate) fn name(&mut self, text: String, name: &str) {
        self.names.push((text, name.to_owned()));
    }

    /// Runs etcdctl against a member, and records the command and its output.
    pub(crate) fn at(&mut self, number: usize, arguments: &[&str]) -> Answer {
        self.with_input(number, arguments, "")
    }

    /// The same with input for etcdctl.
    pub(crate) fn with_input(&mut self, number: usize, arguments: &[&str], input: &str) -> Answer {
        let answer = self.cluster.ctl(number, arguments, input);
        let entry = format!(
            "member {number}: etcdctl {}\n{input}exit {}\n{}{}",
            arguments.join(" "),
            answer.status,
            answer.stdout,
            errors(&answer.stderr),
        );
        self.note(&entry);
        answer
    }

    /// Appends a text to the transcript.
    pub(crate) fn note(&mut self, text: &str) {
        let mut text = text.to_owned();
        for (from, to) in &self.names {
            text = text.replace(from, to);
        }
        self.transcript.push(plain(&text));
    }
}

/// etcdctl's error, without the other log lines of the client library.
fn errors(stderr: &str) -> String {
    let mut text = String::new();
    for line in stderr.lines() {
        if let Ok(log) = serde_json::from_str::<serde_json::Value>(line) {
            if let Some(error) = log["error"].as_str() {
                text.push_str(&format!("log: {error}\n"));
            }
        } else {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

/// Replaces values that depend on time or on IDs only: `"raft_term":3`, `took = 2ms`.
fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (mark, ends) in [
        ("\"cluster_id\":", ",}"),
        ("\"member_id\":", ",}"),
        ("\"raft_term\":", ",}"),
        ("\"ClusterID\" : ", "\n"),
        ("\"MemberID\" : ", "\n"),
        ("\"RaftTerm\" : ", "\n"),
        ("cluster ", "\n ,"),
        ("took = ", "\n"),
    ] {
        let mut result = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(mark) {
            let (before, after) = rest.split_at(at + mark.len());
            let skipped = after.trim_start_matches(' ');
            let end = skipped.find(|c| ends.contains(c)).unwrap_or(skipped.len());
            result.push_str(before);
            result.push('*');
            rest = &skipped[end..];
        }
        result.push_str(rest);
        text = result;
    }
    // Columns with IDs are padded to a width that depends on the IDs.
    while text.contains("  ") {
        text = text.replace("  ", " ");
    }
    text
}
