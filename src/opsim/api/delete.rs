//! Deleting: preconditions, grace for pods, finalizers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::server::ApiServer;

/// What becomes of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay without it.
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Only the object with this UID.
    pub uid: Option<String>,
    /// Only this version of it.
    pub resource_version: Option<String>,
    /// Seconds that a pod has for its end; its own where absent; 0 takes it away at once.
    pub grace_seconds: Option<i64>,
    /// Background where absent.
    pub propagation: Option<Propagation>,
}

impl Delete {
    /// Only the object with this UID.
    pub fn only(uid: &str) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            ..Self::default()
        }
    }

    /// Reads `DeleteOptions`.
    pub(super) fn read(options: &Value) -> Result<Self, Refusal> {
        let text = |path: &[&str]| {
            let text = object::text(options, path);
            (!text.is_empty()).then(|| text.to_owned())
        };
        let propagation = match object::text(options, &["propagationPolicy"]) {
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let text = format!("propagationPolicy {other:?}");
                return Err(Refusal::bad_request(text));
            }
        };
        if !object::items(options, &["dryRun"]).is_empty() {
            return Err(Refusal::not_modelled("a dry run of a deletion"));
        }
        Ok(Self {
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            grace_seconds: object::number(options, &["gracePeriodSeconds"]),
            propagation,
        })
    }
}

impl ApiServer {
    /// Deletes an object, or marks it where something still holds it. Gives its last version.
    ///
    /// # Errors
    /// 404 when it is not there, 409 when a precondition fails.
    pub fn delete(
        &mut self,
        actor: &str,
        kind: Kind,
        (namespace, name): (&str, &str),
        how: &Delete,
    ) -> Result<Arc<Value>, Refusal> {
        let Some(stored) = self.stored(kind, namespace, name).cloned() else {
            return Err(Refusal::not_found(kind, name));
        };
        check(kind, &stored.object, how)?;
        let mut object = (*stored.object).clone();
        let now_ms = self.now_ms();
        match grace(kind, &mut object, how, now_ms) {
            Grace::Pending => return Ok(stored.object),
            Grace::None => {
                mark_finalizers(&mut object, how);
                if object::finalizers(&object).next().is_none() {
                    return Ok(self.erase(actor, kind, &object));
                }
                mark_deleting(&mut object, now_ms);
            }
            Grace::Marked { seconds } => {
                mark_finalizers(&mut object, how);
                if seconds == 0 && object::finalizers(&object).next().is_none() {
                    return Ok(self.erase(actor, kind, &object));
                }
            }
        }
        if object == *stored.object {
            return Ok(stored.object);
        }
        Ok(self.store(actor, kind, object, stored.managers))
    }
}

fn check(kind: Kind, found: &Value, how: &Delete) -> Result<(), Refusal> {
    let name = object::name(found);
    if let Some(uid) = &how.uid
        && uid != object::uid(found)
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            object::uid(found)
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    let version = object::text(found, &["metadata", "resourceVersion"]);
    if let Some(wanted) = &how.resource_version
        && wanted != version
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    Ok(())
}

enum Grace {
    /// The kind has no grace, or it has passed.
    None,
    /// It was marked with this many seconds.
    Marked { seconds: i64 },
    /// It is on its way out and nothing is to be changed.
    Pending,
}

/// Only pods are given time.
fn grace(kind: Kind, object: &mut Value, how: &Delete, now_ms: u64) -> Grace {
    if kind != Kind::Pod {
        return Grace::None;
    }
    let asked = how.grace_seconds.map(|s| if s < 0 { 1 } else { s });
    let given = object::number(object, &["metadata", "deletionGracePeriodSeconds"]);
    if object::is_deleting(object) {
        let given = given.unwrap_or(0);
        if given == 0 {
            return Grace::None;
        }
        let Some(asked) = asked.filter(|asked| *asked < given) else {
            return Grace::Pending;
        };
        // Only a shorter time may follow, counted from the same beginning and not into the past.
        let ends = object::time_ms(object, &["metadata", "deletionTimestamp"]).unwrap_or(now_ms);
        let began = ends.saturating_sub(milliseconds(given));
        let ends = began.saturating_add(milliseconds(asked));
        let seconds = if ends < now_ms && asked != 0 {
            1
        } else {
            asked
        };
        set_grace(object, ends.max(now_ms), seconds);
        return Grace::Marked { seconds };
    }
    let own = object::number(object, &["spec", "terminationGracePeriodSeconds"]);
    let placed = !object::text(object, &["spec", "nodeName"]).is_empty();
    let ended = matches!(
        object::text(object, &["status", "phase"]),
        "Succeeded" | "Failed"
    );
    let seconds = if placed && !ended {
        asked.or(own).unwrap_or(0).max(0)
    } else {
        0
    };
    set_grace(
        object,
        now_ms.saturating_add(milliseconds(seconds)),
        seconds,
    );
    bump(object);
    Grace::Marked { seconds }
}

fn set_grace(object: &mut Value, ends_ms: u64, seconds: i64) {
    object["metadata"]["deletionTimestamp"] = json!(object::time(ends_ms));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
}

fn mark_deleting(object: &mut Value, now_ms: u64) {
    if !object::is_deleting(object) {
        bump(object);
        object["metadata"]["deletionTimestamp"] = json!(object::time(now_ms));
    }
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
}

fn bump(object: &mut Value) {
    if let Some(generation) = object::number(object, &["metadata", "generation"]) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn milliseconds(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)
}

/// What a deletion asks of the garbage collector is noted as a finalizer.
fn mark_finalizers(object: &mut Value, how: &Delete) {
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    let Some(propagation) = how.propagation else {
        return;
    };
    let mut finalizers: Vec<String> = object::finalizers(object)
        .filter(|name| *name != ORPHAN && *name != FOREGROUND)
        .map(str::to_owned)
        .collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    if finalizers.is_empty() {
        object::take(object, &["metadata", "finalizers"]);
    } else {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
}
