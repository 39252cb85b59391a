//! The ClusterTrustBundle with the CAs of the client port, where it is asked for: written before anything is signed by a CA
//! that it lacks, with every CA that is trusted, and deleted when it is asked for no more. That of a deleted cluster is no
//! plan's: whoever executes plans deletes it once the resource is gone.

use crate::crd::{Tls, TlsPort, trust_bundle_name};
use crate::plan::Rule;
use crate::plan::action::{Action, CertificateAction};
use crate::plan::certificates::{CertificateFacts, TrustBundle, TrustBundleFacts};
use crate::plan::draft::Draft;
use crate::plan::observed::Owner;
use crate::plan::situation::Situation;

use super::certificates::same_authorities;

/// What has to be switched on, in one place: it is in a message and in the documentation.
const SWITCHES: &str = "before Kubernetes 1.37, start kube-apiserver with --runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true, and it and the kubelets with --feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true";

/// Publishes the CAs of a port, as they are in its CA's Secret.
pub(super) fn publish(
    s: &Situation<'_>,
    draft: &mut Draft,
    port: TlsPort,
    authority: &CertificateFacts,
) {
    if port != TlsPort::Client || !is_asked(s) {
        return;
    }
    let bundle = name(s);
    match &s.o.tls.bundle {
        TrustBundle::Unseen => {}
        TrustBundle::NotServed => draft.stall(
            "ClusterTrustBundleNotServed",
            format!(
                "this Kubernetes does not serve ClusterTrustBundles of certificates.k8s.io, which tls.publishCAs asks for: {SWITCHES}; or set tls.publishCAs: Secret. The cluster runs without it"
            ),
        ),
        TrustBundle::Denied => draft.stall(
            "ClusterTrustBundleDenied",
            format!(
                "the operator may not read and write ClusterTrustBundle {bundle}, which tls.publishCAs asks for: install the chart with clusterTrustBundles=true, or set tls.publishCAs: Secret. The cluster runs without it"
            ),
        ),
        TrustBundle::There(facts) if is_foreign(facts) => draft.stall(
            "ClusterTrustBundleTaken",
            format!(
                "ClusterTrustBundle {bundle} was not published by the operator for this cluster: delete it, or set tls.publishCAs: Secret. The cluster runs without it"
            ),
        ),
        found => {
            let Some(why) = behind(found, authority) else {
                return;
            };
            let action = Action::Certificate(CertificateAction::PublishAuthorities {
                bundle,
                trusted: authority.trusted.clone(),
            });
            draft.step(Rule::Objects, action, why);
        }
    }
}

/// Deletes one that is asked for no more.
pub(super) fn withdraw(s: &Situation<'_>, draft: &mut Draft) {
    if let Some(facts) = s.o.tls.bundle.ours().filter(|_| !is_asked(s)) {
        let action = Action::Certificate(CertificateAction::WithdrawAuthorities {
            bundle: name(s),
            uid: facts.uid.clone(),
        });
        draft.step(Rule::Leftovers, action, "it is asked for no more");
    }
}

/// Whether clients that trust the ClusterTrustBundle trust the CAs of a port too, as far as there is one that they may have.
/// Nobody mounts one of a kind that is not served, or that is another owner's; of one that may not be read it is not known.
pub(super) fn is_settled(s: &Situation<'_>, port: TlsPort, authority: &CertificateFacts) -> bool {
    if port != TlsPort::Client || !is_asked(s) {
        return true;
    }
    match &s.o.tls.bundle {
        TrustBundle::NotServed => true,
        TrustBundle::There(facts) if is_foreign(facts) => true,
        TrustBundle::Unseen | TrustBundle::Denied => false,
        found => behind(found, authority).is_none(),
    }
}

fn behind(found: &TrustBundle, authority: &CertificateFacts) -> Option<&'static str> {
    match found {
        TrustBundle::There(facts) if facts.owner != Owner::Ours => {
            Some("it is of a deleted cluster with this name")
        }
        TrustBundle::There(facts) => (!same_authorities(&facts.trusted, &authority.trusted))
            .then_some("its CAs are not those that are trusted"),
        _ => Some("it is missing"),
    }
}

/// Neither of this resource nor of a deleted one of its name, whose CAs clients of this one have no use for.
fn is_foreign(facts: &TrustBundleFacts) -> bool {
    !matches!(facts.owner, Owner::Ours | Owner::EarlierLife)
}

fn is_asked(s: &Situation<'_>) -> bool {
    s.cluster
        .spec
        .tls
        .as_ref()
        .is_some_and(Tls::publishes_bundle)
}

fn name(s: &Situation<'_>) -> String {
    trust_bundle_name(&s.cluster.namespace, &s.cluster.name)
}
