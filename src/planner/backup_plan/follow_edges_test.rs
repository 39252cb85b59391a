//! The plan of the Job of a cluster that follows another one, at the edges of a cutover: what closes the followed cluster, what
//! opens it again whatever is asked of the cluster here, and how a standby is promoted.

use jiff::SignedDuration;

use super::follow_test::{
    cluster, creates, deletes, ended, failed, follow, followed, job, now, observed, secrets, text,
};
use super::observed::{JobFacts, JobState};
use super::result::{FailureClass, Followed, JobResult};
use super::{ObservedFollow, made_from, plan_follow};
use crate::crd::{
    Bootstrap, Cutover, EtcdClusterSpec, Follow, FollowPhase, Promote, PromoteMode, ReplicaOf,
    Until,
};

/// The same as one that takes the place of the followed cluster.
fn armed(attempt: u32, state: JobState) -> JobFacts {
    JobFacts {
        made_from: Some(text(Until::CaughtUp, &secrets("7"))),
        ..job(attempt, state)
    }
}

fn asks_for_the_cutover(observed: &mut ObservedFollow) {
    let asked = Follow {
        cutover: Cutover::WhenCaughtUp,
        ..follow()
    };
    cluster(observed).bootstrap = Some(Bootstrap {
        follow: Some(asked),
        ..Bootstrap::default()
    });
}

/// A pause, or a spec that cannot be used, keeps nothing alive that was taken back or must not happen any more.
#[test]
fn what_was_taken_back_is_not_carried_out() {
    let mut observed = observed();
    observed.jobs = vec![armed(1, JobState::Running)];
    cluster(&mut observed).paused = true;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    asks_for_the_cutover(&mut observed);
    assert_eq!(plan_follow(&observed).step, None, "it is still asked for");
    observed.cluster = Err("spec.server.extraArgs: no such flag".into());
    assert_eq!(plan_follow(&observed).step, None);
    observed.deleting = true;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
}

/// A cluster in the middle of its cutover.
fn frozen() -> ObservedFollow {
    let mut observed = observed();
    asks_for_the_cutover(&mut observed);
    observed.phase = Some(FollowPhase::Frozen);
    observed.jobs = vec![armed(1, JobState::Running)];
    observed
}

/// Somebody asks for hibernation, or pauses the cluster, while nobody takes writes: the Job goes on, and if it ends, one
/// opens the followed cluster, and does not try once more.
#[test]
fn stopping_leaves_no_cluster_closed() {
    for stop in [
        (|it: &mut EtcdClusterSpec| it.replicas = 0) as fn(&mut EtcdClusterSpec),
        |it| it.paused = true,
    ] {
        let mut observed = frozen();
        stop(cluster(&mut observed));
        assert_eq!(plan_follow(&observed).step, None, "it is not interrupted");
        observed.jobs = vec![armed(1, ended(now(), None))];
        let plan = plan_follow(&observed);
        assert_eq!((creates(&plan), plan.until), (Some(2), Until::Stay));
        assert!(!plan.report.may_close);
        observed.jobs.push(job(2, JobState::Running));
        assert_eq!(plan_follow(&observed).step, None);
        // One that did not start yet would try once more.
        observed.jobs = vec![armed(1, JobState::Waiting(None))];
        assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    }
    // Once it is open, a cluster that stops needs no Job, and one that is paused keeps it.
    let mut observed = frozen();
    observed.phase = Some(FollowPhase::Following);
    observed.jobs = vec![job(2, JobState::Running)];
    cluster(&mut observed).paused = true;
    assert_eq!(plan_follow(&observed).step, None);
    cluster(&mut observed).paused = false;
    cluster(&mut observed).replicas = 0;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-2"));
}

/// Once the deletion was asked for, no cutover begins or goes on, and what is closed is opened.
#[test]
fn deletion_opens_what_is_closed() {
    let mut observed = frozen();
    observed.deleting = true;
    let plan = plan_follow(&observed);
    assert_eq!(deletes(&plan), Some("second-follow-1"));
    assert!(plan.report.may_close);
    observed.jobs.clear();
    observed.closing = true;
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(1), Until::Stay));
    assert!(plan.report.may_close, "the pod of the first one runs still");
    observed.closing = false;
    observed.jobs = vec![job(2, JobState::Running)];
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.may_close), (None, false));
    observed.phase = Some(FollowPhase::Following);
    for (paused, replicas) in [(false, 3), (true, 3), (false, 0)] {
        let spec = cluster(&mut observed);
        (spec.paused, spec.replicas) = (paused, replicas);
        observed.jobs = vec![armed(3, JobState::Running)];
        assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-3"));
        observed.jobs.clear();
        assert_eq!(plan_follow(&observed).step, None, "nothing begins");
    }
    // What has taken over says so.
    observed.phase = Some(FollowPhase::CutOver);
    let done = Some(JobResult::Followed(followed()));
    observed.jobs = vec![armed(3, ended(now(), done))];
    assert_eq!(plan_follow(&observed).report.followed, Some(followed()));
}

/// Three times in vain, and the last time the Job could not open what it had closed: another one opens it at once, and
/// closes nothing before the pause is over, whatever is changed meanwhile.
#[test]
fn vain_cutover_leaves_nothing_closed_and_pauses() {
    let mut observed = frozen();
    observed.jobs = vec![armed(1, ended(now(), failed(FailureClass::Damaged)))];
    observed.now += SignedDuration::from_secs(1);
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(2), Until::Stay));
    let begun = observed.now;
    observed.jobs.push(JobFacts {
        created: begun,
        ..job(2, JobState::Running)
    });
    observed.phase = Some(FollowPhase::Following);
    observed.now += SignedDuration::from_mins(9);
    let plan = plan_follow(&observed);
    assert_eq!(plan.step, None);
    assert_eq!(plan.report.failure.as_deref(), Some("why"));
    observed.secrets = secrets("8");
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-2"));
    observed.jobs.pop();
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(2), Until::Stay));
    observed.secrets = secrets("7");
    observed.jobs.push(job(2, JobState::Running));
    observed.now += SignedDuration::from_mins(2);
    let plan = plan_follow(&observed);
    assert_eq!(
        (deletes(&plan).is_some(), plan.until),
        (true, Until::CaughtUp)
    );
}

/// A standby fell ten minutes behind after cutovers in vain, because nothing followed until the next one was tried. Now a
/// Job follows meanwhile, whatever the phase, and the failure is said.
#[test]
fn followed_cluster_is_followed_after_cutovers_in_vain() {
    let mut observed = frozen();
    observed.phase = Some(FollowPhase::Following);
    observed.jobs = vec![armed(1, ended(now(), failed(FailureClass::Damaged)))];
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(2), Until::Stay));
    observed.jobs.push(job(2, JobState::Running));
    observed.now += SignedDuration::from_mins(5);
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.may_close), (None, false));
    assert_eq!(plan.report.failure.as_deref(), Some("why"));
    let then = Some(now() + SignedDuration::from_mins(10));
    assert_eq!(plan.report.cutover_after, then);
    observed.now += SignedDuration::from_mins(5);
    let plan = plan_follow(&observed);
    assert!(deletes(&plan).is_some(), "the next cutover is due");
}

/// The source is gone in the middle of a cutover, and the cluster is to hibernate: it waited for ever for somebody to open
/// a cluster that does not exist. The annotation says that nobody has to.
#[test]
fn who_does_not_care_is_not_kept_awake() {
    let mut observed = frozen();
    cluster(&mut observed).replicas = 0;
    assert_eq!(plan_follow(&observed).step, None);
    observed.waived = true;
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    cluster(&mut observed).replicas = 3;
    assert_eq!(plan_follow(&observed).step, None, "it goes on");
}

/// The pause after cutovers in vain is not over because the operator was started again, the cluster slept, or a Secret
/// changed.
#[test]
fn changes_do_not_end_the_pause() {
    let mut observed = frozen();
    observed.phase = Some(FollowPhase::Following);
    observed.jobs = vec![armed(1, ended(now(), failed(FailureClass::Damaged)))];
    cluster(&mut observed).replicas = 0;
    assert_eq!(plan_follow(&observed).step, None, "its end is kept");
    cluster(&mut observed).replicas = 3;
    assert_eq!(plan_follow(&observed).until, Until::Stay);
    observed.secrets = secrets("8");
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(2), Until::Stay));
    // What only follows finds out as well that the clusters do not fit, and begins anew as often.
    let again = JobFacts {
        made_from: Some(text(Until::Stay, &secrets("8"))),
        ..job(2, ended(now(), failed(FailureClass::Damaged)))
    };
    observed.jobs.push(again);
    assert_eq!(creates(&plan_follow(&observed)), None);
}

/// A standby whose source is lost is promoted by a Job that is told what was reviewed; another place of the source, or
/// another revision, asks for another Job.
#[test]
fn standby_is_promoted_as_it_was_reviewed() {
    let replica = |endpoint: &str, revision: Option<i64>| ReplicaOf {
        endpoints: vec![endpoint.to_owned()],
        promote: revision.map(|revision| Promote {
            mode: PromoteMode::Failover,
            accept_loss: Some(true),
            revision: Some(revision),
        }),
        ..ReplicaOf::default()
    };
    let mut observed = observed();
    observed.secrets.clear();
    let ask = |observed: &mut ObservedFollow, replica: ReplicaOf| {
        let spec = cluster(observed);
        spec.bootstrap = None;
        spec.replica_of = Some(replica);
    };
    let made = |replica: &ReplicaOf| Some(made_from(&replica.into(), &[]));
    let first = replica("http://a:2379", None);
    ask(&mut observed, first.clone());
    observed.jobs = vec![JobFacts {
        made_from: made(&first),
        ..job(1, JobState::Running)
    }];
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.may_close), (None, false));
    ask(&mut observed, replica("http://b:2379", None));
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    let lost = replica("http://b:2379", Some(48_211));
    ask(&mut observed, lost.clone());
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-1"));
    observed.jobs.clear();
    let plan = plan_follow(&observed);
    assert_eq!(plan.until, Until::SourceLost { revision: 48_211 });
    assert!(plan.report.may_close);
    // It lives: that is looked at again after a minute, or when another revision was reviewed.
    observed.jobs = vec![JobFacts {
        made_from: made(&lost),
        ..job(2, ended(now(), failed(FailureClass::Settings)))
    }];
    observed.revision = Some(48_211);
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.report.needs_user), (None, true));
    observed.now = now() + SignedDuration::from_secs(59);
    assert_eq!(creates(&plan_follow(&observed)), None);
    observed.now = now() + SignedDuration::from_secs(60);
    assert_eq!(creates(&plan_follow(&observed)), Some(3));
    observed.now = now();
    // Less than that is here: what is missing may still come.
    observed.revision = Some(48_210);
    let plan = plan_follow(&observed);
    assert_eq!((creates(&plan), plan.until), (Some(3), Until::Stay));
    observed.revision = None;
    ask(&mut observed, replica("http://b:2379", Some(48_000)));
    assert_eq!(creates(&plan_follow(&observed)), Some(3));
    // In the middle of a switchover the source dies: nobody waits for a Job that cannot reach it.
    observed.phase = Some(FollowPhase::Frozen);
    observed.jobs = vec![armed(3, JobState::Running)];
    assert!(deletes(&plan_follow(&observed)).is_some());
    observed.jobs = vec![armed(3, ended(now(), failed(FailureClass::Damaged)))];
    let plan = plan_follow(&observed);
    assert_eq!(
        (creates(&plan), plan.until),
        (Some(4), Until::SourceLost { revision: 48_000 })
    );
    // It is taken back before it is carried out.
    observed.jobs = vec![JobFacts {
        made_from: made(&replica("http://b:2379", Some(48_000))),
        ..job(4, JobState::Running)
    }];
    assert_eq!(plan_follow(&observed).step, None);
    ask(&mut observed, replica("http://b:2379", None));
    assert_eq!(deletes(&plan_follow(&observed)), Some("second-follow-4"));
    ask(&mut observed, replica("http://b:2379", Some(48_000)));
    // Nobody has closed the source: the revision alone says that the status has it.
    observed.phase = Some(FollowPhase::CutOver);
    let done = Followed {
        revision: 48_100,
        frozen_unix_ms: 0,
        writable_unix_ms: 7,
    };
    observed.jobs = vec![job(3, ended(now(), Some(JobResult::Followed(done))))];
    let plan = plan_follow(&observed);
    assert_eq!((plan.step, plan.report.followed), (None, Some(done)));
    observed.revision = Some(48_100);
    assert!(deletes(&plan_follow(&observed)).is_some());
}
