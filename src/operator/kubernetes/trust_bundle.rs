//! ClusterTrustBundles: as they are, written by plans, and deleted after their resource. The kind is in none of our caches,
//! because most API servers do not serve it: it is read live, and rarely. It belongs to no namespace, so Kubernetes deletes
//! none with its resource: the operator does when it sees the resource gone, and looks now and then for those of resources
//! that went while no operator ran.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, PatchParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};

use super::bundles::{Bundle, Bundles, is_not_found};
use super::cache::Namespaces;
use super::certificates::few_authorities_of;
use super::context::{Context, Resourceful};
use super::objects::failure;
use super::platform::OneCluster;
use super::workers::Key;
use crate::build;
use crate::crd::{
    EtcdClusterStatus, MANAGER, Tls, TlsPort, ValidatedCluster, authority_secret_name,
    trust_bundle_name,
};
use crate::operator::clock::{Clock, Moment};
use crate::operator::platform::Failure;
use crate::plan::{Owner, TrustBundle, TrustBundleFacts};

/// Interval between reads of one that is as it is wanted.
const READ_EVERY: Duration = Duration::from_secs(30);
/// Between two looks for those whose resource is gone.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(300);

/// What was read of a cluster's ClusterTrustBundle.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    read: Option<Moment>,
    found: TrustBundle,
}

impl Known {
    /// Reads it if it is asked for, or was published, and that is due.
    pub(super) async fn read(
        &mut self,
        bundles: &Bundles,
        cluster: &ValidatedCluster,
        status: &EtcdClusterStatus,
        clock: &Clock,
    ) {
        let asked = cluster.spec.tls.as_ref().is_some_and(Tls::publishes_bundle);
        let endpoints = status.endpoints.as_ref();
        let shown = endpoints.is_some_and(|it| it.cluster_trust_bundle.is_some());
        // Also what was published last, and is not in the status yet.
        if !asked && !shown && !matches!(self.found, TrustBundle::There(_)) {
            *self = Known::default();
            return;
        }
        if (self.read.as_ref()).is_some_and(|read| read.elapsed() < READ_EVERY) {
            return;
        }
        let name = trust_bundle_name(&cluster.namespace, &cluster.name);
        self.found = match bundles.get(&name).await {
            Ok(Some(found)) => TrustBundle::There(facts(&found, &cluster.uid)),
            Ok(None) => TrustBundle::Missing,
            // Not of the name, but of the whole kind.
            Err(error) if is_not_found(&error) => TrustBundle::NotServed,
            Err(kube::Error::Api(status)) if status.code == 403 => TrustBundle::Denied,
            // Errors of the API server do not remove earlier observations. What was never seen holds a rotation, and nothing else.
            Err(error) => {
                tracing::warn!(bundle = %name, %error, "cannot read the ClusterTrustBundle");
                return;
            }
        };
        self.read = Some(clock.now());
    }

    pub(super) fn facts(&self) -> TrustBundle {
        self.found.clone()
    }

    /// It was written, or may have been: it is read again.
    pub(super) fn look_again(&mut self) {
        self.read = None;
    }

    /// Whether there may be one: also where none was seen yet, which may have been written since.
    fn may_be_there(&self) -> bool {
        matches!(self.found, TrustBundle::Missing | TrustBundle::There(_))
    }
}

fn facts(found: &Bundle, uid: &str) -> TrustBundleFacts {
    let trusted = few_authorities_of(&found.spec.trust_bundle).unwrap_or_default();
    TrustBundleFacts {
        uid: found.uid().unwrap_or_default(),
        owner: build::owner_of_trust_bundle(found.meta(), uid),
        trusted: trusted.into_iter().map(|one| one.sha256).collect(),
    }
}

/// Writes the CAs of the client port as they are in their Secret by now. The plan has seen these `trusted`.
pub(super) async fn publish(
    one: &OneCluster,
    cluster: &ValidatedCluster,
    trusted: &[String],
) -> Result<(), Failure> {
    let secret = authority_secret_name(&cluster.name, TlsPort::Client);
    let changed = || Failure::Changed(format!("Secret {secret} holds other authorities by now"));
    let found = super::certificates::live(one, &secret).await?;
    let text = found.and_then(|it| build::secret_text(&it, build::CA_CERTIFICATES));
    let all = text
        .and_then(|text| few_authorities_of(&text))
        .ok_or_else(changed)?;
    if !all.iter().map(|one| &one.sha256).eq(trusted) {
        return Err(changed());
    }
    // Each once: the API server refuses one that is there twice.
    let mut pems: Vec<String> = Vec::new();
    for pem in all
        .iter()
        .map(crate::server::tls::certificates::Certificate::pem)
    {
        if !pems.contains(&pem) {
            pems.push(pem);
        }
    }
    let mut wanted = build::trust_bundle(cluster, pems.concat());
    let bundles = Bundles::new(&one.shared.client);
    let name = wanted.name_any();
    let found = bundles.get(&name).await;
    if let Some(found) = found.map_err(|error| failure("read", &name, &error))? {
        if build::owner_of_trust_bundle(found.meta(), &cluster.uid) == Owner::Unowned {
            return Err(Failure::NameConflict {
                kind: "ClusterTrustBundle".to_owned(),
                name,
                owner: "someone else".to_owned(),
            });
        }
        // Another one that took its name since is refused.
        wanted.metadata.uid = found.uid();
    }
    let parameters = PatchParams::apply(MANAGER).force();
    let applied = bundles.apply(&wanted, &parameters).await;
    applied.map_err(|error| failure("apply", &name, &error))
}

/// Deletes the one with this name and UID, and no other.
pub(super) async fn withdraw(client: &Client, name: &str, uid: &str) -> Result<(), Failure> {
    delete(client, name, (uid, None)).await
}

async fn delete(
    client: &Client,
    name: &str,
    (uid, version): (&str, Option<String>),
) -> Result<(), Failure> {
    let bundles = Bundles::new(client);
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version,
        }),
        ..DeleteParams::default()
    };
    match bundles.delete(name, &parameters).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(failure("delete", name, &error)),
    }
}

impl Context {
    /// Deletes the ClusterTrustBundle of a cluster that is gone, if one was looked for.
    pub(crate) async fn withdraw_after(&self, key: &Key) {
        let looked_for = {
            let memories = self.memories.lock();
            let memories = memories.unwrap_or_else(std::sync::PoisonError::into_inner);
            (memories.get(key)).is_some_and(|memory| memory.trust_bundle.may_be_there())
        };
        if !looked_for {
            return;
        }
        let name = trust_bundle_name(&key.0, &key.1);
        let bundles = Bundles::new(&self.client);
        let done = async {
            let found = bundles.get(&name).await;
            match found.map_err(|error| failure("read", &name, &error))? {
                Some(found) => self.drop_if_left(&found).await,
                None => Ok(()),
            }
        };
        if let Err(why) = done.await {
            tracing::warn!(namespace = %key.0, cluster = %key.1, %why, "a ClusterTrustBundle was not deleted: it is tried again");
        }
    }

    /// Deletes the ClusterTrustBundles of clusters that are gone, in the namespaces that are served.
    pub(crate) async fn sweep_trust_bundles(&self, namespaces: &Namespaces) {
        let bundles = Bundles::new(&self.client);
        let (label, value) = build::TRUST_BUNDLES;
        let ours = ListParams::default().labels(&format!("{label}={value}"));
        let found = match bundles.list(&ours).await {
            Ok(found) => found,
            // Most API servers do not serve the kind, and most operators have no rights to it.
            Err(error) => {
                tracing::debug!(%error, "cannot see the ClusterTrustBundles");
                return;
            }
        };
        for bundle in found {
            let of = build::trust_bundle_of(bundle.meta());
            if !of.is_some_and(|(namespace, ..)| namespaces.has(namespace)) {
                continue;
            }
            if let Err(why) = self.drop_if_left(&bundle).await {
                tracing::warn!(bundle = %bundle.name_any(), %why, "a ClusterTrustBundle was not deleted: it is tried again");
            }
        }
    }

    /// Deletes a ClusterTrustBundle if no resource with the UID that it was published for is there any more. That of a
    /// later resource of the name has another one, and takes it over where it asks for one.
    async fn drop_if_left(&self, bundle: &Bundle) -> Result<(), Failure> {
        let Some((namespace, cluster, uid)) = build::trust_bundle_of(bundle.meta()) else {
            return Ok(());
        };
        let clusters: Api<Resourceful> = Api::namespaced(self.client.clone(), namespace);
        let there = clusters.get_opt(cluster).await;
        let there = there.map_err(|error| failure("read", cluster, &error))?;
        if there.is_some_and(|there| there.meta().uid.as_deref() == Some(uid)) {
            return Ok(());
        }
        let name = bundle.name_any();
        tracing::info!(%namespace, %cluster, bundle = %name, "deletes the ClusterTrustBundle of a cluster that is gone");
        let seen = bundle.uid().unwrap_or_default();
        delete(&self.client, &name, (&seen, bundle.resource_version())).await
    }
}

/// Looks for those of clusters that are gone, for as long as this operator acts.
pub(super) async fn follow(shared: Arc<Context>, namespaces: Namespaces) {
    loop {
        shared.sweep_trust_bundles(&namespaces).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

#[cfg(test)]
#[path = "trust_bundle_test.rs"]
mod tests;
