//! What would be done for a cluster, step by step, until nothing is left to do: the rules as shipped, over a simulated
//! future in which everything that works keeps working, new pods start, and nothing else changes. A function of the
//! observation; it makes no requests and executes nothing.

use serde::{Deserialize, Serialize};

use super::Model;
use crate::plan::{Observed, Plan, plan, status_memory};

/// Imagined seconds after which a future that does not come to rest is called waiting.
const HORIZON_S: u64 = 6 * 3600;
/// Observations without anything to do before it counts as rest.
const REST: u32 = 3;
/// Maximum interval between observations while nothing is done, in seconds.
const LONGEST_PERIOD_S: u64 = 15;

/// What would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The steps in their order.
    pub steps: Vec<ForecastStep>,
    /// Where it comes to rest.
    pub end: End,
    /// What holds back whatever is not done, in the end.
    pub holds: Vec<String>,
}

/// One step of a forecast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStep {
    /// Seconds from now at the earliest: starting and catching up take no time in a forecast.
    pub after_seconds: u64,
    /// The member that it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The action, in words.
    pub what: String,
    /// Why, in words.
    pub why: String,
}

/// How a forecast ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "words")]
pub enum End {
    /// Nothing is left to do; the final state of the cluster, in words.
    Rest(String),
    /// It waits for something that does not happen by itself: for what, in words.
    Waits(String),
    /// Nothing can be done until the user changes something: what, in words.
    Stalled(String),
    /// The simulated future repeats itself, or exceeds the limit: where it stopped, in words.
    Open(String),
}

/// Looks ahead from what was seen.
pub fn forecast(seen: &Observed) -> Forecast {
    let mut model = Model::of(seen);
    let mut observed = seen.clone();
    let start_ms = observed.now_ms;
    let mut steps = Vec::new();
    let mut quiet = 0;
    let mut idle_s = 0;
    loop {
        let plan = plan(&observed);
        let after_seconds = (observed.now_ms - start_ms) / 1000;
        // Refused actions are not listed: the next observation shows the result.
        let step = plan.first();
        let done = step.filter(|step| model.act(&step.action).is_ok());
        if let Some(step) = done {
            idle_s = 0;
            steps.push(ForecastStep {
                after_seconds,
                member: step.action.member().map(str::to_owned),
                what: step.action.to_string(),
                why: step.reason.clone(),
            });
        } else {
            idle_s = (idle_s + 1).min(LONGEST_PERIOD_S);
        }
        quiet = if plan.first().is_none() && plan.progress.is_none() {
            quiet + 1
        } else {
            0
        };
        if let Some(end) = ended(&plan, quiet, after_seconds) {
            let holds = plan.holds.iter();
            return Forecast {
                steps,
                end,
                holds: holds.map(|hold| hold.reason.clone()).collect(),
            };
        }
        let memory = status_memory::of_status(&plan.status);
        model.remember(plan.status.cluster_id.clone(), memory);
        model.advance(idle_s.max(1) * 1000);
        observed = model.observe();
    }
}

fn ended(plan: &Plan, quiet: u32, after_seconds: u64) -> Option<End> {
    let late = after_seconds >= HORIZON_S;
    if quiet < REST && !late {
        return None;
    }
    let stalled = plan.conditions.iter().find(|condition| {
        condition.type_ == crate::crd::ConditionType::Stalled
            && condition.status == crate::crd::ConditionStatus::True
    });
    let waiting = plan.progress.as_ref();
    let waiting = waiting.and_then(|progress| progress.waiting_for.clone());
    Some(match (stalled, waiting) {
        (Some(condition), _) => End::Stalled(condition.message.clone()),
        (None, None) if quiet >= REST => End::Rest(plan.summary.clone()),
        (None, Some(what)) if plan.first().is_none() => End::Waits(what),
        (None, _) => End::Open(plan.summary.clone()),
    })
}
