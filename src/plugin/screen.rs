//! The output of `kubectl quorate`: a function of what was observed and of the time. Shows only what is in the
//! resource, its events and the operator's Lease, and never decides what is healthy.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::members::{self, Columns};
use super::table::{table, wrapped};
use crate::crd::{EtcdCluster, EtcdClusterStatus, StepState, StepStatus};

/// Number of completed steps to show.
const PAST: usize = 5;

/// What was observed of a cluster.
pub(super) struct Observation {
    pub(super) cluster: EtcdCluster,
    pub(super) events: Vec<Event>,
    pub(super) operator: Operator,
}

/// What is known of the operator.
pub(super) enum Operator {
    /// The Leases of its name.
    Leases(Vec<Lease>),
    /// Why it is not known.
    Unknown(String),
}

/// The last sign of life of an operator.
pub(super) struct Sign {
    pub(super) seen: Timestamp,
    /// Seconds for which it holds.
    holds: i64,
}

impl Sign {
    /// Whether an operator is running.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.seen).as_secs() <= self.holds
    }
}

impl Operator {
    /// The newest renewal counts: several operators share one Lease, and others may have one each. `None`: there has
    /// never been one, or it is not known.
    pub(super) fn sign(&self) -> Option<Sign> {
        let Operator::Leases(leases) = self else {
            return None;
        };
        let renewed = |lease: &Lease| {
            let spec = lease.spec.as_ref()?;
            let seconds = i64::from(spec.lease_duration_seconds.unwrap_or(0));
            Some((spec.renew_time.as_ref()?.0, seconds))
        };
        let (seen, holds) = leases.iter().filter_map(renewed).max()?;
        Some(Sign { seen, holds })
    }
}

/// A cluster's members, what the operator did, does and will do, and the conditions that are not as they should be.
pub(super) fn status(observation: &Observation, now: Timestamp) -> String {
    let none = EtcdClusterStatus::default();
    let status = observation.cluster.status.as_ref().unwrap_or(&none);
    let mut lines = head(&observation.cluster, status);
    lines.extend(operator(&observation.operator, now));
    lines.push(String::new());
    lines.extend(members::table(&status.members, Columns::Few));
    lines.push(String::new());
    lines.extend(steps(status, &observation.events, now));
    if !status.conditions.is_empty() {
        lines.push(String::new());
        lines.extend(conditions(&status.conditions, now));
    }
    if !status.leftovers.is_empty() {
        lines.push(String::new());
        lines.push("LEFT OVER".to_owned());
        for left in &status.leftovers {
            lines.push(format!("{} {}", left.kind, left.name));
            lines.extend(wrapped("  ", &left.reason));
        }
        if let Some(more) = status.leftovers_omitted {
            lines.push(format!("and {more} more"));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The same without events and the operator, for a screen that changes.
pub(super) fn details(cluster: &EtcdCluster, now: Timestamp) -> String {
    let none = EtcdClusterStatus::default();
    let status = cluster.status.as_ref().unwrap_or(&none);
    let parts = [
        head(cluster, status),
        members::table(&status.members, Columns::Few),
        steps(status, &[], now),
        conditions(&status.conditions, now),
    ];
    let parts = parts.map(|lines| lines.join("\n") + "\n");
    parts.join("\n")
}

fn head(cluster: &EtcdCluster, status: &EtcdClusterStatus) -> Vec<String> {
    let namespace = cluster.namespace().unwrap_or_default();
    let mut lines = vec![format!("CLUSTER   {namespace}/{}", cluster.name_any())];
    let summary = status.summary.as_deref();
    let nothing = "no operator has reported on it yet";
    lines.extend(wrapped("STATUS    ", summary.unwrap_or(nothing)));
    if cluster.spec.paused {
        lines.push("          paused: the operator changes nothing (spec.paused)".to_owned());
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        lines.push("          it is being deleted".to_owned());
    }
    if status.observed_generation != cluster.metadata.generation && summary.is_some() {
        lines.push("          the newest spec has not been reconciled yet".to_owned());
    }
    let hibernated = cluster.spec.replicas == 0 && status.replicas == Some(0);
    let known = status.version.as_deref().filter(|_| !hibernated);
    let running = known.unwrap_or(if hibernated { "none runs" } else { "unknown" });
    let mut version = running.to_owned();
    if running != cluster.spec.version {
        version += &format!(" (wanted {})", cluster.spec.version);
    }
    lines.push(format!("VERSION   {version}"));
    if let Some(id) = &status.cluster_id {
        lines.push(format!("ID        {id}"));
    }
    if let Some(endpoints) = &status.endpoints {
        lines.push(format!("CLIENTS   {}", endpoints.client));
    }
    lines
}

/// Whether one runs, by its last sign of life.
fn operator(operator: &Operator, now: Timestamp) -> Vec<String> {
    const HEAD: &str = "OPERATOR  ";
    if let Operator::Unknown(why) = operator {
        return wrapped(HEAD, &format!("unknown: {why}"));
    }
    let Some(sign) = operator.sign() else {
        return wrapped(HEAD, "none has ever run here");
    };
    let ago = age(sign.seen, now);
    let words = if sign.is_fresh(now) {
        format!("running, seen {ago} ago")
    } else {
        format!("NONE running since {ago}: what follows is of that time, and nothing is repaired")
    };
    wrapped(HEAD, &words)
}

/// Completed, current, waiting and upcoming steps, each with its mark.
fn steps(status: &EtcdClusterStatus, events: &[Event], now: Timestamp) -> Vec<String> {
    let mut lines = vec!["STEPS".to_owned()];
    let past = in_order(events);
    let first = past.len().saturating_sub(PAST);
    for (at, event) in &past[first..] {
        let mark = if event.type_.as_deref() == Some("Warning") {
            "[!]"
        } else {
            "[x]"
        };
        let message = event.message.as_deref().unwrap_or_default();
        let head = format!("{mark} {:>5} ago  ", age(*at, now));
        lines.extend(wrapped(&head, message));
    }
    match &status.step {
        Some(step) => lines.extend(now_and_next(step, now)),
        None if status.summary.is_some() => lines.push("[ ] nothing is to be done".to_owned()),
        None => lines.push("[ ] unknown".to_owned()),
    }
    if let Some(failed) = &status.join_failures {
        let words = format!(
            "{} new members in a row did not make it, the last: {}",
            failed.count, failed.reason
        );
        lines.extend(wrapped("[!] ", &words));
    }
    lines
}

fn now_and_next(step: &StepStatus, now: Timestamp) -> Vec<String> {
    let member = step
        .member
        .as_ref()
        .map_or(String::new(), |name| format!(" {name}"));
    let parsed = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
    let since =
        parsed(&step.start_time).map_or(String::new(), |at| format!(", for {}", age(at, now)));
    let (mark, doing) = match step.state {
        StepState::Acting => ("[>] now        ", "acts"),
        StepState::Waiting => ("[.] now        ", "waits"),
    };
    let words = format!("{}{member}: {doing} ({}){since}", step.action, step.reason);
    let mut lines = wrapped(mark, &words);
    if let Some(waiting) = &step.waiting_for {
        lines.extend(wrapped("    waits for  ", waiting));
    }
    if let Some(deadline) = parsed(&step.deadline) {
        let words = if deadline > now {
            format!("in {} something else is done", age(now, deadline))
        } else {
            "its deadline has passed: the next reconcile does something else".to_owned()
        };
        lines.extend(wrapped("    at most    ", &words));
    }
    if let Some(next) = &step.next {
        lines.extend(wrapped("[ ] next       ", next));
    }
    lines
}

/// Events with their times, the oldest first.
pub(super) fn in_order(events: &[Event]) -> Vec<(Timestamp, &Event)> {
    let dated = events
        .iter()
        .filter_map(|event| Some((when(event)?, event)));
    let mut all: Vec<(Timestamp, &Event)> = dated.collect();
    all.sort_by_key(|(at, event)| (*at, event.metadata.name.clone()));
    all
}

fn when(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let at = series.map(|time| time.0).or(last);
    at.or_else(|| Some(event.event_time.as_ref()?.0))
}

/// Conditions; those that are not as they should be are marked: some are good when true, some when false.
fn conditions(conditions: &[Condition], now: Timestamp) -> Vec<String> {
    let mut rows = Vec::new();
    for condition in conditions {
        let good = match condition.type_.as_str() {
            "Degraded" | "Stalled" => "False",
            "Progressing" | "Following" => condition.status.as_str(), // neither is better
            _ => "True",
        };
        // Requested hibernation is not a problem.
        let hibernated = condition.reason == "Hibernated";
        let mark = if condition.status == good || hibernated {
            " "
        } else {
            "!"
        };
        let since = age(condition.last_transition_time.0, now);
        rows.push(vec![
            format!("{mark} {}", condition.type_),
            condition.status.clone(),
            since,
        ]);
    }
    let mut lines = vec!["CONDITIONS".to_owned()];
    let heads = table(&rows);
    let lengths = heads.iter().map(|head| head.chars().count());
    let longest = lengths.max().unwrap_or(0);
    let width = (longest + 1).max(26);
    for (head, condition) in heads.into_iter().zip(conditions) {
        let words = format!("{}: {}", condition.reason, condition.message);
        lines.extend(wrapped(&format!("{head:<width$}"), &words));
    }
    lines
}

/// A span as kubectl writes ages, in its two largest units at most.
pub(super) fn age(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
