//! Certificates created on the spot, for the tests of this room.

use std::path::PathBuf;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, Issuer, KeyPair, RevokedCertParams,
    SerialNumber,
};

use crate::server::flags::config::{AllowedNames, TlsFiles};

/// A folder with a CA (`ca.pem`) and certificates signed by it.
pub(in crate::server) struct Certificates {
    folder: tempfile::TempDir,
    root: (CertificateParams, KeyPair),
}

impl Certificates {
    /// With one certificate for `localhost`, named `leaf`.
    pub(in crate::server) fn new() -> Certificates {
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![
            rcgen::KeyUsagePurpose::KeyCertSign,
            rcgen::KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate().expect("key");
        let certificate = params.self_signed(&key).expect("root");
        let folder = tempfile::tempdir().expect("folder");
        let certificates = Certificates {
            folder,
            root: (params, key),
        };
        certificates.write("ca.pem", &certificate.pem());
        certificates.leaf("leaf");
        certificates
    }

    /// A file of the folder.
    pub(in crate::server) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the folder.
    pub(in crate::server) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Signs `<name>.pem` with `<name>.key`; the name is the common name as well.
    pub(in crate::server) fn leaf(&self, name: &str) {
        self.leaf_for(name, "localhost");
    }

    /// The same for another host. The serial number is the length of the name.
    pub(in crate::server) fn leaf_for(&self, name: &str, host: &str) {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("params");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(name.len() as u64));
        let issuer = Issuer::from_params(&self.root.0, &self.root.1);
        let certificate = params.signed_by(&key, &issuer).expect("leaf");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// Writes `<name>.crl`, which revokes these serial numbers.
    pub(in crate::server) fn revoke(&self, name: &str, serials: &[usize]) -> PathBuf {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial as u64),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2124, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let issuer = Issuer::from_params(&self.root.0, &self.root.1);
        let list = params.signed_by(&issuer).expect("list");
        self.write(&format!("{name}.crl"), &list.pem().expect("pem"))
    }

    /// A port that presents `leaf` and requires a certificate of the CA.
    pub(in crate::server) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("leaf.pem"),
            key: self.path("leaf.key"),
            trusted_ca: Some(self.path("ca.pem")),
            client_auth: true,
            calls_without: false,
            self_signed_years: None,
            allowed: AllowedNames::default(),
            revoked: None,
            client_certificate: None,
            client_key: None,
        }
    }
}
