//! Containers of a member's pod that are not the server's: those that a mesh or a policy injects. Tells which one is not
//! well, so that nobody takes that for the server's doing. They are never evidence about the member.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

use super::facts::{cut, milliseconds};
use crate::build;
use crate::plan::Beside;

/// The first one that is not well, in the order in which they start.
pub(super) fn unwell(pod: &Pod) -> Option<Beside> {
    let mut all = others(pod);
    all.find_map(|(one, init)| judge(one, init, !init || stays(pod, &one.name)))
}

/// When one of them last began to run, or the last one that goes before the server ended.
pub(super) fn since(pod: &Pod) -> Option<u64> {
    let states = others(pod).filter_map(|(one, _)| one.state.as_ref());
    let last = states.filter_map(|state| {
        let running = state.running.as_ref();
        let ended = state.terminated.as_ref();
        let at = running.and_then(|it| it.started_at.as_ref());
        at.or_else(|| ended.and_then(|it| it.finished_at.as_ref()))
    });
    last.map(|at| milliseconds(Some(at))).max()
}

/// All of them in the order in which they start, and whether each is an init container.
fn others(pod: &Pod) -> impl Iterator<Item = (&ContainerStatus, bool)> {
    let status = pod.status.iter();
    let first = status
        .clone()
        .flat_map(|it| it.init_container_statuses.iter().flatten());
    let beside = status.flat_map(|it| it.container_statuses.iter().flatten());
    let beside = beside.filter(|one| one.name != build::CONTAINER);
    first
        .map(|one| (one, true))
        .chain(beside.map(|one| (one, false)))
}

/// Whether an init container is a native sidecar, which goes on running. The kubelet calls any that runs started.
fn stays(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec.as_ref();
    let all = spec.and_then(|spec| spec.init_containers.as_ref());
    let found = all.and_then(|all| all.iter().find(|one| one.name == name));
    found.is_some_and(|one| one.restart_policy.as_deref() == Some("Always"))
}

fn judge(one: &ContainerStatus, init: bool, stays: bool) -> Option<Beside> {
    let state = one.state.as_ref()?;
    let kind = if init { "init container" } else { "container" };
    let is = |what: String, goes_first| {
        let why = cut(format!("{kind} {} {what}", one.name));
        Some(Beside { why, goes_first })
    };
    if let Some(what) = fails(state) {
        return is(what, init);
    }
    state.running.as_ref()?;
    match (init, stays && one.started == Some(true)) {
        // Until it ends, or has started where it stays, no other container does.
        (true, false) => is("is still at work".to_owned(), true),
        _ if !one.ready => is("is not ready".to_owned(), false),
        _ => None,
    }
}

/// What keeps it from running, unless that is how every container begins.
fn fails(state: &ContainerState) -> Option<String> {
    if let Some(ended) = &state.terminated {
        let code = ended.exit_code;
        return (code != 0).then(|| format!("ended with code {code}"));
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    match (reason, waiting.message.as_deref()) {
        ("ContainerCreating" | "PodInitializing", _) => None,
        // Its message is another one after each start.
        ("CrashLoopBackOff", _) | (_, None | Some("")) => Some(format!("waits ({reason})")),
        (_, Some(message)) => Some(format!("waits ({reason}: {message})")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::kubernetes::pruned::Prune as _;

    fn status(name: &str, ready: bool, state: &Value) -> Value {
        json!({"name": name, "image": "i", "imageID": "", "restartCount": 0, "ready": ready, "state": state})
    }

    fn told(first: &Value, others: &[Value]) -> Option<(String, bool)> {
        let waits = json!({"waiting": {"reason": "PodInitializing"}});
        let own = status("member", false, &waits);
        let all: Vec<Value> = others.iter().cloned().chain([own]).collect();
        let native =
            json!([{"name": "linkerd-proxy", "restartPolicy": "Always"}, {"name": "istio-init"}]);
        let pod = json!({"spec": {"containers": [], "initContainers": native},
            "status": {"initContainerStatuses": first, "containerStatuses": all}});
        let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
        let seen = unwell(&pod);
        // As it is cached.
        pod.prune();
        assert_eq!(unwell(&pod), seen);
        seen.map(|beside| (beside.why, beside.goes_first))
    }

    /// A mesh's init container that hung was told as "its pod is pending": the server waited for it, and its own state says
    /// PodInitializing, which is no news of a container.
    #[test]
    fn what_the_server_waits_for_is_named() {
        let runs = json!({"running": {}});
        let first = |state: &Value| {
            let mut one = status("istio-init", false, state);
            // The kubelet says so of each init container that runs, and this one was taken for a native sidecar.
            one["started"] = json!(state["running"].is_object());
            json!([one])
        };
        let is = |why: &str, first: bool| Some((why.to_owned(), first));
        assert_eq!(
            told(&first(&runs), &[]),
            is("init container istio-init is still at work", true)
        );
        let crashes = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}});
        assert_eq!(
            told(&first(&crashes), &[]),
            is("init container istio-init waits (CrashLoopBackOff)", true)
        );
        let ended = json!({"terminated": {"exitCode": 7}});
        assert_eq!(
            told(&first(&ended), &[]),
            is("init container istio-init ended with code 7", true)
        );
        let done = first(&json!({"terminated": {"exitCode": 0}}));
        let pulls = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        assert_eq!(
            told(&done, &[status("istio-proxy", false, &pulls)]),
            is(
                "container istio-proxy waits (ImagePullBackOff: no such image)",
                false
            )
        );
        assert_eq!(
            told(&done, &[status("istio-proxy", false, &runs)]),
            is("container istio-proxy is not ready", false)
        );
        assert_eq!(told(&done, &[status("istio-proxy", true, &runs)]), None);
    }

    /// A native sidecar is an init container that goes on running: once it has started, nothing waits for it.
    #[test]
    fn a_native_sidecar_that_has_started_keeps_nothing() {
        let mut sidecar = status("linkerd-proxy", true, &json!({"running": {}}));
        sidecar["started"] = json!(true);
        assert_eq!(told(&json!([sidecar]), &[]), None);
        sidecar["ready"] = json!(false);
        assert_eq!(
            told(&json!([sidecar]), &[]),
            Some((
                "init container linkerd-proxy is not ready".to_owned(),
                false
            ))
        );
    }

    #[test]
    fn its_last_change_is_known() {
        let running = json!({"running": {"startedAt": "1970-01-01T00:00:05Z"}});
        let ended = |at: &str| json!({"terminated": {"exitCode": 0, "finishedAt": at}});
        let mut pod: Pod = serde_json::from_value(json!({"status": {
            "initContainerStatuses": [status("a", true, &ended("1970-01-01T00:00:09Z"))],
            "containerStatuses": [status("mesh", true, &running), status("member", true, &ended("1970-01-01T00:01:00Z"))]}}))
        .expect("a pod");
        assert_eq!(since(&pod), Some(9_000));
        pod.prune();
        assert_eq!(since(&pod), Some(9_000));
        assert_eq!(since(&Pod::default()), None);
    }

    /// How every container begins, and a pod without any other.
    #[test]
    fn beginnings_are_no_news() {
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(
            told(&json!([status("istio-init", false, &creating)]), &[]),
            None
        );
        assert_eq!(told(&Value::Null, &[]), None);
    }
}
