//! The store that a URL names, with what its client needs: `s3://`, `gs://`, `az://` and `file://`.
//!
//! Credentials come from the environment as each provider's own tools read them (`AWS_*`, `GOOGLE_*`, `AZURE_*`, with
//! workload identity); they are part of no URL and of no output.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};

use super::Error;
use super::repository::Repository;

/// A request is repeated for so long; a token that was read before it stays valid.
const RETRY_FOR: Duration = Duration::from_secs(240);
/// Longest wait between two attempts.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// A store that accepts no connection within this is not reached.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest request: a part over a slow link.
const REQUEST: Duration = Duration::from_secs(200);

/// Where backups are.
#[derive(Clone, Debug)]
pub struct Location {
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///DIRECTORY`.
    pub url: String,
    /// A folder below it, which need not exist.
    pub folder: Option<String>,
    /// The endpoint of a store other than the provider's own.
    pub endpoint: Option<String>,
    /// PEM roots of the store's certificate, beside the usual ones.
    pub ca_file: Option<PathBuf>,
    /// How often a request is repeated, with growing pauses and for four minutes at most.
    pub retries: usize,
}

impl Location {
    /// Opens the store. Reaches for nothing yet.
    ///
    /// # Errors
    /// A URL that names no store, missing settings, unreadable certificates.
    pub fn open(&self) -> Result<Repository, Error> {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        if [self.url.as_str(), endpoint]
            .iter()
            .any(|url| url.contains(['@', '?', '#']))
        {
            let text = "a store's URL and endpoint contain neither credentials nor a query: give credentials by the environment";
            return Err(Error::Usage(text.to_owned()));
        }
        if self.folder.as_deref() == Some("") {
            let text = "--prefix is empty: give a path, or leave the flag out";
            return Err(Error::Usage(text.to_owned()));
        }
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| self.unknown())?;
        if scheme == "file" {
            return self.directory(rest);
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(self.unknown());
        }
        let prefix = self.prefix(prefix)?;
        let url = self.whole_url();
        let store = match scheme {
            "s3" => self.s3(bucket)?,
            "gs" => self.gcs(bucket)?,
            "az" => self.azure(bucket)?,
            _ => return Err(self.unknown()),
        };
        Ok(Repository::new(store, prefix, url))
    }

    /// As it is shown.
    fn whole_url(&self) -> String {
        match &self.folder {
            Some(folder) => format!("{}/{folder}", self.url.trim_end_matches('/')),
            None => self.url.clone(),
        }
    }

    fn unknown(&self) -> Error {
        Error::Usage(format!(
            "{:?} names no store: give s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY, and credentials by the environment",
            self.url
        ))
    }

    fn prefix(&self, prefix: &str) -> Result<Path, Error> {
        let folder = self.folder.as_deref().unwrap_or_default();
        let both = format!("{}/{folder}", prefix.trim_end_matches('/'));
        let path = Path::parse(both.trim_matches('/'));
        path.map_err(|error| Error::Usage(format!("{:?}: {error}", self.whole_url())))
    }

    fn refused(&self, error: &object_store::Error) -> Error {
        Error::Usage(format!("{:?}: {error}", self.url))
    }

    /// A directory that exists: one that is not there may be a volume that is not mounted.
    fn directory(&self, path: &str) -> Result<Repository, Error> {
        let path = FilePath::new(path);
        if !path.is_absolute() || self.endpoint.is_some() || self.ca_file.is_some() {
            return Err(Error::Usage(format!(
                "{:?}: a directory needs an absolute path (file:///var/backups) and neither endpoint nor CA",
                self.url
            )));
        }
        if !path.is_dir() {
            return Err(Error::Usage(format!(
                "{} is no directory: mount the volume, or create the directory",
                path.display()
            )));
        }
        let store = LocalFileSystem::new_with_prefix(path)
            .map_err(|error| self.refused(&error))?
            .with_fsync(true);
        let prefix = self.prefix("")?;
        Ok(Repository::new(Arc::new(store), prefix, self.whole_url()))
    }

    fn s3(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            // Whatever the environment says: a manifest is written only if there is none.
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(self.client()?)
            .with_retry(self.retry());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| self.refused(&error))?;
        Ok(Arc::new(store))
    }

    fn gcs(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(self.client()?)
            .with_retry(self.retry());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        let store = builder.build().map_err(|error| self.refused(&error))?;
        Ok(Arc::new(store))
    }

    fn azure(&self, container: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(container)
            .with_client_options(self.client()?)
            .with_retry(self.retry());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let store = builder.build().map_err(|error| self.refused(&error))?;
        Ok(Arc::new(store))
    }

    fn retry(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                max_backoff: RETRY_PAUSE,
                ..BackoffConfig::default()
            },
            max_retries: self.retries,
            retry_timeout: RETRY_FOR,
        }
    }

    /// HTTP's side: plain only to an endpoint whose URL says so.
    fn client(&self) -> Result<ClientOptions, Error> {
        let plain = |endpoint: &String| endpoint.starts_with("http://");
        let mut options = ClientOptions::new()
            .with_allow_http(self.endpoint.as_ref().is_some_and(plain))
            .with_connect_timeout(CONNECT)
            .with_timeout(REQUEST)
            // The image has no directory of roots: they are all given here.
            .with_no_system_certificates(true);
        for root in roots() {
            // One that cannot be read is no reason to do without the others.
            if let Ok(root) = Certificate::from_der(&root) {
                options = options.with_root_certificate(root);
            }
        }
        let Some(file) = &self.ca_file else {
            return Ok(options);
        };
        let pem = std::fs::read(file).map_err(Error::file(file))?;
        let own = Certificate::from_pem_bundle(&pem).map_err(|error| self.refused(&error))?;
        if own.is_empty() {
            let text = format!("{}: it has no PEM certificate", file.display());
            return Err(Error::Usage(text));
        }
        Ok(own
            .into_iter()
            .fold(options, ClientOptions::with_root_certificate))
    }
}

/// The roots that this machine trusts; Mozilla's where there are none, as in a container of one file.
fn roots() -> Vec<rustls_pki_types::CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    match found.is_empty() {
        true => webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec(),
        false => found,
    }
}
