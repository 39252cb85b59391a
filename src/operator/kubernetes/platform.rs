//! One cluster on Kubernetes, for the length of a reconcile: the platform that `reconcile` runs on. What it observes is
//! in `observe.rs`, what it reports in `report.rs`; actions are dispatched to the executor of their kind.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use futures::future::FutureExt as _;
use kube::{Api, Resource};

use super::lease::{self, Leadership};
use super::workers::Key;
use crate::build;
use crate::crd::{EtcdRecovery, ValidatedCluster};
use crate::operator::clock::Moment;
use crate::operator::held::{Asked, until_told};
use crate::operator::platform::{
    Act, Failure, Freshness, Observation, Platform, Report, Specification,
};
use crate::plan::{Action, CertificateAction, ObjectAction};

use super::context::{Context, Environment, Memory, Resourceful};

/// One cluster, for the length of a reconcile.
pub(crate) struct OneCluster {
    pub(super) shared: Arc<Context>,
    pub(super) key: Key,
    pub(super) memory: Memory,
    /// Nothing is remembered of what it sees.
    pub(super) aside: bool,
    pub(super) seen: Option<View>,
}

/// What an act needs of the last observation.
pub(super) struct View {
    /// When it began.
    pub(super) began: Moment,
    pub(super) resource: Arc<Resourceful>,
    pub(super) cluster: Option<ValidatedCluster>,
    pub(super) addresses: BTreeMap<String, String>,
    /// Of the members' descriptions, by their addresses.
    pub(super) digests: BTreeMap<String, u64>,
    /// resourceVersions of objects that may be deleted because of their content, by UID.
    pub(super) versions: BTreeMap<String, String>,
    /// The epoch of a newer operator that members report.
    pub(super) successor: Option<u64>,
    /// The EtcdRecoveries that name the cluster.
    pub(super) recoveries: Vec<EtcdRecovery>,
}

impl OneCluster {
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.shared.client.clone(), &self.key.0)
    }

    pub(super) fn remember(&self) {
        if self.aside {
            return;
        }
        let mut memories = self
            .shared
            .memories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        memories.insert(self.key.clone(), self.memory.clone());
    }

    /// Asks each member to hold a call until it changes; false where one holds none, as of 0.1.0.
    fn hold_calls(&self) -> bool {
        let Some((view, (_, members))) = self.seen.as_ref().zip(self.memory.members.as_ref())
        else {
            return false;
        };
        let digests = &view.digests;
        if digests.is_empty() || digests.values().any(|digest| *digest == 0) {
            return false;
        }
        let Environment { clock, hold, .. } = &self.shared.outside;
        let call = |(address, digest): (&String, &u64)| {
            let call = Arc::new(members.held_call(address, *digest));
            until_told(hold.clone(), call, clock.clone()).boxed()
        };
        let calls = digests.iter().map(call).collect();
        let asked = Asked::Hold(self.key.clone(), digests.clone(), calls);
        let is_held = self.shared.held.ask(asked);
        if is_held {
            members.hang_up();
        }
        is_held
    }

    /// Executes one act, unless this operator may not act any more.
    async fn execute(&self, act: &Act) -> Result<(), Failure> {
        let view = self.seen.as_ref();
        if let Some(newer) = view.and_then(|view| view.successor) {
            return Err(overtaken(newer, &self.shared.leadership));
        }
        if !self.shared.leadership.may_act() {
            return Err(Failure::Retry(lease::NOT_RENEWED.to_owned()));
        }
        let Some((view, cluster)) = view.and_then(|view| Some((view, view.cluster.as_ref()?)))
        else {
            return Err(Failure::Changed("the resource is not valid".into()));
        };
        match &act.action {
            Action::Member(action) => {
                let Some((_, members)) = &self.memory.members else {
                    let why = "the cluster's key has not been seen yet";
                    return Err(Failure::Retry(why.into()));
                };
                let (leader, epoch) = (act.leader.as_deref(), self.shared.leadership.epoch());
                let urls = |member: &str, secure: bool| build::peer_url(cluster, member, secure);
                let call = members.act(action, leader, epoch, &view.addresses, urls);
                call.await
            }
            Action::Certificate(action) => {
                super::certificates::apply_action(self, cluster, action).await
            }
            Action::Object(action) => super::act::apply_action(self, cluster, action).await,
        }
    }
}

impl Platform for OneCluster {
    async fn observe(
        &mut self,
        freshness: Freshness,
        entropy: &str,
        by: Specification,
    ) -> Result<Option<Observation>, Failure> {
        Box::pin(self.facts(freshness, entropy, by)).await
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        let (namespace, cluster) = (&self.key.0, &self.key.1);
        tracing::info!(%namespace, %cluster, action = %act.action, "acts");
        let done = Box::pin(self.execute(act)).await;
        if matches!(act.action, Action::Object(ObjectAction::AdmitSpec { .. })) {
            // What is kept now is read again.
            self.memory.revisions.look_again();
            self.remember();
        }
        if let Action::Certificate(
            CertificateAction::PublishAuthorities { .. }
            | CertificateAction::WithdrawAuthorities { .. },
        ) = act.action
        {
            self.memory.trust_bundle.look_again();
            self.remember();
        }
        if let Action::Certificate(CertificateAction::SignRequest { port, member, .. }) =
            &act.action
        {
            self.memory.pod_certificates.look_again(member, *port);
            self.remember();
        }
        let outcome = match &done {
            Ok(()) => "done",
            Err(Failure::Changed(_) | Failure::Terminating { .. }) => "overtaken",
            Err(Failure::NameConflict { .. } | Failure::Refused(_)) => "refused",
            Err(Failure::Retry(_)) => "failed",
        };
        self.shared.metrics.step(act.action.word(), outcome);
        done
    }

    fn is_told(&mut self) -> bool {
        // An edit right after an own write is not looked at until later.
        let drift = &self.memory.drift;
        let complete = |view: &View| !drift.passed_over(&view.began);
        !self.aside && self.seen.as_ref().is_some_and(complete) && self.hold_calls()
    }

    async fn report(&mut self, report: &Report) -> Result<(), Failure> {
        self.write_report(report).await
    }
}

/// Why nothing is done in a cluster that a newer operator acts on: the API server would not refuse it.
fn overtaken(newer: u64, leadership: &Leadership) -> Failure {
    let own = leadership.epoch();
    Failure::Refused(format!(
        "a newer operator (epoch {newer}, this one has {own}) acts on this cluster: let only one operator serve a namespace"
    ))
}
