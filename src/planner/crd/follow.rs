//! `spec.bootstrap.follow`: a new cluster that follows a living one until it takes that one's place; how far it is; and one
//! value for that and for `spec.replicaOf`. Never says what is in the Secrets that it names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backups::LocalRef;
use super::replica::{PromoteMode, ReplicaOf};
use super::schema;
use super::spec::EtcdClusterSpec;

/// The cluster that is followed, how it is reached, and when its place is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.endpoints.all(url, url.startsWith('https://')) || self.endpoints.all(url, url.startsWith('http://'))", "bootstrap.follow.endpoints are all https:// or all http://"), ("!has(self.tls) || self.endpoints.all(url, url.startsWith('https://'))", "bootstrap.follow.tls is for endpoints with https://: correct the endpoints, or leave tls out")])))]
pub struct Follow {
    /// Client URLs of the cluster that is followed, of etcd 3.5 to 3.7 or of Quorate, such as `https://etcd-0.etcd:2379`.
    /// Those of all members, so that one may be away.
    #[schemars(schema_with = "schema::endpoints")]
    pub endpoints: Vec<String>,
    /// How its certificates are checked, and which one is shown to it. Without it, https:// is checked by the CAs of the
    /// image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<FollowTls>,
    /// Who is logged in there, where authentication is enabled. The user needs the role root: for the snapshot, every key,
    /// the users, and the alarm with which writes are refused at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<FollowUser>,
    /// When the place of the followed cluster is taken. It is closed to writes then, by its alarm CORRUPT, the rest is
    /// applied here, and clients may write here. May be changed from Manual to WhenCaughtUp, and not back.
    #[serde(default)]
    pub cutover: Cutover,
}

/// TLS towards the cluster that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FollowTls {
    /// A Secret of this namespace: `ca.crt`, and where a client certificate is asked for also `tls.crt` and `tls.key`.
    pub secret_ref: LocalRef,
}

/// A user of the cluster that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FollowUser {
    /// A Secret of this namespace with `username` and `password`, as of the type kubernetes.io/basic-auth.
    pub secret_ref: LocalRef,
}

/// When the place of the followed cluster is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cutover {
    /// Not before this is changed to WhenCaughtUp.
    #[default]
    Manual,
    /// As soon as this cluster has caught up.
    WhenCaughtUp,
}

/// A cluster that another one follows, by whichever field asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedCluster {
    /// Its client URLs.
    pub endpoints: Vec<String>,
    /// TLS towards it.
    pub tls: Option<FollowTls>,
    /// Who is logged in there.
    pub user: Option<FollowUser>,
    /// Until when it is followed.
    pub until: Until,
    /// The follower is its standby, by `spec.replicaOf`; otherwise one that moves, by `spec.bootstrap.follow`.
    pub standby: bool,
}

/// Until when a cluster is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Until something else is asked for.
    #[default]
    Stay,
    /// Until everything that it wrote is here; then it is closed to writes, and its place is taken.
    CaughtUp,
    /// It is lost: its place is taken with what is here.
    SourceLost {
        /// This revision has to be here at least.
        revision: i64,
    },
}

impl Until {
    /// As the flag `--cutover` of `quorate follow run` takes it.
    #[must_use]
    pub fn argument(self) -> &'static str {
        match self {
            Until::Stay => "manual",
            Until::CaughtUp => "when-caught-up",
            Until::SourceLost { .. } => "source-lost",
        }
    }
}

impl From<Cutover> for Until {
    fn from(cutover: Cutover) -> Until {
        match cutover {
            Cutover::Manual => Until::Stay,
            Cutover::WhenCaughtUp => Until::CaughtUp,
        }
    }
}

impl From<&Follow> for FollowedCluster {
    fn from(follow: &Follow) -> FollowedCluster {
        FollowedCluster {
            endpoints: follow.endpoints.clone(),
            tls: follow.tls.clone(),
            user: follow.user.clone(),
            until: follow.cutover.into(),
            standby: false,
        }
    }
}

impl From<&ReplicaOf> for FollowedCluster {
    fn from(replica: &ReplicaOf) -> FollowedCluster {
        let until = match &replica.promote {
            None => Until::Stay,
            Some(promote) => match promote.mode {
                PromoteMode::Switchover => Until::CaughtUp,
                // The rules of the schema want the revision: without it nothing is promoted.
                PromoteMode::Failover => Until::SourceLost {
                    revision: promote.revision.unwrap_or(i64::MAX),
                },
            },
        };
        FollowedCluster {
            endpoints: replica.endpoints.clone(),
            tls: replica.tls.clone(),
            user: replica.user.clone(),
            until,
            standby: true,
        }
    }
}

impl FollowedCluster {
    /// In words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let endpoints = self.endpoints.join(", ");
        match self.standby {
            true => format!("the source at {endpoints}"),
            false => format!("the cluster at {endpoints}"),
        }
    }

    /// What it is to its follower.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.standby {
            true => "the source",
            false => "the followed cluster",
        }
    }
}

impl EtcdClusterSpec {
    /// The cluster that it follows or has followed, if there is one.
    #[must_use]
    pub fn follow(&self) -> Option<FollowedCluster> {
        let bootstrap = self.bootstrap.as_ref().and_then(|it| it.follow.as_ref());
        let replica = || self.replica_of.as_ref().map(FollowedCluster::from);
        bootstrap.map(FollowedCluster::from).or_else(replica)
    }
}

/// How far a cluster is that follows another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FollowPhase {
    /// The first member receives a snapshot of the followed cluster.
    #[default]
    Seeding,
    /// The followed cluster's writes are applied as they come.
    Following,
    /// The followed cluster is closed to writes, and the rest of them is applied.
    Frozen,
    /// Clients write here.
    CutOver,
}

impl FollowPhase {
    /// As in the status, and as the reason of conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FollowPhase::Seeding => "Seeding",
            FollowPhase::Following => "Following",
            FollowPhase::Frozen => "Frozen",
            FollowPhase::CutOver => "CutOver",
        }
    }
}

/// How far a cluster is that follows another one, and how far behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FollowStatus {
    /// Seeding, Following, Frozen or CutOver.
    pub phase: FollowPhase,
    /// ID of the followed cluster, in hexadecimal.
    #[serde(rename = "sourceClusterID", skip_serializing_if = "Option::is_none")]
    pub source_cluster_id: Option<String>,
    /// Revision of this cluster; after the cutover, the one at which clients could write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Revision of the followed cluster, as the Job last told a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_revision: Option<i64>,
    /// Revisions of the followed cluster that are not applied here yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_revisions: Option<i64>,
    /// Everything that the followed cluster had at this time is applied here; to half a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub as_of: Option<String>,
    /// For how many seconds that has been; 0 below ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<i64>,
    /// When the followed cluster was closed to writes; absent after a promotion with mode Failover.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub frozen_time: Option<String>,
    /// When clients could write here; where the Job could not say it, when that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub cut_over_time: Option<String>,
    /// Milliseconds for which neither cluster took writes; absent after a promotion with mode Failover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_gap_milliseconds: Option<i64>,
    /// What happens now, or what went wrong and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why a Job last failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}
