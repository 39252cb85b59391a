//! Members that an operator runs, by `quorate.v1.Backup` on their peer ports: needs neither a user of the cluster nor a
//! client certificate, and works under every alarm but CORRUPT.

use std::collections::BTreeSet;
use std::time::Duration;

use super::sink::{Sink, Written};
use super::{ANSWER, Asked, Error, SILENCE, Standing, candidates, several_clusters, silent, text};
use crate::server::operator_api::auth::Key;
use crate::server::operator_api::backup_client::{BackupClient, READ};
use crate::server::operator_api::client::AddressError;
use crate::server::operator_api::follow_client::FollowClient;
use crate::server::operator_api::secure::Secure;
use crate::wire::member as proto;

/// A member writes its whole state, and reads it once more, before it answers.
pub(super) const OPEN: Duration = Duration::from_secs(1800);

/// The members behind some names.
#[derive(Clone, Debug)]
pub struct Members {
    /// `host:port` of peer ports: every address of a host is a member.
    pub hosts: Vec<String>,
    /// The key of backups.
    pub key: Key,
    /// PEM roots of the members' certificates, which name the host; without them no TLS is used.
    pub roots: Option<String>,
}

/// A member that gives its data.
pub(super) struct Reader(BackupClient);

/// A member whose log is read.
#[derive(Debug)]
pub(in crate::backup) struct LogMember {
    pub(in crate::backup) endpoint: String,
    pub(in crate::backup) id: u64,
    pub(in crate::backup) cluster_id: u64,
    pub(in crate::backup) client: BackupClient,
}

impl Members {
    /// The members whose logs may be read, the best one first; at least one.
    ///
    /// # Errors
    /// [`Error::Source`] with the answer of each member if there is none.
    pub(in crate::backup) async fn logs(&self) -> Result<Vec<LogMember>, Error> {
        let asked = self.ask().await;
        if let Some(error) = several_clusters(&asked) {
            return Err(error);
        }
        let mut failures = Vec::new();
        let candidates = candidates(asked, &mut failures).into_iter();
        let members = candidates.filter_map(|it| match it.reader {
            super::Reader::Member(Reader(client)) => Some(LogMember {
                endpoint: it.endpoint,
                id: it.standing.member_id,
                cluster_id: it.standing.cluster_id,
                client,
            }),
            super::Reader::Client(_) => None,
        });
        let members: Vec<LogMember> = members.collect();
        match members.is_empty() {
            true => Err(Error::Source(failures.join("; "))),
            false => Ok(members),
        }
    }

    /// What each member answers.
    pub(super) async fn ask(&self) -> Asked {
        let mut asked = Asked::new();
        let mut known = BTreeSet::new();
        for (host, address) in self.addresses().await {
            let address = match address {
                Ok(address) => address,
                Err(why) => {
                    asked.push((host, Err(why)));
                    continue;
                }
            };
            let answer = self.ask_one(&host, &address).await;
            // Under two addresses, it would be busy for the second one.
            if let Ok((standing, _)) = &answer
                && !known.insert(standing.member_id)
            {
                continue;
            }
            asked.push((address, answer));
        }
        asked
    }

    /// Every address of each host, or why there is none.
    pub(in crate::backup) async fn addresses(&self) -> Vec<(String, Result<String, String>)> {
        let mut all = Vec::new();
        for host in &self.hosts {
            match tokio::time::timeout(ANSWER, tokio::net::lookup_host(host)).await {
                Err(_) => all.push((host.clone(), Err("its name is not resolved in 5 s".into()))),
                Ok(Err(error)) => all.push((host.clone(), Err(error.to_string()))),
                Ok(Ok(addresses)) => {
                    let addresses = addresses.map(|it| (host.clone(), Ok(it.to_string())));
                    all.extend(addresses);
                }
            }
        }
        all
    }

    /// A client of one of them, for a following: `key` is that of followings then.
    pub(in crate::backup) fn follow_client(
        &self,
        host: &str,
        address: &str,
        timeout: Duration,
    ) -> Result<FollowClient, AddressError> {
        let secure = secure(host, self.roots.as_deref());
        FollowClient::new(address, self.key.clone(), timeout, secure.as_ref())
    }

    async fn ask_one(
        &self,
        host: &str,
        address: &str,
    ) -> Result<(Standing, super::Reader), String> {
        let client = client(host, address, &self.key, self.roots.as_deref());
        let mut client = client.map_err(|error| error.to_string())?;
        let standing = tokio::time::timeout(ANSWER, client.standing()).await;
        let standing = standing.map_err(|_| format!("no answer in {} s", ANSWER.as_secs()))?;
        let it = standing.map_err(|status| text(&status))?;
        let standing = Standing {
            cluster_id: it.cluster_id,
            member_id: it.member_id,
            leader_id: it.leader_id,
            version: it.version,
            newest: it.commit,
            applied: it.applied,
            learner: it.learner,
            refused: Some(it.refused).filter(|why| !why.is_empty()),
        };
        Ok((standing, super::Reader::Member(Reader(client))))
    }
}

impl Reader {
    pub(super) fn of(client: BackupClient) -> Reader {
        Reader(client)
    }

    pub(super) async fn read(
        mut self,
        sink: Sink<'_>,
        endpoint: &str,
        rate: Option<u64>,
    ) -> Result<Written, Error> {
        let request = proto::OpenRequest {
            rate: rate.unwrap_or(0),
            ..proto::OpenRequest::default()
        };
        let opened = tokio::time::timeout(OPEN, self.0.open(request)).await;
        let opened = opened.map_err(|_| silent())?;
        let opened = opened.map_err(|status| Error::Source(text(&status)))?;
        self.read_opened(sink, opened, endpoint).await
    }

    /// The file, which is given up afterwards.
    pub(super) async fn read_opened(
        &mut self,
        mut sink: Sink<'_>,
        opened: proto::OpenResponse,
        endpoint: &str,
    ) -> Result<Written, Error> {
        let file = opened.file;
        let read = async {
            let whole = self.whole(opened).await?;
            self.read_all(&mut sink, &whole).await?;
            Ok(whole)
        };
        let read = read.await;
        // Also after an error: whoever tries again finds the member free.
        self.close(file).await;
        sink.finish(&read?.sha256, endpoint)
    }

    /// Waits until the member has written the file. One of an older version has, before it answers.
    async fn whole(
        &mut self,
        mut opened: proto::OpenResponse,
    ) -> Result<proto::OpenResponse, Error> {
        let file = opened.file;
        while opened.growing {
            let waited = tokio::time::timeout(SILENCE, self.0.wait(file)).await;
            let waited = waited.map_err(|_| silent())?;
            opened = waited.map_err(|status| Error::Source(text(&status)))?;
        }
        Ok(opened)
    }

    pub(super) async fn close(&mut self, file: u64) {
        let _ = tokio::time::timeout(ANSWER, self.0.close(file)).await;
    }

    async fn read_all(
        &mut self,
        sink: &mut Sink<'_>,
        opened: &proto::OpenResponse,
    ) -> Result<(), Error> {
        let client = &mut self.0;
        let failed = |status: tonic::Status| Error::Source(text(&status));
        while sink.length() < opened.length {
            let (offset, rest) = (sink.length(), opened.length - sink.length());
            let read = client.read(opened.file, offset, rest.min(READ));
            let read = tokio::time::timeout(SILENCE, read).await;
            let data = read.map_err(|_| silent())?.map_err(failed)?;
            if data.is_empty() || data.len() as u64 > rest {
                return Err(Error::Source(
                    "the member sent something else than was asked for".to_owned(),
                ));
            }
            sink.write(&data).await?;
        }
        // What was wrong with the member meanwhile was wrong with its data.
        let standing = tokio::time::timeout(SILENCE, client.standing()).await;
        let standing = standing.map_err(|_| silent())?.map_err(failed)?;
        match standing.refused.is_empty() {
            true => Ok(()),
            false => Err(Error::Source(standing.refused)),
        }
    }
}

/// A client of a member at one of its host's addresses.
pub(super) fn client(
    host: &str,
    address: &str,
    key: &Key,
    roots: Option<&str>,
) -> Result<BackupClient, AddressError> {
    BackupClient::new(address, key.clone(), OPEN, secure(host, roots).as_ref())
}

/// Whose certificate is expected where TLS is used.
fn secure(host: &str, roots: Option<&str>) -> Option<Secure> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    roots.map(|roots| Secure {
        roots_pem: roots.into(),
        server_name: name.trim_matches(['[', ']']).to_owned(),
        plaintext_too: false,
    })
}
