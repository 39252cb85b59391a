//! Observes one cluster: its objects from the caches or live, its members by their descriptions, and
//! what both mean as the facts of a plan. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::core::DeserializeGuard;
use kube::{Api, Resource, ResourceExt};

use super::backups::deletion::{is_due, is_held};
use super::backups::source::is_source_waived;
use super::bundles::Bundles;
use super::cert_manager;
use super::certificates::{self, Way};
use super::drift;
use super::facts;
use super::kept_secret::KeptSecret;
use super::lease::{self};
use super::objects::failure;
use super::ours::{Life, Pods};
use super::recoveries;
use super::related_objects;
use super::user_certificates;
use crate::build;
use crate::crd::{
    DisruptionPolicy, EtcdCluster, EtcdClusterStatus, LABEL_CLUSTER, LABEL_CLUSTER_UID,
    LABEL_MEMBER, TlsPort, ValidatedCluster, client_service_name, fenced_members,
    identity_secret_name, operator_secret_name, pdb_name, pvc_name,
};
use crate::model::forecast::{Forecast, forecast};
use crate::operator::admission::admit;
use crate::operator::describe;
use crate::operator::members::{Described, MadeOf, Members};
use crate::operator::platform::{Failure, Freshness, Observation, Specification};
use crate::plan::status_memory;
use crate::plan::{
    Description, Earlier, IdentitySecret, InvalidCluster, NodeFacts, Observed, Owner, PodFacts,
    TlsFacts,
};
use crate::server::operator_api::auth::Key as MemberKey;
use crate::server::operator_api::secure::Secure;

use super::context::{Environment, Resourceful};
use super::platform::OneCluster;
use super::platform::View;

/// The objects that one observation found.
struct Found {
    sets: Vec<Arc<StatefulSet>>,
    pods: Vec<Arc<Pod>>,
    pvcs: Vec<Arc<PersistentVolumeClaim>>,
    identity_secret: Option<Secret>,
    nodes: Vec<Arc<Node>>,
    secrets: Vec<Arc<KeptSecret>>,
    pdbs: Vec<Arc<PodDisruptionBudget>>,
}

impl Found {
    /// The versions of the sets, PVCs and Secrets, and of these Services, by their UIDs.
    fn versions(&self, services: &[Arc<Service>]) -> BTreeMap<String, String> {
        let version = |meta: &ObjectMeta| Some((meta.uid.clone()?, meta.resource_version.clone()?));
        let sets = self.sets.iter().map(|one| &one.metadata);
        let pvcs = self.pvcs.iter().map(|one| &one.metadata);
        let secrets = self.secrets.iter().map(|one| one.meta());
        let services = services.iter().map(|one| &one.metadata);
        let all = sets.chain(pvcs).chain(secrets).chain(services);
        all.filter_map(version).collect()
    }
}

impl OneCluster {
    /// The facts about this cluster; `None`: its resource was deleted.
    pub(super) async fn facts(
        &mut self,
        freshness: Freshness,
        entropy: &str,
        by: Specification,
    ) -> Result<Option<Observation>, Failure> {
        let (namespace, name) = self.key.clone();
        let resource = match freshness {
            Freshness::Cached => self.shared.caches.clusters.get(&namespace, &name),
            Freshness::Live => {
                let found = self.api::<Resourceful>().get_opt(&name).await;
                found
                    .map_err(|error| failure("read", &name, &error))?
                    .map(Arc::new)
            }
        };
        let Some(resource) = resource else {
            return Ok(None);
        };
        self.observe_resource(&resource, by, freshness, entropy)
            .await
            .map(Some)
    }

    /// What would be done if the resource were this one. `None`: another one with this name is reconciled, or it exists
    /// (it has a version) and is not reconciled.
    pub(super) async fn forecast(
        &mut self,
        wanted: EtcdCluster,
    ) -> Result<Option<Forecast>, Failure> {
        let (namespace, name) = &self.key;
        let there = self.shared.caches.clusters.get(namespace, name);
        let known = match there {
            Some(there) => there.uid() == wanted.uid(),
            None => wanted.resource_version().is_none(),
        };
        if !known {
            return Ok(None);
        }
        let wanted = Arc::new(DeserializeGuard(Ok(wanted)));
        let seen =
            Box::pin(self.observe_resource(&wanted, Specification::Wanted, Freshness::Cached, ""))
                .await?;
        Ok(Some(forecast(&seen.observed)))
    }

    /// What is so, by the specification of the resource; where that cannot be carried out, or not be recorded, by the
    /// one that was last admitted.
    async fn observe_resource(
        &mut self,
        resource: &Arc<Resourceful>,
        by: Specification,
        freshness: Freshness,
        entropy: &str,
    ) -> Result<Observation, Failure> {
        let uid = resource.uid().unwrap_or_default();
        let api = self.api();
        let life = Life {
            name: &self.key.1,
            uid: &uid,
            life: life_of(resource, &uid),
        };
        self.memory.revisions.read(&api, life).await?;
        let wanted = self.judged(resource);
        self.remember();
        let seen = Box::pin(self.observe_by_spec(wanted, resource, freshness, entropy)).await?;
        let refusal = crate::plan::refusal(&seen.observed);
        let known = &self.memory.revisions;
        if refusal.is_none() && by == Specification::Wanted {
            return Ok(seen);
        }
        let kept = resource.0.as_ref().ok().and_then(|one| known.admitted(one));
        let same = |kept: &ValidatedCluster| seen.observed.cluster.as_ref() == Ok(kept);
        let Some(kept) = kept.filter(|kept| !same(kept)) else {
            return Ok(seen);
        };
        let mut seen =
            Box::pin(self.observe_by_spec(Ok(kept), resource, freshness, entropy)).await?;
        seen.observed.refused = refusal;
        Ok(seen)
    }

    /// The resource, if it can be carried out.
    fn judged(&mut self, resource: &Resourceful) -> Result<ValidatedCluster, InvalidCluster> {
        let problems = match &resource.0 {
            Ok(cluster) => match self.memory.judged.of(cluster, admit) {
                Ok(cluster) => return Ok(cluster),
                Err(invalid) => invalid.to_string(),
            },
            Err(unreadable) => unreadable.to_string(),
        };
        Err(InvalidCluster {
            name: self.key.1.clone(),
            problems,
        })
    }

    async fn observe_by_spec(
        &mut self,
        cluster: Result<ValidatedCluster, InvalidCluster>,
        resource: &Arc<Resourceful>,
        freshness: Freshness,
        entropy: &str,
    ) -> Result<Observation, Failure> {
        let began = self.shared.outside.clock.now();
        let name = self.key.1.clone();
        let uid = resource.uid().unwrap_or_default();
        let (status, status_age_ms) = self.status(freshness, resource);
        let recoveries = self.shared.recoveries(&self.key, freshness).await?;
        let settled = !recoveries.iter().any(recoveries::is_under_way);
        let known = settled && self.is_formed(&status, &uid);
        let life = Life {
            name: &name,
            uid: &uid,
            life: life_of(resource, &uid),
        };
        let found = self.find(freshness, life, known);
        let mut found = found.await?;
        if freshness == Freshness::Live && limits_pdb(cluster.as_ref().ok()) {
            // Whether a further vote is covered is not read from a cache.
            found.pdbs = live(self.api(), &self.of_name()).await?;
        }
        found.sets = life.sets(found.sets);
        found.pvcs = life.pvcs(found.pvcs);
        let Pods { own: pods, others } = life.pods(&found.pods, &found.sets);
        let valid = cluster.as_ref().ok();
        self.read_user_certificates(valid, &pods).await?;
        self.read_cert_manager(valid).await?;
        self.read_trust_bundle(valid, &status).await;
        self.read_pod_certificates(valid, &pods).await;
        let tls = self.tls(valid, &found, resource);
        let (addresses, secure) = self.reached(valid, &pods, &found.sets, life);
        let made = facts::made_of(&pods, &addresses);
        let described = self.describe((&name, &uid), &addresses, secure, made);
        let described = described.await;
        let descriptions = same_pods(&pods, &described);
        let routed = self.routed(freshness, &pods, &descriptions).await?;
        let successor = self.successor(&described);
        let (caches, cert_manager) = (&self.shared.caches, &self.memory.cert_manager);
        let services = related_objects::of_name(&caches.services, &self.key);
        let wanted_objects = {
            let settings = &self.shared.settings;
            let wanted = valid.map(|cluster| build::wanted_objects(cluster, settings));
            let wanted = wanted.unwrap_or_default();
            let wanted = wanted.into_iter();
            let wanted = wanted.filter(|(key, _)| cert_manager.is_possible(key));
            wanted.collect::<BTreeMap<_, _>>()
        };
        let identity = found.identity_secret.as_ref();
        let identity = identity.map(|secret| read_identity_secret(secret, &name, &uid));
        let formed = recoveries::is_formed(&status, identity.as_ref());
        let receives = identity.as_ref().is_some_and(|it| it.incarnation > 1)
            || valid.is_some_and(|cluster| cluster.spec.restore().is_some())
            || valid.is_some_and(|cluster| cluster.spec.follow().is_some());
        let follows = valid.is_some_and(|cluster| cluster.spec.follow().is_some())
            && identity.as_ref().is_none_or(|it| it.incarnation <= 1);
        let held = is_held(resource.meta());
        let deleting = resource.meta().deletion_timestamp.is_some();
        // Also where a finalizer has to be added or removed.
        let due = resource.0.as_ref().is_ok_and(is_due);
        let last_backup = (held && deleting || due && !deleting)
            .then(|| self.shared.backup_notes.last_backup_of(&self.key))
            .flatten();
        if let Some(feed) = self.shared.feed.get().filter(|_| !self.aside) {
            feed.described(&self.key, &descriptions);
        }
        let wanted_inputs = valid.map(build::wanted_inputs).unwrap_or_default();
        let observed = Observed {
            now_ms: self.shared.outside.clock.unix_ms(),
            entropy: entropy.to_owned(),
            epoch: self.shared.leadership.epoch(),
            deleting,
            source_waived: is_source_waived(resource.meta()),
            fenced: fenced_members(resource.meta().annotations.as_ref()),
            client_endpoint: valid.map(build::client_endpoint).unwrap_or_default(),
            held,
            last_backup,
            deletion_policy: self.shared.deletion_policy.get(),
            status_cluster_id: status.cluster_id.clone(),
            status_incarnation: status_memory::incarnation(&status),
            status_memory: status_memory::of_status(&status),
            identity_secret: identity,
            objects: {
                let both = (&*found.pdbs, &*services);
                let mut objects = related_objects::objects(caches, both, &self.key, &uid);
                // Any other object blocks nothing, whatever its labels.
                objects.retain(|key, facts| {
                    facts.owner == Owner::Ours || wanted_objects.contains_key(key)
                });
                objects.extend(cert_manager.objects(&name, &uid));
                self.unmark_edited(valid, both, &mut objects);
                objects
            },
            wanted_objects,
            pdb: {
                let mut pdbs = found.pdbs.iter();
                let ours = pdbs.find(|pdb| pdb.name_any() == pdb_name(&name));
                ours.map(|pdb| facts::pdb(pdb))
            },
            slot_endpoints: valid.map(build::slot_endpoints).unwrap_or_default(),
            service_families: {
                let name = client_service_name(&name);
                let mut ours = services.iter().filter(|one| one.name_any() == name);
                let ours =
                    ours.find(|one| facts::owner(&one.metadata, &self.key.1, &uid) == Owner::Ours);
                ours.map(|one| build::families_of(one)).unwrap_or_default()
            },
            wanted_slot_inputs: valid.map(build::wanted_slot_inputs).unwrap_or_default(),
            tls,
            slots: {
                let mut slots = related_objects::slots(&services, &self.key, &uid);
                self.unmark_edited_slots(valid, &services, &mut slots);
                slots
            },
            sets: found
                .sets
                .iter()
                .map(|set| {
                    let mut facts = facts::set(set, &name, &uid);
                    facts.edited = self.is_edited(valid, &**set, |cluster| {
                        drift::set_as_made(cluster, &self.shared.settings, set)
                    });
                    (set.name_any(), facts)
                })
                .collect(),
            pods: {
                let own = pods.iter();
                let own = own.map(|(member, pod)| {
                    let resize =
                        valid.and_then(|cluster| build::resize_of(cluster, &wanted_inputs, pod));
                    let facts = facts::pod(pod);
                    (member.clone(), PodFacts { resize, ..facts })
                });
                let others = others.iter();
                let others = others.map(|(member, pod)| (member.clone(), facts::stranger(pod)));
                others.chain(own).collect()
            },
            wanted_inputs,
            pvcs: related_objects::pvcs(caches, &found.pvcs, &found.nodes, &uid),
            class_node_bound: valid
                .and_then(|cluster| related_objects::class_node_bound(caches, cluster)),
            classes: related_objects::classes(caches),
            nodes: nodes(&found, valid),
            denied: related_objects::denied(caches, routed.is_none()),
            routed: routed.unwrap_or_default(),
            descriptions,
            restore: {
                (receives && !formed)
                    .then(|| self.shared.backup_notes.restore_of(&self.key))
                    .flatten()
            },
            follow: {
                (follows && formed)
                    .then(|| self.shared.backup_notes.follow_of(&self.key))
                    .flatten()
            },
            backups: self.shared.backup_notes.backups_of(&self.key),
            recoveries: recoveries.iter().map(recoveries::facts).collect(),
            earlier: Earlier::default(),
            refused: None,
            spec: valid.and_then(|cluster| self.memory.revisions.facts(cluster)),
            cluster: cluster.clone(),
        };
        let generation = resource.meta().generation.unwrap_or(0);
        let cluster = cluster.ok();
        let versions = found.versions(&services);
        self.seen = Some(View {
            began,
            resource: resource.clone(),
            cluster,
            digests: digests(&addresses, &described),
            addresses,
            versions,
            successor,
            recoveries,
        });
        Ok(Observation {
            observed,
            generation,
            status,
            status_age_ms,
        })
    }

    /// The status as stored; what this operator wrote last where the cache is still behind it.
    fn status(
        &mut self,
        freshness: Freshness,
        resource: &Resourceful,
    ) -> (EtcdClusterStatus, Option<u64>) {
        let written = self.memory.written.as_mut();
        let age_ms = written.as_ref();
        let age_ms = age_ms.map(|written| milliseconds(written.at.elapsed()));
        let mut own = None;
        if let Some(written) = written.filter(|_| freshness == Freshness::Cached) {
            let shown = resource.0.as_ref().ok().and_then(|it| it.status.as_ref());
            if written.over == resource.resource_version() {
                own.clone_from(&written.status);
            } else if written.status.is_some() && written.status.as_ref() == shown {
                written.status = None;
                self.remember();
            }
        }
        let stored = || resource.0.as_ref().ok()?.status.clone();
        (own.or_else(stored).unwrap_or_default(), age_ms)
    }

    /// Whether the cluster is known to be formed, as far as the caches show its identity.
    fn is_formed(&self, status: &EtcdClusterStatus, uid: &str) -> bool {
        let (namespace, name) = (&self.key.0, &self.key.1);
        let secrets = &self.shared.caches.secrets;
        let identity = secrets.get(namespace, &identity_secret_name(name));
        let identity = identity.map(|secret| read_identity_secret(secret.secret(), name, uid));
        recoveries::is_formed(status, identity.as_ref())
    }

    /// PVCs and the identity Secret are read live until the cluster is known to be formed, and while it is recovered:
    /// the bootstrap decision depends on them. From then on they are cached like everything else, and read live before
    /// an action, so that an idle cluster makes no API requests.
    async fn find(
        &self,
        freshness: Freshness,
        life: Life<'_>,
        formed: bool,
    ) -> Result<Found, Failure> {
        let (namespace, name) = (&self.key.0, &self.key.1);
        let of_name = self.of_name();
        let caches = &self.shared.caches;
        let pdbs = related_objects::of_name(&caches.pdbs, &self.key);
        if freshness == Freshness::Live {
            let sets = live(self.api(), &of_name).await?;
            return Ok(Found {
                pvcs: self.live_pvcs(life, &sets).await?,
                identity_secret: self.live_identity_secret().await?,
                sets,
                pods: live(self.api(), &of_name).await?,
                nodes: self.live_nodes().await?,
                secrets: self.live_secrets(&of_name).await?,
                pdbs,
            });
        }
        // This life's objects, and whatever else carries the cluster's name.
        let ours = [
            (LABEL_CLUSTER, name.as_str()),
            (LABEL_CLUSTER_UID, life.life),
        ];
        let (pvcs, identity_secret) = if formed {
            let identity_secret = caches.secrets.get(namespace, &identity_secret_name(name));
            let pvcs = caches.pvcs.of_any(namespace, &ours);
            (
                pvcs,
                identity_secret.map(|identity_secret| identity_secret.secret().clone()),
            )
        } else {
            (
                live(self.api(), &of_name).await?,
                self.live_identity_secret().await?,
            )
        };
        Ok(Found {
            sets: caches.sets.of_any(namespace, &ours),
            pods: caches.pods.of_any(namespace, &ours),
            pvcs,
            identity_secret,
            nodes: caches.nodes.select(|_| true),
            secrets: caches.secrets.of_any(namespace, &ours),
            pdbs,
        })
    }

    /// What carries the cluster's name.
    pub(super) fn of_name(&self) -> ListParams {
        ListParams::default().labels(&format!("{LABEL_CLUSTER}={}", self.key.1))
    }

    /// The current PVCs. One that a member's StatefulSet mounts is also looked up by its name: removed labels must not
    /// count as the loss of a disk.
    async fn live_pvcs(
        &self,
        life: Life<'_>,
        sets: &[Arc<StatefulSet>],
    ) -> Result<Vec<Arc<PersistentVolumeClaim>>, Failure> {
        let api: Api<PersistentVolumeClaim> = self.api();
        let mut pvcs = live(api.clone(), &self.of_name()).await?;
        for set in sets {
            let member = set.name_any();
            let name = pvc_name(&member, life.life);
            if !life.owns(&set.metadata) || pvcs.iter().any(|pvc| pvc.name_any() == name) {
                continue;
            }
            let found = api.get_opt(&name).await;
            let found = found.map_err(|error| failure("read", &name, &error))?;
            pvcs.extend(found.map(|mut pvc| {
                let labels = pvc.labels_mut();
                labels.insert(LABEL_CLUSTER_UID.to_owned(), life.life.to_owned());
                labels.insert(LABEL_MEMBER.to_owned(), member);
                Arc::new(pvc)
            }));
        }
        Ok(pvcs)
    }

    /// The current Secrets, as a cache keeps them.
    async fn live_secrets(&self, of_name: &ListParams) -> Result<Vec<Arc<KeptSecret>>, Failure> {
        let found = live::<Secret>(self.api(), of_name).await?;
        let kept = |secret: Arc<Secret>| {
            let name = secret.name_any();
            let before = || self.shared.caches.secrets.get(&self.key.0, &name);
            Arc::new(KeptSecret::of(Arc::unwrap_or_clone(secret), before))
        };
        Ok(found.into_iter().map(kept).collect())
    }

    async fn live_identity_secret(&self) -> Result<Option<Secret>, Failure> {
        let name = identity_secret_name(&self.key.1);
        let identity_secret = self.api::<Secret>().get_opt(&name).await;
        identity_secret.map_err(|error| failure("read", &name, &error))
    }

    /// Reads the user's Secrets, if there are any and it is time.
    async fn read_user_certificates(
        &mut self,
        cluster: Option<&ValidatedCluster>,
        pods: &BTreeMap<String, Arc<Pod>>,
    ) -> Result<(), Failure> {
        let names = cluster.map(|cluster| user_certificates::names(cluster, pods));
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return Ok(());
        };
        let (api, clock) = (self.api(), &self.shared.outside.clock);
        let known = &mut self.memory.user_certificates;
        known.read(&api, names, clock).await?;
        self.remember();
        Ok(())
    }

    /// Reads what was requested from cert-manager, if anything and it is time.
    async fn read_cert_manager(
        &mut self,
        cluster: Option<&ValidatedCluster>,
    ) -> Result<(), Failure> {
        let Some(cluster) = cluster.filter(|one| !build::cert_manager_names(one).is_empty()) else {
            self.memory.cert_manager = cert_manager::Known::default();
            return Ok(());
        };
        let (api, clock) = (self.api(), &self.shared.outside.clock);
        self.memory.cert_manager.read(&api, cluster, clock).await?;
        self.remember();
        Ok(())
    }

    /// Reads the ClusterTrustBundle, if there is to be one or there may be, and it is time.
    async fn read_trust_bundle(
        &mut self,
        cluster: Option<&ValidatedCluster>,
        status: &EtcdClusterStatus,
    ) {
        let Some(cluster) = cluster else {
            return;
        };
        let (bundles, clock) = (
            Bundles::new(&self.shared.client),
            &self.shared.outside.clock,
        );
        let known = &mut self.memory.trust_bundle;
        known.read(&bundles, cluster, status, clock).await;
        self.remember();
    }

    /// Reads what kubelets request, if the cluster needs it, and it is time.
    async fn read_pod_certificates(
        &mut self,
        cluster: Option<&ValidatedCluster>,
        pods: &BTreeMap<String, Arc<Pod>>,
    ) {
        let Some(cluster) = cluster else {
            return;
        };
        let (client, clock) = (&self.shared.client, &self.shared.outside.clock);
        let known = &mut self.memory.pod_certificates;
        known.read(client, cluster, pods, clock).await;
        self.remember();
    }

    /// What the cluster's Secrets hold of certificates.
    fn tls(
        &mut self,
        cluster: Option<&ValidatedCluster>,
        found: &Found,
        resource: &Resourceful,
    ) -> TlsFacts {
        let uid = resource.uid().unwrap_or_default();
        let Some(cluster) = cluster.filter(|cluster| cluster.spec.tls.is_some()) else {
            return TlsFacts::default();
        };
        let secrets = found.secrets.iter().map(|secret| &**secret);
        let secrets = certificates::read(secrets, (&self.key.1, &uid));
        let mut user_certificates = self.memory.user_certificates.certificates(cluster);
        self.memory
            .cert_manager
            .explain(cluster, &mut user_certificates);
        self.remember();
        let rotate = TlsPort::ALL.into_iter();
        let rotate = rotate.filter_map(|port| Some((port, rotation(resource, port)?)));
        TlsFacts {
            wanted: build::wanted_certificates(cluster),
            rotate: rotate.collect(),
            secrets,
            pod_keys: build::ports_with_pod_keys(cluster),
            requests: self.memory.pod_certificates.facts(),
            requests_refused: self.memory.pod_certificates.is_refused(),
            user_certificates,
            signers: self.memory.user_certificates.signers(),
            bundle: self.memory.trust_bundle.facts(),
        }
    }

    /// The CA rotation requested by the resource's annotation, as last observed.
    pub(super) fn rotation(&self, port: TlsPort) -> Option<String> {
        rotation(&self.seen.as_ref()?.resource, port)
    }

    /// Where members can be dialled, and what those with TLS have to prove, by address. One that has to use TLS and
    /// whose CA is not known yet is not dialled.
    fn reached(
        &self,
        cluster: Option<&ValidatedCluster>,
        pods: &BTreeMap<String, Arc<Pod>>,
        sets: &[Arc<StatefulSet>],
        life: Life<'_>,
    ) -> (BTreeMap<String, String>, BTreeMap<String, Secure>) {
        let roots = |name: &str| {
            let found = self.shared.caches.secrets.get(&self.key.0, name)?;
            let ours = life.owns(found.meta());
            found.held().roots.clone().filter(|_| ours)
        };
        let user_roots = |name: &str| self.memory.user_certificates.roots(name);
        let (mut reached, mut secure) = (BTreeMap::new(), BTreeMap::new());
        for (member, address) in addresses(pods) {
            let set = sets.iter().find(|set| set.name_any() == member);
            let (Some(pod), Some(set)) = (pods.get(&member), set) else {
                continue;
            };
            match certificates::way(cluster, &member, (pod, set), roots, user_roots) {
                Way::Plain => {}
                Way::Secure(proof) => drop(secure.insert(address.clone(), proof)),
                Way::None => continue,
            }
            reached.insert(member, address);
        }
        (reached, secure)
    }

    /// The Nodes as they are now; none where the operator may not see them.
    async fn live_nodes(&self) -> Result<Vec<Arc<Node>>, Failure> {
        if self.shared.caches.nodes.is_denied() {
            return Ok(Vec::new());
        }
        live(Api::all(self.shared.client.clone()), &ListParams::default()).await
    }

    /// The members' descriptions; none before the cluster's key exists.
    async fn describe(
        &mut self,
        (name, uid): (&str, &str),
        addresses: &BTreeMap<String, String>,
        secure: BTreeMap<String, Secure>,
        made_of: BTreeMap<String, MadeOf>,
    ) -> BTreeMap<String, Described> {
        let secret = self
            .shared
            .caches
            .secrets
            .get(&self.key.0, &operator_secret_name(name));
        let key = secret
            .filter(|secret| facts::owner(secret.meta(), name, uid) == Owner::Ours)
            .and_then(|secret| build::operator_key(secret.secret()));
        let Some(key) = key else {
            return BTreeMap::new();
        };
        let members = match &self.memory.members {
            Some((known, members)) if *known == key => members.clone(),
            _ => {
                let Environment { clock, dial, .. } = self.shared.outside.clone();
                let members = Members::new(MemberKey::new(&key), dial, clock);
                self.memory.members = Some((key, members.clone()));
                self.remember();
                members
            }
        };
        members.secure(secure);
        members.made_of(made_of);
        let (described, silent) = members
            .describe(addresses, self.shared.leadership.epoch())
            .await;
        for (member, why) in silent {
            tracing::debug!(cluster = %self.key.1, %member, %why, "no description");
        }
        described
    }

    /// The epoch of a newer operator that this cluster's members report, with another Lease or before this one has
    /// noticed. One that no Lease can have reached is ignored.
    fn successor(&self, described: &BTreeMap<String, Described>) -> Option<u64> {
        let epochs = described.values().map(|one| one.description.epoch);
        let most = lease::latest_epoch(self.shared.outside.clock.unix_ms());
        let epochs = epochs.filter(|epoch| *epoch <= most).max();
        epochs.filter(|epoch| *epoch > self.shared.leadership.epoch())
    }
}

/// A list past every cache.
pub(super) async fn live<K>(api: Api<K>, parameters: &ListParams) -> Result<Vec<Arc<K>>, Failure>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = api.list(parameters).await;
    let kind = K::plural(&()).into_owned();
    let list = list.map_err(|error| failure("list", &kind, &error))?;
    Ok(list.items.into_iter().map(Arc::new).collect())
}

fn rotation(resource: &Resourceful, port: TlsPort) -> Option<String> {
    facts::annotation(resource.meta(), port.rotation())
}

/// The UID that the labels of a resource's objects carry; of one that cannot be read, its own.
fn life_of<'a>(resource: &'a Resourceful, uid: &'a str) -> &'a str {
    resource.0.as_ref().map_or(uid, EtcdCluster::life)
}

/// Whether the plan decides what the PDB limits evictions by.
pub(super) fn limits_pdb(cluster: Option<&ValidatedCluster>) -> bool {
    cluster.is_some_and(|cluster| cluster.spec.disruption.policy != DisruptionPolicy::Gate)
}

/// A Secret with the identity Secret's name that cannot be read counts as an identity Secret of another cluster: never
/// as a free name.
pub(super) fn read_identity_secret(secret: &Secret, name: &str, uid: &str) -> IdentitySecret {
    let owner = facts::owner(&secret.metadata, name, uid);
    build::read_identity_secret(secret, owner.clone()).unwrap_or_else(|| IdentitySecret {
        owner,
        terminating: secret.metadata.deletion_timestamp.is_some(),
        cluster_uid: String::new(),
        incarnation: 0,
        seed: String::new(),
        nonce: String::new(),
    })
}

fn nodes(found: &Found, cluster: Option<&ValidatedCluster>) -> BTreeMap<String, NodeFacts> {
    found
        .nodes
        .iter()
        .map(|node| (node.name_any(), super::nodes::node(node, cluster)))
        .collect()
}

/// Where the members can be dialled: their pods' addresses.
fn addresses(pods: &BTreeMap<String, Arc<Pod>>) -> BTreeMap<String, String> {
    let address = |pod: &Pod| {
        let status = pod.status.as_ref()?;
        let ip = status.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
        let running = status.phase.as_deref() == Some("Running");
        // IPv6 addresses need brackets.
        let host = if ip.contains(':') {
            format!("[{ip}]")
        } else {
            ip.to_owned()
        };
        running.then(|| format!("{host}:{}", build::PEER_PORT))
    };
    pods.iter()
        .filter_map(|(member, pod)| Some((member.clone(), address(pod)?)))
        .collect()
}

/// The digests of the descriptions, by address.
fn digests(
    addresses: &BTreeMap<String, String>,
    described: &BTreeMap<String, Described>,
) -> BTreeMap<String, u64> {
    let digest = |(member, answer): (&String, &Described)| {
        Some((addresses.get(member)?.clone(), answer.description.digest))
    };
    described.iter().filter_map(digest).collect()
}

/// Descriptions by the very pods that were seen: an address may have passed to another pod.
fn same_pods(
    pods: &BTreeMap<String, Arc<Pod>>,
    described: &BTreeMap<String, Described>,
) -> BTreeMap<String, Description> {
    let same = |member: &String, answer: &Described| {
        let uid = pods.get(member).and_then(|pod| pod.metadata.uid.as_deref());
        uid == Some(answer.description.pod_uid.as_str())
    };
    described
        .iter()
        .filter(|(member, answer)| same(member, answer))
        .map(|(member, answer)| {
            let age_ms = milliseconds(answer.at.elapsed());
            (member.clone(), describe::description(answer, age_ms))
        })
        .collect()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
