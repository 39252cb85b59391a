//! One pass over one cluster, as a value: look, plan, lint, execute the first step only, report
//! from the same view. It asks for what it needs and is told the answer; it knows no runtime, no
//! clock and no platform, so that the simulator runs it as shipped.
//!
//! Before a step that changes anything but an object's rendering, everything is read again live
//! and *planned again*: only if the fresh plan's first step is the very same one is it executed.
//! "Already done?" and "is it safe?" are thus asked by the same rules, in the same order, on what
//! was read right before the act.
//!
//! A write of an object that nobody's health waits for, which the platform refuses or fails to do
//! (a value that only a user can correct, an admission webhook that does not answer), holds nothing
//! up: the pass goes on with the step after it, and reports what failed.

use super::platform::{Act, Failure, Look, Platform, Report, Seen};
use super::queue::Ended;
use super::report;
use crate::mutants::{Mutant, planted};
use crate::plan::{Action, Observed, Plan};

/// After an executed step the next pass follows this soon.
const SOON_MS: u64 = 50;
/// After a step that was overtaken by events.
const OVERTAKEN_MS: u64 = 500;
/// So many writes may fail before a pass gives up: each may last as long as a webhook's timeout.
const FAILURES: usize = 8;
/// While something of ours is still on its way out.
const TERMINATING_MS: u64 = 2_000;

/// The pure rules that a pass follows.
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

/// What the pass needs next.
#[derive(Debug)]
pub enum Need {
    /// A look.
    Observe(Look),
    /// An act.
    Act(Act),
    /// What to write down.
    Report(Box<Report>),
    /// Nothing: the pass is over.
    End(Ended),
}

/// The answer to the last need.
#[derive(Debug)]
pub enum Answer {
    /// To the look.
    Seen(Result<Option<Box<Seen>>, Failure>),
    /// To the act.
    Acted(Result<(), Failure>),
    /// To the report.
    Reported(Result<(), Failure>),
}

#[derive(Debug)]
enum State {
    /// Waits for the first look.
    Looking,
    /// Waits for the live look before this action.
    LookingLive(Action),
    /// Waits for the act's outcome.
    Acting(Box<Seen>, Box<Plan>),
    /// Waits for the report to be written, then ends so.
    Reporting(Ended),
    Over,
}

/// One pass.
#[derive(Debug)]
pub struct Pass {
    rules: Rules,
    state: State,
    /// Writes that were refused or failed in this pass, and held nothing up.
    failed: Vec<(Action, Failure)>,
}

impl Pass {
    /// A new pass and its first need.
    pub fn begin(rules: Rules) -> (Self, Need) {
        (
            Self {
                rules,
                state: State::Looking,
                failed: Vec::new(),
            },
            Need::Observe(Look::Cached),
        )
    }

    /// Takes the answer to the last need; gives the next one.
    pub fn answer(&mut self, answer: Answer) -> Need {
        match (std::mem::replace(&mut self.state, State::Over), answer) {
            (State::Looking, Answer::Seen(Ok(Some(seen)))) => self.seen(seen),
            (State::LookingLive(action), Answer::Seen(Ok(Some(seen)))) => {
                self.seen_live(seen, &action)
            }
            (State::Looking | State::LookingLive(_), Answer::Seen(Ok(None))) => {
                Need::End(Ended::Gone)
            }
            (State::Looking | State::LookingLive(_), Answer::Seen(Err(_))) => {
                Need::End(Ended::Failed)
            }
            (State::Acting(seen, plan), Answer::Acted(Ok(()))) => {
                let acted = plan.first().map(|step| step.action.clone());
                self.report(&seen, *plan, acted, None, Ended::After(SOON_MS))
            }
            (State::Acting(seen, plan), Answer::Acted(Err(failure)))
                if self.goes_on(&plan, &failure) =>
            {
                let failed = plan.first().map(|step| (step.action.clone(), failure));
                self.failed.extend(failed);
                self.seen(seen)
            }
            (State::Acting(seen, plan), Answer::Acted(Err(failure))) => {
                let ended = match &failure {
                    Failure::Changed(_) => Ended::After(OVERTAKEN_MS),
                    Failure::Terminating { .. } => Ended::After(TERMINATING_MS),
                    Failure::NameConflict { .. } | Failure::Refused(_) | Failure::Retry(_) => {
                        Ended::Failed
                    }
                };
                self.report(&seen, *plan, None, Some(failure), ended)
            }
            (State::Reporting(_), Answer::Reported(Err(_))) => Need::End(Ended::Failed),
            (State::Reporting(ended), Answer::Reported(Ok(()))) => Need::End(ended),
            // An answer to a question that was not asked is the driver's mistake: begin again.
            (State::Over, _) | (_, Answer::Seen(_) | Answer::Acted(_) | Answer::Reported(_)) => {
                Need::End(Ended::Failed)
            }
        }
    }

    /// Whether the pass goes on with another step after this failure.
    fn goes_on(&self, plan: &Plan, failure: &Failure) -> bool {
        let passes = match failure {
            Failure::Refused(_) => !planted(Mutant::RefusedHolds),
            Failure::Retry(_) | Failure::Terminating { .. } => !planted(Mutant::FailureHolds),
            // Somebody else's object stops everything, and an old view is looked at anew.
            Failure::NameConflict { .. } | Failure::Changed(_) => false,
        };
        let mut first = plan.first().into_iter();
        passes && self.failed.len() < FAILURES && first.any(|step| holds_nothing_up(&step.action))
    }

    /// What is to be done on this view, but for what failed.
    fn plan(&self, seen: &Seen) -> Plan {
        let mut plan = (self.rules.plan)(&seen.observed);
        let failed = |action: &Action| self.failed.iter().any(|(known, _)| known == action);
        // While an eviction may take a pod that should stay, nobody else's goes.
        let held = |action: &Action| matches!(action, Action::HoldPod { .. });
        let open = self.failed.iter().any(|(action, _)| held(action));
        plan.steps
            .retain(|step| !(failed(&step.action) || open && takes_a_pod(&step.action)));
        plan
    }

    /// When the next pass comes after one that had nothing to do.
    fn rests(&self, plan: &Plan) -> Ended {
        let going =
            |(_, failure): &(Action, Failure)| matches!(failure, Failure::Terminating { .. });
        if self.failed.is_empty() {
            Ended::After(plan.requeue_ms)
        } else if self.failed.iter().all(going) {
            Ended::After(TERMINATING_MS)
        } else {
            Ended::Failed
        }
    }

    fn seen(&mut self, seen: Box<Seen>) -> Need {
        let plan = self.plan(&seen);
        let Some(step) = plan.first() else {
            let ended = self.rests(&plan);
            return self.report(&seen, plan, None, None, ended);
        };
        let action = step.action.clone();
        if renders_only(&action) {
            return self.act(seen, plan);
        }
        self.state = State::LookingLive(action);
        Need::Observe(Look::Live)
    }

    fn seen_live(&mut self, seen: Box<Seen>, action: &Action) -> Need {
        let plan = self.plan(&seen);
        match plan.first() {
            Some(step) if step.action == *action => self.act(seen, plan),
            Some(step) if renders_only(&step.action) => self.act(seen, plan),
            // The live look wants something else: that is the next pass's business.
            Some(_) => self.report(&seen, plan, None, None, Ended::After(OVERTAKEN_MS)),
            None => {
                let ended = self.rests(&plan);
                self.report(&seen, plan, None, None, ended)
            }
        }
    }

    fn act(&mut self, seen: Box<Seen>, plan: Plan) -> Need {
        let findings = (self.rules.lint)(&seen.observed, &plan);
        if !findings.is_empty() {
            let text = format!(
                "the plan breaks a rule and is not executed: {}",
                findings.join("; ")
            );
            return self.report(
                &seen,
                plan,
                None,
                Some(Failure::Refused(text)),
                Ended::Failed,
            );
        }
        let Some(step) = plan.first() else {
            return Need::End(Ended::Failed);
        };
        // One that was deposed a moment ago may still say that it leads: the highest term does.
        let leaders = seen.observed.descriptions.iter();
        let leaders = leaders.filter(|(_, description)| description.leads);
        let leader = leaders.max_by_key(|(_, description)| description.term);
        let leader = leader.map(|(name, _)| name.clone());
        let act = Act {
            action: step.action.clone(),
            leader,
        };
        self.state = State::Acting(seen, Box::new(plan));
        Need::Act(act)
    }

    fn report(
        &mut self,
        seen: &Seen,
        plan: Plan,
        acted: Option<Action>,
        failure: Option<Failure>,
        ended: Ended,
    ) -> Need {
        // What failed first is told: it is what was to be done first.
        let own = failure.map(|failure| {
            let action = plan.first().map(|step| step.action.to_string());
            (action.unwrap_or_default(), failure)
        });
        let first = self.failed.first();
        let first = first.map(|(action, failure)| (action.to_string(), failure.clone()));
        self.state = State::Reporting(ended);
        Need::Report(Box::new(report::compose(seen, plan, acted, first.or(own))))
    }
}

/// An idempotent rendering of an object from the specification: harmless on a stale view, because
/// it is applied to the live object of its name and owner only.
fn renders_only(action: &Action) -> bool {
    matches!(action, Action::ApplyObject(_))
}

/// What may fail without holding up the steps after it: what those need of it, their own rules,
/// guards and lints ask for. A change of the members, a pod that is to go, the volume of a newcomer and the
/// order in which members fall asleep are not among this.
fn holds_nothing_up(action: &Action) -> bool {
    action.is_of_certificates()
        || matches!(
            action,
            Action::ApplyObject(_)
                | Action::AdmitSpec { .. }
                | Action::CreateLatch { .. }
                | Action::ApplySet { asleep: false, .. }
                | Action::SetBudget { .. }
                | Action::MapSlot { .. }
                | Action::DropSlot { .. }
                | Action::HoldPod { .. }
                | Action::Disarm { .. }
                | Action::MarkClaim { .. }
                | Action::OwnClaim { .. }
                | Action::GrowClaim { .. }
                | Action::DeleteClaim { .. }
                | Action::DeleteSet { .. }
        )
}

/// Whether a pod ends by it, or may.
fn takes_a_pod(action: &Action) -> bool {
    matches!(
        action,
        Action::DeletePod { .. } | Action::EvictPod { .. } | Action::ReleasePod { .. }
    )
}

/// Runs a pass to its end.
pub async fn run<P: Platform>(platform: &mut P, rules: Rules, entropy: &str) -> Ended {
    let (mut pass, mut need) = Pass::begin(rules);
    loop {
        let answer = match need {
            Need::Observe(look) => {
                let seen = platform.observe(look, entropy).await;
                if let Err(failure) = &seen {
                    tracing::warn!(%failure, "cannot look");
                }
                Answer::Seen(seen.map(|seen| seen.map(Box::new)))
            }
            Need::Act(act) => Answer::Acted(platform.act(&act).await),
            Need::Report(report) => {
                let written = platform.report(&report).await;
                if let Err(failure) = &written {
                    tracing::warn!(%failure, "cannot report");
                }
                Answer::Reported(written)
            }
            Need::End(ended) => return ended,
        };
        need = pass.answer(answer);
    }
}

#[cfg(test)]
#[path = "pass_test.rs"]
mod tests;
