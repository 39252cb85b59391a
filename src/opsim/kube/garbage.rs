//! The garbage collector: what is left without an owner goes; deletions in the foreground wait for
//! what they wait for; orphans are let go.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::opsim::api::object;
use crate::opsim::api::{ApiServer, Delete, Kind, Propagation};

const ACTOR: &str = "generic-garbage-collector";
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(super) fn advance(api: &mut ApiServer) {
    for kind in Kind::ALL {
        let owned: Vec<Arc<Value>> = api
            .all(kind)
            .filter(|object| !object::owners(object).is_empty())
            .cloned()
            .collect();
        for object in owned {
            attend(api, kind, &object);
        }
        let ending: Vec<Arc<Value>> = api
            .all(kind)
            .filter(|object| object::is_deleting(object))
            .filter(|object| object::finalizers(object).any(|f| f == ORPHAN || f == FOREGROUND))
            .cloned()
            .collect();
        for object in ending {
            finish(api, kind, &object);
        }
    }
}

/// How an owner stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    /// It is not there, or another object has its name.
    Gone,
    /// It goes after those that it owns.
    Waits,
}

fn owner(api: &ApiServer, of: &Value, reference: &Value) -> Owner {
    let (version, kind) = (
        object::text(reference, &["apiVersion"]),
        object::text(reference, &["kind"]),
    );
    // An owner of an unknown kind cannot be known to be gone.
    let Some(kind) = Kind::of(version, kind) else {
        return Owner::Solid;
    };
    let namespace = if kind.is_namespaced() {
        object::namespace(of)
    } else {
        ""
    };
    match api.get(kind, namespace, object::text(reference, &["name"])) {
        Some(found) if found["metadata"]["uid"] == reference["uid"] => {
            let foreground = object::is_deleting(&found)
                && object::finalizers(&found).any(|name| name == FOREGROUND);
            if foreground {
                Owner::Waits
            } else {
                Owner::Solid
            }
        }
        _ => Owner::Gone,
    }
}

fn attend(api: &mut ApiServer, kind: Kind, object: &Value) {
    if object::is_deleting(object) {
        return;
    }
    let owners = object::owners(object);
    let stands: Vec<Owner> = owners.iter().map(|one| owner(api, object, one)).collect();
    let id = (object::namespace(object), object::name(object));
    if stands.contains(&Owner::Solid) {
        if stands.iter().all(|stand| *stand == Owner::Solid) {
            return;
        }
        let kept: Vec<&Value> = owners
            .iter()
            .zip(&stands)
            .filter(|(_, stand)| **stand == Owner::Solid)
            .map(|(owner, _)| owner)
            .collect();
        let kept = json!(kept);
        api.edit(ACTOR, kind, id, |object| {
            object["metadata"]["ownerReferences"] = kept;
        });
        return;
    }
    let has = |name: &str| object::finalizers(object).any(|known| known == name);
    let waited_for = stands.contains(&Owner::Waits);
    let propagation = if waited_for && has_dependents(api, object) || has(FOREGROUND) {
        Propagation::Foreground
    } else if has(ORPHAN) {
        Propagation::Orphan
    } else {
        Propagation::Background
    };
    let how = Delete {
        propagation: Some(propagation),
        resource_version: Some(object::text(object, &["metadata", "resourceVersion"]).to_owned()),
        ..Delete::only(object::uid(object))
    };
    let _ = api.delete(ACTOR, kind, id, &how);
}

fn dependents(api: &ApiServer, owner: &Value) -> Vec<(Kind, Arc<Value>)> {
    let owns = |object: &&Arc<Value>| {
        let mut owners = object::owners(object).iter();
        owners.any(|reference| reference["uid"] == owner["metadata"]["uid"])
    };
    let of = |kind: Kind| api.all(kind).filter(owns).map(move |o| (kind, o.clone()));
    Kind::ALL.into_iter().flat_map(of).collect()
}

fn has_dependents(api: &ApiServer, owner: &Value) -> bool {
    !dependents(api, owner).is_empty()
}

/// Lets an object go that waited for those that it owns, or for letting them go.
fn finish(api: &mut ApiServer, kind: Kind, owner: &Value) {
    let uid = &owner["metadata"]["uid"];
    let left = dependents(api, owner);
    let orphans = object::finalizers(owner).any(|name| name == ORPHAN);
    if orphans {
        for (kind, object) in &left {
            let id = (object::namespace(object), object::name(object));
            api.edit(ACTOR, *kind, id, |object| {
                let mut owners = object::owners(object).to_vec();
                owners.retain(|reference| reference["uid"] != *uid);
                object["metadata"]["ownerReferences"] = json!(owners);
            });
        }
    } else {
        let blocks = |object: &Value| {
            object::owners(object).iter().any(|reference| {
                reference["uid"] == *uid && reference["blockOwnerDeletion"] == Value::Bool(true)
            })
        };
        if left.iter().any(|(_, object)| blocks(object)) {
            return;
        }
    }
    let id = (object::namespace(owner), object::name(owner));
    api.edit(ACTOR, kind, id, |object| {
        let mut finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
        finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
        object["metadata"]["finalizers"] = json!(finalizers);
    });
}
