//! A cluster's life in memory: every step, a crash at each, stale caches.

use std::collections::BTreeSet;

use super::*;
use crate::crd::RetentionPolicy;
use crate::model::forecast::{End, ForecastStep, forecast};
use crate::plan::{Comparison, Space};

/// A life of a cluster in parts: each changes something, and the loop settles.
type Part = fn(&mut World);

fn replicas(world: &mut World, replicas: i32) {
    world.cluster.spec.replicas = replicas;
}

const LIVES: &[(&str, i32, &[Part])] = &[
    ("one", 1, &[|_| {}]),
    ("three", 3, &[|_| {}]),
    (
        "one to three to five to three",
        1,
        &[
            |_| {},
            |world| replicas(world, 3),
            |world| replicas(world, 5),
            |world| replicas(world, 3),
        ],
    ),
    (
        "a follower's disk is lost",
        3,
        &[
            |_| {},
            |world| {
                let leader = world.leader_name();
                let name = world
                    .names()
                    .into_iter()
                    .find(|name| *name != leader)
                    .expect("a follower");
                world.lose_disk(&name);
            },
        ],
    ),
    (
        "the leader's disk is lost",
        3,
        &[
            |_| {},
            |world| {
                let leader = world.leader_name();
                world.lose_disk(&leader);
            },
        ],
    ),
    (
        "the leader is surplus, being outdated",
        2,
        &[
            |_| {},
            |world| {
                world.model.api.wanted_inputs = "new".into();
                for (_, pod) in world.model.api.pods.iter_mut().skip(1) {
                    pod.inputs = Some("new".into());
                }
                replicas(world, 1);
            },
        ],
    ),
    (
        "a hung server is restarted",
        3,
        &[
            |_| {},
            |world| {
                world.hang("demo-2");
                let first = world.model.api.pods["demo-2"].uid.clone();
                for _ in 0..600 {
                    world.tick();
                    world.reconcile(None);
                    let pod = world.model.api.pods.get("demo-2");
                    if pod.is_none_or(|pod| pod.uid != first) {
                        break;
                    }
                }
            },
        ],
    ),
    (
        "every member is replaced",
        3,
        &[
            |_| {},
            |world| {
                world.cluster.spec.replace_members = world.names();
            },
        ],
    ),
    (
        "every member is restarted with a changed spec",
        3,
        &[|_| {}, |world| world.model.api.wanted_inputs = "new".into()],
    ),
    (
        "the only two are replaced for a changed spec",
        2,
        &[|_| {}, |world| world.model.api.wanted_inputs = "new".into()],
    ),
    (
        "sleeps for days and wakes",
        3,
        &[
            |_| {},
            |world| world.cluster.spec.replicas = 0,
            |world| {
                world.model.api.now_ms += 300_000_000;
                world.cluster.spec.replicas = 3;
            },
        ],
    ),
    (
        "volumes grow and are kept no more",
        3,
        &[
            |_| {},
            |world| {
                world.cluster.storage_bytes *= 2;
                world.cluster.spec.storage.retention.when_deleted = RetentionPolicy::Delete;
            },
        ],
    ),
];

fn live(
    replicas: i32,
    parts: &[Part],
    crash: Option<(usize, usize, Crash)>,
) -> (World, Vec<usize>) {
    let mut world = World::new(replicas);
    let mut acts = vec![];
    for (number, part) in parts.iter().enumerate() {
        part(&mut world);
        let crash = crash
            .filter(|(at, _, _)| *at == number)
            .map(|(_, act, how)| (act, how));
        acts.push(world.settle(crash));
    }
    (world, acts)
}

#[test]
fn every_history_settles() {
    let mut words = BTreeSet::new();
    for (name, replicas, parts) in LIVES {
        let (world, _) = live(*replicas, parts, None);
        assert_eq!(world.bootstraps(), 1, "{name}");
        words.extend(world.acts.clone());
    }
    let all = [
        "AddLearner",
        "ApplyObject",
        "ApplySet",
        "Bootstrap",
        "CreatePVC",
        "CreateIdentitySecret",
        "DeletePVC",
        "DeletePod",
        "DeleteSet",
        "DropSlot",
        "GrowPVC",
        "MapSlot",
        "MarkPVC",
        "OwnPVC",
        "Promote",
        "Remove",
        "Retire",
        "Transfer",
    ];
    let missing: Vec<_> = all.iter().filter(|word| !words.contains(**word)).collect();
    assert!(missing.is_empty(), "never taken: {missing:?}");
}

#[test]
fn a_crash_at_any_step_converges() {
    let everywhere = std::env::var_os("CRASH_EVERYWHERE").is_some();
    for (name, replicas, parts) in LIVES {
        let (calm, acts) = live(*replicas, parts, None);
        for (part, acts) in acts.iter().enumerate() {
            // Of a long part every third action, unless all are requested.
            let stride = if *acts > 12 && !everywhere { 3 } else { 1 };
            for act in (part % stride..*acts).step_by(stride) {
                for how in [Crash::Before, Crash::After, Crash::ReplyLost] {
                    let (world, _) = live(*replicas, parts, Some((part, act, how)));
                    let at = format!("{name}: part {part}, act {act}, {how:?}");
                    assert_eq!(world.bootstraps(), 1, "{at}");
                    assert_eq!(world.names().len(), calm.names().len(), "{at}");
                    let state = |world: &World| -> Vec<_> {
                        let pvcs = world.model.api.pvcs.values();
                        pvcs.map(|pvc| (pvc.state, pvc.requested_bytes, pvc.owned))
                            .collect()
                    };
                    assert_eq!(state(&world), state(&calm), "{at}");
                }
            }
        }
    }
}

/// A forecast must be right: at the start of every part of every run it names exactly the following actions, in order.
/// Both use one model, so this does not show that the model is right about Kubernetes and members: `src/opsim`, which
/// shares nothing with it, and the real ones show that. It shows that the observation is sufficient to predict the rest
/// (which disk has what, and delays, are known only to the world), and that the reconcile as shipped, with its two
/// observations and its status, does what the plans of a forecast state.
#[test]
fn dry_run_matches_the_executed_steps() {
    for (name, replicas, parts) in LIVES {
        let mut world = World::new(*replicas);
        for (number, part) in parts.iter().enumerate() {
            part(&mut world);
            let (ahead, before) = (forecast(&world.observe("").observed), world.done.len());
            world.settle(None);
            let done: Vec<&str> = world.done[before..]
                .iter()
                .map(|act| lasting(act))
                .collect();
            let steps = ahead.steps.iter().map(|step| lasting(&step.what));
            assert_eq!(steps.collect::<Vec<_>>(), done, "{name}, part {number}");
            let end = world.status.summary.clone().unwrap_or_default();
            assert_eq!(ahead.end, End::Rest(end), "{name}, part {number}");
        }
    }
}

/// What an act is, without the random part of it.
fn lasting(act: &str) -> &str {
    act.split(", nonce").next().unwrap_or(act)
}

#[test]
fn dry_run_lists_waits_and_refusals() {
    let (mut world, _) = live(3, &[|_| {}], None);
    world.cluster.spec.paused = true;
    world.cluster.spec.replicas = 5;
    let ahead = forecast(&world.observe("").observed);
    assert_eq!((ahead.steps, ahead.holds.is_empty()), (vec![], false));
    world.cluster.spec.paused = false;
    let lost = world.leader_name();
    let silent: Vec<String> = world
        .names()
        .into_iter()
        .filter(|name| *name != lost)
        .collect();
    silent.iter().for_each(|name| world.hang(name));
    world.tick();
    let ahead = forecast(&world.observe("").observed);
    assert!(!matches!(ahead.end, End::Rest(_)), "{ahead:?}");
}

/// The disk of a member that does not answer holds what it held: a new pod brings the same member back.
/// A forecast once took it for an empty one, and went on to the removal of the member.
#[test]
fn dry_run_of_a_hung_server_keeps_its_member() {
    let (mut world, _) = live(3, &[|_| {}], None);
    let leader = world.leader_name();
    let hung = world.names().into_iter().find(|name| *name != leader);
    let hung = hung.expect("a follower");
    world.hang(&hung);
    // For longer than a leader may wait for a heartbeat's answer.
    (0..5).for_each(|_| world.tick());
    let ahead = forecast(&world.observe("").observed);
    let named: Vec<&str> = ahead.steps.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(named, [format!("replace the pod of {hung}")]);
    assert!(matches!(ahead.end, End::Rest(_)), "{ahead:?}");
}

/// A forecast with an alarm is complete, as far as data was compared.
#[test]
fn dry_run_goes_on_until_the_alarm_is_off() {
    let (mut world, _) = live(3, &[|_| {}], None);
    let leader = world.leader_name();
    let corrupt = world.names().into_iter().find(|name| *name != leader);
    let corrupt = corrupt.expect("a follower");
    let mut seen = world.observe("");
    let id = seen.observed.descriptions[&corrupt].member_id;
    for description in seen.observed.descriptions.values_mut() {
        description.space = Some(Space::default());
        description.alarms = vec![format!("CORRUPT {id:x}"), format!("NOSPACE {id:x}")];
    }
    let waits = forecast(&seen.observed);
    let named: Vec<&str> = waits.steps.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(named, [format!("disarm the alarm NOSPACE of {corrupt}")]);
    assert!(matches!(waits.end, End::Waits(_)), "{waits:?}");
    let others = seen
        .observed
        .descriptions
        .values()
        .map(|description| description.member_id);
    let others: BTreeSet<u64> = others.filter(|known| *known != id).collect();
    let compared = |age_ms| Comparison {
        agree: others.clone(),
        differ: [id].into(),
        age_ms,
        ..Comparison::default()
    };
    let leading = seen.observed.descriptions.get_mut(&leader);
    leading.expect("it leads").comparisons = vec![compared(0), compared(5_000)];
    let ahead = forecast(&seen.observed);
    let at = |what: &str| {
        let found = ahead
            .steps
            .iter()
            .position(|step| step.what.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what:?}: {ahead:?}"))
    };
    let (promoted, off) = (at("promote "), at("disarm the alarm CORRUPT"));
    assert!(at(&format!("remove {corrupt}")) < at("add "), "{ahead:?}");
    assert!(at("add ") < promoted && promoted < off, "{ahead:?}");
    let kept = at("mark PVC");
    assert!(kept < at(&format!("remove {corrupt}")), "{ahead:?}");
    let deletes = |step: &ForecastStep| step.what.starts_with("delete PVC");
    assert!(!ahead.steps.iter().any(deletes), "{ahead:?}");
    assert!(matches!(ahead.end, End::Rest(_)), "{ahead:?}");
}

#[test]
fn replaced_member_leaves_last() {
    let mut world = World::new(3);
    world.settle(None);
    world.cluster.spec.replace_members = vec!["demo-1".into(), "demo-2".into(), "demo-9".into()];
    let before = world.acts.len();
    world.settle(None);
    assert_eq!(world.names(), ["demo-3", "demo-4", "demo-5"]);
    // A slot is handed over before its member is asked to leave: its clients see no gap.
    let acts: Vec<&str> = world.acts[before..].iter().map(String::as_str).collect();
    let maps = acts.iter().filter(|word| **word == "MapSlot").count();
    assert_eq!(maps, 2, "{acts:?}");
    let retires = acts
        .iter()
        .enumerate()
        .filter(|(_, word)| **word == "Retire");
    for (at, _) in retires {
        assert!(matches!(acts[at - 1], "MapSlot" | "Retire"), "{acts:?}");
    }
    let changes = world.acts[before..].iter().map(String::as_str);
    let changes: Vec<_> = changes
        .filter(|word| matches!(*word, "AddLearner" | "Promote" | "Remove"))
        .collect();
    let one = ["AddLearner", "Promote", "Remove"];
    assert_eq!(changes, [one, one].concat());
}

#[test]
fn stale_caches_change_nothing_about_the_end() {
    for (name, replicas, parts) in LIVES {
        let (calm, _) = live(*replicas, parts, None);
        for behind in [1, 4, 15] {
            let mut world = World::new(*replicas);
            world.behind = behind;
            for part in *parts {
                part(&mut world);
                world.settle(None);
            }
            assert_eq!(world.bootstraps(), 1, "{name}, {behind} s behind");
            assert_eq!(world.names(), calm.names(), "{name}, {behind} s behind");
            let (acts, calm) = (world.acts.clone(), calm.acts.clone());
            let changes = |acts: Vec<String>| {
                acts.into_iter()
                    .filter(|word| word == "AddLearner" || word == "Remove")
                    .count()
            };
            assert_eq!(changes(acts), changes(calm), "{name}, {behind} s behind");
        }
    }
}

#[test]
fn a_new_member_has_a_new_name() {
    let (world, _) = live(3, LIVES[3].2, None);
    assert_eq!(world.names().last().map(String::as_str), Some("demo-4"));
}

#[test]
fn nothing_happens_at_rest() {
    let (mut world, _) = live(3, LIVES[1].2, None);
    let (acts, status) = (world.acts.len(), world.status.clone());
    world.writes.clear();
    for _ in 0..50 {
        world.tick();
        let (ended, acted) = world.reconcile(None);
        assert!(!acted && matches!(ended, Ended::After(_)));
        assert_eq!(world.status, status);
    }
    assert_eq!(world.acts.len(), acts);
    assert_eq!(world.writes, [] as [u64; 0]);
}

#[test]
fn learner_lag_is_written_each_five_seconds() {
    let mut world = World::new(1);
    world.settle(None);
    // One more than clients write: it gains on the leader all the time.
    world.model.pace.catch_up = 11;
    world.cluster.spec.replicas = 2;
    world.cluster.generation += 1;
    let learns = |world: &World| world.model.raft.members.iter().any(|view| view.learner);
    while !learns(&world) {
        world.tick();
        world.reconcile(None);
    }
    // That it exists, and that the leader has contact with it, is new.
    for _ in 0..5 {
        world.tick();
        world.reconcile(None);
    }
    world.writes.clear();
    for _ in 0..50 {
        world.tick();
        world.reconcile(None);
    }
    assert!(learns(&world), "it still catches up");
    let gaps: Vec<u64> = world.writes.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.len() > 5, "the lag is reported: {gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 5000), "{gaps:?}");
}

#[test]
fn without_a_quorum_nothing_is_removed_or_added() {
    let (mut world, _) = live(3, LIVES[1].2, None);
    world.hang("demo-2");
    world.hang("demo-3");
    let acts = world.acts.len();
    for _ in 0..1000 {
        world.tick();
        world.reconcile(None);
    }
    assert_eq!(world.acts[acts..], [] as [String; 0]);
    world.model.faults.stuck.clear();
    world.settle(None);
    assert_eq!(world.names(), ["demo-1", "demo-2", "demo-3"]);
}
