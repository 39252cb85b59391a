//! Sends each request to Quorate and to real etcd, and compares the responses.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use quorate::wire::etcd::{AlarmRequest, PutRequest};

use crate::cluster::{Cluster, Kind};
use crate::question::{OWN_ID, Question, STREAMS};
use crate::server::{Reply, Server};
use crate::trouble::{ACTIVATE, CORRUPT, DEACTIVATE};
use crate::watch_streams::WatchStreams;

/// For speed: this test crashes no member, so nothing depends on syncs.
const FLAGS: &[&str] = &["--unsafe-no-fsync", "--log-level=error", "--bcrypt-cost=4"];
/// The timeout for any response.
const ANSWER: Duration = Duration::from_secs(90);
/// For several members: on a busy machine the leader must not lose an election. Both sides get these flags, because
/// the minimum TTL of a lease depends on them.
const PATIENT: &[&str] = &["--heartbeat-interval=300", "--election-timeout=3000"];

/// A response that differs.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) question: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            question,
            ours,
            theirs,
        } = self;
        write!(f, "{question}\n  ours: {ours}\n  etcd: {theirs}")
    }
}

/// One side: its members, and its watch streams, which are distributed over the members.
#[derive(Debug)]
struct Side {
    members: Vec<Server>,
    streams: Vec<WatchStreams>,
}

impl Side {
    async fn new(cluster: &Cluster, peers: &Path) -> Side {
        let mut members = Vec::new();
        for at in 0..cluster.members.len() {
            members.push(Server::new(cluster, at, peers).await);
        }
        let mut streams = Vec::new();
        for at in 0..STREAMS {
            let client = members[at % members.len()].watch.clone();
            streams.push(WatchStreams::new(client).await);
        }
        Side { members, streams }
    }

    async fn ask(&mut self, member: usize, question: &Question, revision: i64) -> Reply {
        let answer = self.answer(member, question, revision);
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(reply) => reply,
            Err(_) => (None, format!("no answer in {ANSWER:?}")),
        }
    }

    async fn answer(&mut self, member: usize, question: &Question, revision: i64) -> Reply {
        let several = self.members.len() > 1;
        match question {
            Question::Watch(stream, create) => {
                if several {
                    let member = stream % self.members.len();
                    self.members[member].catch_up().await;
                }
                (None, self.streams[*stream].create(create).await)
            }
            Question::Cancel(stream, id) => {
                self.streams[*stream].cancel(*id).await;
                (None, String::new())
            }
            Question::Settle => {
                for stream in &mut self.streams {
                    stream.settle(revision).await;
                }
                (None, String::new())
            }
            _ => {
                if several {
                    self.members[member].catch_up().await;
                }
                self.members[member].ask(question).await
            }
        }
    }
}

/// Both sides.
pub(crate) struct Pair {
    ours: Side,
    theirs: Side,
    clusters: [Cluster; 2],
    /// Whether our side is Quorate, and not a second etcd.
    quorate: bool,
    /// Whether CORRUPT is raised for the member itself.
    corrupt: bool,
    revision: i64,
    /// The greatest start revision of any watcher.
    newest_start: i64,
    /// Requests sent to each side.
    pub(crate) asked: u64,
    /// Responses that were errors.
    pub(crate) refused: u64,
}

impl Pair {
    /// Starts a cluster of ours of this size, and one member of etcd.
    pub(crate) async fn start(ours: Kind, peers: &Path, size: usize) -> Pair {
        let (several, quorate) = (size > 1, ours == Kind::Quorate);
        let start = |kind, size| {
            let peers = peers.to_owned();
            let patient = if several { PATIENT } else { &[] };
            let flags = FLAGS.iter().chain(patient);
            let flags: Vec<String> = flags.map(|flag| (*flag).to_owned()).collect();
            tokio::task::spawn_blocking(move || Cluster::start_with(kind, &peers, size, &flags))
        };
        let (ours, theirs) = tokio::join!(start(ours, size), start(Kind::Etcd, 1));
        let clusters = [ours.expect("ours"), theirs.expect("etcd")];
        Pair {
            ours: Side::new(&clusters[0], peers).await,
            theirs: Side::new(&clusters[1], peers).await,
            clusters,
            quorate,
            corrupt: false,
            revision: 1,
            newest_start: 0,
            asked: 0,
            refused: 0,
        }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// The logs of our members, for a failed test.
    pub(crate) fn logs(&self) -> String {
        self.clusters[0].logs()
    }

    /// Events received by all watchers of one side, and responses that were split into fragments.
    pub(crate) fn shown(&self) -> (usize, u64) {
        let seen = |stream: &WatchStreams| stream.seen.values().map(Vec::len).sum::<usize>();
        let streams = &self.ours.streams;
        (
            streams.iter().map(seen).sum(),
            streams.iter().map(|stream| stream.fragments).sum(),
        )
    }

    /// Sends the request to both sides, on ours to one of the members, and compares the responses. Returns the
    /// revision of the response, if it has one.
    pub(crate) async fn ask(
        &mut self,
        member: usize,
        question: &Question,
    ) -> Result<Option<i64>, Difference> {
        match question {
            Question::Watch(_, create) => {
                self.newest_start = self.newest_start.max(create.start_revision);
            }
            // A watcher with a start in the future delays progress notifications.
            Question::Settle => {
                while self.revision < self.newest_start {
                    let put = PutRequest {
                        key: Bytes::from_static(b"~"),
                        ..PutRequest::default()
                    };
                    self.both(member, &Question::Put(put)).await?;
                }
            }
            _ => {}
        }
        let revision = self.both(member, question).await?;
        if matches!(question, Question::Settle) {
            self.compare_streams()?;
        }
        Ok(revision)
    }

    async fn both(
        &mut self,
        member: usize,
        question: &Question,
    ) -> Result<Option<i64>, Difference> {
        let revision = self.revision;
        self.asked += 1;
        let ((own, reply), (_, expected)) = tokio::join!(
            self.ours.ask(member, question, revision),
            self.theirs.ask(0, question, revision),
        );
        let expected = self.expected(question, expected);
        if reply != expected {
            return Err(Difference {
                question: format!("{question:?}"),
                ours: reply,
                theirs: expected,
            });
        }
        if let (Question::Alarm(alarm), Some(_)) = (question, own) {
            self.note(alarm);
        }
        self.refused += u64::from(own.is_none() && reply.contains("etcdserver: "));
        self.revision = own.unwrap_or(0).max(revision);
        Ok(own)
    }

    /// What our side has to answer where etcd answers this: the same, except for the health of a member for which
    /// CORRUPT is raised (`docs/differences.md`).
    fn expected(&self, question: &Question, theirs: String) -> String {
        match question {
            Question::Health(_) | Question::HealthWatch(_) if self.quorate && self.corrupt => {
                theirs.replace("status: Serving", "status: NotServing")
            }
            _ => theirs,
        }
    }

    fn note(&mut self, alarm: &AlarmRequest) {
        if (alarm.member_id, alarm.alarm) != (OWN_ID, CORRUPT) {
            return;
        }
        match alarm.action {
            ACTIVATE => self.corrupt = true,
            DEACTIVATE => self.corrupt = false,
            _ => {}
        }
    }

    fn compare_streams(&self) -> Result<(), Difference> {
        let both = self.ours.streams.iter().zip(&self.theirs.streams);
        for (number, (ours, theirs)) in both.enumerate() {
            let ids: Vec<i64> = ours
                .seen
                .keys()
                .chain(theirs.seen.keys())
                .copied()
                .collect();
            for id in ids {
                let (none, at) = (Vec::new(), format!("watcher {id} of stream {number}"));
                let own = ours.seen.get(&id).unwrap_or(&none);
                let other = theirs.seen.get(&id).unwrap_or(&none);
                if own == other {
                    continue;
                }
                let same = own.iter().zip(other).take_while(|(a, b)| a == b).count();
                let rest = |all: &Vec<String>| all.iter().skip(same).take(4).cloned().collect();
                let (ours, theirs): (Vec<_>, Vec<_>) = (rest(own), rest(other));
                let before = own.get(same.wrapping_sub(1));
                return Err(Difference {
                    question: format!(
                        "{at}, {} after {same}: {before:?}",
                        own[..1.min(own.len())].concat()
                    ),
                    ours: format!("{ours:?}"),
                    theirs: format!("{theirs:?}"),
                });
            }
        }
        Ok(())
    }
}
