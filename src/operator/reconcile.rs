//! One reconcile of one cluster: observe, plan, check, act on the first step, report. Has no clock and no Kubernetes
//! client; the given platform does the I/O, so that simulators run it as shipped.
//!
//! Before a step that changes anything but an object's rendering, everything is read again live and *planned again*: it
//! is executed only if the fresh plan's first step is the same. So "already done?" and "is it safe?" are checked by the
//! same rules, in the same order, on live state right before the action.
//!
//! A write of an object that no member's health depends on, and that the platform refuses or fails (a value that only
//! the user can correct, an admission webhook that does not answer), does not stop the reconcile: it continues with the
//! next step, and reports what failed.
//!
//! A specification that cannot be recorded as admitted is not carried out: the reconcile goes on with the one that was
//! admitted last. Otherwise members would run with one that nothing knows of once the next change is refused.

use super::platform::{Act, Failure, Freshness, Observation, Platform, Specification};
use super::queue::Ended;
use super::report;
use crate::mutants::mutant;
use crate::plan::{Action, ObjectAction, Observed, Plan, Refusal};

/// After an executed step the next reconcile follows this soon.
const SOON_MS: u64 = 50;
/// After a step that was overtaken by events.
const OVERTAKEN_MS: u64 = 500;
/// Maximum number of failed writes before a reconcile gives up: each may take as long as a webhook's timeout.
const FAILURES: usize = 8;
/// Between two reconciles of a cluster whose changes are told of: for what is told late, or not at all.
const CALM_MS: u64 = 300_000;
/// While an object of ours is terminating.
const TERMINATING_MS: u64 = 2_000;

/// The pure rules that a reconcile follows.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// From facts to a plan.
    pub plan: fn(&Observed) -> Plan,
    /// What is wrong with a plan; a plan with findings is not executed.
    pub lint: fn(&Observed, &Plan) -> Vec<String>,
}

impl Rules {
    /// The rules as shipped.
    pub const SHIPPED: Self = Self {
        plan: crate::plan::plan,
        lint: crate::plan::lint,
    };
}

/// Reconciles one cluster once; returns when the next reconcile is due. `entropy` is fresh random text for random names
/// in the plan.
pub async fn reconcile<P: Platform>(platform: &mut P, rules: Rules, entropy: &str) -> Ended {
    let mut one = Reconcile {
        platform,
        rules,
        entropy,
        failed: Vec::new(),
        by: Specification::Wanted,
        unrecorded: None,
    };
    match Box::pin(one.run()).await {
        Ok(ended) | Err(ended) => ended,
    }
}

/// The context of one reconcile.
struct Reconcile<'a, P> {
    platform: &'a mut P,
    rules: Rules,
    entropy: &'a str,
    /// Writes that were refused or failed in this reconcile, and did not stop it.
    failed: Vec<(Action, Failure)>,
    /// Of the resource, until that turns out not to be recordable.
    by: Specification,
    /// Why it is not recorded, if that will not pass by itself.
    unrecorded: Option<Refusal>,
}

impl<P: Platform> Reconcile<'_, P> {
    /// `Err`: it ends early, for nothing could be observed.
    async fn run(&mut self) -> Result<Ended, Ended> {
        let mut observation = self.observe(Freshness::Cached).await?;
        loop {
            let mut plan = self.plan(&observation);
            let Some(wanted) = plan.first().map(|step| step.action.clone()) else {
                return Ok(self.rest(&observation, plan).await);
            };
            if !wanted.renders_only() {
                observation = self.observe(Freshness::Live).await?;
                plan = self.plan(&observation);
                match plan.first().map(|step| &step.action) {
                    Some(action) if *action == wanted || action.renders_only() => {}
                    // The live state requires something else: left to the next reconcile.
                    Some(_) => return Ok(self.overtaken(&observation, plan).await),
                    None => return Ok(self.rest(&observation, plan).await),
                }
            }
            if let Some(failure) = self.check(&observation, &plan) {
                return Ok(self.failed(&observation, plan, failure).await);
            }
            let Some(act) = first_act(&observation, &plan) else {
                return Ok(self.rest(&observation, plan).await);
            };
            match self.platform.act(&act).await {
                Ok(()) => return Ok(self.acted(&observation, plan, act.action).await),
                Err(failure) if self.goes_on(&act.action, &failure) => {
                    if is_unrecorded(&observation, &act.action) && !mutant!(UnrecordedCarriedOut) {
                        self.by = Specification::Recorded;
                        self.unrecorded = refusal(&failure);
                        observation = self.observe(Freshness::Cached).await?;
                    }
                    self.failed.push((act.action, failure));
                }
                Err(failure) => return Ok(self.failed(&observation, plan, failure).await),
            }
        }
    }

    async fn observe(&mut self, freshness: Freshness) -> Result<Observation, Ended> {
        match (self.platform.observe(freshness, self.entropy, self.by)).await {
            Ok(Some(mut observation)) => {
                let spec = observation.observed.spec.as_ref();
                let recorded = spec.is_some_and(|spec| spec.kept.as_ref() == Some(&spec.hash));
                if self.by == Specification::Recorded && !recorded {
                    tracing::warn!("cannot read the specification that was admitted last");
                    return Err(Ended::Failed);
                }
                let refused = &mut observation.observed.refused;
                *refused = refused.take().or_else(|| self.unrecorded.clone());
                if self.by == Specification::Recorded && refused.is_none() {
                    // Nobody is to take the resource as it is for carried out.
                    let reported = observation.status.observed_generation;
                    observation.generation = reported.unwrap_or(observation.generation);
                }
                Ok(observation)
            }
            Ok(None) => Err(Ended::Gone),
            Err(failure) => {
                tracing::warn!(%failure, "cannot observe the cluster");
                Err(Ended::Failed)
            }
        }
    }

    /// What is to be done, without what failed in this reconcile.
    fn plan(&self, observation: &Observation) -> Plan {
        let mut plan = (self.rules.plan)(&observation.observed);
        let failed = |action: &Action| self.failed.iter().any(|(known, _)| known == action);
        // While an eviction may take a pod that should stay, no other pod is taken.
        let held = |action: &Action| matches!(action, Action::Object(ObjectAction::HoldPod { .. }));
        let open = self.failed.iter().any(|(action, _)| held(action));
        plan.steps
            .retain(|step| !(failed(&step.action) || open && step.ends_a_pod()));
        plan
    }

    /// Why this plan must not be executed.
    fn check(&self, observation: &Observation, plan: &Plan) -> Option<Failure> {
        let findings = (self.rules.lint)(&observation.observed, plan);
        let text = "the plan breaks a rule and is not executed: ";
        (!findings.is_empty()).then(|| Failure::Refused(format!("{text}{}", findings.join("; "))))
    }

    /// Whether the reconcile goes on with another step after this failure.
    fn goes_on(&self, action: &Action, failure: &Failure) -> bool {
        let tolerated = match failure {
            Failure::Refused(_) => !mutant!(RefusedHolds),
            Failure::Retry(_) | Failure::Terminating { .. } => !mutant!(FailureHolds),
            // Another owner's object stops everything, and a stale view is read again.
            Failure::NameConflict { .. } | Failure::Changed(_) => false,
        };
        tolerated && self.failed.len() < FAILURES && !action.blocks()
    }

    async fn acted(&mut self, observation: &Observation, plan: Plan, action: Action) -> Ended {
        let ended = Ended::After(SOON_MS);
        self.report(observation, plan, Some(action), None, ended)
            .await
    }

    async fn overtaken(&mut self, observation: &Observation, plan: Plan) -> Ended {
        let ended = Ended::After(OVERTAKEN_MS);
        self.report(observation, plan, None, None, ended).await
    }

    async fn failed(&mut self, observation: &Observation, plan: Plan, failure: Failure) -> Ended {
        let ended = match &failure {
            Failure::Changed(_) => Ended::After(OVERTAKEN_MS),
            Failure::Terminating { .. } => Ended::After(TERMINATING_MS),
            Failure::NameConflict { .. } | Failure::Refused(_) | Failure::Retry(_) => Ended::Failed,
        };
        self.report(observation, plan, None, Some(failure), ended)
            .await
    }

    /// Nothing is to be done now, or nothing but what failed.
    async fn rest(&mut self, observation: &Observation, plan: Plan) -> Ended {
        let terminates =
            |(_, failure): &(Action, Failure)| matches!(failure, Failure::Terminating { .. });
        let ended = if self.failed.is_empty() {
            let told = plan.calm && self.platform.is_told();
            Ended::After(if told { CALM_MS } else { plan.requeue_ms })
        } else if self.failed.iter().all(terminates) {
            Ended::After(TERMINATING_MS)
        } else {
            Ended::Failed
        };
        self.report(observation, plan, None, None, ended).await
    }

    /// Writes the status and the events, and returns `ended` unless that fails.
    async fn report(
        &mut self,
        observation: &Observation,
        plan: Plan,
        acted: Option<Action>,
        failure: Option<Failure>,
        ended: Ended,
    ) -> Ended {
        // What failed first is reported: it is what was to be done first.
        let last = failure.map(|failure| {
            let action = plan.first().map(|step| step.action.to_string());
            (action.unwrap_or_default(), failure)
        });
        let first = self.failed.first();
        let first = first.map(|(action, failure)| (action.to_string(), failure.clone()));
        let report = report::compose(observation, plan, acted, first.or(last));
        match self.platform.report(&report).await {
            Ok(()) => ended,
            Err(failure) => {
                tracing::warn!(%failure, "cannot write the status");
                Ended::Failed
            }
        }
    }
}

/// Whether this is the action by which the specification would be recorded, after an earlier one that is.
fn is_unrecorded(observation: &Observation, action: &Action) -> bool {
    let spec = observation.observed.spec.as_ref();
    let earlier = spec.is_some_and(|spec| spec.kept.is_some());
    earlier && matches!(action, Action::Object(ObjectAction::AdmitSpec { .. }))
}

/// What the user is told of a specification that cannot be recorded. A failure that passes is told once it lasts.
fn refusal(failure: &Failure) -> Option<Refusal> {
    let Failure::Refused(why) = failure else {
        return None;
    };
    let text = format!(
        "nothing is made from the changed specification, because it cannot be recorded as admitted ({why}): let the operator write ControllerRevisions (a quota, an admission policy, its role)"
    );
    Some(Refusal {
        reason: "SpecNotRecorded",
        text,
        of_certificate: false,
    })
}

/// The plan's first step, with the member that calls go to.
fn first_act(observation: &Observation, plan: &Plan) -> Option<Act> {
    // One that was just deposed may still report that it leads: the highest term does.
    let leaders = observation.observed.descriptions.iter();
    let leaders = leaders.filter(|(_, description)| description.leads);
    let leader = leaders.max_by_key(|(_, description)| description.term);
    Some(Act {
        action: plan.first()?.action.clone(),
        leader: leader.map(|(name, _)| name.clone()),
    })
}

#[cfg(test)]
#[path = "reconcile_test.rs"]
mod tests;
