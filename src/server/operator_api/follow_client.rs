//! A client of `quorate.v1.Follow`: brings a cluster the writes of the one that it follows. Signs every call and rejects
//! every answer that is not signed, as the operator's client does, with a key that fits these calls alone. Never retries.

use std::time::Duration;

use super::auth::Key;
use super::client::{AddressError, Way, dial};
use super::proof::Caller;
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
        let generated = Generated::new(signed);
        Ok(FollowClient(
            generated.max_decoding_message_size(Caller::Follow.answer_limit()),
        ))
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

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// A cluster with more than 450,000 leases could not be followed any further after the Job was started again: the
    /// answer that says which of them are here was larger than 4 MiB, and was refused.
    #[test]
    fn millions_of_leases_fit_an_answer() {
        let answer = proto::PositionResponse {
            leases: vec![i64::MAX; 5_000_000],
            ..proto::PositionResponse::default()
        };
        assert!(answer.encoded_len() < Caller::Follow.answer_limit());
    }
}
