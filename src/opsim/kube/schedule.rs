//! The scheduler: gives a pod a node that fits all that it requires, or reports what no node has.
//! Nodes are never full, but none has everything that a pod can ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object::{self, put};
use crate::opsim::api::{ApiServer, Kind, label_selector_fits};

use super::place;
use super::volumes::{self, Fit};

const ACTOR: &str = "scheduler";

pub(super) fn advance(api: &mut ApiServer, tie: u64) {
    let waiting: Vec<Arc<Value>> = api
        .all(Kind::Pod)
        .filter(|pod| object::text(pod, &["spec", "nodeName"]).is_empty())
        .filter(|pod| !object::is_deleting(pod) && is_for_this_scheduler(pod))
        .cloned()
        .collect();
    for pod in waiting {
        one(api, &pod, tie);
    }
}

fn is_for_this_scheduler(pod: &Value) -> bool {
    let wanted = object::text(pod, &["spec", "schedulerName"]);
    matches!(wanted, "" | "default-scheduler")
}

fn one(api: &mut ApiServer, pod: &Value, tie: u64) {
    let id = (object::namespace(pod), object::name(pod));
    let now_ms = api.now_ms();
    match choose(api, pod, tie) {
        Choice::Node(node) => {
            api.edit(ACTOR, Kind::Pod, id, |pod| {
                put(pod, &["spec", "nodeName"], json!(node));
                object::set_condition(pod, now_ms, "PodScheduled", true, None);
            });
        }
        // The node is chosen, and the volume is being made for it.
        Choice::Waits => {}
        Choice::None(message) => {
            api.edit(ACTOR, Kind::Pod, id, |pod| {
                let why = Some(("Unschedulable", message.as_str()));
                object::set_condition(pod, now_ms, "PodScheduled", false, why);
            });
        }
    }
}

enum Choice {
    Node(String),
    Waits,
    None(String),
}

fn choose(api: &mut ApiServer, pod: &Value, tie: u64) -> Choice {
    let pvcs = match volumes::pvcs_of(api, pod) {
        Ok(pvcs) => pvcs,
        Err(why) => return Choice::None(format!("{why}. preemption: not eligible")),
    };
    let nodes: Vec<Arc<Value>> = api.all(Kind::Node).cloned().collect();
    let pods: Vec<Arc<Value>> = api.all(Kind::Pod).cloned().collect();
    let by_name: BTreeMap<&str, &Arc<Value>> = nodes
        .iter()
        .map(|node| (object::name(node), node))
        .collect();
    let scene = Scene {
        pod,
        pods: &pods,
        nodes: &by_name,
    };
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting: Vec<&Arc<Value>> = Vec::new();
    for node in &nodes {
        match scene
            .refused_by(node)
            .or_else(|| volumes::refused_by(api, &pvcs, node))
        {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None => fitting.push(node),
        }
    }
    let best = fitting
        .into_iter()
        .min_by_key(|node| (scene.crowd(node), mixed(tie, object::name(node))));
    let Some(best) = best else {
        let parts: Vec<String> = reasons
            .iter()
            .map(|(why, count)| format!("{count} {why}"))
            .collect();
        return Choice::None(format!(
            "0/{} nodes are available: {}.",
            nodes.len(),
            parts.join(", ")
        ));
    };
    match volumes::ready_for(api, &pvcs, object::name(best)) {
        Fit::Bound => Choice::Node(object::name(best).to_owned()),
        Fit::Chosen(node) => {
            // The volume is made for another node than the one that is best now.
            if by_name.contains_key(node.as_str()) {
                return Choice::Waits;
            }
            volumes::forget_choice(api, &pvcs);
            Choice::Waits
        }
        Fit::Unbound => {
            volumes::choose_node(api, &pvcs, object::name(best));
            Choice::Waits
        }
    }
}

/// Equal nodes in another order for another tie.
fn mixed(tie: u64, name: &str) -> u64 {
    let mut hash = tie ^ 0xcbf2_9ce4_8422_2325;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^ (hash >> 29)
}

struct Scene<'a> {
    pod: &'a Value,
    pods: &'a [Arc<Value>],
    nodes: &'a BTreeMap<&'a str, &'a Arc<Value>>,
}

impl Scene<'_> {
    /// Why this node is none for the pod.
    fn refused_by(&self, node: &Value) -> Option<String> {
        let spec = &self.pod["spec"];
        if let Some(why) = place::asks_too_much(spec) {
            return Some(why);
        }
        if let Some(why) = place::taints_refuse(spec, node) {
            return Some(why);
        }
        if !place::affinity_fits(spec, node) {
            return Some("node(s) didn't match Pod's node affinity/selector".into());
        }
        self.keeps_apart(node)
            .or_else(|| self.keeps_together(node))
            .or_else(|| self.spreads(node))
    }

    fn placed(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.pods.iter().filter_map(|pod| {
            let node = self.nodes.get(object::text(pod, &["spec", "nodeName"]))?;
            Some((&**pod, &***node))
        })
    }

    /// Required anti-affinity, from both sides.
    fn keeps_apart(&self, node: &Value) -> Option<String> {
        let same = |other: &Value, key: &str| {
            let place = object::label(node, key);
            place.is_some() && place == object::label(other, key)
        };
        let own = terms(self.pod, "podAntiAffinity");
        let fits = |term: &Value, of: &Value, to: &Value| {
            object::namespace(of) == object::namespace(to)
                && label_selector_fits(&term["labelSelector"], to)
        };
        for (other, place) in self.placed() {
            let key = |term: &Value| object::text(term, &["topologyKey"]).to_owned();
            if own
                .iter()
                .any(|term| fits(term, self.pod, other) && same(place, &key(term)))
            {
                return Some("node(s) didn't match pod anti-affinity rules".into());
            }
            let theirs = terms(other, "podAntiAffinity");
            if theirs
                .iter()
                .any(|term| fits(term, other, self.pod) && same(place, &key(term)))
            {
                let why = "node(s) didn't satisfy existing pods anti-affinity rules";
                return Some(why.into());
            }
        }
        None
    }

    /// Required affinity to other pods; the first of a group that fits itself may be anywhere.
    fn keeps_together(&self, node: &Value) -> Option<String> {
        for term in terms(self.pod, "podAffinity") {
            let key = object::text(term, &["topologyKey"]);
            let fits = |pod: &Value| {
                object::namespace(pod) == object::namespace(self.pod)
                    && label_selector_fits(&term["labelSelector"], pod)
            };
            let here = |place: &Value| {
                object::label(node, key).is_some()
                    && object::label(place, key) == object::label(node, key)
            };
            let beside = self.placed().any(|(pod, place)| fits(pod) && here(place));
            let first = fits(self.pod) && !self.placed().any(|(pod, _)| fits(pod));
            if !beside && !first {
                return Some("node(s) didn't match pod affinity rules".into());
            }
        }
        None
    }

    /// Topology spread that must hold.
    fn spreads(&self, node: &Value) -> Option<String> {
        for rule in object::items(self.pod, &["spec", "topologySpreadConstraints"]) {
            if object::text(rule, &["whenUnsatisfiable"]) != "DoNotSchedule" {
                continue;
            }
            let key = object::text(rule, &["topologyKey"]);
            let Some(place) = object::label(node, key) else {
                let why =
                    "node(s) didn't match pod topology spread constraints (missing required label)";
                return Some(why.into());
            };
            let counts = self.counts(rule, key);
            let least = counts.values().min().copied().unwrap_or(0);
            let own = i64::from(label_selector_fits(&rule["labelSelector"], self.pod));
            let here = counts.get(place).copied().unwrap_or(0) + own;
            let most = object::number(rule, &["maxSkew"]).unwrap_or(1);
            if here - least > most {
                return Some("node(s) didn't match pod topology spread constraints".into());
            }
        }
        None
    }

    /// Pods that a rule counts, by place, over the nodes that count for this pod.
    fn counts(&self, rule: &Value, key: &str) -> BTreeMap<String, i64> {
        let honours = |policy: &str, default: &str| {
            let value = object::text(rule, &[policy]);
            (if value.is_empty() { default } else { value }) == "Honor"
        };
        let (taints, affinity) = (
            honours("nodeTaintsPolicy", "Ignore"),
            honours("nodeAffinityPolicy", "Honor"),
        );
        let spec = &self.pod["spec"];
        let counted = |node: &Value| {
            (!affinity || place::affinity_fits(spec, node))
                && (!taints || place::taints_refuse(spec, node).is_none())
        };
        let mut counts = BTreeMap::new();
        for node in self.nodes.values().filter(|node| counted(node)) {
            if let Some(place) = object::label(node, key) {
                counts.entry(place.to_owned()).or_insert(0);
            }
        }
        for (pod, node) in self.placed() {
            let fits = !object::is_deleting(pod)
                && counted(node)
                && object::namespace(pod) == object::namespace(self.pod)
                && label_selector_fits(&rule["labelSelector"], pod);
            if let Some(count) = object::label(node, key)
                .filter(|_| fits)
                .and_then(|p| counts.get_mut(p))
            {
                *count += 1;
            }
        }
        counts
    }

    /// How crowded a node is: by the rules that should hold, then by pods.
    fn crowd(&self, node: &Value) -> (i64, usize) {
        let rules = object::items(self.pod, &["spec", "topologySpreadConstraints"]);
        let soft = rules
            .iter()
            .filter(|rule| object::text(rule, &["whenUnsatisfiable"]) == "ScheduleAnyway");
        let beside = soft.map(|rule| {
            let key = object::text(rule, &["topologyKey"]);
            let place = object::label(node, key).unwrap_or_default();
            self.counts(rule, key).get(place).copied().unwrap_or(0)
        });
        let here = self
            .placed()
            .filter(|(_, place)| object::name(place) == object::name(node));
        (beside.sum(), here.count())
    }
}

fn terms<'a>(pod: &'a Value, which: &str) -> &'a [Value] {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    object::items(pod, &["spec", "affinity", which, REQUIRED])
}
