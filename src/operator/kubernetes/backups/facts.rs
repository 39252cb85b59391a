//! Jobs and resources about backups as facts. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::ResourceExt;

use crate::backup_plan::{BackupFacts, JobFacts, JobKind, JobResult, JobState};
use crate::crd::backups::EtcdBackup;
use crate::crd::{
    ANNOTATION_GONE, ANNOTATION_VERIFY, LABEL_BACKUP_ATTEMPT, LABEL_BACKUP_JOB,
    LABEL_BACKUP_SCHEDULE,
};

/// A Job with its pods; `None` if it is none of ours.
pub(super) fn job(job: &Job, pods: &[Arc<Pod>]) -> Option<JobFacts> {
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
        state: state(job, &pods),
        name,
    })
}

fn state(job: &Job, pods: &[&Pod]) -> JobState {
    if job.metadata.deletion_timestamp.is_some() {
        return JobState::Deleting;
    }
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    let mut ended = conditions.flatten().filter(|it| it.status == "True");
    let ended = ended.find(|it| it.type_ == "Complete" || it.type_ == "Failed");
    if let Some(condition) = ended {
        return JobState::Ended {
            at: ended_at(job, condition),
            succeeded: condition.type_ == "Complete",
            result: pods.iter().rev().find_map(|pod| result(pod)),
            reason: reason(condition),
        };
    }
    let Some(pod) = pods.last() else {
        return JobState::Waiting(None);
    };
    match container(pod) {
        Some(ContainerState {
            running: Some(_), ..
        }) => JobState::Running,
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
pub(super) fn backup(backup: &EtcdBackup, schedule: &str) -> BackupFacts {
    BackupFacts {
        name: backup.name_any(),
        of_schedule: backup
            .labels()
            .get(LABEL_BACKUP_SCHEDULE)
            .map(String::as_str)
            == Some(schedule),
        created: created(backup),
        status: backup.status.clone().unwrap_or_default(),
        verification_requested: verification_requested(backup),
        gone: gone(backup),
    }
}

pub(super) fn created(object: &impl kube::Resource<DynamicType = ()>) -> Timestamp {
    let created = object.meta().creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// A value that is no time counts as one that is long over: it asks for a verification where there was none.
pub(super) fn verification_requested(backup: &EtcdBackup) -> Option<Timestamp> {
    let text = backup.annotations().get(ANNOTATION_VERIFY)?;
    Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

pub(super) fn gone(backup: &EtcdBackup) -> bool {
    backup.annotations().contains_key(ANNOTATION_GONE)
}
