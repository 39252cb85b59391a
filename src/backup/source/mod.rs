//! A snapshot from a living cluster, etcd's or ours: chooses a follower that is well, streams into a file, and believes
//! nothing but a digest.

mod clients;
mod members;
mod sink;
mod survivor;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

pub use clients::Clients;
pub(super) use clients::with_token;
pub(super) use members::LogMember;
pub use members::Members;
use sink::Sink;
pub use survivor::Survivor;

use super::Error;

/// A member that does not answer within this is not asked for a snapshot.
const ANSWER: Duration = Duration::from_secs(5);
/// A member that sends nothing for longer has stopped: it writes the whole database before the first byte.
const SILENCE: Duration = Duration::from_secs(300);
/// A follower that is further behind than this, in entries, is asked after the others.
const BEHIND: u64 = 5_000;

/// Where a snapshot comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// How the members are reached.
    pub access: Access,
    /// Bytes a second at most that a member writes for this, and that are read from it, so that it has time for its
    /// clients.
    pub rate: Option<u64>,
}

/// How the members of a cluster are reached.
#[derive(Clone, Debug)]
pub enum Access {
    /// As clients reach them: etcd's members and ours.
    Clients(Clients),
    /// By their peer ports, with the key of backups: members that an operator runs.
    Members(Members),
}

/// A snapshot in a file.
#[derive(Debug)]
pub struct Fetched {
    /// The endpoint that gave it.
    pub endpoint: String,
    /// ID of the cluster.
    pub cluster_id: u64,
    /// ID of the member.
    pub member_id: u64,
    /// The level of etcd that the member speaks.
    pub version: String,
    /// Length of the database.
    pub length: u64,
    /// Its SHA-256.
    pub sha256: String,
}

impl Fetched {
    /// Puts the digest behind the database, as `etcdctl snapshot save` does. Errors name the file by `place`.
    pub(super) fn sign(&self, file: &File, place: &Path) -> Result<(), Error> {
        let digits = self.sha256.as_bytes().chunks(2);
        let digest: Vec<u8> = digits
            .filter_map(|byte| u8::from_str_radix(std::str::from_utf8(byte).ok()?, 16).ok())
            .collect();
        let written = file.write_all_at(&digest, self.length);
        written.map_err(Error::file(place))
    }
}

/// What a member says of itself.
#[derive(Clone, Debug, Default)]
struct Standing {
    cluster_id: u64,
    member_id: u64,
    /// 0 when it knows none.
    leader_id: u64,
    version: String,
    /// The last index of its log that it knows of.
    newest: u64,
    applied: u64,
    learner: bool,
    /// Why its data are not to be taken.
    refused: Option<String>,
}

/// A member that answered.
struct Candidate {
    endpoint: String,
    standing: Standing,
    reader: Reader,
}

enum Reader {
    Client(clients::Reader),
    Member(members::Reader),
}

/// What a member was asked and how that ended.
type Asked = Vec<(String, Result<(Standing, Reader), String>)>;

impl Source {
    /// Writes a snapshot of the first member that gives one into a file. Errors name the file by `place`.
    ///
    /// # Errors
    /// [`Error::Source`] with the answer of each member if none does; those of the file.
    pub async fn fetch(&self, file: &File, place: &Path) -> Result<Fetched, Error> {
        let mut failures = Vec::new();
        let asked = match &self.access {
            Access::Clients(clients) => clients.ask().await,
            Access::Members(members) => members.ask().await,
        };
        if asked.is_empty() {
            failures.push("no endpoint was given: give --endpoints, or --members".to_owned());
        }
        if let Some(error) = several_clusters(&asked) {
            return Err(error);
        }
        for candidate in candidates(asked, &mut failures) {
            let endpoint = candidate.endpoint.clone();
            match self.read(candidate, file, place).await {
                Ok(fetched) => return Ok(fetched),
                Err(Error::Source(why)) => failures.push(format!("{endpoint}: {why}")),
                Err(error @ Error::Snapshot { .. }) => failures.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Source(failures.join("; ")))
    }

    async fn read(&self, from: Candidate, file: &File, place: &Path) -> Result<Fetched, Error> {
        let Candidate {
            endpoint,
            standing,
            reader,
        } = from;
        // What another member sent before is overwritten.
        let sink = Sink::new(file, place, self.rate)?;
        let written = match reader {
            Reader::Client(reader) => reader.read(sink, &endpoint, self.rate).await?,
            Reader::Member(reader) => reader.read(sink, &endpoint, self.rate).await?,
        };
        Ok(Fetched {
            endpoint,
            cluster_id: standing.cluster_id,
            member_id: standing.member_id,
            version: standing.version,
            length: written.length,
            sha256: written.sha256,
        })
    }
}

/// A name may lead to the pods of an earlier cluster too, and nothing says which of them is meant.
fn several_clusters(asked: &Asked) -> Option<Error> {
    let answered = asked.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    let mut clusters: Vec<u64> = answered
        .map(|(standing, _)| standing.cluster_id)
        .filter(|id| *id != 0)
        .collect();
    clusters.sort_unstable();
    clusters.dedup();
    (clusters.len() > 1).then(|| {
        let ids: Vec<String> = clusters.iter().map(|id| format!("{id:x}")).collect();
        Error::Source(format!(
            "the endpoints are of several clusters: {}",
            ids.join(", ")
        ))
    })
}

/// The members whose data are to be taken, the best one first.
fn candidates(asked: Asked, failures: &mut Vec<String>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (endpoint, answer) in asked {
        match answer {
            Err(why) => failures.push(format!("{endpoint}: {why}")),
            Ok((standing, reader)) => match &standing.refused {
                Some(why) => failures.push(format!("{endpoint}: {why}")),
                None => candidates.push(Candidate {
                    endpoint,
                    standing,
                    reader,
                }),
            },
        }
    }
    let newest = candidates.iter().map(|it| it.standing.newest).max();
    let newest = newest.unwrap_or_default();
    candidates.sort_by_key(|it| rank(&it.standing, newest));
    candidates
}

/// Followers first, then the leader; last whoever knows no leader, is far behind, or only learns.
fn rank(standing: &Standing, newest: u64) -> (bool, bool, u64) {
    let behind = newest.saturating_sub(standing.applied);
    let leads = standing.leader_id == standing.member_id;
    let apart = standing.leader_id == 0;
    (apart || behind > BEHIND || standing.learner, leads, behind)
}

fn silent() -> Error {
    let seconds = SILENCE.as_secs();
    Error::Source(format!("nothing arrived for {seconds} s"))
}

/// What a server answered, or why it was not reached.
pub(super) fn text(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = error.source();
    }
    text
}
