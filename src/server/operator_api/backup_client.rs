//! A client of `quorate.v1.Backup`: reads one member's state as a file. Signs every call and rejects every answer that
//! is not signed, as the operator's client does, with a key that fits these calls alone. Never retries.

use std::time::Duration;

use super::auth::Key;
use super::client::{AddressError, Way, dial};
use super::proof::Caller;
use super::secure::Secure;
use super::signed::Signed;
use crate::wire::member as proto;
use proto::backup_client::BackupClient as Generated;

/// Bytes that a call reads at most: the server refuses more.
pub const READ: u64 = 1 << 20;

/// Bytes of the largest entry of a log that is archived.
pub const ENTRY: u64 = 48 << 20;

/// The same wish for a client that takes etcd's `Snapshot` instead: a header with the bytes a second at which the member
/// writes its state at most, before the first byte is sent. etcd, and older servers of ours, ignore it.
pub const SNAPSHOT_RATE: &str = "quorate-snapshot-rate";

/// Calls to one member's peer port.
#[derive(Clone, Debug)]
pub struct BackupClient(Generated<Signed<Way>>);

impl BackupClient {
    /// A client of the member at `host:port`. Connects at the first call; each call takes at most `timeout`.
    ///
    /// # Errors
    /// An address that cannot be dialled at all.
    pub fn new(
        address: &str,
        key: Key,
        timeout: Duration,
        secure: Option<&Secure>,
    ) -> Result<BackupClient, AddressError> {
        let way = dial(address, timeout, secure)?;
        let signed = Signed::for_backups(way, key);
        let generated = Generated::new(signed);
        Ok(BackupClient(
            generated.max_decoding_message_size(Caller::Backup.answer_limit()),
        ))
    }

    /// Whether a snapshot of this member is a good one.
    ///
    /// # Errors
    /// No answer, or one that is not signed.
    pub async fn standing(&mut self) -> Result<proto::StandingResponse, tonic::Status> {
        let answer = self.0.standing(proto::StandingRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// Writes the state into a file there.
    ///
    /// # Errors
    /// The same; no space, or another backup reads this member.
    pub async fn open(
        &mut self,
        request: proto::OpenRequest,
    ) -> Result<proto::OpenResponse, tonic::Status> {
        Ok(self.0.open(request).await?.into_inner())
    }

    /// What [`BackupClient::open`] gives for a file that is no longer growing, or the same again.
    ///
    /// # Errors
    /// The same; the file was given up.
    pub async fn wait(&mut self, file: u64) -> Result<proto::OpenResponse, tonic::Status> {
        let request = proto::WaitRequest { file };
        Ok(self.0.wait(request).await?.into_inner())
    }

    /// Bytes of the file, at most [`READ`].
    ///
    /// # Errors
    /// The same; the file was given up.
    pub async fn read(
        &mut self,
        file: u64,
        offset: u64,
        length: u64,
    ) -> Result<bytes::Bytes, tonic::Status> {
        let request = proto::ReadRequest {
            file,
            offset,
            length,
        };
        Ok(self.0.read(request).await?.into_inner().data)
    }

    /// Gives the file up.
    ///
    /// # Errors
    /// No answer, or one that is not signed.
    pub async fn close(&mut self, file: u64) -> Result<(), tonic::Status> {
        self.0.close(proto::CloseRequest { file }).await.map(drop)
    }

    /// Committed entries of the log; waits for new ones as long as is asked for.
    ///
    /// # Errors
    /// The same; the log is another one than was read before.
    pub async fn entries(
        &mut self,
        request: proto::EntriesRequest,
    ) -> Result<proto::EntriesResponse, tonic::Status> {
        Ok(self.0.entries(request).await?.into_inner())
    }
}
