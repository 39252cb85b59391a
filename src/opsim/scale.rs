//! Many clusters at rest under one operator, to measure what they take of it: its caches, reconciles and
//! queue as shipped. One cluster is made as any is and comes to rest; the others are the same objects
//! in namespaces of their own, and all of them are described by the first one's members. Another one has members of its own,
//! for what is told of one alone.
//!
//! Shows nothing about work that is done, and nothing about an API server's own cost.

mod authorities;
mod unlike;

use serde_json::{Value, json};

use super::api::{Kind, object};
use super::harness::containers::NAMESPACE;
use super::harness::operator::{Operator, is_ours};
use super::harness::request_faults::lock;
use super::harness::world::World;
use super::harness::{CACHED, Failure, Options};
use super::run::runtime;
use super::servers;
use super::user;
use crate::crd::LABEL_CLUSTER;
use crate::server::tls::issue::IssueError;
use authorities::Authorities;

/// The longest step of time, in milliseconds.
const STEP_MS: u64 = 1_000;
/// The same while a change is awaited.
const FINE_MS: u64 = 10;
/// A change that was not seen within this is not told of.
const TOLD_MS: u64 = 60_000;
/// The cluster that is at rest many times, and the one that has members of its own.
const NAMES: [&str; 2] = ["demo", "apart"];

/// The clusters and their operator.
pub struct ScaleTest {
    /// The operator's client has a task of its own here.
    runtime: tokio::runtime::Runtime,
    world: World,
    operator: Operator,
    /// The objects of one cluster, by kind, with who manages which field, as a real API server shows it.
    objects: Vec<(Kind, Value)>,
    /// Those of the cluster that has members of its own.
    apart: Vec<(Kind, Value)>,
    /// What operators read from the API server once a cluster: specifications that were admitted.
    admitted: Vec<Value>,
}

/// What was asked while so much time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rested {
    /// Passes that ended.
    pub reconciles: u64,
    /// Requests to the API server, reads and writes.
    pub requests: u64,
    /// Calls of members.
    pub calls: u64,
}

impl ScaleTest {
    /// One cluster of three, at rest, with TLS or without, and an operator that has seen nothing of it yet.
    ///
    /// # Errors
    /// The cluster did not come to rest.
    pub fn new(tls: bool) -> Result<Self, Failure> {
        let runtime = runtime();
        let mut world = World::new(Options::calm(1));
        runtime.block_on(async {
            world.start_operator("first");
            let mut spec = user::spec(3);
            if tls {
                spec["tls"] = json!({});
            }
            for name in NAMES {
                user::create(&mut world, name, &spec);
            }
            world.settle(user::SOON_MS).await
        })?;
        world.stop_operators();
        let api = world.api.clone();
        let api = api.lock();
        let cached = CACHED.iter().filter(|kind| kind.is_namespaced());
        let objects = cached.flat_map(|kind| {
            let all = api.all(*kind).map(|found| (**found).clone());
            let ours = all.filter(|found| *kind == Kind::EtcdCluster || is_ours(found));
            ours.map(|mut found| {
                let (namespace, name) = (object::namespace(&found), object::name(&found));
                let managers = api.managed_fields(*kind, namespace, name);
                found["metadata"]["managedFields"] = managers;
                (*kind, found)
            })
            .collect::<Vec<_>>()
        });
        let (objects, apart) = objects.partition(|(_, found)| is_of(found, NAMES[0]));
        let kept = api.all(Kind::ControllerRevision);
        let kept = kept.filter(|found| is_of(found, NAMES[0]));
        let admitted = kept.map(|found| (**found).clone()).collect();
        drop(api);
        let operator = runtime.block_on(async { world.operator("second") });
        Ok(Self {
            runtime,
            world,
            operator,
            objects,
            apart,
            admitted,
        })
    }

    /// The API server has what operators read from it once of each of so many clusters.
    pub fn admit(&mut self, clusters: usize) {
        for number in 0..clusters {
            let namespace = namespace_of(number);
            for kept in &self.admitted {
                let mut kept = moved(kept, &namespace);
                object::take(&mut kept, &["metadata", "resourceVersion"]);
                let mut api = self.world.api.lock();
                let made = api.create("scale", Kind::ControllerRevision, kept);
                debug_assert!(made.is_ok(), "{made:?}");
            }
        }
    }

    /// The operator's caches are filled with this many clusters, each due for a reconcile.
    ///
    /// # Errors
    /// No certificates could be made.
    pub fn fill(&mut self, clusters: usize) -> Result<(), IssueError> {
        self.fill_shared();
        let authorities = Authorities::stored(&self.objects)?;
        for number in 0..clusters {
            let namespace = namespace_of(number);
            let moved = |(kind, found): &(Kind, Value)| (*kind, moved(found, &namespace));
            let mut objects: Vec<_> = self.objects.iter().map(moved).collect();
            let certificates = authorities.certify_members(&mut objects, &namespace)?;
            lock(&self.world.servers)
                .stands_for
                .insert(namespace, certificates);
            self.fill_with(&objects);
        }
        let apart = std::mem::take(&mut self.apart);
        self.fill_with(&apart);
        self.apart = apart;
        Ok(())
    }

    /// The same with clusters that have nothing in common but what all clusters have. They cannot be reconciled: the members
    /// that describe them are not theirs.
    ///
    /// # Errors
    /// No certificates could be made.
    pub fn fill_unlike(&mut self, clusters: usize) -> Result<(), IssueError> {
        self.fill_shared();
        for number in 0..clusters {
            let objects = unlike::unlike(&self.objects, &namespace_of(number))?;
            self.fill_with(&objects);
        }
        Ok(())
    }

    /// What has no namespace.
    fn fill_shared(&mut self) {
        let now_ms = self.world.now_ms();
        let api = self.world.api.clone();
        self.operator.listed(&api);
        for kind in CACHED.iter().filter(|kind| !kind.is_namespaced()) {
            for found in api.lock().all(*kind) {
                self.operator.add(*kind, found, now_ms);
            }
        }
    }

    fn fill_with(&mut self, objects: &[(Kind, Value)]) {
        let now_ms = self.world.now_ms();
        for (kind, found) in objects {
            self.operator.add(*kind, found, now_ms);
        }
    }

    /// The cluster with members of its own has another leader after so many milliseconds: how many more until that is in its
    /// status. `None`: nobody saw it.
    pub fn told(&mut self, after_ms: u64) -> Option<u64> {
        let (begun_ms, before) = (self.world.now_ms() + after_ms, self.writes());
        self.world.set_now_ms(begun_ms);
        {
            let mut servers = lock(&self.world.servers);
            let groups = servers.groups.values_mut();
            let mut apart = groups.filter(|group| {
                let mut voters = group.membership.voters();
                voters.any(|member| member.name.starts_with(NAMES[1]))
            });
            let group = apart.next()?;
            let leader = group.leader;
            let others = group.membership.voters().map(|member| member.id);
            let other = others.filter(|id| Some(*id) != leader).min()?;
            group.lead(other, begun_ms);
        }
        self.runtime.block_on(async {
            let mut now_ms = begun_ms;
            while now_ms < begun_ms + TOLD_MS {
                if !self.operator.is_busy() {
                    now_ms += FINE_MS;
                    self.world.set_now_ms(now_ms);
                    lock(&self.world.servers).advance(now_ms);
                }
                let api = self.world.api.clone();
                self.operator.listed(&api);
                self.operator.turn(&api, now_ms, &mut |most| most).await;
                tokio::task::yield_now().await;
                let ledger = lock(&self.world.ledger);
                if ledger.writes + ledger.status_writes > before {
                    return Some(now_ms - begun_ms);
                }
            }
            None
        })
    }

    /// So many seconds pass for the operator, and then as many as the pass under way needs.
    pub fn rest(&mut self, seconds: u64) -> Rested {
        let begun_ms = self.world.now_ms();
        let before = self.asked();
        self.operator.counted.reconciles = 0;
        self.runtime.block_on(async {
            let mut now_ms = begun_ms;
            while now_ms < begun_ms + seconds * 1000 || self.operator.is_busy() {
                if !self.operator.is_busy() {
                    let due = self.operator.next_ms().unwrap_or(now_ms + STEP_MS);
                    now_ms = due.clamp(now_ms + 1, now_ms + STEP_MS);
                    self.world.set_now_ms(now_ms);
                    lock(&self.world.servers).advance(now_ms);
                }
                let api = self.world.api.clone();
                // What the API server has of the others is not what the caches have: a list would end them all.
                self.operator.listed(&api);
                self.operator.turn(&api, now_ms, &mut |most| most).await;
                tokio::task::yield_now().await;
            }
        });
        let (requests, calls) = self.asked();
        Rested {
            reconciles: self.operator.counted.reconciles,
            requests: requests - before.0,
            calls: calls - before.1,
        }
    }

    /// Requests and calls so far.
    fn asked(&self) -> (u64, u64) {
        let ledger = lock(&self.world.ledger);
        (ledger.requests, ledger.calls)
    }

    /// What was written so far, statuses included.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let ledger = lock(&self.world.ledger);
        ledger.writes + ledger.status_writes
    }
}

/// Whether it is this cluster's resource, or one of its objects.
fn is_of(found: &Value, cluster: &str) -> bool {
    match object::label(found, LABEL_CLUSTER) {
        Some(name) => name == cluster,
        None => object::name(found) == cluster,
    }
}

fn namespace_of(number: usize) -> String {
    format!("tenant-{number}")
}

/// The object as it would be in this namespace: names of hosts have it as well.
fn moved(object: &Value, namespace: &str) -> Value {
    let mut object = match object {
        Value::String(text) => Value::String(servers::moved(text, NAMESPACE, namespace)),
        Value::Array(all) => all.iter().map(|one| moved(one, namespace)).collect(),
        Value::Object(all) => {
            let all = all.iter();
            let all = all.map(|(key, one)| (key.clone(), moved(one, namespace)));
            Value::Object(all.collect())
        }
        other => other.clone(),
    };
    if object["metadata"]["namespace"].is_string() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}
