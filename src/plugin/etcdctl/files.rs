//! The certificates in files, which etcdctl reads: in a folder that the user alone may read, and that is removed when the
//! value is dropped. Nothing of it is printed.

use std::fs::write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::Error;
use crate::system;

/// What etcdctl needs for TLS, as PEM.
pub(super) struct Certificates {
    /// The CAs of the members' certificates.
    pub(super) authorities: Vec<u8>,
    /// The client's certificate and its key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The files of [`Certificates`].
pub(super) struct Files {
    /// Removes it.
    _folder: TempDir,
    pub(super) authorities: PathBuf,
    /// The certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

impl Files {
    /// Writes them.
    pub(super) fn of(certificates: &Certificates) -> Result<Files, Error> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("kubectl-quorate-");
        system::private(&mut builder);
        let folder = builder.tempdir().map_err(Error::NoFolder)?;
        let file = |name: &str, content: &[u8]| written(folder.path(), name, content);
        let authorities = file("ca.crt", &certificates.authorities)?;
        let identity = match &certificates.identity {
            Some((certificate, key)) => {
                Some((file("tls.crt", certificate)?, file("tls.key", key)?))
            }
            None => None,
        };
        Ok(Files {
            _folder: folder,
            authorities,
            identity,
        })
    }
}

fn written(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    write(&path, content).map_err(Error::NoFolder)?;
    Ok(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn folder_is_private_and_goes_with_the_value() {
        let files = Files::of(&Certificates {
            authorities: b"authorities".to_vec(),
            identity: Some((b"certificate".to_vec(), b"key".to_vec())),
        });
        let files = files.expect("files");
        let (certificate, key) = files.identity.clone().expect("an identity");
        assert_eq!(std::fs::read(&certificate).expect("a file"), b"certificate");
        assert_eq!(std::fs::read(&key).expect("a file"), b"key");
        let folder = key.parent().expect("a folder").to_owned();
        let mode = std::fs::metadata(&folder).expect("a folder");
        assert_eq!(mode.permissions().mode() & 0o777, 0o700);
        drop(files);
        assert!(!folder.exists());
    }
}
