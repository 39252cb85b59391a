//! Server-side apply: which manager owns which fields, conflicts, and what goes when its last
//! manager no longer names it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fields::{self, Fields, Path, Step, list_shape, step_to};
use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::server::Stored;
use super::shape::{self, ListShape};
use super::write::{Part, Writer};

/// How a manager came by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// A manager and the fields that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manager {
    name: String,
    operation: Operation,
    status: bool,
    fields: Fields,
}

impl Manager {
    pub(super) fn to_json(&self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut shown = json!({"manager": self.name, "operation": operation,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_json()});
        if self.status {
            shown["subresource"] = json!("status");
        }
        shown
    }
}

/// An applied configuration, merged.
pub(super) struct Applied {
    pub(super) object: Value,
    pub(super) managers: Vec<Manager>,
}

/// The fields of a new object, all of them its creator's.
pub(super) fn created(
    kind: Kind,
    writer: Writer<'_>,
    object: &Value,
    operation: Operation,
) -> Result<Vec<Manager>, Refusal> {
    let fields = match operation {
        Operation::Apply => named(kind, object)?,
        // Users may create objects that are never applied, with lists that are not modelled.
        Operation::Update => named(kind, object).unwrap_or_default(),
    };
    Ok(vec![Manager {
        name: writer.manager.to_owned(),
        operation,
        status: false,
        fields,
    }])
}

/// The fields that a configuration names, without those that only identify the object.
fn named(kind: Kind, object: &Value) -> Result<Fields, Refusal> {
    let mut fields = fields::of(kind, object, &mut Path::root())?;
    let field = |name: &str| Step::Field(name.to_owned());
    for name in ["apiVersion", "kind"] {
        fields.below.remove(&field(name));
    }
    if let Some(meta) = fields.below.get_mut(&field("metadata")) {
        for name in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
            "selfLink",
        ] {
            meta.below.remove(&field(name));
        }
        meta.own = false;
        if meta.is_empty() {
            fields.below.remove(&field("metadata"));
        }
    }
    fields.own = false;
    Ok(fields)
}

/// Merges a configuration into the stored object.
pub(super) fn apply(
    kind: Kind,
    manager: &str,
    part: Part,
    stored: &Stored,
    mut body: Value,
    force: bool,
) -> Result<Applied, Refusal> {
    let status = part == Part::Status;
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object::take(&mut body, &["metadata", field]);
    }
    // What the request is not about counts for nothing.
    match part {
        Part::Main if kind.facts().status => drop(object::take(&mut body, &["status"])),
        Part::Main => {}
        Part::Status => drop(object::take(&mut body, &["spec"])),
    }
    let new = named(kind, &body)?;
    let mut managers: Vec<Manager> = (*stored.managers).clone();
    let own =
        |m: &Manager| m.name == manager && m.operation == Operation::Apply && m.status == status;
    let last = managers.iter().find(|m| own(m)).map(|m| m.fields.clone());
    let last = last.unwrap_or_default();
    let mut merged = (*stored.object).clone();
    merge(kind, &mut merged, &body, &mut Path::root())?;
    let changes = fields::compare(kind, &stored.object, &merged, &mut Path::root())?;
    conflicts(kind, stored, &mut managers, &own, &changes.changed, force)?;
    managers.retain(|m| !own(m));
    let mut gone = last;
    gone.remove(&new);
    let others: Vec<&Fields> = managers.iter().map(|m| &m.fields).collect();
    prune(kind, &mut merged, &gone, &new, &others, &mut Path::root())?;
    managers.push(Manager {
        name: manager.to_owned(),
        operation: Operation::Apply,
        status,
        fields: new,
    });
    managers.sort_by(|a, b| (&a.name, a.status).cmp(&(&b.name, b.status)));
    Ok(Applied {
        object: merged,
        managers,
    })
}

/// Takes what changes from its other managers, or refuses where that needs force.
fn conflicts(
    kind: Kind,
    stored: &Stored,
    managers: &mut Vec<Manager>,
    own: &impl Fn(&Manager) -> bool,
    changed: &Fields,
    force: bool,
) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    for manager in managers.iter_mut().filter(|m| !own(m)) {
        let common = manager.fields.common(changed);
        for path in common.paths() {
            causes.push(json!({"reason": "FieldManagerConflict", "field": path,
                "message": format!("conflict with \"{}\"", manager.name)}));
        }
        manager.fields.remove(&common);
    }
    managers.retain(|m| own(m) || !m.fields.is_empty());
    if causes.is_empty() || force {
        return Ok(());
    }
    let name = object::name(&stored.object);
    let text = format!("Apply failed with {} conflict(s)", causes.len());
    let mut refusal = Refusal::new(409, "Conflict", text).about(kind, name);
    refusal.details["causes"] = json!(causes);
    Err(refusal)
}

/// Merges a configuration over a value.
fn merge(kind: Kind, live: &mut Value, wanted: &Value, path: &mut Path) -> Result<(), Refusal> {
    match wanted {
        Value::Object(fields) if !shape::is_atomic_map(kind, path.as_str()) => {
            if !live.is_object() {
                *live = Value::Object(Map::new());
            }
            let Some(live) = live.as_object_mut() else {
                return Ok(());
            };
            for (name, wanted) in fields {
                let here = live.entry(name.clone()).or_insert(Value::Null);
                path.field(name, |path| merge(kind, here, wanted, path))?;
            }
            Ok(())
        }
        Value::Array(items) if live.is_array() => {
            let shape = list_shape(kind, path)?;
            if shape == ListShape::Atomic {
                *live = wanted.clone();
                return Ok(());
            }
            let old = live.as_array().cloned().unwrap_or_default();
            *live = Value::Array(merge_items(kind, shape, &old, items, path)?);
            Ok(())
        }
        _ => {
            *live = wanted.clone();
            Ok(())
        }
    }
}

/// Items keep the configuration's order; those that it does not name stay where they were
/// between them.
fn merge_items(
    kind: Kind,
    shape: ListShape,
    old: &[Value],
    wanted: &[Value],
    path: &mut Path,
) -> Result<Vec<Value>, Refusal> {
    let steps = |items: &[Value]| -> Result<Vec<Step>, Refusal> {
        items
            .iter()
            .map(|item| step_to(shape, item, path))
            .collect()
    };
    let (old_steps, wanted_steps) = (steps(old)?, steps(wanted)?);
    let mut merged = Vec::new();
    let mut from_old = old_steps.iter().zip(old).peekable();
    for (step, wanted) in wanted_steps.iter().zip(wanted) {
        while let Some((_, kept)) = from_old.next_if(|(old, _)| !wanted_steps.contains(old)) {
            merged.push(kept.clone());
        }
        let _ = from_old.next_if(|(old, _)| *old == step);
        let before = old_steps.iter().position(|old| old == step);
        let mut item = before
            .and_then(|at| old.get(at).cloned())
            .unwrap_or(Value::Null);
        path.item(|path| merge(kind, &mut item, wanted, path))?;
        merged.push(item);
    }
    let rest = from_old.filter(|(old, _)| !wanted_steps.contains(old));
    merged.extend(rest.map(|(_, kept)| kept.clone()));
    Ok(merged)
}

/// Takes away what the manager named before and does not name any more, unless others own it.
fn prune(
    kind: Kind,
    live: &mut Value,
    gone: &Fields,
    named: &Fields,
    others: &[&Fields],
    path: &mut Path,
) -> Result<(), Refusal> {
    for (step, gone) in &gone.below {
        let below: Vec<&Fields> = others.iter().filter_map(|f| f.below.get(step)).collect();
        let still_named = named.below.get(step);
        let held = !below.is_empty() || still_named.is_some();
        let empty = Fields::default();
        let still_named = still_named.unwrap_or(&empty);
        match step {
            Step::Field(name) => {
                let Some(map) = live.as_object_mut() else {
                    continue;
                };
                // A field that is owned itself goes as a whole; one that only holds owned
                // fields goes when nothing is left in it.
                if gone.own && !held {
                    map.remove(name);
                    continue;
                }
                if let Some(inner) = map.get_mut(name) {
                    path.field(name, |path| {
                        prune(kind, inner, gone, still_named, &below, path)
                    })?;
                    let void = inner.as_object().is_some_and(Map::is_empty)
                        || inner.as_array().is_some_and(Vec::is_empty);
                    if void && !held {
                        map.remove(name);
                    }
                }
            }
            Step::Key(_) | Step::Item(_) => {
                let shape = list_shape(kind, path)?;
                let Some(items) = live.as_array_mut() else {
                    continue;
                };
                let mut at = None;
                for (index, item) in items.iter().enumerate() {
                    if step_to(shape, item, path)? == *step {
                        at = Some(index);
                    }
                }
                let Some(at) = at else { continue };
                if gone.own && !held {
                    items.remove(at);
                } else if let Some(item) = items.get_mut(at) {
                    path.item(|path| prune(kind, item, gone, still_named, &below, path))?;
                }
            }
        }
    }
    Ok(())
}

/// Who owns what after a change that was not applied: what changed is the writer's.
pub(super) fn updated(
    kind: Kind,
    manager: &str,
    part: Part,
    stored: &Stored,
    new: &Value,
) -> Result<Arc<Vec<Manager>>, Refusal> {
    let status = part == Part::Status;
    let mut old = (*stored.object).clone();
    let mut new = new.clone();
    for object in [&mut old, &mut new] {
        object::take(object, &["metadata", "resourceVersion"]);
        object::take(object, &["metadata", "generation"]);
    }
    let found = fields::compare(kind, &old, &new, &mut Path::root())?;
    if found.changed.is_empty() && found.removed.is_empty() {
        return Ok(stored.managers.clone());
    }
    let mut managers: Vec<Manager> = (*stored.managers).clone();
    let mut own = Fields::default();
    managers.retain_mut(|m| {
        let mine = m.name == manager && m.operation == Operation::Update && m.status == status;
        if mine {
            own = std::mem::take(&mut m.fields);
            return false;
        }
        m.fields.remove(&found.changed);
        m.fields.remove(&found.removed);
        !m.fields.is_empty()
    });
    own.add(&found.changed);
    own.remove(&found.removed);
    if !own.is_empty() {
        managers.push(Manager {
            name: manager.to_owned(),
            operation: Operation::Update,
            status,
            fields: own,
        });
    }
    managers.sort_by(|a, b| (&a.name, a.status).cmp(&(&b.name, b.status)));
    Ok(Arc::new(managers))
}
