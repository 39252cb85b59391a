//! What is reported for a certificate that cert-manager has not issued, and when the operator waits for it.

use super::*;
use crate::build::{CertificateCondition, CertificateStatus};
use crate::crd::{parse, validate};

fn cluster() -> ValidatedCluster {
    let port = "{source: CertManager, issuerRef: {name: corp}}";
    let text = format!(
        "{{apiVersion: quorate.dev/v1alpha1, kind: EtcdCluster, metadata: {{name: demo, namespace: prod}}, spec: {{tls: {{client: {port}, peer: {port}}}}}}}"
    );
    let mut parsed = parse(&text).expect("a cluster");
    parsed.metadata.uid = Some("u".into());
    validate(&parsed).expect("a valid cluster")
}

fn there(conditions: &[(&str, &str, &str, &str)]) -> Found {
    let name = "demo-peer-certificate";
    let mut one = build::cert_manager_certificate(&cluster(), name).expect("asked for");
    let conditions =
        conditions
            .iter()
            .map(|(type_, status, reason, message)| CertificateCondition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                reason: (*reason).to_owned(),
                message: (*message).to_owned(),
            });
    one.status = Some(CertificateStatus {
        conditions: conditions.collect(),
    });
    Found::There(Box::new(one))
}

fn known(found: Found) -> Known {
    let name = "demo-peer-certificate".to_owned();
    Known {
        read: None,
        found: [(name, found)].into(),
    }
}

fn unfit_of(found: Found) -> Unfit {
    let secret = "demo-peer-certificate".to_owned();
    let missing = Unfit {
        reason: "SecretMissing",
        text: String::new(),
    };
    let user_certificate = UserCertificate {
        secret,
        unfit: Some(missing),
        ..UserCertificate::default()
    };
    let mut user_certificates = BTreeMap::from([(TlsPort::Peer, user_certificate)]);
    known(found).explain(&cluster(), &mut user_certificates);
    user_certificates
        .remove(&TlsPort::Peer)
        .and_then(|one| one.unfit)
        .expect("still missing")
}

#[test]
fn the_next_actor_is_reported() {
    let waits = ("Ready", "False", "DoesNotExist", "no Secret");
    let issuing = (
        "Issuing",
        "True",
        "DoesNotExist",
        "issuing for the first time",
    );
    let failed = ("Issuing", "False", "Failed", "the issuer denied it");
    for (found, reason, words) in [
        (Found::Missing, NOT_ISSUED, "about to be created"),
        (Found::NotInstalled, "CertManagerMissing", "install it"),
        (
            Found::Denied,
            "CertificateDenied",
            "grant it the permission",
        ),
        (there(&[]), NOT_ISSUED, "check that it is running"),
        (there(&[waits]), NOT_ISSUED, "no Secret"),
        (there(&[waits, issuing]), NOT_ISSUED, "first time"),
        (
            there(&[waits, failed]),
            "IssueFailed",
            "the issuer denied it",
        ),
    ] {
        let unfit = unfit_of(found);
        assert_eq!(unfit.reason, reason, "{}", unfit.text);
        assert!(unfit.text.contains(words), "{}", unfit.text);
    }
}

/// An issued certificate that is not usable is reported as such, whatever cert-manager's status.
#[test]
fn existing_certificates_are_validated() {
    let user_certificate = UserCertificate {
        secret: "demo-peer-certificate".to_owned(),
        unfit: Some(Unfit {
            reason: "NotTrusted",
            text: "as it is".to_owned(),
        }),
        ..UserCertificate::default()
    };
    let mut all = BTreeMap::from([(TlsPort::Peer, user_certificate.clone())]);
    known(Found::NotInstalled).explain(&cluster(), &mut all);
    assert_eq!(all[&TlsPort::Peer], user_certificate);
}

/// Nothing is requested from an API server without the kind, or without permission: the step would fail at every
/// reconcile, and hide the helpful message.
#[test]
fn impossible_certificates_are_not_requested() {
    let wanted = build::resource_objects(&cluster());
    let of = |found| {
        let known = known(found);
        let possible = wanted.keys().filter(|key| known.is_possible(key));
        possible
            .filter(|key| key.kind == ObjectKind::Certificate)
            .count()
    };
    // The one that was not read stays possible.
    assert_eq!(of(Found::NotInstalled), 1);
    assert_eq!(of(Found::Denied), 1);
    assert_eq!(of(Found::Missing), 2);
    assert_eq!(of(there(&[])), 2);
}
