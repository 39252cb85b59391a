//! The one member that is left of a cluster without a quorum: its data with its log's end, by `quorate.v1.Backup`. Waits
//! for it, and takes no other member, and no less than was asked for.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use super::members::{OPEN, Reader, client};
use super::sink::Sink;
use super::{ANSWER, Fetched, text};
use crate::backup::Error;
use crate::server::operator_api::auth::Key;
use crate::server::operator_api::backup_client::BackupClient;
use crate::wire::member::{OpenRequest, OpenResponse, Tail};

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// The member, as whoever chose it saw it.
#[derive(Clone, Debug)]
pub struct Survivor {
    /// `host:port` of its peer port.
    pub host: String,
    /// The key of backups.
    pub key: Key,
    /// PEM roots of its certificate, which names the host; without them no TLS is used.
    pub roots: Option<String>,
    /// UUID of its disk.
    pub disk_uuid: String,
    /// Term of its log's last entry.
    pub term: u64,
    /// Index of that entry.
    pub index: u64,
    /// For so long it may not answer, or not be ready to.
    pub patience: Duration,
    /// Bytes a second at most.
    pub rate: Option<u64>,
}

/// Why an attempt ended.
enum Failed {
    /// Another one may succeed.
    Passing(String),
    /// None will.
    Final(Error),
}

impl Survivor {
    /// Writes its data into a file. Errors name the file by `place`.
    ///
    /// # Errors
    /// [`Error::Source`] if it is another member, holds less, has a quorum, or does not answer for as long as there is
    /// patience; [`Error::Snapshot`] for data that are not what it said; those of the file.
    pub async fn fetch(&self, file: &File, place: &Path) -> Result<Fetched, Error> {
        let begun = Instant::now();
        loop {
            match self.attempt(file, place).await {
                Ok(fetched) => return Ok(fetched),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(why)) if begun.elapsed() >= self.patience => {
                    let seconds = self.patience.as_secs();
                    return Err(self.failed(&format!(
                        "not for {seconds} s (--member-wait); the last answer: {why}"
                    )));
                }
                Err(Failed::Passing(_)) => sleep(PAUSE).await,
            }
        }
    }

    async fn attempt(&self, file: &File, place: &Path) -> Result<Fetched, Failed> {
        let mut client = self.client().await?;
        let standing = self.answered(ANSWER, client.standing()).await?;
        if !standing.refused.is_empty() {
            // It may have just started.
            return Err(Failed::Passing(standing.refused));
        }
        let opened = self.answered(OPEN, client.open(self.request())).await?;
        let mut reader = Reader::of(client);
        if let Err(error) = self.is_wanted(&opened) {
            reader.close(opened.file).await;
            return Err(Failed::Final(error));
        }
        let sink = Sink::new(file, place, self.rate).map_err(Failed::Final)?;
        let written = reader.read_opened(sink, opened, &self.host).await;
        let written = written.map_err(|error| match error {
            Error::Source(why) => Failed::Passing(why),
            error => Failed::Final(error),
        })?;
        Ok(Fetched {
            endpoint: self.host.clone(),
            cluster_id: standing.cluster_id,
            member_id: standing.member_id,
            version: standing.version,
            length: written.length,
            sha256: written.sha256,
        })
    }

    fn request(&self) -> OpenRequest {
        OpenRequest {
            tail: Some(Tail {
                disk_uuid: self.disk_uuid.clone(),
                term: self.term,
                index: self.index,
            }),
            // It has no clients that would notice.
            rate: 0,
        }
    }

    /// A server that does not know what it was asked for gives less.
    fn is_wanted(&self, opened: &OpenResponse) -> Result<(), Error> {
        if !opened.tail {
            return Err(self.failed(
                "its version is too old to give the end of its log, and the last writes would be lost: run the operator's version of the server, and repeat",
            ));
        }
        let (term, index) = (opened.last_term, opened.last_index);
        match (term, index) >= (self.term, self.index) {
            true => Ok(()),
            false => Err(self.failed(&format!(
                "it gave its log to entry {index} of term {term}, and entry {} of term {} was asked for",
                self.index, self.term
            ))),
        }
    }

    /// A client of the first address of the host: after a restart it may be another one.
    async fn client(&self) -> Result<BackupClient, Failed> {
        let host = self.host.as_str();
        let resolved = timeout(ANSWER, tokio::net::lookup_host(host)).await;
        let resolved = resolved.map_err(|_| Failed::Passing("its name is not resolved".into()))?;
        let mut addresses =
            resolved.map_err(|error| Failed::Passing(format!("{host} is not found: {error}")))?;
        let address = addresses.next();
        let address = address.ok_or_else(|| Failed::Passing(format!("{host} has no address")))?;
        let client = client(host, &address.to_string(), &self.key, self.roots.as_deref());
        client.map_err(|error| Failed::Final(Error::Usage(error.to_string())))
    }

    /// The answer to a call, within a time.
    async fn answered<T>(
        &self,
        patience: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failed> {
        let answer = timeout(patience, call).await;
        let answer = answer
            .map_err(|_| Failed::Passing(format!("no answer in {} s", patience.as_secs())))?;
        answer.map_err(|status| match status.code() {
            // It is another one, holds less, or has a quorum.
            Code::FailedPrecondition | Code::Unimplemented | Code::InvalidArgument => {
                Failed::Final(self.failed(&text(&status)))
            }
            _ => Failed::Passing(text(&status)),
        })
    }

    fn failed(&self, why: &str) -> Error {
        Error::Source(format!(
            "the member that is left, {} with disk {}, gives no data: {why}",
            self.host, self.disk_uuid
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that does not know the question answers with what is committed.
    #[test]
    fn less_than_was_asked_for_is_refused() {
        let survivor = Survivor {
            host: "demo-2:2380".to_owned(),
            key: Key::new(b"0123456789abcdef"),
            roots: None,
            disk_uuid: "uuid".to_owned(),
            term: 3,
            index: 20,
            patience: Duration::ZERO,
            rate: None,
        };
        let answer = |tail, last_term, last_index| OpenResponse {
            tail,
            last_term,
            last_index,
            ..OpenResponse::default()
        };
        for (opened, text) in [
            (answer(false, 0, 0), "too old"),
            (answer(true, 3, 19), "entry 20 of term 3"),
            (answer(true, 2, 900), "entry 20 of term 3"),
        ] {
            let refused = survivor.is_wanted(&opened).expect_err("less");
            assert!(refused.to_string().contains(text), "{refused}");
        }
        for opened in [answer(true, 3, 20), answer(true, 4, 1)] {
            survivor.is_wanted(&opened).expect("all of it");
        }
    }
}
