//! A client of `quorate.v1.Follow`: brings a cluster the writes of the one that it follows. Signs every call and rejects
//! every answer that is not signed, as the operator's client does, with a key that fits these calls alone. Never retries.

use std::time::Duration;

use super::auth::Key;
use super::client::{AddressError, Way, dial};
use super::secure::Secure;
use super::signed::Signed;
use crate::wire::member as proto;
use proto::follow_client::FollowClient as Generated;

/// Bytes of the largest step: the server refuses more.
pub const STEP: usize = 16 << 20;

/// Calls to one member's peer port.
#[derive(Clone, Debug)]
pub struct FollowClient(Generated<Signed<Way>>);

impl FollowClient {
    /// A client of the member at `host:port`. Connects at the first call; each call takes at most `timeout`.
    ///
    /// # Errors
    /// An address that cannot be dialled at all.
    pub fn new(
        address: &str,
        key: Key,
        timeout: Duration,
        secure: Option<&Secure>,
    ) -> Result<FollowClient, AddressError> {
        let way = dial(address, timeout, secure)?;
        let signed = Signed::for_follow(way, key);
        Ok(FollowClient(Generated::new(signed)))
    }

    /// What the cluster follows and how far, with the hash at a revision, or without it (0).
    ///
    /// # Errors
    /// No answer, or one that is not signed; no quorum.
    pub async fn position(
        &mut self,
        hash_revision: i64,
    ) -> Result<proto::PositionResponse, tonic::Status> {
        let request = proto::PositionRequest { hash_revision };
        Ok(self.0.position(request).await?.into_inner())
    }

    /// Replicates a step, and says what the member is to describe. Returns the revision afterwards.
    ///
    /// # Errors
    /// The same; the step is refused (DATA_LOSS: for good), or its outcome is unknown.
    pub async fn advance(&mut self, request: proto::AdvanceRequest) -> Result<i64, tonic::Status> {
        Ok(self.0.advance(request).await?.into_inner().revision)
    }
}
