//! The specification that was admitted last, kept as a ControllerRevision: read once, because only the operator writes
//! it, and written when another one is admitted. Decides nothing about it.

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::facts;
use super::objects::{Owned, create, delete, failure};
use super::ours::Life;
use crate::build;
use crate::crd::{
    EtcdCluster, EtcdClusterSpec, LABEL_CLUSTER_UID, MANAGER, ValidatedCluster, validate,
};
use crate::operator::platform::Failure;

/// What was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    read: bool,
    /// The operator may not read them: an older installation without this permission.
    denied: bool,
    newest: Option<Kept>,
}

/// A specification as it is kept here: it is rarely read, and there is one for each cluster.
#[derive(Clone, Debug)]
struct Kept {
    hash: String,
    text: Box<str>,
}

impl Kept {
    fn of(spec: &EtcdClusterSpec) -> Option<Self> {
        let text = serde_json::to_string(spec).ok()?;
        Some(Self {
            hash: build::hash_of_spec(spec),
            text: text.into(),
        })
    }
}

impl Known {
    /// Something was written, or may have been.
    pub(super) fn look_again(&mut self) {
        self.read = false;
    }

    /// Reads the revisions of a resource where that was not done yet.
    pub(super) async fn read(
        &mut self,
        api: &Api<ControllerRevision>,
        Life { name, uid, life }: Life<'_>,
    ) -> Result<(), Failure> {
        if self.read {
            return Ok(());
        }
        let mut found = match api.list(&of(life)).await {
            Ok(list) => list.items,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(cluster = %name, "cannot keep admitted specifications: update the operator's role");
                // What was read before still is what was admitted last.
                (self.read, self.denied) = (true, self.newest.is_none());
                return Ok(());
            }
            Err(error) => return Err(failure("list", "controllerrevisions", &error)),
        };
        found.retain(|one| facts::owner(&one.metadata, name, uid) == crate::plan::Owner::Ours);
        found.sort_by_key(|one| one.revision);
        let newest = found.iter().rev().find_map(build::spec_of);
        self.newest = newest.as_ref().and_then(Kept::of);
        self.read = true;
        Ok(())
    }

    /// The plan's input about it; `None` if none is stored.
    pub(super) fn facts(&self, cluster: &ValidatedCluster) -> Option<crate::plan::SpecFacts> {
        let kept = self.newest.as_ref().map(|kept| kept.hash.clone());
        (self.read && !self.denied).then(|| crate::plan::SpecFacts {
            hash: build::spec_hash(cluster),
            kept,
        })
    }

    /// The resource with the specification that was admitted last. `paused` of the refused one applies to it too. It is
    /// not checked again by the servers' parser: it was admitted, and members run with it, even if this version of the
    /// operator would refuse it.
    pub(super) fn admitted(&self, resource: &EtcdCluster) -> Option<ValidatedCluster> {
        let mut kept = resource.clone();
        kept.spec = serde_json::from_str(&self.newest.as_ref()?.text).ok()?;
        kept.spec.paused = resource.spec.paused;
        validate(&kept).ok()
    }
}

/// Keeps a specification, and no earlier one.
pub(super) async fn admit(
    client: &Client,
    namespace: &str,
    cluster: &ValidatedCluster,
) -> Result<(), Failure> {
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let wanted = build::revision(cluster);
    let ours = Owned::Controller(&cluster.uid);
    let kept = create(client, namespace, &wanted, ours).await?;
    if kept.revision < wanted.revision {
        // It was admitted before, and others since: it is the newest again.
        let change = json!({"metadata": {"uid": kept.uid()}, "revision": wanted.revision});
        let parameters = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        let (name, change) = (kept.name_any(), Patch::Merge(&change));
        let changed = api.patch(&name, &parameters, &change).await;
        changed.map_err(|error| failure("change", &name, &error))?;
    }
    let found = api.list(&of(&cluster.life)).await;
    let found = found.map_err(|error| failure("list", "controllerrevisions", &error))?;
    for one in found.items {
        let ours = facts::owner(&one.metadata, &cluster.name, &cluster.uid);
        let earlier = one.revision < wanted.revision && one.name_any() != wanted.name_any();
        if earlier && ours == crate::plan::Owner::Ours {
            let uid = one.uid().unwrap_or_default();
            delete::<ControllerRevision>(client, namespace, &one.name_any(), (&uid, None)).await?;
        }
    }
    Ok(())
}

fn of(life: &str) -> ListParams {
    ListParams::default().labels(&format!("{LABEL_CLUSTER_UID}={life}"))
}
