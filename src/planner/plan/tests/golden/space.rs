//! The alarm NOSPACE: when it goes off by itself, and how often.

use super::alarms::{does_nothing, follower};
use crate::plan::MemberAction;
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::{World, roomy};
use crate::plan::{Action, Plan, Space, plan};

fn switches_off(plan: &Plan) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step.action, Action::Member(MemberAction::Disarm { .. })))
}

/// An alarm stayed raised after its cause was gone: writes were refused until it was disarmed by hand.
#[test]
fn no_space() {
    let mut script = Script::new(
        "nospace",
        "A quota is used up. The status reports what helps; the quota is raised and reaches the members one by one, and once every member has space the alarm goes off by itself.",
    );
    let mut world = rested(3);
    let full = Space {
        used: 127 << 20,
        ..roomy()
    };
    for member in ["demo-1", "demo-2", "demo-3"] {
        world.health.spaces.insert(member.into(), Some(full));
    }
    world.alarm("NOSPACE", "demo-2");
    does_nothing(&script.observe("The alarm is on", &world));
    for member in ["demo-1", "demo-2"] {
        let quota = 256 << 20;
        world
            .health
            .spaces
            .insert(member.into(), Some(Space { quota, ..full }));
    }
    does_nothing(&script.observe("Two members know of the larger quota", &world));
    let volume = Space {
        free: 45 << 20,
        ..roomy()
    };
    world.health.spaces.insert("demo-3".into(), Some(volume));
    does_nothing(&script.observe("The third has a nearly full volume besides", &world));
    world.health.spaces.clear();
    script.settle("All have space", &mut world);
    assert!(world.health.alarms.is_empty());
    script.compare();
}

/// With values in files a quota says nothing of memory: the alarm that the keys raise stays until they are fewer, or there is
/// more memory.
#[test]
fn alarm_stays_while_keys_need_the_memory() {
    let with = |in_memory: u64| {
        let mut world = rested(3);
        world.alarm("NOSPACE", "demo-2");
        let space = Space {
            in_memory,
            in_memory_most: 100 << 20,
            ..roomy()
        };
        world.health.spaces.insert("demo-2".into(), Some(space));
        plan(&world.observe())
    };
    assert!(!switches_off(&with(91 << 20)), "less than a tenth is left");
    let text = format!("{}", with(91 << 20));
    assert!(text.contains("raise resources.limits.memory"), "{text}");
    assert!(switches_off(&with(90 << 20)));
}

/// Nothing is disarmed if a member does not report how full it is, if its report is unsigned, or if the alarm names an
/// ID that was never a member's: then it was raised by hand.
#[test]
fn alarm_stays_while_its_cause_may_remain() {
    let alarmed = |change: &dyn Fn(&mut World)| {
        let mut world = rested(3);
        world.alarm("NOSPACE", "demo-2");
        change(&mut world);
        plan(&world.observe())
    };
    assert!(switches_off(&alarmed(&|_| {})), "the control");
    let old = alarmed(&|world| {
        world.health.spaces.insert("demo-3".into(), None);
    });
    assert!(!switches_off(&old), "{old}");
    assert!(
        old.to_string()
            .contains("demo-3 (version 0.1.0) does not report its usage"),
        "{old}"
    );
    let unsigned = alarmed(&|world| {
        world.faults.unsigned.insert("demo-3".into());
    });
    assert!(!switches_off(&unsigned), "{unsigned}");
    let unseen = alarmed(&|world| {
        world.faults.unseen.insert("demo-3".into());
    });
    assert!(!switches_off(&unseen), "{unseen}");
    let foreign = alarmed(&|world| world.health.alarms = vec!["NOSPACE fff".into()]);
    assert!(!switches_off(&foreign), "{foreign}");
    // A tenth of the quota is left free, or the next writes would raise it again.
    let tight = alarmed(&|world| {
        let used = (128 << 20) / 10 * 9 + 10;
        let space = Space { used, ..roomy() };
        world.health.spaces.insert("demo-1".into(), Some(space));
    });
    assert!(!switches_off(&tight), "{tight}");
    let paused = alarmed(&|world| world.cluster.spec.paused = true);
    assert!(!switches_off(&paused), "{paused}");
}

/// One large transaction that did not fit raised the alarm after each disarm, endlessly, and each disarm came before
/// healing. Now it comes after, and the pauses double, as recorded in the status.
#[test]
fn repeated_alarm_is_disarmed_less_often() {
    let mut world = rested(3);
    let mut off = Vec::new();
    for _ in 0..4000 {
        if world.health.alarms.is_empty() {
            world.alarm("NOSPACE", "demo-1");
            world.alarm("NOSPACE", "demo-2");
        }
        let plan = world.reconcile();
        if switches_off(&plan) && world.health.alarms.is_empty() {
            off.push(world.api.now_ms / 1000);
        }
    }
    let pauses: Vec<u64> = off.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses.len(), 6, "{pauses:?}");
    let longer = pauses.iter().zip([60, 120, 240, 480, 960, 1800]);
    for (pause, least) in longer {
        assert!((least..least + 5).contains(pause), "{pauses:?}");
    }
    world.health.alarms.clear();
    let text = plan(&world.observe()).to_string();
    assert!(world.status.disarms.is_some(), "{text}");
    wait(&mut world, 3600);
    world.reconcile();
    assert_eq!(world.status.disarms, None);
    // Healing comes first.
    world.alarm("NOSPACE", "demo-1");
    let follower = follower(&world);
    world.api.sets.remove(&follower);
    let plan = plan(&world.observe());
    assert!(
        plan.first()
            .is_none_or(|step| step.action.word() != "Disarm")
    );
    assert!(switches_off(&plan), "{plan}");
}

/// For a time the disarm was the last step of all, and a step before it that always failed kept writes refused forever:
/// here a ResourceQuota refuses the PVC of the new member. A dead member is still handled first, and the pause after a
/// disarm is not the current step while something else is waiting.
#[test]
fn failing_step_keeps_no_alarm_on() {
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    world.alarm("NOSPACE", "demo-2");
    let refused = |world: &World| {
        let plan = plan(&world.observe());
        plan.first()
            .is_some_and(|step| step.action.word() == "CreatePVC")
    };
    for _ in 0..10 {
        match refused(&world) {
            true => world.tick(),
            false => drop(world.reconcile()),
        }
    }
    assert!(refused(&world), "the control");
    assert_eq!(world.health.alarms, [""; 0]);
    world.pace.catch_up = 1;
    while !world.raft.members.iter().any(|view| view.learner) {
        world.reconcile();
    }
    world.alarm("NOSPACE", "demo-2");
    for _ in 0..3 {
        world.reconcile();
    }
    assert!(!world.health.alarms.is_empty() && world.status.disarms.is_some());
    let step = world.status.step.clone().expect("a step in hand");
    assert_eq!(step.action, "Promote", "{step:?}");

    let mut world = rested(3);
    world.lose_disk(&follower(&world));
    world.tick();
    world.tick();
    world.alarm("NOSPACE", "demo-1");
    let plan = plan(&world.observe());
    let words: Vec<&str> = plan.steps.iter().map(|step| step.action.word()).collect();
    assert_eq!(words[..2], ["Remove", "Disarm"], "{plan}");
}
