//! One container of a Job, from its start to its result.

use std::collections::BTreeMap;

use base64::Engine as _;
use jiff::tz::TimeZone;

use crate::backup::retention::Retention;
use crate::backup_plan::{Archived, FailureClass, JobResult, Pruned, Restored, Saved, Verified};
use crate::build::{KEY_OF_MEMBER, KEY_OF_SURVIVOR};
use crate::crd::LABEL_CLUSTER_UID;
use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::kube::Running;
use crate::opsim::servers::{Given, Receiver};

use super::Reach;
use super::arguments::Arguments;
use super::store::{Refused, timestamp};

/// From the start to the first request.
const BEGIN_MS: u64 = 400;
/// What a request of data or a verification takes.
const WORK_MS: u64 = 1_500;
/// For so long a Job waits for a member before it gives up.
const PATIENCE_MS: u64 = 60_000;
const SIZE: u64 = 4 << 20;
/// The revision at which data stand for themselves: that of a member's last entry.
const KEYS: u64 = 100;

/// A container of a Job.
#[derive(Debug)]
pub(super) struct Task {
    arguments: Arguments,
    namespace: String,
    image: String,
    environment: BTreeMap<String, String>,
    keys: BTreeMap<String, Vec<u8>>,
    begun_ms: u64,
    /// What was read of a member, and when.
    read: Option<(u64, Given)>,
}

type Outcome = Result<Option<JobResult>, Refused>;

impl Task {
    pub(super) fn begin(one: &Running, api: &ApiServer, now_ms: u64) -> Self {
        let mounted = one.secrets.get("member-key").into_iter().flatten();
        let mut keys = BTreeMap::new();
        for name in mounted {
            let secret = api.get(Kind::Secret, &one.namespace, name);
            for key in [KEY_OF_MEMBER, KEY_OF_SURVIVOR] {
                let text = secret.as_ref().map(|it| object::text(it, &["data", key]));
                let engine = base64::engine::general_purpose::STANDARD;
                let bytes = engine.decode(text.unwrap_or_default()).unwrap_or_default();
                keys.insert(key.to_owned(), bytes);
            }
        }
        Self {
            arguments: Arguments::read(&one.args),
            namespace: one.namespace.clone(),
            image: one.image.clone(),
            environment: one.environment.clone(),
            keys,
            begun_ms: now_ms,
            read: None,
        }
    }

    /// Goes on; its result once it has ended.
    pub(super) fn step(&mut self, reach: &mut Reach<'_>) -> Option<JobResult> {
        if reach.now_ms < self.begun_ms + BEGIN_MS {
            return None;
        }
        let outcome = match self.arguments.command.as_str() {
            "backup save" => self.save(reach),
            "backup verify" => self.verify(reach),
            "backup prune" => self.prune(reach),
            "backup archive" => self.archive(reach),
            "backup restore" if self.arguments.get("survivor").is_empty() => self.restore(reach),
            "backup restore" => self.recover(reach),
            other => Err((FailureClass::Settings, format!("{other} is not simulated"))),
        };
        outcome.unwrap_or_else(|(class, message)| Some(JobResult::Failed { class, message }))
    }

    /// It was asked to end: an archiver has done what it is for, anything else has not.
    pub(super) fn signalled(&self, now_ms: u64) -> JobResult {
        let stored = self.read.as_ref();
        match stored.filter(|_| self.arguments.command == "backup archive") {
            Some((_, given)) => JobResult::Archived(Archived {
                cluster_id: format!("{:x}", given.cluster_id),
                first: 1,
                last: given.index,
                as_of: Some(timestamp(now_ms)),
                objects: 1,
                gap: false,
                message: "terminated".to_owned(),
            }),
            None => JobResult::Failed {
                class: FailureClass::Other,
                message: "terminated".to_owned(),
            },
        }
    }

    fn key(&self, name: &str) -> &[u8] {
        self.keys.get(name).map_or(&[], Vec::as_slice)
    }

    /// So long after its start, longer with a slow store.
    fn is_time(&self, reach: &Reach<'_>) -> bool {
        let takes_ms = WORK_MS * reach.store.slow.max(1);
        reach.now_ms >= self.begun_ms + BEGIN_MS + takes_ms
    }

    fn gives_up(&self, reach: &Reach<'_>) -> bool {
        reach.now_ms >= self.begun_ms + PATIENCE_MS
    }

    fn save(&mut self, reach: &mut Reach<'_>) -> Outcome {
        if self.read.is_none() {
            reach.store.opens(&self.environment)?;
            let given = self.ask(reach);
            match given {
                Ok((_, given)) => self.read = Some((reach.now_ms, given)),
                Err(why) if self.gives_up(reach) => {
                    return Err((FailureClass::Source, format!("no snapshot: {why}")));
                }
                Err(_) => return Ok(None),
            }
        }
        if !self.is_time(reach) {
            return Ok(None);
        }
        reach.store.opens(&self.environment)?;
        let Some((read_ms, given)) = &self.read else {
            return Ok(None);
        };
        let id = self.arguments.get("id");
        let path = format!("{}/{id}", self.arguments.folder());
        let saved = saved(id, (*read_ms, reach.now_ms), given);
        let there = reach.store.put(&path, saved)?;
        Ok(Some(JobResult::Saved(Box::new(there))))
    }

    /// Any member behind the name of the peers' Service.
    fn ask(&self, reach: &Reach<'_>) -> Result<(String, Given), String> {
        let host = self.arguments.host("members");
        let service = host.split('.').next().unwrap_or_default();
        let found = reach.api.get(Kind::Service, &self.namespace, service);
        let found = found.ok_or("there is no such host")?;
        let selector = ["spec", "selector", LABEL_CLUSTER_UID];
        let uid = object::text(&found, &selector);
        let given = reach.servers.give(uid, self.key(KEY_OF_MEMBER))?;
        Ok((uid.to_owned(), given))
    }

    fn verify(&self, reach: &mut Reach<'_>) -> Outcome {
        reach.store.opens(&self.environment)?;
        if !self.is_time(reach) {
            return Ok(None);
        }
        let id = self.arguments.last();
        let path = format!("{}/{id}", self.arguments.folder());
        let Some(object) = reach.store.objects.get_mut(&path) else {
            return Err((FailureClass::NotFound, format!("there is no backup {id}")));
        };
        let failure = object.damage.map(|damage| format!("it is {damage:?}"));
        object.verified = Some(failure.is_none());
        let version = self.image.rsplit_once(':').map_or("", |(_, tag)| tag);
        Ok(Some(JobResult::Verified(Verified {
            id: id.to_owned(),
            at: timestamp(reach.now_ms),
            seconds: 1.5,
            version: version.to_owned(),
            failure,
        })))
    }

    fn prune(&self, reach: &mut Reach<'_>) -> Outcome {
        reach.store.opens(&self.environment)?;
        if !self.is_time(reach) {
            return Ok(None);
        }
        let number = |name: &str| usize::try_from(self.arguments.number(name)).unwrap_or(0);
        let policy = Retention {
            last: number("keep-last"),
            hourly: number("keep-hourly"),
            daily: number("keep-daily"),
            weekly: number("keep-weekly"),
            min_keep: number("min-keep"),
        };
        let zone = TimeZone::get(self.arguments.get("time-zone")).unwrap_or(TimeZone::UTC);
        let folder = self.arguments.folder();
        let (deleted, kept) = reach.store.prune(&folder, &policy, &zone);
        Ok(Some(JobResult::Pruned(Pruned {
            deleted,
            kept,
            listed: Some(timestamp(reach.now_ms)),
            shortened: false,
        })))
    }

    /// Stores what is committed, again and again, and tells the member of it; a signal ends it.
    fn archive(&mut self, reach: &mut Reach<'_>) -> Outcome {
        reach.store.opens(&self.environment)?;
        let interval_ms = self.arguments.number("interval").max(1) * 1000;
        let due = self.read.as_ref().map_or(0, |(at, _)| at + interval_ms);
        if reach.now_ms < due {
            return Ok(None);
        }
        match self.ask(reach) {
            Ok((uid, given)) => {
                let told = (self.arguments.get("location"), given.index, reach.now_ms);
                reach.servers.told_of_archive(&uid, told);
                self.read = Some((reach.now_ms, given));
            }
            Err(why) if self.gives_up(reach) && self.read.is_none() => {
                return Err((FailureClass::Source, why));
            }
            Err(_) => {}
        }
        Ok(None)
    }

    fn restore(&self, reach: &mut Reach<'_>) -> Outcome {
        let path = self.arguments.last();
        reach.store.opens(&self.environment)?;
        let whole = format!("{}/{path}", self.arguments.get("to"));
        let Some(object) = reach.store.objects.get(&whole) else {
            let why = format!("{path} is neither a backup nor a snapshot");
            return Err((FailureClass::NotFound, why));
        };
        // It is read and checked before anything is sent.
        if let Some(damage) = object.damage {
            let why = format!("the backup {path} cannot be restored: it is {damage:?}");
            return Err((FailureClass::Damaged, why));
        }
        let revision = object.saved.revision;
        self.send(reach, path, revision)
    }

    fn recover(&mut self, reach: &mut Reach<'_>) -> Outcome {
        if self.read.is_none() {
            let (host, disk) = (
                self.arguments.host("survivor"),
                self.arguments.get("survivor-disk"),
            );
            let least = self.arguments.number("survivor-index");
            let key = self.key(KEY_OF_SURVIVOR);
            match reach.servers.give_of(host, key, (disk, least)) {
                Ok(given) => self.read = Some((reach.now_ms, given)),
                Err(why) if self.gives_up(reach) => return Err((FailureClass::Source, why)),
                Err(_) => return Ok(None),
            }
        }
        let index = self.read.as_ref().map_or(0, |(_, given)| given.index);
        let host = self.arguments.host("survivor").to_owned();
        self.send(reach, &host, i64::try_from(index).unwrap_or(0))
    }

    /// Gives a standby the data, once it is there.
    fn send(&self, reach: &mut Reach<'_>, path: &str, revision: i64) -> Outcome {
        let sha256 = format!("{path}@{revision}");
        let host = self.arguments.host("member").to_owned();
        let receiver = reach.servers.receiver(&host, self.key(KEY_OF_MEMBER));
        let (uid, volume) = match receiver {
            Receiver::Standby(uid, volume) => (uid, volume),
            Receiver::Member => {
                let why = format!("{host} has data already: it takes no snapshot");
                return Err((FailureClass::Target, why));
            }
            Receiver::Silent | Receiver::Strange if self.gives_up(reach) => {
                let why = format!("{host} took no snapshot: {receiver:?}");
                return Err((FailureClass::Target, why));
            }
            Receiver::Silent | Receiver::Strange => return Ok(None),
        };
        let passed_ms = reach.passed_ms;
        let all = (reach.servers).arrives((&uid, &volume), &sha256, passed_ms);
        if !all {
            return Ok(None);
        }
        Ok(Some(JobResult::Restored(Restored {
            path: path.to_owned(),
            at: timestamp(reach.now_ms),
            seconds: reach.now_ms.saturating_sub(self.begun_ms) / 1000,
            sha256,
            revision,
            keys: KEYS,
            size: SIZE,
            raft_index: None,
            as_of: None,
        })))
    }
}

fn saved(id: &str, (read_ms, now_ms): (u64, u64), given: &Given) -> Saved {
    Saved {
        id: id.to_owned(),
        started: timestamp(read_ms),
        completed: timestamp(now_ms),
        cluster_id: format!("{:x}", given.cluster_id),
        member_id: format!("{:x}", given.member_id),
        revision: i64::try_from(given.index).unwrap_or(i64::MAX),
        raft_index: given.index,
        raft_term: given.term,
        hash: 7,
        keys: KEYS,
        size: SIZE,
        stored: SIZE / 2,
        key_id: None,
    }
}
