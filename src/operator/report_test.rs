//! Status, conditions and events from one view.

use super::*;
use crate::crd::{StepState, StepStatus};
use crate::operator::testing::{observation_at, plan_of};
use crate::plan::{Fence, ObjectKey, ObjectKind, Progress, Step};
use crate::plan::{MemberAction, ObjectAction};

fn input(type_: ConditionType, status: ConditionStatus, message: &str) -> ConditionInput {
    ConditionInput {
        type_,
        status,
        reason: "Because",
        message: message.into(),
    }
}

fn promote() -> Action {
    let fence = Fence {
        configuration_index: 7,
        epoch: 1,
    };
    Action::Member(MemberAction::Promote {
        member: "demo-2".into(),
        id: 2,
        fence,
    })
}

fn step(action: Action) -> Step {
    Step {
        rule: crate::plan::Rule::Learner,
        action,
        reason: "it has caught up".into(),
    }
}

#[test]
fn at_rest_nothing_is_written_or_reported() {
    let mut plan = plan_of(vec![]);
    plan.conditions = vec![input(ConditionType::Ready, ConditionStatus::True, "3 of 3")];
    let mut seen = observation_at(10_000);
    let first = compose(&seen, plan.clone(), None, None);
    let written = first.status.expect("the first status is news");
    assert_eq!(first.events.len(), 1, "it became ready: {:?}", first.events);
    seen.status = written;
    seen.observed.now_ms = 99_000;
    let second = compose(&seen, plan, None, None);
    assert_eq!((second.status, second.events), (None, vec![]));
}

/// Each phase of a cluster that follows another one is an event once; a lag alone is written from time to time.
#[test]
fn phases_of_a_follower_are_events() {
    let following = |phase: FollowPhase, lag: i64| {
        let mut plan = plan_of(vec![]);
        plan.status.follow = Some(FollowStatus {
            phase,
            lag_revisions: Some(lag),
            ..FollowStatus::default()
        });
        let holds = (phase != FollowPhase::CutOver).into();
        plan.conditions = vec![input(ConditionType::Following, holds, phase.as_str())];
        plan
    };
    let mut seen = observation_at(10_000);
    let mut told = |phase, lag| {
        seen.status_age_ms = Some(1_000);
        let report = compose(&seen, following(phase, lag), None, None);
        let written = report.status.is_some();
        if let Some(status) = report.status {
            seen.status = status;
        }
        let events = report.events.into_iter();
        (
            written,
            events.map(|event| event.reason).collect::<Vec<_>>(),
        )
    };
    let event = |reason: &str| vec![reason.to_owned()];
    assert_eq!(told(FollowPhase::Seeding, 0), (true, event("Seeding")));
    assert_eq!(told(FollowPhase::Following, 9), (true, event("Following")));
    assert_eq!(told(FollowPhase::Following, 8), (false, vec![]));
    assert_eq!(told(FollowPhase::Frozen, 1), (true, event("Frozen")));
    assert_eq!(told(FollowPhase::CutOver, 0), (true, event("CutOver")));
    // One that was lost tells of no change.
    seen.status.follow = None;
    let report = compose(&seen, following(FollowPhase::CutOver, 0), None, None);
    assert_eq!(report.events, vec![]);
}

#[test]
fn a_condition_keeps_its_time_until_it_turns() {
    let mut plan = plan_of(vec![]);
    plan.conditions = vec![input(ConditionType::Ready, ConditionStatus::True, "3 of 3")];
    let mut seen = observation_at(10_000);
    seen.generation = 4;
    seen.status = compose(&seen, plan.clone(), None, None)
        .status
        .expect("news");
    seen.observed.now_ms = 20_000;
    plan.conditions[0].message = "2 of 2".into();
    seen.status = compose(&seen, plan.clone(), None, None)
        .status
        .expect("news");
    assert_eq!(seen.status.conditions[0].last_transition_time, time(10_000));
    assert_eq!(seen.status.conditions[0].observed_generation, Some(4));
    plan.conditions[0].status = ConditionStatus::False;
    let status = compose(&seen, plan, None, None).status.expect("news");
    assert_eq!(status.conditions[0].last_transition_time, time(20_000));
}

#[test]
fn executed_step_emits_one_event() {
    let report = compose(
        &observation_at(1),
        plan_of(vec![step(promote())]),
        Some(promote()),
        None,
    );
    let reported: Vec<_> = report
        .events
        .iter()
        .map(|e| (e.reason.as_str(), e.note.as_str()))
        .collect();
    assert_eq!(
        reported,
        [("MemberPromoted", "promote demo-2: it has caught up")]
    );
    let report = compose(
        &observation_at(1),
        plan_of(vec![step(promote())]),
        None,
        None,
    );
    assert_eq!(report.events, []);
}

#[test]
fn a_refusal_stalls_and_is_reported_once() {
    let mut plan = plan_of(vec![step(promote())]);
    plan.conditions = vec![
        input(ConditionType::Ready, ConditionStatus::False, "no"),
        input(ConditionType::Stalled, ConditionStatus::False, "no"),
    ];
    let refused = || {
        let why = "cannot apply demo-1: quota exceeded".into();
        Some(("apply demo-1".into(), Failure::Refused(why)))
    };
    let mut seen = observation_at(1);
    let report = compose(&seen, plan.clone(), None, refused());
    let status = report.status.expect("news");
    let stalled = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Stalled")
        .expect("there");
    assert_eq!(
        (stalled.status.as_str(), stalled.reason.as_str()),
        ("True", "Refused")
    );
    assert_eq!(
        status.summary.as_deref(),
        Some("cannot apply demo-1: quota exceeded")
    );
    let reported: Vec<_> = report
        .events
        .iter()
        .map(|e| (e.severity, e.reason.as_str()))
        .collect();
    assert_eq!(reported, [(Severity::Warning, "Refused")]);
    seen.status = status;
    let again = compose(&seen, plan, None, refused());
    assert_eq!((again.status, again.events), (None, vec![]));
}

#[test]
fn temporary_failure_is_the_reason_for_waiting() {
    let mut plan = plan_of(vec![step(promote())]);
    plan.status.step = Some(StepStatus {
        action: "Promote".into(),
        member: Some("demo-2".into()),
        state: StepState::Acting,
        reason: "CaughtUp".into(),
        waiting_for: None,
        next: None,
        start_time: None,
        deadline: None,
    });
    let failure = Failure::Retry("promote demo-2: no answer".into());
    let failed = Some(("promote demo-2".to_owned(), failure));
    let status = compose(&observation_at(1), plan, None, failed)
        .status
        .expect("news");
    let waiting = status.step.and_then(|step| step.waiting_for);
    assert_eq!(waiting.as_deref(), Some("promote demo-2: no answer"));
}

/// An admission webhook that was dead for hours was not visible: each reconcile failed, and the status stayed as it
/// was.
#[test]
fn failing_writes_are_reported_until_done() {
    let plan = || {
        let mut plan = plan_of(vec![step(promote())]);
        plan.conditions = vec![input(ConditionType::Stalled, ConditionStatus::False, "no")];
        plan
    };
    let failed = || {
        let why = Failure::Retry("cannot promote: 500".into());
        Some((promote().to_string(), why))
    };
    let stalled = |status: &EtcdClusterStatus| status.conditions[0].reason.clone();
    let no = "Because";
    let mut seen = observation_at(10_000);
    let first = compose(&seen, plan(), None, failed()).status.expect("news");
    assert_eq!(stalled(&first), no, "it may pass");
    seen.status = first;
    seen.observed.now_ms += FAILS_MS - 1;
    assert_eq!(compose(&seen, plan(), None, failed()).status, None);
    seen.observed.now_ms += 1;
    let report = compose(&seen, plan(), None, failed());
    assert_eq!(report.events.len(), 1);
    assert_eq!(stalled(&report.status.expect("news")), ACT_FAILS);
    // Another step came first, and this one is still wanted.
    let mut other = plan();
    other.steps.insert(
        0,
        step(Action::Object(ObjectAction::ApplyObject(ObjectKey {
            kind: ObjectKind::Service,
            name: "demo-client".into(),
        }))),
    );
    let acted = other.steps[0].action.clone();
    let kept = compose(&seen, other, Some(acted), None)
        .status
        .expect("news");
    assert!(kept.failing.is_some());
    let done = compose(&seen, plan(), Some(promote()), None)
        .status
        .expect("news");
    assert_eq!(
        (done.failing.is_none(), stalled(&done).as_str()),
        (true, no)
    );
}

/// Notes of a plan were dropped: that a PVC in use was deleted, or that a learner is not ours, was in no status and in
/// no event.
#[test]
fn a_note_is_in_the_status_and_reported_once() {
    let mut plan = plan_of(vec![]);
    plan.status.notes = vec![crate::crd::NoteStatus {
        reason: "PVCDeleted".into(),
        message: "PVC data-demo-2 was deleted while in use".into(),
    }];
    let mut seen = observation_at(1);
    let report = compose(&seen, plan.clone(), None, None);
    let reported: Vec<_> = report.events.iter().map(|e| e.reason.as_str()).collect();
    assert_eq!(reported, ["PVCDeleted"]);
    seen.status = report.status.expect("news");
    assert_eq!(seen.status.notes, plan.status.notes);
    let again = compose(&seen, plan, None, None);
    assert_eq!((again.status, again.events), (None, vec![]));
}

#[test]
fn lag_alone_is_written_each_five_seconds() {
    let mut plan = plan_of(vec![]);
    plan.summary = "demo-2 lacks 900 entries".into();
    plan.status.summary = Some(plan.summary.clone());
    let mut seen = observation_at(1);
    seen.status = compose(&seen, plan.clone(), None, None)
        .status
        .expect("news");
    plan.status.summary = Some("demo-2 lacks 400 entries".into());
    seen.status_age_ms = Some(LAG_MS - 1);
    assert_eq!(compose(&seen, plan.clone(), None, None).status, None);
    seen.status_age_ms = Some(LAG_MS);
    assert!(compose(&seen, plan.clone(), None, None).status.is_some());
    seen.status_age_ms = Some(1);
    plan.status.leader = Some("demo-1".into());
    assert!(
        compose(&seen, plan, None, None).status.is_some(),
        "anything else is written at once"
    );
}

#[test]
fn notes_fit_what_the_api_server_takes() {
    let text = "é".repeat(900);
    let note = cut(&text);
    assert!(
        note.len() <= NOTE_MAX && note.ends_with("é..."),
        "{}",
        note.len()
    );
    assert_eq!(cut("short"), "short");
}

#[test]
fn stuck_drain_is_reported_once() {
    let mut plan = plan_of(vec![]);
    plan.progress = Some(Progress {
        action: "Move",
        member: Some("demo-2".into()),
        state: StepState::Waiting,
        reason: "NoSpareNode",
        waiting_for: Some("a node for demo-2".into()),
        since_ms: 10_000,
        deadline_ms: None,
    });
    let mut seen = observation_at(10_000);
    let report = compose(&seen, plan.clone(), None, None);
    let reported: Vec<_> = (report.events.iter())
        .map(|event| (event.severity, event.reason.as_str(), event.note.as_str()))
        .collect();
    let wanted = (
        Severity::Warning,
        "NoSpareNode",
        "waiting for a node for demo-2",
    );
    assert_eq!(reported, [wanted]);
    seen.status.step = Some(StepStatus {
        action: "Move".into(),
        member: Some("demo-2".into()),
        state: StepState::Waiting,
        reason: "NoSpareNode".into(),
        waiting_for: None,
        next: None,
        start_time: None,
        deadline: None,
    });
    assert_eq!(compose(&seen, plan, None, None).events, []);
}
