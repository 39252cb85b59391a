//! Whether the API server refuses to delete an EtcdCluster with `spec.deletionProtection`: looked up now and then, once for
//! all clusters, so that a cluster whose protection nothing enforces can say so. Changes no policy, and never takes one for
//! enforced that may let a deletion through.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::context::Context;
use crate::crd::GROUP;
use crate::plan::DeletionPolicy;

/// How often it is looked up.
const PERIOD: Duration = Duration::from_secs(300);
/// Longest look: a part of the time that the Lease is held without being renewed.
const LONGEST: Duration = Duration::from_secs(3);
const RESOURCE: &str = "etcdclusters";
/// What the expression of the policy reads.
const FIELD: &str = "oldObject.spec.deletionProtection";

/// What was found last.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<DeletionPolicy>);

impl Known {
    pub(super) fn get(&self) -> DeletionPolicy {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, found: DeletionPolicy) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Looks it up for as long as this operator acts; the first time before it returns what goes on doing so.
pub(super) async fn follow(reader: Client, shared: Arc<Context>) -> impl Future<Output = ()> {
    shared.deletion_policy.set(look(&reader).await);
    async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            shared.deletion_policy.set(look(&reader).await);
        }
    }
}

async fn look(reader: &Client) -> DeletionPolicy {
    let all = ListParams::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(reader.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(reader.clone());
    let both = async { tokio::try_join!(policies.list(&all), bindings.list(&all)) };
    // The first time, the Lease waits for it.
    let Ok(found) = tokio::time::timeout(LONGEST, both).await else {
        tracing::debug!("the API server does not say in time whether deletions are refused");
        return DeletionPolicy::Unknown;
    };
    match found {
        Ok((policies, bindings)) => judge(&policies.items, &bindings.items),
        Err(error) => {
            tracing::debug!(%error, "cannot see whether deletions are refused");
            DeletionPolicy::Unknown
        }
    }
}

fn judge(
    policies: &[ValidatingAdmissionPolicy],
    bindings: &[ValidatingAdmissionPolicyBinding],
) -> DeletionPolicy {
    let enforced = |policy: &&ValidatingAdmissionPolicy| {
        let name = policy.name_any();
        refuses(policy) && bindings.iter().any(|binding| binds(binding, &name))
    };
    match policies.iter().any(|policy| enforced(&policy)) {
        true => DeletionPolicy::Enforced,
        false => DeletionPolicy::Missing,
    }
}

/// Whether a policy that is bound everywhere refuses every such deletion.
fn refuses(policy: &ValidatingAdmissionPolicy) -> bool {
    let Some(spec) = &policy.spec else {
        return false;
    };
    let everywhere = spec.match_constraints.as_ref().is_some_and(is_everywhere);
    let mut checks = spec.validations.iter().flatten();
    everywhere
        && spec.failure_policy.as_deref() != Some("Ignore")
        && spec.param_kind.is_none()
        && spec.match_conditions.as_ref().is_none_or(Vec::is_empty)
        && checks.any(|check| check.expression.contains(FIELD))
}

/// Whether it is asked about the deletion of any EtcdCluster.
fn is_everywhere(matched: &MatchResources) -> bool {
    let has = |list: &Option<Vec<String>>, word: &str| {
        let mut all = list.iter().flatten();
        all.any(|one| one == word || one == "*")
    };
    let free = |selector: &Option<
        k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    >| { selector.as_ref().is_none_or(|it| *it == Default::default()) };
    let mut rules = matched.resource_rules.iter().flatten();
    let asked = rules.any(|rule| {
        has(&rule.api_groups, GROUP)
            && has(&rule.api_versions, "v1alpha1")
            && has(&rule.resources, RESOURCE)
            && has(&rule.operations, "DELETE")
            && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
    });
    asked
        && matched
            .exclude_resource_rules
            .as_ref()
            .is_none_or(Vec::is_empty)
        && free(&matched.namespace_selector)
        && free(&matched.object_selector)
}

fn binds(binding: &ValidatingAdmissionPolicyBinding, policy: &str) -> bool {
    let Some(spec) = &binding.spec else {
        return false;
    };
    let mut actions = spec.validation_actions.iter().flatten();
    spec.policy_name.as_deref() == Some(policy)
        && spec.match_resources.is_none()
        && actions.any(|action| action == "Deny")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy() -> Value {
        json!({
            "metadata": {"name": "quorate-deletion-protection"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"namespaceSelector": {}, "objectSelector": {}, "resourceRules": [{
                    "apiGroups": ["quorate.dev"], "apiVersions": ["*"], "operations": ["DELETE"],
                    "resources": ["etcdclusters"], "scope": "Namespaced"}]},
                "validations": [{"expression": "!has(oldObject.spec.deletionProtection) || !oldObject.spec.deletionProtection"}],
            },
        })
    }

    fn binding() -> Value {
        json!({
            "metadata": {"name": "any"},
            "spec": {"policyName": "quorate-deletion-protection", "validationActions": ["Deny"]},
        })
    }

    fn judged(policy: Value, binding: Value) -> DeletionPolicy {
        let policy = serde_json::from_value(policy).expect("a policy");
        let binding = serde_json::from_value(binding).expect("a binding");
        judge(&[policy], &[binding])
    }

    #[test]
    fn only_a_policy_that_refuses_every_deletion_counts() {
        assert_eq!(judged(policy(), binding()), DeletionPolicy::Enforced);
        assert_eq!(judge(&[], &[]), DeletionPolicy::Missing);
        let of_policy = [
            ("/spec/failurePolicy", json!("Ignore")),
            ("/spec/validations/0/expression", json!("true")),
            (
                "/spec/matchConstraints/resourceRules/0/operations",
                json!(["UPDATE"]),
            ),
            (
                "/spec/matchConstraints/resourceRules/0/resources",
                json!(["etcdbackups"]),
            ),
            (
                "/spec/matchConstraints/resourceRules/0/apiGroups",
                json!(["apps"]),
            ),
            (
                "/spec/matchConstraints/namespaceSelector",
                json!({"matchLabels": {"a": "b"}}),
            ),
            ("/metadata/name", json!("another")),
        ];
        for (path, value) in of_policy {
            let mut changed = policy();
            *changed.pointer_mut(path).expect(path) = value;
            assert_eq!(
                judged(changed, binding()),
                DeletionPolicy::Missing,
                "{path}"
            );
        }
        let of_binding = [
            ("/spec/validationActions", json!(["Warn", "Audit"])),
            ("/spec/policyName", json!("another")),
        ];
        for (path, value) in of_binding {
            let mut changed = binding();
            *changed.pointer_mut(path).expect(path) = value;
            assert_eq!(judged(policy(), changed), DeletionPolicy::Missing, "{path}");
        }
        let mut narrow = binding();
        narrow["spec"]["matchResources"] =
            json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
        assert_eq!(judged(policy(), narrow), DeletionPolicy::Missing);
    }

    /// The policy of the one-file install is one that counts.
    #[test]
    fn the_installed_policy_counts() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/install.yaml");
        let text = std::fs::read_to_string(file).expect("the file");
        let documents = text.split("\n---\n").map(|text| {
            let parsed: Result<Value, _> = serde_saphyr::from_str(text);
            parsed.unwrap_or_default()
        });
        let documents: Vec<Value> = documents.collect();
        let of = |kind: &str| {
            let mut found = documents.iter().filter(|one| one["kind"] == kind);
            found.next().cloned().unwrap_or_default()
        };
        let (policy, binding) = (
            of("ValidatingAdmissionPolicy"),
            of("ValidatingAdmissionPolicyBinding"),
        );
        assert_eq!(judged(policy, binding), DeletionPolicy::Enforced);
    }
}
