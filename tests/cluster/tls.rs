//! Certificates for the peer port, generated for each test.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A CA whose root certificate is in `<name>-ca.pem`.
pub(crate) struct Authority {
    name: String,
    params: CertificateParams,
    key: KeyPair,
}

/// Creates a CA.
pub(crate) fn authority(home: &Path, name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    std::fs::write(home.join(format!("{name}-ca.pem")), root.pem()).unwrap();
    Authority {
        name: name.to_owned(),
        params,
        key,
    }
}

impl Authority {
    /// Signs a certificate for an address; returns the flags that use it.
    pub(crate) fn certificate(&self, home: &Path, member: &str, address: &str) -> [String; 4] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![address.to_owned()]).unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let signed = params.signed_by(&key, &issuer).unwrap();
        let file = |ending: &str| home.join(format!("{}-{member}.{ending}", self.name));
        std::fs::write(file("pem"), signed.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        let root = home.join(format!("{}-ca.pem", self.name));
        [
            format!("--peer-cert-file={}", file("pem").display()),
            format!("--peer-key-file={}", file("key").display()),
            format!("--peer-trusted-ca-file={}", root.display()),
            "--peer-client-cert-auth".to_owned(),
        ]
    }
}
