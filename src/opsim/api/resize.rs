//! The subresource `resize` of pods: other resources of containers that run. What becomes of them is the kubelets' business.

use std::sync::Arc;

use serde_json::Value;

use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::server::ApiServer;
use super::validate::{amount, resources};
use super::write::merge;

impl ApiServer {
    /// Answers requests for resizes as Kubernetes before 1.33: it does not know them.
    pub fn forget_resizes(&mut self) {
        self.resizes_pods = false;
    }

    /// Changes the resources of containers, by a strategic merge; in a dry run it only says what they would be.
    ///
    /// # Errors
    /// 404 without such a pod or the subresource, 409 for another pod of the name, 422 where a container cannot have them
    /// without a restart.
    pub(super) fn resize(
        &mut self,
        actor: &str,
        id: (&str, &str),
        (change, dry_run): (&Value, bool),
    ) -> Result<Arc<Value>, Refusal> {
        if !self.resizes_pods {
            let text = "the server could not find the requested resource";
            return Err(Refusal::new(404, "NotFound", text));
        }
        let pod = self.get(Kind::Pod, id.0, id.1);
        let pod = pod.ok_or_else(|| Refusal::not_found(Kind::Pod, id.1))?;
        let wanted = object::uid(change);
        if !wanted.is_empty() && wanted != object::uid(&pod) {
            return Err(Refusal::conflict(Kind::Pod, id.1, "another UID"));
        }
        let mut changed = (*pod).clone();
        for asked in object::items(change, &["spec", "containers"]) {
            let mut containers = object::items_mut(&mut changed["spec"], "containers");
            let found = containers.find(|one| one["name"] == asked["name"]);
            let found = found.ok_or_else(|| {
                Refusal::not_modelled("a resize of a container that is not there")
            })?;
            merge(&mut found["resources"], asked["resources"].clone());
        }
        let refuse = |why: &str| Err(Refusal::invalid(Kind::Pod, id.1, "spec", why));
        for (old, new) in containers(&pod).iter().zip(containers(&changed)) {
            resources(&new["resources"]).or_else(|why| refuse(&why).map(drop))?;
            if !same_but_for_both_kinds(old, new) {
                return refuse("Forbidden: only cpu and memory resources are mutable");
            }
        }
        if class(&pod) != class(&changed) {
            return refuse("Invalid value: Pod QOS Class may not change as a result of resizing");
        }
        if dry_run {
            return Ok(Arc::new(changed));
        }
        let resized = self.edit(actor, Kind::Pod, id, |pod| *pod = changed);
        resized.ok_or_else(|| Refusal::not_found(Kind::Pod, id.1))
    }
}

fn containers(pod: &Value) -> &[Value] {
    object::items(pod, &["spec", "containers"])
}

fn same_but_for_both_kinds(old: &Value, new: &Value) -> bool {
    let rest = |container: &Value| {
        let mut resources = container["resources"].clone();
        for part in ["requests", "limits"] {
            for kind in ["cpu", "memory"] {
                object::take(&mut resources, &[part, kind]);
            }
            if resources[part]
                .as_object()
                .is_none_or(serde_json::Map::is_empty)
            {
                object::take(&mut resources, &[part]);
            }
        }
        resources
    };
    rest(old) == rest(new)
}

/// A pod's class of service.
fn class(pod: &Value) -> &'static str {
    let of = |container: &Value, part: &str, kind: &str| {
        object::at(container, &["resources", part, kind]).and_then(amount)
    };
    let asks = |container: &Value| {
        ["requests", "limits"].iter().any(|part| {
            let kinds = ["cpu", "memory"];
            kinds.iter().any(|kind| of(container, part, kind).is_some())
        })
    };
    let full = |container: &Value| {
        ["cpu", "memory"].iter().all(|kind| {
            let limit = of(container, "limits", kind);
            limit.is_some() && limit == of(container, "requests", kind).or(limit)
        })
    };
    let all = containers(pod);
    if all.iter().all(full) {
        "Guaranteed"
    } else if all.iter().any(asks) {
        "Burstable"
    } else {
        "BestEffort"
    }
}
