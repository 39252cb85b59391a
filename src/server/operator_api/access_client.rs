//! A client of `quorate.v1.Access`, used by the operator: users and roles of one cluster, over the connection and with
//! the proofs of a [`super::client::MemberClient`]. Never retries, and never decides what to change.

use super::client::Way;
use super::signed::Signed;
use crate::wire::member as proto;
use proto::access_client::AccessClient as Generated;
use proto::change_access_request::Change;

/// Calls about users and roles to one member, which answers for its cluster.
#[derive(Clone, Debug)]
pub struct AccessClient(Generated<Signed<Way>>);

impl AccessClient {
    pub(super) fn new(signed: Signed<Way>) -> AccessClient {
        AccessClient(Generated::new(signed))
    }

    /// These users and roles, as far as they exist, from a state that includes everything committed before.
    ///
    /// # Errors
    /// No answer, or one that is not signed; no quorum; UNIMPLEMENTED by servers up to 0.1.0.
    pub async fn show(
        &mut self,
        users: Vec<String>,
        roles: Vec<String>,
    ) -> Result<proto::ShowAccessResponse, tonic::Status> {
        let request = proto::ShowAccessRequest { users, roles };
        Ok(self.0.show(request).await?.into_inner())
    }

    /// Whether the user has this password. False too for a user without one.
    ///
    /// # Errors
    /// The same.
    pub async fn has_password(
        &mut self,
        user: &str,
        password: &str,
    ) -> Result<bool, tonic::Status> {
        let request = proto::CheckPasswordRequest {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        Ok(self.0.check_password(request).await?.into_inner().right)
    }

    /// Carries out a change that was decided on an answer with this auth revision. Returns the one afterwards.
    ///
    /// # Errors
    /// The same; ABORTED if users or roles have changed since, INVALID_ARGUMENT for what is refused at any time.
    pub async fn change(
        &mut self,
        epoch: u64,
        auth_revision: u64,
        change: Change,
    ) -> Result<u64, tonic::Status> {
        let request = proto::ChangeAccessRequest {
            epoch,
            auth_revision,
            change: Some(change),
        };
        Ok(self.0.change(request).await?.into_inner().auth_revision)
    }
}
