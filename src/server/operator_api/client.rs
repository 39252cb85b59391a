//! A client of `quorate.v1`, used by the operator: dials one address, signs every call and rejects
//! every answer that is not signed.
//!
//! Never retries: the operator's loop decides that from a new observation.

use std::time::Duration;

use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::transport::Endpoint;
use tower::ServiceExt;
use tower::util::BoxCloneService;

use super::access_client::AccessClient;
use super::auth::{Key, Recipient};
use super::proof::FROM;
use super::secure::{Connector, Secure, SecureError};
pub use super::signed::Author;
use super::signed::Signed;
use crate::wire::member as proto;

/// The transport to one member: a connection, or in a simulation the member itself.
pub type Way = BoxCloneService<http::Request<Body>, http::Response<Body>, WayError>;

/// Why a call did not reach the member.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WayError(#[source] StdError);

impl WayError {
    /// An error with this cause.
    pub fn new(why: impl Into<StdError>) -> WayError {
        WayError(why.into())
    }
}

/// Calls to one member's peer port.
#[derive(Clone, Debug)]
pub struct MemberClient {
    inner: proto::member_client::MemberClient<Signed<Way>>,
    signed: Signed<Way>,
}

/// A pod that is gone does not answer later either.
const CONNECT: Duration = Duration::from_secs(10);

/// The transport to `host:port`. Connects at the first call; each call, including the connection, takes at most
/// `timeout`. Without `secure` it uses no TLS.
pub(in crate::server) fn dial(
    address: &str,
    timeout: Duration,
    secure: Option<&Secure>,
) -> Result<Way, AddressError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|source| AddressError::Address {
            address: address.to_owned(),
            source,
        })?
        .connect_timeout(timeout.min(CONNECT))
        .timeout(timeout)
        .tcp_nodelay(true);
    let channel = match secure {
        None => endpoint.connect_lazy(),
        Some(secure) => {
            let connector =
                Connector::new(address, secure).map_err(|source| AddressError::Secure {
                    address: address.to_owned(),
                    source,
                })?;
            endpoint.connect_with_connector_lazy(connector)
        }
    };
    Ok(channel.map_err(WayError::new).boxed_clone())
}

/// Why an address cannot be dialled at all.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not an address.
    #[error("{address:?} is no host:port to dial: {source}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        source: tonic::transport::Error,
    },
    /// The TLS settings are unusable.
    #[error("cannot dial {address} by TLS: {source}")]
    Secure {
        /// Where.
        address: String,
        /// What is wrong.
        source: SecureError,
    },
}

impl MemberClient {
    /// A client of the member at `host:port`. Connects at the first call; each call, including the
    /// connection, takes at most `timeout`. Without `secure` it uses no TLS.
    pub fn new(
        address: &str,
        key: Key,
        timeout: Duration,
        secure: Option<&Secure>,
    ) -> Result<MemberClient, AddressError> {
        Ok(Self::over(dial(address, timeout, secure)?, key))
    }

    /// A client of the member at the end of this transport.
    #[must_use]
    pub fn over(way: Way, key: Key) -> MemberClient {
        Self::with(Signed::new(way, key))
    }

    fn with(signed: Signed<Way>) -> MemberClient {
        MemberClient {
            inner: proto::member_client::MemberClient::new(signed.clone()),
            signed,
        }
    }

    /// The same member, for calls decided on from what `signer` reported: another disk, or another
    /// start of the same one, refuses them.
    #[must_use]
    pub fn only(&self, signer: Author) -> MemberClient {
        Self::with(self.signed.only(signer))
    }

    /// Calls about users and roles to the same member, bound as those of this client are.
    #[must_use]
    pub fn access(&self) -> AccessClient {
        AccessClient::new(self.signed.clone())
    }

    /// The member's own view; with `linearizable` confirmed by a quorum, else an error.
    pub async fn describe(
        &mut self,
        linearizable: bool,
    ) -> Result<proto::DescribeResponse, tonic::Status> {
        self.describe_for(linearizable, 0).await
    }

    /// The same for a caller with an epoch: calls with an older one are refused afterwards.
    pub async fn describe_for(
        &mut self,
        linearizable: bool,
        epoch: u64,
    ) -> Result<proto::DescribeResponse, tonic::Status> {
        Ok(self.describe_by(linearizable, epoch).await?.0)
    }

    /// The same, together with the signer of the answer.
    pub async fn describe_by(
        &mut self,
        linearizable: bool,
        epoch: u64,
    ) -> Result<(proto::DescribeResponse, Author), tonic::Status> {
        let request = proto::DescribeRequest {
            linearizable,
            epoch,
            ..proto::DescribeRequest::default()
        };
        let answer = self.inner.describe(request).await?;
        let from = answer.metadata().get(FROM);
        // The signature covers it; a member of 0.1.0 does not send it.
        let from = from.and_then(|from| Recipient::read(from.to_str().ok()?));
        let description = answer.into_inner();
        match &from {
            Some(from) if from.disk_uuid != description.disk_uuid => Err(tonic::Status::unknown(
                "the description of one disk came from another: it is not believed",
            )),
            _ => Ok((description, Author::of(from))),
        }
    }

    /// Makes a standby the seed of a new cluster. Idempotent for one disk.
    pub async fn bootstrap(
        &mut self,
        request: proto::BootstrapRequest,
    ) -> Result<proto::BootstrapResponse, tonic::Status> {
        Ok(self.inner.bootstrap(request).await?.into_inner())
    }

    /// Adds a standby's disk as a learner.
    pub async fn add_learner(
        &mut self,
        request: proto::AddLearnerRequest,
    ) -> Result<proto::ChangeResponse, tonic::Status> {
        Ok(self.inner.add_learner(request).await?.into_inner())
    }

    /// Makes a learner a voter.
    pub async fn promote(
        &mut self,
        fence: proto::Fence,
        id: u64,
    ) -> Result<proto::ChangeResponse, tonic::Status> {
        let fence = Some(fence);
        let request = proto::PromoteRequest { fence, id };
        Ok(self.inner.promote(request).await?.into_inner())
    }

    /// Removes a member for good.
    pub async fn remove(
        &mut self,
        fence: proto::Fence,
        id: u64,
    ) -> Result<proto::ChangeResponse, tonic::Status> {
        let fence = Some(fence);
        let request = proto::RemoveRequest { fence, id };
        Ok(self.inner.remove(request).await?.into_inner())
    }

    /// Changes a member's peer URLs.
    pub async fn update_peer_urls(
        &mut self,
        fence: proto::Fence,
        id: u64,
        peer_urls: Vec<String>,
    ) -> Result<proto::ChangeResponse, tonic::Status> {
        let request = proto::UpdatePeerUrlsRequest {
            fence: Some(fence),
            id,
            peer_urls,
        };
        Ok(self.inner.update_peer_urls(request).await?.into_inner())
    }

    /// Transfers leadership to another voter; with 0 the leader chooses.
    pub async fn transfer(
        &mut self,
        fence: proto::Fence,
        to: u64,
    ) -> Result<proto::TransferResponse, tonic::Status> {
        let fence = Some(fence);
        let request = proto::TransferRequest { to, fence };
        Ok(self.inner.transfer(request).await?.into_inner())
    }

    /// Disarms an alarm; returns whether it was on.
    pub async fn disarm(
        &mut self,
        fence: proto::Fence,
        kind: proto::AlarmKind,
        member: u64,
    ) -> Result<bool, tonic::Status> {
        let request = proto::DisarmRequest {
            fence: Some(fence),
            kind: kind.into(),
            member,
        };
        Ok(self.inner.disarm(request).await?.into_inner().was_on)
    }

    /// Makes the member unready and transfers its leadership.
    pub async fn retire(
        &mut self,
        fence: proto::Fence,
    ) -> Result<proto::RetireResponse, tonic::Status> {
        let request = proto::RetireRequest { fence: Some(fence) };
        let response = self.inner.retire(request).await?;
        Ok(response.into_inner())
    }
}
