//! The state of `Certificate`s requested from cert-manager (source `CertManager`): they are in none of our caches,
//! because cert-manager need not be installed, so they are read live, and rarely. The resulting Secrets are read and
//! checked like the user's own (`user_certificates.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;

use super::facts;
use super::objects::failure;
use crate::build::{self, Certificate, Issue};
use crate::crd::{CertificateSource, TlsPort, ValidatedCluster};
use crate::operator::clock::{Clock, Moment};
use crate::operator::platform::Failure;
use crate::plan::{NOT_ISSUED, ObjectFacts, ObjectKey, ObjectKind, Unfit, UserCertificate};

/// Interval between reads of `Certificate`s that match the request.
const READ_EVERY: Duration = Duration::from_secs(30);

/// What was read of a cluster's `Certificate`s.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    read: Option<Moment>,
    found: BTreeMap<String, Found>,
}

/// A `Certificate` as it was read.
#[derive(Clone, Debug)]
enum Found {
    Missing,
    /// Kubernetes does not know the kind.
    NotInstalled,
    Denied,
    There(Box<Certificate>),
}

impl Known {
    /// Reads the `Certificate`s of a cluster if that is due: a while after the last time, and as
    /// long as one of them is not as it is wanted.
    pub(super) async fn read(
        &mut self,
        api: &Api<Certificate>,
        cluster: &ValidatedCluster,
        clock: &Clock,
    ) -> Result<(), Failure> {
        let names = build::cert_manager_names(cluster);
        let fresh = (self.read.as_ref()).is_some_and(|read| read.elapsed() < READ_EVERY);
        if fresh && self.is_as_wanted(cluster) {
            return Ok(());
        }
        let mut found = BTreeMap::new();
        for name in names {
            let now = match api.get_opt(&name).await {
                Ok(Some(one)) => Found::There(Box::new(one)),
                Ok(None) => Found::Missing,
                // Not of the name, but of the whole kind.
                Err(kube::Error::Api(status)) if status.code == 404 => Found::NotInstalled,
                Err(kube::Error::Api(status)) if status.code == 403 => Found::Denied,
                // Errors of the API server do not remove earlier observations.
                Err(error) => match self.found.get(&name) {
                    Some(before) => before.clone(),
                    None => return Err(failure("read", &name, &error)),
                },
            };
            found.insert(name, now);
        }
        self.found = found;
        self.read = Some(clock.now());
        Ok(())
    }

    fn is_as_wanted(&self, cluster: &ValidatedCluster) -> bool {
        let wanted = build::resource_objects(cluster).into_iter();
        let mut wanted = wanted.filter(|(key, _)| key.kind == ObjectKind::Certificate);
        let there = self.objects(&cluster.name, &cluster.uid);
        wanted.all(|(key, inputs)| {
            let facts = there.get(&key);
            facts.is_some_and(|facts| facts.inputs.as_ref() == Some(&inputs))
        })
    }

    /// Those that exist.
    pub(super) fn objects(&self, cluster: &str, uid: &str) -> BTreeMap<ObjectKey, ObjectFacts> {
        let one = |(name, found): (&String, &Found)| {
            let Found::There(certificate) = found else {
                return None;
            };
            let key = ObjectKey {
                kind: ObjectKind::Certificate,
                name: name.clone(),
            };
            Some((key, facts::object(&certificate.metadata, cluster, uid)))
        };
        self.found.iter().filter_map(one).collect()
    }

    /// An existing one.
    pub(super) fn get(&self, name: &str) -> Option<&Certificate> {
        match self.found.get(name)? {
            Found::There(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// Whether this object can be requested at all.
    pub(super) fn is_possible(&self, key: &ObjectKey) -> bool {
        let found = self.found.get(&key.name);
        key.kind != ObjectKind::Certificate
            || !matches!(found, Some(Found::NotInstalled | Found::Denied))
    }

    /// Adds to missing Secrets why they do not exist yet.
    pub(super) fn explain(
        &self,
        cluster: &ValidatedCluster,
        user_certificates: &mut BTreeMap<TlsPort, UserCertificate>,
    ) {
        let Some(tls) = &cluster.spec.tls else { return };
        let unread = user_certificates.iter_mut().filter(|(port, one)| {
            // What is wrong with an issued one is already reported.
            tls.port(**port).source == CertificateSource::CertManager && one.certificate.is_none()
        });
        for (_, one) in unread {
            let missing = (one.unfit.as_ref()).is_some_and(|unfit| unfit.reason == "SecretMissing");
            if missing && let Some(unfit) = self.unfit(&one.secret) {
                one.unfit = Some(unfit);
            }
        }
    }

    fn unfit(&self, name: &str) -> Option<Unfit> {
        let unfit = |reason, text| Some(Unfit { reason, text });
        match self.found.get(name)? {
            Found::NotInstalled => unfit(
                "CertManagerMissing",
                "this Kubernetes has no cert-manager: install it, or create a cluster with source Operator or Secret".to_owned(),
            ),
            Found::Denied => unfit(
                "CertificateDenied",
                format!("the operator may not read or create Certificate {name} of cert-manager: grant it the permission"),
            ),
            Found::Missing => unfit(NOT_ISSUED, format!("Certificate {name} is about to be created")),
            Found::There(certificate) => match build::issue_of(certificate) {
                Issue::Failed(why) => unfit(
                    "IssueFailed",
                    format!("cert-manager could not issue Certificate {name} and will retry: {why}"),
                ),
                Issue::Waits(why) => unfit(
                    NOT_ISSUED,
                    format!("cert-manager has not issued Certificate {name} yet: {why}"),
                ),
                Issue::Unseen => unfit(
                    NOT_ISSUED,
                    format!("cert-manager has not set a status on Certificate {name} yet: check that it is running"),
                ),
            },
        }
    }
}

#[cfg(test)]
#[path = "cert_manager_test.rs"]
mod tests;
