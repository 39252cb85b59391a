//! `spec.replicaOf`: a standby of a cluster elsewhere, which follows that one until it is promoted. Never says what is in
//! the Secrets that it names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::follow::{FollowTls, FollowUser};
use super::schema;

/// The cluster whose standby this one is, how it is reached, and whether this one takes its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.endpoints.all(url, url.startsWith('https://')) || self.endpoints.all(url, url.startsWith('http://'))", "replicaOf.endpoints are all https:// or all http://"), ("!has(self.tls) || self.endpoints.all(url, url.startsWith('https://'))", "replicaOf.tls is for endpoints with https://: correct the endpoints, or leave tls out")])))]
pub struct ReplicaOf {
    /// Client URLs of the source, of etcd 3.5 to 3.7 or of Quorate, such as `https://etcd-0.etcd:2379`. Those of all its
    /// members: for a promotion with mode Failover none of them may answer. They may be changed to others of the same
    /// cluster.
    #[schemars(schema_with = "schema::source_endpoints")]
    pub endpoints: Vec<String>,
    /// How the source's certificates are checked, and which one is shown to it. Without it, https:// is checked by the CAs
    /// of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<FollowTls>,
    /// Who is logged in at the source, where authentication is enabled. The user needs the role root: for the snapshot,
    /// every key, the users, and the alarm with which writes are refused at a Switchover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<FollowUser>,
    /// Let clients write here from now on, once: it is not followed again afterwards. Without it this cluster is a
    /// standby: clients may read here, and their writes are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote: Option<Promote>,
}

/// How a standby takes the place of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.mode != 'Failover' || (has(self.acceptLoss) && self.acceptLoss && has(self.revision))", "replicaOf.promote with mode Failover needs acceptLoss: true, because what the source wrote and is not here is lost, and revision, as it was reviewed in status.follow.revision"), ("self.mode == 'Failover' || (!has(self.acceptLoss) && !has(self.revision))", "replicaOf.promote.acceptLoss and revision are for mode Failover: a Switchover loses nothing")])))]
pub struct Promote {
    /// Switchover or Failover. Until it is carried out it may be changed, and promote be taken out again.
    pub mode: PromoteMode,
    /// With mode Failover: writes of the source that are not here are lost. Only `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_loss: Option<bool>,
    /// With mode Failover: the revision of this cluster that was reviewed, `status.follow.revision`. With less than that
    /// the promotion is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
}

/// Whether the source takes part in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PromoteMode {
    /// The source is closed to writes, by its alarm CORRUPT, what it wrote last is applied here, then clients may write
    /// here. Nothing is lost.
    #[default]
    Switchover,
    /// The source is lost: clients may write here, from what is here. Refused while any of its endpoints answers.
    Failover,
}
