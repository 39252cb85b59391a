//! Stand-ins for the types of `store` and `node` until those rooms land. Never used at run time.
#![allow(missing_docs, clippy::unimplemented)]

use std::sync::Arc;

use tokio::sync::watch;

pub use crate::node::{Membership, MembershipError};
pub use crate::store::{Command, Error as StoreError, Response, View};

use super::handle::{Fence, Health, MembershipRequest, Proposed, Published, RequestError, Status};

/// A lease's times, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The TTL that was granted.
    pub granted: i64,
    /// What remains of it.
    pub remaining: i64,
}

pub struct Shared;

impl Shared {
    pub async fn propose(&self, _: Command) -> Result<Proposed, RequestError> {
        Err(RequestError::NotAMember)
    }
    pub async fn linearizable(&self) -> Result<Arc<Published>, RequestError> {
        Err(RequestError::NotAMember)
    }
    pub fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        unimplemented!()
    }
    pub async fn change_membership(
        &self,
        _: MembershipRequest,
        _: Fence,
    ) -> Result<(u64, Arc<Membership>), RequestError> {
        Err(RequestError::NotAMember)
    }
    pub async fn move_leader(&self, _: u64) -> Result<u64, RequestError> {
        Err(RequestError::NotAMember)
    }
    pub async fn lease_keepalive(&self, _: i64) -> Result<Option<i64>, RequestError> {
        Err(RequestError::NotAMember)
    }
    pub async fn lease_times(&self, _: i64) -> Result<Option<LeaseTimes>, RequestError> {
        Err(RequestError::NotAMember)
    }
    pub fn status(&self) -> Arc<Status> {
        unimplemented!()
    }
    pub fn live(&self) -> Health {
        Health::Ok
    }
    pub fn ready(&self) -> Health {
        Health::Ok
    }
    pub fn unique(&self) -> u64 {
        0
    }
}
