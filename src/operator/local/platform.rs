//! Executes a plan's actions on this machine, and observes the machine for a plan.

use crate::plan::ObjectAction;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::console::Console;
use super::home::{self, Home, IdentityRecord, Ports, PvcState, SetRecord};
use super::pods::{PodView, Pods};
use super::shown::Shown;
use crate::build::spec_hash;
use crate::crd::{
    EtcdCluster, EtcdClusterStatus, Invalid, ValidatedCluster, bytes_of, fenced_members, validate,
};
use crate::operator::clock::Clock;
use crate::operator::describe;
use crate::operator::members::{Described, Members, network};
use crate::operator::platform::{
    Act, Failure, Freshness, Observation, Platform, Report, Severity, Specification,
};
use crate::plan::status_memory;
use crate::plan::{
    self, Action, AskedStorage, DeletionPolicy, IdentitySecret, InvalidCluster, Observed, Owner,
    PodFacts, PodPhase, PvcFacts, SetFacts, SpecFacts, StorageFacts,
};
use crate::server::operator_api::auth::Key;

/// Every resource of this machine is in this namespace.
const NAMESPACE: &str = "local";
/// A starting server that has not answered is not reported as running for longer than it is.
const LAG_LINE: Duration = Duration::from_secs(1);

/// One cluster on this machine.
#[derive(Debug)]
pub struct Local {
    /// The directory.
    pub home: Home,
    /// The processes.
    pub pods: Pods,
    /// Where lines go.
    pub console: Console,
    cluster: EtcdCluster,
    /// The resource as last observed: by the specification of the file, or where that is
    /// refused by the one that was last admitted.
    effective: EtcdCluster,
    members: Members,
    status: EtcdClusterStatus,
    status_written: Option<Instant>,
    lag_printed: Option<Instant>,
    seen: Option<Observation>,
    /// The last report had nothing left to do.
    pub at_rest: bool,
    /// What the console shows, if there is one.
    pub shown: Option<Arc<Shown>>,
}

impl Local {
    /// A cluster in this directory, run by this executable. `changed` wakes the loop.
    pub fn new(
        mut home: Home,
        program: PathBuf,
        cluster: EtcdCluster,
        changed: Arc<Notify>,
    ) -> Result<Self, home::Error> {
        let (_, key) = home.secret()?;
        let status = serde_json::from_value(home.state().status.clone()).unwrap_or_default();
        let cluster = adopt(&mut home, cluster)?;
        Ok(Self {
            home,
            pods: Pods::new(program, Some("--pod-uid=".into()), changed),
            console: Console::new(),
            effective: cluster.clone(),
            cluster,
            members: Members::new(Key::new(&key), network(), Clock::machine()),
            status,
            status_written: None,
            lag_printed: None,
            seen: None,
            at_rest: false,
            shown: None,
        })
    }

    /// Takes an edited resource. A changed specification is a new generation.
    pub fn edit(&mut self, cluster: EtcdCluster) -> Result<bool, home::Error> {
        let before = self.home.state().generation;
        self.cluster = adopt(&mut self.home, cluster)?;
        Ok(self.home.state().generation != before)
    }

    /// The resource's name.
    pub fn name(&self) -> Option<String> {
        self.cluster.metadata.name.clone()
    }

    /// The status as last reported.
    pub fn status(&self) -> &EtcdClusterStatus {
        &self.status
    }

    /// Client URLs of the members that vote, the leader first.
    pub fn endpoints(&self) -> Vec<String> {
        let voters = self.status.members.iter();
        let mut voters: Vec<_> = voters
            .filter(|member| member.role == crate::crd::MemberRole::Voter)
            .collect();
        voters.sort_by_key(|member| !member.leader);
        let ports = |name: &str| self.home.state().ports.get(name).copied();
        voters
            .iter()
            .filter_map(|member| ports(&member.name))
            .map(Ports::client_url)
            .collect()
    }

    /// Client URLs of the members that report that they serve, the leader first.
    pub fn serving(&self) -> Vec<String> {
        let Some(seen) = &self.seen else {
            return vec![];
        };
        let ready = seen
            .observed
            .descriptions
            .iter()
            .filter(|(_, description)| description.ready);
        let mut ready: Vec<_> = ready.collect();
        ready.sort_by_key(|(_, description)| !description.leads);
        let ports = |name: &String| self.home.state().ports.get(name).copied();
        ready
            .into_iter()
            .filter_map(|(name, _)| ports(name))
            .map(Ports::client_url)
            .collect()
    }

    /// The last changes of the membership as the cluster itself has recorded them: kind and name.
    pub async fn history(&self) -> Vec<(String, String)> {
        let state = self.home.state();
        let leader = self
            .status
            .leader
            .as_ref()
            .and_then(|leader| state.ports.get(leader));
        let addresses = leader.map(|ports| ("leader".to_owned(), ports.peer_address()));
        let (described, _) = self
            .members
            .describe(&addresses.into_iter().collect(), state.epoch)
            .await;
        let changes = described
            .into_values()
            .flat_map(|answer| answer.description.changes);
        changes.map(|change| (change.kind, change.name)).collect()
    }

    /// Stops every process gracefully, the leader last.
    pub async fn stop(&mut self) {
        let leader = self.status.leader.clone();
        self.pods.stop_all(leader.as_deref()).await;
    }

    /// Shows the cluster as it is now, if there is a console.
    pub fn show(&self) {
        if let Some(shown) = &self.shown {
            let seen = self.seen.as_ref();
            let descriptions = seen.map(|seen| &seen.observed.descriptions);
            shown.show(&self.cluster, &self.status, descriptions);
        }
    }

    /// Keeps processes and directories as recorded. Cheap; to be called before each reconcile.
    pub fn housekeep(&mut self) -> Result<(), home::Error> {
        for line in self.pods.reconcile(&self.home, now_ms())? {
            self.console.print(&line);
        }
        let pods = &self.pods;
        self.home.collect(|pvc| pods.uses(pvc))
    }

    /// What is so, by the specification of the file; where that cannot be carried out, or not be recorded, by the one
    /// that was last admitted.
    async fn observe_admitted(
        &mut self,
        entropy: &str,
        by: Specification,
    ) -> Result<Observation, Failure> {
        self.effective = self.cluster.clone();
        let admitted = crate::operator::admission::admit(&self.cluster);
        let seen = Box::pin(self.observe_by(admitted, entropy)).await?;
        let refusal = plan::refusal(&seen.observed);
        if refusal.is_none() && by == Specification::Wanted {
            return Ok(seen);
        }
        let mut kept = self.cluster.clone();
        let Ok(spec) = serde_json::from_value(self.home.state().admitted.clone()) else {
            return Ok(seen);
        };
        kept.spec = spec;
        kept.spec.paused = self.cluster.spec.paused;
        let Ok(valid) = validate(&kept) else {
            return Ok(seen);
        };
        self.effective = kept;
        let mut seen = Box::pin(self.observe_by(Ok(valid), entropy)).await?;
        seen.observed.refused = refusal;
        Ok(seen)
    }

    async fn observe_by(
        &mut self,
        cluster: Result<ValidatedCluster, Invalid>,
        entropy: &str,
    ) -> Result<Observation, Failure> {
        self.housekeep().map_err(broken)?;
        let pods = self.pods.view();
        let running = pods
            .iter()
            .filter(|pod| pid(pod).is_some() && !pod.deleting);
        let mut addresses = BTreeMap::new();
        for pod in running {
            let ports = self.home.ports(&pod.member).map_err(broken)?;
            addresses.insert(pod.member.clone(), ports.peer_address());
        }
        let (described, silent) = self
            .members
            .describe(&addresses, self.home.state().epoch)
            .await;
        let state = self.home.state();
        let now_ms = now_ms();
        let observed = Observed {
            now_ms,
            entropy: entropy.to_owned(),
            epoch: state.epoch,
            deleting: false,
            source_waived: false,
            fenced: fenced_members(self.cluster.metadata.annotations.as_ref()),
            refused: None,
            spec: cluster.as_ref().ok().map(|cluster| SpecFacts {
                hash: spec_hash(cluster),
                kept: kept_hash(cluster, &state.admitted),
            }),
            cluster: cluster.map_err(|invalid| InvalidCluster {
                name: state.cluster.clone(),
                problems: invalid.to_string(),
            }),
            client_endpoint: self.endpoints().join(","),
            held: false,
            last_backup: None,
            deletion_policy: DeletionPolicy::Unknown,
            status_cluster_id: self.status.cluster_id.clone(),
            status_incarnation: status_memory::incarnation(&self.status),
            status_memory: status_memory::of_status(&self.status),
            identity_secret: state
                .identity_secret
                .as_ref()
                .map(|identity_secret| self.identity_secret(identity_secret)),
            wanted_objects: BTreeMap::new(),
            objects: BTreeMap::new(),
            slot_endpoints: Vec::new(),
            service_families: Vec::new(),
            wanted_slot_inputs: String::new(),
            tls: crate::plan::TlsFacts::default(),
            slots: BTreeMap::new(),
            wanted_inputs: inputs(&self.effective),
            sets: state
                .sets
                .iter()
                .map(|(name, set)| (name.clone(), set_facts(set)))
                .collect(),
            pods: pods
                .iter()
                .map(|pod| {
                    (
                        pod.member.clone(),
                        pod_facts(pod, described.get(&pod.member), silent.get(&pod.member)),
                    )
                })
                .collect(),
            pvcs: self.pvcs()?,
            class_node_bound: None,
            classes: BTreeMap::new(),
            pdb: None,
            nodes: BTreeMap::new(),
            routed: BTreeSet::new(),
            denied: BTreeSet::new(),
            // `run::parsed` refuses a cluster that is to be restored or follows another one.
            restore: None,
            follow: None,
            backups: None,
            // They are resources of Kubernetes; hosts have `quorate recover`.
            recoveries: Vec::new(),
            earlier: plan::Earlier::default(),
            descriptions: described
                .iter()
                .filter(|(name, answer)| {
                    let pod = pods.iter().find(|pod| pod.member == **name);
                    pod.is_some_and(|pod| pod.uid == answer.description.pod_uid)
                })
                .map(|(name, answer)| (name.clone(), facts(answer)))
                .collect(),
        };
        let status_age_ms = self.status_written.map(|at| milliseconds(at.elapsed()));
        let (generation, status) = (state.generation, self.status.clone());
        Ok(Observation {
            observed,
            generation,
            status,
            status_age_ms,
        })
    }

    fn identity_secret(&self, identity_secret: &IdentityRecord) -> IdentitySecret {
        IdentitySecret {
            owner: Owner::Ours,
            terminating: false,
            cluster_uid: self.home.state().cluster_uid.clone(),
            incarnation: identity_secret.incarnation,
            seed: identity_secret.seed.clone(),
            nonce: identity_secret.nonce.clone(),
        }
    }

    fn pvcs(&self) -> Result<BTreeMap<String, PvcFacts>, Failure> {
        let pvcs = self.home.pvcs().map_err(broken)?;
        // A directory has no class, and nothing makes it smaller: it is always as was asked.
        let class = self.effective.spec.storage.storage_class_name.clone();
        let asked = AskedStorage {
            bytes: bytes_of(&self.effective.spec.storage.size).unwrap_or(0),
            class: class.clone(),
        };
        let facts = |pvc: home::PvcRecord| PvcFacts {
            uid: pvc.uid,
            cluster_uid: Some(pvc.cluster_uid),
            incarnation: 1,
            member: Some(pvc.member),
            state: match pvc.state {
                PvcState::New => plan::PvcState::New,
                PvcState::Joined => plan::PvcState::Joined,
                PvcState::Retired => plan::PvcState::Retired,
            },
            terminating: pvc.terminating,
            bound: true,
            volume_gone: None,
            no_node: None,
            node_bound: None,
            nodes: None,
            requested_bytes: pvc.bytes,
            storage: StorageFacts {
                asked: Some(asked.clone()),
                class: class.clone(),
                capacity_bytes: pvc.bytes,
                resize_problem: None,
            },
            owned: pvc.owned,
        };
        Ok(pvcs
            .into_iter()
            .map(|(name, pvc)| (name, facts(pvc)))
            .collect())
    }

    /// The arguments of a member's server. A new member contacts every known address.
    fn arguments(&mut self, member: &str, pvc: &str) -> Result<Vec<String>, home::Error> {
        let own = self.home.ports(member)?;
        let (secret, _) = self.home.secret()?;
        let state = self.home.state();
        let others = state.sets.keys().filter(|name| *name != member);
        let mut from: Vec<String> = others
            .filter_map(|name| state.ports.get(name))
            .map(|ports| ports.peer_address())
            .collect();
        from.push(own.peer_address());
        let (client, peer) = (own.client_url(), own.peer_url());
        Ok(vec![
            "server".into(),
            format!("--name={member}"),
            format!("--data-dir={}", self.home.data_dir(pvc).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            "--await-membership".into(),
            format!("--join-from={}", from.join(",")),
            format!("--operator-secret-file={}", secret.display()),
            format!("--cluster-uid={}", state.cluster_uid),
        ])
    }

    fn act_on_object(&mut self, action: &ObjectAction) -> Result<(), Failure> {
        match action {
            ObjectAction::AdmitSpec { .. } => {
                let mut spec = self.effective.spec.clone();
                spec.paused = false;
                let spec = serde_json::to_value(&spec).unwrap_or_default();
                self.home
                    .update(|state| state.admitted = spec)
                    .map_err(broken)?;
            }
            ObjectAction::CreateIdentitySecret {
                seed,
                nonce,
                incarnation,
            } => {
                let identity_secret = IdentityRecord {
                    incarnation: *incarnation,
                    seed: seed.clone(),
                    nonce: nonce.clone(),
                };
                self.home
                    .update(|state| state.identity_secret.get_or_insert(identity_secret).clone())
                    .map_err(broken)?;
            }
            ObjectAction::DeleteIdentitySecret { incarnation } => {
                let former = |it: &IdentityRecord| it.incarnation == *incarnation;
                self.home
                    .update(|state| drop(state.identity_secret.take_if(|it| former(it))))
                    .map_err(broken)?;
            }
            ObjectAction::CreatePvc {
                member, pvc, bytes, ..
            } => {
                self.home.create_pvc(pvc, member, *bytes).map_err(broken)?;
            }
            ObjectAction::GrowPvc {
                pvc, uid, bytes, ..
            } => {
                self.change_pvc(pvc, uid, |record| record.bytes = *bytes)?;
            }
            // Never planned: see `pvcs`.
            ObjectAction::RecordStorage { .. } => {}
            ObjectAction::MarkPvc { pvc, uid, state } => {
                let state = match state {
                    plan::PvcState::New => PvcState::New,
                    plan::PvcState::Joined => PvcState::Joined,
                    plan::PvcState::Retired => PvcState::Retired,
                };
                self.change_pvc(pvc, uid, |record| record.state = state)?;
            }
            ObjectAction::OwnPvc { pvc, uid, owned } => {
                self.change_pvc(pvc, uid, |record| record.owned = *owned)?;
            }
            ObjectAction::DeletePvc { pvc, uid } => {
                self.change_pvc(pvc, uid, |record| record.terminating = true)?;
            }
            ObjectAction::ApplySet {
                member,
                pvc,
                hibernated,
                ..
            } => {
                let set = SetRecord {
                    uid: uuid::Uuid::new_v4().to_string(),
                    pvc: pvc.clone(),
                    input_hash: inputs(&self.effective),
                    created_ms: now_ms(),
                    hibernated: *hibernated,
                    arguments: self.arguments(member, pvc).map_err(broken)?,
                };
                let apply = |state: &mut home::State| match state.sets.get_mut(member) {
                    Some(found) => {
                        found.hibernated = set.hibernated;
                        found.input_hash = set.input_hash;
                        found.arguments = set.arguments;
                    }
                    None => {
                        state.sets.insert(member.clone(), set);
                    }
                };
                self.home.update(apply).map_err(broken)?;
            }
            ObjectAction::DeletePod { member, uid } => {
                if !self.pods.delete(member, uid) {
                    return Err(Failure::Changed(format!(
                        "the pod of {member} is another one"
                    )));
                }
            }
            ObjectAction::DeleteSet { member, uid } => {
                let remove = |state: &mut home::State| {
                    if state.sets.get(member).is_some_and(|set| set.uid == *uid) {
                        state.sets.remove(member);
                    }
                };
                self.home.update(remove).map_err(broken)?;
            }
            ObjectAction::MapSlot { service, .. } | ObjectAction::DropSlot { service, .. } => {
                return Err(Failure::Refused(format!(
                    "this machine has no Service {service}"
                )));
            }
            ObjectAction::ApplyObject(key) => {
                return Err(Failure::Refused(format!(
                    "this machine has no {}",
                    key.kind.as_str()
                )));
            }
            // There are no nodes to go away, no evictions, and no kubelets.
            ObjectAction::SetPdb { .. }
            | ObjectAction::ResizePod { .. }
            | ObjectAction::RecordInputs { .. }
            | ObjectAction::EvictPod { .. }
            | ObjectAction::ReleasePod { .. }
            | ObjectAction::HoldPod { .. } => {
                return Err(Failure::Refused(format!("this machine cannot {action}")));
            }
        }
        self.housekeep().map_err(broken)
    }

    fn change_pvc(
        &self,
        pvc: &str,
        uid: &str,
        change: impl FnOnce(&mut home::PvcRecord),
    ) -> Result<(), Failure> {
        self.home
            .update_pvc(pvc, uid, change)
            .map_err(broken)
            .map(|_| ())
    }
}

impl Platform for Local {
    async fn observe(
        &mut self,
        _: Freshness,
        entropy: &str,
        by: Specification,
    ) -> Result<Option<Observation>, Failure> {
        let seen = self.observe_admitted(entropy, by).await?;
        self.seen = Some(seen.clone());
        Ok(Some(seen))
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        let state = self.home.state();
        let addresses = |(name, ports): (&String, &Ports)| (name.clone(), ports.peer_address());
        let addresses = state.ports.iter().map(addresses).collect();
        let urls = |member: &str, _: bool| {
            let ports = state.ports.get(member).copied();
            ports.map(Ports::peer_url).unwrap_or_default()
        };
        match &act.action {
            Action::Member(action) => {
                let leader = act.leader.as_deref();
                let call = self
                    .members
                    .act(action, leader, state.epoch, &addresses, urls);
                call.await
            }
            Action::Certificate(action) => Err(Failure::Refused(format!(
                "this machine has no Secrets: it cannot {action}"
            ))),
            Action::Object(action) => self.act_on_object(action),
        }
    }

    async fn report(&mut self, report: &Report) -> Result<(), Failure> {
        for event in &report.events {
            let warning = if event.severity == Severity::Warning {
                "! "
            } else {
                ""
            };
            self.console.print(&format!("{warning}{}", event.note));
            if let Some(shown) = &self.shown {
                let name = self.name().unwrap_or_default();
                shown.published(&(NAMESPACE.to_owned(), name), event);
            }
        }
        if let Some(failure) = &report.failure {
            self.console.waits(&failure.to_string());
        } else if report.acted.is_none()
            && let Some(waiting) = report
                .plan
                .progress
                .as_ref()
                .and_then(|p| p.waiting_for.clone())
            && self.lag_printed.is_none_or(|at| at.elapsed() >= LAG_LINE)
        {
            self.lag_printed = Some(Instant::now());
            self.console.waits(&waiting);
        }
        self.at_rest = report.plan.progress.is_none()
            && report.plan.steps.is_empty()
            && report.failure.is_none();
        if let Some(status) = &report.status {
            let value = serde_json::to_value(status)
                .map_err(|error| Failure::Refused(format!("cannot write the status: {error}")))?;
            self.home
                .update(|state| state.status = value)
                .map_err(broken)?;
            self.status = status.clone();
            self.status_written = Some(Instant::now());
        }
        Ok(())
    }
}

impl Ports {
    /// Where the etcd API is.
    pub fn client_url(self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// Where peers and the operator dial.
    pub fn peer_url(self) -> String {
        format!("http://{}", self.peer_address())
    }

    /// The same as `host:port`.
    pub fn peer_address(self) -> String {
        format!("127.0.0.1:{}", self.peer)
    }
}

/// Gives the resource its identity on this machine; a changed specification raises the generation.
fn adopt(home: &mut Home, mut cluster: EtcdCluster) -> Result<EtcdCluster, home::Error> {
    let spec = serde_json::to_value(&cluster.spec).unwrap_or_default();
    if home.state().spec != spec {
        home.update(|state| {
            state.spec = spec;
            state.generation += 1;
        })?;
    }
    cluster.metadata.namespace = Some(NAMESPACE.into());
    cluster.metadata.uid = Some(home.state().cluster_uid.clone());
    cluster.metadata.generation = Some(home.state().generation);
    Ok(cluster)
}

/// What a member's process is rendered from: here the version, and the settings of the server where
/// there are any.
fn inputs(cluster: &EtcdCluster) -> String {
    let version = format!("local-{}", cluster.spec.version);
    match crate::build::server_flags(&cluster.spec.server) {
        flags if flags.is_empty() => version,
        flags => format!("{version} {}", flags.join(" ")),
    }
}

/// Hash of the specification that is kept, if one can be read.
fn kept_hash(cluster: &ValidatedCluster, kept: &serde_json::Value) -> Option<String> {
    let spec = serde_json::from_value(kept.clone()).ok()?;
    Some(spec_hash(&ValidatedCluster {
        spec,
        ..cluster.clone()
    }))
}

fn set_facts(set: &SetRecord) -> SetFacts {
    SetFacts {
        plain_peers: true,
        uid: set.uid.clone(),
        owner: Owner::Ours,
        terminating: false,
        inputs: Some(set.input_hash.clone()),
        created_ms: set.created_ms,
        hibernated: set.hibernated,
        edited: false,
    }
}

/// `silent` is why its server gave no description.
fn pod_facts(pod: &PodView, described: Option<&Described>, silent: Option<&String>) -> PodFacts {
    let process = pod.process.as_ref();
    let started = process.and_then(|process| process.pid);
    let waiting = match process {
        None => Some("its PVC is missing".to_owned()),
        Some(process) => process.start_error.clone().or_else(|| silent.cloned()),
    };
    let last_exit = process
        .and_then(|process| process.last_end.as_ref())
        .map(|end| end.code.unwrap_or_else(|| 128 + end.signal.unwrap_or(0)))
        .map(|code| describe::exit(code, None));
    PodFacts {
        uid: pod.uid.clone(),
        phase: if process.is_some() {
            PodPhase::Running
        } else {
            PodPhase::Pending
        },
        ready_since_ms: described
            .is_some_and(|described| described.description.ready)
            .then_some(pod.created_ms),
        terminating: pod.deleting,
        node: None,
        ends_ms: None,
        released_ms: None,
        inputs: Some(pod.input_hash.clone()),
        resize: None,
        peer_tls: false,
        server: crate::build::server_facts(pod.arguments.iter().map(String::as_str)),
        created_ms: pod.created_ms,
        started_ms: started.map(|_| pod.created_ms),
        waiting,
        last_exit,
        beside: None,
        beside_ms: None,
    }
}

fn facts(described: &Described) -> plan::Description {
    describe::description(described, milliseconds(described.at.elapsed()))
}

fn pid(pod: &PodView) -> Option<u32> {
    pod.process.as_ref().and_then(|process| process.pid)
}

fn broken(error: home::Error) -> Failure {
    let text = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Failure::Retry(text)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock: times of this machine's records outlive its processes.
fn now_ms() -> u64 {
    #[allow(clippy::disallowed_methods)]
    let now = SystemTime::now();
    milliseconds(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}
