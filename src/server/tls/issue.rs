//! Certificates created by this program: those of a private CA (`quorate certs`), and self-signed
//! ones (`--auto-tls`).
//!
//! Never writes a file and never reads a clock: the date is an argument.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use rustls_pki_types::CertificateSigningRequestDer;

use super::certificates::{Certificate, CertificateError};

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

/// Why a certificate cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The library refuses it, most often because of an invalid name.
    #[error("cannot make the certificate of {name:?}: {source}")]
    Refused {
        /// The subject.
        name: String,
        /// The error of the library.
        #[source]
        source: rcgen::Error,
    },
    /// A stored CA that cannot be parsed.
    #[error("cannot read the certificate of the authority: {0}")]
    Stored(#[from] CertificateError),
    /// A stored CA created by another program, or with another key.
    #[error(
        "the authority {0:?} was not made by this program with this key: what it signed would lead \
         to another certificate"
    )]
    Foreign(String),
    /// A date beyond the calendar.
    #[error("{0} days from today is beyond the calendar: give fewer")]
    Days(u32),
}

/// The usages of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Server and client: members are both to each other.
    Member,
    /// Client only.
    Client,
}

/// A validity period, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its start.
    pub not_before: Timestamp,
    /// Its end.
    pub not_after: Timestamp,
}

impl Validity {
    /// So many days from the beginning of `from`: today, or an earlier day for clocks that are
    /// behind.
    pub fn days(from: Date, days: u32) -> Result<Validity, IssueError> {
        let until = from.checked_add(Span::new().days(i64::from(days)));
        let at = |date: Date| {
            let zoned = date.to_zoned(TimeZone::UTC);
            zoned
                .map(|zoned| zoned.timestamp())
                .map_err(|_| IssueError::Days(days))
        };
        Ok(Validity {
            not_before: at(from)?,
            not_after: at(until.map_err(|_| IssueError::Days(days))?)?,
        })
    }
}

/// A CA that signs certificates.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    /// The certificate as it was stored; `None` for a new CA.
    certificate: Option<String>,
}

impl Authority {
    /// A new CA, or one for an existing key; both with this name.
    pub fn new(name: &str, validity: Validity, key: Option<&str>) -> Result<Authority, IssueError> {
        let refused = |source| refusal(name, source);
        let mut params = params(name, &[], validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = match key {
            Some(pem) => KeyPair::from_pem(pem),
            None => KeyPair::generate(),
        };
        let key = key.map_err(refused)?;
        Ok(Authority {
            params,
            key,
            certificate: None,
        })
    }

    /// The CA that [`Authority::issued`] returned earlier, from its two PEM texts. Of several
    /// certificates the first counts.
    pub fn stored(certificate: &str, key: &str) -> Result<Authority, IssueError> {
        let stored = Certificate::first(certificate)?;
        let (Some(not_before), Some(not_after)) = (
            Timestamp::from_millisecond(stored.not_before_ms).ok(),
            Timestamp::from_millisecond(stored.not_after_ms).ok(),
        ) else {
            return Err(IssueError::Foreign(stored.common_name));
        };
        let validity = Validity {
            not_before,
            not_after,
        };
        let mut authority = Authority::new(&stored.common_name, validity, Some(key))?;
        // Certificates that it signs must be verified by the stored certificate.
        let own = Certificate::first(&authority.issued()?.certificate)?;
        if !own.is_same_issuer(&stored) {
            return Err(IssueError::Foreign(stored.common_name));
        }
        authority.certificate = Some(stored.pem());
        Ok(authority)
    }

    /// Its own certificate and key.
    pub fn issued(&self) -> Result<Issued, IssueError> {
        let certificate = match &self.certificate {
            Some(stored) => stored.clone(),
            None => {
                let made = self.params.self_signed(&self.key);
                made.map_err(|source| refusal("the authority", source))?
                    .pem()
            }
        };
        Ok(Issued {
            certificate,
            key: self.key.serialize_pem(),
        })
    }

    /// A certificate for these host names and addresses.
    pub fn issue(
        &self,
        name: &str,
        hosts: &[String],
        purpose: Purpose,
        validity: Validity,
    ) -> Result<Issued, IssueError> {
        let refused = |source| refusal(name, source);
        let mut params = params(name, hosts, validity)?;
        params.use_authority_key_identifier_extension = true;
        leaf(&mut params, purpose);
        let key = KeyPair::generate().map_err(refused)?;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(refused)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Authority {
    /// A certificate for the key of this request (PKCS #10, DER), and of nothing else in it. PEM.
    ///
    /// # Errors
    /// A request that cannot be read, or that its key did not sign.
    pub fn issue_for(
        &self,
        name: &str,
        hosts: &[String],
        purpose: Purpose,
        validity: Validity,
        request: &[u8],
    ) -> Result<String, IssueError> {
        let refused = |source| refusal(name, source);
        let request = CertificateSigningRequestDer::from(request);
        let asked = CertificateSigningRequestParams::from_der(&request).map_err(refused)?;
        let mut params = params(name, hosts, validity)?;
        params.use_authority_key_identifier_extension = true;
        leaf(&mut params, purpose);
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&asked.public_key, &issuer);
        Ok(certificate.map_err(refused)?.pem())
    }
}

/// A self-signed certificate.
pub fn self_signed(name: &str, hosts: &[String], validity: Validity) -> Result<Issued, IssueError> {
    let refused = |source| refusal(name, source);
    let mut params = params(name, hosts, validity)?;
    leaf(&mut params, Purpose::Member);
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    Ok(Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn params(
    name: &str,
    hosts: &[String],
    validity: Validity,
) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(hosts).map_err(|source| refusal(name, source))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = second(validity.not_before);
    params.not_after = second(validity.not_after);
    Ok(params)
}

fn leaf(params: &mut CertificateParams, purpose: Purpose) {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match purpose {
        Purpose::Member => vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ],
        Purpose::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
}

fn second(at: Timestamp) -> time::OffsetDateTime {
    // Every second of jiff's calendar, which ends with the year 9999, is in that calendar.
    time::OffsetDateTime::from_unix_timestamp(at.as_second())
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

fn refusal(name: &str, source: rcgen::Error) -> IssueError {
    IssueError::Refused {
        name: name.to_owned(),
        source,
    }
}
