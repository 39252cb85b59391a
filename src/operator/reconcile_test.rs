//! One reconcile on a scripted platform: its requests, their order, and its report.

use crate::plan::{MemberAction, ObjectAction};
use std::collections::VecDeque;

use futures::FutureExt as _;

use super::*;
use crate::operator::platform::Report;
use crate::operator::testing::{observation_at, plan_of};
use crate::plan::{
    AlarmKind, Fence, IdentitySecret, ObjectKey, ObjectKind, Owner, Rule, SpecFacts, Step,
};

/// Answers from a script, and records the requests.
#[derive(Default)]
struct Scripted {
    observations: VecDeque<Result<Option<Observation>, Failure>>,
    outcomes: VecDeque<Result<(), Failure>>,
    written: Option<Failure>,
    observed: Vec<Freshness>,
    by: Vec<Specification>,
    acts: Vec<Act>,
    reports: Vec<Report>,
}

impl Scripted {
    fn new<const N: usize>(observations: [Observation; N]) -> Self {
        Self {
            observations: observations.into_iter().map(|one| Ok(Some(one))).collect(),
            ..Self::default()
        }
    }

    /// What acts come to, in turn; those after them succeed.
    fn fails<const N: usize>(mut self, outcomes: [Failure; N]) -> Self {
        self.outcomes = outcomes.into_iter().map(Err).collect();
        self
    }

    fn reconcile(&mut self, plan: fn(&Observed) -> Plan, lint: Lint) -> Ended {
        let ended = reconcile(self, Rules { plan, lint }, "entropy").now_or_never();
        ended.expect("the script waits for nothing")
    }

    fn words(&self) -> Vec<&'static str> {
        self.acts.iter().map(|act| act.action.word()).collect()
    }

    /// The one report.
    fn report(&self) -> &Report {
        assert_eq!(self.reports.len(), 1);
        &self.reports[0]
    }
}

impl Platform for Scripted {
    async fn observe(
        &mut self,
        freshness: Freshness,
        _: &str,
        by: Specification,
    ) -> Result<Option<Observation>, Failure> {
        self.observed.push(freshness);
        self.by.push(by);
        self.observations.pop_front().expect("an observation more")
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        self.acts.push(act.clone());
        self.outcomes.pop_front().unwrap_or(Ok(()))
    }

    async fn report(&mut self, report: &Report) -> Result<(), Failure> {
        self.reports.push(report.clone());
        self.written.take().map_or(Ok(()), Err)
    }
}

type Lint = fn(&Observed, &Plan) -> Vec<String>;

fn clean(_: &Observed, _: &Plan) -> Vec<String> {
    vec![]
}

fn dirty(_: &Observed, _: &Plan) -> Vec<String> {
    vec!["two voter changes in flight".into()]
}

fn step(rule: Rule, action: Action) -> Step {
    Step {
        rule,
        action,
        reason: "it is missing".into(),
    }
}

const FENCE: Fence = Fence {
    configuration_index: 1,
    epoch: 1,
};

/// Wants an identity Secret, then nothing; the nonce is the entropy.
fn identity_secret_first(observed: &Observed) -> Plan {
    let action = Action::Object(ObjectAction::CreateIdentitySecret {
        seed: "demo-1".into(),
        nonce: observed.entropy.clone(),
        incarnation: 1,
    });
    match observed.identity_secret {
        None => plan_of(vec![step(Rule::Bootstrap, action)]),
        Some(_) => plan_of(vec![]),
    }
}

fn service() -> Action {
    Action::Object(ObjectAction::ApplyObject(ObjectKey {
        kind: ObjectKind::Service,
        name: "demo-client".into(),
    }))
}

fn service_first(_: &Observed) -> Plan {
    plan_of(vec![step(Rule::Objects, service())])
}

fn service_then_identity_secret(observed: &Observed) -> Plan {
    let mut plan = service_first(observed);
    plan.steps.extend(identity_secret_first(observed).steps);
    plan
}

fn fresh() -> Observation {
    observation_at(1)
}

fn with_identity() -> Observation {
    let mut observation = fresh();
    observation.observed.identity_secret = Some(IdentitySecret {
        owner: Owner::Ours,
        terminating: false,
        cluster_uid: "u".into(),
        incarnation: 1,
        seed: "demo-1".into(),
        nonce: "n".into(),
    });
    observation
}

fn with_entropy(entropy: &str) -> Observation {
    let mut observation = fresh();
    observation.observed.entropy = entropy.into();
    observation
}

#[test]
fn step_is_planned_again_on_a_live_read() {
    let mut platform = Scripted::new([fresh(), fresh()]);
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!(platform.observed, [Freshness::Cached, Freshness::Live]);
    assert_eq!(platform.words(), ["CreateIdentitySecret"]);
    let acted = platform.report().acted.as_ref();
    assert_eq!(acted, Some(&platform.acts[0].action));
    assert_eq!(ended, Ended::After(SOON_MS));
}

#[test]
fn calls_go_to_the_leader_of_the_highest_term() {
    let observation = || {
        let mut observation = fresh();
        for (name, term, leads) in [
            ("demo-1", 4, true),
            ("demo-2", 6, true),
            ("demo-3", 7, false),
        ] {
            let description = crate::plan::Description {
                term,
                leads,
                ..Default::default()
            };
            let all = &mut observation.observed.descriptions;
            all.insert(name.into(), description);
        }
        observation
    };
    let mut platform = Scripted::new([observation(), observation()]);
    platform.reconcile(identity_secret_first, clean);
    assert_eq!(platform.acts[0].leader.as_deref(), Some("demo-2"));
}

#[test]
fn completed_step_is_not_repeated() {
    let mut platform = Scripted::new([fresh(), with_identity()]);
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!(platform.words(), Vec::<&str>::new());
    assert!(platform.report().acted.is_none() && platform.report().failure.is_none());
    assert_eq!(ended, Ended::After(10_000));
}

#[test]
fn differing_live_step_is_deferred() {
    let mut platform = Scripted::new([fresh(), with_entropy("another nonce")]);
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!(platform.words(), Vec::<&str>::new());
    assert!(platform.report().acted.is_none() && platform.report().failure.is_none());
    assert_eq!(ended, Ended::After(OVERTAKEN_MS));
}

#[test]
fn a_rendering_is_not_observed_again() {
    let mut platform = Scripted::new([fresh()]);
    platform.reconcile(service_first, clean);
    assert_eq!(platform.observed, [Freshness::Cached]);
    assert_eq!(platform.acts[0].action, service());
}

/// A label of the client Service that Kubernetes refuses was the first step of every plan, and the only one that was
/// attempted: no member was healed, added or restarted until it was corrected. The same with an admission webhook that
/// does not answer: one HTTP 500 was enough.
#[test]
fn a_rendering_that_fails_holds_nothing_up() {
    for failure in [
        Failure::Refused("no label".into()),
        Failure::Retry("cannot apply demo-client: 500".into()),
    ] {
        let mut platform = Scripted::new([fresh(), fresh()]).fails([failure.clone()]);
        let ended = platform.reconcile(service_then_identity_secret, clean);
        assert_eq!(platform.words(), ["ApplyObject", "CreateIdentitySecret"]);
        assert_eq!(platform.observed, [Freshness::Cached, Freshness::Live]);
        let report = platform.report();
        assert_eq!(report.acted.as_ref(), Some(&platform.acts[1].action));
        assert_eq!(report.failure.as_ref(), Some(&failure));
        assert_eq!(ended, Ended::After(SOON_MS));

        // With nothing else to do it waits longer each time, as after any failure.
        let mut platform = Scripted::new([with_identity()]).fails([failure.clone()]);
        let ended = platform.reconcile(service_then_identity_secret, clean);
        assert_eq!(platform.report().failure.as_ref(), Some(&failure));
        assert_eq!(ended, Ended::Failed);
    }
}

/// Found by reading: a specification that could not be recorded was carried out, and a later change that was refused then
/// brought back the one before it: members that had been added were removed, with their volumes.
#[test]
fn specification_that_is_not_recorded_is_not_carried_out() {
    fn admit_then_service(observed: &Observed) -> Plan {
        let hash = observed.spec.as_ref().map(|spec| spec.hash.clone());
        let admit = Action::Object(ObjectAction::AdmitSpec {
            hash: hash.unwrap_or_default(),
        });
        let mut plan = service_first(observed);
        plan.steps.insert(0, step(Rule::Admission, admit));
        plan
    }
    let with_spec = |hash: &str, kept: Option<&str>| {
        let mut observation = fresh();
        observation.observed.spec = Some(SpecFacts {
            hash: hash.into(),
            kept: kept.map(str::to_owned),
        });
        observation
    };
    let failure = || Failure::Refused("exceeded quota".into());
    let new = || with_spec("new", Some("old"));
    let mut platform = Scripted::new([new(), new(), with_spec("old", Some("old"))]);
    // The service alone is left to be done by the old one.
    platform = platform.fails([failure()]);
    let plan: fn(&Observed) -> Plan = |observed| match observed.spec.as_ref() {
        Some(spec) if spec.hash == "new" => admit_then_service(observed),
        _ => {
            let refused = observed.refused.as_ref().map(|why| why.text.as_str());
            assert!(refused.is_some_and(|text| text.contains("exceeded quota")));
            service_first(observed)
        }
    };
    platform.reconcile(plan, clean);
    assert_eq!(platform.words(), ["AdmitSpec", "ApplyObject"]);
    use Specification::{Recorded, Wanted};
    assert_eq!(platform.by, [Wanted, Wanted, Recorded]);

    // What is recorded cannot be read any more: nothing is done.
    let mut platform = Scripted::new([new(), new(), with_spec("new", None)]).fails([failure()]);
    assert_eq!(platform.reconcile(plan, clean), Ended::Failed);
    assert_eq!(platform.words(), ["AdmitSpec"]);

    // The first specification of a cluster has nothing before it.
    let first = || with_spec("new", None);
    let mut platform = Scripted::new([first(), first()]).fails([failure()]);
    platform.reconcile(admit_then_service, clean);
    assert_eq!(platform.words(), ["AdmitSpec", "ApplyObject"]);
    assert_eq!(platform.by, [Wanted, Wanted]);
}

/// While a pod that should stay may be evicted, no other one is stopped; dead members are still removed.
#[test]
fn a_pod_that_cannot_be_held_keeps_the_others() {
    fn hold_then_more(_: &Observed) -> Plan {
        let (member, uid) = ("demo-2".to_owned(), "p2".to_owned());
        let hold = Action::Object(ObjectAction::HoldPod {
            member: "demo-1".into(),
            uid: "p1".into(),
        });
        let delete = Action::Object(ObjectAction::DeletePod {
            member: member.clone(),
            uid,
        });
        let remove = Action::Member(MemberAction::Remove {
            member,
            id: 2,
            fence: FENCE,
        });
        plan_of(
            [hold, delete, remove]
                .map(|action| step(Rule::Drain, action))
                .into(),
        )
    }
    let mut platform = Scripted::new([fresh(), fresh(), fresh()]);
    platform = platform.fails([Failure::Retry("500".into())]);
    platform.reconcile(hold_then_more, clean);
    assert_eq!(platform.words(), ["HoldPod", "Remove"]);
}

fn disarm() -> Action {
    Action::Member(MemberAction::Disarm {
        kind: AlarmKind::NoSpace,
        member: "demo-2".into(),
        id: 2,
        fence: FENCE,
    })
}

/// Wants NOSPACE off, as its first step on this entropy only, and has the status of a plan whose
/// first step is done.
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
    plan.steps.push(step(Rule::Alarms, disarm()));
    plan
}

fn disarm_or_identity_secret(observed: &Observed) -> Plan {
    disarm_on(observed, "disarm", &identity_secret_first(observed))
}

fn disarm_or_service(observed: &Observed) -> Plan {
    disarm_on(observed, "disarm", &service_first(observed))
}

/// Three disarms so far.
fn after_three(entropy: &str) -> Observation {
    let mut observation = observation_at(600_000);
    observation.observed.entropy = entropy.into();
    observation.observed.status_memory.disarms = Some(crate::plan::Disarms {
        count: 3,
        last_ms: 0,
        member: 2,
    });
    observation
}

/// What was done, and how many disarms the status counts.
fn counted(platform: &Scripted) -> (Option<Action>, Option<i32>) {
    let report = platform.report();
    let status = report.status.as_ref().expect("the first status is news");
    let count = status.disarms.as_ref().map(|disarms| disarms.count);
    (report.acted.clone(), count)
}

/// A failed disarm counted as done, and so did one that only a live observation wanted: the pauses grew to half an
/// hour, and the status reported that an alarm was raised again which had never been disarmed. One that was done after
/// another step had failed did not count, and was followed by no pause.
#[test]
fn only_executed_disarms_count() {
    let mut done = Scripted::new([after_three("disarm"), after_three("disarm")]);
    done.reconcile(disarm_or_identity_secret, clean);
    assert_eq!(counted(&done), (Some(disarm()), Some(4)), "the control");

    for failure in [
        Failure::Changed("not leader".into()),
        Failure::Retry("500".into()),
    ] {
        // Nothing else is to be done after it.
        let mut failed = Scripted::new([after_three("disarm"), after_three("disarm")]);
        failed = failed.fails([failure]);
        failed.reconcile(disarm_or_identity_secret, clean);
        assert_eq!(failed.words(), ["Disarm"]);
        assert_eq!(counted(&failed), (None, Some(3)));
    }

    let mut overtaken = Scripted::new([after_three("another"), after_three("disarm")]);
    overtaken.reconcile(disarm_or_identity_secret, clean);
    assert_eq!(counted(&overtaken), (None, Some(3)));

    let mut after = Scripted::new([after_three("service"), after_three("service")]);
    after = after.fails([Failure::Refused("no label".into())]);
    after.reconcile(disarm_or_service, clean);
    assert_eq!(after.words(), ["ApplyObject", "Disarm"]);
    assert_eq!(counted(&after), (Some(disarm()), Some(4)));
}

#[test]
fn a_plan_that_breaks_a_rule_is_not_executed() {
    let mut platform = Scripted::new([fresh()]);
    let ended = platform.reconcile(service_first, dirty);
    assert_eq!(platform.words(), Vec::<&str>::new());
    let failure = platform.report().failure.as_ref().map(ToString::to_string);
    let failure = failure.unwrap_or_default();
    assert!(failure.contains("two voter changes in flight"), "{failure}");
    assert_eq!(ended, Ended::Failed);
}

#[test]
fn failures_decide_the_next_reconcile() {
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
        let mut platform = Scripted::new([fresh()]).fails([failure]);
        assert_eq!(platform.reconcile(service_first, clean), expected);
    }
}

#[test]
fn failed_observe_or_report_is_retried() {
    let failure = || Failure::Retry("no answer".into());
    let mut platform = Scripted::new([]);
    platform.observations.push_back(Err(failure()));
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!(ended, Ended::Failed);

    let mut platform = Scripted::new([]);
    platform.observations.push_back(Ok(None));
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!((ended, platform.reports.len()), (Ended::Gone, 0));

    let mut platform = Scripted::new([with_identity()]);
    platform.written = Some(failure());
    let ended = platform.reconcile(identity_secret_first, clean);
    assert_eq!(ended, Ended::Failed);
}
