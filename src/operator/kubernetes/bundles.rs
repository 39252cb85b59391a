//! ClusterTrustBundles in the versions of their API that there are: certificates.k8s.io/v1, from Kubernetes 1.37 on, and v1beta1
//! before that. An object has the same fields in both, and a cluster may serve one of them, both, or none.
//!
//! Never decides anything about one.

use std::borrow::Cow;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, TypeMeta};
use kube::{Api, Client, Error, Resource, ResourceExt};
use serde::{Deserialize, Serialize};

/// One, of either version.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Bundle {
    #[serde(flatten)]
    types: Option<TypeMeta>,
    metadata: ObjectMeta,
    pub(super) spec: ClusterTrustBundleSpec,
}

/// A version of the API.
#[derive(Clone, Copy, Debug)]
pub(super) enum Version {
    Stable,
    Beta,
}

impl Resource for Bundle {
    type DynamicType = Version;
    type Scope = ClusterResourceScope;

    fn kind(_: &Version) -> Cow<'_, str> {
        "ClusterTrustBundle".into()
    }

    fn group(_: &Version) -> Cow<'_, str> {
        "certificates.k8s.io".into()
    }

    fn version(version: &Version) -> Cow<'_, str> {
        match version {
            Version::Stable => "v1".into(),
            Version::Beta => "v1beta1".into(),
        }
    }

    fn plural(_: &Version) -> Cow<'_, str> {
        "clustertrustbundles".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The calls, each by the first version that is served.
pub(super) struct Bundles(Client);

impl Bundles {
    pub(super) fn new(client: &Client) -> Bundles {
        Bundles(client.clone())
    }

    /// `None` if the kind is served and there is none of this name.
    ///
    /// # Errors
    /// Of the API; 404 if the kind is not served.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Bundle>, Error> {
        let got = match self.api(Version::Stable).get(name).await {
            Err(error) if is_not_found(&error) && !names(&error, name) => {
                self.api(Version::Beta).get(name).await
            }
            got => got,
        };
        match got {
            Err(error) if names(&error, name) => Ok(None),
            got => got.map(Some),
        }
    }

    /// Those that this selects.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) async fn list(&self, which: &ListParams) -> Result<Vec<Bundle>, Error> {
        let listed = match self.api(Version::Stable).list(which).await {
            Err(error) if is_not_found(&error) => self.api(Version::Beta).list(which).await,
            listed => listed,
        };
        listed.map(|all| all.items)
    }

    /// Applies one.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) async fn apply(
        &self,
        wanted: &ClusterTrustBundle,
        parameters: &PatchParams,
    ) -> Result<(), Error> {
        let (name, mut applied) = (wanted.name_any(), Ok(()));
        for version in [Version::Stable, Version::Beta] {
            let bundle = Bundle {
                types: Some(TypeMeta {
                    api_version: Bundle::api_version(&version).into_owned(),
                    kind: Bundle::kind(&version).into_owned(),
                }),
                metadata: wanted.metadata.clone(),
                spec: wanted.spec.clone(),
            };
            let change = Patch::Apply(&bundle);
            let done = self.api(version).patch(&name, parameters, &change).await;
            applied = done.map(|_| ());
            if !applied.as_ref().is_err_and(is_not_found) {
                break;
            }
        }
        applied
    }

    /// Deletes one.
    ///
    /// # Errors
    /// As [`get`](Self::get), and 404 as well if there is none of this name.
    pub(super) async fn delete(&self, name: &str, parameters: &DeleteParams) -> Result<(), Error> {
        let deleted = match self.api(Version::Stable).delete(name, parameters).await {
            Err(error) if is_not_found(&error) => {
                self.api(Version::Beta).delete(name, parameters).await
            }
            deleted => deleted,
        };
        deleted.map(|_| ())
    }

    fn api(&self, version: Version) -> Api<Bundle> {
        Api::all_with(self.0.clone(), &version)
    }
}

/// Of the whole kind, or, where it is deleted, perhaps of the name.
pub(super) fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// Whether what is not found is the object of this name, and not the kind: both have the same code and reason, and only the
/// first one says which.
fn names(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.name == name)
}
