//! Certificates made on the spot, for the tests of this room.

use std::path::PathBuf;

use rcgen::{CertificateParams, Issuer, KeyPair};

use super::config::TlsFiles;

/// A folder with a root (`ca.pem`) and certificates that it signed.
pub(super) struct Certificates {
    folder: tempfile::TempDir,
    root: (CertificateParams, KeyPair),
}

impl Certificates {
    /// With one certificate for `localhost`, named `leaf`.
    pub(super) fn new() -> Certificates {
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
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
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the folder.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Signs `<name>.pem` with `<name>.key`.
    pub(super) fn leaf(&self, name: &str) {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("params");
        let issuer = Issuer::from_params(&self.root.0, &self.root.1);
        let certificate = params.signed_by(&key, &issuer).expect("leaf");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// A port that shows `leaf` and asks for a certificate of the root.
    pub(super) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("leaf.pem"),
            key: self.path("leaf.key"),
            trusted_ca: Some(self.path("ca.pem")),
            client_auth: true,
            revoked: None,
            client_certificate: None,
            client_key: None,
        }
    }
}
