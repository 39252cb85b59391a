//! Creating and changing objects, by the rules that real Kubernetes has for users, and past them
//! for the simulated controllers.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::apply::{self, Manager, Operation};
use super::defaults;
use super::families;
use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::schema;
use super::server::{ApiServer, Stored};
use super::validate;
use super::webhook;

/// A change of an object that is there, or an applied configuration.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Server-side apply.
    Apply {
        /// The configuration.
        body: Value,
        /// Takes fields over from other managers.
        force: bool,
    },
}

/// Whose write it is, and under which name its fields are noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'a> {
    pub(super) actor: &'a str,
    pub(super) manager: &'a str,
}

impl<'a> Writer<'a> {
    /// Who writes under its own name.
    fn of(actor: &'a str) -> Self {
        Self {
            actor,
            manager: actor,
        }
    }
}

/// Which part of an object a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Status,
}

impl ApiServer {
    /// Creates an object as `actor`, which is the field manager too.
    ///
    /// # Errors
    /// As the API server refuses it.
    pub fn create(
        &mut self,
        actor: &str,
        kind: Kind,
        object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let created = self.create_as(Writer::of(actor), kind, object, Operation::Update);
        created.map_err(|refusal| self.note(refusal))
    }

    /// Replaces an object (PUT). Without a `resourceVersion` it does so whatever is there, for
    /// kinds that allow this.
    ///
    /// # Errors
    /// As the API server refuses it.
    pub fn replace(
        &mut self,
        actor: &str,
        kind: Kind,
        object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let replaced = self.replace_as(Writer::of(actor), kind, Part::Main, object);
        replaced.map_err(|refusal| self.note(refusal))
    }

    /// Patches an object as `actor`, which is the field manager too.
    ///
    /// # Errors
    /// As the API server refuses it.
    pub fn patch(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        patch: Patch,
    ) -> Result<Arc<Value>, Refusal> {
        let patched = self.patch_as(
            Writer::of(actor),
            kind,
            Part::Main,
            (namespace, name),
            patch,
        );
        patched.map_err(|refusal| self.note(refusal))
    }

    /// Changes object and status at once, past the rules for users: for the simulated controllers
    /// and nodes. `None` when it is not there. Nothing is written where nothing changes.
    pub fn edit(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let stored = self.stored(kind, namespace, name)?.clone();
        let mut object = (*stored.object).clone();
        change(&mut object);
        Some(self.commit(actor, kind, &stored, object, stored.managers.clone()))
    }

    pub(super) fn create_as(
        &mut self,
        writer: Writer<'_>,
        kind: Kind,
        mut object: Value,
        operation: Operation,
    ) -> Result<Arc<Value>, Refusal> {
        validate::shape_of(kind, &object)?;
        if !object::text(&object, &["metadata", "resourceVersion"]).is_empty() {
            let text = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::bad_request(text));
        }
        if object::name(&object).is_empty() {
            let prefix = object::text(&object, &["metadata", "generateName"]).to_owned();
            if prefix.is_empty() {
                let why = "Required value: name or generateName is required";
                return Err(Refusal::invalid(kind, "", "metadata.name", why));
            }
            object["metadata"]["name"] = json!(format!("{prefix}{}", self.new_suffix()));
        }
        if operation == Operation::Update && validate::resets_status(kind) {
            object::take(&mut object, &["status"]);
        }
        let managers = apply::created(kind, writer, &object, operation)?;
        for field in [
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            object::take(&mut object, &["metadata", field]);
        }
        let name = object::name(&object).to_owned();
        if self.get(kind, object::namespace(&object), &name).is_some() {
            return Err(Refusal::already_exists(kind, &name));
        }
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        object["metadata"]["uid"] = json!(self.new_uid());
        object["metadata"]["creationTimestamp"] = json!(object::time(self.now_ms()));
        match kind.facts().generation {
            true => object["metadata"]["generation"] = json!(1),
            false => drop(object::take(&mut object, &["metadata", "generation"])),
        }
        if kind == Kind::Pod && self.injects_sidecars() {
            webhook::admit(&mut object);
        }
        defaults::on_create(self, kind, &mut object);
        defaults::always(kind, &mut object);
        if kind == Kind::Service {
            families::settle(self, None, &mut object)?;
        }
        validate::on_create(self, kind, &object)?;
        Ok(self.store(writer.actor, kind, object, Arc::new(managers)))
    }

    pub(super) fn replace_as(
        &mut self,
        writer: Writer<'_>,
        kind: Kind,
        part: Part,
        object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        validate::shape_of(kind, &object)?;
        let (namespace, name) = (object::namespace(&object), object::name(&object));
        let Some(stored) = self.stored(kind, namespace, name).cloned() else {
            return Err(Refusal::not_found(kind, name));
        };
        if object::revision(&object) == 0 && !validate::may_be_unconditional(kind) {
            let why = "Invalid value: 0: must be specified for an update";
            return Err(Refusal::invalid(
                kind,
                name,
                "metadata.resourceVersion",
                why,
            ));
        }
        let wanted = object::uid(&object);
        if !wanted.is_empty() && wanted != object::uid(&stored.object) {
            let why = format!(
                "StorageError: invalid object, Code: 4, Precondition failed: UID in precondition: {wanted}, UID in object meta: {}",
                object::uid(&stored.object)
            );
            return Err(Refusal::conflict(kind, name, &why));
        }
        self.update(writer, kind, part, &stored, object)
    }

    pub(super) fn patch_as(
        &mut self,
        writer: Writer<'_>,
        kind: Kind,
        part: Part,
        (namespace, name): (&str, &str),
        patch: Patch,
    ) -> Result<Arc<Value>, Refusal> {
        let stored = self.stored(kind, namespace, name).cloned();
        match (patch, stored) {
            (Patch::Merge(_), None) => Err(Refusal::not_found(kind, name)),
            (Patch::Merge(patch), Some(stored)) => {
                let object = merged(kind, (namespace, name), &stored, patch)?;
                self.update(writer, kind, part, &stored, object)
            }
            (Patch::Apply { body, force }, stored) => {
                self.apply(writer, kind, part, (namespace, name), (body, force), stored)
            }
        }
    }

    /// Whether a merge patch would be taken, and what it would make: nothing is written.
    pub(super) fn try_patch(
        &mut self,
        kind: Kind,
        part: Part,
        (namespace, name): (&str, &str),
        patch: Value,
    ) -> Result<Value, Refusal> {
        let stored = self.stored(kind, namespace, name).cloned();
        let stored = stored.ok_or_else(|| Refusal::not_found(kind, name))?;
        let object = merged(kind, (namespace, name), &stored, patch)?;
        self.prepare(kind, part, &stored, object)
    }

    fn apply(
        &mut self,
        writer: Writer<'_>,
        kind: Kind,
        part: Part,
        (namespace, name): (&str, &str),
        (mut body, force): (Value, bool),
        stored: Option<Stored>,
    ) -> Result<Arc<Value>, Refusal> {
        validate::shape_of(kind, &body)?;
        if object::at(&body, &["metadata", "managedFields"]).is_some() {
            return Err(Refusal::bad_request("metadata.managedFields must be nil"));
        }
        object::default(&mut body, &["metadata", "name"], json!(name));
        if kind.is_namespaced() {
            object::default(&mut body, &["metadata", "namespace"], json!(namespace));
        }
        check_name(kind, (namespace, name), &body)?;
        schema::knows(kind, &body)?;
        let Some(stored) = stored else {
            if part == Part::Status {
                return Err(Refusal::not_found(kind, name));
            }
            let uid = object::uid(&body);
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Refusal::conflict(kind, name, &why));
            }
            object::take(&mut body, &["status"]);
            return self.create_as(writer, kind, body, Operation::Apply);
        };
        let version = object::revision(&body);
        let uid = object::uid(&body).to_owned();
        let applied = apply::apply(kind, writer.manager, part, &stored, body, force)?;
        let mut object = applied.object;
        if version != 0 {
            object["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        if !uid.is_empty() {
            object["metadata"]["uid"] = json!(uid);
        }
        let object = self.prepare(kind, part, &stored, object)?;
        let managers = Arc::new(applied.managers);
        Ok(self.commit(writer.actor, kind, &stored, object, managers))
    }

    /// A change of the part by somebody who did not apply it.
    fn update(
        &mut self,
        writer: Writer<'_>,
        kind: Kind,
        part: Part,
        stored: &Stored,
        object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let object = self.prepare(kind, part, stored, object)?;
        let managers = apply::updated(kind, writer.manager, part, stored, &object)?;
        Ok(self.commit(writer.actor, kind, stored, object, managers))
    }

    /// What a new version takes over from the stored one, and whether it may follow it.
    fn prepare(
        &mut self,
        kind: Kind,
        part: Part,
        stored: &Stored,
        mut object: Value,
    ) -> Result<Value, Refusal> {
        let old = &*stored.object;
        let version = object::revision(&object);
        if version != 0 && version != object::revision(old) {
            return Err(Refusal::stale(kind, object::name(old)));
        }
        if part == Part::Status {
            // Only the status counts: not even another UID is looked at.
            let status = object::take(&mut object, &["status"]);
            let mut whole = old.clone();
            match status {
                Some(status) => whole["status"] = status,
                None => drop(object::take(&mut whole, &["status"])),
            }
            schema::fill(kind, &mut whole);
            schema::check(kind, &whole)?;
            if kind == Kind::PodCertificateRequest {
                validate::pod_certificate_request(self.now_ms(), old, &whole)?;
            }
            return Ok(whole);
        }
        if kind.facts().status {
            match old.get("status") {
                Some(status) => object["status"] = status.clone(),
                None => drop(object::take(&mut object, &["status"])),
            }
        }
        validate::shape_of(kind, &object)?;
        let meta = &mut object["metadata"];
        let old_meta = &old["metadata"];
        if let Some(meta) = meta.as_object_mut() {
            meta.remove("managedFields");
            carry_over(meta, old_meta);
        }
        if object::uid(&object) != object::uid(old) {
            let why = format!(
                "Invalid value: {:?}: field is immutable",
                object::uid(&object)
            );
            let name = object::name(old);
            return Err(Refusal::invalid(kind, name, "metadata.uid", &why));
        }
        defaults::on_update(kind, old, &mut object);
        defaults::always(kind, &mut object);
        if kind == Kind::Service {
            families::settle(self, Some(old), &mut object)?;
        }
        validate::on_update(self, kind, old, &object)?;
        Ok(object)
    }

    /// Stores a new version of an object, or takes it away when nothing holds it any more. A
    /// write that changes nothing makes no version.
    pub(super) fn commit(
        &mut self,
        actor: &str,
        kind: Kind,
        stored: &Stored,
        mut object: Value,
        managers: Arc<Vec<Manager>>,
    ) -> Arc<Value> {
        let old = &*stored.object;
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        tidy(&mut object);
        if object == *old && managers == stored.managers {
            return stored.object.clone();
        }
        if kind.facts().generation && specifies_else(old, &object) {
            let generation = object::number(old, &["metadata", "generation"]).unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
        }
        let grace = object::number(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
        let held = object::finalizers(&object).next().is_some();
        if object::is_deleting(old) && grace == 0 && !held {
            return self.erase(actor, kind, &object);
        }
        self.store(actor, kind, object, managers)
    }
}

/// What no write of an object itself changes.
fn carry_over(meta: &mut Map<String, Value>, old: &Value) {
    const FIXED: &[&str] = &[
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
    ];
    for field in FIXED {
        match old.get(field) {
            Some(value) => meta.insert((*field).to_owned(), value.clone()),
            None => meta.remove(*field),
        };
    }
    if meta
        .get("uid")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        meta.insert("uid".to_owned(), old["uid"].clone());
    }
}

/// Empty lists and maps of the metadata are absent.
fn tidy(object: &mut Value) {
    for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
        let empty = match &object["metadata"][field] {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        if empty {
            object::take(object, &["metadata", field]);
        }
    }
}

/// Whether anything differs apart from metadata and status.
fn specifies_else(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let other = |field: &&String| !matches!(field.as_str(), "metadata" | "status");
    old.keys()
        .chain(new.keys())
        .filter(other)
        .any(|field| old.get(field) != new.get(field))
}

fn check_name(kind: Kind, (namespace, name): (&str, &str), object: &Value) -> Result<(), Refusal> {
    if object::name(object) != name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object::name(object)
        )));
    }
    if kind.is_namespaced() && object::namespace(object) != namespace {
        let text =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(text));
    }
    Ok(())
}

/// What a merge patch of an object makes of it.
fn merged(
    kind: Kind,
    (namespace, name): (&str, &str),
    stored: &Stored,
    patch: Value,
) -> Result<Value, Refusal> {
    let mut object = (*stored.object).clone();
    merge(&mut object, patch);
    check_name(kind, (namespace, name), &object)?;
    Ok(object)
}

/// Merges as in RFC 7386: null removes a field.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (field, value) in patch {
        if value.is_null() {
            target.remove(&field);
        } else {
            merge(target.entry(field).or_insert(Value::Null), value);
        }
    }
}
