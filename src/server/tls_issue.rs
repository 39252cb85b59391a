//! Certificates that this program makes: those of an authority of one's own (`quorate certs`), and
//! ones that vouch for themselves (`--auto-tls`).
//!
//! Never writes a file and never reads a clock: today comes in.

use jiff::Span;
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The library refuses: a name that is none, most often.
    #[error("cannot make the certificate of {name:?}: {source}")]
    Refused {
        /// Whose.
        name: String,
        /// The library's words.
        #[source]
        source: rcgen::Error,
    },
    /// A day beyond the calendar.
    #[error("{0} days from today is beyond the calendar: give fewer")]
    Days(u32),
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be dialled, and to dial: members are both to each other.
    Member,
    /// To dial alone.
    Client,
}

/// Days in which something holds.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// Today, or the day on which clocks that are behind may still begin.
    pub from: Date,
    /// How long from there.
    pub days: u32,
}

/// An authority that signs for others.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    /// A new one, or the one of a key that was made before; both have this name.
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
        Ok(Authority { params, key })
    }

    /// Its own certificate and key.
    pub fn issued(&self) -> Result<Issued, IssueError> {
        let certificate = self.params.self_signed(&self.key);
        let certificate = certificate.map_err(|source| refusal("the authority", source))?;
        Ok(Issued {
            certificate: certificate.pem(),
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

/// A certificate that vouches for itself.
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
    let until = validity
        .from
        .checked_add(Span::new().days(i64::from(validity.days)))
        .map_err(|_| IssueError::Days(validity.days))?;
    params.not_before = day(validity.from);
    params.not_after = day(until);
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

fn day(date: Date) -> time::OffsetDateTime {
    rcgen::date_time_ymd(
        i32::from(date.year()),
        date.month().unsigned_abs(),
        date.day().unsigned_abs(),
    )
}

fn refusal(name: &str, source: rcgen::Error) -> IssueError {
    IssueError::Refused {
        name: name.to_owned(),
        source,
    }
}
