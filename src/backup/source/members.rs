//! Members that an operator runs, by `quorate.v1.Backup` on their peer ports: needs neither a user of the cluster nor a
//! client certificate, and works under every alarm but CORRUPT.

use std::path::{Path, PathBuf};

use super::sink::{Sink, Written};
use super::{ANSWER, Asked, Error, SILENCE, Standing, silent, text};
use crate::server::operator_api::auth::Key;
use crate::server::operator_api::backup_client::{BackupClient, READ};
use crate::server::operator_api::secure::Secure;

/// The members behind some names.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// `host:port` of peer ports: every address of a host is a member.
    pub hosts: Vec<String>,
    /// File with the key of backups.
    pub key_file: PathBuf,
    /// PEM roots of the members' certificates, which name the host; without them no TLS is used.
    pub roots: Option<String>,
}

/// A member that gives its data.
pub(super) struct Reader(BackupClient);

impl Members {
    /// What each member answers.
    pub(super) async fn ask(&self) -> Asked {
        let mut asked = Asked::new();
        let key = match Key::read(&self.key_file) {
            Ok(key) => key,
            Err(error) => {
                let place = place(&self.key_file);
                return vec![(place, Err(error.to_string()))];
            }
        };
        for host in &self.hosts {
            match tokio::time::timeout(ANSWER, tokio::net::lookup_host(host)).await {
                Err(_) => asked.push((host.clone(), Err("its name is not resolved in 5 s".into()))),
                Ok(Err(error)) => asked.push((host.clone(), Err(error.to_string()))),
                Ok(Ok(addresses)) => {
                    for address in addresses {
                        let address = address.to_string();
                        let answer = self.ask_one(host, &address, key.clone()).await;
                        asked.push((address, answer));
                    }
                }
            }
        }
        asked
    }

    async fn ask_one(
        &self,
        host: &str,
        address: &str,
        key: Key,
    ) -> Result<(Standing, super::Reader), String> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let secure = self.roots.as_ref().map(|roots| Secure {
            roots_pem: roots.clone(),
            server_name: name.to_owned(),
            plaintext_too: false,
        });
        let client = BackupClient::new(address, key, SILENCE, secure.as_ref());
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
    pub(super) async fn read(
        mut self,
        mut sink: Sink<'_>,
        endpoint: &str,
    ) -> Result<Written, Error> {
        let client = &mut self.0;
        let failed = |status: tonic::Status| Error::Source(text(&status));
        let opened = tokio::time::timeout(SILENCE, client.open()).await;
        let opened = opened.map_err(|_| silent())?.map_err(failed)?;
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
        // It gives the file up by itself as well.
        let _ = tokio::time::timeout(ANSWER, client.close(opened.file)).await;
        sink.finish(&opened.sha256, endpoint)
    }
}

fn place(file: &Path) -> String {
    file.display().to_string()
}
