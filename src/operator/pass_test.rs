//! One pass as a value: what it asks for, in which order, and what it reports.

use super::*;
use crate::operator::testing::{plan_of, seen_at};
use crate::plan::{Latch, ObjectKey, ObjectKind, Owner, Step};

/// Wants a latch, then nothing; the nonce is the entropy.
fn latch_first(observed: &Observed) -> Plan {
    let step = Step {
        rule: 5,
        action: Action::CreateLatch {
            seed: "demo-1".into(),
            nonce: observed.entropy.clone(),
            incarnation: 1,
        },
        reason: "nothing is there".into(),
    };
    plan_of(if observed.latch.is_none() {
        vec![step]
    } else {
        vec![]
    })
}

fn service() -> Action {
    Action::ApplyObject(ObjectKey {
        kind: ObjectKind::Service,
        name: "demo-client".into(),
    })
}

fn service_first(_: &Observed) -> Plan {
    plan_of(vec![Step {
        rule: 3,
        action: service(),
        reason: "it is missing".into(),
    }])
}

fn clean(_: &Observed, _: &Plan) -> Vec<String> {
    vec![]
}

fn dirty(_: &Observed, _: &Plan) -> Vec<String> {
    vec!["two voter changes in flight".into()]
}

const LATCH: Rules = Rules {
    plan: latch_first,
    lint: clean,
};

fn seen() -> Answer {
    Answer::Seen(Ok(Some(Box::new(seen_at(1)))))
}

fn latched() -> Answer {
    let mut seen = seen_at(1);
    seen.observed.latch = Some(Latch {
        owner: Owner::Ours,
        terminating: false,
        cluster_uid: "u".into(),
        incarnation: 1,
        seed: "demo-1".into(),
        nonce: "n".into(),
    });
    Answer::Seen(Ok(Some(Box::new(seen))))
}

fn report(need: Need) -> Box<Report> {
    match need {
        Need::Report(report) => report,
        other => panic!("expected a report, not {other:?}"),
    }
}

fn end(need: &Need) -> Ended {
    match need {
        Need::End(ended) => *ended,
        other => panic!("expected the end, not {other:?}"),
    }
}

#[test]
fn a_step_is_planned_again_on_a_live_look_and_then_executed() {
    let (mut pass, first) = Pass::begin(LATCH);
    assert!(matches!(first, Need::Observe(Look::Cached)));
    assert!(matches!(pass.answer(seen()), Need::Observe(Look::Live)));
    let Need::Act(act) = pass.answer(seen()) else {
        panic!("it acts")
    };
    assert_eq!(act.action.word(), "CreateLatch");
    let report = report(pass.answer(Answer::Acted(Ok(()))));
    assert_eq!(report.acted, Some(act.action));
    assert_eq!(
        end(&pass.answer(Answer::Reported(Ok(())))),
        Ended::After(SOON_MS)
    );
}

#[test]
fn calls_go_to_the_leader_of_the_highest_term() {
    let looked = || {
        let mut seen = seen_at(1);
        for (name, term, leads) in [
            ("demo-1", 4, true),
            ("demo-2", 6, true),
            ("demo-3", 7, false),
        ] {
            let said = crate::plan::Description {
                term,
                leads,
                ..Default::default()
            };
            seen.observed.descriptions.insert(name.into(), said);
        }
        Answer::Seen(Ok(Some(Box::new(seen))))
    };
    let (mut pass, _) = Pass::begin(LATCH);
    pass.answer(looked());
    let Need::Act(act) = pass.answer(looked()) else {
        panic!("it acts")
    };
    assert_eq!(act.leader.as_deref(), Some("demo-2"));
}

#[test]
fn what_the_live_look_shows_as_done_is_not_done_again() {
    let (mut pass, _) = Pass::begin(LATCH);
    pass.answer(seen());
    let report = report(pass.answer(latched()));
    assert_eq!((&report.acted, &report.failure), (&None, &None));
    assert_eq!(
        end(&pass.answer(Answer::Reported(Ok(())))),
        Ended::After(10_000)
    );
}

#[test]
fn another_first_step_on_the_live_look_is_left_to_the_next_pass() {
    let (mut pass, _) = Pass::begin(LATCH);
    pass.answer(seen());
    let mut other = seen_at(1);
    other.observed.entropy = "another nonce".into();
    let report = report(pass.answer(Answer::Seen(Ok(Some(Box::new(other))))));
    assert_eq!((&report.acted, &report.failure), (&None, &None));
    assert_eq!(
        end(&pass.answer(Answer::Reported(Ok(())))),
        Ended::After(OVERTAKEN_MS)
    );
}

#[test]
fn a_rendering_needs_no_second_look() {
    let (mut pass, _) = Pass::begin(Rules {
        plan: service_first,
        lint: clean,
    });
    let Need::Act(act) = pass.answer(seen()) else {
        panic!("it acts")
    };
    assert_eq!(act.action, service());
}

/// A label of the client Service that Kubernetes refuses was the first step of every plan, and the
/// only one that was tried: no member was healed, added or restarted until somebody corrected it.
#[test]
fn a_refused_rendering_holds_nothing_up() {
    holds_nothing_up(&Failure::Refused("no label".into()));
}

/// The same with an admission webhook that does not answer: one HTTP 500 was enough.
#[test]
fn a_rendering_that_fails_holds_nothing_up() {
    holds_nothing_up(&Failure::Retry("cannot apply demo-client: 500".into()));
}

/// While a pod that should stay may be evicted, no other one is taken; whoever is dead still leaves.
#[test]
fn a_gate_that_cannot_be_closed_keeps_the_other_pods() {
    fn hold_then_more(_: &Observed) -> Plan {
        let (member, uid) = ("demo-2".to_owned(), "p2".to_owned());
        let fence = crate::plan::Fence {
            configuration_index: 1,
            epoch: 1,
        };
        let actions = [
            Action::HoldPod {
                member: "demo-1".into(),
                uid: "p1".into(),
            },
            Action::DeletePod {
                member: member.clone(),
                uid,
            },
            Action::Remove {
                member,
                id: 2,
                fence,
            },
        ];
        let step = |action| Step {
            rule: 14,
            action,
            reason: String::new(),
        };
        plan_of(actions.map(step).into())
    }
    let rules = Rules {
        plan: hold_then_more,
        lint: clean,
    };
    let (mut pass, _) = Pass::begin(rules);
    pass.answer(seen());
    assert!(matches!(pass.answer(seen()), Need::Act(_)));
    let failed = Answer::Acted(Err(Failure::Retry("500".into())));
    assert!(matches!(pass.answer(failed), Need::Observe(Look::Live)));
    let Need::Act(act) = pass.answer(seen()) else {
        panic!("it goes on")
    };
    assert_eq!(act.action.word(), "Remove");
}

fn holds_nothing_up(failure: &Failure) {
    fn service_then_latch(observed: &Observed) -> Plan {
        let mut plan = service_first(observed);
        plan.steps.extend(latch_first(observed).steps);
        plan
    }
    let rules = Rules {
        plan: service_then_latch,
        lint: clean,
    };
    let refused = || Answer::Acted(Err(failure.clone()));
    let (mut pass, _) = Pass::begin(rules);
    assert!(matches!(pass.answer(seen()), Need::Act(act) if act.action == service()));
    assert!(matches!(pass.answer(refused()), Need::Observe(Look::Live)));
    let Need::Act(act) = pass.answer(seen()) else {
        panic!("it goes on")
    };
    assert_eq!(act.action.word(), "CreateLatch");
    let said = report(pass.answer(Answer::Acted(Ok(()))));
    assert_eq!(said.acted, Some(act.action));
    assert_eq!(said.failure, Some(failure.clone()));
    let next = pass.answer(Answer::Reported(Ok(())));
    assert_eq!(end(&next), Ended::After(SOON_MS));
    // With nothing else to do it waits longer each time, as after any failure.
    let (mut pass, _) = Pass::begin(rules);
    pass.answer(latched());
    let said = report(pass.answer(refused()));
    assert_eq!(said.failure, Some(failure.clone()));
    assert_eq!(end(&pass.answer(Answer::Reported(Ok(())))), Ended::Failed);
}

fn disarm() -> Action {
    let fence = crate::plan::Fence {
        configuration_index: 1,
        epoch: 1,
    };
    Action::Disarm {
        kind: crate::plan::AlarmKind::NoSpace,
        member: "demo-2".into(),
        id: 2,
        fence,
    }
}

/// Wants NOSPACE off, as its first step on this entropy only, and has the status of a plan whose first step is done.
fn disarm_on(observed: &Observed, entropy: &str, first: &Plan) -> Plan {
    let mut plan = first.clone();
    if observed.entropy == entropy {
        plan.steps.clear();
        plan.status.disarms = Some(crate::crd::Disarms {
            count: 8,
            last_time: "1970-01-01T00:00:00Z".into(),
            member_id: "2".into(),
        });
    }
    plan.steps.push(Step {
        rule: 8,
        action: disarm(),
        reason: "every member has space again".into(),
    });
    plan
}

/// A disarm that failed counted as done, as did one that only a live look wanted: the pauses grew to half an
/// hour, and the status said that an alarm came on again which had never been off. One that was done after
/// another step had failed did not count, and was followed by no pause.
#[test]
fn only_a_disarm_that_was_done_counts() {
    fn disarm_or_latch(observed: &Observed) -> Plan {
        disarm_on(observed, "disarm", &latch_first(observed))
    }
    fn disarm_or_service(observed: &Observed) -> Plan {
        disarm_on(observed, "disarm", &service_first(observed))
    }
    let known = crate::plan::Disarms {
        count: 3,
        last_ms: 0,
        member: 2,
    };
    let look = |entropy: &str| {
        let mut seen = seen_at(600_000);
        seen.observed.entropy = entropy.into();
        seen.observed.hints.disarms = Some(known);
        Answer::Seen(Ok(Some(Box::new(seen))))
    };
    let begin = |plan| Pass::begin(Rules { plan, lint: clean }).0;
    let counted = |need: Need| {
        let said = report(need);
        let status = said.status.expect("the first status is news");
        (said.acted, status.disarms.map(|disarms| disarms.count))
    };
    let acts = |need: Need| matches!(need, Need::Act(act) if act.action == disarm());

    let mut pass = begin(disarm_or_latch);
    pass.answer(look("disarm"));
    assert!(acts(pass.answer(look("disarm"))));
    let done = pass.answer(Answer::Acted(Ok(())));
    assert_eq!(counted(done), (Some(disarm()), Some(4)), "the control");

    for failure in [
        Failure::Changed("not leader".into()),
        Failure::Retry("500".into()),
    ] {
        let mut pass = begin(disarm_or_latch);
        pass.answer(look("disarm"));
        assert!(acts(pass.answer(look("disarm"))));
        let failed = pass.answer(Answer::Acted(Err(failure)));
        assert_eq!(counted(failed), (None, Some(3)));
    }

    let mut pass = begin(disarm_or_latch);
    pass.answer(look("latch"));
    let overtaken = pass.answer(look("disarm"));
    assert_eq!(counted(overtaken), (None, Some(3)));

    let mut pass = begin(disarm_or_service);
    pass.answer(look("service"));
    let refused = Answer::Acted(Err(Failure::Refused("no label".into())));
    assert!(matches!(pass.answer(refused), Need::Observe(Look::Live)));
    assert!(acts(pass.answer(look("service"))));
    let done = pass.answer(Answer::Acted(Ok(())));
    assert_eq!(counted(done), (Some(disarm()), Some(4)));
}

#[test]
fn a_plan_that_breaks_a_rule_is_not_executed() {
    let (mut pass, _) = Pass::begin(Rules {
        plan: service_first,
        lint: dirty,
    });
    let report = report(pass.answer(seen()));
    let failure = report
        .failure
        .map(|failure| failure.to_string())
        .unwrap_or_default();
    assert!(failure.contains("two voter changes in flight"), "{failure}");
    assert_eq!(end(&pass.answer(Answer::Reported(Ok(())))), Ended::Failed);
}

#[test]
fn failures_decide_when_the_next_pass_comes() {
    let terminating = Failure::Terminating {
        kind: "Service".into(),
        name: "demo".into(),
    };
    for (failure, expected) in [
        (Failure::Changed(String::new()), Ended::After(OVERTAKEN_MS)),
        (terminating, Ended::After(TERMINATING_MS)),
        (Failure::Refused(String::new()), Ended::Failed),
        (Failure::Retry(String::new()), Ended::Failed),
    ] {
        let (mut pass, _) = Pass::begin(Rules {
            plan: service_first,
            lint: clean,
        });
        pass.answer(seen());
        report(pass.answer(Answer::Acted(Err(failure))));
        assert_eq!(end(&pass.answer(Answer::Reported(Ok(())))), expected);
    }
}

#[test]
fn a_failed_look_or_report_is_tried_again_and_a_gone_resource_forgotten() {
    let failed = || Failure::Retry("no answer".into());
    let (mut pass, _) = Pass::begin(LATCH);
    assert_eq!(
        end(&pass.answer(Answer::Seen(Err(failed())))),
        Ended::Failed
    );
    let (mut pass, _) = Pass::begin(LATCH);
    assert_eq!(end(&pass.answer(Answer::Seen(Ok(None)))), Ended::Gone);
    let (mut pass, _) = Pass::begin(LATCH);
    report(pass.answer(latched()));
    assert_eq!(
        end(&pass.answer(Answer::Reported(Err(failed())))),
        Ended::Failed
    );
}
