//! A client of `quorate.v1.Restore`: gives a standby the snapshot that it founds a cluster from. Signs every call and
//! rejects every answer that is not signed, as the operator's client does, with a key that fits these calls alone.
//! Never retries.

use std::time::Duration;

use bytes::Bytes;

use super::auth::Key;
use super::client::{AddressError, Way, dial};
use super::secure::Secure;
use super::signed::Signed;
use crate::wire::member as proto;
use proto::restore_client::RestoreClient as Generated;

/// Bytes that a call writes at most: the server refuses more.
pub const WRITE: u64 = 1 << 20;

/// Calls to one standby's peer port.
#[derive(Clone, Debug)]
pub struct RestoreClient(Generated<Signed<Way>>);

impl RestoreClient {
    /// A client of the standby at `host:port`. Connects at the first call; each call takes at most `timeout`.
    ///
    /// # Errors
    /// An address that cannot be dialled at all.
    pub fn new(
        address: &str,
        key: Key,
        timeout: Duration,
        secure: Option<&Secure>,
    ) -> Result<RestoreClient, AddressError> {
        let way = dial(address, timeout, secure)?;
        let signed = Signed::for_restores(way, key);
        Ok(RestoreClient(Generated::new(signed)))
    }

    /// Whether this server takes a snapshot, and what it holds of one.
    ///
    /// # Errors
    /// No answer, or one that is not signed.
    pub async fn prospect(&mut self) -> Result<proto::ProspectResponse, tonic::Status> {
        let answer = self.0.prospect(proto::ProspectRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// Announces a snapshot by its SHA-256 in hexadecimal, its length in bytes and the ID of the living cluster that is to
    /// be followed behind it, or 0. Returns the bytes that are there.
    ///
    /// # Errors
    /// The same; no space, or the server takes none.
    pub async fn begin(
        &mut self,
        sha256: &str,
        length: u64,
        source_cluster: u64,
    ) -> Result<u64, tonic::Status> {
        let request = proto::BeginRequest {
            sha256: sha256.to_owned(),
            length,
            source_cluster,
        };
        let answer = self.0.begin(request).await?;
        Ok(answer.into_inner().received)
    }

    /// Sends the bytes behind `offset`, at most [`WRITE`]. Returns the bytes that are there.
    ///
    /// # Errors
    /// The same; another snapshot was announced meanwhile, or bytes before these are missing.
    pub async fn write(
        &mut self,
        sha256: &str,
        offset: u64,
        data: Bytes,
    ) -> Result<u64, tonic::Status> {
        let request = proto::WriteRequest {
            sha256: sha256.to_owned(),
            offset,
            data,
        };
        Ok(self.0.write(request).await?.into_inner().received)
    }

    /// Has the whole snapshot checked, and compared with what it held when it was saved, where that is known.
    ///
    /// # Errors
    /// The same; it is not what was announced or expected, or no database.
    pub async fn finish(
        &mut self,
        sha256: &str,
        expected: Option<proto::Expected>,
    ) -> Result<proto::FinishResponse, tonic::Status> {
        let sha256 = sha256.to_owned();
        let request = proto::FinishRequest { sha256, expected };
        let answer = self.0.finish(request).await?;
        Ok(answer.into_inner())
    }
}
