//! The two Secrets of a cluster: the identity Secret, immutable, and the key that authorises the
//! operator at the members.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::crd::{ValidatedCluster, identity_secret_name, operator_secret_name};
use crate::plan::{IdentitySecret, ObjectKind, Owner};

use super::common::{inputs_of, metadata};

const CLUSTER_UID: &str = "clusterUID";
const INCARNATION: &str = "incarnation";
const SEED: &str = "seed";
const NONCE: &str = "nonce";
/// Key of the operator Secret's data, and name of the file that members read.
const KEY: &str = "key";

/// The identity Secret. Created once, live, and never changed.
pub fn identity_secret(
    cluster: &ValidatedCluster,
    incarnation: u64,
    seed: &str,
    nonce: &str,
) -> Secret {
    let data = [
        (CLUSTER_UID, cluster.life.clone()),
        (INCARNATION, incarnation.to_string()),
        (SEED, seed.to_owned()),
        (NONCE, nonce.to_owned()),
    ];
    Secret {
        metadata: metadata(cluster, identity_secret_name(&cluster.name), ""),
        type_: Some("quorate.dev/identity".to_owned()),
        immutable: Some(true),
        data: Some(bytes(data.into_iter())),
        string_data: None,
    }
}

/// Reads an identity Secret back. `None` when a field is missing or no text.
pub fn read_identity_secret(secret: &Secret, owner: Owner) -> Option<IdentitySecret> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(IdentitySecret {
        owner,
        terminating: secret.metadata.deletion_timestamp.is_some(),
        cluster_uid: text(CLUSTER_UID)?,
        incarnation: text(INCARNATION)?.parse().ok()?,
        seed: text(SEED)?,
        nonce: text(NONCE)?,
    })
}

/// The Secret with the operator's key. Its content is generated once, when it is created.
pub fn operator_secret(cluster: &ValidatedCluster, key: &str) -> Secret {
    let name = operator_secret_name(&cluster.name);
    let inputs = inputs_of(cluster, ObjectKind::Secret, &name);
    Secret {
        metadata: metadata(cluster, name, &inputs),
        type_: Some("quorate.dev/operator".to_owned()),
        immutable: None,
        data: Some(bytes([(KEY, key.to_owned())].into_iter())),
        string_data: None,
    }
}

/// Reads the operator's key back.
pub fn operator_key(secret: &Secret) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(KEY).map(|bytes| bytes.0.clone())
}

/// Whether of a Secret with this name the data under this key is read as it is from what was last received: of the identity
/// Secret all of it, and the operator's key. Of any other one it is read when it is needed.
pub fn is_kept_secret_data(name: &str, key: &str) -> bool {
    let identity = [CLUSTER_UID, INCARNATION, SEED, NONCE];
    name.ends_with(&identity_secret_name("")) && identity.contains(&key)
        || name.ends_with(&operator_secret_name("")) && key == KEY
}

fn bytes<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> BTreeMap<String, ByteString> {
    pairs
        .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
        .collect()
}
