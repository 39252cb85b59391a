//! Sets of fields, as managers own them: a tree whose nodes may themselves be owned.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::refusal::Refusal;
use super::shape::{self, ListShape};

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A field of an object.
    Field(String),
    /// An item of a list by its keys, as JSON.
    Key(String),
    /// An item of a set by itself, as JSON.
    Item(String),
}

impl Step {
    fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Item(item) => format!("v:{item}"),
        }
    }
}

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// This very field belongs to the set.
    pub(super) own: bool,
    pub(super) below: BTreeMap<Step, Fields>,
}

impl Fields {
    pub(super) fn leaf() -> Self {
        Self {
            own: true,
            below: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.own && self.below.is_empty()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.own |= other.own;
        for (step, below) in &other.below {
            self.below.entry(step.clone()).or_default().add(below);
        }
    }

    pub(super) fn remove(&mut self, other: &Self) {
        self.own &= !other.own;
        for (step, gone) in &other.below {
            if let Some(below) = self.below.get_mut(step) {
                below.remove(gone);
                if below.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    /// What is in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        let below = self.below.iter().filter_map(|(step, below)| {
            let common = below.common(other.below.get(step)?);
            (!common.is_empty()).then(|| (step.clone(), common))
        });
        Self {
            own: self.own && other.own,
            below: below.collect(),
        }
    }

    /// The paths of the owned fields, as conflicts name them.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect(&mut String::new(), &mut found);
        found
    }

    fn collect(&self, path: &mut String, found: &mut Vec<String>) {
        if self.own {
            found.push(path.clone());
        }
        for (step, below) in &self.below {
            let length = path.len();
            match step {
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Step::Key(key) => path.push_str(&format!("[{key}]")),
                Step::Item(item) => path.push_str(&format!("[={item}]")),
            }
            below.collect(path, found);
            path.truncate(length);
        }
    }

    /// As `fieldsV1` shows it.
    pub(super) fn to_json(&self) -> Value {
        let mut shown = json!({});
        if self.own && !self.below.is_empty() {
            shown["."] = json!({});
        }
        for (step, below) in &self.below {
            shown[step.text()] = below.to_json();
        }
        shown
    }
}

/// A path that grows and shrinks while an object is walked.
pub(super) struct Path(String);

impl Path {
    pub(super) fn root() -> Self {
        Self(String::new())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn field<T>(&mut self, name: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        let out = walk(self);
        self.0.truncate(length);
        out
    }

    pub(super) fn item<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        self.0.push_str("[]");
        let out = walk(self);
        self.0.truncate(length);
        out
    }
}

/// How the list here merges.
pub(super) fn list_shape(kind: Kind, path: &Path) -> Result<ListShape, Refusal> {
    shape::list(kind, path.as_str()).ok_or_else(|| {
        let text = format!("how {} of {} merges", path.as_str(), kind.name());
        Refusal::not_modelled(text)
    })
}

/// The step to an item of a list that is no atom.
pub(super) fn step_to(shape: ListShape, item: &Value, path: &Path) -> Result<Step, Refusal> {
    let keys = match shape {
        ListShape::Set | ListShape::Atomic => return Ok(Step::Item(item.to_string())),
        ListShape::Map(keys) => keys,
    };
    let mut found = json!({});
    for (key, absent) in keys {
        found[*key] = match (item.get(key), absent) {
            (Some(value), _) if !value.is_null() => value.clone(),
            (_, Some(absent)) => json!(absent),
            _ => {
                let text = format!(
                    "failed to create typed patch object: .{}: element 0: associative list with keys has an element that omits key field \"{key}\"",
                    path.as_str()
                );
                return Err(Refusal::internal(text));
            }
        };
    }
    Ok(Step::Key(found.to_string()))
}

/// The fields that a value sets, as in an applied configuration.
pub(super) fn of(kind: Kind, value: &Value, path: &mut Path) -> Result<Fields, Refusal> {
    match value {
        Value::Object(map) if !map.is_empty() && !shape::is_atomic_map(kind, path.as_str()) => {
            let mut all = Fields::default();
            for (name, value) in map {
                let below = path.field(name, |path| of(kind, value, path))?;
                all.below.insert(Step::Field(name.clone()), below);
            }
            Ok(all)
        }
        Value::Array(items) if !items.is_empty() => {
            let shape = list_shape(kind, path)?;
            if shape == ListShape::Atomic {
                return Ok(Fields::leaf());
            }
            let mut all = Fields::default();
            for item in items {
                let step = step_to(shape, item, path)?;
                let mut below = match shape {
                    ListShape::Map(_) => path.item(|path| of(kind, item, path))?,
                    _ => Fields::leaf(),
                };
                below.own = true;
                if all.below.insert(step.clone(), below).is_some() {
                    let text = format!(
                        "failed to create typed patch object: .{}: duplicate entries for key {}",
                        path.as_str(),
                        step.text()
                    );
                    return Err(Refusal::internal(text));
                }
            }
            Ok(all)
        }
        _ => Ok(Fields::leaf()),
    }
}

/// What differs between two values: what the new one adds or changes, and what it lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) changed: Fields,
    pub(super) removed: Fields,
}

/// Compares two values of a kind.
pub(super) fn compare(
    kind: Kind,
    old: &Value,
    new: &Value,
    path: &mut Path,
) -> Result<Difference, Refusal> {
    let mut found = Difference::default();
    if old == new {
        return Ok(found);
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !shape::is_atomic_map(kind, path.as_str()) => {
            for (name, old) in old {
                let step = Step::Field(name.clone());
                match new.get(name) {
                    Some(new) => {
                        let below = path.field(name, |path| compare(kind, old, new, path))?;
                        found.below(step, below);
                    }
                    None => {
                        let gone = path.field(name, |path| of(kind, old, path))?;
                        found.removed.below.insert(step, gone);
                    }
                }
            }
            for (name, new) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                let added = path.field(name, |path| of(kind, new, path))?;
                found.changed.below.insert(Step::Field(name.clone()), added);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let shape = list_shape(kind, path)?;
            if shape == ListShape::Atomic {
                found.changed.own = true;
                return Ok(found);
            }
            compare_items(kind, shape, (old, new), path, &mut found)?;
        }
        _ => {
            found.changed = of(kind, new, path)?;
            found.changed.own |= found.changed.below.is_empty();
        }
    }
    Ok(found)
}

fn compare_items(
    kind: Kind,
    shape: ListShape,
    (old, new): (&[Value], &[Value]),
    path: &mut Path,
    found: &mut Difference,
) -> Result<(), Refusal> {
    let keyed = |items: &[Value], path: &Path| -> Result<Vec<Step>, Refusal> {
        items
            .iter()
            .map(|item| step_to(shape, item, path))
            .collect()
    };
    let (old_steps, new_steps) = (keyed(old, path)?, keyed(new, path)?);
    let whole = |item: &Value, path: &mut Path| -> Result<Fields, Refusal> {
        let mut all = match shape {
            ListShape::Map(_) => path.item(|path| of(kind, item, path))?,
            _ => Fields::leaf(),
        };
        all.own = true;
        Ok(all)
    };
    for (step, old) in old_steps.iter().zip(old) {
        match new_steps.iter().position(|new| new == step) {
            Some(at) => {
                let Some(new) = new.get(at) else { continue };
                let below = path.item(|path| compare(kind, old, new, path))?;
                found.below(step.clone(), below);
            }
            None => {
                let gone = whole(old, path)?;
                found.removed.below.insert(step.clone(), gone);
            }
        }
    }
    for (step, new) in new_steps.into_iter().zip(new) {
        if !old_steps.contains(&step) {
            let added = whole(new, path)?;
            found.changed.below.insert(step, added);
        }
    }
    Ok(())
}

impl Difference {
    fn below(&mut self, step: Step, below: Self) {
        if !below.changed.is_empty() {
            self.changed.below.insert(step.clone(), below.changed);
        }
        if !below.removed.is_empty() {
            self.removed.below.insert(step, below.removed);
        }
    }
}
