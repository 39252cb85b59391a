//! Verification of certificates beyond their chain: names that the other side must have
//! (`--peer-cert-allowed-cn` and the like), and members with self-signed certificates
//! (`--peer-auto-tls`).
//!
//! Never weakens the verification of a chain: names are checked after it has passed.

use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::server::auth::certificate::common_name;
use crate::server::flags::config::AllowedNames;
use crate::server::listen::quiet::{self, Quiet};

/// A client with a certificate of the CA may try any number of times, so the log is limited.
static REFUSED: Quiet = Quiet::new();

/// Whether a certificate has one of the names.
fn check(allowed: &AllowedNames, certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
    if !allowed.common_names.is_empty() {
        let name = common_name(certificate).ok_or_else(|| refused.clone())?;
        if !allowed.common_names.iter().any(|one| **one == *name.0) {
            if let Some(left_out) = REFUSED.line(Instant::now()) {
                let name = quiet::printable(&name.0, 256);
                tracing::warn!(name, left_out, "refused a certificate for its common name");
            }
            return Err(refused);
        }
    }
    if !allowed.hosts.is_empty() {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let carried = allowed.hosts.iter().any(|host| {
            ServerName::try_from(host.as_str())
                .is_ok_and(|host| verify_server_name(&parsed, &host).is_ok())
        });
        if !carried {
            if let Some(left_out) = REFUSED.line(Instant::now()) {
                tracing::warn!(
                    left_out,
                    "refused a certificate that carries no allowed host name"
                );
            }
            return Err(refused);
        }
    }
    Ok(())
}

/// Verifies a client's chain, and then its names.
#[derive(Debug)]
pub(in crate::server) struct NamedClients {
    pub(in crate::server) chain: Arc<dyn ClientCertVerifier>,
    pub(in crate::server) allowed: AllowedNames,
}

impl ClientCertVerifier for NamedClients {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(certificate, between, now)?;
        check(&self.allowed, certificate)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// The requirements for a dialled member.
#[derive(Debug)]
pub(in crate::server) enum Dialled {
    /// A chain to the CAs, the dialled name, and then one of these names.
    Named {
        chain: Arc<dyn ServerCertVerifier>,
        allowed: AllowedNames,
    },
    /// Any certificate whose key it holds: the traffic is encrypted, but the other side is not
    /// authenticated.
    Anyone(Arc<CryptoProvider>),
}

impl ServerCertVerifier for Dialled {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self {
            Dialled::Anyone(_) => Ok(ServerCertVerified::assertion()),
            Dialled::Named { chain, allowed } => {
                let verified =
                    chain.verify_server_cert(certificate, between, name, stapled, now)?;
                check(allowed, certificate)?;
                Ok(verified)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self {
            Dialled::Named { chain, .. } => {
                chain.verify_tls12_signature(message, certificate, signed)
            }
            Dialled::Anyone(provider) => {
                let known = &provider.signature_verification_algorithms;
                verify_tls12_signature(message, certificate, signed, known)
            }
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self {
            Dialled::Named { chain, .. } => {
                chain.verify_tls13_signature(message, certificate, signed)
            }
            Dialled::Anyone(provider) => {
                let known = &provider.signature_verification_algorithms;
                verify_tls13_signature(message, certificate, signed, known)
            }
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match self {
            Dialled::Named { chain, .. } => chain.supported_verify_schemes(),
            Dialled::Anyone(provider) => provider
                .signature_verification_algorithms
                .supported_schemes(),
        }
    }
}
