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
use crate::wire::member::{Expected, StagedSnapshot};

/// A call that stores a piece, or deletes an earlier snapshot, ends within this.
const ANSWER: Duration = Duration::from_secs(60);
/// A standby reads the whole snapshot, and builds its data from it, before it answers.
const FINISH: Duration = Duration::from_secs(1800);
/// Between two attempts: grows from the first to the second.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For so long a key is refused: a Secret that has changed takes a while to arrive on both sides.
const STRANGE: Duration = Duration::from_secs(90);
/// For so long its volume is full: somebody has to enlarge it, and is to be told soon.
const FULL: Duration = Duration::from_secs(60);
/// How often a standby may find that what it has received is not what was sent.
const SPOILT: u32 = 3;
/// How often another snapshot may take the place of this one, which takes the other's place again.
const DISPLACED: u32 = 3;

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
    /// The same, if there is space.
    Full(String),
    /// Another snapshot was announced.
    Displaced(String),
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
    /// The standby had all bytes once.
    whole: bool,
    /// Since when the key is refused, and since when there is no space.
    strange: Option<Instant>,
    full: Option<Instant>,
    spoilt: u32,
    displaced: u32,
}

impl Target {
    /// Waits for the standby. Returns the snapshot that it has, if it has one.
    pub(in crate::backup) async fn wait(&self) -> Result<Option<StagedSnapshot>, Error> {
        let attempt = async |_: &mut Progress| {
            let mut client = self.client().await?;
            self.prospect(&mut client, false).await
        };
        self.repeat(attempt).await
    }

    /// Sends a snapshot. Returns what the standby found in it.
    pub(super) async fn send(&self, snapshot: &Snapshot) -> Result<Contents, Error> {
        self.repeat(async |progress| self.attempt(snapshot, progress).await)
            .await
    }

    /// Repeats what fails in passing, for as long as there is patience.
    async fn repeat<T>(
        &self,
        mut attempt: impl AsyncFnMut(&mut Progress) -> Result<T, Failed>,
    ) -> Result<T, Error> {
        let mut progress = Progress::new();
        let mut pause = PAUSE;
        loop {
            let before = progress.sent;
            match attempt(&mut progress).await {
                Ok(done) => return Ok(done),
                Err(failed) => self.bear(failed, &mut progress)?,
            }
            if progress.sent > before {
                pause = PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether another attempt is made.
    fn bear(&self, failed: Failed, progress: &mut Progress) -> Result<(), Error> {
        let now = Instant::now();
        let (why, since, patience) = match failed {
            Failed::Final(error) => return Err(error),
            Failed::Passing(why) => (why, progress.last, self.patience),
            Failed::Strange(why) => {
                let since = *progress.strange.get_or_insert(now);
                (why, since, self.patience.min(STRANGE))
            }
            Failed::Full(why) => {
                let since = *progress.full.get_or_insert(now);
                let patience = self.patience.min(FULL);
                return match since.elapsed() >= patience {
                    true => Err(Error::TargetFull(self.refusal(&exhausted(patience, &why)))),
                    false => Ok(()),
                };
            }
            Failed::Spoilt(why) => {
                progress.spoilt += 1;
                return match progress.spoilt >= SPOILT {
                    true => Err(self.failed(&why)),
                    false => Ok(()),
                };
            }
            Failed::Displaced(why) => {
                progress.displaced += 1;
                return match progress.displaced >= DISPLACED {
                    true => Err(self.failed(&format!(
                        "another one is sent to it at the same time, and only one can be: end the other Job, and repeat; the last answer: {why}"
                    ))),
                    false => Ok(()),
                };
            }
        };
        match since.elapsed() >= patience {
            true => Err(self.failed(&exhausted(patience, &why))),
            false => Ok(()),
        }
    }

    /// What the standby has of a snapshot. `whole`: it had all of this one.
    async fn prospect(
        &self,
        client: &mut RestoreClient,
        whole: bool,
    ) -> Result<Option<StagedSnapshot>, Failed> {
        let found = answered(ANSWER, client.prospect()).await?;
        match found.refused.is_empty() {
            true => Ok(found.staged),
            false => Err(self.taken(&found.refused, whole)),
        }
    }

    fn taken(&self, refused: &str, whole: bool) -> Failed {
        // The answer to Finish may have been lost, and the operator does not wait for this process.
        Failed::Final(match whole {
            true => Error::Target(format!(
                "the standby {} had received all of the snapshot, and takes none now; it may have founded the cluster with it already: {refused}",
                self.host
            )),
            false => self.failed(refused),
        })
    }

    async fn attempt(
        &self,
        snapshot: &Snapshot,
        progress: &mut Progress,
    ) -> Result<Contents, Failed> {
        let mut client = self.client().await?;
        self.prospect(&mut client, progress.whole).await?;
        let (sha256, length) = (snapshot.sha256.as_str(), snapshot.length);
        let mut received = answered(ANSWER, client.begin(sha256, length, snapshot.source)).await?;
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
        progress.whole = true;
        let expected = snapshot.saved.then_some(snapshot.contents.into());
        let found = answered(FINISH, client.finish(sha256, expected)).await?;
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
            roots_pem: roots.as_str().into(),
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
        Error::Target(self.refusal(why))
    }

    fn refusal(&self, why: &str) -> String {
        format!("the standby {} takes no snapshot: {why}", self.host)
    }
}

impl Progress {
    fn new() -> Progress {
        Progress {
            last: Instant::now(),
            begun: None,
            sent: 0,
            whole: false,
            strange: None,
            full: None,
            spoilt: 0,
            displaced: 0,
        }
    }

    /// Counts what has arrived; waits while it is ahead of the rate.
    async fn count(&mut self, bytes: u64, rate: Option<u64>) {
        self.last = Instant::now();
        (self.strange, self.full) = (None, None);
        self.sent += bytes;
        let begun = *self.begun.get_or_insert(self.last);
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate as f64);
            sleep_until(begun + due).await;
        }
    }
}

impl From<Contents> for Expected {
    fn from(contents: Contents) -> Expected {
        Expected {
            revision: contents.revision,
            keys: contents.keys,
            hash: contents.hash,
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

fn exhausted(patience: Duration, why: &str) -> String {
    let seconds = patience.as_secs();
    format!("no progress for {seconds} s (--member-wait); the last answer: {why}")
}

fn silent(patience: Duration) -> Failed {
    Failed::Passing(format!("no answer in {} s", patience.as_secs()))
}

fn judge(status: &Status) -> Failed {
    let text = crate::backup::source::text(status);
    match status.code() {
        Code::DataLoss => Failed::Spoilt(text),
        Code::Unauthenticated => Failed::Strange(text),
        Code::ResourceExhausted => Failed::Full(text),
        Code::Aborted => Failed::Displaced(text),
        // Another version, or a call that it cannot mean.
        Code::Unimplemented | Code::InvalidArgument => {
            let text = format!("the standby takes no snapshot: {text}");
            Failed::Final(Error::Target(text))
        }
        // A server that has just become a member says so when it is asked again.
        _ => Failed::Passing(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            host: "seed:2380".to_owned(),
            key: Key::new(b"0123456789abcdef"),
            roots: None,
            patience: Duration::from_secs(600),
            rate: None,
        }
    }

    /// How long it is borne from the first time on, in seconds.
    fn borne(failed: impl Fn() -> Failed) -> (u64, Error) {
        let mut progress = Progress::new();
        let mut seconds = 0;
        loop {
            match target().bear(failed(), &mut progress) {
                Ok(()) => seconds += 1,
                Err(error) => return (seconds, error),
            }
            let second = Duration::from_secs(1);
            progress.last -= second;
            progress.strange = progress.strange.map(|since| since - second);
            progress.full = progress.full.map(|since| since - second);
        }
    }

    #[test]
    fn failures_are_borne_for_as_long_as_somebody_may_mend_them() {
        let of = |code: Code| move || judge(&Status::new(code, "words"));
        for (code, seconds, full) in [
            (Code::Unavailable, 600, false),
            (Code::FailedPrecondition, 600, false),
            (Code::Unauthenticated, 90, false),
            (Code::ResourceExhausted, 60, true),
            (Code::Aborted, 2, false),
            (Code::DataLoss, 2, false),
            (Code::InvalidArgument, 0, false),
        ] {
            let (after, error) = borne(of(code));
            assert_eq!(after, seconds, "{code}");
            assert!(error.to_string().contains("words"), "{error}");
            assert_eq!(matches!(error, Error::TargetFull(_)), full, "{error}");
        }
        // A key that is refused after a long wait has its own time.
        let mut progress = Progress::new();
        progress.last -= Duration::from_secs(500);
        let strange = of(Code::Unauthenticated);
        target().bear(strange(), &mut progress).expect("the first");
    }

    #[test]
    fn member_that_had_all_of_it_may_have_founded_the_cluster() {
        let target = target();
        let refused = |whole| match target.taken("it is a member", whole) {
            Failed::Final(Error::Target(text)) => text,
            _ => panic!("it is final"),
        };
        assert!(refused(true).contains("may have founded the cluster"));
        assert!(!refused(false).contains("founded"));
    }
}
