//! A Secret as its cache keeps it: of certificates what is read of them, never the text of a certificate's key. Whoever
//! copies, signs or writes reads the Secret from the API server. Pure; reads nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::certificates::Held;
use super::pruned::{Prune, prune_metadata};
use crate::build;
use crate::mutants::mutant;

/// A Secret. As it is received it is whole; as it is kept it is what readers of the cache use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Secret")]
pub(crate) struct KeptSecret {
    secret: Secret,
    /// What is read of its certificates; `None`: as it was received.
    held: Option<Held>,
}

/// The same, as the cache has it as a text.
#[derive(Deserialize)]
struct Text {
    secret: Secret,
    held: Option<Held>,
}

impl From<Secret> for KeptSecret {
    fn from(secret: Secret) -> Self {
        Self { secret, held: None }
    }
}

impl KeptSecret {
    /// What is kept of a Secret. `before`: what was kept of it; certificates are verified once a version, for that takes
    /// longer than everything else that is done with a Secret.
    pub(super) fn of(
        secret: Secret,
        before: impl FnOnce() -> Option<Arc<KeptSecret>>,
    ) -> KeptSecret {
        let same = before().and_then(|before| {
            let same = is_same_version(&before.secret.metadata, &secret.metadata);
            before.held.clone().filter(|_| same)
        });
        let held = same.unwrap_or_else(|| Held::of(&secret));
        Self::with(secret, held)
    }

    fn with(mut secret: Secret, held: Held) -> KeptSecret {
        prune_metadata(&mut secret.metadata);
        let name = secret.name_any();
        let kept =
            |key: &str| build::is_kept_secret_data(&name, key) || mutant!(CertificateKeysKept);
        if let Some(data) = &mut secret.data {
            data.retain(|key, _| kept(key));
        }
        secret.data = secret.data.filter(|data| !data.is_empty());
        KeptSecret {
            secret,
            held: Some(held),
        }
    }

    /// The Secret, once it is kept without the data that holds certificates and their keys, or is read by nobody.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// What is read of its certificates.
    pub(super) fn held(&self) -> Cow<'_, Held> {
        match &self.held {
            Some(held) => Cow::Borrowed(held),
            None => Cow::Owned(Held::of(&self.secret)),
        }
    }
}

/// Whether what was read of one is so of the other.
fn is_same_version(before: &ObjectMeta, now: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| Some((meta.uid.clone()?, meta.resource_version.clone()?));
    version(before).is_some() && version(before) == version(now) || mutant!(CertificatesReadOnce)
}

impl Prune for KeptSecret {
    fn prune(&mut self) {
        self.prune_after(|| None);
    }

    fn prune_after(&mut self, before: impl FnOnce() -> Option<Arc<Self>>) {
        if self.held.is_none() {
            *self = Self::of(std::mem::take(&mut self.secret), before);
        }
    }

    /// Nobody reads the certificates of one that is gone.
    fn prune_deleted(&mut self) {
        *self = Self::with(std::mem::take(&mut self.secret), Held::default());
    }

    fn text(&self) -> Option<Box<[u8]>> {
        let text = serde_json::to_vec(self).ok()?;
        let again = Self::of_text(&text)?;
        (again == *self).then(|| text.into())
    }

    fn of_text(text: &[u8]) -> Option<Self> {
        let Text { secret, held } = serde_json::from_slice(text).ok()?;
        Some(Self { secret, held })
    }

    /// The operator's key leaves memory with its object.
    fn is_packed(&self) -> bool {
        self.secret.data.as_ref().is_none_or(BTreeMap::is_empty)
    }
}

impl Resource for KeptSecret {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(kind: &()) -> Cow<'_, str> {
        <Secret as Resource>::kind(kind)
    }

    fn group(kind: &()) -> Cow<'_, str> {
        <Secret as Resource>::group(kind)
    }

    fn version(kind: &()) -> Cow<'_, str> {
        <Secret as Resource>::version(kind)
    }

    fn plural(kind: &()) -> Cow<'_, str> {
        <Secret as Resource>::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.secret.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.secret.metadata
    }
}

#[cfg(test)]
#[path = "kept_secret_test.rs"]
mod tests;
