//! A path of edits from a seed: a specification to begin with, what is changed in which order and
//! how soon after the one before, and the specification that it ends with.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::user;

use super::fields::{self, Field};

/// Fields that one path edits, at most.
const A_PATH: usize = 5;
/// What is edited beside the specification's fields: the scale subresource, and metadata of the
/// resource, which means nothing to the operator.
pub(super) const BESIDE: [&str; 2] = ["scale", "metadata"];

/// What an edit does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    /// Gives a field a value; `null` takes it away.
    Set(Value),
    /// The same, and the API server refuses it.
    Refused(Value),
    /// Asks for this size through the scale subresource.
    Scale(u64),
    /// Names members to replace.
    Replace(Target),
    /// Changes labels and annotations of the resource.
    Metadata(u64),
}

/// Members to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Leader,
    Follower,
    All,
}

/// What follows an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Everything comes to rest.
    Rest,
    /// So many milliseconds.
    Wait(u64),
}

/// One edit.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) field: &'static str,
    pub(super) deed: Deed,
    /// It is accepted, and does not work, or not for long.
    pub(super) bad: bool,
    /// By a whole new object, else by a patch of the field.
    pub(super) whole: bool,
    pub(super) then: Then,
}

/// From one specification to another.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) first: Value,
    pub(super) edits: Vec<Edit>,
    pub(super) last: Value,
}

/// How many paths of a seed edit every field once.
pub(super) fn of_a_seed() -> usize {
    (fields::all().len() + BESIDE.len()).div_ceil(A_PATH)
}

/// One of a seed's paths.
pub(super) fn path(seed: u64, number: usize) -> Path {
    let mut names: Vec<&'static str> = fields::all().iter().map(|field| field.path).collect();
    names.extend(BESIDE);
    shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed), &mut names);
    let chosen: Vec<&'static str> = names
        .chunks(A_PATH)
        .nth(number)
        .map(<[_]>::to_vec)
        .unwrap_or_default();
    let own = seed.wrapping_mul(1009).wrapping_add(number as u64 + 1);
    Maker::new(own).path(&chosen)
}

struct Maker {
    random: Xoshiro256PlusPlus,
    fields: Vec<Field>,
    /// The specification as it is after the edits so far.
    spec: Value,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut maker = Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            fields: fields::all(),
            spec: Value::Null,
        };
        let replicas = maker.pick(&[1, 2, 3, 3, 3, 4, 5]);
        maker.spec = user::spec(replicas);
        maker
    }

    fn path(mut self, chosen: &[&'static str]) -> Path {
        for field in self.fields.clone() {
            let class = field.path == "storage.storageClassName";
            // The members to begin with were drawn, and a pause would forbid to begin.
            let fixed = ["replicas", "paused"].contains(&field.path);
            if !fixed && self.chance(if class { 0.4 } else { 0.15 }) {
                let value = self.pick(&field.good);
                set(&mut self.spec, field.path, &value);
            }
        }
        // A standby has its first data from its source.
        if !get(&self.spec, "bootstrap").is_null() {
            set(&mut self.spec, "replicaOf", &Value::Null);
        }
        let first = self.spec.clone();
        let mut queues: Vec<Vec<Edit>> = chosen.iter().map(|name| self.edits_of(name)).collect();
        let mut edits = Vec::new();
        let mut broken: Vec<&str> = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            queues.retain(|queue| !queue.is_empty());
            let at = self.random.random_range(0..queues.len());
            let mut edit = queues[at].remove(0);
            if !matches!(edit.deed, Deed::Refused(_)) {
                broken.retain(|name| *name != edit.field);
                if edit.bad {
                    broken.push(edit.field);
                }
            }
            edit.then = self.then(broken.is_empty());
            edits.push(edit);
        }
        for edit in &edits {
            match &edit.deed {
                Deed::Set(value) => set(&mut self.spec, edit.field, value),
                Deed::Scale(replicas) => set(&mut self.spec, "replicas", &json!(replicas)),
                _ => {}
            }
        }
        Path {
            first,
            edits,
            last: self.spec,
        }
    }

    /// What is done to one field, in order; the last is good.
    fn edits_of(&mut self, name: &'static str) -> Vec<Edit> {
        let mut edits = Vec::new();
        match name {
            "scale" => {
                for _ in 0..self.random.random_range(1..=2) {
                    let replicas = self.pick(&[1, 2, 3, 4, 5]);
                    edits.push(self.edit("scale", Deed::Scale(replicas), false));
                }
                return edits;
            }
            "metadata" => {
                let number = self.random.random();
                return vec![self.edit("metadata", Deed::Metadata(number), false)];
            }
            _ => {}
        }
        let found = self.fields.iter().find(|field| field.path == name);
        let Some(field) = found.cloned() else {
            return edits;
        };
        let bads = if field.bad.is_empty() {
            0
        } else {
            self.pick(&[0, 1, 1, 2])
        };
        for _ in 0..bads {
            let value = self.pick(&field.bad);
            edits.push(self.edit(field.path, Deed::Set(value), true));
        }
        if name == "replaceMembers" {
            let target = self.pick(&[Target::Leader, Target::Follower, Target::All]);
            edits.push(self.edit(field.path, Deed::Replace(target), false));
        }
        let mut goods = self.goods(&field);
        if goods.len() > 1 && (bads > 0 || self.chance(0.5)) {
            goods.truncate(1);
        }
        for value in goods {
            edits.push(self.edit(field.path, Deed::Set(value), false));
        }
        if self.chance(0.6) {
            let value = self.pick(&field.refused);
            let at = self.random.random_range(0..=edits.len());
            edits.insert(at, self.edit(field.path, Deed::Refused(value), false));
        }
        edits
    }

    /// Up to two good values, other than the one that is there where there are others.
    fn goods(&mut self, field: &Field) -> Vec<Value> {
        let now = get(&self.spec, field.path);
        if ["bootstrap", "replicaOf"].contains(&field.path) {
            return vec![now];
        }
        let mut goods = field.good.clone();
        shuffle(&mut self.random, &mut goods);
        if field.path == "tls" {
            // Once on it stays on, and its certificates come from where they came from first.
            let on = if now.is_null() {
                goods.iter().find(|value| !value.is_null()).cloned()
            } else {
                Some(now.clone())
            };
            let from = on.as_ref().map(sources);
            goods.retain(|value| !value.is_null() && Some(sources(value)) == from);
        }
        if goods.len() > 1 {
            goods.retain(|value| *value != now);
        }
        goods.truncate(2);
        goods
    }

    fn edit(&mut self, field: &'static str, deed: Deed, bad: bool) -> Edit {
        Edit {
            field,
            deed,
            bad,
            whole: self.chance(0.5),
            then: Then::Wait(0),
        }
    }

    /// What follows an edit: what does not work never comes to rest.
    fn then(&mut self, works: bool) -> Then {
        if works && self.chance(0.25) {
            return Then::Rest;
        }
        let most = self.pick(&[0, 300, 3_000, 15_000, 15_000, 120_000]);
        Then::Wait(self.random.random_range(0..=most))
    }

    fn chance(&mut self, of_one: f64) -> bool {
        self.random.random_bool(of_one)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())].clone()
    }
}

/// Where the certificates of the two ports come from.
pub(super) fn sources(tls: &Value) -> [String; 2] {
    let port = |name: &str| tls[name]["source"].as_str().unwrap_or("Operator");
    ["client", "peer"].map(|name| port(name).to_owned())
}

fn shuffle<T>(random: &mut Xoshiro256PlusPlus, all: &mut [T]) {
    for at in (1..all.len()).rev() {
        all.swap(at, random.random_range(0..=at));
    }
}

/// Gives a field a value; `null` takes it away.
pub(super) fn set(spec: &mut Value, path: &str, value: &Value) {
    let way: Vec<&str> = path.split('.').collect();
    if value.is_null() {
        object::take(spec, &way);
    } else {
        object::put(spec, &way, value.clone());
    }
}

fn get(spec: &Value, path: &str) -> Value {
    let way: Vec<&str> = path.split('.').collect();
    object::at(spec, &way).cloned().unwrap_or_default()
}
