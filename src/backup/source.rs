//! A snapshot from a living cluster, etcd's or ours: chooses a follower that is well, streams into a file, and believes
//! nothing but the digest behind the stream.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming};

use super::{Error, chain, hex};
use crate::wire::etcd::auth_client::AuthClient;
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::etcd::{
    AuthenticateRequest, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
};

/// A member that does not answer within this is not asked for a snapshot.
const ANSWER: Duration = Duration::from_secs(5);
/// A stream that is silent for longer has ended: a member writes the whole database before the first byte.
const SILENCE: Duration = Duration::from_secs(300);
/// Length of the digest behind the database.
const DIGEST: usize = 32;
/// A follower that is further behind than this, in entries, is asked after the others.
const BEHIND: u64 = 5_000;

/// How to reach the members of a cluster, in etcdctl's terms.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Client endpoints.
    pub endpoints: Vec<String>,
    /// PEM roots of the servers' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM certificate and key of this client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// Bytes a second at most, so that a member has time for its clients.
    pub rate: Option<u64>,
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

/// A member that answered.
struct Candidate {
    endpoint: String,
    channel: Channel,
    token: Option<String>,
    status: StatusResponse,
}

impl Source {
    /// Writes a snapshot of the first member that gives one into a file, without the digest behind it. Errors name the
    /// file by `place`.
    ///
    /// # Errors
    /// [`Error::Source`] with the answer of each member if none does; those of the file.
    pub async fn fetch(&self, file: &File, place: &Path) -> Result<Fetched, Error> {
        let mut failures = Vec::new();
        if self.endpoints.iter().all(String::is_empty) {
            failures.push("no endpoint was given: give --endpoints".to_owned());
        }
        for candidate in self.candidates(&mut failures).await {
            match self.stream(&candidate, file, place).await {
                Ok(fetched) => return Ok(fetched),
                Err(Error::Source(why)) => failures.push(format!("{}: {why}", candidate.endpoint)),
                Err(error @ Error::Snapshot { .. }) => failures.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Source(failures.join("; ")))
    }

    /// The members that answer, the best one first.
    async fn candidates(&self, failures: &mut Vec<String>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for endpoint in &self.endpoints {
            let asked = tokio::time::timeout(ANSWER, self.ask(endpoint)).await;
            match asked {
                Ok(Ok(candidate)) => candidates.push(candidate),
                Ok(Err(why)) => failures.push(format!("{endpoint}: {why}")),
                Err(_) => failures.push(format!("{endpoint}: no answer in {} s", ANSWER.as_secs())),
            }
        }
        let newest = candidates.iter().map(|it| it.status.raft_index).max();
        let newest = newest.unwrap_or_default();
        candidates.sort_by_key(|it| rank(&it.status, newest));
        candidates.retain(|it| {
            let usable = !is_corrupt(&it.status);
            if !usable {
                failures.push(format!("{}: an alarm CORRUPT is raised", it.endpoint));
            }
            usable
        });
        candidates
    }

    async fn ask(&self, endpoint: &str) -> Result<Candidate, String> {
        let channel = self.channel(endpoint)?;
        let token = self.token(&channel).await?;
        let mut client = MaintenanceClient::new(channel.clone());
        let status = client.status(with_token(StatusRequest {}, token.as_deref())?);
        Ok(Candidate {
            endpoint: endpoint.to_owned(),
            channel,
            status: status.await.map_err(|it| text(&it))?.into_inner(),
            token,
        })
    }

    fn channel(&self, endpoint: &str) -> Result<Channel, String> {
        let refused = |error: tonic::transport::Error| chain(&error);
        let url = match endpoint.contains("://") {
            true => endpoint.to_owned(),
            false => format!("http://{endpoint}"),
        };
        if url.contains('@') {
            return Err("an endpoint contains no user: give --user".to_owned());
        }
        let secure = url.starts_with("https://");
        if !secure && (self.ca.is_some() || self.identity.is_some()) {
            return Err("certificates were given, and the endpoint is not https://".to_owned());
        }
        let mut endpoint = Endpoint::from_shared(url).map_err(refused)?;
        if secure {
            let mut tls = ClientTlsConfig::new();
            tls = match &self.ca {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls).map_err(refused)?;
        }
        Ok(endpoint.connect_timeout(ANSWER).connect_lazy())
    }

    async fn token(&self, channel: &Channel) -> Result<Option<String>, String> {
        let Some((name, password)) = &self.user else {
            return Ok(None);
        };
        let who = AuthenticateRequest {
            name: name.clone(),
            password: password.clone(),
        };
        let mut client = AuthClient::new(channel.clone());
        let given = client.authenticate(who).await.map_err(|it| text(&it))?;
        Ok(Some(given.into_inner().token))
    }

    async fn stream(&self, from: &Candidate, file: &File, place: &Path) -> Result<Fetched, Error> {
        let request = with_token(SnapshotRequest {}, from.token.as_deref());
        let request = request.map_err(Error::Source)?;
        let mut client = MaintenanceClient::new(from.channel.clone());
        let stream = tokio::time::timeout(SILENCE, client.snapshot(request)).await;
        let stream = stream.map_err(|_| silent())?;
        let stream = stream.map_err(|it| Error::Source(text(&it)))?.into_inner();
        let (length, sha256) = self.receive(stream, file, place, &from.endpoint).await?;
        let header = from.status.header.unwrap_or_default();
        Ok(Fetched {
            endpoint: from.endpoint.clone(),
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            version: from.status.version.clone(),
            length,
            sha256,
        })
    }

    /// Everything but the digest at the end into the file.
    async fn receive(
        &self,
        mut stream: Streaming<SnapshotResponse>,
        mut file: &File,
        path: &Path,
        endpoint: &str,
    ) -> Result<(u64, String), Error> {
        // What another member sent before is overwritten.
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.map_err(Error::file(path))?;
        let mut digest = Sha256::new();
        // The last bytes may be the digest.
        let mut held: Vec<u8> = Vec::new();
        let mut length = 0;
        let begun = Instant::now();
        loop {
            let next = tokio::time::timeout(SILENCE, stream.message()).await;
            let next = next.map_err(|_| silent())?;
            let Some(message) = next.map_err(|it| Error::Source(text(&it)))? else {
                break;
            };
            held.extend_from_slice(&message.blob);
            let ready = held.len().saturating_sub(DIGEST);
            digest.update(&held[..ready]);
            file.write_all(&held[..ready]).map_err(Error::file(path))?;
            held.drain(..ready);
            length += ready as u64;
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64(length as f64 / rate as f64);
                tokio::time::sleep_until(begun + due).await;
            }
        }
        let found = digest.finalize();
        if held.len() != DIGEST || held[..] != found[..] {
            return Err(Error::Snapshot {
                endpoint: endpoint.to_owned(),
                what: format!("its SHA-256 is not the one behind its {length} bytes"),
            });
        }
        Ok((length, hex(&found)))
    }
}

fn silent() -> Error {
    let seconds = SILENCE.as_secs();
    Error::Source(format!("the stream was silent for {seconds} s"))
}

/// Followers first, then the leader; last whoever knows no leader, is far behind, or only learns.
fn rank(status: &StatusResponse, newest: u64) -> (bool, bool, u64) {
    let header = status.header.unwrap_or_default();
    let behind = newest.saturating_sub(status.raft_applied_index);
    let leads = status.leader == header.member_id;
    let apart = status.leader == 0;
    (apart || behind > BEHIND || status.is_learner, leads, behind)
}

fn is_corrupt(status: &StatusResponse) -> bool {
    status.errors.iter().any(|error| error.contains("CORRUPT"))
}

fn with_token<T>(message: T, token: Option<&str>) -> Result<Request<T>, String> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let token = token.parse().map_err(|_| "the token is no header value")?;
        request.metadata_mut().insert("token", token);
    }
    Ok(request)
}

/// What a server answered, or why it was not reached.
fn text(status: &tonic::Status) -> String {
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
