//! What is really so, past every cache and every description: the facts that oracles judge by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::crd::{
    ANNOTATION_FENCED, FINALIZER_BACKUP, FINALIZER_SOURCE, LABEL_CLUSTER_UID, LABEL_MEMBER,
    LABEL_RELEASED, pod_name, pvc_name,
};
use crate::opsim::api::{ApiServer, Kind, object};
use crate::opsim::kube::slices;
use crate::opsim::servers::{Group, Servers};

use super::backup_truth::BackupTruth;
use super::pdbs::{self, Pdbs};

/// One moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroundTruth {
    pub(crate) now_ms: u64,
    /// By UID of the resource; also of resources that are gone and whose servers were seen.
    pub(crate) clusters: BTreeMap<String, ClusterTruth>,
    /// Operators that act now.
    pub(crate) operators: usize,
    pub(crate) backups: Arc<BackupTruth>,
}

/// One resource and its servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterTruth {
    pub(crate) name: String,
    /// The resource is there and not on its way out, or waits for its last backup.
    pub(crate) exists: bool,
    pub(crate) generation: i64,
    pub(crate) target: usize,
    pub(crate) replace: BTreeSet<String>,
    /// Whose node goes away is removed before another one comes: `nodeReplacement: RemoveFirst`.
    pub(crate) remove_first: bool,
    pub(crate) unhealthy_ms: u64,
    pub(crate) status: Arc<Value>,
    /// The newest incarnation that was formed; 0: none.
    pub(crate) incarnation: u64,
    /// Members of earlier incarnations whose servers run.
    pub(crate) former_running: BTreeSet<String>,
    /// Members of earlier incarnations whose PVC is there and not on its way out.
    pub(crate) former_volumes: BTreeSet<String>,
    /// UIDs of the resources that control its StatefulSets.
    pub(crate) controllers: BTreeSet<String>,
    /// Members that an annotation of the resource names to be stopped.
    pub(crate) fenced: BTreeSet<String>,
    /// Members whose StatefulSet asks for no pod.
    pub(crate) asleep: BTreeSet<String>,
    /// The incarnations that EtcdRecoveries, neither refused nor carried out, ask to go on from, and whose data are kept.
    pub(crate) recoveries: BTreeMap<u64, Option<String>>,
    /// Cluster IDs that were founded for it.
    pub(crate) founded: usize,
    /// It is to start with a snapshot.
    pub(crate) restores: bool,
    /// It is to follow another one.
    pub(crate) follows: bool,
    /// How many of those that were founded started with one.
    pub(crate) founded_from: usize,
    /// How many of those were founded to follow another one.
    pub(crate) founded_following: usize,
    /// The alarms that are on, as servers word them.
    pub(crate) alarms: Vec<String>,
    pub(crate) configuration_index: u64,
    pub(crate) quorate: bool,
    /// The member that leads.
    pub(crate) leader: Option<u64>,
    pub(crate) acknowledged: u64,
    pub(crate) voters: BTreeMap<u64, Member>,
    pub(crate) learners: BTreeMap<u64, Member>,
    /// What its PDBs are over.
    pub(crate) pdbs: Pdbs,
    /// Names of members that were removed.
    pub(crate) removed: BTreeSet<String>,
    /// Members, former ones included, whose PVC is there and not on its way out.
    pub(crate) volumes: BTreeSet<String>,
}

/// One member of the committed configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its server speaks, and its leader, if there is one, hears it.
    pub(crate) reached: bool,
    /// Its pod is on its way out.
    pub(crate) leaving: bool,
    /// Entries that its disk holds; `None`: there is no such disk.
    pub(crate) held: Option<u64>,
    /// The same of a disk that a fault took away.
    pub(crate) taken: Option<u64>,
    /// Its PVC is there and not on its way out.
    pub(crate) claimed: bool,
    /// The node of its pod is cordoned, on its way out or gone.
    pub(crate) node_goes: bool,
    /// A Service sends clients to its pod.
    pub(crate) routed: bool,
    /// Drains may take its pod.
    pub(crate) released: bool,
    /// When it was asked to send its clients away.
    pub(crate) retired_ms: Option<u64>,
    /// Stands for a hash of its data; `None`: there is no such disk.
    pub(crate) data: Option<u32>,
    /// Its quota is used up.
    pub(crate) full: bool,
}

impl GroundTruth {
    /// What is so now.
    pub(crate) fn of(
        api: &ApiServer,
        servers: &Servers,
        operators: usize,
        read: &mut Read,
    ) -> Self {
        read.refresh(api);
        let mut clusters = read.clusters.clone();
        let pods = &read.pods;
        let mut groups: Vec<_> = servers.groups.values().collect();
        groups.sort_by_key(|group| group.membership.incarnation);
        for group in groups {
            let uid = group.membership.cluster_uid.clone();
            let cluster = clusters.entry(uid.clone()).or_default();
            cluster.incarnation = group.membership.incarnation;
            let newest = servers.group_of(&uid).is_some_and(|it| it.id == group.id);
            if !newest {
                former(cluster, servers, group);
                continue;
            }
            let reached = servers.reached_voters(group);
            let member = |id: u64, name: &str, learner: bool| {
                let lives = servers.lives(group.id, id);
                let heard = learner || group.leader.is_none() || reached.contains(&id);
                let lost = servers.lost.values();
                let taken = lost
                    .filter(|disk| disk.cluster_id == group.id && disk.member_id == id)
                    .map(|disk| disk.matched)
                    .max();
                Member {
                    name: name.to_owned(),
                    reached: lives && heard,
                    leaving: pods.leaving.contains(&(uid.clone(), name.to_owned())),
                    held: servers.held(group.id, id),
                    taken,
                    claimed: pods.pvcs.contains(&pvc_name(name, &uid)),
                    node_goes: pods.node_goes.contains(&(uid.clone(), name.to_owned())),
                    routed: pods.routed.contains(&(uid.clone(), name.to_owned())),
                    released: pods.released.contains(&(uid.clone(), name.to_owned())),
                    retired_ms: servers.retired_ms(group.id, id),
                    data: servers.data_of(group.id, id),
                    full: servers.full.contains(name),
                }
            };
            let founded = servers.founded.get(&uid);
            cluster.founded = founded.map_or(0, Vec::len);
            let from = founded.into_iter().flatten();
            let from = from.filter(|id| servers.founded_from.contains_key(id));
            cluster.founded_from = from.count();
            let following = founded.into_iter().flatten();
            let following = following.filter(|id| servers.founded_following.contains(id));
            cluster.founded_following = following.count();
            cluster.alarms.clone_from(&servers.alarms);
            cluster.configuration_index = group.membership.configuration_index;
            cluster.acknowledged = group.acknowledged;
            cluster.leader = group.leader;
            cluster.quorate = group.is_quorate(servers.now_ms);
            cluster.voters = group
                .membership
                .voters()
                .map(|m| (m.id, member(m.id, &m.name, false)))
                .collect();
            let removed = group.membership.tombstones.iter();
            cluster.removed = removed.map(|gone| gone.name.clone()).collect();
            cluster.learners = group
                .membership
                .learners()
                .map(|m| (m.id, member(m.id, &m.name, true)))
                .collect();
        }
        Self {
            now_ms: servers.now_ms,
            clusters,
            operators,
            backups: Arc::default(),
        }
    }
}

/// What is left of an earlier incarnation.
fn former(cluster: &mut ClusterTruth, servers: &Servers, group: &Group) {
    for member in group.membership.members.values() {
        if servers.lives(group.id, member.id) {
            cluster.former_running.insert(member.name.clone());
        }
        if cluster.volumes.contains(&member.name) {
            cluster.former_volumes.insert(member.name.clone());
        }
    }
}

impl ClusterTruth {
    /// Whether the data of this voter is another than that of most voters.
    pub(crate) fn differs(&self, id: u64) -> bool {
        let data = |id: &u64| self.voters.get(id).and_then(|member| member.data);
        let own = data(&id);
        let most = self.voters.keys().filter(|other| {
            let same = self
                .voters
                .keys()
                .filter(|third| data(third) == data(other));
            data(other).is_some() && same.count() >= self.quorum()
        });
        own.is_some() && most.clone().count() > 0 && !most.into_iter().any(|other| *other == id)
    }

    pub(crate) fn quorum(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Voters that serve and are not on their way out.
    pub(crate) fn serving(&self) -> usize {
        let serving = |member: &&Member| member.reached && !member.leaving;
        self.voters.values().filter(serving).count()
    }
}

/// Whether it waits for its last backup, or for a followed cluster: until then it is as any other.
fn is_held(resource: &Value) -> bool {
    object::finalizers(resource).any(|it| it == FINALIZER_BACKUP || it == FINALIZER_SOURCE)
}

fn of_resource(resource: &Value) -> ClusterTruth {
    let number = |path: &[&str]| object::number(resource, path);
    let replace = object::items(resource, &["spec", "replaceMembers"]);
    let seconds = number(&["spec", "healing", "unhealthySeconds"]).unwrap_or(600);
    ClusterTruth {
        name: object::name(resource).to_owned(),
        exists: !object::is_deleting(resource) || is_held(resource),
        generation: number(&["metadata", "generation"]).unwrap_or(0),
        target: usize::try_from(number(&["spec", "replicas"]).unwrap_or(3)).unwrap_or(0),
        replace: replace
            .iter()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect(),
        fenced: object::text(resource, &["metadata", "annotations", ANNOTATION_FENCED])
            .split(',')
            .map(str::to_owned)
            .collect(),
        remove_first: object::text(resource, &["spec", "disruption", "nodeReplacement"])
            == "RemoveFirst",
        restores: object::at(resource, &["spec", "bootstrap", "restore"]).is_some(),
        follows: [
            &["spec", "bootstrap", "follow"] as &[&str],
            &["spec", "replicaOf"],
        ]
        .iter()
        .any(|path| object::at(resource, path).is_some()),
        unhealthy_ms: u64::try_from(seconds).unwrap_or(0) * 1000,
        status: Arc::new(resource.get("status").cloned().unwrap_or_default()),
        ..ClusterTruth::default()
    }
}

/// What was read of the API server's objects, for as long as they stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Read {
    revision: u64,
    clusters: BTreeMap<String, ClusterTruth>,
    pods: Pods,
}

impl Read {
    fn refresh(&mut self, api: &ApiServer) {
        if self.revision == api.revision() {
            return;
        }
        self.revision = api.revision();
        let resources = api.all(Kind::EtcdCluster);
        let read = resources.map(|one| (object::life(one).to_owned(), of_resource(one)));
        self.clusters = read.collect();
        for recovery in api.all(Kind::EtcdRecovery) {
            let uid = object::text(recovery, &["spec", "clusterUID"]);
            let lost = object::number(recovery, &["spec", "incarnation"]).unwrap_or(1);
            let survivor = object::at(recovery, &["spec", "survivor", "member"]);
            let survivor = survivor.and_then(Value::as_str).map(str::to_owned);
            let phase = object::text(recovery, &["status", "phase"]);
            if matches!(phase, "Refused" | "Recovered") {
                continue;
            }
            if let (Some(cluster), Ok(lost)) = (self.clusters.get_mut(uid), u64::try_from(lost)) {
                cluster.recoveries.insert(lost, survivor);
            }
        }
        for set in api.all(Kind::StatefulSet) {
            let uid = object::label(set, LABEL_CLUSTER_UID).unwrap_or_default();
            let member = object::label(set, LABEL_MEMBER).unwrap_or_default();
            let asleep = object::number(set, &["spec", "replicas"]) == Some(0);
            if let Some(cluster) = self.clusters.get_mut(uid) {
                let owners = object::owners(set).iter();
                let owners = owners.filter(|owner| owner["kind"] == "EtcdCluster");
                let owners = owners.filter_map(|owner| owner["uid"].as_str());
                cluster.controllers.extend(owners.map(str::to_owned));
            }
            if let Some(cluster) = self.clusters.get_mut(uid).filter(|_| asleep) {
                cluster.asleep.insert(member.to_owned());
            }
        }
        for (uid, member) in volumes(api) {
            if let Some(cluster) = self.clusters.get_mut(&uid) {
                cluster.volumes.insert(member);
            }
        }
        self.pods = Pods::of(api);
        pdbs::read(api, &mut self.clusters);
    }
}

/// The PVCs that are there and not on their way out: UID of the resource and member.
fn volumes(api: &ApiServer) -> BTreeSet<(String, String)> {
    let pvcs = api.all(Kind::PersistentVolumeClaim);
    let there = pvcs.filter(|pvc| !object::is_deleting(pvc));
    let of = |pvc: &Arc<Value>| {
        let uid = object::label(pvc, LABEL_CLUSTER_UID)?.to_owned();
        Some((uid, object::label(pvc, LABEL_MEMBER)?.to_owned()))
    };
    there.filter_map(of).collect()
}

/// Whether a node goes away, as far as the stories let one go.
fn goes(api: &ApiServer, node: &str) -> bool {
    let found = api.get(Kind::Node, "", node);
    found.is_none_or(|node| {
        let cordoned = object::at(&node, &["spec", "unschedulable"]);
        object::is_deleting(&node) || cordoned == Some(&Value::Bool(true))
    })
}

/// UIDs of the pods that Services for clients lead to, as it is written down.
fn led_to(api: &ApiServer) -> BTreeSet<String> {
    let slices = api.all(Kind::EndpointSlice).filter(|slice| {
        let service = object::label(slice, slices::SERVICE);
        service.is_some_and(|name| !name.ends_with("-peers"))
    });
    let endpoints = slices.flat_map(|slice| object::items(slice, &["endpoints"]));
    let ready = endpoints.filter(|one| one["conditions"]["ready"] == Value::Bool(true));
    ready
        .map(|one| object::text(one, &["targetRef", "uid"]).to_owned())
        .collect()
}

#[derive(Debug, Default)]
struct Pods {
    /// Members whose pod is on its way out, by UID of the resource and name.
    leaving: BTreeSet<(String, String)>,
    /// Members whose pod's node goes away, in the same way.
    node_goes: BTreeSet<(String, String)>,
    /// Members whose pod some Service for clients leads to, in the same way.
    routed: BTreeSet<(String, String)>,
    /// Members whose pod drains may take, in the same way.
    released: BTreeSet<(String, String)>,
    /// PVCs that are there and not on their way out.
    pvcs: BTreeSet<String>,
}

impl Pods {
    fn of(api: &ApiServer) -> Self {
        let leaving = api.all(Kind::Pod).filter_map(|pod| {
            let uid = object::label(pod, LABEL_CLUSTER_UID)?;
            let member = object::label(pod, LABEL_MEMBER)?;
            let goes = object::is_deleting(pod) && object::name(pod) == pod_name(member);
            goes.then(|| (uid.to_owned(), member.to_owned()))
        });
        let node_goes = api.all(Kind::Pod).filter_map(|pod| {
            let uid = object::label(pod, LABEL_CLUSTER_UID)?;
            let member = object::label(pod, LABEL_MEMBER)?;
            let node = object::text(pod, &["spec", "nodeName"]);
            let goes = !node.is_empty() && goes(api, node);
            goes.then(|| (uid.to_owned(), member.to_owned()))
        });
        let led_to = led_to(api);
        let of_members = |chosen: &dyn Fn(&Value) -> bool| {
            let of = |pod: &Arc<Value>| {
                let uid = object::label(pod, LABEL_CLUSTER_UID)?.to_owned();
                let member = object::label(pod, LABEL_MEMBER)?.to_owned();
                let own = object::name(pod) == pod_name(&member);
                (own && chosen(pod)).then_some((uid, member))
            };
            api.all(Kind::Pod).filter_map(of).collect()
        };
        let pvcs = api.all(Kind::PersistentVolumeClaim);
        Self {
            routed: of_members(&|pod| led_to.contains(object::uid(pod))),
            released: of_members(&|pod| object::label(pod, LABEL_RELEASED).is_some()),
            leaving: leaving.collect(),
            node_goes: node_goes.collect(),
            pvcs: pvcs
                .filter(|pvc| !object::is_deleting(pvc))
                .map(|pvc| object::name(pvc).to_owned())
                .collect(),
        }
    }
}
