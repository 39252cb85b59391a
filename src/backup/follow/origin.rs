//! One member of the followed cluster, reached as a client reaches it. Everything that is asked of it is asked of this
//! one, so that no answer is older than the one before.

use std::collections::BTreeSet;
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
/// It reads all its keys and values for a hash.
const HASH: Duration = Duration::from_secs(600);
/// The largest answer: an event of the watch may be as large as a request.
pub(super) const LARGEST: usize = 64 << 20;
/// The upper half of the member ID in the alarms by which a followed cluster is closed: the letters "foll". The lower half
/// is the attempt's. Such an alarm is told from one about data that differ, and one attempt's from another's.
pub const CLOSED: u64 = 0x666f_6c6c;
/// The text by which etcd refuses a revision that is gone.
const COMPACTED: &str = "required revision has been compacted";

/// The member.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) endpoint: String,
    pub(super) cluster_id: u64,
    member_id: u64,
    channel: Channel,
    token: Option<String>,
}

/// What alarms say.
pub(super) struct Alarms {
    /// Attempts that have raised one of theirs.
    pub(super) closed: BTreeSet<u64>,
    /// Those that keep it closed to every write.
    pub(super) complete: BTreeSet<u64>,
    /// Its data are said to be wrong.
    pub(super) corrupt: bool,
}

/// The number of a new attempt.
pub(super) fn attempt() -> u64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    (CLOSED << 32) | (random >> 32) | 1
}

impl Origin {
    /// The first member that answers and knows a leader, from the `nth` endpoint on.
    pub(super) async fn connect(clients: &Clients, nth: usize) -> Result<Origin, Failed> {
        let mut failures = Vec::new();
        let endpoints: Vec<&String> = clients
            .endpoints
            .iter()
            .filter(|it| !it.is_empty())
            .collect();
        let all = endpoints.len();
        for endpoint in endpoints
            .into_iter()
            .cycle()
            .skip(nth % all.max(1))
            .take(all)
        {
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
            member_id: 0,
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
        let header = status.header.unwrap_or_default();
        origin.cluster_id = header.cluster_id;
        origin.member_id = header.member_id;
        Ok(origin)
    }

    /// That it is of this cluster.
    pub(super) fn expect(&self, source: u64) -> Result<(), Failed> {
        match self.cluster_id == source {
            true => Ok(()),
            false => Err(Failed::Final(Error::Follow(format!(
                "{} is of cluster {:x}, and cluster {source:x} is followed: give the endpoints of that one",
                self.endpoint, self.cluster_id
            )))),
        }
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

    /// Its revision, confirmed by a quorum.
    pub(super) async fn revision(&self) -> Result<Revision, Failed> {
        let range = RangeRequest {
            key: b"\0".to_vec().into(),
            count_only: true,
            ..RangeRequest::default()
        };
        let mut client = KvClient::new(self.channel.clone());
        let read = self.ask(ANSWER, range, async |it| client.range(it).await);
        Ok(revision(read.await?.header))
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
        let header = all.header.unwrap_or_default();
        if header.member_id != self.member_id {
            // Behind one address there may be several: this one may know less than the one that was asked before.
            let why = format!("another member answers at {}", self.endpoint);
            return Err(Failed::Passing(why));
        }
        let ids = all.leases.iter().map(|lease| lease.id).collect();
        Ok((ids, header.revision))
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

    /// etcd's HashKV at a revision, or where it is (0), the revision that it was compacted at, and the one where it is.
    pub(super) async fn hash(&self, at: Revision) -> Result<(u32, Revision, Revision), Failed> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let asked = HashKvRequest { revision: at };
        let hash = self.ask(HASH, asked, async |it| client.hash_kv(it).await);
        let hash = hash.await?;
        Ok((hash.hash, hash.compact_revision, revision(hash.header)))
    }

    /// Its alarms.
    pub(super) async fn alarms(&self) -> Result<Alarms, Failed> {
        let asked = AlarmRequest {
            action: AlarmAction::Get.into(),
            ..AlarmRequest::default()
        };
        let all = self.alarm(asked).await?.alarms;
        let of = |kind: AlarmType| {
            let all = all.iter().filter(move |it| it.alarm == i32::from(kind));
            all.map(|alarm| alarm.member_id)
        };
        let ours = |id: &u64| id >> 32 == CLOSED;
        let both = of(AlarmType::Corrupt).chain(of(AlarmType::Nospace));
        Ok(Alarms {
            closed: both.filter(ours).collect(),
            complete: of(AlarmType::Corrupt).filter(ours).collect(),
            corrupt: of(AlarmType::Corrupt).any(|id| !ours(&id)),
        })
    }

    /// Closes it to writes, for an attempt. Returns its last revision: whatever comes later in its log is refused.
    /// NOSPACE first: etcd 3.5 forgets CORRUPT where a first NOSPACE is raised later.
    pub(super) async fn close(&self, attempt: u64) -> Result<Revision, Failed> {
        self.set(AlarmAction::Activate, AlarmType::Nospace, attempt)
            .await?;
        let raised = self.set(AlarmAction::Activate, AlarmType::Corrupt, attempt);
        Ok(revision(raised.await?.header))
    }

    /// Opens it to writes again, which these attempts had closed it to.
    pub(super) async fn open(&self, attempts: &BTreeSet<u64>) -> Result<(), Failed> {
        for attempt in attempts {
            for alarm in [AlarmType::Corrupt, AlarmType::Nospace] {
                self.set(AlarmAction::Deactivate, alarm, *attempt).await?;
            }
        }
        Ok(())
    }

    async fn set(
        &self,
        action: AlarmAction,
        alarm: AlarmType,
        attempt: u64,
    ) -> Result<AlarmResponse, Failed> {
        let asked = AlarmRequest {
            action: action.into(),
            member_id: attempt,
            alarm: alarm.into(),
        };
        self.alarm(asked).await
    }

    async fn alarm(&self, asked: AlarmRequest) -> Result<AlarmResponse, Failed> {
        let mut client = MaintenanceClient::new(self.channel.clone());
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

#[cfg(test)]
mod tests {
    use super::{CLOSED, attempt};

    #[test]
    fn attempts_are_known_by_their_upper_half() {
        let two = [attempt(), attempt()];
        assert_ne!(two[0], two[1]);
        assert!(two.iter().all(|id| id >> 32 == CLOSED && id & 1 == 1));
    }
}
