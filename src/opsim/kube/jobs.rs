//! The Job controller: one pod at a time, counted once it has ended, by its failure policy; then Complete or Failed, as
//! Kubernetes writes them. Its pods carry a finalizer until they are counted, so that none is lost from the count.
//!
//! Never runs anything: what a container does is reported by the kubelets.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, put, time};
use crate::opsim::api::{ApiServer, Delete, JOB_UID, Kind};

const ACTOR: &str = "job-controller";
/// Keeps a pod until it is counted.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// Condition of a pod that was taken from its node by somebody.
pub(super) const DISRUPTED: &str = "DisruptionTarget";

pub(super) fn advance(api: &mut ApiServer) {
    let jobs: Vec<Arc<Value>> = api.all(Kind::Job).cloned().collect();
    for job in jobs {
        attend(api, &job);
    }
    release_orphans(api);
}

/// When a Job is given up, if its pods do not end before: kubelets and users need not do anything for that.
pub(super) fn is_due(api: &ApiServer) -> bool {
    let now_ms = api.now_ms();
    let mut jobs = api.all(Kind::Job).filter(|job| !has_ended(job));
    jobs.any(|job| deadline_ms(job).is_some_and(|at| at <= now_ms))
}

/// Pods whose Job is gone are held by nobody any more.
fn release_orphans(api: &mut ApiServer) {
    let tracked = api.all(Kind::Pod).filter(|pod| is_tracked(pod));
    let orphans = tracked.filter(|pod| {
        let owner = object::controller(pod).map(|owner| &owner["uid"]);
        let mut jobs = api.all(Kind::Job);
        !jobs.any(|job| Some(&job["metadata"]["uid"]) == owner)
    });
    let orphans: Vec<Arc<Value>> = orphans.cloned().collect();
    for pod in orphans {
        release(api, &pod);
    }
}

fn is_tracked(pod: &Value) -> bool {
    object::finalizers(pod).any(|name| name == TRACKED)
}

fn release(api: &mut ApiServer, pod: &Value) {
    let id = (object::namespace(pod), object::name(pod));
    api.edit(ACTOR, Kind::Pod, id, |pod| {
        let kept = object::finalizers(pod).filter(|name| *name != TRACKED);
        let kept: Vec<String> = kept.map(str::to_owned).collect();
        pod["metadata"]["finalizers"] = json!(kept);
    });
}

fn attend(api: &mut ApiServer, job: &Value) {
    let pods: Vec<Arc<Value>> = (api.all(Kind::Pod))
        .filter(|pod| is_of(pod, job))
        .cloned()
        .collect();
    if object::is_deleting(job) || has_ended(job) {
        // It goes, or is counted to its end: its pods are held no more.
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            release(api, pod);
        }
        return;
    }
    let job = count(api, job, &pods);
    let active: Vec<&Arc<Value>> = pods.iter().filter(|pod| !is_over(pod)).collect();
    match verdict(&job, api.now_ms()) {
        None if active.is_empty() => create(api, &job),
        None => show_active(api, &job, active.len()),
        // It is called ended once nothing of it runs.
        Some(verdict) if active.is_empty() => end(api, &job, &verdict),
        Some(_) => {
            for pod in active.iter().filter(|pod| !object::is_deleting(pod)) {
                let id = (object::namespace(pod), object::name(pod));
                let _ = api.delete(ACTOR, Kind::Pod, id, &Delete::only(object::uid(pod)));
            }
        }
    }
}

fn is_of(pod: &Value, job: &Value) -> bool {
    let owner = object::controller(pod);
    owner.is_some_and(|owner| owner["uid"] == job["metadata"]["uid"])
}

fn has_ended(job: &Value) -> bool {
    object::holds(job, "Complete") || object::holds(job, "Failed")
}

/// Whether a pod has ended, or never will report anything.
fn is_over(pod: &Value) -> bool {
    let phase = object::text(pod, &["status", "phase"]);
    let grace = object::number(pod, &["metadata", "deletionGracePeriodSeconds"]);
    matches!(phase, "Succeeded" | "Failed") || (object::is_deleting(pod) && grace == Some(0))
}

/// Counts the pods that have ended since, and lets them go. Returns the Job with its count.
fn count(api: &mut ApiServer, job: &Value, pods: &[Arc<Value>]) -> Value {
    let over = pods.iter().filter(|pod| is_over(pod) && is_tracked(pod));
    let over: Vec<&Arc<Value>> = over.collect();
    let mut counted = job.clone();
    let now_ms = api.now_ms();
    object::default(&mut counted, &["status", "startTime"], json!(time(now_ms)));
    for pod in &over {
        let field = match judge(job, pod) {
            Judged::Succeeded => "succeeded",
            Judged::Failed => "failed",
            Judged::Ignored => continue,
            Judged::FailsJob(why) => {
                put(&mut counted, &["status", "failsFor"], json!(why));
                "failed"
            }
        };
        let before = object::number(&counted, &["status", field]).unwrap_or(0);
        put(&mut counted, &["status", field], json!(before + 1));
    }
    let status = counted["status"].clone();
    let id = (object::namespace(job), object::name(job));
    api.edit(ACTOR, Kind::Job, id, |job| job["status"] = status);
    for pod in over {
        release(api, pod);
    }
    counted
}

/// What a pod that has ended means for its Job.
enum Judged {
    Succeeded,
    Failed,
    /// By the failure policy.
    Ignored,
    /// By the failure policy, for this reason.
    FailsJob(String),
}

fn judge(job: &Value, pod: &Value) -> Judged {
    if object::text(pod, &["status", "phase"]) == "Succeeded" {
        return Judged::Succeeded;
    }
    let rules = object::items(job, &["spec", "podFailurePolicy", "rules"]);
    let Some(rule) = rules.iter().find(|rule| fits(rule, pod)) else {
        return Judged::Failed;
    };
    match object::text(rule, &["action"]) {
        "Ignore" => Judged::Ignored,
        "FailJob" => Judged::FailsJob(format!(
            "Container {} for pod {}/{} failed with exit code {} matching FailJob rule",
            container(pod)["name"].as_str().unwrap_or_default(),
            object::namespace(pod),
            object::name(pod),
            exit_code(pod).unwrap_or(0),
        )),
        _ => Judged::Failed,
    }
}

fn fits(rule: &Value, pod: &Value) -> bool {
    let conditions = object::items(rule, &["onPodConditions"]);
    let of_condition = conditions.iter().any(|wanted| {
        let found = object::condition(pod, object::text(wanted, &["type"]));
        found.is_some_and(|found| found["status"] == wanted["status"])
    });
    let codes = object::items(rule, &["onExitCodes", "values"]);
    let code = exit_code(pod).filter(|code| *code != 0);
    let of_code = code.is_some_and(|code| codes.contains(&json!(code)));
    of_condition || of_code
}

fn container(pod: &Value) -> &Value {
    let all = object::items(pod, &["status", "containerStatuses"]);
    all.first().unwrap_or(&Value::Null)
}

fn exit_code(pod: &Value) -> Option<i64> {
    object::number(container(pod), &["state", "terminated", "exitCode"])
}

fn deadline_ms(job: &Value) -> Option<u64> {
    let seconds = object::number(job, &["spec", "activeDeadlineSeconds"])?;
    let start_ms = object::time_ms(job, &["status", "startTime"])?;
    Some(start_ms + u64::try_from(seconds).unwrap_or(0) * 1000)
}

/// Type, reason and message of the condition with which a Job ends.
type Verdict = (&'static str, &'static str, String);

fn verdict(job: &Value, now_ms: u64) -> Option<Verdict> {
    let counted = |field: &str| object::number(job, &["status", field]).unwrap_or(0);
    if counted("succeeded") > 0 {
        let message = "Reached expected number of succeeded pods".to_owned();
        return Some(("Complete", "CompletionsReached", message));
    }
    let why = object::text(job, &["status", "failsFor"]);
    if !why.is_empty() {
        return Some(("Failed", "PodFailurePolicy", why.to_owned()));
    }
    // First: the pod that is ended for it counts as one that has failed.
    if deadline_ms(job).is_some_and(|at| at <= now_ms) {
        let message = "Job was active longer than specified deadline".to_owned();
        return Some(("Failed", "DeadlineExceeded", message));
    }
    if counted("failed") > object::number(job, &["spec", "backoffLimit"]).unwrap_or(6) {
        let message = "Job has reached the specified backoff limit".to_owned();
        return Some(("Failed", "BackoffLimitExceeded", message));
    }
    None
}

fn show_active(api: &mut ApiServer, job: &Value, active: usize) {
    let id = (object::namespace(job), object::name(job));
    api.edit(ACTOR, Kind::Job, id, |job| {
        put(job, &["status", "active"], json!(active));
    });
}

fn end(api: &mut ApiServer, job: &Value, (type_, reason, message): &Verdict) {
    let now_ms = api.now_ms();
    let id = (object::namespace(job), object::name(job));
    api.edit(ACTOR, Kind::Job, id, |job| {
        put(job, &["status", "active"], json!(0));
        object::take(job, &["status", "failsFor"]);
        if *type_ == "Complete" {
            put(job, &["status", "completionTime"], json!(time(now_ms)));
        }
        let why = Some((*reason, message.as_str()));
        object::set_condition(job, now_ms, type_, true, why);
    });
}

fn create(api: &mut ApiServer, job: &Value) {
    let pod = pod(job);
    if api.create(ACTOR, Kind::Pod, pod).is_ok() {
        show_active(api, job, 1);
    }
}

fn pod(job: &Value) -> Value {
    let template = &job["spec"]["template"];
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations"] {
        if let Some(value) = object::at(template, &["metadata", field]) {
            put(&mut pod, &["metadata", field], value.clone());
        }
    }
    let meta = &mut pod["metadata"];
    meta["generateName"] = json!(format!("{}-", object::name(job)));
    meta["namespace"] = job["metadata"]["namespace"].clone();
    meta["finalizers"] = json!([TRACKED]);
    meta["ownerReferences"] = json!([object::owner_reference("batch/v1", "Job", job)]);
    put(meta, &["labels", JOB_UID], job["metadata"]["uid"].clone());
    let name = json!(object::name(job));
    put(meta, &["labels", "batch.kubernetes.io/job-name"], name);
    super::sets::tolerate_silence(&mut pod["spec"]);
    pod
}
