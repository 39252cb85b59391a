//! The standby that gets a snapshot: waits for it, sends what it lacks, and goes on where it stopped after either end has
//! failed.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Code, Status};

use super::{Contents, Snapshot};
use crate::backup::Error;
use crate::backup::save::ended;
use crate::server::operator_api::auth::Key;
use crate::server::operator_api::restore_client::{RestoreClient, WRITE};
use crate::server::operator_api::secure::Secure;

/// A call that stores a piece, or deletes an earlier snapshot, ends within this.
const ANSWER: Duration = Duration::from_secs(60);
/// A standby reads the whole snapshot, and builds its data from it, before it answers.
const FINISH: Duration = Duration::from_secs(1800);
/// Between two attempts: grows from the first to the second.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For so long a key is refused: a Secret that has changed takes a while to arrive on both sides.
const STRANGE: Duration = Duration::from_secs(90);
/// How often a standby may find that what it has received is not what was sent.
const SPOILT: u32 = 3;

/// The standby.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port` of its peer port.
    pub host: String,
    /// The key of restores.
    pub key: Key,
    /// PEM roots of its certificate, which names the host; without them no TLS is used.
    pub roots: Option<String>,
    /// For so long it may make no progress.
    pub patience: Duration,
    /// Bytes a second at most.
    pub rate: Option<u64>,
}

/// Why an attempt ended.
enum Failed {
    /// Another one may succeed.
    Passing(String),
    /// The same, if the key arrives.
    Strange(String),
    /// The standby has dropped what it had received.
    Spoilt(String),
    /// None will.
    Final(Error),
}

/// How far it has come, across all attempts.
struct Progress {
    /// The last time that bytes arrived.
    last: Instant,
    /// The first byte that this process sent, and how many since.
    begun: Option<Instant>,
    sent: u64,
    spoilt: u32,
}

impl Target {
    /// Sends a snapshot. Returns what the standby found in it.
    pub(super) async fn send(&self, snapshot: &Snapshot) -> Result<Contents, Error> {
        let mut progress = Progress {
            last: Instant::now(),
            begun: None,
            sent: 0,
            spoilt: 0,
        };
        let mut pause = PAUSE;
        loop {
            let before = progress.sent;
            let (why, patience) = match self.attempt(snapshot, &mut progress).await {
                Ok(contents) => return Ok(contents),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(why)) => (why, self.patience),
                Err(Failed::Strange(why)) => (why, self.patience.min(STRANGE)),
                Err(Failed::Spoilt(why)) => {
                    progress.spoilt += 1;
                    if progress.spoilt >= SPOILT {
                        return Err(self.failed(&why));
                    }
                    (why, self.patience)
                }
            };
            if progress.last.elapsed() >= patience {
                let seconds = patience.as_secs();
                return Err(self.failed(&format!(
                    "no progress for {seconds} s (--member-wait); the last answer: {why}"
                )));
            }
            if progress.sent > before {
                pause = PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(
        &self,
        snapshot: &Snapshot,
        progress: &mut Progress,
    ) -> Result<Contents, Failed> {
        let mut client = self.client().await?;
        let refused = answered(ANSWER, client.prospect()).await?;
        if !refused.is_empty() {
            return Err(Failed::Final(self.failed(&refused)));
        }
        let (sha256, length) = (snapshot.sha256.as_str(), snapshot.length);
        let mut received = answered(ANSWER, client.begin(sha256, length)).await?;
        while received < length {
            let piece = piece(snapshot, received).await.map_err(Failed::Final)?;
            let bytes = piece.len() as u64;
            let now = answered(ANSWER, client.write(sha256, received, piece)).await?;
            if now <= received || now > length {
                return Err(Failed::Passing(format!(
                    "it had {received} bytes of {length}, was sent more, and has {now}"
                )));
            }
            received = now;
            progress.count(bytes, self.rate).await;
        }
        let found = answered(FINISH, client.finish(sha256)).await?;
        Ok(Contents {
            revision: found.revision,
            keys: found.keys,
            hash: found.hash,
        })
    }

    /// A client of the first address of the host: after a restart it may be another one.
    async fn client(&self) -> Result<RestoreClient, Failed> {
        let host = self.host.as_str();
        let resolved = timeout(ANSWER, tokio::net::lookup_host(host)).await;
        let resolved = resolved.map_err(|_| silent(ANSWER))?;
        let mut addresses =
            resolved.map_err(|error| Failed::Passing(format!("{host} is not found: {error}")))?;
        let address = addresses.next();
        let address = address.ok_or_else(|| Failed::Passing(format!("{host} has no address")))?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let secure = self.roots.as_ref().map(|roots| Secure {
            roots_pem: roots.clone(),
            server_name: name.trim_matches(['[', ']']).to_owned(),
            plaintext_too: false,
        });
        let client = RestoreClient::new(
            &address.to_string(),
            self.key.clone(),
            FINISH,
            secure.as_ref(),
        );
        client.map_err(|error| Failed::Final(Error::Usage(error.to_string())))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Target(format!(
            "the standby {} takes no snapshot: {why}",
            self.host
        ))
    }
}

impl Progress {
    /// Counts what has arrived; waits while it is ahead of the rate.
    async fn count(&mut self, bytes: u64, rate: Option<u64>) {
        self.last = Instant::now();
        self.sent += bytes;
        let begun = *self.begun.get_or_insert(self.last);
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate as f64);
            sleep_until(begun + due).await;
        }
    }
}

/// The next bytes of the file.
async fn piece(snapshot: &Snapshot, offset: u64) -> Result<bytes::Bytes, Error> {
    let file = Arc::clone(&snapshot.file);
    // At most `WRITE`.
    let length = WRITE.min(snapshot.length - offset) as usize;
    let read = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; length];
        file.read_exact_at(&mut piece, offset)?;
        Ok(bytes::Bytes::from(piece))
    });
    let read: std::io::Result<bytes::Bytes> = read.await.map_err(ended)?;
    read.map_err(Error::file(std::path::Path::new("the fetched snapshot")))
}

/// The answer to a call, within a time.
async fn answered<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Failed> {
    let answer = timeout(patience, call).await;
    answer
        .map_err(|_| silent(patience))?
        .map_err(|status| judge(&status))
}

fn silent(patience: Duration) -> Failed {
    Failed::Passing(format!("no answer in {} s", patience.as_secs()))
}

fn judge(status: &Status) -> Failed {
    let text = crate::backup::source::text(status);
    match status.code() {
        Code::DataLoss => Failed::Spoilt(text),
        Code::Unauthenticated => Failed::Strange(text),
        // Another version, or a call that it cannot mean.
        Code::Unimplemented | Code::InvalidArgument => {
            let text = format!("the standby takes no snapshot: {text}");
            Failed::Final(Error::Target(text))
        }
        // A server that has just become a member says so when it is asked again.
        _ => Failed::Passing(text),
    }
}
