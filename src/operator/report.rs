//! The results of a reconcile: the status with its conditions, and the events for the user. Computed from the same view
//! as the plan. At rest nothing changes, so nothing is written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::platform::{Event, Failure, Observation, Report, Severity};
use crate::crd::{
    ConditionStatus, ConditionType, EtcdClusterStatus, FailingAct, FollowPhase, FollowStatus,
    NoteStatus,
};
use crate::plan::{Action, ConditionInput, Plan};

/// A lag alone is written at most this often.
const LAG_MS: u64 = 5_000;
/// The API server refuses longer notes.
const NOTE_MAX: usize = 1_000;
/// A write that fails for so long is no passing fault.
const FAILS_MS: u64 = 60_000;
/// Reason of a write that fails again and again.
const ACT_FAILS: &str = "ActFails";
/// Reason of what the platform refuses.
const REFUSED: &str = "Refused";
/// Reason for an object that belongs to another owner.
const NAME_CONFLICT: &str = "NameConflict";

/// Reason of notes about deletions.
const LEAVING: &str = "Leaving";
/// Reason of a member that has to leave its node and has nowhere to go.
const NO_SPARE_NODE: &str = "NoSpareNode";
/// Reason for a drained node that still accepts new pods.
const NOT_CORDONED: &str = "NotCordoned";

/// Composes the report of a reconcile.
///
/// `failed`: the action that failed, in words, and why.
pub fn compose(
    seen: &Observation,
    plan: Plan,
    acted: Option<Action>,
    failed: Option<(String, Failure)>,
) -> Report {
    let status = status(seen, &plan, acted.as_ref(), failed.as_ref());
    let failure = failed.map(|(_, failure)| failure);
    let events = events(seen, &plan, acted.as_ref(), failure.as_ref(), &status);
    let status = is_news(&seen.status, &status, seen.status_age_ms).then_some(status);
    Report {
        plan,
        acted,
        failure,
        status,
        events,
    }
}

/// The status for this view and outcome.
fn status(
    seen: &Observation,
    plan: &Plan,
    acted: Option<&Action>,
    failed: Option<&(String, Failure)>,
) -> EtcdClusterStatus {
    let mut status = plan.status.clone();
    let failure = failed.map(|(_, failure)| failure);
    status.observed_generation = Some(seen.generation);
    status.failing = failing(seen, plan, acted, failed);
    counted(&mut status, crate::plan::plan_after(&seen.observed, acted));
    let mut inputs = plan.conditions.clone();
    if let Some((reason, text)) = failure.and_then(|failure| stalls(seen, failure)) {
        overlay(&mut inputs, reason, &text);
        status.summary = Some(text);
    } else if let Some(text) = status.failing.as_ref().and_then(|one| lasts(seen, one)) {
        // Beside what is stalled for a better known reason, this is in the status alone.
        let stalled = |input: &ConditionInput| {
            input.type_ == ConditionType::Stalled && input.status == ConditionStatus::True
        };
        if !inputs.iter().any(stalled) {
            overlay(&mut inputs, ACT_FAILS, &text);
        }
    }
    if let (Some(Failure::Retry(text)), Some(step), None) = (failure, &mut status.step, acted) {
        step.waiting_for = Some(cut(text));
    }
    let now = time(seen.observed.now_ms);
    let condition = |input: &ConditionInput| condition(input, &seen.status, seen.generation, &now);
    status.conditions = inputs.iter().map(condition).collect();
    status
}

/// Counts what was done. The plan's own status is that of a first step that is done: it may have failed, or
/// another one was done.
fn counted(status: &mut EtcdClusterStatus, after: Plan) {
    status.disarms = after.status.disarms;
    status.join_failures = after.status.join_failures;
    for row in &mut status.members {
        let mut rows = after.status.members.iter();
        let same = rows.find(|same| same.name == row.name);
        row.restarts = same.and_then(|same| same.restarts);
    }
}

/// The write that fails: this one, or one that failed before and was not tried again, because
/// another step came first. One that is done, or not wanted any more, is forgotten.
fn failing(
    seen: &Observation,
    plan: &Plan,
    acted: Option<&Action>,
    failed: Option<&(String, Failure)>,
) -> Option<FailingAct> {
    let before = seen.status.failing.as_ref();
    if let Some((action, Failure::Retry(text))) = failed {
        let known = before.filter(|before| before.action == *action);
        let now = time(seen.observed.now_ms).0.to_string();
        return Some(FailingAct {
            action: action.clone(),
            message: cut(text),
            start_time: known.map_or(now, |known| known.start_time.clone()),
        });
    }
    let before = before?;
    let mut steps = plan.steps.iter().map(|step| step.action.to_string());
    let done = acted.is_some_and(|acted| acted.to_string() == before.action);
    (failed.is_none() && !done && steps.any(|step| step == before.action)).then(|| before.clone())
}

/// The message for a write that has failed for longer than a transient error lasts.
fn lasts(seen: &Observation, failing: &FailingAct) -> Option<String> {
    let since: Timestamp = failing.start_time.parse().ok()?;
    let since = u64::try_from(since.as_millisecond()).ok()?;
    let FailingAct {
        action, message, ..
    } = failing;
    // Without the seconds: the status would change in each reconcile.
    let text = format!(
        "{action} fails again and again: {message}. It is retried; steps that do not depend on it continue"
    );
    (seen.observed.now_ms.saturating_sub(since) >= FAILS_MS).then(|| cut(&text))
}

/// What only a person can resolve. A refusal of the specification that is about this failure has it in its words.
fn stalls(seen: &Observation, failure: &Failure) -> Option<(&'static str, String)> {
    let refused = seen.observed.refused.as_ref();
    match failure {
        Failure::Refused(text) if refused.is_some_and(|it| it.text.contains(text)) => None,
        Failure::NameConflict { .. } => Some((NAME_CONFLICT, cut(&failure.to_string()))),
        Failure::Refused(text) => Some((REFUSED, cut(text))),
        Failure::Changed(_) | Failure::Terminating { .. } | Failure::Retry(_) => None,
    }
}

fn overlay(inputs: &mut Vec<ConditionInput>, reason: &'static str, text: &str) {
    inputs.retain(|input| input.type_ != ConditionType::Stalled);
    inputs.push(ConditionInput {
        type_: ConditionType::Stalled,
        status: ConditionStatus::True,
        reason,
        message: text.to_owned(),
    });
    inputs.sort_by_key(|input| input.type_);
}

fn condition(
    input: &ConditionInput,
    previous: &EtcdClusterStatus,
    generation: i64,
    now: &Time,
) -> Condition {
    let (type_, status) = (input.type_.as_str(), input.status.as_str());
    let before = previous
        .conditions
        .iter()
        .find(|before| before.type_ == type_);
    let since = before.filter(|before| before.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: input.reason.to_owned(),
        message: input.message.clone(),
        observed_generation: Some(generation),
        last_transition_time: since.map_or_else(|| now.clone(), |c| c.last_transition_time.clone()),
    }
}

fn time(ms: u64) -> Time {
    let ms = i64::try_from(ms).unwrap_or(0);
    // Seconds, as the API server stores them: what is read back equals what was written.
    Time(Timestamp::from_second(ms / 1000).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Whether the new status differs from the stored one; a changed lag alone only from time to time.
fn is_news(stored: &EtcdClusterStatus, new: &EtcdClusterStatus, age_ms: Option<u64>) -> bool {
    if stored == new {
        return false;
    }
    let lag_is_due = age_ms.is_none_or(|age| age >= LAG_MS);
    lag_is_due || without_lag(stored) != without_lag(new)
}

/// The status without what changes all the time while a learner catches up, or another cluster is followed.
fn without_lag(status: &EtcdClusterStatus) -> EtcdClusterStatus {
    let mut status = status.clone();
    for member in &mut status.members {
        member.lag_entries = None;
    }
    if let Some(restore) = &mut status.restore {
        restore.message = None;
        restore.received_bytes = None;
        restore.expected_end_time = None;
    }
    if let Some(follow) = &mut status.follow {
        *follow = FollowStatus {
            revision: None,
            source_revision: None,
            lag_revisions: None,
            as_of: None,
            lag_seconds: None,
            message: None,
            ..follow.clone()
        };
    }
    // The message contains the lag as well.
    status.summary = None;
    if let Some(step) = &mut status.step {
        step.waiting_for = None;
    }
    for condition in &mut status.conditions {
        condition.message.clear();
    }
    status
}

fn events(
    seen: &Observation,
    plan: &Plan,
    acted: Option<&Action>,
    failure: Option<&Failure>,
    status: &EtcdClusterStatus,
) -> Vec<Event> {
    let mut events = Vec::new();
    let step = plan.first();
    let word = step.map_or("Observe", |step| step.action.word());
    if let (Some(action), Some(step)) = (acted, step)
        && let Some(reason) = action.event_reason()
    {
        let note = cut(&format!("{action}: {}", step.reason));
        events.push(event(Severity::Normal, reason, word, note));
    }
    if let Some((reason, text)) = failure.and_then(|failure| stalls(seen, failure)) {
        let news = !seen
            .status
            .conditions
            .iter()
            .any(|c| c.reason == reason && c.message == text);
        if news {
            events.push(event(Severity::Warning, reason, word, text));
        }
    }
    // A note becomes an event when it is new; deletions are reported by the steps.
    let known = |note: &NoteStatus| seen.status.notes.contains(note);
    let new = status.notes.iter().filter(|note| !known(note));
    for note in new.filter(|note| note.reason != LEAVING) {
        events.push(event(
            Severity::Normal,
            &note.reason,
            word,
            cut(&note.message),
        ));
    }
    events.extend(followed(seen, status, word));
    if let Some(event) = held_drain(seen, plan) {
        events.push(event);
    }
    for new in &status.conditions {
        let before = seen
            .status
            .conditions
            .iter()
            .find(|before| before.type_ == new.type_);
        let (Some(severity), true) = (
            turned(new, before),
            before.is_none_or(|before| before.status != new.status),
        ) else {
            continue;
        };
        let reported = events.iter().any(|event| event.note == new.message);
        if !reported {
            let reason = condition_reason(new);
            events.push(event(severity, &reason, word, cut(&new.message)));
        }
    }
    events
}

/// Each phase of a cluster that follows another one, when it begins.
fn followed(seen: &Observation, status: &EtcdClusterStatus, word: &str) -> Option<Event> {
    let phase = status.follow.as_ref()?.phase;
    // A status that was lost tells of no change.
    let before = seen.status.follow.as_ref();
    let is_news = before.map_or(phase == FollowPhase::Seeding, |it| it.phase != phase);
    let following = ConditionType::Following.as_str();
    let condition = status.conditions.iter().find(|it| it.type_ == following)?;
    let note = cut(&condition.message);
    is_news.then(|| event(Severity::Normal, phase.as_str(), word, note))
}

/// A drained node that a member cannot leave: reported once, to the user who drains it.
fn held_drain(seen: &Observation, plan: &Plan) -> Option<Event> {
    let progress = plan.progress.as_ref()?;
    let held = matches!(progress.reason, NO_SPARE_NODE | NOT_CORDONED);
    let before = seen.status.step.as_ref();
    let known =
        before.is_some_and(|step| step.reason == progress.reason && step.member == progress.member);
    let text = progress.waiting_for.as_deref().filter(|_| held && !known)?;
    let note = cut(&format!("waiting for {text}"));
    Some(event(
        Severity::Warning,
        progress.reason,
        progress.action,
        note,
    ))
}

/// Whether this turn of a condition is worth an event, and how bad it is.
fn turned(new: &Condition, before: Option<&Condition>) -> Option<Severity> {
    match (new.type_.as_str(), new.status.as_str()) {
        ("Ready" | "Quorate", "True") => Some(Severity::Normal),
        // A cluster that is only being made was not quorate before either.
        ("Quorate", "False") if new.reason.starts_with("Hibernat") => None, // as asked for
        ("Quorate", _) => before
            .filter(|before| before.status == "True")
            .map(|_| Severity::Warning),
        // The steps that assign slots report themselves.
        ("Degraded", "True") if new.reason == "TooFewMembers" => None,
        ("Degraded" | "Stalled", "True") => Some(Severity::Warning),
        // One that is only being made is no news.
        ("TLSReady", "False") if new.reason != "NotIssued" => Some(Severity::Warning),
        ("Durable", "False") => Some(Severity::Warning),
        ("Degraded" | "Stalled", "False") => before
            .filter(|before| before.status == "True")
            .map(|_| Severity::Normal),
        _ => None,
    }
}

fn condition_reason(condition: &Condition) -> String {
    match condition.status.as_str() {
        "True" => condition.type_.clone(),
        _ => format!("Not{}", condition.type_),
    }
}

fn event(severity: Severity, reason: &str, action: &str, note: String) -> Event {
    Event {
        severity,
        reason: reason.to_owned(),
        action: action.to_owned(),
        note,
    }
}

/// Truncated to the API server's limit, at a character boundary.
fn cut(text: &str) -> String {
    if text.len() <= NOTE_MAX {
        return text.to_owned();
    }
    let mut end = NOTE_MAX - 3;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
