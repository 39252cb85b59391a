//! Jobs and resources about backups as facts. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::backup_plan::{
    ArchivedFacts, BackupFacts, JobFacts, JobKind, JobResult, JobState, NODE_LOST,
};
use crate::crd::backups::EtcdBackup;
use crate::crd::{
    ANNOTATION_ARCHIVE_INTERVAL, ANNOTATION_BACKUP_LOCATION, ANNOTATION_FOLLOW, ANNOTATION_GONE,
    ANNOTATION_VERIFY, ConditionType, EtcdCluster, EtcdClusterStatus, FollowPhase,
    LABEL_BACKUP_ATTEMPT, LABEL_BACKUP_JOB, LABEL_BACKUP_SCHEDULE, LABEL_RECOVERY, Until,
};

/// A pod that has not gone so long after it should have is on a node that does not answer.
const LOST: SignedDuration = SignedDuration::from_secs(60);

/// A Job of this owner with its pods; `None` if it is another one's.
pub(super) fn job(job: &Job, owner: &str, pods: &[Arc<Pod>], now: Timestamp) -> Option<JobFacts> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    if !owners.any(|it| it.controller == Some(true) && it.uid == owner) {
        return None;
    }
    let location = job.annotations().get(ANNOTATION_BACKUP_LOCATION).cloned();
    let interval = job.annotations().get(ANNOTATION_ARCHIVE_INTERVAL);
    let labels = job.metadata.labels.as_ref()?;
    let name = job.name_any();
    // Not by the Job's name: the pods of an earlier one of this name may be there still, with its result.
    let of_job = |pod: &&Arc<Pod>| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
    };
    let mut pods: Vec<&Pod> = pods.iter().filter(of_job).map(|pod| &**pod).collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    Some(JobFacts {
        kind: JobKind::read(labels.get(LABEL_BACKUP_JOB)?)?,
        attempt: labels.get(LABEL_BACKUP_ATTEMPT)?.parse().ok()?,
        recovery: labels.get(LABEL_RECOVERY).cloned(),
        created: created(job),
        location: location.unwrap_or_default(),
        interval: interval.and_then(|text| text.parse().ok()),
        made_from: job.annotations().get(ANNOTATION_FOLLOW).cloned(),
        state: state(job, &pods, now),
        name,
    })
}

fn state(job: &Job, pods: &[&Pod], now: Timestamp) -> JobState {
    if job.metadata.deletion_timestamp.is_some() {
        return JobState::Deleting;
    }
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    let mut ended = conditions.flatten().filter(|it| it.status == "True");
    let ended = ended.find(|it| it.type_ == "Complete" || it.type_ == "Failed");
    if let Some(condition) = ended {
        return JobState::Ended {
            at: ended_at(job, condition),
            result: pods.iter().rev().find_map(|pod| result(pod)),
            reason: reason(condition),
        };
    }
    let Some(pod) = pods.last() else {
        return JobState::Waiting(None);
    };
    // Kubernetes replaces it, and calls the Job failed, only once it has ended: with its node it may never.
    let lost = pod.metadata.deletion_timestamp.as_ref();
    if let Some(at) = lost.map(|at| at.0 + LOST).filter(|at| *at < now) {
        return JobState::Ended {
            at,
            result: None,
            reason: NODE_LOST.to_owned(),
        };
    }
    match container(pod) {
        Some(ContainerState {
            running: Some(_), ..
        }) => JobState::Running,
        // Kubernetes has not called the Job complete yet.
        Some(ContainerState {
            terminated: Some(ended),
            ..
        }) if result(pod).is_some_and(|it| !matches!(it, JobResult::Failed { .. })) => {
            JobState::Ended {
                at: ended.finished_at.as_ref().map_or(now, |time| time.0),
                result: result(pod),
                reason: String::new(),
            }
        }
        // Kubernetes never calls it failed while another container goes on, such as one that a mesh adds.
        Some(ContainerState {
            terminated: Some(ended),
            ..
        }) if let Some(at) = ended.finished_at.as_ref().map(|time| time.0)
            && phase(pod) == Some("Running")
            && at + LOST < now =>
        {
            JobState::Ended {
                at,
                result: result(pod),
                reason: "its process has ended, and another container of its pod has not"
                    .to_owned(),
            }
        }
        Some(ContainerState {
            terminated: Some(_),
            ..
        }) => JobState::Waiting(Some("its pod has ended".to_owned())),
        Some(ContainerState {
            waiting: Some(waiting),
            ..
        }) => {
            let parts = [waiting.reason.clone(), waiting.message.clone()];
            let why: Vec<String> = parts.into_iter().flatten().collect();
            JobState::Waiting((!why.is_empty()).then(|| why.join(": ")))
        }
        _ => JobState::Waiting(unscheduled(pod)),
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn reason(condition: &JobCondition) -> String {
    let parts = [condition.reason.clone(), condition.message.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(": ")
}

fn ended_at(job: &Job, condition: &JobCondition) -> Timestamp {
    let completed = job
        .status
        .as_ref()
        .and_then(|status| status.completion_time.as_ref());
    let since = completed.or(condition.last_transition_time.as_ref());
    since.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn container(pod: &Pod) -> Option<&ContainerState> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let backup = statuses
        .iter()
        .find(|it| it.name == crate::build::BACKUP_CONTAINER);
    backup?.state.as_ref()
}

fn result(pod: &Pod) -> Option<JobResult> {
    let ended = container(pod)?.terminated.as_ref()?;
    JobResult::read(ended.message.as_deref()?)
}

/// Why no node takes it.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|it| it.type_ == "PodScheduled")?;
    scheduled
        .message
        .clone()
        .filter(|_| scheduled.status != "True")
}

/// A backup, as its schedule sees it.
pub(super) fn backup(backup: &EtcdBackup, schedule: &str, now: Timestamp) -> BackupFacts {
    BackupFacts {
        name: backup.name_any(),
        of_schedule: backup
            .labels()
            .get(LABEL_BACKUP_SCHEDULE)
            .map(String::as_str)
            == Some(schedule),
        created: created(backup),
        status: backup.status.clone().unwrap_or_default(),
        verification_requested: verification_requested(backup, now),
        gone: gone(backup),
    }
}

/// How far a cluster's log is archived, by its status.
pub(super) fn archived(status: &EtcdClusterStatus) -> Option<ArchivedFacts> {
    let archived = status.backup.as_ref()?.archived.as_ref()?;
    Some(ArchivedFacts {
        location: archived.url.clone(),
        through: archived.time.0,
        index: archived.raft_index,
    })
}

/// Whether a cluster follows another one, by its status: as long as that does not say that it has cut over, it may.
pub(super) fn follows(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.as_ref();
    let recovered = status.and_then(|status| status.incarnation) > Some(1);
    let phase = status.and_then(|status| Some(status.follow.as_ref()?.phase));
    cluster.spec.follow().is_some() && !recovered && phase != Some(FollowPhase::CutOver)
}

/// Since when a cluster that has followed another one has data of its own, by the condition Following.
pub(super) fn own_since(cluster: &EtcdCluster) -> Option<Timestamp> {
    let following = following(cluster).filter(|it| it.status == "False");
    following.map(|it| it.last_transition_time.0)
}

/// The condition of a cluster that follows another one.
pub(super) fn following(cluster: &EtcdCluster) -> Option<&Condition> {
    let type_ = ConditionType::Following.as_str();
    let conditions = cluster.status.iter().flat_map(|it| &it.conditions);
    let mut all = conditions.filter(|it| it.type_ == type_);
    all.next()
}

/// Whether a process runs that may close a followed cluster. On a node that does not answer nobody can wait for it: if it
/// has begun to, the leader says so.
pub(super) fn may_close(pods: &[Arc<Pod>], now: Timestamp) -> bool {
    let manual = format!("--cutover={}", Until::Stay.argument());
    pods.iter().any(|pod| {
        let kind = pod.labels().get(LABEL_BACKUP_JOB).map(String::as_str);
        // It is not started again, whatever runs beside it.
        let own = container(pod).is_some_and(|state| state.terminated.is_some());
        let ended = own || matches!(phase(pod), Some("Succeeded" | "Failed"));
        let containers = pod.spec.iter().flat_map(|it| &it.containers);
        let mut arguments = containers.flat_map(|it| it.args.iter().flatten());
        kind == Some(JobKind::Follow.as_str())
            && !ended
            && !is_lost(pod, now)
            && !arguments.any(|argument| *argument == manual)
    })
}

/// Whether its node does not answer.
fn is_lost(pod: &Pod, now: Timestamp) -> bool {
    let deleted = pod.metadata.deletion_timestamp.as_ref();
    deleted.is_some_and(|at| at.0 + LOST < now)
}

/// Whether a cluster surely has nothing that the one that it follows does not have: no cutover was ever asked for. The
/// promotion of a standby may have been, and was taken back.
pub(super) fn has_no_data_of_its_own(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.as_ref();
    let phase = status.and_then(|status| Some(status.follow.as_ref()?.phase));
    let waits = cluster
        .spec
        .follow()
        .is_some_and(|follow| !follow.standby && follow.until == Until::Stay);
    let early = matches!(phase, Some(FollowPhase::Seeding | FollowPhase::Following));
    follows(cluster) && waits && early
}

pub(super) fn created(object: &impl kube::Resource<DynamicType = ()>) -> Timestamp {
    let created = object.meta().creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// In whole seconds, as times are stored. A value that is no time counts as one that is long over: it asks for a
/// verification where there was none. One in the future asks for nothing yet.
pub(super) fn verification_requested(backup: &EtcdBackup, now: Timestamp) -> Option<Timestamp> {
    let text = backup.annotations().get(ANNOTATION_VERIFY)?;
    let asked = text.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let asked = Timestamp::from_second(asked.as_second()).unwrap_or(asked);
    Some(asked).filter(|asked| *asked <= now)
}

pub(super) fn gone(backup: &EtcdBackup) -> bool {
    backup.annotations().contains_key(ANNOTATION_GONE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operator::kubernetes::pruned::Prune as _;

    fn job_of(uid: &str, conditions: &serde_json::Value) -> Job {
        let job = json!({
            "metadata": {"name": "b-save-1", "uid": uid, "creationTimestamp": "2026-03-01T00:00:00Z",
                "labels": {LABEL_BACKUP_JOB: "save", LABEL_BACKUP_ATTEMPT: "1"},
                "annotations": {ANNOTATION_BACKUP_LOCATION: "s3://bucket"},
                "ownerReferences": [{"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdBackup", "name": "b", "uid": "owner", "controller": true}]},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(job).expect("a Job")
    }

    fn pod_of(job: &str, deleted: Option<&str>, state: &serde_json::Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": "b-save-1-x", "deletionTimestamp": deleted,
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "b-save-1", "uid": job, "controller": true}]},
            "status": {"containerStatuses": [{"name": "backup", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn now() -> Timestamp {
        "2026-03-01T01:00:00Z".parse().expect("a time")
    }

    fn state_of(found: &Job, pods: &[Arc<Pod>]) -> JobState {
        let facts = job(found, "owner", pods, now()).expect("it is ours");
        // As they are cached.
        let mut kept = found.clone();
        kept.prune();
        let kept_pods: Vec<Arc<Pod>> = pods.iter().map(|pod| as_cached(pod)).collect();
        assert_eq!(job(&kept, "owner", &kept_pods, now()), Some(facts.clone()));
        facts.state
    }

    fn as_cached(pod: &Pod) -> Arc<Pod> {
        let mut kept = pod.clone();
        kept.prune();
        Arc::new(kept)
    }

    #[test]
    fn result_is_that_of_this_job_alone() {
        let ended = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": "2026-03-01T00:30:00Z"}]);
        let message = r#"{"result":"failed","class":"store","message":"no"}"#;
        let state = json!({"terminated": {"exitCode": 1, "message": message}});
        let found = job_of("second", &ended);
        let JobState::Ended { result, at, .. } =
            state_of(&found, &[pod_of("second", None, &state)])
        else {
            panic!("it has ended");
        };
        assert!(matches!(result, Some(JobResult::Failed { .. })));
        assert_eq!(at.to_string(), "2026-03-01T00:30:00Z");
        let JobState::Ended { result, .. } = state_of(&found, &[pod_of("first", None, &state)])
        else {
            panic!("it has ended");
        };
        assert_eq!(result, None, "an earlier Job of this name");
        assert!(job(&found, "another", &[], now()).is_none());
    }

    /// At the deadline, a backup that was stored was given up because its Job was not called complete yet.
    #[test]
    fn result_counts_before_the_job_is_complete() {
        let found = job_of("uid", &json!([]));
        let message = r#"{"result":"pruned","deleted":[],"kept":[]}"#;
        let ended = json!({"terminated": {"exitCode": 0, "message": message, "finishedAt": "2026-03-01T00:30:00Z"}});
        let state = state_of(&found, &[pod_of("uid", None, &ended)]);
        assert!(matches!(state, JobState::Ended { .. }), "{state:?}");
        // One that failed may have been evicted, and is then made again by Kubernetes.
        let message = r#"{"result":"failed","class":"other","message":"terminated"}"#;
        let ended = json!({"terminated": {"exitCode": 1, "message": message}});
        let state = state_of(&found, &[pod_of("uid", None, &ended)]);
        assert!(matches!(state, JobState::Waiting(_)), "{state:?}");
    }

    /// A mesh's container does not end with the backup's: Kubernetes called a failed Job failed only after 13 hours, and until then
    /// no other one was tried.
    #[test]
    fn failure_counts_beside_a_container_that_goes_on() {
        let found = job_of("uid", &json!([]));
        let message = r#"{"result":"failed","class":"store","message":"no"}"#;
        let with = |finished: &str, phase: &str| {
            let ended =
                json!({"terminated": {"exitCode": 1, "message": message, "finishedAt": finished}});
            let pod = pod_of("uid", None, &ended);
            let mut pod = json!(*pod);
            pod["status"]["phase"] = json!(phase);
            let sidecar = json!({"name": "a-mesh", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}});
            let all = pod["status"]["containerStatuses"].as_array_mut();
            all.expect("a list").insert(0, sidecar);
            state_of(
                &found,
                &[Arc::new(serde_json::from_value(pod).expect("a pod"))],
            )
        };
        let JobState::Ended { result, .. } = with("2026-03-01T00:30:00Z", "Running") else {
            panic!("it has ended");
        };
        assert!(matches!(result, Some(JobResult::Failed { .. })));
        let early = with("2026-03-01T00:59:50Z", "Running");
        assert!(matches!(early, JobState::Waiting(_)), "{early:?}");
        let counted = with("2026-03-01T00:30:00Z", "Failed");
        assert!(matches!(counted, JobState::Waiting(_)), "{counted:?}");
    }

    /// A Job that is deleted is gone at once, and its process is not.
    #[test]
    fn process_that_may_close_a_cluster_outlives_its_job() {
        let pod = |cutover: &str, phase: &str, deleted: Option<&str>| {
            let pod = json!({
                "metadata": {"name": "a", "labels": {LABEL_BACKUP_JOB: "follow"}, "deletionTimestamp": deleted},
                "spec": {"containers": [{"name": "backup", "args": ["follow", "run", format!("--cutover={cutover}")]}]},
                "status": {"phase": phase},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let may = may_close(&[Arc::new(pod.clone())], now());
            assert_eq!(may_close(&[as_cached(&pod)], now()), may);
            may
        };
        let leaving = Some("2026-03-01T00:59:50Z");
        assert!(pod("when-caught-up", "Running", leaving));
        assert!(pod("when-caught-up", "Pending", None));
        assert!(!pod("when-caught-up", "Failed", leaving));
        assert!(!pod("manual", "Running", None));
        let lost = Some("2026-03-01T00:10:00Z");
        assert!(!pod("when-caught-up", "Running", lost));
        // Another container of its pod goes on.
        let ended = json!({"terminated": {"exitCode": 0}});
        let mut left = json!(*pod_of("uid", None, &ended));
        left["metadata"]["labels"] = json!({LABEL_BACKUP_JOB: "follow"});
        left["status"]["phase"] = json!("Running");
        let left: Pod = serde_json::from_value(left).expect("a pod");
        assert!(!may_close(&[as_cached(&left)], now()));
    }

    /// Its node lost power: Kubernetes waits for the pod's end, and replaces it only then.
    #[test]
    fn pod_on_a_lost_node_ends_its_job() {
        let found = job_of("uid", &json!([]));
        let running = json!({"running": {"startedAt": "2026-03-01T00:00:00Z"}});
        let lost = pod_of("uid", Some("2026-03-01T00:10:00Z"), &running);
        let JobState::Ended { at, result, .. } = state_of(&found, &[lost]) else {
            panic!("it counts as ended");
        };
        assert_eq!(
            (at.to_string().as_str(), result),
            ("2026-03-01T00:11:00Z", None)
        );
        let leaving = pod_of("uid", Some("2026-03-01T00:59:30Z"), &running);
        assert_eq!(state_of(&found, &[leaving]), JobState::Running);
        let waits = json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
        let text = "ErrImagePull: no such image".to_owned();
        let waiting = state_of(&found, &[pod_of("uid", None, &waits)]);
        assert_eq!(waiting, JobState::Waiting(Some(text)));
    }

    #[test]
    fn verification_is_asked_for_in_whole_seconds_and_not_ahead_of_time() {
        let asked = |text: &str| {
            let mut backup = EtcdBackup::new("b", crate::crd::backups::EtcdBackupSpec::default());
            let annotation = (ANNOTATION_VERIFY.to_owned(), text.to_owned());
            backup.metadata.annotations = Some([annotation].into());
            verification_requested(&backup, now()).map(|at| at.to_string())
        };
        let plain = Some("2026-03-01T00:00:00Z".to_owned());
        assert_eq!(asked("2026-03-01T00:00:00.75Z"), plain);
        assert_eq!(asked("2030-01-01T00:00:00Z"), None);
        assert_eq!(asked("now"), Some("1970-01-01T00:00:00Z".to_owned()));
    }
}
