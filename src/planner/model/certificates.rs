//! The Secrets with certificates, and with CAs, when the operator writes them. Generates no keys: a certificate is its
//! fingerprint, its issuer and its validity.

use super::{Model, Refused};
use crate::crd::{TlsPort, authority_secret_name};
use crate::plan::{
    Certificate, CertificateAction, CertificateFacts, Owner, TrustBundle, TrustBundleFacts,
};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

impl Model {
    pub(super) fn certify(&mut self, action: &CertificateAction) -> Result<(), Refused> {
        match action {
            CertificateAction::MakeAuthority { port, secret } => self.make_authority(*port, secret),
            CertificateAction::RotateAuthority {
                secret,
                signs,
                stage,
                ..
            } => self.rotate_authority(secret, signs, stage),
            CertificateAction::IssueCertificate {
                port,
                member,
                secret,
                authority,
                replaces,
            } => self.issue_certificate((*port, member.clone()), secret, authority, replaces),
            CertificateAction::MakeTrust {
                port,
                member,
                secret,
            } => self.make_trust(*port, member, secret),
            CertificateAction::SignRequest {
                port,
                member,
                secret,
                uid,
                authority,
                replaces,
                ..
            } => self.sign_request((*port, member, uid), secret, authority, replaces),
            CertificateAction::TrustAuthorities {
                secret, trusted, ..
            } => {
                let mut facts = self.secret(secret)?;
                facts.trusted.clone_from(trusted);
                self.write_secret(secret, facts);
                Ok(())
            }
            CertificateAction::PublishAuthorities { trusted, .. } => {
                let uid = match &self.api.tls.bundle {
                    TrustBundle::NotServed | TrustBundle::Denied => {
                        return Refused::changed("ClusterTrustBundles cannot be written");
                    }
                    TrustBundle::There(facts) => facts.uid.clone(),
                    TrustBundle::Unseen | TrustBundle::Missing => self.fresh("bundle"),
                };
                self.api.tls.bundle = TrustBundle::There(TrustBundleFacts {
                    uid,
                    owner: Owner::Ours,
                    trusted: trusted.clone(),
                });
                Ok(())
            }
            CertificateAction::WithdrawAuthorities { uid, .. } => {
                if matches!(&self.api.tls.bundle, TrustBundle::There(facts) if facts.uid != *uid) {
                    return Refused::changed("it is another ClusterTrustBundle");
                }
                self.api.tls.bundle = TrustBundle::Missing;
                Ok(())
            }
            CertificateAction::DropCertificate { secret, uid } => self.drop_secret(secret, uid),
        }
    }

    fn issue_certificate(
        &mut self,
        (port, member): (TlsPort, Option<String>),
        secret: &str,
        authority: &str,
        replaces: &Option<String>,
    ) -> Result<(), Refused> {
        let signer = self.secret(&self.authority_of(port))?;
        if fingerprint(&signer).as_deref() != Some(authority) {
            return Refused::changed("another authority signs");
        }
        let old = self.api.tls.secrets.get(secret).and_then(fingerprint);
        if old != *replaces {
            return Refused::changed(format!("{secret} holds another certificate"));
        }
        let days = self.pace.days.0;
        let certificate = self.certificate(days, Some(authority.to_owned()));
        let facts = self.new_secret((port, member), certificate, signer.trusted);
        self.write_secret(secret, facts);
        Ok(())
    }

    fn make_trust(&mut self, port: TlsPort, member: &str, secret: &str) -> Result<(), Refused> {
        let trusted = self.secret(&self.authority_of(port))?.trusted;
        let facts = CertificateFacts {
            uid: self.fresh("secret"),
            owner: Owner::Ours,
            terminating: false,
            inputs: None,
            member: Some(member.to_owned()),
            certificate: None,
            trusted,
            next: None,
            rotated_for: None,
        };
        self.write_secret(secret, facts);
        Ok(())
    }

    fn sign_request(
        &mut self,
        (port, member, uid): (TlsPort, &str, &str),
        secret: &str,
        authority: &str,
        replaces: &Option<String>,
    ) -> Result<(), Refused> {
        let requests = self.api.tls.requests.as_ref();
        let request = requests.and_then(|all| all.get(&(member.to_owned(), port)));
        let Some(request) = request.filter(|request| request.uid == uid) else {
            return Refused::changed("nobody requests it");
        };
        let pod_uid = request.pod_uid.clone();
        self.issue_certificate((port, Some(member.to_owned())), secret, authority, replaces)?;
        if let Some(requests) = &mut self.api.tls.requests {
            requests.remove(&(member.to_owned(), port));
        }
        if let Some(signed) = self.api.tls.secrets.get(secret).and_then(fingerprint) {
            self.signed.insert((pod_uid, port), signed);
        }
        Ok(())
    }

    fn drop_secret(&mut self, secret: &str, uid: &str) -> Result<(), Refused> {
        let found = self.api.tls.secrets.get(secret);
        if found.is_some_and(|facts| facts.uid != uid) {
            return Refused::changed(format!("{secret} is another one"));
        }
        self.api.tls.secrets.remove(secret);
        Ok(())
    }

    fn authority_of(&self, port: TlsPort) -> String {
        let name = self.cluster().map_or("", |cluster| &cluster.name);
        authority_secret_name(name, port)
    }

    pub(super) fn secret(&self, name: &str) -> Result<CertificateFacts, Refused> {
        let found = self.api.tls.secrets.get(name).cloned();
        found.ok_or_else(|| Refused::Changed(format!("there is no Secret {name}")))
    }

    /// This Secret was just written.
    pub fn written(&mut self, name: &str) {
        self.written_ms.insert(name.to_owned(), self.api.now_ms);
    }

    pub(super) fn write_secret(&mut self, name: &str, facts: CertificateFacts) {
        self.written(name);
        self.api.tls.secrets.insert(name.to_owned(), facts);
    }

    pub(super) fn new_secret(
        &mut self,
        (port, member): (TlsPort, Option<String>),
        certificate: Certificate,
        trusted: Vec<String>,
    ) -> CertificateFacts {
        CertificateFacts {
            uid: self.fresh("secret"),
            owner: Owner::Ours,
            terminating: false,
            inputs: self.api.tls.wanted.get(&port).cloned(),
            member,
            certificate: Some(certificate),
            trusted,
            next: None,
            rotated_for: None,
        }
    }

    /// A new certificate for so many days; without an issuer it is its own.
    pub fn certificate(&mut self, days: u64, issuer: Option<String>) -> Certificate {
        let fingerprint = self.fresh("certificate");
        let certificate = Certificate {
            issuer: Some(issuer.unwrap_or_else(|| fingerprint.clone())),
            fingerprint: fingerprint.clone(),
            not_before_ms: self.api.now_ms.saturating_sub(HOUR_MS),
            not_after_ms: self.api.now_ms + days * DAY_MS,
        };
        self.issued.insert(fingerprint, certificate.clone());
        certificate
    }
}

fn fingerprint(facts: &CertificateFacts) -> Option<String> {
    let certificate = facts.certificate.as_ref()?;
    Some(certificate.fingerprint.clone())
}
