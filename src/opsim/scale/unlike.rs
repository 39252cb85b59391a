//! The objects of one cluster as those of another: with UIDs of its own, and certificates and keys of its own CAs. Whatever
//! many clusters had the same would be kept once, where what is alike is compressed, and would not be measured.

use std::collections::BTreeMap;

use serde_json::Value;

use super::authorities::Authorities;
use super::moved;
use crate::opsim::api::{Kind, object};
use crate::server::tls::issue::IssueError;

/// These objects, in this namespace.
pub(super) fn unlike(
    objects: &[(Kind, Value)],
    namespace: &str,
) -> Result<Vec<(Kind, Value)>, IssueError> {
    let random = || uuid::Uuid::new_v4().to_string();
    let uids = objects.iter();
    let uids: BTreeMap<&str, String> = uids
        .map(|(_, found)| (object::uid(found), random()))
        .collect();
    let mut authorities = Authorities::default();
    let unlike = |(kind, found): &(Kind, Value)| {
        let mut found = renamed(moved(found, namespace), &uids);
        if *kind == Kind::Secret {
            authorities.certify(&mut found)?;
        }
        Ok((*kind, found))
    };
    objects.iter().map(unlike).collect()
}

/// With other UIDs, wherever they are.
fn renamed(found: Value, uids: &BTreeMap<&str, String>) -> Value {
    let mut text = found.to_string();
    for (from, to) in uids {
        text = text.replace(from, to);
    }
    // One UUID for another leaves JSON what it is.
    serde_json::from_str(&text).unwrap_or(found)
}
