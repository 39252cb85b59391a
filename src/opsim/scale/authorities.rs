//! Certificates of clusters that are made of another one's objects: by CAs of their own, or by the same ones for hosts in
//! another namespace.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::build::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, CERTIFICATE_KEY};
use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::{NAMESPACE, text};
use crate::opsim::servers::moved;
use crate::server::tls::certificates::Certificate;
use crate::server::tls::issue::{Authority, IssueError, Issued, Purpose, Validity};

/// The CAs of one cluster: of its peer port, and of the other one.
#[derive(Default)]
pub(super) struct Authorities(BTreeMap<bool, Authority>);

impl Authorities {
    /// Those whose Secrets are among these objects.
    pub(super) fn stored(objects: &[(Kind, Value)]) -> Result<Self, IssueError> {
        let mut all = BTreeMap::new();
        for (_, secret) in objects.iter().filter(|(kind, _)| *kind == Kind::Secret) {
            let key = text(secret, CA_KEY);
            if !key.is_empty() {
                let authority = Authority::stored(&text(secret, CERTIFICATE), &key)?;
                all.insert(is_of_peers(secret), authority);
            }
        }
        Ok(Self(all))
    }

    /// Other certificates for those among these objects that name hosts: the same hosts in this namespace. Returns their
    /// fingerprints, by the names of the Secrets.
    pub(super) fn certify_members(
        &self,
        objects: &mut [(Kind, Value)],
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, IssueError> {
        let mut fingerprints = BTreeMap::new();
        for (_, secret) in objects.iter_mut().filter(|(kind, _)| *kind == Kind::Secret) {
            let Ok(mut before) = Certificate::first(&text(secret, CERTIFICATE)) else {
                continue;
            };
            let Some(authority) = self.0.get(&is_of_peers(secret)) else {
                continue;
            };
            if before.names.is_empty() || !text(secret, CA_KEY).is_empty() {
                continue;
            }
            let names = before.names.iter();
            before.names = names
                .map(|name| moved(name, NAMESPACE, namespace))
                .collect();
            let issued = issued(authority, &before, validity(&before))?;
            let fingerprint = Certificate::first(&issued.certificate)?.sha256;
            secret["data"][CERTIFICATE] = STANDARD.encode(issued.certificate).into();
            secret["data"][CERTIFICATE_KEY] = STANDARD.encode(issued.key).into();
            fingerprints.insert(object::name(secret).to_owned(), fingerprint);
        }
        Ok(fingerprints)
    }

    /// Another certificate and key for this Secret, if it has some.
    pub(super) fn certify(&mut self, secret: &mut Value) -> Result<(), IssueError> {
        let Ok(before) = Certificate::first(&text(secret, CERTIFICATE)) else {
            return Ok(());
        };
        let validity = validity(&before);
        let authority = self.of(is_of_peers(secret), validity)?;
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

fn is_of_peers(secret: &Value) -> bool {
    object::name(secret).contains("-peer-")
}

fn validity(of: &Certificate) -> Validity {
    let at = |ms| Timestamp::from_millisecond(ms).unwrap_or_default();
    Validity {
        not_before: at(of.not_before_ms),
        not_after: at(of.not_after_ms),
    }
}
