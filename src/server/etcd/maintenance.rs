//! The Maintenance service of this one member.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::Stream;
use tonic::{Request, Response, Status};

use super::call::{Learner, Services, VERSION, failed, refused};
use super::caller::Caller;
use super::snapshot;
use crate::server::core::handle::Role;
use crate::server::listen::quiet::{self, Quiet};
use crate::server::metrics::client::Method;
use crate::server::process::host_facts;
use crate::store::{Alarm, AlarmKind, Overview, SetAlarm};
use crate::wire::error::EtcdError;
use crate::wire::etcd::downgrade_request::DowngradeAction;
use crate::wire::etcd::maintenance_server::Maintenance;
use crate::wire::etcd::{self, AlarmType, alarm_request::AlarmAction};

/// The cluster's version as shown by `Downgrade`.
const CLUSTER_LEVEL: &str = "3.7";
/// The version of the stored data as shown by `Status`.
pub(in crate::server) const STORAGE_VERSION: &str = "3.7.0";
/// Size that even an empty store reports: etcdctl divides by it.
const LEAST_SIZE: u64 = 4096;
/// Limits the log lines about downgrades, of which clients may request any number.
static DOWNGRADES: Quiet = Quiet::new();

#[tonic::async_trait]
impl Maintenance for Services {
    async fn alarm(
        &self,
        request: Request<etcd::AlarmRequest>,
    ) -> Result<Response<etcd::AlarmResponse>, Status> {
        self.unary(
            Method::Alarm,
            Learner::Refused,
            request,
            |request| async move {
                if request.action() != AlarmAction::Get {
                    self.require_admin().await?;
                }
                let alarms = match request.action() {
                    AlarmAction::Get => {
                        let mut alarms = alarms_of(&self.state(false).await?.view.overview());
                        alarms.retain(|alarm| {
                            request.alarm() == AlarmType::None || request.alarm == alarm.alarm
                        });
                        alarms
                    }
                    action => self.set_alarm(&request, action).await?,
                };
                Ok(etcd::AlarmResponse {
                    header: self.header(self.shared.member.latest().overview.revision()),
                    alarms,
                })
            },
        )
        .await
    }

    async fn status(
        &self,
        request: Request<etcd::StatusRequest>,
    ) -> Result<Response<etcd::StatusResponse>, Status> {
        self.unary(Method::Status, Learner::Answers, request, |_| async move {
            Ok(self.describe())
        })
        .await
    }

    async fn defragment(
        &self,
        request: Request<etcd::DefragmentRequest>,
    ) -> Result<Response<etcd::DefragmentResponse>, Status> {
        // Old segments and checkpoints are deleted as they age: there is nothing to do.
        self.unary(
            Method::Defragment,
            Learner::Refused,
            request,
            |_| async move { Ok(etcd::DefragmentResponse { header: None }) },
        )
        .await
    }

    async fn hash(
        &self,
        request: Request<etcd::HashRequest>,
    ) -> Result<Response<etcd::HashResponse>, Status> {
        self.unary(Method::Hash, Learner::Refused, request, |_| async move {
            let begun = Instant::now();
            let hash = self.hash_of(0).await?;
            self.shared.member.metrics().hash.observe(begun.elapsed());
            Ok(etcd::HashResponse {
                header: self.header(hash.revision),
                hash: hash.hash,
            })
        })
        .await
    }

    async fn hash_kv(
        &self,
        request: Request<etcd::HashKvRequest>,
    ) -> Result<Response<etcd::HashKvResponse>, Status> {
        self.unary(
            Method::HashKv,
            Learner::Refused,
            request,
            |request| async move {
                let begun = Instant::now();
                let hash = self.hash_of(request.revision).await?;
                (self.shared.member.metrics().hash_kv).observe(begun.elapsed());
                Ok(etcd::HashKvResponse {
                    header: self.header(hash.revision),
                    hash: hash.hash,
                    compact_revision: hash.compact_revision,
                    hash_revision: hash.hash_revision,
                })
            },
        )
        .await
    }

    type SnapshotStream =
        Pin<Box<dyn Stream<Item = Result<etcd::SnapshotResponse, Status>> + Send>>;

    async fn snapshot(
        &self,
        request: Request<etcd::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let call = self.stream(Method::Snapshot);
        let begun = async {
            self.admit(Learner::Answers, request.metadata()).await?;
            let caller = Caller::of(request.metadata(), request.extensions());
            self.authorize(Method::Snapshot, &caller).await?;
            snapshot::begin(self, snapshot::rate(request.metadata())).await
        };
        match begun.await {
            Ok(snapshot) => Ok(Response::new(snapshot::stream(snapshot, call))),
            Err(error) => Err(call.refuse(error)),
        }
    }

    async fn move_leader(
        &self,
        request: Request<etcd::MoveLeaderRequest>,
    ) -> Result<Response<etcd::MoveLeaderResponse>, Status> {
        self.unary(
            Method::MoveLeader,
            Learner::Refused,
            request,
            |request| async move {
                let member = &self.shared.member;
                if member.status().role != Role::Leader {
                    return Err(EtcdError::NotLeader.into());
                }
                let latest = member.latest();
                let voter = latest
                    .membership
                    .member(request.target_id)
                    .is_some_and(|target| !target.learner);
                if !voter {
                    return Err(EtcdError::BadLeaderTransferee.into());
                }
                // etcd, too, does nothing if the target already leads.
                if request.target_id != member.status().member_id {
                    let moved = member.move_leader(request.target_id).await;
                    moved.map_err(failed)?;
                }
                Ok(etcd::MoveLeaderResponse { header: None })
            },
        )
        .await
    }

    async fn downgrade(
        &self,
        request: Request<etcd::DowngradeRequest>,
    ) -> Result<Response<etcd::DowngradeResponse>, Status> {
        self.unary(
            Method::Downgrade,
            Learner::Refused,
            request,
            |request| async move {
                match request.action() {
                    DowngradeAction::Validate | DowngradeAction::Enable => {
                        Err(downgrade_refusal(&request.version).into())
                    }
                    // There is never a downgrade in progress; etcd also answers that with success.
                    DowngradeAction::Cancel => Ok(etcd::DowngradeResponse {
                        header: self.header(self.shared.member.latest().overview.revision()),
                        version: CLUSTER_LEVEL.to_owned(),
                    }),
                }
            },
        )
        .await
    }
}

/// No older etcd can read this data directory, and it would not report that: it would start an
/// empty cluster there. So no target for a downgrade exists.
fn downgrade_refusal(version: &str) -> EtcdError {
    if !is_version(version) {
        return EtcdError::WrongDowngradeFormat;
    }
    let Some(left_out) = DOWNGRADES.line(Instant::now()) else {
        return EtcdError::InvalidDowngradeTarget;
    };
    tracing::warn!(
        version = quiet::printable(version, 64),
        left_out,
        "refused to downgrade: the way to etcd is a snapshot that etcdutl restores"
    );
    EtcdError::InvalidDowngradeTarget
}

/// `3.6`, or `3.6.0` with an optional suffix of semantic versions.
fn is_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').unwrap_or((text, ""));
    let (core, pre_release) = text.split_once('-').unwrap_or((text, ""));
    let numbers: Vec<&str> = core.split('.').collect();
    let short = numbers.len() == 2 && build.is_empty() && pre_release.is_empty();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let digits = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit());
    (short || numbers.len() == 3)
        && numbers
            .iter()
            .all(|number| digits(number) && number.parse::<i64>().is_ok())
        && [build, pre_release]
            .iter()
            .all(|rest| rest.bytes().all(plain))
}

/// The alarms that are on.
pub(in crate::server) fn alarms_of(overview: &Overview) -> Vec<etcd::AlarmMember> {
    overview.alarms().into_iter().map(shown).collect()
}

fn shown(alarm: Alarm) -> etcd::AlarmMember {
    etcd::AlarmMember {
        member_id: alarm.member,
        alarm: alarm.kind.into(),
    }
}

/// As Go prints the message, which omits zero values.
fn in_words(alarm: &etcd::AlarmMember) -> String {
    let member = match alarm.member_id {
        0 => String::new(),
        id => format!("memberID:{id} "),
    };
    format!("{member}alarm:{}", alarm.alarm().as_str_name())
}

impl Services {
    /// The response of `Status`.
    fn describe(&self) -> etcd::StatusResponse {
        let status = self.shared.member.status();
        let latest = self.shared.member.latest();
        let overview = &latest.overview;
        let size = i64::try_from(overview.db_size().max(LEAST_SIZE)).unwrap_or(i64::MAX);
        let mut errors = Vec::new();
        if status.leader == 0 {
            errors.push(EtcdError::NoLeader.text().to_owned());
        }
        errors.extend(alarms_of(overview).iter().map(in_words));
        let quota = self.shared.limits.quota_bytes;
        etcd::StatusResponse {
            header: self.header(overview.revision()),
            version: VERSION.to_owned(),
            db_size: size,
            leader: status.leader,
            // The applier may be a moment ahead of the last published consensus status.
            raft_index: status.commit.max(status.applied),
            raft_term: status.term,
            raft_applied_index: status.applied,
            errors,
            db_size_in_use: size,
            is_learner: status.role == Role::Learner,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: quota.map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX)),
            downgrade_info: Some(etcd::DowngradeInfo::default()),
        }
    }

    /// Raises or disarms an alarm. A kind that etcd does not know is refused: it would have no
    /// effect and could never be seen.
    async fn set_alarm(
        &self,
        request: &etcd::AlarmRequest,
        action: AlarmAction,
    ) -> Result<Vec<etcd::AlarmMember>, Status> {
        let kind = AlarmKind::try_from(request.alarm)
            .map_err(|_| Status::invalid_argument("etcdserver: unknown alarm type"))?;
        let change = SetAlarm {
            kind: kind.into(),
            member: request.member_id,
            on: action == AlarmAction::Activate,
        };
        let alarm = self.shared.member.set_alarm(change).await;
        let alarm = alarm.map_err(failed)?.map(shown);
        Ok(alarm.into_iter().collect())
    }

    /// Hashes on another thread: it takes time in proportion to the number of keys. At the revision
    /// of a compaction the hash stays what it was before, as in etcd, so that hashes taken before
    /// and after a compaction can be compared.
    async fn hash_of(&self, revision: i64) -> Result<crate::store::KeyHash, Status> {
        if let Some(hash) = self.shared.member.hash_before_compaction(revision).await {
            let revision = self.shared.member.latest().overview.revision();
            return Ok(crate::store::KeyHash { revision, ..hash });
        }
        // The state of when its turn comes: one that waits must not keep what is compacted meanwhile.
        let shared = Arc::clone(&self.shared);
        let hash = move || {
            let state = shared.member.published();
            state.view.hash_kv_paced(revision, &host_facts::pace())
        };
        let caller = Caller::current().host();
        let hashed = self.shared.hashes.run(caller, hash).await?;
        hashed.map_err(|error| refused(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::downgrade_refusal;
    use crate::wire::error::EtcdError;

    #[test]
    fn malformed_downgrade_is_refused_first() {
        for (version, error) in [
            ("3.6", EtcdError::InvalidDowngradeTarget),
            ("3.6.0", EtcdError::InvalidDowngradeTarget),
            ("3.6.0-alpha.1+b", EtcdError::InvalidDowngradeTarget),
            ("3.6.0-a_b", EtcdError::WrongDowngradeFormat),
            ("3.6-rc", EtcdError::WrongDowngradeFormat),
            ("+3.6", EtcdError::WrongDowngradeFormat),
            ("3..6", EtcdError::WrongDowngradeFormat),
            ("three", EtcdError::WrongDowngradeFormat),
            ("", EtcdError::WrongDowngradeFormat),
            ("3", EtcdError::WrongDowngradeFormat),
        ] {
            assert_eq!(downgrade_refusal(version), error, "{version}");
        }
    }
}
