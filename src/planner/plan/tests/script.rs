//! Golden texts: for each situation the observation and the resulting plan, in readable form. `UPDATE_GOLDEN=1`
//! rewrites them; they are in `tests/plan/`.

use std::fmt::Write as _;
use std::path::Path;

use super::world::{CLUSTER_UID, World};
use crate::crd::{ConditionType, DisruptionPolicy, StepState, ValidatedCluster, pvc_name};
use crate::plan::{Observed, PdbLimit, Phase, Plan, SlotFacts, plan};

/// A script that is compared with its file as a whole.
pub(super) struct Script {
    name: &'static str,
    pub(super) text: String,
}

impl Script {
    pub(super) fn new(name: &'static str, story: &str) -> Script {
        Script {
            name,
            text: format!("# {story}\n"),
        }
    }

    /// What is seen now, and the plan.
    pub(super) fn observe(&mut self, title: &str, world: &World) -> Plan {
        let observed = world.observe();
        let plan = plan(&observed);
        let _ = write!(self.text, "\n## {title}\n{}---\n{plan}", seen(&observed));
        plan
    }

    /// Passes until rest: a line for each step, and for each new wait.
    pub(super) fn settle(&mut self, title: &str, world: &mut World) {
        let _ = write!(self.text, "\n## {title}\n");
        let start = world.api.now_ms;
        let mut last = String::new();
        let plans = world.settle(4000);
        for (i, plan) in plans.iter().enumerate() {
            let line = match (plan.first(), &plan.progress) {
                (Some(step), _) => {
                    format!("{} ({}: {})", step.action, step.rule.as_str(), step.reason)
                }
                (None, Some(p)) if p.state == StepState::Waiting => format!("... {}", plan.summary),
                _ => format!("at rest: {}", plan.summary),
            };
            // The numbers of a wait change; its words identify it.
            let words: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
            if plan.first().is_some() || words != last {
                let _ = writeln!(self.text, "{:>5} s  {line}", i);
            }
            last = words;
        }
        let seconds = (world.api.now_ms - start) / 1000;
        assert!(
            plans.last().is_some_and(|p| p.steps.is_empty()),
            "no rest in {seconds} s"
        );
    }

    /// The status of a restore.
    pub(super) fn restored(&mut self, title: &str, world: &World) {
        let text = serde_json::to_string_pretty(&world.status.restore).expect("JSON");
        let _ = writeln!(self.text, "\n## {title}\n{text}");
    }

    /// The status of a cluster that follows another one, and its condition.
    pub(super) fn followed(&mut self, title: &str, world: &World) {
        let text = serde_json::to_string_pretty(&world.status.follow).expect("JSON");
        let plan = plan(&world.observe());
        let mut conditions = plan.conditions.iter();
        let of_it = conditions.find(|it| it.type_ == ConditionType::Following);
        let of_it = of_it.expect("it is there");
        let _ = writeln!(
            self.text,
            "\n## {title}\n{text}\nFollowing {} {}: {}",
            of_it.status.as_str(),
            of_it.reason,
            of_it.message
        );
    }

    pub(super) fn compare(self) {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/plan");
        let path = folder.join(format!("{}.txt", self.name));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &self.text).expect("written");
            return;
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            golden == self.text,
            "{} differs; if this is meant, run with UPDATE_GOLDEN=1\n{}",
            path.display(),
            self.text
        );
    }
}

/// The facts, compactly.
fn seen(o: &Observed) -> String {
    let mut text = String::new();
    let leader = o.descriptions.values().find(|d| d.leads);
    if let Ok(cluster) = &o.cluster {
        let paused = if cluster.spec.paused { " paused" } else { "" };
        let _ = writeln!(
            text,
            "wanted: {} of {}{paused}",
            cluster.spec.replicas, o.wanted_inputs
        );
    }
    let mut names: Vec<&String> = o.sets.keys().chain(o.pods.keys()).collect();
    let claimed = o.pvcs.values().filter_map(|pvc| pvc.member.as_ref());
    names.extend(claimed);
    names.extend(
        leader
            .into_iter()
            .flat_map(|d| d.members.iter().map(|m| &m.name)),
    );
    names.sort();
    names.dedup();
    for name in names {
        let _ = writeln!(text, "{name}: {}", member(o, name));
    }
    for (name, node) in &o.nodes {
        let closed = if node.closed { ", closed" } else { "" };
        match (&node.drain_reason, node.ready) {
            (None, true) => {}
            (None, false) => drop(writeln!(text, "{name}: not ready")),
            (Some(why), true) => drop(writeln!(text, "{name}: {why}{closed}")),
            (Some(why), false) => drop(writeln!(text, "{name}: not ready, {why}{closed}")),
        }
    }
    let auto =
        |cluster: &ValidatedCluster| cluster.spec.disruption.policy == DisruptionPolicy::Auto;
    let auto = o.cluster.as_ref().is_ok_and(auto);
    match o.pdb.and_then(|pdb| pdb.limit) {
        Some(PdbLimit::MinAvailable(pods)) => {
            let _ = writeln!(text, "PDB: {pods} stay available");
        }
        Some(limit) if auto => drop(writeln!(text, "PDB: {limit}")),
        _ => {}
    }
    if !o.slots.is_empty() {
        let slot = |(slot, facts): (&u32, &SlotFacts)| {
            format!("{slot} {}", facts.member.as_deref().unwrap_or("?"))
        };
        let slots: Vec<String> = o.slots.iter().map(slot).collect();
        let _ = writeln!(text, "slots: {}", slots.join(", "));
    }
    text
}

fn member(o: &Observed, name: &str) -> String {
    let mut parts = Vec::new();
    let leader = o.descriptions.values().find(|d| d.leads);
    if let Some(view) = leader.and_then(|d| d.members.iter().find(|m| m.name == *name)) {
        let contact = match view.last_contact_ms {
            Some(ms) => format!("contact {} s ago", ms / 1000),
            None => "no contact".to_owned(),
        };
        parts.push(format!(
            "{}, {contact}",
            if view.learner { "learner" } else { "voter" }
        ));
    }
    parts.push(match o.descriptions.get(name) {
        None => "no answer".to_owned(),
        Some(d) if d.leads => "reports that it leads".to_owned(),
        Some(d) if d.phase == Phase::Standby => "reports an empty standby".to_owned(),
        Some(d) => format!(
            "reports {:?}{}",
            d.phase,
            if d.ready { ", ready" } else { "" }
        ),
    });
    match o.pods.get(name) {
        None => parts.push("no pod".to_owned()),
        Some(pod) => parts.push(format!(
            "pod {:?}{}{}",
            pod.phase,
            pod.node
                .as_ref()
                .map(|node| format!(" on {node}"))
                .unwrap_or_default(),
            pod.waiting
                .as_ref()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default()
        )),
    }
    match o.sets.get(name) {
        None => parts.push("no set".to_owned()),
        Some(set) => parts.push(format!("set of {}", set.inputs.as_deref().unwrap_or("?"))),
    }
    match o.pvcs.get(&pvc_name(name, CLUSTER_UID)) {
        None => parts.push("no PVC".to_owned()),
        Some(pvc) if pvc.terminating => parts.push("PVC terminating".to_owned()),
        Some(pvc) => parts.push(format!("PVC {:?}", pvc.state)),
    }
    parts.join("; ")
}

/// A cluster of this size at rest.
pub(super) fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// Seconds pass without an operator.
pub(super) fn wait(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.tick();
    }
}
