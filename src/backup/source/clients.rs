//! Members as clients reach them, by etcd's API: etcd's own and ours.

use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming};

use super::sink::{Sink, Written};
use super::{ANSWER, Asked, SILENCE, Standing, silent, text};
use crate::backup::{Error, chain};
use crate::server::operator_api::backup_client::SNAPSHOT_RATE;
use crate::wire::etcd::auth_client::AuthClient;
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::etcd::{
    AuthenticateRequest, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse,
};

/// Length of the digest behind the database.
const DIGEST: usize = 32;

/// How to reach the members of a cluster, in etcdctl's terms.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Client endpoints.
    pub endpoints: Vec<String>,
    /// PEM roots of the servers' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM certificate and key of this client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// Also from a member under the alarm CORRUPT: whoever follows a cluster closes it to writes by that.
    pub under_corrupt: bool,
}

/// A member that gives its data.
pub(super) struct Reader {
    channel: Channel,
    token: Option<String>,
    /// Of its data, about.
    bytes: u64,
}

impl Clients {
    /// What each member answers.
    pub(super) async fn ask(&self) -> Asked {
        let mut asked = Asked::new();
        for endpoint in self.endpoints.iter().filter(|it| !it.is_empty()) {
            let answer = tokio::time::timeout(ANSWER, self.ask_one(endpoint)).await;
            let answer =
                answer.unwrap_or_else(|_| Err(format!("no answer in {} s", ANSWER.as_secs())));
            asked.push((endpoint.clone(), answer));
        }
        asked
    }

    async fn ask_one(&self, endpoint: &str) -> Result<(Standing, super::Reader), String> {
        let channel = self.channel(endpoint)?;
        let token = self.token(&channel).await?;
        let mut client = MaintenanceClient::new(channel.clone());
        let status = client.status(with_token(StatusRequest {}, token.as_deref())?);
        let status = status.await.map_err(|it| text(&it))?.into_inner();
        let bytes = u64::try_from(status.db_size).unwrap_or(0);
        let reader = super::Reader::Client(Reader {
            channel,
            token,
            bytes,
        });
        let mut standing = standing(status);
        if self.under_corrupt {
            standing.refused = None;
        }
        Ok((standing, reader))
    }

    pub(in crate::backup) fn channel(&self, endpoint: &str) -> Result<Channel, String> {
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

    pub(in crate::backup) async fn token(
        &self,
        channel: &Channel,
    ) -> Result<Option<String>, String> {
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
}

impl Reader {
    pub(super) async fn read(
        self,
        sink: Sink<'_>,
        endpoint: &str,
        rate: Option<u64>,
    ) -> Result<Written, Error> {
        let request = with_token(SnapshotRequest {}, self.token.as_deref());
        let mut request = request.map_err(Error::Source)?;
        let mut patience = SILENCE;
        if let Some(rate) = rate {
            request.metadata_mut().insert(SNAPSHOT_RATE, rate.into());
            // It writes all of it before the first byte, and reads it through once.
            patience += Duration::from_secs_f64(3.0 * self.bytes as f64 / rate as f64);
        }
        let mut client = MaintenanceClient::new(self.channel);
        let stream = tokio::time::timeout(patience, client.snapshot(request)).await;
        let stream = stream.map_err(|_| silent())?;
        let stream = stream.map_err(|it| Error::Source(text(&it)))?.into_inner();
        receive(stream, sink, endpoint).await
    }
}

/// Everything but the digest at the end.
async fn receive(
    mut stream: Streaming<SnapshotResponse>,
    mut sink: Sink<'_>,
    endpoint: &str,
) -> Result<Written, Error> {
    // The last bytes may be the digest.
    let mut held: Vec<u8> = Vec::new();
    loop {
        let next = tokio::time::timeout(SILENCE, stream.message()).await;
        let next = next.map_err(|_| silent())?;
        let Some(message) = next.map_err(|it| Error::Source(text(&it)))? else {
            break;
        };
        held.extend_from_slice(&message.blob);
        let ready = held.len().saturating_sub(DIGEST);
        sink.write(&held[..ready]).await?;
        held.drain(..ready);
    }
    sink.finish(&held, endpoint)
}

fn standing(status: StatusResponse) -> Standing {
    let header = status.header.unwrap_or_default();
    let corrupt = status.errors.iter().any(|error| error.contains("CORRUPT"));
    Standing {
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        leader_id: status.leader,
        newest: status.raft_index,
        applied: status.raft_applied_index,
        learner: status.is_learner,
        version: status.version,
        refused: corrupt.then(|| "an alarm CORRUPT is raised".to_owned()),
    }
}

pub(in crate::backup) fn with_token<T>(
    message: T,
    token: Option<&str>,
) -> Result<Request<T>, String> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let token = token.parse().map_err(|_| "the token is no header value")?;
        request.metadata_mut().insert("token", token);
    }
    Ok(request)
}
