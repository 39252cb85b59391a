//! Asks a kubelet for other resources of a running pod, and records on the pod what became of that. Decides nothing.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::act::patch_pod;
use super::objects::failure;
use super::platform::OneCluster;
use crate::build;
use crate::crd::{MANAGER, ValidatedCluster, pod_name};
use crate::operator::platform::Failure;

/// Asks the kubelet of the member's pod with this UID for the resources of the specification. The API server is asked first
/// whether it would do so: nothing of a pod that is not resized is called into question.
///
/// # Errors
/// [`Failure::Changed`] also where this pod is not resized, or its node has no room: that is recorded on it, and planned from.
pub(super) async fn ask(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    member: &str,
    uid: &str,
) -> Result<(), Failure> {
    let now_ms = one.shared.outside.clock.unix_ms();
    let recorded = async |annotations: Value, why: String| {
        patch_pod(one, member, uid, json!({"annotations": annotations})).await?;
        Err(Failure::Changed(why))
    };
    match resize(one, cluster, member, uid, true).await {
        Ok(would_be) if !build::resize_is_asked(cluster, &would_be) => {
            let why = format!("somebody changes what the pod of {member} is asked to have");
            return recorded(build::resize_refused(cluster), why).await;
        }
        Ok(_) => {}
        Err(Refused::Pod(failure)) => {
            let why = format!("the pod of {member} is restarted instead: {failure}");
            return recorded(build::resize_refused(cluster), why).await;
        }
        Err(Refused::Room(failure)) => {
            let annotations = build::resize_infeasible(cluster, now_ms);
            return recorded(annotations, failure.to_string()).await;
        }
        Err(Refused::Other(failure)) => return Err(failure),
    }
    let annotations = build::resize_asked(cluster, now_ms);
    patch_pod(one, member, uid, json!({"annotations": annotations})).await?;
    match resize(one, cluster, member, uid, false).await {
        Ok(_) => Ok(()),
        Err(Refused::Pod(failure) | Refused::Room(failure) | Refused::Other(failure)) => {
            Err(failure)
        }
    }
}

/// Why a pod is not resized.
enum Refused {
    /// The API server does not know resizes (before 1.33), or not this one: the answer stays the same, and a new pod is allowed.
    Pod(Failure),
    /// Its node has no room, as an admission plugin of the API server knows.
    Room(Failure),
    /// Anything else. A missing right, a used-up quota or a policy of the users is for them to see: a new pod would be refused as well.
    Other(Failure),
}

async fn resize(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    member: &str,
    uid: &str,
    dry_run: bool,
) -> Result<Pod, Refused> {
    let name = pod_name(member);
    let mut change = build::resize_change(cluster);
    change["metadata"] = json!({"uid": uid});
    let api: Api<Pod> = Api::namespaced(one.shared.client.clone(), &one.key.0);
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        dry_run,
        ..Default::default()
    };
    let change = Patch::Strategic(&change);
    let resized = api.patch_subresource("resize", &name, &parameters, &change);
    resized.await.map_err(|error| refused(&name, &error))
}

fn refused(name: &str, error: &kube::Error) -> Refused {
    let failure = failure("resize", name, error);
    let kube::Error::Api(status) = error else {
        return Refused::Other(failure);
    };
    let by_policy = ["admission webhook", "ValidatingAdmissionPolicy"];
    let by_policy = by_policy.iter().any(|who| status.message.contains(who));
    match status.code {
        _ if matches!(failure, Failure::Changed(_)) || by_policy => Refused::Other(failure),
        404 | 405 | 415 | 422 | 400 => Refused::Pod(failure),
        403 if build::lacks_room(&status.message) => Refused::Room(failure),
        _ => Refused::Other(failure),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// A member was to be deleted for a request that a policy refuses: its next pod would have been refused as well.
    #[test]
    fn only_final_answers_about_a_pod_restart_it() {
        let of = |code, message: &str| {
            let status = Status {
                code,
                message: message.into(),
                ..Status::default()
            };
            match refused("demo-1-0", &kube::Error::Api(Box::new(status))) {
                Refused::Pod(_) => "restarted",
                Refused::Room(_) => "no room",
                Refused::Other(_) => "reported",
            }
        };
        let class = "Invalid value: Pod QOS Class may not change as a result of resizing";
        let policy =
            "ValidatingAdmissionPolicy 'small' with binding 'small' denied request: too much";
        let webhook = "admission webhook \"limits.example\" denied the request: too much";
        let quota = "exceeded quota: team, requested: requests.cpu=1, used: 4, limited: 4";
        let full = "Node didn't have enough allocatable resources: cpu";
        for (code, message, expected) in [
            (
                404,
                "the server could not find the requested resource",
                "restarted",
            ),
            (405, "method not allowed", "restarted"),
            (422, class, "restarted"),
            (422, policy, "reported"),
            (400, webhook, "reported"),
            (403, quota, "reported"),
            (403, "cannot patch resource \"pods/resize\"", "reported"),
            (403, full, "no room"),
            (409, "the object has been modified", "reported"),
            (500, "etcdserver: request timed out", "reported"),
        ] {
            assert_eq!(of(code, message), expected, "{code} {message}");
        }
    }
}
