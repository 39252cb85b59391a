//! The objects of one cluster as those of another: with UIDs of its own, and certificates and keys of its own CAs. Whatever
//! many clusters had the same would be kept once, where what is alike is compressed, and would not be measured.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::moved;
use crate::build::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, CERTIFICATE_KEY};
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::text;
use crate::server::tls::certificates::Certificate;
use crate::server::tls::issue::{Authority, IssueError, Issued, Purpose, Validity};

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

/// The CAs of one cluster: of its peer port, and of the other one.
#[derive(Default)]
struct Authorities(BTreeMap<bool, Authority>);

impl Authorities {
    /// Another certificate and key for this Secret, if it has some.
    fn certify(&mut self, secret: &mut Value) -> Result<(), IssueError> {
        let Ok(before) = Certificate::first(&text(secret, CERTIFICATE)) else {
            return Ok(());
        };
        let at = |ms| Timestamp::from_millisecond(ms).unwrap_or_default();
        let validity = Validity {
            not_before: at(before.not_before_ms),
            not_after: at(before.not_after_ms),
        };
        let authority = self.of(object::name(secret).contains("-peer-"), validity)?;
        let trusted = authority.issued()?;
        let is_authority = !text(secret, CA_KEY).is_empty();
        let (issued, key) = match is_authority {
            true => (trusted.clone(), CA_KEY),
            false => (issued(authority, &before, validity)?, CERTIFICATE_KEY),
        };
        let new = [
            (CA_CERTIFICATES, trusted.certificate),
            (CERTIFICATE, issued.certificate),
            (key, issued.key),
        ];
        for (key, text) in new {
            secret["data"][key] = STANDARD.encode(text).into();
        }
        Ok(())
    }

    fn of(&mut self, of_peers: bool, validity: Validity) -> Result<&Authority, IssueError> {
        use std::collections::btree_map::Entry;
        Ok(match self.0.entry(of_peers) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let id = uuid::Uuid::new_v4().simple().to_string();
                let name = format!("demo authority {}", &id[..8]);
                free.insert(Authority::new(&name, validity, None)?)
            }
        })
    }
}

fn issued(
    authority: &Authority,
    before: &Certificate,
    validity: Validity,
) -> Result<Issued, IssueError> {
    let names: Vec<String> = before.names.iter().cloned().collect();
    let purpose = match names.is_empty() {
        true => Purpose::Client,
        false => Purpose::Member,
    };
    authority.issue(&before.common_name, &names, purpose, validity)
}
