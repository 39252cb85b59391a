//! Which reconciles an event about a user or a role is for. Pure.

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;

use crate::crd::access::{EtcdRole, EtcdUser};
use crate::operator::kubernetes::cache::Cache;
use crate::operator::kubernetes::workers::Key;

/// The reconcile of this very resource.
pub(super) fn of(kind: &str, meta: &ObjectMeta) -> Option<Key> {
    let (namespace, name) = (meta.namespace.clone()?, meta.name.as_ref()?);
    Some((namespace, format!("{kind}/{name}")))
}

/// A role is also the concern of the users of its cluster that have it.
pub(super) fn of_role(
    role: &DeserializeGuard<EtcdRole>,
    users: &Cache<DeserializeGuard<EtcdUser>>,
) -> impl Iterator<Item = Key> + use<> {
    let meta = Resource::meta(role);
    let readable = role.0.as_ref().ok();
    let named = readable.map(|role| (&role.spec.cluster_ref, name_of(role)));
    let has = |user: &EtcdUser| {
        let spec = &user.spec;
        named.as_ref().is_some_and(|(cluster, name)| {
            spec.cluster_ref == **cluster && spec.roles.contains(name)
        })
    };
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let concerned = users.in_namespace(namespace, |user| user.0.as_ref().is_ok_and(has));
    let concerned: Vec<Key> = concerned
        .iter()
        .filter_map(|user| of("user", Resource::meta(&**user)))
        .collect();
    of("role", meta).into_iter().chain(concerned)
}

/// Name of a role in its cluster.
pub(super) fn name_of(role: &EtcdRole) -> String {
    let name = role.spec.role_name.clone();
    name.or_else(|| role.metadata.name.clone())
        .unwrap_or_default()
}
