//! One member of the followed cluster, reached as a client reaches it. Everything that is asked of it is asked of this
//! one, so that no answer is older than the one before.

use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::Failed;
use super::watch::Watch;
use crate::backup::Error;
use crate::backup::source::{Clients, text, with_token};
use crate::store::Revision;
use crate::wire::etcd::alarm_request::AlarmAction;
use crate::wire::etcd::auth_client::AuthClient;
use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::lease_client::LeaseClient;
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::etcd::{
    AlarmRequest, AlarmResponse, AlarmType, AuthStatusRequest, HashKvRequest, LeaseLeasesRequest,
    LeaseTimeToLiveRequest, RangeRequest, ResponseHeader, StatusRequest,
};

/// A member answers within this.
const ANSWER: Duration = Duration::from_secs(10);
/// It reads all its keys for a hash.
const HASH: Duration = Duration::from_secs(300);
/// The largest answer: an event of the watch may be as large as a request.
pub(super) const LARGEST: usize = 64 << 20;
/// The text by which etcd refuses a revision that is gone.
const COMPACTED: &str = "required revision has been compacted";

/// The member.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) endpoint: String,
    pub(super) cluster_id: u64,
    channel: Channel,
    token: Option<String>,
}

impl Origin {
    /// The first member that answers and knows a leader.
    pub(super) async fn connect(clients: &Clients) -> Result<Origin, Failed> {
        let mut failures = Vec::new();
        for endpoint in clients.endpoints.iter().filter(|it| !it.is_empty()) {
            let reached = tokio::time::timeout(ANSWER, Origin::reach(clients, endpoint)).await;
            match reached.unwrap_or_else(|_| Err(silent(ANSWER))) {
                Ok(origin) => return Ok(origin),
                Err(why) => failures.push(format!("{endpoint}: {why}")),
            }
        }
        if failures.is_empty() {
            let why = "no endpoint of the followed cluster was given: give --from".to_owned();
            return Err(Failed::Final(Error::Usage(why)));
        }
        let why = failures.join("; ");
        Err(Failed::Passing(format!("the followed cluster: {why}")))
    }

    async fn reach(clients: &Clients, endpoint: &str) -> Result<Origin, String> {
        let channel = clients.channel(endpoint)?;
        let token = clients.token(&channel).await?;
        let mut origin = Origin {
            endpoint: endpoint.to_owned(),
            cluster_id: 0,
            channel,
            token,
        };
        let status = MaintenanceClient::new(origin.channel.clone())
            .status(origin.request(StatusRequest {})?)
            .await;
        let status = status.map_err(|it| text(&it))?.into_inner();
        if status.leader == 0 {
            return Err("it knows no leader".to_owned());
        }
        if status.is_learner {
            return Err("it is a learner".to_owned());
        }
        origin.cluster_id = status.header.unwrap_or_default().cluster_id;
        Ok(origin)
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, String> {
        with_token(message, self.token.as_deref())
    }

    async fn ask<Q, A>(
        &self,
        patience: Duration,
        message: Q,
        call: impl AsyncFnOnce(Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Failed> {
        let failed = |why: String| {
            Failed::Passing(format!("the followed cluster at {}: {why}", self.endpoint))
        };
        let request = self.request(message).map_err(failed)?;
        let answer = tokio::time::timeout(patience, call(request)).await;
        let answer = answer.map_err(|_| failed(silent(patience)))?;
        Ok(answer.map_err(|it| failed(text(&it)))?.into_inner())
    }

    /// Whether a revision can still be read there.
    pub(super) async fn is_readable(&self, revision: Revision) -> Result<bool, Failed> {
        let range = RangeRequest {
            key: b"\0".to_vec().into(),
            revision,
            count_only: true,
            ..RangeRequest::default()
        };
        let mut client = KvClient::new(self.channel.clone());
        let read = self
            .ask(ANSWER, range, async |it| client.range(it).await)
            .await;
        match read {
            Ok(_) => Ok(true),
            Err(Failed::Passing(why)) if why.contains(COMPACTED) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// IDs of all its leases, and the revision at which it had them.
    pub(super) async fn leases(&self) -> Result<(Vec<i64>, Revision), Failed> {
        let mut client = LeaseClient::new(self.channel.clone()).max_decoding_message_size(LARGEST);
        let all = LeaseLeasesRequest {};
        let all = self
            .ask(ANSWER, all, async |it| client.lease_leases(it).await)
            .await?;
        let ids = all.leases.iter().map(|lease| lease.id).collect();
        Ok((ids, revision(all.header)))
    }

    /// The seconds for which a lease was granted; `None`: it has ended.
    pub(super) async fn lease_ttl(&self, id: i64) -> Result<Option<i64>, Failed> {
        let mut client = LeaseClient::new(self.channel.clone());
        let asked = LeaseTimeToLiveRequest { id, keys: false };
        let times = self
            .ask(ANSWER, asked, async |it| {
                client.lease_time_to_live(it).await
            })
            .await?;
        Ok((times.granted_ttl > 0).then_some(times.granted_ttl))
    }

    /// How often its users and roles have changed.
    pub(super) async fn auth_revision(&self) -> Result<u64, Failed> {
        let mut client = AuthClient::new(self.channel.clone());
        let asked = AuthStatusRequest {};
        let status = self
            .ask(ANSWER, asked, async |it| client.auth_status(it).await)
            .await?;
        Ok(status.auth_revision)
    }

    /// etcd's HashKV at a revision, and the revision that it was compacted at.
    pub(super) async fn hash(&self, revision: Revision) -> Result<(u32, Revision), Failed> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let asked = HashKvRequest { revision };
        let hash = self
            .ask(HASH, asked, async |it| client.hash_kv(it).await)
            .await?;
        Ok((hash.hash, hash.compact_revision))
    }

    /// Whether it is closed to writes, by this or for a reason of its own.
    pub(super) async fn is_closed(&self) -> Result<bool, Failed> {
        let alarms = self.alarm(AlarmAction::Get).await?;
        let corrupt = i32::from(AlarmType::Corrupt);
        Ok(alarms.alarms.iter().any(|alarm| alarm.alarm == corrupt))
    }

    /// Closes it to writes. Returns its last revision: whatever comes later in its log is refused.
    pub(super) async fn close(&self) -> Result<Revision, Failed> {
        let raised = self.alarm(AlarmAction::Activate).await?;
        Ok(revision(raised.header))
    }

    /// Opens it to writes again.
    pub(super) async fn open(&self) -> Result<(), Failed> {
        self.alarm(AlarmAction::Deactivate).await.map(drop)
    }

    async fn alarm(&self, action: AlarmAction) -> Result<AlarmResponse, Failed> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let asked = AlarmRequest {
            action: action.into(),
            // Of no member: no member's data are meant.
            member_id: 0,
            alarm: AlarmType::Corrupt.into(),
        };
        self.ask(ANSWER, asked, async |it| client.alarm(it).await)
            .await
    }

    /// Watches every key from a revision on.
    pub(super) async fn watch(&self, from: Revision) -> Result<Watch, Failed> {
        let opened = Watch::open(self.channel.clone(), self.token.as_deref(), from);
        let opened = tokio::time::timeout(ANSWER, opened).await;
        opened.unwrap_or_else(|_| Err(Failed::Passing(silent(ANSWER))))
    }
}

fn revision(header: Option<ResponseHeader>) -> Revision {
    header.unwrap_or_default().revision
}

fn silent(patience: Duration) -> String {
    format!("no answer in {} s", patience.as_secs())
}
