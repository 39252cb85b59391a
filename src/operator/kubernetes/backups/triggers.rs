//! Which reconciles an event about backups is for. Pure.

use kube::api::ObjectMeta;

use super::Guarded;
use crate::crd::{LABEL_BACKUP_OWNER, LABEL_BACKUP_OWNER_KIND, LABEL_BACKUP_SCHEDULE};
use crate::operator::kubernetes::workers::Key;

/// The reconcile of this very resource.
pub(crate) fn of(kind: &str, meta: &ObjectMeta) -> Option<Key> {
    let (namespace, name) = (meta.namespace.clone()?, meta.name.as_ref()?);
    Some((namespace, format!("{kind}/{name}")))
}

/// A backup is its schedule's and its cluster's concern too.
pub(crate) fn of_backup(backup: &Guarded) -> impl Iterator<Item = Key> {
    let meta = kube::Resource::meta(backup);
    let labels = meta.labels.as_ref();
    let schedule = labels.and_then(|labels| labels.get(LABEL_BACKUP_SCHEDULE));
    let cluster = backup.0.as_ref().ok().map(|it| &it.spec.cluster_ref.name);
    let named =
        |kind: &str, name: &String| Some((meta.namespace.clone()?, format!("{kind}/{name}")));
    let all = [
        of("backup", meta),
        schedule.and_then(|name| named("schedule", name)),
        cluster.and_then(|name| named("backups-of", name)),
    ];
    all.into_iter().flatten()
}

/// The resource that the labels of a Job or of its pod name.
pub(crate) fn owner_of(meta: &ObjectMeta) -> Option<Key> {
    let labels = meta.labels.as_ref()?;
    let (kind, name) = (
        labels.get(LABEL_BACKUP_OWNER_KIND)?,
        labels.get(LABEL_BACKUP_OWNER)?,
    );
    Some((meta.namespace.clone()?, format!("{kind}/{name}")))
}
