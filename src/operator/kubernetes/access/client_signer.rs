//! A cluster's CA of the client port, as far as certificates of users need it: read from its Secret for one reconcile, and
//! never written.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::build;
use crate::operator::kubernetes::certificates::validity;
use crate::operator::platform::Failure;
use crate::server::tls::certificates::Certificate;
use crate::server::tls::issue::{Authority, Issued, Purpose};

/// The CA that signs now.
pub(super) struct ClientSigner {
    /// Its certificate.
    pub(super) certificate: Certificate,
    authority: Authority,
}

impl ClientSigner {
    /// That of the cluster with this UID, from the Secret of its CA.
    ///
    /// # Errors
    /// There is none yet, or it is not the cluster's own.
    pub(super) fn of(secret: Option<&Secret>, uid: &str) -> Result<ClientSigner, Failure> {
        let missing = || Failure::Retry("the cluster has no CA for its clients yet".into());
        let secret = secret.ok_or_else(missing)?;
        let name = secret.name_any();
        let mut owners = secret.owner_references().iter();
        if !owners.any(|owner| owner.controller == Some(true) && owner.uid == uid) {
            return Err(Failure::Refused(format!(
                "Secret {name} with a CA does not belong to the cluster: it signs nothing"
            )));
        }
        let text = |key| build::secret_text(secret, key).ok_or_else(missing);
        let pem = text(build::CERTIFICATE)?;
        let refused = |error: String| Failure::Refused(format!("Secret {name}: {error}"));
        let certificate = Certificate::first(&pem).map_err(|error| refused(error.to_string()))?;
        let authority = Authority::stored(&pem, &text(build::CA_KEY)?);
        Ok(ClientSigner {
            certificate,
            authority: authority.map_err(|error| refused(error.to_string()))?,
        })
    }

    /// A certificate with the user as its common name. It does not outlive the CA.
    ///
    /// # Errors
    /// A name that no certificate can have.
    pub(super) fn issue(&self, user: &str, days: u64, now_ms: u64) -> Result<Issued, Failure> {
        let end = u64::try_from(self.certificate.not_after_ms).unwrap_or(0);
        let validity = validity(now_ms, days, end)?;
        let issued = self.authority.issue(user, &[], Purpose::Client, validity);
        issued.map_err(|error| Failure::Refused(error.to_string()))
    }
}
