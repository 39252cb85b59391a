//! Rights: whether a role's rules allow a request, as the API server's authorizer has it.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::refusal::Refusal;
use super::service::{Call, Verb};

/// Refuses with 403 what no rule of an actor's roles allows. For an interceptor to ask.
///
/// # Errors
/// The refusal that the actor gets.
pub fn permitted(rules: &[PolicyRule], call: &Call) -> Result<(), Refusal> {
    let facts = call.kind.facts();
    let verb = match call.verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
    };
    let resource = match call.subresource.as_str() {
        "" => facts.plural.to_owned(),
        part => format!("{}/{part}", facts.plural),
    };
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|one| one == wanted || one == "*")
    };
    let allows = |rule: &PolicyRule| {
        let named = rule
            .resource_names
            .as_ref()
            .filter(|names| !names.is_empty());
        has(&rule.api_groups, facts.group)
            && has(&rule.resources, &resource)
            && rule.verbs.iter().any(|one| one == verb || one == "*")
            && named.is_none_or(|names| names.contains(&call.name))
    };
    if rules.iter().any(allows) {
        return Ok(());
    }
    let why = format!(
        "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\" in the namespace \"{}\"",
        call.actor, facts.group, call.namespace
    );
    Err(Refusal::forbidden(call.kind, &call.name, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::opsim::api::Kind;

    fn call(verb: Verb, kind: Kind, subresource: &str) -> Call {
        Call {
            actor: "operator-1".into(),
            verb,
            kind,
            namespace: "prod".into(),
            name: "demo".into(),
            subresource: subresource.into(),
            request: 1,
            write: None,
        }
    }

    #[test]
    fn operator_role_is_minimal() {
        let rules = build::rules();
        for (verb, kind, part, allowed) in [
            (Verb::Patch, Kind::EtcdCluster, "status", true),
            // For the finalizer of a cluster that is saved before it is deleted.
            (Verb::Patch, Kind::EtcdCluster, "", true),
            (Verb::Update, Kind::EtcdCluster, "", false),
            (Verb::Delete, Kind::EtcdCluster, "", false),
            (Verb::Delete, Kind::Pod, "", true),
            (Verb::Create, Kind::Pod, "eviction", true),
            (Verb::Create, Kind::Pod, "", false),
            (Verb::Delete, Kind::Secret, "", true),
            (Verb::Update, Kind::Secret, "", false),
            (Verb::Update, Kind::Lease, "", false),
            (Verb::List, Kind::Node, "", false),
            (Verb::List, Kind::EndpointSlice, "", true),
            (Verb::Patch, Kind::EndpointSlice, "", false),
            (Verb::Create, Kind::Event, "", true),
            (Verb::Patch, Kind::Certificate, "", true),
            (Verb::Delete, Kind::Certificate, "", false),
            (Verb::Patch, Kind::Certificate, "status", false),
        ] {
            let found = permitted(&rules, &call(verb, kind, part));
            assert_eq!(found.is_ok(), allowed, "{verb:?} {kind:?} {part}");
        }
        let rules = build::trust_bundle_rules();
        for (verb, allowed) in [
            (Verb::Get, true),
            (Verb::List, true),
            (Verb::Patch, true),
            (Verb::Delete, true),
            (Verb::Watch, false),
            (Verb::Update, false),
        ] {
            let found = permitted(&rules, &call(verb, Kind::ClusterTrustBundle, ""));
            assert_eq!(found.is_ok(), allowed, "{verb:?} ClusterTrustBundle");
        }
        // Whoever may write any Lease could end any other controller that works by one.
        let rules = build::lease_rules("demo");
        for (verb, name, allowed) in [
            (Verb::Create, "other", true),
            (Verb::Update, "demo", true),
            (Verb::Update, "other", false),
            (Verb::Delete, "demo", false),
            (Verb::List, "", false),
        ] {
            let mut call = call(verb, Kind::Lease, "");
            call.name = name.into();
            let found = permitted(&rules, &call);
            assert_eq!(found.is_ok(), allowed, "{verb:?} {name}");
        }
    }
}
